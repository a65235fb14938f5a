"""Compares the speed of TD3 updates with that of matrix products within the same second.

Run as `python -m eagerly.benchmarks.contenders.limit SETTINGS`: prints one line of JSON. SETTINGS
is one JSON object, such as '{"batch": 512, "mode": "graph"}', with any of the keys `batch`,
`width`, `updates_per_call`, `mode`, `precision`, `intra` and `inter`. The last two are the numbers
of TensorFlow threads within and between operations.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from eagerly.benchmarks.workload import ACTION_SIZE, OBSERVATION_SIZE, cheetah_agent, random_buffer

TURNS = 5
SECONDS_PER_TURN = 0.25
# After a product, NumPy's threads spin for this long before they sleep. Updates wait for that.
SECONDS_OF_SPINNING = 0.25


def flops_per_update(
    batch: int, width: int, observation: int = OBSERVATION_SIZE, action: int = ACTION_SIZE
) -> float:
    """Returns the multiplications and additions in the matrix products of a TD3 update.

    A layer with I inputs and U units costs 2 I U per row in the forward pass, the same for its
    weight gradient, and the same for its input gradient. Every second update also updates the
    actor, through one critic, whose weights then need no gradient. The first layer of a network
    needs no input gradient, except in this critic.
    """

    def layers(inputs: int, outputs: int) -> list[int]:
        return [inputs * width, width * width, width * outputs]

    actor, critic = layers(observation, action), layers(observation + action, 1)
    target = sum(actor) + 2 * sum(critic)
    critic_step = 2 * (3 * sum(critic) - critic[0])
    actor_step = (3 * sum(actor) - actor[0]) + 2 * sum(critic)
    return batch * 2 * (target + critic_step + actor_step / 2)


def product_rate() -> float:
    """Returns the highest rate of square float32 products of three sizes, in FLOP/s.

    Each size (256, 1024 and 2048) is measured in TensorFlow and then in NumPy, each with the number
    of threads that it uses in this process.
    """
    best = 0.0
    for size in (256, 1024, 2048):
        work = 2 * size**3
        repeats = max(1, int(1e10 / work))
        left, right = tf.random.normal((size, size)), tf.random.normal((size, size))
        arrays = left.numpy(), right.numpy()
        tf.matmul(left, right).numpy()
        started = time.perf_counter()
        for _ in range(repeats):
            product = tf.matmul(left, right)
        product.numpy()
        middle = time.perf_counter()
        for _ in range(repeats):
            np.matmul(*arrays)
        ended = time.perf_counter()
        best = max(best, *(repeats * work / took for took in (middle - started, ended - middle)))
    return best


def measure(
    batch: int = 256,
    width: int = 256,
    updates_per_call: int = 50,
    mode: str = "xla",
    precision: str = "float32",
    intra: int = 2,
    inter: int = 2,
) -> dict[str, Any]:
    """Times updates (including sampling) and matrix products alternately.

    Returns:
        Medians over the turns: seconds per update, rate of matrix products in FLOP/s, and the share
        of this rate that the updates of the same turn reach. Also the FLOP per update.
    """
    agent = cheetah_agent(
        "td3",
        intra=intra,
        inter=inter,
        mode=mode,
        precision=precision,
        batch_size=batch,
        hidden_sizes=(width, width),
    )
    buffer = random_buffer(10_000, 100_000)
    for _ in range(4):  # compiles every program that is used below
        agent.train(buffer, updates_per_call)
    started = time.perf_counter()
    agent.train(buffer, updates_per_call)
    calls = max(1, int(SECONDS_PER_TURN / (time.perf_counter() - started)))
    times, rates = [], []
    for _ in range(TURNS):
        rates.append(product_rate())
        time.sleep(SECONDS_OF_SPINNING)
        agent.train(buffer, updates_per_call)  # reloads the data of updates into the caches
        started = time.perf_counter()
        for _ in range(calls):
            agent.train(buffer, updates_per_call)
        times.append((time.perf_counter() - started) / (calls * updates_per_call))
    work = flops_per_update(batch, width)
    shares = [work / (t * rate) for t, rate in zip(times, rates, strict=True)]
    return {
        "seconds_per_update": float(np.median(times)),
        "products_per_second": float(np.median(rates)),
        "share": float(np.median(shares)),
        "flops_per_update": work,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(**json.loads(sys.argv[1]))) + "\n")
