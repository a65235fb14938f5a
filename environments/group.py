"""A group of environments that are stepped together, and what a rollout in it gives."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.seeding import Stream, seed_word

_KEPT = "kept for hindsight"  # among what steps hand on


@dataclass(frozen=True)
class Rollout:
    """T steps of G environments.

    Attributes:
        observations: `[T + 1, G, O]`, float32: what was acted upon, and last the current ones.
        actions: `[T, G, A]`, float32, as the agent makes them, in [-1, 1].
        executed: `[T, G, ...]`, the same in the environments' units.
        rewards: `[T, G]`.
        terminated, truncated: `[T, G]` bool.
        last: `[E, O]`, float32, the real last observations of the E episodes that ended, by time,
            then by environment.
        infos: The numbers in `info` of each of them.
        kept: For each step and environment what `info_keys` names and `info` has; None without any.
    """

    observations: np.ndarray
    actions: np.ndarray
    executed: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    last: np.ndarray
    infos: list[dict[str, float]]
    kept: list[list[dict[str, Any]]] | None

    def ended(self) -> np.ndarray:
        """Returns which episodes ended, `[T, G]` bool."""
        return self.terminated | self.truncated

    def next_observations(self, ended: np.ndarray) -> np.ndarray:
        """Returns what the steps led to, `[T, G, O]`; where an episode ended the real last one."""
        following = self.observations[1:]
        if not self.infos:
            return following
        following = following.copy()
        following[ended] = self.last
        return following


class Acts(Protocol):
    """Chooses the actions of a group, one step after the other."""

    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns actions `[G, A]` for observations `[G, O]`, and the same for environments."""

    def stepped(self, ended: np.ndarray) -> None:
        """Takes which episodes ended, `[G]` bool, in the step that was made."""


