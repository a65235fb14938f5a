"""A group of environments that are stepped together, and its rollouts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, Protocol

import cloudpickle
import gymnasium
import numpy as np

from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.values import EXECUTED, numeric_items, plain
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.seeding import Stream, seed_word
from eagerly.spaces import first_not_finite

_log = logging.getLogger(__name__)
UNCHANGED = "{}"  # the JSON of no changed keyword arguments


class FinishedEpisode(NamedTuple):
    """An episode that has ended.

    Attributes:
        environment: Index of its environment, in [0, N).
        total_reward: Undiscounted sum of its rewards.
        length: Number of steps.
    """

    environment: int
    total_reward: float
    length: int


@dataclass
class Rollout:
    """T steps of N environments.

    Attributes:
        observations: `[T + 1, N, O]`, float32: the observations before each step, then the current
            ones.
        actions: `[T, N, A]`, float32, the agent's actions in [-1, 1]; the same as `executed` if the
            actions were supplied by the caller.
        executed: `[T, N, ...]`, the actions in the environments' units.
        rewards: `[T, N]`.
        terminated, truncated: `[T, N]` bool.
        last: `[E, O]`, float32, the final observations of the E episodes that ended, ordered by
            time, then by environment.
        infos: Numeric entries in the final `info` of each of the E episodes.
        kept: Entries of `info` selected by `info_keys`, per step and environment; None without
            `info_keys`.
        episodes: The episodes that ended, in the order of `infos`.
        exploration: Exploration state after the rollout, if it ran in another process.
        replaced: Actions that an environment executed instead, which it reported as
            `info["executed_action"]`: step, environment, and the action in its units.
        recreated: Environments that were recreated because their keyword arguments changed:
            environment, the changed arguments as JSON, and "". If that failed, the arguments that
            it keeps, and the error.
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
    replaced: list[tuple[int, int, Any]] = field(default_factory=list)
    recreated: list[tuple[int, str, str]] = field(default_factory=list)

    @cached_property
    def ended(self) -> np.ndarray:
        """Mask of the steps that ended an episode, `[T, N]` bool."""
        return self.terminated | self.truncated

    @cached_property
    def next_observations(self) -> np.ndarray:
        """Next observations, `[T, N, O]`, where each episode ends with its final observation."""
        following = self.observations[1:]
        if not self.infos:
            return following
        following = following.copy()
        following[self.ended] = self.last
        return following

    @classmethod
    def joined(cls, parts: Sequence[Rollout], axis: int = 1) -> Rollout:
        """Joins rollouts of different environments (axis 1) or of successive steps (axis 0)."""
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
            # Final observations must be ordered by time, then by environment.
            times = np.concatenate([np.nonzero(part.ended)[0] for part in parts])
            order = np.argsort(times, kind="stable")
            last, infos = last[order], [infos[place] for place in order]
        else:
            before = [part.observations[:-1] for part in parts]
            observations = np.concatenate([*before, parts[-1].observations[-1:]])
            kept = list(chain(*kept))
        episodes = [episode for part in parts for episode in part.episodes]
        replaced, recreated, offset = [], [], np.zeros(2, int)  # in steps and environments
        for part in parts:
            replaced += [(t + offset[0], n + offset[1], action) for t, n, action in part.replaced]
            recreated += [(n + int(offset[1]), kwargs, why) for n, kwargs, why in part.recreated]
            offset[axis] += part.rewards.shape[axis]
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
            replaced=replaced,
            recreated=recreated,
        )


class Acts(Protocol):
    """A policy for a group of G environments, such as `policies.BehaviorPolicy`."""

    exploration: Any

    def to_environment(self, actions: np.ndarray, /) -> np.ndarray:
        """Maps actions `[G, A]` to the environments' units."""

    def act(self, observations: np.ndarray, *, uniform: bool = False) -> np.ndarray:
        """Returns actions `[G, A]` in [-1, 1] for observations `[G, O]`."""

    def observe(self, rewards: np.ndarray, ended: np.ndarray) -> None:
        """Records rewards `[G]` and episode ends `[G]` (bool)."""

    def on_reset(self, began: np.ndarray) -> None:
        """Called with the mask `[G]` of episodes that were reset without having ended."""


