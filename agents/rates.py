"""Learning rates that decay with the update number, and the optimizers that use them."""

from __future__ import annotations

import tensorflow as tf

from eagerly.agents.agent_settings import CONSTANT, OPTIMIZER
from eagerly.agents.clock import Clock
from eagerly.agents.config import AgentConfig
from eagerly.agents.modules import Modules
from eagerly.networks.optimizers import Adam, UpdateSchedule, decay


class LearningRates:
    """Creates an agent's optimizers, whose learning rates follow the current update.

    Args:
        config: The agent's settings, which include the optimizer settings.
        clock: Provides the update count.
    """

    def __init__(self, config: AgentConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._made: list[Adam] = []

    def optimizer(self, rate: float, name: str) -> Adam:
        """Creates an Adam optimizer with the configured clipping, weight decay and schedule.

        Args:
            rate: The learning rate of the first update.
            name: Name of the optimizer, such as "actor_optimizer".
        """
        config = self._config
        follows: float | UpdateSchedule = float(rate)  # Keras rejects integers
        if config.schedule != CONSTANT:
            schedule = decay(config.schedule, rate, config.schedule_steps, config.schedule_end)
            follows = UpdateSchedule(self._clock.passed, schedule)
        made = Adam(
            follows,
            epsilon=config.adam_epsilon,
            global_clipnorm=config.clip_gradients or None,
            weight_decay=config.weight_decay or None,
            name=name,
        )
        self._made.append(made)
        return made

    def check_reach(self, modules: Modules) -> None:
        """Validates that changed optimizer settings affect the optimizer of every module.

        Raises:
            ValueError: If an optimizer was not created by `optimizer`. The message names the module
                and the settings.
        """
        declared = self._config.SETTINGS
        changed = ", ".join(n for n in self._config.changed() if declared[n].group is OPTIMIZER)
        for name, module in modules.items():
            optimizer = module.optimizer
            if changed and optimizer is not None and all(optimizer is not m for m in self._made):
                raise ValueError(
                    f"{changed} would have no effect on module {name!r}: create its optimizer in "
                    f'`build` with builder.rates.optimizer(rate, "{name}_optimizer"), or remove '
                    "the settings"
                )

    def metrics(self) -> dict[str, tf.Tensor]:
        """Returns the learning rates of the current update, if they follow a schedule."""
        if self._config.schedule == CONSTANT:
            return {}
        return {
            f"learning_rate/{each.name.removesuffix('_optimizer')}": each.learning_rate
            for each in self._made
        }
