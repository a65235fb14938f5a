"""N environments: stepping them side by side, and bringing them back into their episodes."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.watchdog import Watchdog
from eagerly.environments.workers import WorkerEnvironments
from eagerly.errors import RunError
from eagerly.seeding import Stream, seed_word

VECTORIZATIONS = ("sync", "async")
_KEPT = "kept for hindsight"  # among what steps hand on


class RestorableEpisode(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Brings its environment back into the middle of an episode by repeating its actions.

    Of `info` it hands on the numbers at an episode's end; whatever else stands in it, of any shape
    and type, would have to fit into a vector environment's arrays, and pass between processes.

    Args:
        env: The environment.
        index: Its number.
        info_keys: What of `info` is handed on at every step, too.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], index: int, info_keys: Sequence[str] = ()
    ) -> None:
        super().__init__(env)
        self._index, self._info_keys = index, tuple(info_keys)

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
            seeds: The reset seed of each environment's episode.
            actions: The actions of each environment's episode so far, `[T, A]`.
        """
        observation, _ = self.env.reset(seed=seeds[self._index])
        total = 0.0
        for action in actions[self._index]:
            observation, reward, terminated, truncated, _ = self.env.step(action)
            total += float(reward)
            if terminated or truncated:
                return observation, None
        return observation, total


class FinishedEpisode(NamedTuple):
    """An episode that has ended.

    Attributes:
        environment: Index of its environment, in [0, N).
        total_reward: Sum of its rewards, not discounted.
        length: Its steps.
    """

    environment: int
    total_reward: float
    length: int


@dataclass(frozen=True)
class VectorStep:
    """What a step of N environments gave.

    Attributes:
        observations: `[N, O]`; where an episode ended the real last one.
        rewards: `[N]`.
        terminated, truncated: `[N]` bool.
        ended: Which episodes did one or the other, `[N]` bool.
        infos: The numbers in `info` of each episode that ended.
        episodes: The episodes that ended, in the order of `infos`.
        kept: Of each environment what `info_keys` names and `info` has, `[N]`; None without any.
    """

    observations: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    ended: np.ndarray
    infos: list[dict[str, float]]
    episodes: list[FinishedEpisode]
    kept: list[dict[str, Any]] | None = None


