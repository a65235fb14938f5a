"""TD3 with behavior cloning (TD3+BC), for learning from logged data.

Fujimoto and Gu 2021, "A Minimalist Approach to Offline Reinforcement Learning", section 5. It
differs from TD3 in two ways: the actor's loss keeps the policy close to the recorded actions, and
observations are normalized by default. The authors' code also uses TD3's other defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent import Agent
from eagerly.agents.inputs import Batch
from eagerly.agents.metrics import actor_metrics, critic_metrics
from eagerly.agents.outputs import ActionHeadOps
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.agents.shapes import expect_rank, expect_same_shape
from eagerly.agents.td3_bc_config import TD3BCConfig
from eagerly.agents.update_random import UpdateRandom


class TD3BC(Agent):
    """The TD3+BC agent. `Agent` documents its constructor and methods."""

    Config = TD3BCConfig
    config: TD3BCConfig

    @property
    def intervals(self) -> tuple[int, ...]:
        """The actor and all targets are updated every `policy_delay` updates."""
        return (self.config.policy_delay,)

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Runs one update of TD3 with the actor loss of TD3+BC."""
        outputs = self.outputs(random)
        with tf.name_scope("target"):
            target = self.target(batch, self.next_action(batch, outputs), random)
        metrics, td_error = self.critic_step(batch, target)
        if phase.is_multiple_of(self.config.policy_delay):
            metrics |= self.actor_step(batch, outputs)
            # θ' ← τ θ + (1 - τ) θ', for critics and actor
            self.modules.update_targets(self.config.tau)
        return metrics, {"td_error": td_error}

    def next_action(self, batch: Batch, outputs: ActionHeadOps) -> tf.Tensor:
        """Returns the target policy's smoothed next actions ã, `[B, A]`."""
        # ã = clip(π'(s') + clip(ε, -c, c), -1, 1), ε ~ N(0, σ)
        return outputs.target_smoothed(
            self.actor.target(batch.next_observation),
            self.config.target_noise,
            self.config.target_noise_clip,
        )

    def target(self, batch: Batch, next_action: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns the regression target y `[B]`, shared by all critics."""
        # y = r + γ min_i Q'_i(s', ã)
        next_values = self.critic.target(batch.next_observation, next_action)
        return losses.clipped_target(batch.reward, batch.discount, next_values)

    def critic_step(self, batch: Batch, target: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        """Updates the critics. Returns metrics and each row's largest absolute TD error `[B]`."""
        # θ_i ← argmin mean (y - Q_i(s, a))², by one gradient step
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            values = self.critic(batch.observation, batch.action, training=True)
            loss = self.critic_loss(values, target, batch.mask, batch.weight)
            loss = sum(self.critic.losses, start=loss)  # regularization losses, if any
        self.critic.minimize(loss, tape)
        error = tf.reduce_max(tf.abs(losses.td_error(values, target)), axis=0)
        return critic_metrics(loss, values, target, batch.mask), error

    def actor_step(self, batch: Batch, outputs: ActionHeadOps) -> Tensors:
        """Updates the actor by value and behavior cloning. Returns its metrics."""
        # π ← argmax mean λ Q_1(s, π(s)) - (π(s) - a)², with λ = α / mean |Q_1(s, π(s))|
        # λ uses π(s) instead of the paper's a, and the square is averaged over dimensions, as in
        # the authors' code.
        # `outputs.values` passes gradients to the action only, not to the critic.
        with tf.name_scope("actor_loss"), tf.GradientTape() as tape:
            scores = self.actor(batch.observation, training=True)
            action = outputs.differentiable(scores)
            values = outputs.values(self.value, batch.observation, action)
            weight = value_weight(values, self.config.bc_alpha, batch.mask)
            error = cloning_error(scores, batch.action, self.actions.segments())
            error = losses.mean(error, batch.mask)
            loss = weight * losses.actor_loss(values, batch.mask) + error
            loss += outputs.penalty(scores, batch.mask)
        self.actor.minimize(loss, tape)
        metrics = actor_metrics(loss, outputs.saturation(action), batch.mask)
        return metrics | {"cloning/error": error, "cloning/lambda": weight}

    def value(self, *inputs: Any) -> tf.Tensor:
        """Returns Q_1(s, a), which the actor maximizes. See `CriticModel.first` for arguments."""
        return self.critic.first(*inputs)


def value_weight(values: tf.Tensor, alpha: float, mask: tf.Tensor | None = None) -> tf.Tensor:
    """Returns the weight of the actor's values, λ = α / mean |Q|.

    Args:
        values: `[B]`, one critic's values at (observation, actor(observation)).
        alpha: At least 0.
        mask: `[B]` bool, the rows to include; all if None.

    Returns:
        A scalar, 0 if all values are 0; no gradient flows through it.
    """
    expect_rank("values", values, 1)
    size = losses.mean(tf.abs(values), mask)
    return tf.stop_gradient(tf.math.divide_no_nan(tf.constant(alpha, size.dtype), size))


def cloning_error(
    outputs: tf.Tensor, action: tf.Tensor, choices: Iterable[slice] = ()
) -> tf.Tensor:
    """Returns the distance of a policy from recorded actions.

    It is the mean over continuous dimensions and choices: the squared error of each dimension, and
    the negative log-probability of each recorded choice.

    Args:
        outputs: `[B, A]`, the actor's outputs: continuous actions, then the log-probabilities of
            the values of each choice.
        action: `[B, A]`, the recorded actions: continuous actions, then one-hot choices.
        choices: The columns of each choice, in order.

    Returns:
        `[B]`.
    """
    expect_rank("outputs", outputs, 2)
    expect_same_shape("action", action, "outputs", outputs)
    columns = [*choices]
    first = columns[0].start if columns else None
    errors = [tf.square(outputs[:, :first] - action[:, :first])]
    for choice in columns:
        errors.append(-tf.reduce_sum(action[:, choice] * outputs[:, choice], 1, keepdims=True))
    return tf.reduce_mean(tf.concat(errors, axis=1), axis=1)
