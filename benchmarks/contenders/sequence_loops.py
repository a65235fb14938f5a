"""Times implementations of padding, or recurrent TD3 updates.

Run as `python -m eagerly.benchmarks.contenders.sequence_loops padding` or `... updates SETTINGS`:
prints one line of JSON. SETTINGS is one JSON object with `updates_per_call`, `hidden_sizes` and
any other settings of TD3, such as
'{"memory": "gru", "hidden_sizes": [64, 64], "updates_per_call": 50}'.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from eagerly.benchmarks.workload import ACTION_SIZE, OBSERVATION_SIZE, cheetah_agent
from eagerly.buffers import Transition, replay_buffer
from eagerly.networks.padding import pad
from eagerly.training.hardware import set_threads

# The same sizes as in the discussion that proposed `tf.scatter_nd`: 100 sequences, 10 to 50 steps.
COUNT, LEAST, MOST, FEATURES = 100, 10, 50, 10
PADDINGS = 50  # per call of a compiled program, because a call costs more than one padding
SECONDS = 1.0


def seconds_of(call: Callable[[], Any]) -> float:
    """Calls a function repeatedly for `SECONDS` and returns the median duration of a call."""
    for _ in range(3):
        call()
    times, ends = [], time.perf_counter() + SECONDS
    while time.perf_counter() < ends:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return float(np.median(times))


def by_loop(flat: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Pads in NumPy, step by step."""
    padded, start = np.zeros((len(lengths), MOST, flat.shape[1]), flat.dtype), 0
    for row, length in enumerate(lengths):
        for step in range(length):
            padded[row, step] = flat[start + step]
        start += length
    return padded


def by_slices(flat: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Pads in NumPy, one slice per sequence."""
    padded, start = np.zeros((len(lengths), MOST, flat.shape[1]), flat.dtype), 0
    for row, length in enumerate(lengths):
        padded[row, :length] = flat[start : start + length]
        start += length
    return padded


def by_while_loop(flat: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Pads in a graph, one sequence after the other."""
    ends = tf.cumsum(lengths)
    rows = tf.TensorArray(flat.dtype, size=COUNT, element_shape=(MOST, FEATURES))

    def step(row: tf.Tensor, rows: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        part = flat[ends[row] - lengths[row] : ends[row]]
        return row + 1, rows.write(row, tf.pad(part, [[0, MOST - lengths[row]], [0, 0]]))

    _, rows = tf.while_loop(lambda row, _: row < COUNT, step, (tf.constant(0), rows))
    return rows.stack()


def by_scatter(flat: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Pads in a graph by scattering each step to its position."""
    places = tf.where(tf.sequence_mask(lengths, MOST))
    return tf.scatter_nd(places, flat, tf.constant([COUNT, MOST, FEATURES], tf.int64))


def by_pad(flat: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Pads with this package's `pad`."""
    return pad(flat, lengths, max_length=MOST)


COMPILED = {
    "`while_loop`": (by_while_loop, False),
    "`tf.scatter_nd`, graph": (by_scatter, False),
    "`pad`, graph": (by_pad, False),
    "`pad`, XLA": (by_pad, True),
}


def padding() -> dict[str, float]:
    """Times all implementations of padding and checks that they give equal results."""
    set_threads(2, 2)
    random = np.random.default_rng(0)
    lengths = random.integers(LEAST, MOST + 1, COUNT).astype(np.int32)
    flat = random.normal(size=(lengths.sum(), FEATURES)).astype(np.float32)
    expected = by_loop(flat, lengths)
    np.testing.assert_array_equal(by_slices(flat, lengths), expected)
    found = {
        "NumPy, a loop over steps": seconds_of(lambda: by_loop(flat, lengths)),
        "NumPy, a slice for each sequence": seconds_of(lambda: by_slices(flat, lengths)),
    }
    for name, (way, xla) in COMPILED.items():
        program = tf.function(partial(_often, way), jit_compile=xla)
        call = partial(program, tf.constant(flat), tf.constant(lengths))
        np.testing.assert_array_equal(call(), expected)
        found[name] = seconds_of(call) / PADDINGS
    return found


def _often(
    way: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], flat: tf.Tensor, lengths: tf.Tensor
) -> tf.Tensor:
    """Pads `PADDINGS` times; each padding depends on the previous one, so XLA cannot drop any."""
    padded = way(flat, lengths)
    for _ in tf.range(PADDINGS - 1):
        nothing = tf.cast(1e-30 * padded[-1, 0, 0], lengths.dtype)  # XLA cannot know this
        padded = way(flat, lengths + nothing)
    return padded


def updates(settings: dict[str, Any]) -> dict[str, float]:
    """Times recurrent TD3 updates, including sampling. The windows contain no padding."""
    per_call = settings.pop("updates_per_call")
    settings["hidden_sizes"] = tuple(settings["hidden_sizes"])
    agent = cheetah_agent("td3", **settings)
    buffer = replay_buffer(agent.layout, 20_000)
    random, never = np.random.default_rng(0), np.zeros(1, bool)
    observation = random.normal(size=(1, OBSERVATION_SIZE))
    for _ in range(10_000):
        after = random.normal(size=(1, OBSERVATION_SIZE))
        action = random.uniform(-1.0, 1.0, (1, ACTION_SIZE))
        buffer.add(Transition(observation, action, np.ones(1), np.ones(1), after), never)
        observation = after
    took = seconds_of(lambda: agent.train(buffer, per_call))
    sequences = agent.config.sequences_per_update
    return {"seconds_per_update": took / per_call, "sequences": sequences}


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    found = padding() if what == "padding" else updates(json.loads(given[0]))
    sys.stdout.write(json.dumps(found) + "\n")
