"""The action head of an actor: actions in [-1, 1], and scores of discrete choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eagerly.spaces.actions import INVALID, choice_segments


@dataclass(frozen=True)
class ActionHead:
    """Converts the outputs of an actor's last layer into scores.

    The score of a continuous dimension is the action itself, the tanh of the output. The scores of
    a choice are log-probabilities, normalized over its valid values. Invalid values get `INVALID`,
    whose exponential is 0.

    Attributes:
        continuous: C, the number of continuous dimensions, which come first.
        choices: Number of values of each choice.
        masked: M, the number of mask columns at the end of an observation; 0 if all values are
            always valid.
        squashes: Whether `networks.actor.scores` applies tanh to continuous dimensions; if not,
            they are already in [-1, 1]. The method `scores` ignores this and always applies
            `squash`.
    """

    continuous: int
    choices: tuple[int, ...] = ()
    masked: int = 0
    squashes: bool = True

    @property
    def size(self) -> int:
        """A, the length of an action."""
        return self.continuous + sum(self.choices)

    def segments(self) -> Iterator[slice]:
        """Yields the columns of each choice in an action."""
        return choice_segments(self.continuous, self.choices)

    def scores(
        self,
        outputs: np.ndarray,
        observation: np.ndarray,
        squash: Callable[[np.ndarray], np.ndarray] = np.tanh,
    ) -> np.ndarray:
        """Maps last-layer outputs `[N, A]` to scores; observations `[N, O]` contain the mask.

        `squash` is applied to the continuous dimensions. `networks.actor.scores` is the equivalent
        for tensors.
        """
        scores = squash(outputs)
        for columns in self.segments():
            logits = outputs[:, columns]
            valid = np.ones(logits.shape, bool)
            if self.masked:
                valid = self.mask_of(observation, columns) > 0.5
            logits = logits - np.max(logits, axis=1, keepdims=True, where=valid, initial=-np.inf)
            powers = np.where(valid, np.exp(np.where(valid, logits, 0.0)), 0.0)
            total = np.maximum(powers.sum(axis=1, keepdims=True), 0.5)
            scores[:, columns] = np.where(valid, logits - np.log(total), INVALID)
        return scores

    def mask_of(self, observation: Any, columns: slice) -> Any:
        """Returns the mask columns of a choice, at the end of observations `[B, O]`."""
        mask = observation[:, -self.masked :]
        return mask[:, columns.start - self.continuous : columns.stop - self.continuous]

    def visible(self, observation: Any) -> Any:
        """Returns observations `[..., O]` without their mask, `[..., O - M]`."""
        return observation[..., : -self.masked] if self.masked else observation
