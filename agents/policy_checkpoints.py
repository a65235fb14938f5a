"""Policy checkpoints: the policy that is kept is the one whose worst episode was the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from eagerly.agents.algorithm import Budget, FinishedEpisode
from eagerly.errors import RunStoppedError

LONGEST_EPISODE = 100_000  # steps


class EpisodicBudget:
    """Updates of a run, paid when `pay` was called, as many whole calls as are owed then.

    Args:
        run: Counts what is owed.
        switch: The flag of a run without this budget, for a message.

    Attributes:
        has_begun: Whether a step has owed updates.
    """

    def __init__(self, run: Budget, switch: str) -> None:
        self._run, self._switch = run, switch
        self._paying, self._rounds, self.has_begun = False, 0, False

    @property
    def can_pay(self) -> bool:
        """Whether a whole call is owed."""
        return self._run.is_call_due

    @property
    def is_call_due(self) -> bool:
        """Whether a whole call is owed, and to be made now."""
        return self._paying and self._run.is_call_due

    def pay(self) -> None:
        """Lets calls be made until no whole one is owed."""
        self._paying = True

    def ended(self) -> None:
        """Says that an episode has ended."""
        self._rounds = 0

    def stepped(self, new: int) -> None:
        """Counts the steps of a round that owe updates, and the rounds since an episode ended.

        Raises:
            RunStoppedError: If no episode has ended in 100,000 rounds, random ones included.
        """
        self._run.stepped(new)
        self.has_begun = self.has_begun or new > 0
        self._rounds += 1
        if self._rounds > LONGEST_EPISODE:
            raise RunStoppedError(
                f"no episode has ended in {LONGEST_EPISODE} steps of each environment, and updates "
                "are made only at the ends of episodes: give the environment a time limit, or "
                f"begin another run with {self._switch}"
            )

    def paid(self) -> None:
        """Counts a call."""
        self._run.paid()
        self._paying = self._run.is_call_due

    def state(self) -> dict[str, Any]:
        """Returns what is owed, and whether it is being paid."""
        return {
            "run": self._run.state(),
            "paying": self._paying,
            "rounds": self._rounds,
            "has_begun": self.has_begun,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            ValueError: If it is the state of another budget.
        """
        self._run.restore(state["run"])
        self._rounds = int(state["rounds"])
        # With larger calls than before, none may be due: then nothing is being paid any more.
        self._paying = bool(state["paying"]) and self._run.is_call_due
        self.has_begun = bool(state["has_begun"])


class PolicyCheckpoints:
    """Judges the current policy by the episodes that it collects, all from beginning to end.

    Fujimoto et al. 2023, "For SALE: State-Action Representation Learning for Deep Reinforcement
    Learning", section 5.1. A policy is as good as its worst episode. Once that is
    worse than the kept policy's, the policy is trained on at once; after enough episodes it is
    kept instead, and then trained on. An episode during which the policy changed, because another
    environment's episode ended, is ignored.

    Attributes:
        best: The worst return of the policy that is kept; None before there is one.
        kept: How many policies were kept so far.
        has_learned: Whether the policy that is kept has had an update.
        was_given: Whether the first policy is that of another run, and not an untrained one.
    """

    def __init__(self) -> None:
        self.best: float | None = None
        self.kept, self.has_learned, self.was_given = 0, False, False
        self._is_rescaled = False
        self._worst: float | None = None  # of the current policy
        self._judged = 0
        # Environments whose episode began under the current policy; None: all.
        self._fresh: set[int] | None = None

    def ended(self, episodes: Sequence[FinishedEpisode], *, judging: bool) -> None:
        """Takes the episodes that ended in one round, in their order.

        Args:
            episodes: The episodes.
            judging: Whether they were the policy's, and not random ones.
        """
        if not judging:
            self._fresh = _beginning(episodes)
            return
        for episode in episodes:
            if self._fresh is None or episode.environment in self._fresh:
                worst = episode.total_reward if self._worst is None else self._worst
                self._worst = min(worst, episode.total_reward)
                self._judged += 1
            if self._fresh is not None:
                self._fresh.add(episode.environment)

    def is_worse(self) -> bool:
        """Whether the current policy is already known to be worse than the one that is kept."""
        return None not in (self._worst, self.best) and self._worst < self.best  # type: ignore[operator]

    def is_judged(self, episodes: int) -> bool:
        """Whether the current policy has had so many episodes."""
        return self._judged >= episodes

    def keep(self, *, has_learned: bool = True) -> None:
        """Makes the current policy the one that is kept.

        Args:
            has_learned: Whether it has had an update.
        """
        self.best, self.kept, self.has_learned = self._worst, self.kept + 1, has_learned

    def changed(self, episodes: Sequence[FinishedEpisode]) -> None:
        """Begins to judge another policy, in what follows these episodes."""
        self._worst, self._judged = None, 0
        self._fresh = _beginning(episodes)

    def rescale_best(self, factor: float) -> None:
        """Multiplies the worst return of the policy that is kept, the first time this is called."""
        if self.best is not None and not self._is_rescaled:
            self.best *= factor
        self._is_rescaled = True

    def state(self) -> dict[str, Any]:
        """Returns all of it, as JSON."""
        return {
            "best": self.best,
            "kept": self.kept,
            "has_learned": self.has_learned,
            "was_given": self.was_given,
            "is_rescaled": self._is_rescaled,
            "worst": self._worst,
            "judged": self._judged,
            "fresh": None if self._fresh is None else sorted(self._fresh),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            ValueError: If a return is not finite.
        """
        best, worst = (_finite(state[name]) for name in ("best", "worst"))
        self.best, self._worst = best, worst
        self.kept, self._judged = int(state["kept"]), int(state["judged"])
        self.has_learned, self.was_given = bool(state["has_learned"]), bool(state["was_given"])
        self._is_rescaled = bool(state["is_rescaled"])
        fresh = state["fresh"]
        self._fresh = None if fresh is None else {int(each) for each in fresh}


def _beginning(episodes: Sequence[FinishedEpisode]) -> set[int]:
    """Returns the environments whose next episode begins after the round: with the next policy."""
    return {episode.environment for episode in episodes if not episode.steps_left}


def _finite(value: Any) -> float | None:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"returns of policy checkpoints must be finite; got {value}")
    return None if value is None else float(value)
