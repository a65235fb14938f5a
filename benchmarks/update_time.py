"""Time per TD3 update in each mode, beside float32 matrix products of the same second.

Modes take turns in fresh processes, and updates take turns with products inside each, so that a
change of the machine's pace meets both sides of a ratio. The sizes are those of HalfCheetah: 17
observations, 6 actions, 256-256, batch 256. An update is 415 million floating-point operations,
counted by hand in `flops_per_update`.
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
    ("xla", 50, 1600, 2, 2),
    ("xla", 1, 1000, 2, 2),
    ("graph", 50, 1000, 2, 2),
    ("graph", 50, 1000, 1, 2),
    ("eager", 2, 32, 2, 2),
)
ROUNDS = 2
TURNS = 8


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


def measure(mode: str, per_call: int, updates: int, intra: int, inter: int) -> dict[str, list]:
    """Times updates (sampling included) and matrix products in turns, in this process.

    Returns:
        Microseconds per update and GFLOP/s of the products, one of each per turn.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.config.threading.set_inter_op_parallelism_threads(inter)
    from workload import cheetah_agent, random_buffer

    agent = cheetah_agent("td3", mode=mode)
    buffer = random_buffer(10_000, 100_000)
    agent.train(buffer, per_call)
    calls = max(1, updates // per_call // TURNS)
    found: dict[str, list] = {"microseconds": [], "gigaflops": []}
    for _ in range(TURNS):
        found["gigaflops"].append(product_rate())
        started = time.perf_counter()
        for _ in range(calls):
            agent.train(buffer, per_call)
        elapsed = time.perf_counter() - started
        found["microseconds"].append(elapsed / (calls * per_call) * 1e6)
    return found


def product_rate() -> float:
    """Returns the best rate of 256³, 1024³ and 2048³ float32 products, in GFLOP/s."""
    import tensorflow as tf

    best = 0.0
    for size in (256, 1024, 2048):
        left, right = tf.random.normal((size, size)), tf.random.normal((size, size))
        repeats = max(1, int(2e10 / (2 * size**3)))  # about a tenth of a second
        tf.matmul(left, right).numpy()
        started = time.perf_counter()
        for _ in range(repeats):
            product = tf.matmul(left, right)
        product.numpy()
        best = max(best, 2 * size**3 * repeats / (time.perf_counter() - started) / 1e9)
    return best


def in_fresh_process(contender: tuple) -> dict[str, list]:
    """Measures one contender in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *map(str, contender)],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measures in turns and writes the table."""
    found: dict[tuple, dict[str, list]] = {c: {} for c in CONTENDERS}
    for _ in range(ROUNDS):
        for contender in CONTENDERS:
            for name, values in in_fresh_process(contender).items():
                found[contender].setdefault(name, []).extend(values)
    work = flops_per_update()
    lines = [
        "# Time per TD3 update",
        "",
        f"Each mode ran in {ROUNDS} fresh processes, in turns with the others; in each process "
        f"{TURNS} stretches of updates took turns with float32 matrix products. An update is "
        f"{work / 1e6:.0f} MFLOP. The share is that of the rate of the products beside it.",
        "",
        "| mode | updates per call | threads (intra, inter) | µs per update: median (least) | "
        "GFLOP/s of products | share: median (greatest) |",
        "|---|---|---|---|---|---|",
    ]
    for (mode, per_call, _, intra, inter), values in found.items():
        times, rates = values["microseconds"], values["gigaflops"]
        shares = [work / t / 1e3 / rate for t, rate in zip(times, rates, strict=True)]
        lines.append(
            f"| {mode} | {per_call} | {intra}, {inter} | {statistics.median(times):.0f} "
            f"({min(times):.0f}) | {statistics.median(rates):.0f} | "
            f"{statistics.median(shares):.0%} ({max(shares):.0%}) |"
        )
    lines += [
        "",
        "Products run on the intra-op threads alone: with one of them they are half as fast, and "
        "a graph that runs two operations side by side can pass them.",
    ]
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:]:
        mode, *numbers = sys.argv[1:]
        sys.stdout.write(json.dumps(measure(mode, *map(int, numbers))) + "\n")
    else:
        main()