class EnvironmentGroup:
    """G environments of a run, stepped sequentially, with a separate seed for each episode.

    Args:
        make: Creates the environment with a given index.
        environments: Indices of the environments in the run.
        seed: Seed of the run. Each episode's seed derives from it, the environment's index and the
            episode's number.
        watchdog: Monitors steps and resets; None disables monitoring.
        info_keys: Entries of `info` that rollouts keep for each step.

    Attributes:
        envs: The environments.
        policy: Chooses the actions, unless the caller of `rollout` supplies them.
        observations: The current observations, `[G, O]`, float32.
        is_closing: Set to True to abort the current rollout when its result is no longer needed.
    """

    def __init__(
        self,
        make: Callable[[int], gymnasium.Env[Any, Any]],
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
                self.envs.append(
                    GuardedEnvironment(make(number), f"environment {number}", watchdog)
                )
        except BaseException:
            self.close()
            raise
        first, *others = [(env.observation_space, env.action_space) for env in self.envs]
        for spaces in others:
            if spaces != first:
                raise RunError(
                    f"{len(self.envs)} environments must have the same spaces; one has {first}, "
                    f"another {spaces}"
                )
        self.observation_space, self.action_space = first
        self._episodes = [0] * len(self.envs)
        self._kwargs = [UNCHANGED] * len(self.envs)
        self.policy: Acts | None = None
        self._begun = self.is_closing = False
        self.observations = np.empty((len(self.envs), 0), np.float32)

    def spaces(self) -> bytes:
        """Returns the observation and action spaces, serialized with cloudpickle."""
        content: bytes = cloudpickle.dumps((self.observation_space, self.action_space))
        return content

    def begin(
        self,
        episodes: Sequence[int],
        actions: Sequence[np.ndarray] = (),
        fresh: np.ndarray | None = None,
        kwargs: Sequence[str] = (),
    ) -> tuple[np.ndarray, np.ndarray]:
        """Resets environments to given episodes and replays their recorded actions.

        Args:
            episodes: Episode number of each environment.
            actions: Recorded actions of each environment, `[T, ...]`, in its units; if empty,
                nothing is replayed.
            fresh: Mask `[G]` of episodes that begin although the previous one did not end. Other
                environments are not reset, because not every episode can be replayed twice. None,
                or in a new group: all environments are reset.
            kwargs: Changed keyword arguments of each environment, as JSON, see `rollout`; empty:
                they stay.

        Returns:
            The resulting observations `[G, O]` and the returns of replays `[G]`, NaN if an episode
            ended, or the environment failed, during the replay.
        """
        self._episodes = list(episodes)
        for place, wanted in enumerate(kwargs):
            if wanted != self._kwargs[place] and (error := self._recreate(place, wanted)):
                raise RunError(error)
        if fresh is not None and self.policy is not None:
            self.policy.on_reset(fresh)
        places = range(len(self.envs))
        resets = [fresh is None or not self._begun or bool(fresh[place]) for place in places]
        self.observations = np.stack(
            [self._reset(at) if resets[at] else self.observations[at] for at in places]
        )
        self._begun = True
        returns = np.zeros(len(self.envs))
        for place, log in enumerate(actions):
            if resets[place]:
                returns[place] = self._replayed(place, log)
        return self.observations, returns

    def _replayed(self, place: int, log: np.ndarray) -> float:
        """Replays actions and returns their return, NaN if the environment ends or fails."""
        total = 0.0
        for action in log:
            try:
                found, reward, terminated, truncated, _ = self.envs[place].step(action)
            except RunError as error:
                _log.warning("while replaying an episode: %s", error)
                return np.nan
            self.observations[place] = found
            total += float(reward)
            if terminated or truncated:
                return np.nan
        return total

    def rollout(
        self,
        steps: int,
        random_steps: int = 0,
        given: np.ndarray | None = None,
        kwargs: str = UNCHANGED,
    ) -> Rollout:
        """Runs T steps and resets environments whose episode ends.

        Args:
            steps: T.
            random_steps: Number of initial steps with uniformly random actions.
            given: The actions of one step, `[G, ...]`, in the environments' units; None: the policy
                chooses the actions.
            kwargs: JSON object of changed keyword arguments. An environment whose episode ends is
                recreated if it has others.

        Raises:
            RunError: If the rollout is aborted or an environment fails.
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
        replaced: list[tuple[int, int, Any]] = []
        recreated: list[tuple[int, str, str]] = []
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
                    raise RunError("rollout aborted: its environments are being closed")
                found, reward, terminates, truncates, info = env.step(action)
                current[place] = found
                rewards[step, place] = reward
                terminated[step, place], truncated[step, place] = terminates, truncates
                if EXECUTED in info:
                    replaced.append((step, place, self._plain(place, info[EXECUTED])))
                if self._info_keys:
                    kept.append(self._kept(place, info))
                if terminates or truncates:
                    infos.append(numeric_items(info))
                    last.append(current[place].copy())
                    self._episodes[place] += 1
                    if kwargs != self._kwargs[place]:
                        error = self._recreate(place, kwargs)
                        recreated.append((place, self._kwargs[place], error))
                    current[place] = self._reset(place)
            if given is None and policy is not None:
                policy.observe(rewards[step], terminated[step] | truncated[step])
        actions = np.array(acted)
        return Rollout(
            observations,
            actions,
            actions if given is not None else np.array(executed),  # one object is pickled only once
            rewards,
            terminated,
            truncated,
            np.array(last, np.float32).reshape(len(last), size),
            infos,
            [kept[first : first + count] for first in range(0, len(kept), count)] if kept else None,
            replaced=replaced,
            recreated=recreated,
        )

    def _recreate(self, place: int, kwargs: str) -> str:
        """Creates an environment with other keyword arguments, or again with the present ones.

        Returns:
            Why the other arguments are not possible; "" if they are.
        """
        env, present = self.envs[place], self._kwargs[place]
        try:
            env.recreate(json.loads(kwargs))
        except RunError as error:
            env.recreate(json.loads(present))
            return str(error)
        self._kwargs[place] = kwargs
        return ""

    def _reset(self, place: int) -> np.ndarray:
        """Resets an environment with its episode's seed and returns the observation `[O]`."""
        number = self._numbers[place]
        seed = seed_word(self._seed, Stream.EPISODES, number, self._episodes[place])
        observation = np.array(self.envs[place].reset(seed=seed)[0], np.float32)
        if found := first_not_finite(observation):
            raise FloatingPointError(
                f"observation must be finite in float32; the reset of environment {number} "
                f"returned {found}"
            )
        return observation

    def _plain(self, place: int, action: Any) -> Any:
        try:
            return plain(action)
        except TypeError as error:
            raise RunError(
                f"environment {self._numbers[place]}: info[{EXECUTED!r}] must be {error}"
            ) from error

    def _kept(self, place: int, info: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {key: plain(info[key]) for key in self._info_keys if key in info}
        except TypeError as error:
            raise RunError(
                f"environment {self._numbers[place]}: each info entry that compute_reward or "
                f"compute_terminated reads must be {error}"
            ) from error

    def close(self) -> None:
        """Closes every environment."""
        for env in self.envs:
            env.close()
