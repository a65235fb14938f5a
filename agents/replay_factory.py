"""What the settings of replay ask for: samplers, accumulators, and the loss that goes with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent_settings import LAP, PRIORITIZED
from eagerly.agents.config import AgentConfig
from eagerly.buffers import (
    Accumulator,
    LAPSampler,
    NStep,
    OneStep,
    ProportionalSampler,
    Sampler,
    UniformSampler,
)


def make_sampler(
    config: AgentConfig, seed: np.random.SeedSequence, *, highest_every: int = 0
) -> Sampler:
    """Makes what draws from the replay buffer.

    Args:
        config: The settings.
        seed: Seed of the draws.
        highest_every: Updates after which the priority of new rows falls back to the highest that
            is stored, where there are priorities; 0: never.
    """
    if config.sampling == PRIORITIZED:
        return ProportionalSampler(
            seed,
            exponent=config.prioritized_exponent,
            correction=config.prioritized_correction,
            correction_updates=config.prioritized_correction_updates,
            highest_every=highest_every,
        )
    if config.sampling == LAP:
        return LAPSampler(seed, exponent=config.lap_exponent, highest_every=highest_every)
    return UniformSampler(seed)


def make_accumulator(config: AgentConfig) -> Accumulator:
    """Makes what turns steps into transitions."""
    return OneStep() if config.n_step == 1 else NStep(config.n_step)


def select_critic_loss(config: AgentConfig) -> Callable[..., Any]:
    """Returns the loss of critics; arguments as `losses.critic_loss` has them."""
    is_huber = config.sampling == LAP  # whose priorities belong to this loss
    return partial(losses.critic_loss, loss=huber) if is_huber else losses.critic_loss


def huber(errors: tf.Tensor) -> tf.Tensor:
    """Returns Huber losses of errors of any shape: δ²/2 up to 1, |δ| - 1/2 beyond."""
    size = tf.abs(errors)
    quadratic = tf.minimum(size, 1.0)
    return quadratic * (size - 0.5 * quadratic)
