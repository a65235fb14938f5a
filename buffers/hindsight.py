"""Hindsight experience replay: learning as if the goal had been what was achieved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eagerly.buffers.accumulators import Accumulator
from eagerly.buffers.counts import check_began, check_count
from eagerly.buffers.transition import Transition
from eagerly.state import packed, unpacked

FINAL = "final"
STRATEGIES = (FINAL, "future", "episode")

# Maps achieved goals `[M, G]`, desired goals `[M, G]` and the `info` of each step to rewards `[M]`
# and terminations `[M]` bool.
GoalOutcomes = Callable[[np.ndarray, np.ndarray, Sequence[Any]], tuple[np.ndarray, np.ndarray]]


class Hindsight:
    """Adds, when an episode has ended, its steps with goals that were achieved in it.

    Andrychowicz et al. 2017, "Hindsight Experience Replay", Algorithm 1 and section 4.5. The steps
    as they came go to the accumulator inside at once. For each of them `goals` others follow at
    the end of the episode, with another desired goal before and after, and the rewards and
    terminations that belong to it; with n steps they are summed up after that, as `NStep` does.

    Strategies: "final" takes what was achieved at the end of the episode, "future" draws from what
    was achieved in this step or later, "episode" from all of it.

    Args:
        inside: Makes transitions of the steps as they came.
        achieved: Columns of the achieved goal in an observation, G of them.
        desired: Columns of the desired goal, as many.
        outcomes: Gives rewards and terminations for other goals.
        discount: Discount per step, gamma.
        steps: n.
        strategy: One of `STRATEGIES`.
        goals: Goals for each step; with "final" there is one.
        seed: Seed of the draws, an int or a `numpy.random.SeedSequence`.
    """

    one_to_one = False

    def __init__(
        self,
        inside: Accumulator,
        *,
        achieved: slice,
        desired: slice,
        outcomes: GoalOutcomes,
        discount: float,
        steps: int = 1,
        strategy: str = "future",
        goals: int = 4,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        if strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}; got {strategy!r}")
        self._inside, self._achieved, self._desired = inside, achieved, desired
        self._outcomes, self._discount, self._steps = outcomes, discount, steps
        self._strategy, self._goals = strategy, 1 if strategy == FINAL else goals
        self._generator = np.random.Generator(np.random.PCG64(seed))
        # Of each environment the steps of its episode: observation, action, next one, info.
        self._episodes: list[list[tuple[Any, ...]]] = []

    def accumulate(
        self, transitions: Transition, ended: np.ndarray, infos: Sequence[Any] | None = None
    ) -> tuple[Transition, np.ndarray]:
        """Takes one step of each of N environments; `infos` are what `outcomes` is to be given.

        Raises:
            ValueError: If the number of environments changed without `on_reset`.
        """
        found, ends = self._inside.accumulate(transitions, ended)
        if not self._episodes:
            self._episodes = [[] for _ in range(len(ended))]
        check_count(len(self._episodes), len(ended))
        parts = (transitions.observation, transitions.action, transitions.next_observation)
        rows = [np.array(part, np.float32) for part in parts]
        for index, episode in enumerate(self._episodes):
            info = None if infos is None else infos[index]
            episode.append((*(part[index] for part in rows), info))
        groups = [found] if len(ends) else []
        for index in np.flatnonzero(ended).tolist():
            groups.append(self._relabelled(self._episodes[index]))
            self._episodes[index] = []
        if not groups:
            return found, ends
        all_parts = zip(*groups, strict=True)
        together = Transition(*(np.concatenate(part) for part in all_parts))
        return together, np.concatenate([ends, np.zeros(len(together.reward) - len(ends), bool)])

    def _relabelled(self, episode: list[tuple[Any, ...]]) -> Transition:
        """Returns the transitions `[T * goals]` of an episode of T steps with other goals."""
        columns = list(zip(*episode, strict=True))
        observation, action, reached = (np.stack(part) for part in columns[:3])
        infos, count = columns[3], len(episode)
        step = np.repeat(np.arange(count), self._goals)
        goal = reached[self._chosen(step, count), self._achieved]
        reward, discount = np.zeros(len(step)), np.ones(len(step))
        for ahead in range(self._steps):
            # Steps beyond the end add nothing; what terminated adds nothing any more.
            rows = np.flatnonzero((step + ahead < count) & (discount > 0))
            if not len(rows):
                break
            at = step[rows] + ahead
            rewards, terminated = self._outcomes(
                reached[at, self._achieved], goal[rows], [infos[i] for i in at]
            )
            reward[rows] += discount[rows] * rewards
            discount[rows] *= self._discount * ~terminated
        before = observation[step]
        after = reached[np.minimum(step + self._steps, count) - 1]
        before[:, self._desired] = after[:, self._desired] = goal
        return Transition(before, action[step], reward, discount, after)

    def _chosen(self, step: np.ndarray, count: int) -> np.ndarray:
        """Returns for each of these steps the step whose achieved goal it gets."""
        if self._strategy == FINAL:
            return np.full(len(step), count - 1)
        first = step if self._strategy == "future" else 0
        return self._generator.integers(first, count, size=len(step))

    def on_reset(self, began: np.ndarray) -> None:
        """Drops the episodes of environments, `[N]` bool, that cannot go on: they have no end."""
        self._inside.on_reset(began)
        if not self._episodes:  # no step was taken yet
            return
        check_began(began, len(self._episodes))
        if len(began) == len(self._episodes):
            for index in np.flatnonzero(began):
                self._episodes[index] = []
        else:
            self._episodes = []

    def state(self) -> dict[str, Any]:
        """Returns the episodes in progress, the draws, and the state of the accumulator inside."""
        episodes = []
        for episode in self._episodes:
            columns: list[Any] = list(zip(*episode, strict=True)) or [()] * 4
            arrays = [np.array(part, np.float32) for part in columns[:3]]
            episodes.append({"arrays": arrays, "infos": packed(columns[3])})
        return {
            "generator": dict(self._generator.bit_generator.state),
            "episodes": episodes,
            "inside": self._inside.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            ValueError: If it is the state of another accumulator.
        """
        if not state:
            raise ValueError("hindsight has a state of its own; got none")
        episodes = [
            list(zip(*map(np.array, each["arrays"]), unpacked(each["infos"]), strict=True))
            for each in state["episodes"]
        ]
        self._inside.restore(state["inside"])
        self._generator.bit_generator.state = state["generator"]
        self._episodes = episodes
