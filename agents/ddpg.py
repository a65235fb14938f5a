"""Deep Deterministic Policy Gradient (DDPG).

Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1.
Defaults are those of the DDPG that the authors of TD3 publish beside it ("OurDDPG"), which learns
far better than the paper's settings do; those are the presets `article` and `lillicrap`.
"""

from __future__ import annotations

import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent import Agent
from eagerly.agents.ddpg_config import DDPGConfig
from eagerly.agents.inputs import Batch
from eagerly.agents.random import UpdateRandom


class DDPG(Agent):
    """A DDPG agent; `Agent` documents its constructor and methods."""

    Config = DDPGConfig
    config: DDPGConfig

    def _update(self, batch: Batch, random: UpdateRandom, moves: bool) -> dict[str, tf.Tensor]:
        """Makes one update: the inner part of Algorithm 1."""
        nets, discrete = self.networks, self.discrete
        uniform = random.uniform_pairs(batch.action.shape)
        with tf.name_scope("target"):
            # y = r + discount * Q'(s', μ'(s')) (Eq. 5, with the target networks of section 3).
            next_action = nets.actor_target(batch.next_observation)
            if discrete.any:
                next_action = discrete.smoothed(next_action, discrete.noise(uniform, 0.0), 0.0)
            next_values = nets.critic_target(batch.next_observation, next_action)
            target = losses.clipped_target(batch.reward, batch.discount, next_values)
        # The critic regresses on y (Eq. 4).
        metrics = nets.critic_step(batch, target)
        # The actor climbs the critic by the deterministic policy gradient (Eq. 6).
        metrics |= nets.actor_step(batch, discrete.noise_of_actor(uniform))
        # Both targets follow.
        nets.update_targets(self.config.tau)
        return metrics
