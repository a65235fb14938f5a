"""Discrete choices in the train body: straight-through Gumbel-softmax.

Jang, Gu and Poole 2017, "Categorical Reparameterization with Gumbel-Softmax", and Maddison, Mnih
and Teh 2017, "The Concrete Distribution". Of an actor's scores, see `networks.ActionHead`, one
value of each choice is drawn; forwards it is one-hot, backwards its gradient is that of a softmax.
"""

from __future__ import annotations

from collections.abc import Iterator

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.config_groups import DiscreteConfig
from eagerly.agents.random import standard_normal
from eagerly.spaces import Actions
from eagerly.spaces.actions import INVALID, choice_segments

_LEAST = 2.0**-25  # below the distance of the uniforms to 1, so that no logarithm is of 0


class DiscreteActions:
    """Makes actions `[B, A]` of an actor's scores `[B, A]`; without choices they are the actions.

    Args:
        actions: How actions are laid out.
        config: Temperature of the softmax backwards, and weight of `penalty` in the actor's loss.
    """

    def __init__(self, actions: Actions, config: DiscreteConfig) -> None:
        self._actions, self._temperature = actions, config.gumbel_temperature
        self.logit_penalty = config.logit_penalty
        self._continuous = actions.continuous

    @property
    def any(self) -> bool:
        """Whether there are choices."""
        return bool(self._actions.choices)

    def noise(self, uniform: tf.Tensor, scale: float) -> tf.Tensor:
        """Makes noise `[B, A]` for target actions of pairs of uniforms `[2, B, A]`.

        In continuous dimensions it is normal with deviation `scale`, for choices Gumbel noise.
        """
        if not self.any:
            return scale * standard_normal(uniform)
        box = scale * standard_normal(uniform[..., : self._continuous])
        return tf.concat([box, _gumbel(uniform[0, :, self._continuous :])], axis=1)

    def noise_of_actor(self, uniform: tf.Tensor) -> tf.Tensor | None:
        """Makes Gumbel noise `[B, A - C]` for the actor's loss, independent of `noise`."""
        return _gumbel(uniform[1, :, self._continuous :]) if self.any else None

    def smoothed(self, scores: tf.Tensor, noise: tf.Tensor, clip: float) -> tf.Tensor:
        """Returns target actions: continuous ones smoothed (TD3, Eq. 15), choices drawn.

        Args:
            scores: `[B, A]`, the target actor's.
            noise: `[B, A]`, as `noise` makes it.
            clip: Largest size of the noise in one continuous dimension.
        """
        if not self.any:
            return losses.smoothed_action(scores, noise, clip)
        first = self._continuous
        box = losses.smoothed_action(scores[:, :first], noise[:, :first], clip)
        return self.hard(tf.concat([box, scores[:, first:] + noise[:, first:]], axis=1))

    def relaxed(self, scores: tf.Tensor, gumbel: tf.Tensor | None) -> tf.Tensor:
        """Returns what carries the gradient: of each choice a softmax, `[B, A]`."""
        if not self.any:
            return scores
        assert gumbel is not None
        parts = [scores[:, : self._continuous]]
        noisy = scores[:, self._continuous :] + gumbel
        for segment in self._segments():
            parts.append(tf.nn.softmax(noisy[:, segment] / self._temperature))
        return tf.concat(parts, axis=1)

    def penalty(self, scores: tf.Tensor) -> tf.Tensor:
        """Returns how far the scores of choices are from one another, `[B]`.

        It is the mean square of the distance of valid ones from their mean, over choices.
        """
        total = tf.zeros_like(scores[:, 0])
        for segment in self._actions.segments():
            part = scores[:, segment]
            valid = tf.cast(part > INVALID / 2, part.dtype)
            count = tf.maximum(tf.reduce_sum(valid, axis=1, keepdims=True), 1.0)
            known = part * valid
            away = (known - tf.reduce_sum(known, axis=1, keepdims=True) / count) * valid
            total += tf.reduce_sum(tf.square(away), axis=1) / count[:, 0]
        return total / len(self._actions.choices)

    def hard(self, relaxed: tf.Tensor) -> tf.Tensor:
        """Returns actions: of each choice the likeliest value, one-hot."""
        if not self.any:
            return relaxed
        parts = [relaxed[:, : self._continuous]]
        choices = relaxed[:, self._continuous :]
        for segment in self._segments():
            best = tf.argmax(choices[:, segment], axis=1)
            parts.append(tf.one_hot(best, segment.stop - segment.start, dtype=relaxed.dtype))
        return tf.concat(parts, axis=1)

    def alternatives(self, action: tf.Tensor) -> tf.Tensor:
        """Returns an action with each value of each choice in turn, `[(A - C) · B, A]`."""
        made = []
        for segment in self._actions.segments():
            count = segment.stop - segment.start
            for value in range(count):
                chosen = tf.one_hot(value, count, dtype=action.dtype)
                other = tf.broadcast_to(chosen, tf.shape(action[:, segment]))
                before, behind = action[:, : segment.start], action[:, segment.stop :]
                made.append(tf.concat([before, other, behind], axis=1))
        return tf.concat(made, axis=0)

    def saturated(self, relaxed: tf.Tensor) -> tf.Tensor:
        """Says of which columns `[B, A]` an action is at its end: ±1, or a sure choice.

        Each column of a choice says what is true of the choice.
        """
        if not self.any:
            return tf.abs(relaxed) > 0.99
        parts = [tf.abs(relaxed[:, : self._continuous]) > 0.99]
        for segment in self._actions.segments():
            sure = tf.reduce_max(relaxed[:, segment], axis=1, keepdims=True) > 0.99
            parts.append(tf.broadcast_to(sure, tf.shape(relaxed[:, segment])))
        return tf.concat(parts, axis=1)

    def _segments(self) -> Iterator[slice]:
        """Yields the columns of each choice, counted from the first of all."""
        return choice_segments(0, self._actions.choices)


def _gumbel(uniform: tf.Tensor) -> tf.Tensor:
    exponential = tf.maximum(-tf.math.log(uniform), _LEAST)
    return -tf.math.log(exponential)
