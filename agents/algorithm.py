"""The methods that an algorithm overrides.

`Agent` implements everything else. Only `update` has no default.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.actor_critic import actor_critic
from eagerly.agents.agent_settings import LAP
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.config import AgentConfig
from eagerly.agents.inputs import Batch
from eagerly.agents.modules import Modules
from eagerly.agents.replay_factory import huber, make_accumulator, make_sampler
from eagerly.agents.results import Tensors
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import Accumulator, Sampler
from eagerly.errors import RunError, UsageError, short_path, summary


class Algorithm:
    """Base class of algorithms; `Agent` adds acting, learning and saving.

    Attributes:
        Budget: A subclass of `eagerly.training.update_budget.UpdateBudget`, which decides when a
            run makes updates; `UpdateBudget` itself if None.
        REPLICABLE: Whether several devices can each process a part of the batch (`replicas`): if
            `update` uses a batch only through means over its rows, and the first axis of all
            random numbers is the rows. Subclasses do not inherit it.
        config: The settings.
        modules: The result of `build`: networks with their targets and optimizers, by name.
    """

    Budget: ClassVar[type[Any] | None] = None
    REPLICABLE: ClassVar[bool] = False
    config: AgentConfig
    modules: Modules

    def critic_loss(
        self,
        values: tf.Tensor,
        target: tf.Tensor,
        mask: tf.Tensor | None = None,
        weight: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Returns the critics' loss: mean squared errors, or Huber losses if `sampling` is "lap".

        See `losses.critic_loss` for the arguments.
        """
        is_huber = self.config.sampling == LAP  # whose priorities are derived for Huber losses
        return losses.critic_loss(values, target, mask, weight, huber if is_huber else tf.square)

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Runs one update of the modules.

        Args:
            batch: The sampled batch.
            random: The random numbers of this update.
            phase: The number of this update, and the intervals due in it.

        Returns:
            Two dictionaries, metrics and per-row values. Metrics are scalars, with the same names
            in all updates in which the same intervals are due. Per-row values, such as `td_error`,
            have shape `[B]` and the same names in all updates. Samplers request them by name.
        """
        raise NotImplementedError

    @property
    def intervals(self) -> tuple[int, ...]:
        """Update intervals used by `Phase.is_multiple_of`, such as `policy_delay`."""
        return ()

    def build(self, builder: ModelBuilder) -> Modules:
        """Builds the modules: by default an actor and critics, each with a target network.

        The network of the module `policy`, or of `actor` if no `policy` exists, selects actions,
        and is saved and exported as the policy. `Builder.policy_actor` must build a model with the
        same variables.

        If an algorithm overrides this method, the global random generators of Python, NumPy,
        TensorFlow and PyTorch are seeded from the agent's seed before it is called, so that initial
        weights are reproducible.
        """
        return actor_critic(builder)

    def sampler(self, seed: np.random.SeedSequence) -> Sampler:
        """Returns the replay buffer's sampler, selected by the setting `sampling`.

        If targets are copied every n updates, the priority of new rows is reset to the highest
        stored priority with each copy, as in the public code of Fujimoto et al. 2023.
        """
        every = max((module.copy_every for module in self.modules.values()), default=0)
        return make_sampler(self.config, seed, highest_every=every)

    def accumulator(self) -> Accumulator:
        """Returns the accumulator, which converts environment steps to transitions (`n_step`)."""
        return make_accumulator(self.config)


@contextmanager
def algorithm_errors(kind: type, doing: str) -> Iterator[None]:
    """Converts exceptions of a custom algorithm to a `UsageError` that locates the error.

    Exceptions of the algorithms in this package are not converted.

    Args:
        kind: The class of the agent.
        doing: What the algorithm does, such as "updating".
    """
    try:
        yield
    except (RunError, FloatingPointError, MemoryError, OSError, tf.errors.ResourceExhaustedError):
        raise  # not caused by the code of the algorithm
    except Exception as error:
        if kind.__module__.startswith("eagerly."):
            raise
        why = _wrong_signature(kind, error) or summary(error)
        raise UsageError(f"{doing} {kind.__name__} failed: {why}") from error


def _wrong_signature(kind: type, error: Exception) -> str:
    """Describes the overridden method whose signature caused the error, or returns ""."""
    # In a traced update, AutoGraph adds the prefix tf__ to names.
    found = re.search(r"\b(?:tf__)?(\w+)\(\) ((?:takes|missing|got) [^\n]*)", str(error))
    name = found[1] if found else ""
    classes = [each for each in kind.__mro__ if inspect.isfunction(vars(each).get(name))]
    if not found or len(classes) < 2:
        return ""
    override, base = (vars(each)[name] for each in classes[:2])
    expected = inspect.signature(base).parameters
    try:
        inspect.signature(override).bind(*expected)
    except TypeError:
        code = inspect.unwrap(override).__code__
        required = ", ".join(str(each.replace(annotation=each.empty)) for each in expected.values())
        return (
            f"{classes[0].__name__}.{name} ({short_path(code.co_filename)}:{code.co_firstlineno}) "
            f"{found[2]}: define {name}({required}), as in {classes[1].__name__}"
        )
    return ""
