"""What the settings of replay ask for: samplers, accumulators, and the loss that goes with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eagerly.agents import losses
from eagerly.agents.conditions import LAP, PRIORITIZED
from eagerly.agents.config_groups import ReplayConfig
from eagerly.buffers import (
    Accumulator,
    LAPSampler,
    NStep,
    OneStep,
    ProportionalSampler,
    Sampler,
    UniformSampler,
)


def sampler_of(config: ReplayConfig, seed: np.random.SeedSequence) -> Sampler:
    """Makes what draws from the replay buffer."""
    if config.sampling == PRIORITIZED:
        return ProportionalSampler(
            seed,
            exponent=config.prioritized_exponent,
            correction=config.prioritized_correction,
            correction_updates=config.prioritized_correction_updates,
        )
    if config.sampling == LAP:
        return LAPSampler(seed, exponent=config.lap_exponent)
    return UniformSampler(seed)


def accumulator_of(config: ReplayConfig) -> Accumulator:
    """Makes what turns steps into transitions."""
    return OneStep() if config.n_step == 1 else NStep(config.n_step)


def critic_loss_of(config: ReplayConfig) -> Callable[..., Any]:
    """Returns the loss of critics; arguments as `losses.critic_loss` has them."""
    return losses.huber_critic_loss if config.sampling == LAP else losses.critic_loss
