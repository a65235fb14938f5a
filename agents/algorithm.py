"""The methods that an algorithm overrides.

`Agent` does everything else. Each method does by default what most algorithms need.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from eagerly.agents.actor_critic import actor_critic
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.agents.inputs import Batch
from eagerly.agents.modules import Modules
from eagerly.agents.replay_factory import make_accumulator, make_sampler, select_critic_loss
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import Accumulator, Sampler


class Algorithm:
    """Base class of algorithms; `Agent` adds acting, learning and saving.

    Attributes:
        Budget: Decides when a run makes updates: a subclass of `UpdateBudget`, in
            `eagerly.training.update_budget`; None for that class itself.
        config: The settings.
        modules: Networks, their targets and optimizers, by name; what `build` has built.
    """

    Budget: ClassVar[type[Any] | None] = None
    config: AgentConfig
    modules: Modules

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
        return select_critic_loss(self.config)(values, target, mask, weight)

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
    def intervals(self) -> tuple[int, ...]:
        """Update intervals used by `Phase.is_multiple_of`, such as `policy_delay`."""
        return ()

    def build(self, builder: ModelBuilder) -> Modules:
        """Builds the modules: an actor, and critics with targets.

        The module `policy` acts, and is saved and exported as the policy; without one, `actor` is.
        `Builder.policy_actor` builds another such model.

        Where an algorithm overrides this method, the global generators of Python, NumPy, TensorFlow
        and PyTorch begin at the agent's seed, so that initial weights follow from it.
        """
        return actor_critic(builder)

    def sampler(self, seed: np.random.SeedSequence) -> Sampler:
        """Returns the sampler of a run's replay buffer, which the setting `sampling` selects.

        Where targets are copied every n updates, the priority of new rows falls back to the highest
        that is stored after each copy, as in the public code of Fujimoto et al. 2023.
        """
        every = max((module.copy_every for module in self.modules.values()), default=0)
        return make_sampler(self.config, seed, highest_every=every)

    def accumulator(self) -> Accumulator:
        """Returns the accumulator, which turns environment steps into transitions (`n_step`)."""
        return make_accumulator(self.config)
