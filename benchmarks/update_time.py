"""Time per TD3 update in each mode, beside float32 matrix products of the same minute.

Every figure comes from fresh processes that take turns, so that a change of the machine's pace
meets all of them. The sizes are those of HalfCheetah: 17 observations, 6 actions, 256-256, batch
256. An update is 422 million floating-point operations, counted by hand in `flops_per_update`.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TABLE = Path(__file__).with_suffix(".md")
# mode, updates per call, updates timed, intra-op threads, inter-op threads
CONTENDERS = (
    ("xla", 50, 2000, 2, 2),
    ("xla", 1, 1000, 2, 2),
    ("graph", 50, 1000, 2, 2),
    ("graph", 50, 1000, 1, 2),
    ("eager", 5, 40, 2, 2),
)
ROUNDS = 3


def flops_per_update(observation: int = 17, action: int = 6, width: int = 256) -> float:
    """Counts multiplications and additions of matrix products in one update, batch 256.

    A layer of I x U costs 2 I U per row forward, as much again for the gradient of its weights,
    and as much again for that of its input, which the first layer of a network does not need.
    The actor's half of the work is done every second update.
    """

    def layers(inputs: int, outputs: int) -> list[int]:
        return [inputs * width, width * width, width * outputs]

    actor, critic = layers(observation, action), layers(observation + action, 1)
    target = sum(actor) + 2 * sum(critic)
    critic_step = 2 * (3 * sum(critic) - critic[0])
    actor_step = (3 * sum(actor) - actor[0]) + 2 * sum(critic)
    return 256 * 2 * (target + critic_step + actor_step / 2)


def time_updates(mode: str, per_call: int, updates: int, intra: int, inter: int) -> float:
    """Returns microseconds per update, sampling included."""
    import gymnasium
    import numpy as np
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.config.threading.set_inter_op_parallelism_threads(inter)
    from eagerly import TD3, ReplayBuffer, TD3Config, Transition

    box = gymnasium.spaces.Box
    agent = TD3(box(-np.inf, np.inf, (17,)), box(-1, 1, (6,)), TD3Config(mode=mode))
    random = np.random.default_rng(0)
    buffer = ReplayBuffer(100_000, 17, 6)
    count = 10_000
    buffer.add(
        Transition(
            random.normal(size=(count, 17)),
            random.uniform(-1, 1, (count, 6)),
            random.normal(size=count),
            np.full(count, 0.99),
            random.normal(size=(count, 17)),
        )
    )
    agent.train(buffer, per_call)
    calls = updates // per_call
    started = time.perf_counter()
    for _ in range(calls):
        agent.train(buffer, per_call)
    return (time.perf_counter() - started) / (calls * per_call) * 1e6


def time_products() -> float:
    """Returns the best rate of 256³, 1024³ and 2048³ float32 products, in GFLOP/s."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(2)
    best = 0.0
    for size in (256, 1024, 2048):
        left, right = tf.random.normal((size, size)), tf.random.normal((size, size))
        repeats = max(1, int(4e9 / size**3 / 2))
        tf.matmul(left, right)
        for _ in range(5):
            started = time.perf_counter()
            for _ in range(repeats):
                product = tf.matmul(left, right)
            product.numpy()
            best = max(best, 2 * size**3 * repeats / (time.perf_counter() - started) / 1e9)
    return best


def in_fresh_process(*words: str) -> float:
    """Runs one measurement of this file in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *words],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measures in turns and writes the table."""
    times: dict[tuple, list[float]] = {contender: [] for contender in CONTENDERS}
    rates = []
    for _ in range(ROUNDS):
        for contender in CONTENDERS:
            rates.append(in_fresh_process("products"))
            times[contender].append(in_fresh_process("updates", *map(str, contender)))
    rate, work = max(rates), flops_per_update()
    lines = [
        "# Time per TD3 update",
        "",
        f"Medians of {ROUNDS} fresh processes each, in turns with matrix products: best rate "
        f"{rate:.0f} GFLOP/s (median {statistics.median(rates):.0f}), so that the "
        f"{work / 1e6:.0f} MFLOP of an update take at least {work / rate / 1e3:.0f} µs.",
        "",
        "| mode | updates per call | threads (intra, inter) | µs per update | share of the rate |",
        "|---|---|---|---|---|",
    ]
    for (mode, per_call, _, intra, inter), found in times.items():
        middle = statistics.median(found)
        spread = f"{min(found):.0f}-{max(found):.0f}"
        share = work / middle / 1e3 / rate
        lines.append(
            f"| {mode} | {per_call} | {intra}, {inter} | {middle:.0f} ({spread}) | {share:.0%} |"
        )
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["products"]:
        sys.stdout.write(json.dumps(time_products()) + "\n")
    elif sys.argv[1:2] == ["updates"]:
        mode, *numbers = sys.argv[2:]
        sys.stdout.write(json.dumps(time_updates(mode, *map(int, numbers))) + "\n")
    else:
        main()