class RestorableEpisode(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Brings its environment back into the middle of an episode by repeating its actions.

    Of `info` it hands on the numbers at an episode's end; whatever else stands in it, of any shape
    and type, would have to fit into a vector environment's arrays, and pass between processes.

    Args:
        env: The environment.
        index: Its number.
        place: Its place in its group.
        info_keys: What of `info` is handed on at every step, too.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        index: int,
        place: int,
        info_keys: Sequence[str] = (),
    ) -> None:
        super().__init__(env)
        self._index, self._place, self._info_keys = index, place, tuple(info_keys)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment."""
        return self.env.reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> Any:
        """Steps the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        handed_on: dict[str, Any] = numeric_items(info) if terminated or truncated else {}
        if self._info_keys:
            handed_on[_KEPT] = (self._kept(info),)  # a tuple: dictionaries would be merged
        return observation, reward, terminated, truncated, handed_on

    def _kept(self, info: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {key: plain(info[key]) for key in self._info_keys if key in info}
        except TypeError as error:
            raise RunError(
                f"environment {self._index}: what its compute_reward or compute_terminated reads "
                f"of info must be {error}"
            ) from error

    def restore_episode(
        self, seeds: list[int], actions: list[np.ndarray]
    ) -> tuple[Any, float | None]:
        """Repeats this environment's share; returns the observation and the return reached.

        The return is None where the episode ended before its last action.

        Args:
            seeds: The reset seed of the episode of each environment in the group.
            actions: The actions of each of these episodes so far, `[T, A]`.
        """
        observation, _ = self.env.reset(seed=seeds[self._place])
        total = 0.0
        for action in actions[self._place]:
            observation, reward, terminated, truncated, _ = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                return observation, None
        return observation, total


class GivenActions:
    """Acts as somebody else has decided, in one step.

    Args:
        actions: `[G, ...]`, in the environments' units.
    """

    def __init__(self, actions: np.ndarray) -> None:
        self._actions = actions

    def act(self, observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the actions."""
        return self._actions, self._actions

    def stepped(self, ended: np.ndarray) -> None:
        """Takes which episodes ended."""


class EnvironmentGroup:
    """G environments of a run, stepped one after the other, each episode reset with its own seed.

    Args:
        make: Makes one of them.
        environments: Their numbers in the run.
        seed: Seed of the run; every episode's seed derives from it and the environment's number.
        watchdog: Watches their steps and resets; None watches nothing.
        info_keys: What of `info` each step hands on.

    Attributes:
        observations: `[G, O]`, float32, the current ones.
        is_closing: Whether a rollout is to end after its next step, because nobody waits for it.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        environments: range,
        seed: int,
        *,
        watchdog: Watchdog | None = None,
        info_keys: Sequence[str] = (),
    ) -> None:
        self._numbers, self._seed = environments, seed
        factories = [
            partial(_guarded, make, number, place, watchdog, info_keys)
            for place, number in enumerate(environments)
        ]
        count = len(factories)
        try:
            self._envs = SyncVectorEnv(factories, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        except RunError:
            raise
        except (RuntimeError, AssertionError) as error:  # copies with different spaces
            raise RunError(f"{count} environments do not fit together: {error}") from error
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        self._episodes = [0] * count
        self.is_closing = False
        self.observations = np.empty((count, 0), np.float32)

    def begin(
        self, episodes: Sequence[int], actions: Sequence[np.ndarray] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """Resets every environment to an episode, and repeats the actions of it that were made.

        Args:
            episodes: The number of each one's episode.
            actions: Of each one `[T, ...]`, in the environment's units; without, none are repeated.

        Returns:
            The observations reached, `[G, O]`, and the returns, NaN where an episode ended before
            its last action.
        """
        self._episodes = list(episodes)
        observations, _ = self._envs.reset(seed=self._seeds())
        self.observations = self._checked(observations)
        returns = np.zeros(len(self._numbers))
        if any(map(len, actions)):
            restored = self._envs.call("restore_episode", self._seeds(), list(actions))
            reached = np.array([observation for observation, _ in restored], np.float32)
            self.observations = reached.reshape(len(self._numbers), -1)
            returns[:] = [np.nan if total is None else total for _, total in restored]
        return self.observations, returns

    def rollout(self, steps: int, acting: Acts) -> Rollout:
        """Acts and steps T times, and resets what ends on the way."""
        count, size = self.observations.shape
        observations = np.empty((steps + 1, count, size), np.float32)
        observations[0] = self.observations
        rewards = np.zeros((steps, count))
        terminated, truncated = np.zeros((2, steps, count), bool)
        acted, executed = [], []
        last: list[np.ndarray] = []
        infos: list[dict[str, float]] = []
        kept: list[list[dict[str, Any]]] = []
        for step in range(steps):
            actions, made = acting.act(self.observations)
            acted.append(actions)
            executed.append(made)
            found, rewards[step], terminated[step], truncated[step], info = self._envs.step(made)
            ended = terminated[step] | truncated[step]
            observations[step + 1] = found  # copied: the vector environment reuses its arrays
            self.observations = observations[step + 1]
            if _KEPT in info:
                kept.append([each for (each,) in info[_KEPT]])
            if ended.any():
                indices = np.flatnonzero(ended).tolist()
                infos += [_info_of(info, index) for index in indices]
                last += [self.observations[index].copy() for index in indices]
                self._begin_next(ended)
            acting.stepped(ended)
            if self.is_closing:
                break
        return Rollout(
            observations,
            np.array(acted),
            np.array(executed),
            rewards,
            terminated,
            truncated,
            np.array(last, np.float32).reshape(len(last), size),
            infos,
            kept or None,
        )

    def _begin_next(self, ended: np.ndarray) -> None:
        """Resets the environments whose episode ended, `[G]` bool, to their next ones."""
        for index in np.flatnonzero(ended):
            self._episodes[index] += 1
        found, _ = self._envs.reset(seed=self._seeds(), options={"reset_mask": ended.copy()})
        self.observations[ended] = self._checked(found)[ended]

    def _seeds(self) -> list[int | None]:
        return [
            seed_word(self._seed, Stream.EPISODES, number, episode)
            for number, episode in zip(self._numbers, self._episodes, strict=True)
        ]

    def _checked(self, observations: np.ndarray) -> np.ndarray:
        copied = np.array(observations, np.float32)
        if not np.isfinite(copied).all():
            index = int(np.argwhere(~np.isfinite(copied))[0, 0])
            raise FloatingPointError(
                f"observation must be finite in float32; a reset of environment "
                f"{self._numbers[index]} gave {copied[index].tolist()}"
            )
        return copied

    def close(self) -> None:
        """Closes every environment."""
        self._envs.close()


def _guarded(
    make: Callable[[], gymnasium.Env[Any, Any]],
    number: int,
    place: int,
    watchdog: Watchdog | None,
    info_keys: Sequence[str],
) -> gymnasium.Env[Any, Any]:
    guarded = GuardedEnvironment(make(), f"environment {number}", watchdog)
    return RestorableEpisode(guarded, number, place, info_keys)


def _info_of(info: dict[str, Any], index: int) -> dict[str, float]:
    """Picks one environment's numbers out of a vector environment's `info`."""
    return {
        key: float(values[index])
        for key, values in info.items()
        if key != _KEPT and f"_{key}" in info and info[f"_{key}"][index]
    }


def plain(value: Any) -> Any:
    """Returns an entry of `info` as a checkpoint can hold it: a copy, NumPy scalars as Python's.

    Raises:
        TypeError: If it is no number, text, truth value, None or array.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return value.copy()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    what = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(f"a number, text, truth value, None or array of numbers; got {what}")


def numeric_items(info: Mapping[str, Any]) -> dict[str, float]:
    """Picks the finite numbers and truth values out of an `info` dictionary."""
    return {
        key: float(value)
        for key, value in info.items()
        if isinstance(value, numbers.Real | np.bool_) and math.isfinite(value)
    }
