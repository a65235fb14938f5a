"""Samplers and accumulators selected by the replay settings, and the Huber loss of LAP."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

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
    """Returns the sampler selected by `sampling`.

    Args:
        config: The settings.
        seed: Seed of the sampler.
        highest_every: Number of updates after which the priority of new rows is reset to the
            highest stored priority; 0: never. Only used by samplers with priorities.
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
    """Returns the accumulator selected by `n_step`, which converts steps to transitions."""
    return OneStep() if config.n_step == 1 else NStep(config.n_step)


def huber(errors: tf.Tensor) -> tf.Tensor:
    """Returns elementwise Huber losses: δ²/2 for |δ| up to 1, |δ| - 1/2 beyond."""
    size = tf.abs(errors)
    quadratic = tf.minimum(size, 1.0)
    return quadratic * (size - 0.5 * quadratic)
