"""One seed for a run, and an independent stream of it for everything that is random.

It stands here because this is the folder that every other one may import.
"""

from __future__ import annotations

import enum

import numpy as np


class Stream(enum.IntEnum):
    """A purpose that draws from the run's seed. The numbers never change; `CUSTOM` is yours."""

    ACTOR = 0
    CRITIC = 1
    EXPLORATION = 2
    WARMUP = 3
    SAMPLING = 4
    EPISODES = 5
    EVALUATION = 6
    AUGMENTATION = 7
    ENCODER = 8
    MODULES = 9
    HINDSIGHT = 10
    CUSTOM = 11  # of algorithms outside this package


def seed_sequence(seed: int, stream: Stream, *key: int) -> np.random.SeedSequence:
    """Returns the seeds of one stream, or of one member of it, such as an episode."""
    return np.random.SeedSequence(seed, spawn_key=(int(stream), *key))


def seed_word(seed: int, stream: Stream, *key: int) -> int:
    """Returns a seed of 32 bits for one purpose.

    Args:
        seed: Seed of the run or the agent.
        stream: The purpose.
        *key: Further numbers, such as that of an update. Other keys give independent seeds.
    """
    return int(seed_sequence(seed, stream, *key).generate_state(1)[0])
