"""Adam with one fused operation per variable, and learning rates that decay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from keras.optimizers import schedules


class Adam(keras.optimizers.Adam):
    """Keras' Adam with one fused operation per variable instead of a dozen.

    It has the same variables as Keras' Adam. After updating m and v, it computes
    θ ← θ - α √(1-β₂ᵗ)/(1-β₁ᵗ) · m / (√v + ε̂), the form at the end of section 2 of Kingma and Ba
    2015.
    """

    def update_step(
        self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Updates one variable and its two moment estimates."""
        dtype, index = variable.dtype, self._get_variable_index(variable)
        beta1, beta2 = (tf.constant(beta, dtype) for beta in (self.beta_1, self.beta_2))
        step = tf.cast(self.iterations.value + 1, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.pow(beta1, step),
            beta2_power=tf.pow(beta2, step),
            lr=tf.cast(learning_rate, dtype),
            beta1=beta1,
            beta2=beta2,
            epsilon=tf.constant(self.epsilon, dtype),
            grad=tf.cast(gradient, dtype),
        )


def decay(kind: str, rate: float, steps: int, end: float) -> schedules.LearningRateSchedule:
    """Creates a schedule, "cosine" or "linear", from a learning rate to a fraction of it.

    Args:
        kind: The shape of the decay.
        rate: The first learning rate.
        steps: Length of the decay.
        end: The last learning rate, as a fraction of the first.
    """
    if kind == "cosine":
        return schedules.CosineDecay(rate, steps, alpha=end)
    return schedules.PolynomialDecay(rate, steps, end_learning_rate=end * rate)


class UpdateSchedule(schedules.LearningRateSchedule):
    """Evaluates a schedule at the update number, because optimizers only count their own steps.

    Args:
        passed: Returns the number of updates before the current one.
        schedule: The schedule.
    """

    def __init__(self, passed: Callable[[], Any], schedule: schedules.LearningRateSchedule) -> None:
        super().__init__()
        self._passed, self._schedule = passed, schedule

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate of the current update. The argument is ignored."""
        return self._schedule(self._passed())
