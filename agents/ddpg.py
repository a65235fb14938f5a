"""Deep Deterministic Policy Gradient (DDPG).

Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1. Defaults
follow the DDPG in the TD3 authors' repository ("OurDDPG"), which performs far better than DDPG with
the paper's settings. The preset `lillicrap` uses the paper's settings, and `article` follows the
TD3 authors' code of 2018.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent import Agent
from eagerly.agents.ddpg_config import DDPGConfig
from eagerly.agents.inputs import Batch
from eagerly.agents.metrics import actor_metrics, critic_metrics
from eagerly.agents.outputs import ActionHeadOps
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom


class DDPG(Agent):
    """The DDPG agent. `Agent` documents its constructor and methods."""

    Config = DDPGConfig
    REPLICABLE = True
    config: DDPGConfig

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Runs one update: the learning part of the loop in Algorithm 1."""
        outputs = self.outputs(random)
        with tf.name_scope("target"):
            target = self.target(batch, self.next_action(batch, outputs), random)
        metrics, td_error = self.critic_step(batch, target)
        metrics |= self.actor_step(batch, outputs)
        # θ' ← τ θ + (1 - τ) θ', for critic and actor
        self.modules.update_targets(self.config.tau)
        return metrics, {"td_error": td_error}

    def next_action(self, batch: Batch, outputs: ActionHeadOps) -> tf.Tensor:
        """Returns the target policy's next actions μ'(s'), `[B, A]`."""
        return outputs.greedy(self.actor.target(batch.next_observation))

    def target(self, batch: Batch, next_action: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns the critic's regression target y `[B]`."""
        # y = r + γ Q'(s', μ'(s')) (Eq. 5, with the target networks of section 3)
        next_values = self.critic.target(batch.next_observation, next_action)
        return losses.clipped_target(batch.reward, batch.discount, next_values)

    def critic_step(self, batch: Batch, target: tf.Tensor) -> tuple[Tensors, tf.Tensor]:
        """Updates the critic. Returns its metrics and each row's absolute TD error `[B]`."""
        # θ ← argmin mean (y - Q(s, a))², by one gradient step (Eq. 4)
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            values = self.critic(batch.observation, batch.action, training=True)
            loss = self.critic_loss(values, target, batch.mask, batch.weight)
            loss = sum(self.critic.losses, start=loss)  # regularization losses, if any
        self.critic.minimize(loss, tape)
        error = tf.reduce_max(tf.abs(losses.td_error(values, target)), axis=0)
        return critic_metrics(loss, values, target, batch.mask), error

    def actor_step(self, batch: Batch, outputs: ActionHeadOps) -> Tensors:
        """Updates the actor by the deterministic policy gradient. Returns its metrics."""
        # ∇J = mean ∇_a Q(s, a) ∇_φ μ(s) at a = μ(s) (Eq. 6)
        # `outputs.values` passes gradients to the action only, not to the critic.
        with tf.name_scope("actor_loss"), tf.GradientTape() as tape:
            scores = self.actor(batch.observation, training=True)
            action = outputs.differentiable(scores)
            values = outputs.values(self.value, batch.observation, action)
            loss = losses.actor_loss(values, batch.mask) + outputs.penalty(scores, batch.mask)
        self.actor.minimize(loss, tape)
        return actor_metrics(loss, outputs.saturation(action), batch.mask)

    def value(self, *inputs: Any) -> tf.Tensor:
        """Returns Q(s, a), which the actor maximizes. See `CriticModel.first` for arguments."""
        return self.critic.first(*inputs)
