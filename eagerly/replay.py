"""Public names for custom replay: buffers, samplers, accumulators and their data types.

See "Choose a replay: n-step, PER, HER" in the documentation for examples.
"""

from eagerly.buffers import (
    Accumulator,
    Hindsight,
    LAPSampler,
    NStep,
    OneStep,
    ProportionalSampler,
    ReplayBuffer,
    Sample,
    Sampler,
    SequenceLayout,
    SequenceReplayBuffer,
    Transition,
    UniformSampler,
    Window,
    replay_buffer,
)
from eagerly.environments.group import Rollout
from eagerly.state import Saved
from eagerly.training.goal_replay import make_hindsight

__all__ = [
    "Accumulator",
    "Hindsight",
    "LAPSampler",
    "NStep",
    "OneStep",
    "ProportionalSampler",
    "ReplayBuffer",
    "Rollout",
    "Sample",
    "Sampler",
    "Saved",
    "SequenceLayout",
    "SequenceReplayBuffer",
    "Transition",
    "UniformSampler",
    "Window",
    "make_hindsight",
    "replay_buffer",
]
