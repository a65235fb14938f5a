"""Interpretation of an actor's outputs: continuous actions, or scores of discrete choices.

Discrete choices are learned by straight-through Gumbel-softmax: Jang, Gu and Poole 2017,
"Categorical Reparameterization with Gumbel-Softmax", and Maddison, Mnih and Teh 2017, "The Concrete
Distribution". One value of each choice is sampled from the actor's scores (see
`policies.ActionHead`). The sample is one-hot in the forward pass and has the gradient of a softmax
in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.config import AgentConfig
from eagerly.agents.update_random import UpdateRandom, standard_normal
from eagerly.spaces import Actions
from eagerly.spaces.actions import INVALID, choice_segments

_LEAST = 2.0**-25  # less than -log(u) for every uniform u < 1; replaces -log(1) = 0 before a log

# Maps observations and actions `[n B, A]` to values `[n B]`, as `CriticModel.first` does.
Values = Callable[..., tf.Tensor]


class Continuous:
    """Operations for continuous actions, where an actor's outputs are the actions.

    Args:
        random: The random numbers of the update.
        shape: `(B, A)`.
    """

    def __init__(self, random: UpdateRandom, shape: tuple[int, int]) -> None:
        self._random, self._shape = random, shape

    def greedy(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the target actor's outputs `[B, A]`, which are the actions."""
        return outputs

    def target_smoothed(self, outputs: tf.Tensor, deviation: float, clip: float) -> tf.Tensor:
        """Returns target actions with clipped normal noise (TD3, Eq. 15).

        Args:
            outputs: `[B, A]`, from the target actor.
            deviation: Standard deviation of the noise, in units of [-1, 1].
            clip: Maximum absolute value of the noise in each dimension.
        """
        noise = deviation * self._random.normal(self._shape)
        return losses.smoothed_action(outputs, noise, clip)

    def differentiable(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns the actions `[B, A]` through which the actor's gradient flows."""
        return outputs

    def values(self, value: Values, observation: Any, relaxed: tf.Tensor) -> tf.Tensor:
        """Returns Q(s, a) `[B]`, with a gradient with respect to the actions only.

        Args:
            value: Computes Q.
            observation: The observations to call it with.
            relaxed: The actions `[B, A]`, from `differentiable`.
        """

        @tf.custom_gradient
        def values(action: tf.Tensor) -> Any:
            found, slopes = _values_and_slopes(value, observation, action)
            return found, lambda upstream, variables=(): (slopes(upstream), [None] * len(variables))

        return values(relaxed)

    def penalty(self, outputs: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor | float:
        """Returns 0: continuous actions have no penalty."""
        return 0.0

    def saturation(self, relaxed: tf.Tensor) -> tf.Tensor:
        """Returns `[B, A]` bool, true for action components close to a bound, ±1."""
        return tf.abs(relaxed) > 0.99


class Mixed:
    """Operations for actions with discrete choices.

    An actor's outputs are continuous actions, if any, followed by the scores of all values of each
    choice. `Continuous` documents the methods that both classes have.

    Args:
        random: The random numbers of the update.
        shape: `(B, A)`.
        actions: The layout of actions.
        config: Supplies the softmax temperature of the backward pass and the weight of the penalty.
    """

    def __init__(
        self, random: UpdateRandom, shape: tuple[int, int], actions: Actions, config: AgentConfig
    ) -> None:
        self._actions, self._config, self._continuous = actions, config, actions.continuous
        self._uniform, self._drawn = random.uniform_pairs(shape), set[str]()

    def greedy(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns actions, with choices sampled from a target actor's outputs `[B, A]`."""
        self._draw_once("greedy")
        first = self._continuous
        drawn = outputs[:, first:] + _gumbel(self._uniform[0, :, first:])
        return self.hard(tf.concat([outputs[:, :first], drawn], axis=1))

    def target_smoothed(self, outputs: tf.Tensor, deviation: float, clip: float) -> tf.Tensor:
        """Returns target actions, with noise on continuous dimensions and sampled choices."""
        first = self._continuous
        noise = deviation * standard_normal(self._uniform[..., :first])
        box = losses.smoothed_action(outputs[:, :first], noise, clip)
        return self.greedy(tf.concat([box, outputs[:, first:]], axis=1))

    def differentiable(self, outputs: tf.Tensor) -> tf.Tensor:
        """Returns actions `[B, A]` that propagate the gradient, with each choice as a softmax."""
        self._draw_once("differentiable")
        parts = [outputs[:, : self._continuous]]
        # This noise is independent of the noise of target actions.
        noisy = outputs[:, self._continuous :] + _gumbel(self._uniform[1, :, self._continuous :])
        for segment in choice_segments(0, self._actions.choices):
            parts.append(tf.nn.softmax(noisy[:, segment] / self._config.gumbel_temperature))
        return tf.concat(parts, axis=1)

    def values(self, value: Values, observation: Any, relaxed: tf.Tensor) -> tf.Tensor:
        """Returns Q(s, a) `[B]`, where each choice in a is its most likely value.

        Critics are trained on one-hot choices only, so their gradient between one-hot vectors is
        meaningless. The gradient with respect to a choice is computed from the values of all
        alternatives instead.
        """

        @tf.custom_gradient
        def values(relaxed: tf.Tensor) -> Any:
            action = self.hard(relaxed)
            found, slopes = _values_and_slopes(value, observation, action)

            def gradient(upstream: tf.Tensor, variables: Sequence[Any] = ()) -> Any:
                compared = self._compared(value, observation, action, upstream)
                slope = slopes(upstream)[:, : self._continuous]
                return tf.concat([slope, compared], axis=1), [None] * len(variables)

            return found, gradient

        return values(relaxed)

    def _compared(
        self, value: Values, observation: Any, action: tf.Tensor, upstream: tf.Tensor
    ) -> tf.Tensor:
        """Returns the gradient with respect to the choices, `[B, A - C]`.

        `upstream` is the gradient with respect to the values, `[B]`. C is the number of continuous
        dimensions.
        """
        with tf.name_scope("alternatives"):
            alternatives = self.alternatives(action)
            count = alternatives.shape[0] // action.shape[0]
            found = tf.reshape(value(observation, alternatives, count), [count, -1])
            found -= tf.reduce_mean(found, axis=0)  # softmax ignores offsets
            return tf.transpose(found * upstream)

    def penalty(self, outputs: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
        """Returns the penalty added to the actor's loss for scores that are far apart.

        It is `logit_penalty` times the mean squared distance of valid scores from their mean,
        averaged over choices.
        """
        total = tf.zeros_like(outputs[:, 0])
        for segment in self._actions.segments():
            part = outputs[:, segment]
            valid = tf.cast(part > INVALID / 2, part.dtype)
            count = tf.maximum(tf.reduce_sum(valid, axis=1, keepdims=True), 1.0)
            known = part * valid
            away = (known - tf.reduce_sum(known, axis=1, keepdims=True) / count) * valid
            total += tf.reduce_sum(tf.square(away), axis=1) / count[:, 0]
        return self._config.logit_penalty * losses.mean(total / len(self._actions.choices), mask)

    def hard(self, relaxed: tf.Tensor) -> tf.Tensor:
        """Returns actions in which each choice is one-hot, at its most likely value."""
        parts = [relaxed[:, : self._continuous]]
        for segment in self._actions.segments():
            best = tf.argmax(relaxed[:, segment], axis=1)
            parts.append(tf.one_hot(best, segment.stop - segment.start, dtype=relaxed.dtype))
        return tf.concat(parts, axis=1)

    def alternatives(self, action: tf.Tensor) -> tf.Tensor:
        """Returns copies of actions, each with one choice set to one value, `[(A - C) · B, A]`."""
        made = []
        for segment in self._actions.segments():
            count = segment.stop - segment.start
            for value in range(count):
                chosen = tf.one_hot(value, count, dtype=action.dtype)
                other = tf.broadcast_to(chosen, tf.shape(action[:, segment]))
                before, behind = action[:, : segment.start], action[:, segment.stop :]
                made.append(tf.concat([before, other, behind], axis=1))
        return tf.concat(made, axis=0)

    def saturation(self, relaxed: tf.Tensor) -> tf.Tensor:
        """Returns `[B, A]` bool, true for dimensions close to ±1 and for near-certain choices."""
        parts = [tf.abs(relaxed[:, : self._continuous]) > 0.99]
        for segment in self._actions.segments():
            sure = tf.reduce_max(relaxed[:, segment], axis=1, keepdims=True) > 0.99
            parts.append(tf.broadcast_to(sure, tf.shape(relaxed[:, segment])))
        return tf.concat(parts, axis=1)

    def _draw_once(self, name: str) -> None:
        """Raises a ValueError if the method `name`, which uses noise, was already called."""
        if name in self._drawn:
            raise ValueError(
                f"{name} was already called in this update and would draw the same numbers again"
            )
        self._drawn.add(name)


ActionHeadOps = Continuous | Mixed


def outputs_of(
    actions: Actions, config: AgentConfig, rows: int
) -> Callable[[UpdateRandom], ActionHeadOps]:
    """Returns a function that creates the `ActionHeadOps` of an update from its random numbers.

    Args:
        actions: The layout of actions.
        config: Supplies the settings of discrete actions.
        rows: B, the number of rows in a batch.
    """
    shape = rows, actions.size
    if actions.choices:
        return partial(Mixed, shape=shape, actions=actions, config=config)
    return partial(Continuous, shape=shape)


def _values_and_slopes(
    value: Values, observation: Any, action: tf.Tensor
) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """Returns Q(s, a) `[B]`, and its vector-Jacobian product with respect to the action."""
    # Persistent, because several modules may differentiate one loss.
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(action)
        values = value(observation, action)
    return values, lambda upstream: tape.gradient(values, action, upstream)


def _gumbel(uniform: tf.Tensor) -> tf.Tensor:
    exponential = tf.maximum(-tf.math.log(uniform), _LEAST)
    return -tf.math.log(exponential)
