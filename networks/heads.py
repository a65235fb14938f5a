"""What stands behind the last layer of an actor: actions in [-1, 1], and scores of choices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.spaces.actions import INVALID, choice_segments


@dataclass(frozen=True)
class ActionHead:
    """Makes scores of what an actor's last layer gives.

    The scores of continuous dimensions are the actions, a tanh. Those of a choice are the
    logarithms of its probabilities, normalised among the values that are valid; the others have
    `INVALID`, whose exponential is 0.

    Attributes:
        continuous: C, how many dimensions are continuous; they come first.
        choices: How many values each choice has.
        masked: M, how many columns at the end of an observation say what is valid; 0 where
            everything always is.
        squashes: Whether the continuous dimensions go through a tanh; else they are in [-1, 1].
    """

    continuous: int
    choices: tuple[int, ...] = ()
    masked: int = 0
    squashes: bool = True

    @property
    def size(self) -> int:
        """A, the length of an action."""
        return self.continuous + sum(self.choices)

    def _segments(self) -> Iterator[slice]:
        return choice_segments(self.continuous, self.choices)

    def scores(self, outputs: tf.Tensor, observation: tf.Tensor) -> tf.Tensor:
        """Maps the last layer's `[B, A]` to scores, with observations `[B, O]` and their mask."""
        squashed = tf.tanh if self.squashes else tf.identity
        if not self.choices:
            return squashed(outputs)
        parts = [squashed(outputs[:, : self.continuous])] if self.continuous else []
        for columns in self._segments():
            logits = outputs[:, columns]
            if self.masked:
                valid = self._mask(observation, columns) > 0.5
                lowest = tf.where(valid, logits, logits.dtype.min)
                logits = logits - tf.stop_gradient(tf.reduce_max(lowest, axis=1, keepdims=True))
                powers = tf.where(valid, tf.exp(tf.where(valid, logits, 0.0)), 0.0)
                # At least 1, but in padding, where nothing is valid and no gradient may be NaN.
                total = tf.maximum(tf.reduce_sum(powers, axis=1, keepdims=True), 0.5)
                parts.append(tf.where(valid, logits - tf.math.log(total), INVALID))
            else:
                parts.append(tf.nn.log_softmax(logits))
        return tf.concat(parts, axis=1)

    def scores_of_arrays(self, outputs: np.ndarray, observation: np.ndarray) -> np.ndarray:
        """Does in NumPy what `scores` does, of outputs that are to be squashed."""
        if not self.choices:
            return np.tanh(outputs)
        scores = np.tanh(outputs)
        for columns in self._segments():
            logits = outputs[:, columns]
            valid = np.ones(logits.shape, bool)
            if self.masked:
                valid = self._mask(observation, columns) > 0.5
            logits = logits - np.max(logits, axis=1, keepdims=True, where=valid, initial=-np.inf)
            powers = np.where(valid, np.exp(np.where(valid, logits, 0.0)), 0.0)
            total = np.maximum(powers.sum(axis=1, keepdims=True), 0.5)
            scores[:, columns] = np.where(valid, logits - np.log(total), INVALID)
        return scores

    def _mask(self, observation: Any, columns: slice) -> Any:
        """Takes the columns of a choice out of the mask behind observations `[B, O]`."""
        mask = observation[:, -self.masked :]
        return mask[:, columns.start - self.continuous : columns.stop - self.continuous]

    def visible(self, observation: tf.Tensor) -> tf.Tensor:
        """Returns observations `[..., O]` without their mask, `[..., O - M]`."""
        return observation[..., : -self.masked] if self.masked else observation
