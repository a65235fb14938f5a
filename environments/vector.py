"""N environments in groups: stepping them, and bringing them back into their episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from eagerly.environments.group import Acts, EnvironmentGroup, GroupStep, RolloutStep
from eagerly.environments.watchdog import Watchdog

VECTORIZATIONS = ("sync", "async")


class FinishedEpisode(NamedTuple):
    """An episode that has ended.

    Attributes:
        environment: Index of its environment, in [0, N).
        total_reward: Sum of its rewards, not discounted.
        length: Its steps.
        steps_left: How many steps of its environment followed in the same round.
    """

    environment: int
    total_reward: float
    length: int
    steps_left: int = 0


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
    """N copies of an environment in groups, each episode reset with a seed of its own.

    Groups act and are stepped by themselves. What they have done since their episodes began is
    kept here, so that any of them can be brought back to where it is.

    Args:
        make: Makes one of them.
        num_envs: N.
        seed: Seed of the run; every episode's seed derives from it.
        vectorization: "sync" steps them one after the other in this process, "async" at the same
            time in one process each; both give the same bits.
        group_size: G, the environments of a group; the last group may have fewer. 0: all of them.
        watchdog: Watches environments in this process; None watches nothing.
        timeout: Seconds that an environment in another process may take; 0 waits for ever.
        restorable: Whether the actions of the episodes in progress are kept, to repeat them.
        repeats: Whether it was seen that they repeat themselves from their seed, if that was
            looked at.
        info_keys: What of `info` each step hands on, in `VectorStep.kept`.

    Attributes:
        groups: The numbers of each group's environments.
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
        group_size: int = 0,
        watchdog: Watchdog | None = None,
        timeout: float = 0.0,
        restorable: bool = True,
        repeats: bool | None = None,
        info_keys: Sequence[str] = (),
    ) -> None:
        self.repeats, self._restorable = repeats, restorable
        every = range(num_envs)
        size = group_size or num_envs
        self.groups = [every[first : first + size] for first in range(0, num_envs, size)]
        making = partial(EnvironmentGroup, make, watchdog=watchdog, timeout=timeout)
        self._made: list[EnvironmentGroup] = []
        self._thread: ThreadPoolExecutor | None = None
        self._begun: Future[list[list[RolloutStep]]] | None = None
        try:
            for numbers in self.groups:
                self._made.append(making(numbers, seed, vectorization, info_keys=info_keys))
        except BaseException:
            self.close()
            raise
        self.observation_space = self._made[0].observation_space
        self.action_space = self._made[0].action_space
        self._episodes = [0] * num_envs
        self._actions: list[list[np.ndarray]] = [[] for _ in every]
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self.lost, self.why_lost = np.zeros(num_envs, bool), ""
        self.observations = np.empty((num_envs, 0), np.float32)

    def __len__(self) -> int:
        return len(self._episodes)

    def start(self) -> None:
        """Resets every environment to its first episode."""
        self.observations = self._joined(self._ask("begin", self._shares(self._episodes)))

    def step(self, actions: np.ndarray, steps_left: int = 0) -> VectorStep:
        """Steps with actions `[N, A]` in the environment's units, then resets what has ended.

        Args:
            actions: The actions.
            steps_left: How many more steps follow in the same round.
        """
        steps = self._ask("step", self._shares(actions))
        self.observations = self._joined([group.observations for group in self._made])
        return self._counted(actions, steps, steps_left)

    def begin_rollout(self, steps: int, acting: Sequence[Acts]) -> None:
        """Lets each group act and step in a thread of its own; the next `rollout` waits for it.

        Until then `observations` and `state` are those before it.

        Args:
            steps: How many times.
            acting: What acts, for each group; only this thread may use it meanwhile.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "collector")
        self._begun = self._thread.submit(self._rolled, steps, acting)

    def _rolled(self, steps: int, acting: Sequence[Acts]) -> list[list[RolloutStep]]:
        return [group.rollout(steps, each) for group, each in zip(self._made, acting, strict=True)]

    def rollout(
        self, steps: int, acting: Sequence[Acts]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, VectorStep]]:
        """Lets each group act and step so many times, or waits for the rollout that has begun.

        Args:
            steps: How many times.
            acting: What acts, for each group.

        Yields:
            For each step the observations that were acted upon, the actions as the agent makes
            them, and what came of it.
        """
        begun, self._begun = self._begun, None
        rollouts = begun.result() if begun else self._rolled(steps, acting)
        self.observations = self._joined([group.observations for group in self._made])
        for index, made in enumerate(zip(*rollouts, strict=True)):
            observations, actions, executed, results = zip(*made, strict=True)
            step = self._counted(self._joined(executed), results, steps - 1 - index)
            yield self._joined(observations), self._joined(actions), step

    def _ask(self, method: str, shares: Sequence[Any]) -> list[Any]:
        return [getattr(g, method)(share) for g, share in zip(self._made, shares, strict=True)]

    def _shares(self, values: Any) -> list[Any]:
        """Cuts what there is of each environment into what there is of each group."""
        return [values[numbers.start : numbers.stop] for numbers in self.groups]

    def _joined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _counted(
        self, actions: np.ndarray, steps: Sequence[GroupStep], steps_left: int
    ) -> VectorStep:
        """Joins the steps of groups, and keeps what episodes have done."""
        observations, rewards, terminated, truncated, ended, infos, kept = _joined_steps(steps)
        self._returns += rewards
        self._lengths += 1
        if self._restorable:
            for log, action in zip(self._actions, actions, strict=True):
                log.append(action)
        indices = np.flatnonzero(ended).tolist()
        episodes = [
            FinishedEpisode(
                index, float(self._returns[index]), int(self._lengths[index]), steps_left
            )
            for index in indices
        ]
        self._ended(indices)
        return VectorStep(
            observations, rewards, terminated, truncated, ended, infos, episodes, kept
        )

    def _ended(self, indices: list[int]) -> None:
        for index in indices:
            self._episodes[index] += 1
            self._actions[index] = []
            self._returns[index], self._lengths[index] = 0.0, 0

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
        self._actions = [list(actions) for actions in state["actions"]]
        self._lengths[:] = [len(actions) for actions in self._actions]
        parts = zip(self._shares(self._episodes), self._shares(state["actions"]), strict=True)
        restored = [group.repeat(*part) for group, part in zip(self._made, parts, strict=True)]
        self.observations = self._joined([observations for observations, _ in restored])
        lost = (self.observations != state["observations"]).any(axis=1)
        self._returns[:] = self._joined([returns for _, returns in restored])
        lost |= self._returns != np.array(state["returns"], np.float64)
        if lost.any():
            self.repeats = False
            self._ended(np.flatnonzero(lost).tolist())
            self.observations = self._joined(self._ask("skip", self._shares(lost)))
        elif self._lengths.any() and self.repeats is not False:  # one may come back by chance
            self.repeats = True
        self.lost, self.why_lost = lost, "they did not come back to where they were"

    def close(self) -> None:
        """Closes every environment, once those of a rollout that has begun have made their step."""
        for group in self._made:
            group.is_closing = True
        if self._thread is not None:
            self._thread.shutdown()
        for group in self._made:
            group.close()


def _joined_steps(steps: Sequence[GroupStep]) -> tuple[Any, ...]:
    """Joins the steps of groups, in the order of the environments."""
    if len(steps) == 1:
        return steps[0]
    *arrays, infos, kept = zip(*steps, strict=True)
    all_kept = None if kept[0] is None else list(chain.from_iterable(kept))
    return *map(np.concatenate, arrays), list(chain.from_iterable(infos)), all_kept
