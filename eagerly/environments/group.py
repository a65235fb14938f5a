"""A group of environments that are stepped together, and what a rollout in it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium
import numpy as np

from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.values import numeric_items, plain
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.seeding import Stream, seed_word


@dataclass(frozen=True)
class Rollout:
    """T steps of G environments.

    Attributes:
        observations: `[T + 1, G, O]`, float32: what was acted upon, and last the current ones.
        actions: `[T, G, A]`, float32, as the agent makes them, in [-1, 1]; what was executed where
            they were given.
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
        envs: The environments.
        observations: `[G, O]`, float32, the current ones.
        is_closing: Whether a rollout is to be broken off, because nobody waits for it.
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
        self._numbers, self._seed, self._info_keys = environments, seed, tuple(info_keys)
        self.envs: list[GuardedEnvironment] = []
        try:
            for number in environments:
                self.envs.append(GuardedEnvironment(make(), f"environment {number}", watchdog))
        except BaseException:
            self.close()
            raise
        first, *others = [(env.observation_space, env.action_space) for env in self.envs]
        for spaces in others:
            if spaces != first:
                raise RunError(
                    f"{len(self.envs)} environments do not fit together: one has the spaces "
                    f"{first}, another {spaces}"
                )
        self.observation_space, self.action_space = first
        self._episodes = [0] * len(self.envs)
        self.is_closing = False
        self.observations = np.empty((len(self.envs), 0), np.float32)

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
        self.observations = np.stack([self._reset(place) for place in range(len(self.envs))])
        returns = np.zeros(len(self.envs))
        for place, log in enumerate(actions):
            for action in log:
                found, reward, terminated, truncated, _ = self.envs[place].step(action)
                self.observations[place] = found
                returns[place] += float(reward)
                if terminated or truncated:
                    returns[place] = np.nan
                    break
        return self.observations, returns

    def rollout(self, steps: int, acting: Acts) -> Rollout:
        """Acts and steps T times, and resets what ends on the way.

        Raises:
            RunError: If it is broken off.
        """
        count, size = self.observations.shape
        observations = np.empty((steps + 1, count, size), np.float32)
        observations[0] = self.observations
        rewards = np.zeros((steps, count))
        terminated, truncated = np.zeros((2, steps, count), bool)
        acted, executed = [], []
        last: list[np.ndarray] = []
        infos: list[dict[str, float]] = []
        kept: list[dict[str, Any]] = []
        for step in range(steps):
            actions, made = acting.act(self.observations)
            acted.append(actions)
            executed.append(made)
            current = self.observations = observations[step + 1]
            for place, (env, action) in enumerate(zip(self.envs, made, strict=True)):
                if self.is_closing:
                    raise RunError("a rollout was broken off: its environments are being closed")
                found, reward, terminates, truncates, info = env.step(action)
                current[place] = found
                rewards[step, place] = reward
                terminated[step, place], truncated[step, place] = terminates, truncates
                if self._info_keys:
                    kept.append(self._kept(place, info))
                if terminates or truncates:
                    infos.append(numeric_items(info))
                    last.append(current[place].copy())
                    self._episodes[place] += 1
                    current[place] = self._reset(place)
            ended = terminated[step] | truncated[step]
            acting.stepped(ended)
        actions = np.array(acted)
        return Rollout(
            observations,
            actions,
            actions if isinstance(acting, GivenActions) else np.array(executed),  # sent once
            rewards,
            terminated,
            truncated,
            np.array(last, np.float32).reshape(len(last), size),
            infos,
            [kept[first : first + count] for first in range(0, len(kept), count)] or None,
        )

    def _reset(self, place: int) -> np.ndarray:
        """Resets an environment to its episode, and returns its observation `[O]`."""
        number = self._numbers[place]
        seed = seed_word(self._seed, Stream.EPISODES, number, self._episodes[place])
        observation = np.array(self.envs[place].reset(seed=seed)[0], np.float32)
        if not np.isfinite(observation).all():
            raise FloatingPointError(
                f"observation must be finite in float32; a reset of environment {number} gave "
                f"{observation.tolist()}"
            )
        return observation

    def _kept(self, place: int, info: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {key: plain(info[key]) for key in self._info_keys if key in info}
        except TypeError as error:
            raise RunError(
                f"environment {self._numbers[place]}: what its compute_reward or "
                f"compute_terminated reads of info must be {error}"
            ) from error

    def close(self) -> None:
        """Closes every environment."""
        for env in self.envs:
            env.close()
