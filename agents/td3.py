"""Twin Delayed Deep Deterministic policy gradient (TD3).

Fujimoto, van Hoof and Meger 2018, "Addressing Function Approximation Error in Actor-Critic
Methods", Algorithm 1. Defaults are those of the authors' code today (256-256, learning rates
3e-4, batch 256), which differ from the paper's appendix.
"""

from __future__ import annotations

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent import Agent
from eagerly.agents.inputs import Batch
from eagerly.agents.random import UpdateRandom
from eagerly.agents.td3_config import TD3Config


class TD3(Agent):
    """A TD3 agent; `Agent` documents its constructor and methods."""

    Config = TD3Config
    config: TD3Config

    @property
    def policy_delay(self) -> int:
        """Updates from one in which the actor moves to the next."""
        return self.config.policy_delay

    def _update(self, batch: Batch, random: UpdateRandom, moves: bool) -> dict[str, tf.Tensor]:
        """Makes one update: the inner part of Algorithm 1."""
        uniform = random.uniform_pairs(batch.action.shape)
        metrics = self._update_critic(batch, self.discrete.noise(uniform, self.config.target_noise))
        if moves:  # "if t mod d"
            metrics |= self._update_actor_and_targets(batch, self.discrete.noise_of_actor(uniform))
        return metrics

    def _update_critic(self, batch: Batch, noise: tf.Tensor) -> dict[str, tf.Tensor]:
        """Moves the critics, with smoothing noise `[B, A]`."""
        with tf.name_scope("target"):
            target = self._target(batch, noise)
        # Each critic regresses on y.
        return self.networks.critic_step(batch, target)

    def _target(self, batch: Batch, noise: tf.Tensor) -> tf.Tensor:
        """Returns y `[B]`, on which all critics regress, with smoothing noise `[B, A]`."""
        nets = self.networks
        # The target policy's next action, smoothed by clipped noise (Eq. 15).
        next_action = self.discrete.smoothed(
            nets.actor_target(batch.next_observation), noise, self.config.target_noise_clip
        )
        # y = r + discount * the smaller of the target critics, one y for all critics (Eq. 10).
        next_values = nets.critic_target(batch.next_observation, next_action)
        return losses.clipped_target(batch.reward, batch.discount, next_values)

    def _update_actor_and_targets(
        self, batch: Batch, gumbel: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        # The actor climbs the first critic by the deterministic policy gradient.
        metrics = self.networks.actor_step(batch, gumbel)
        # All targets follow.
        self.networks.update_targets(self.config.tau)
        return metrics
