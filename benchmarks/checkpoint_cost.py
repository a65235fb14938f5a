"""Measures the cost of checkpoints with a full replay buffer, compared with a pickle.

Run it with the Python of `.venv`; it writes `benchmarks/checkpoint_cost.md`. The buffer is filled
with random transitions of HalfCheetah's dimensions, and 10,000 new ones are added between
checkpoints. After each checkpoint, the whole buffer is also pickled to the same file system.
Checkpoints and pickles are synced to disk. The time of a checkpoint is the wall time of
`Trainer.checkpoint`.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from eagerly import Trainer, Transition, open_run
from eagerly.training.hardware import device_name

CAPACITY, NEW, CHECKPOINTS = 1_000_000, 10_000, 20
OUTPUT = Path(__file__).with_suffix(".md")


def add_random(trainer: Trainer, count: int, random: np.random.Generator) -> None:
    """Adds random transitions as the training loop would, without stepping an environment."""
    layout = trainer.buffer.layout
    trainer.buffer.add(
        Transition(
            observation=random.normal(size=(count, layout.observation_size)),
            action=random.uniform(-1, 1, (count, layout.action_size)),
            reward=random.normal(size=count),
            discount=np.full(count, 0.99),
            next_observation=random.normal(size=(count, layout.observation_size)),
        ),
        np.zeros(count, bool),
    )
    trainer.collector.steps += count


def sizes(run: Path) -> dict[Path, tuple[int, int]]:
    """Returns the modification time (ns) and the size (bytes) of every file."""
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size)
        for path in run.rglob("*")
        if path.is_file()
    }


def main() -> None:
    """Measures and writes the table."""
    random = np.random.default_rng(0)
    rows = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        run, pickled = Path(folder) / "run", Path(folder) / "buffer.pickle"
        settings = {"env": "HalfCheetah-v5", "steps": 2 * CAPACITY, "replay_capacity": CAPACITY}
        with closing(Trainer(open_run(run, "td3", settings))) as trainer:
            for number in range(1, CHECKPOINTS + 1):
                for _ in range((CAPACITY if number == 1 else NEW) // NEW):
                    add_random(trainer, NEW, random)
                before = sizes(run)
                began = time.perf_counter()
                trainer.checkpoint()
                took = time.perf_counter() - began
                written = sum(s[1] for path, s in sizes(run).items() if before.get(path) != s)
                began = time.perf_counter()
                with pickled.open("wb") as file:
                    pickle.dump(trainer.buffer, file, protocol=pickle.HIGHEST_PROTOCOL)
                    file.flush()
                    os.fsync(file.fileno())
                whole = time.perf_counter() - began
                rows.append((number, took, written, whole, pickled.stat().st_size))
                sys.stderr.write(f"{rows[-1]}\n")
    later = np.array(rows[1:])[:, 1:]
    lines = [
        "# Checkpoint cost",
        "",
        f"The replay buffer is full: {CAPACITY} transitions of HalfCheetah-v5, 168 bytes each.",
        f"Between checkpoints, {NEW} transitions are added. Hidden layers: 256-256. "
        f"{device_name()}, {os.cpu_count()} cores. Checkpoints and pickles are synced to disk.",
        "",
        "| checkpoint | seconds | MB written | pickled buffer: seconds | MB |",
        "|---|---|---|---|---|",
    ]
    for number, *values in (rows[0], rows[1], rows[-1], ("2 to 20 (median)", *np.median(later, 0))):
        took, written, whole, size = values
        lines.append(
            f"| {number} | {took:.3f} | {written / 1e6:.1f} | {whole:.3f} | {size / 1e6:.1f} |"
        )
    OUTPUT.write_text("\n".join(lines) + "\n")
    sys.stdout.write(OUTPUT.read_text())


if __name__ == "__main__":
    main()
