"""TD7: TD3 with state-action embeddings, prioritised replay and policy checkpoints.

Fujimoto, Chang, Smith, Gu, Precup and Meger 2023, "For SALE: State-Action Representation Learning
for Deep Reinforcement Learning", section 5 and Algorithm 1. Defaults are those of the authors'
code. Of the encoder f (states, zs) and g (pairs, zsa) there are three generations: the one that
learns, the fixed one that actor and critics take, and the one before that, which their targets
take.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent import Agent
from eagerly.agents.algorithm import Budget, FinishedEpisode
from eagerly.agents.inputs import Batch
from eagerly.agents.metrics import actor_metrics, critic_metrics
from eagerly.agents.modules import Modules
from eagerly.agents.policy_checkpoints import EpisodicBudget, PolicyCheckpoints
from eagerly.agents.random import UpdateRandom
from eagerly.agents.replay import sampler_of
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.agents.td7_builder import TD7Builder
from eagerly.agents.td7_config import TD7Config
from eagerly.buffers import Buffer, Sampler
from eagerly.networks.models import Model, copy_variables
from eagerly.policies.numpy_actor import RowPolicy

_log = logging.getLogger(__name__)


class TD7(Agent):
    """A TD7 agent; `Agent` documents its constructor and methods.

    It collects with the current policy, and evaluates, saves and exports the policy that is kept.
    """

    Config = TD7Config
    Builder = TD7Builder
    config: TD7Config

    @property
    def rhythms(self) -> tuple[int, ...]:
        """The actor moves every `policy_delay` updates."""
        return (self.config.policy_delay,)

    def build(self, builder: TD7Builder) -> Modules:  # type: ignore[override]
        """Builds encoders, actor, critics, the range of values, and the policy that is kept."""
        self.judge = PolicyCheckpoints()
        self._budget: EpisodicBudget | None = None
        self.warmup_ends_with_episode = self.config.policy_checkpoints
        if self.config.policy_checkpoints:
            self.refuses_policy_lag = (
                "policies are judged by the episodes that they collect (--no-policy-checkpoints)"
            )
        return builder.modules()

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Makes one update: the inner part of Algorithm 1."""
        scaled = self.normalization or tf.identity
        state, next_state = scaled(batch.observation), scaled(batch.next_observation)
        metrics = self.encoder_step(state, batch.action, next_state)
        with tf.name_scope("target"):
            target = self.target(batch, next_state, random)
        zs = self.fixed.states(state)
        more, td_error = self.critic_step(batch, state, zs, target)
        metrics |= more
        if phase.every(self.config.policy_delay):
            metrics |= self.actor_step(state, zs)
        return metrics, {"td_error": td_error}

    @property
    def fixed(self) -> Any:
        """The encoder that actor and critics take, which no loss moves."""
        return self.modules["fixed_encoder"].network

    def encoder_step(self, state: tf.Tensor, action: tf.Tensor, next_state: tf.Tensor) -> Tensors:
        """Moves the encoder, so that zsa predicts the zs that follows."""
        encoder = self.modules["encoder"]
        # L(f, g) = mean (g(f(s), a) - |f(s')|×)², the latter without a gradient (Eq. 2)
        following = encoder.network.states(next_state)
        with tf.name_scope("encoder_loss"), tf.GradientTape() as tape:
            predicted = encoder(state, action, training=True)
            loss = tf.reduce_mean(tf.square(predicted - tf.stop_gradient(following)))
        encoder.minimize(loss, tape)
        return {"losses/encoder": loss}

    def target(self, batch: Batch, next_state: tf.Tensor, random: UpdateRandom) -> tf.Tensor:
        """Returns y `[B]`, on which all critics regress."""
        encoder, values = self.modules["fixed_encoder"].target, self.modules["value_range"].network
        zs = encoder.states(next_state)
        # ã = clip(π'(s', zs') + clip(ε, -c, c), -1, 1), ε ~ N(0, σ)
        next_action = self.outputs(random).smoothed(
            self.actor.target(next_state, zs),
            self.config.target_noise,
            self.config.target_noise_clip,
        )
        zsa = encoder.pairs(zs, next_action)
        next_values = self.critic.target(next_state, next_action, zsa, zs)
        # y = r + γ clip(min_i Q'_i(s', ã, zsa', zs'), Q_min, Q_max) (Eq. 9)
        target = losses.clipped_target(batch.reward, batch.discount, values(next_values))
        values.observe(target)
        return target

    def critic_step(
        self, batch: Batch, state: tf.Tensor, zs: tf.Tensor, target: tf.Tensor
    ) -> tuple[Tensors, tf.Tensor]:
        """Moves the critics; returns metrics, and the largest error of each row `[B]`."""
        # Huber loss of Q_i(s, a, zsa, zs) - y, through the critics alone
        zsa = self.fixed.pairs(zs, batch.action)
        with tf.name_scope("critic_loss"), tf.GradientTape() as tape:
            values = self.critic(state, batch.action, zsa, zs, training=True)
            loss = self.critic_loss(values, target, batch.mask, batch.weight)
        self.critic.minimize(loss, tape)
        error = tf.reduce_max(tf.abs(losses.td_error(values, target)), axis=0)
        return critic_metrics(loss, values, target, batch.mask), error

    def actor_step(self, state: tf.Tensor, zs: tf.Tensor) -> Tensors:
        """Moves the actor; returns its metrics."""
        # L(π) = -mean Q_i(s, π(s, zs), g(zs, π(s, zs)), zs), over all critics
        with tf.name_scope("actor_loss"), tf.GradientTape() as tape:
            action = self.actor(state, zs, training=True)
            values = self.critic(state, action, self.fixed.pairs(zs, action), zs)
            loss = losses.actor_loss(tf.reduce_mean(values, axis=0))
        self.actor.minimize(loss, tape)
        return actor_metrics(loss, tf.abs(action) > 0.99, None)

    def between_calls(self) -> Sequence[tuple[int, Callable[[], object]]]:
        """Copies targets and fixed encoders, and extends the range of values."""
        return [*super().between_calls(), (self.config.copy_every, self._next_generation)]

    def _next_generation(self) -> None:
        self.modules["fixed_encoder"].copy_to_target()
        copy_variables(self.modules["encoder"].network, self.fixed)
        self.modules["value_range"].network.advance()

    def sampler(self, seed: np.random.SeedSequence) -> Sampler:
        """Makes what draws from the replay buffer, whose new rows get the highest priority."""
        return sampler_of(self.config.replay, seed, highest_every=self.config.copy_every)

    # Policy checkpoints: section 5.1.

    def acting_model(self) -> Model:
        """Returns the policy that is kept, or without policy checkpoints the current one."""
        kept = "checkpoint" if self.config.policy_checkpoints else "policy"
        return self.modules[kept].network

    def collecting_model(self) -> Model:
        """Returns the current policy."""
        return self.modules["policy"].network

    @property
    def acting_updates(self) -> int:
        """Updates so far, or 0 while no policy was kept that has had one."""
        return self.updates if self.judge.has_learned or not self.config.policy_checkpoints else 0

    def begun_with_policy(self) -> None:
        """Copies the state encoder of the policy into the encoder that learns."""
        copy_variables(self.fixed.states, self.modules["encoder"].network.states)
        self.judge.was_given = True

    def evaluated_policies(self) -> Mapping[str, RowPolicy]:
        """Returns the current policy, where it is not the one that is evaluated anyway."""
        return {"current": self.collecting} if self.config.policy_checkpoints else {}

    def update_budget(self, run: Budget) -> Budget:
        """Lets updates be made at the ends of episodes alone."""
        if not self.config.policy_checkpoints:
            return run
        self._budget = EpisodicBudget(run, "--no-policy-checkpoints")
        return self._budget

    def train(self, buffer: Buffer, updates: int) -> dict[str, np.ndarray]:
        """Makes updates as `Agent.train` does; warns where nothing keeps policies."""
        if self.config.policy_checkpoints and self._budget is None and not self.updates:
            _log.warning(
                "nothing calls update_budget and episodes_ended of this TD7, so no policy is kept, "
                "and act never changes: use Trainer, or TD7Config(policy_checkpoints=False)"
            )
        return super().train(buffer, updates)

    def episodes_ended(self, episodes: Sequence[FinishedEpisode]) -> None:
        """Judges the current policy, keeps it if it is no worse, and lets it be trained on."""
        budget, judge = self._budget, self.judge
        if budget is None:
            return
        budget.ended()
        judge.ended(episodes, judging=budget.has_begun)
        if not budget.can_pay:
            return  # nothing would change: the same policy goes on, and so does its judging
        is_late = self.updates > self.config.checkpoint_episodes_after
        if is_late:
            judge.rescale_best(self.config.checkpoint_reset)
        is_untrained = not (self.updates or judge.was_given)
        is_left_out = is_untrained and not self.config.checkpoint_untrained
        if not (judge.is_worse() or is_left_out):
            if not judge.is_judged(self.config.checkpoint_episodes if is_late else 1):
                return
            judge.keep(has_learned=self.updates > 0)
            copy_variables(self.modules["policy"].network, self.acting)
            self.policy.refresh()
        judge.changed(episodes)
        budget.pay()

    def figures(self) -> dict[str, float]:
        """Returns how many policies were kept, and the worst return of the one that is."""
        found = {"checkpoints/kept": float(self.judge.kept)}
        if self.judge.best is not None:
            found["checkpoints/worst_return"] = self.judge.best
        return found if self.config.policy_checkpoints else {}

    def state(self) -> dict[str, Any]:
        """Returns what `checkpoint` does not hold, and how the current policy was judged."""
        return super().state() | {"judge": self.judge.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, once `checkpoint` was read."""
        super().restore(state)
        self.judge.restore(state["judge"])
