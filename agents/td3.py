"""Twin Delayed Deep Deterministic policy gradient (TD3).

Fujimoto, van Hoof and Meger 2018, "Addressing Function Approximation Error in Actor-Critic
Methods", Algorithm 1. Defaults follow the authors' current code, not the paper's appendix.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent import Agent
from eagerly.agents.inputs import Batch
from eagerly.agents.metrics import actor_metrics, critic_metrics
from eagerly.agents.outputs import ActionHeadOps
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.agents.td3_config import TD3Config
from eagerly.agents.update_random import UpdateRandom


class TD3(Agent):
    """The TD3 agent. `Agent` documents its constructor and methods."""

    Config = TD3Config
    REPLICABLE = True
    config: TD3Config

    @property
    def intervals(self) -> tuple[int, ...]:
        """The actor and all targets are updated every `policy_delay` updates."""
        return (self.config.policy_delay,)

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Runs one update: the learning part of the loop in Algorithm 1."""
        outputs = self.outputs(random)
        with tf.name_scope("target"):
            target = self.target(batch, self.next_action(batch, outputs), random)
        metrics, td_error = self.critic_step(batch, target)
        if phase.is_multiple_of(self.config.policy_delay):  # "if t mod d then"
            metrics |= self.actor_step(batch, outputs)
            # θ' ← τ θ + (1 - τ) θ', for critics and actor
            self.modules.update_targets(self.config.tau)
        return metrics, {"td_error": td_error}

    def next_action(self, batch: Batch, outputs: ActionHeadOps) -> tf.Tensor:
        """Returns the target policy's smoothed next actions ã, `[B, A]`."""
        # ã = clip(μ'(s') + clip(ε, -c, c), -1, 1), ε ~ N(0, σ) (Eq. 15)
        return outputs.target_smoothed(
            self.actor.target(batch.next_observation),
            self.config.target_noise,
            self.config.target_noise_clip,
        )

    def target(self, batch: Batch, next_action: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns the regression target y `[B]`, shared by all critics."""
        # y = r + γ min_i Q'_i(s', ã), the same for all critics (Eq. 10)
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
        """Updates the actor by the deterministic policy gradient. Returns its metrics."""
        # ∇J = mean ∇_a Q_1(s, a) ∇_φ μ(s) at a = μ(s)
        # `outputs.values` passes gradients to the action only, not to the critic.
        with tf.name_scope("actor_loss"), tf.GradientTape() as tape:
            scores = self.actor(batch.observation, training=True)
            action = outputs.differentiable(scores)
            values = outputs.values(self.value, batch.observation, action)
            loss = losses.actor_loss(values, batch.mask) + outputs.penalty(scores, batch.mask)
        self.actor.minimize(loss, tape)
        return actor_metrics(loss, outputs.saturation(action), batch.mask)

    def value(self, *inputs: Any) -> tf.Tensor:
        """Returns Q_1(s, a), which the actor maximizes. See `CriticModel.first` for arguments."""
        return self.critic.first(*inputs)
