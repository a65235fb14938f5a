"""The methods that an algorithm overrides.

`Agent` does everything else. Each method does by default what most algorithms need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from eagerly.agents.actor_critic import actor_critic
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.agents.inputs import Batch
from eagerly.agents.modules import Module, Modules
from eagerly.agents.random import UpdateRandom
from eagerly.agents.replay import accumulator_of, critic_loss_of, sampler_of
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.buffers import Accumulator, Sampler
from eagerly.networks.models import Model
from eagerly.policies.episodes import EpisodePolicy
from eagerly.policies.numpy_actor import RowPolicy
from eagerly.state import Stateful


class Budget(Stateful, Protocol):
    """How many updates may be made; `training.update_budget.UpdateBudget` is the run's.

    The trainer counts the steps of each round, then makes calls while one is due, and only then
    steps again. It saves the state, so that a run that was stopped between two calls makes the rest
    of them first.
    """

    @property
    def is_call_due(self) -> bool:
        """Whether a whole call is owed."""

    def stepped(self, new: int) -> None:
        """Counts the steps of a round that owe updates; `Collector.owing` says how many.

        Args:
            new: Their number, in [0, T N]; 0 in the warm-up.

        Raises:
            RunStoppedError: If the run cannot go on. It ends, saved, and says why.
        """

    def paid(self) -> None:
        """Counts a call."""


class FinishedEpisode(Protocol):
    """An episode that has ended, with exploration; `collectors.episodes` makes them."""

    @property
    def environment(self) -> int:
        """Index of its environment, in [0, N)."""

    @property
    def total_reward(self) -> float:
        """Sum of its rewards, not discounted."""

    @property
    def length(self) -> int:
        """Its steps."""

    @property
    def steps_left(self) -> int:
        """How many steps of its environment followed in the same round."""


class Algorithm:
    """Base class of algorithms; `Agent` adds acting, learning and saving.

    Attributes:
        config: The settings.
        modules: Networks, their targets and optimisers, by name; what `build` has built.
        warmup_ends_with_episode: Whether the random actions at first go on, in all environments,
            up to the end of the next round in which an episode ends, at or after `warmup_steps`
            steps. Steps up to there owe no updates.
        refuses_policy_lag: Why rounds must not be collected while updates of the one before are
            made, in words; "" if they may.
    """

    config: AgentConfig
    modules: Modules
    warmup_ends_with_episode: bool = False
    refuses_policy_lag: str = ""

    @property
    def actor(self) -> Module:
        """The module of that name."""
        return self.modules["actor"]

    @property
    def critic(self) -> Module:
        """The module of that name."""
        return self.modules["critic"]

    def critic_loss(
        self,
        values: tf.Tensor,
        target: tf.Tensor,
        mask: tf.Tensor | None = None,
        weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the loss of critics: mean squared errors, or with `sampling` lap Huber's.

        Arguments are those of `losses.critic_loss`.
        """
        return critic_loss_of(self.config.replay)(values, target, mask, weight)

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Makes one update of the modules.

        Args:
            batch: What is learned from.
            random: Random numbers of this update.
            phase: What happens in this update, and its number.

        Returns:
            Two dictionaries. Metrics are scalars by name, the same ones in all updates of a phase.
            Values per row are `[B]` by name, the same ones in all updates; a sampler asks for them
            by name, such as `td_error`.
        """
        raise NotImplementedError

    @property
    def rhythms(self) -> tuple[int, ...]:
        """Numbers of updates after which something happens within an update; see `Phase.every`."""
        return ()

    def build(self, builder: ModelBuilder) -> Modules:
        """Builds what is learned and kept: an actor and critics with targets.

        Where an algorithm overrides it, the global generators of Python, NumPy, TensorFlow and
        PyTorch begin at the agent's seed, so that initial weights follow from it.
        """
        return actor_critic(builder)

    def acting_model(self) -> Model:
        """Returns the model that is evaluated, saved as the policy and exported: the actor.

        `Builder.policy_actor` builds another of it. Its variables belong to `modules`. Where they
        change outside of updates and `between_calls`, `self.policy.refresh()` says so.
        """
        return self.actor.network

    def collecting_model(self) -> Model:
        """Returns the model that acts in the environments while data is collected.

        It is the acting model; where it is another one, that is for evaluation and saving alone.
        Where its variables change outside of updates and `between_calls`,
        `self.collecting.refresh()` says so.
        """
        return self.acting_model()

    def begun_with_policy(self) -> None:
        """Called when the run has begun with the policy of another one, before its first step.

        Acting and collecting model have its weights, and so have the targets of modules that are
        part of them; what else must go with these weights is brought along here.
        """

    def between_calls(self) -> Sequence[tuple[int, Callable[[], object]]]:
        """Lists what happens between calls, after every so many updates, in order.

        Targets are copied that have `copy_every`.
        """
        return [(m.copy_every, m.copy_to_target) for m in self.modules.values() if m.copy_every]

    def update_budget(self, run: Budget) -> Budget:
        """Returns the update budget of a run, whose state the trainer saves; it is asked for once.

        Args:
            run: The run's: each step that is counted owes `replay_ratio` updates. A budget around
                it can count steps later, for example.
        """
        return run

    def sampler(self, seed: np.random.SeedSequence) -> Sampler:
        """Makes what draws from the replay buffer of a run, as `sampling` says."""
        return sampler_of(self.config.replay, seed)

    def accumulator(self, discount: float) -> Accumulator:
        """Makes what turns the steps of environments into transitions, as `n_step` says.

        Args:
            discount: Discount per step, gamma.
        """
        return accumulator_of(self.config.replay)

    def episodes_ended(self, episodes: Sequence[FinishedEpisode]) -> None:
        """Called after a round in which episodes ended, before any update.

        A round is one step of every environment, or `rollout_steps` of them.

        What the next update depends on must be part of `state`, or of the budget's.
        """

    def evaluated_policies(self) -> Mapping[str, RowPolicy | EpisodePolicy]:
        """Returns the policies, as they are now, that are evaluated beside the acting one, by name.

        A name is an identifier, and begins columns of `evaluations.csv`: the same names, in the
        same order, in the whole run.
        """
        return {}
