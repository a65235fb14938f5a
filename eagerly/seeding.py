"""Derives an independent random stream for each purpose from a run's seed.

This module is at the top level because every subpackage may import it.
"""

from __future__ import annotations

import enum

import numpy as np


class Stream(enum.IntEnum):
    """The purpose of a random stream. Values must never change: all draws depend on them."""

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
    CUSTOM = 11  # for algorithms outside this package
    DATA = 12


def seed_sequence(seed: int, stream: Stream, *key: int) -> np.random.SeedSequence:
    """Returns the seed sequence of a stream or, given a key, of one item such as an episode."""
    return np.random.SeedSequence(seed, spawn_key=(int(stream), *key))


def seed_word(seed: int, stream: Stream, *key: int) -> int:
    """Returns a 32-bit seed for one purpose.

    Args:
        seed: Seed of the run or the agent.
        stream: The purpose.
        *key: Further numbers, such as an update number. Different keys give independent seeds.
    """
    return int(seed_sequence(seed, stream, *key).generate_state(1)[0])
