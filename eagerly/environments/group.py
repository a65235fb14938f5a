"""A group of environments that are stepped together, and what a rollout in it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Protocol

import cloudpickle
import gymnasium
import numpy as np

from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.values import numeric_items, plain
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.seeding import Stream, seed_word


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


@dataclass
class Rollout:
    """T steps of N environments.

    Attributes:
        observations: `[T + 1, N, O]`, float32: what was acted upon, and last the current ones.
        actions: `[T, N, A]`, float32, as the agent makes them, in [-1, 1]; what was executed where
            they were given.
        executed: `[T, N, ...]`, the same in the environments' units.
        rewards: `[T, N]`.
        terminated, truncated: `[T, N]` bool.
        last: `[E, O]`, float32, the real last observations of the E episodes that ended, by time,
            then by environment.
        infos: The numbers in `info` of each of them.
        kept: For each step and environment what `info_keys` names and `info` has; None without any.
        episodes: The episodes that ended, in the order of `infos`.
        exploration: The state of exploration after it, if it comes from another process.
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
    episodes: list[FinishedEpisode] = field(default_factory=list)
    exploration: Mapping[str, Any] | None = None

    @cached_property
    def ended(self) -> np.ndarray:
        """Which episodes ended, `[T, N]` bool."""
        return self.terminated | self.truncated

    @cached_property
    def next_observations(self) -> np.ndarray:
        """What the steps led to, `[T, N, O]`; where an episode ended the real last observation."""
        following = self.observations[1:]
        if not self.infos:
            return following
        following = following.copy()
        following[self.ended] = self.last
        return following

    @classmethod
    def joined(cls, parts: Sequence[Rollout], axis: int = 1) -> Rollout:
        """Joins rollouts of different environments, or with axis 0 of successive steps."""
        if len(parts) == 1:
            return parts[0]

        def joined(name: str) -> np.ndarray:
            return np.concatenate([getattr(part, name) for part in parts], axis)

        names = "actions", "executed", "rewards", "terminated", "truncated"
        actions, executed, rewards, terminated, truncated = map(joined, names)
        last = np.concatenate([part.last for part in parts])
        infos = [info for part in parts for info in part.infos]
        kept: list[Any] = [part.kept for part in parts if part.kept is not None]
        if axis:
            observations = joined("observations")
            kept = [list(chain(*step)) for step in zip(*kept, strict=True)]
            # By time, then by environment.
            times = np.concatenate([np.nonzero(part.ended)[0] for part in parts])
            order = np.argsort(times, kind="stable")
            last, infos = last[order], [infos[place] for place in order]
        else:
            before = [part.observations[:-1] for part in parts]
            observations = np.concatenate([*before, parts[-1].observations[-1:]])
            kept = list(chain(*kept))
        episodes = [episode for part in parts for episode in part.episodes]
        return cls(
            observations,
            actions,
            executed,
            rewards,
            terminated,
            truncated,
            last,
            infos,
            kept or None,
            episodes,
        )


class Acts(Protocol):
    """Acts in the environments of a group, as `policies.BehaviorPolicy` does."""

    exploration: Any

    def to_environment(self, actions: np.ndarray, /) -> np.ndarray:
        """Maps actions `[G, A]` to the environments' units."""

    def act(self, observations: np.ndarray, *, uniform: bool = False) -> np.ndarray:
        """Returns actions `[G, A]` in [-1, 1] for observations `[G, O]`."""

    def observe(self, rewards: np.ndarray, ended: np.ndarray) -> None:
        """Takes rewards `[G]`, and which episodes `[G]` ended."""

    def on_reset(self, began: np.ndarray) -> None:
        """Takes where `[G]` an episode begins although none ended."""


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
        policy: What acts in them, unless actions are given.
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
        self.policy: Acts | None = None
        self.is_closing = False
        self.observations = np.empty((len(self.envs), 0), np.float32)

    def spaces(self) -> bytes:
        """Returns the spaces of observations and actions, as cloudpickle writes them."""
        content: bytes = cloudpickle.dumps((self.observation_space, self.action_space))
        return content

    def begin(
        self,
        episodes: Sequence[int],
        actions: Sequence[np.ndarray] = (),
        fresh: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Resets every environment to an episode, and repeats the actions of it that were made.

        Args:
            episodes: The number of each one's episode.
            actions: Of each one `[T, ...]`, in the environment's units; without, none are repeated.
            fresh: Where an episode begins although none ended, `[G]` bool; None: nowhere.

        Returns:
            The observations reached, `[G, O]`, and the returns, NaN where an episode ended before
            its last action.
        """
        self._episodes = list(episodes)
        if fresh is not None and self.policy is not None:
            self.policy.on_reset(fresh)
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

    def rollout(
        self, steps: int, random_steps: int = 0, given: np.ndarray | None = None
    ) -> Rollout:
        """Acts and steps T times, and resets what ends on the way.

        Args:
            steps: T.
            random_steps: How many of them are uniformly random at first.
            given: The actions of one step, `[G, ...]`, in the environments' units; None: those of
                the policy.

        Raises:
            RunError: If it is broken off.
            FloatingPointError: If an action or an observation is NaN or infinite.
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
        policy = self.policy
        for step in range(steps):
            if given is None:
                assert policy is not None
                actions = policy.act(self.observations, uniform=step < random_steps)
                made = policy.to_environment(actions)
            else:
                actions = made = given
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
            if given is None and policy is not None:
                policy.observe(rewards[step], terminated[step] | truncated[step])
        actions = np.array(acted)
        return Rollout(
            observations,
            actions,
            actions if given is not None else np.array(executed),  # sent once
            rewards,
            terminated,
            truncated,
            np.array(last, np.float32).reshape(len(last), size),
            infos,
            [kept[first : first + count] for first in range(0, len(kept), count)] if kept else None,
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
