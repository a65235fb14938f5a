"""TD3 whose critics minimize a Huber loss, with a custom gradient.

Huber 1964, "Robust Estimation of a Location Parameter": the loss is quadratic up to ±δ and linear
beyond, which bounds the influence of a single target. Its derivative is the clipped error, which
Mnih et al. 2015 ("Human-level control through deep reinforcement learning", Methods) use for DQN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from eagerly.algorithms import TD3, TD3Config, losses, setting


class HuberConfig(TD3Config):
    """Settings of TD3, and the error beyond which the critics' loss is linear."""

    huber_delta: float = setting(
        1.0, "Error beyond which the critics' loss is linear (Mnih et al. 2015)", above=0
    )


class HuberTD3(TD3):
    """TD3 whose critics minimize a Huber loss."""

    Config = HuberConfig
    config: HuberConfig

    def critic_loss(
        self,
        values: tf.Tensor,
        target: tf.Tensor,
        mask: tf.Tensor | None = None,
        weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the sum of the critics' mean losses. See `losses.critic_loss` for arguments."""
        loss = partial(huber, delta=self.config.huber_delta)
        return losses.critic_loss(values, target, mask, weight, loss)


def huber(errors: tf.Tensor, delta: float) -> tf.Tensor:
    """Returns e²/2 where |e| <= δ and δ (|e| - δ/2) elsewhere, elementwise."""

    # The custom gradient takes one operation. Automatic differentiation would compute the gradients
    # of both branches of `where`. In graphs, `tf.custom_gradient` accepts only tensors as
    # arguments, so a nested function captures delta, which is a number.
    @tf.custom_gradient
    def of(errors: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        size = tf.abs(errors)
        loss = tf.where(size <= delta, tf.square(errors) / 2, delta * (size - delta / 2))
        return loss, lambda upstream: upstream * tf.clip_by_value(errors, -delta, delta)

    return of(errors)
