"""Hindsight experience replay: relabels episodes with goals that were achieved in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eagerly.buffers.accumulators import Accumulator
from eagerly.buffers.counts import check_began, check_count
from eagerly.buffers.transition import Transition
from eagerly.errors import whole_number
from eagerly.state import check_keys, packed, unpacked

FINAL = "final"
STRATEGIES = (FINAL, "future", "episode")

# Maps achieved goals `[M, G]`, desired goals `[M, G]` and the `info` of each step to rewards `[M]`
# and terminations `[M]` bool.
GoalOutcomes = Callable[[np.ndarray, np.ndarray, Sequence[Any]], tuple[np.ndarray, np.ndarray]]


class Hindsight:
    """Adds relabeled copies of each finished episode's steps, with goals achieved in that episode.

    Andrychowicz et al. 2017, "Hindsight Experience Replay", Algorithm 1 and section 4.5.

    Original steps are passed to the inner accumulator immediately. When an episode ends, `goals`
    relabeled transitions are added for each of its steps. Their observations contain the new
    desired goal. Rewards and terminations are recomputed for this goal, then combined into n-step
    returns as in `NStep`.

    The strategy "final" uses the goal achieved at the end of the episode. "future" samples goals
    achieved in the same step or later, and "episode" samples from the whole episode.

    Args:
        inside: The inner accumulator, for the original steps.
        achieved: The G observation columns that hold the achieved goal.
        desired: The G observation columns that hold the desired goal.
        outcomes: Computes rewards and terminations for other goals.
        discount: Discount per step, γ.
        steps: n, the number of steps per return.
        strategy: One of `STRATEGIES`.
        goals: Number of goals per step; always 1 with "final".
        seed: Seed of the goal sampling, an int or a `numpy.random.SeedSequence`.

    Raises:
        ValueError: If the strategy is unknown, or `steps` or `goals` is below 1.
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
        steps, goals = whole_number("steps", steps, 1), whole_number("goals", goals, 1)
        self._inside, self._achieved, self._desired = inside, achieved, desired
        self._outcomes, self._discount, self._steps = outcomes, discount, steps
        self._strategy, self._goals = strategy, 1 if strategy == FINAL else goals
        self._generator = np.random.Generator(np.random.PCG64(seed))
        # Per environment, the steps of its episode: observation, action, next observation, info.
        self._episodes: list[list[tuple[Any, ...]]] = []

    def accumulate(
        self, transitions: Transition, ended: np.ndarray, infos: Sequence[Any] | None = None
    ) -> tuple[Transition, np.ndarray]:
        """Accumulates one step of each of N environments; `infos` are passed to `outcomes`.

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
            groups.append(self._relabeled(self._episodes[index]))
            self._episodes[index] = []
        if not groups:
            return found, ends
        all_parts = zip(*groups, strict=True)
        together = Transition(*(np.concatenate(part) for part in all_parts))
        return together, np.concatenate([ends, np.zeros(len(together.reward) - len(ends), bool)])

    def _relabeled(self, episode: list[tuple[Any, ...]]) -> Transition:
        """Returns the relabeled transitions `[T * goals]` of an episode of T steps."""
        columns = list(zip(*episode, strict=True))
        observation, action, reached = (np.stack(part) for part in columns[:3])
        infos, count = columns[3], len(episode)
        step = np.repeat(np.arange(count), self._goals)
        goal = reached[self._goal_steps(step, count), self._achieved]
        reward, discount = np.zeros(len(step)), np.ones(len(step))
        for ahead in range(self._steps):
            # An n-step return stops at the end of the episode, or at the first step that terminates
            # it under the relabeled goal.
            rows = np.flatnonzero((step + ahead < count) & (discount > 0))
            if not len(rows):
                break
            at = step[rows] + ahead
            rewards, terminated = self._outcomes(
                reached[at, self._achieved], goal[rows], [infos[i] for i in at]
            )
            reward[rows] += discount[rows] * rewards
            discount[rows] *= self._discount * ~np.asarray(terminated, bool)
        before = observation[step]
        after = reached[np.minimum(step + self._steps, count) - 1]
        before[:, self._desired] = after[:, self._desired] = goal
        return Transition(before, action[step], reward, discount, after)

    def _goal_steps(self, step: np.ndarray, count: int) -> np.ndarray:
        """Returns, for each step, the index of the step that provides its goal."""
        if self._strategy == FINAL:
            return np.full(len(step), count - 1)
        first = step if self._strategy == "future" else 0
        return self._generator.integers(first, count, size=len(step))

    def on_reset(self, began: np.ndarray) -> None:
        """Discards the interrupted episodes of the environments in `began`, `[N]` bool."""
        self._inside.on_reset(began)
        if not self._episodes:  # no steps yet
            return
        check_began(began, len(self._episodes))
        if len(began) == len(self._episodes):
            for index in np.flatnonzero(began):
                self._episodes[index] = []
        else:
            self._episodes = []

    def state(self) -> dict[str, Any]:
        """Returns the current episodes, the generator state and the inner accumulator's state."""
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
        """Restores a state returned by `state()`.

        Raises:
            ValueError: If the state is empty, of another kind of accumulator, or does not fit the
                inner accumulator.
        """
        check_keys("Hindsight", state, ("generator", "episodes", "inside"))
        episodes = [
            list(zip(*map(np.array, each["arrays"]), unpacked(each["infos"]), strict=True))
            for each in state["episodes"]
        ]
        self._inside.restore(state["inside"])
        self._generator.bit_generator.state = state["generator"]
        self._episodes = episodes