class Environments:
    """N copies of an environment, each episode reset with a seed of its own.

    Args:
        make: Makes one of them.
        num_envs: N.
        seed: Seed of the run; every episode's seed derives from it.
        vectorization: "sync" steps them one after the other in this process, "async" at the same
            time in one process each; both give the same bits.
        watchdog: Watches environments in this process; None watches nothing.
        timeout: Seconds that an environment in another process may take; 0 waits for ever.
        restorable: Whether the actions of the episodes in progress are kept, to repeat them.
        repeats: Whether it was seen that they repeat themselves from their seed, if that was
            looked at.
        info_keys: What of `info` each step hands on, in `VectorStep.kept`.

    Attributes:
        repeats: As given; after `restore` whether episodes that were repeated came back. Once it
            is False it stays so, also in `state`.
        observations: `[N, O]`, float32, the current ones.
        lost: `[N]` bool, which of them `restore` could not bring back.
        why_lost: Why, in words.
    """

    def __init__(
        self,
        make: Callable[[], gymnasium.Env[Any, Any]],
        num_envs: int,
        seed: int,
        vectorization: str = "sync",
        *,
        watchdog: Watchdog | None = None,
        timeout: float = 0.0,
        restorable: bool = True,
        repeats: bool | None = None,
        info_keys: Sequence[str] = (),
    ) -> None:
        self.repeats = repeats
        self._seed, self._restorable = seed, restorable
        in_processes = vectorization == "async"
        watching = None if in_processes else watchdog
        factories = [
            partial(_guarded, make, index, watching, info_keys) for index in range(num_envs)
        ]
        try:
            self._envs: SyncVectorEnv | WorkerEnvironments
            if in_processes:
                # Watched is only what is made here: the processes are waited for, with a timeout.
                look = partial(_watched, partial(_guarded, make, 0, watchdog, ()), watchdog, 1)
                self._envs = WorkerEnvironments(factories, look, timeout=timeout)
            else:
                making = partial(SyncVectorEnv, copy=False, autoreset_mode=AutoresetMode.DISABLED)
                self._envs = _watched(partial(making, factories), watchdog, num_envs)
        except RunError:
            raise
        except (RuntimeError, AssertionError) as error:  # copies with different spaces
            raise RunError(f"{num_envs} environments do not fit together: {error}") from error
        self.observation_space = self._envs.single_observation_space
        self.action_space = self._envs.single_action_space
        self._episodes = [0] * num_envs
        self._actions: list[list[np.ndarray]] = [[] for _ in range(num_envs)]
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self.lost, self.why_lost = np.zeros(num_envs, bool), ""
        self.observations = np.empty((num_envs, 0), np.float32)

    def __len__(self) -> int:
        return len(self._episodes)

    def start(self) -> None:
        """Resets every environment to its first episode."""
        observations, _ = self._envs.reset(seed=self._seeds())
        self.observations = self._checked(observations)

    def step(self, actions: np.ndarray) -> VectorStep:
        """Steps with actions `[N, A]` in the environment's units, then resets what has ended."""
        observations, rewards, terminated, truncated, info = self._envs.step(actions)
        ended = terminated | truncated
        # The vector environment reuses its arrays: this cast copies.
        observations = np.array(observations, np.float32)
        self._returns += rewards
        self._lengths += 1
        indices = np.flatnonzero(ended).tolist()
        infos = [_info_of(info, index) for index in indices]
        episodes = [
            FinishedEpisode(index, float(self._returns[index]), int(self._lengths[index]))
            for index in indices
        ]
        kept = [each for (each,) in info[_KEPT]] if _KEPT in info else None
        step = VectorStep(
            observations, rewards, terminated, truncated, ended, infos, episodes, kept
        )
        if self._restorable:
            for log, action in zip(self._actions, actions, strict=True):
                log.append(action)
        self.observations = observations
        if episodes:
            self._reset(ended)
        return step

    def _reset(self, ended: np.ndarray) -> None:
        for index in np.flatnonzero(ended):
            self._episodes[index] += 1
            self._actions[index] = []
        self._returns[ended], self._lengths[ended] = 0.0, 0
        observations, _ = self._envs.reset(
            seed=self._seeds(), options={"reset_mask": np.array(ended)}
        )
        fresh = self._checked(observations)
        self.observations = np.where(ended[:, np.newaxis], fresh, self.observations)

    def _seeds(self) -> list[int | None]:
        return [
            seed_word(self._seed, Stream.EPISODES, environment, episode)
            for environment, episode in enumerate(self._episodes)
        ]

    def _checked(self, observations: np.ndarray) -> np.ndarray:
        copied = np.array(observations, np.float32)
        if not np.isfinite(copied).all():
            index = int(np.argwhere(~np.isfinite(copied))[0, 0])
            raise FloatingPointError(
                f"observation must be finite in float32; a reset of environment {index} gave "
                f"{copied[index].tolist()}"
            )
        return copied

    def state(self) -> dict[str, Any]:
        """Returns what `restore` needs: episode numbers, actions and returns, the observations.

        Under "repeats" it has False, if it was seen that episodes do not repeat themselves.
        """
        state = {
            "episodes": list(self._episodes),
            "actions": [
                np.array(log).reshape(len(log), *(self.action_space.shape or ()))
                for log in self._actions
            ],
            "returns": self._returns.tolist(),
            "restorable": self._restorable,
            "observations": self.observations,
        }
        return state | {"repeats": False} if self.repeats is False else state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Brings every environment back to where `state` was taken, and says in `lost` which not.

        An environment is lost, and begins a fresh episode, if it did not come back to the same
        observation with the same return, because it does not repeat itself from a seed; all of them
        are if their number has changed, or actions are not to be repeated.

        Raises:
            ValueError: If it is the state of other environments.
        """
        count = len(self)
        episodes = [int(number) for number in state["episodes"]]
        if not len(episodes) == len(state["actions"]) == len(state["returns"]):
            raise ValueError(f"the episodes {episodes} have not all their actions and returns")
        self._episodes = (episodes + [0] * count)[:count]
        if state.get("repeats") is False:
            self.repeats = False
        self.why_lost = ""
        if not self._restorable:
            self.why_lost = "--restore-episodes no"
        elif not state["restorable"]:
            self.why_lost = "their actions were not kept, with --restore-episodes no"
        elif len(episodes) != count:
            self.why_lost = f"there were {len(episodes)} environments"
        if self.why_lost:
            self._episodes = [episode + 1 for episode in self._episodes]
            self.start()  # one reset: it may be expensive
            self.lost = np.ones(count, bool)
            return
        self.start()
        self._actions = [list(actions) for actions in state["actions"]]
        self._lengths[:] = [len(actions) for actions in self._actions]
        longest = {"steps": int(np.max(self._lengths))}
        patience = longest if isinstance(self._envs, WorkerEnvironments) else {}
        restored = self._envs.call("restore_episode", self._seeds(), state["actions"], **patience)
        reached = np.array([observation for observation, _ in restored], np.float32)
        self.observations = reached.reshape(count, -1)
        lost = (self.observations != state["observations"]).any(axis=1)
        self._returns[:] = [np.nan if total is None else total for _, total in restored]
        lost |= self._returns != np.array(state["returns"], np.float64)
        if lost.any():
            self.repeats = False
            self._reset(lost)
        elif self._lengths.any() and self.repeats is not False:  # one may come back by chance
            self.repeats = True
        self.lost, self.why_lost = lost, "they did not come back to where they were"

    def close(self) -> None:
        """Closes every environment."""
        self._envs.close()


def _watched(make: Callable[[], Any], watchdog: Watchdog | None, patience: int) -> Any:
    """Makes something; environments in this process cannot be broken off otherwise."""
    calling = watchdog.calling("making the environments", patience) if watchdog else nullcontext()
    with calling:
        return make()


def _guarded(
    make: Callable[[], gymnasium.Env[Any, Any]],
    index: int,
    watchdog: Watchdog | None,
    info_keys: Sequence[str],
) -> gymnasium.Env[Any, Any]:
    guarded = GuardedEnvironment(make(), f"environment {index}", watchdog)
    return RestorableEpisode(guarded, index, info_keys)


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
