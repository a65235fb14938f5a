"""Repeats the second figure of the article of 2018: returns of DDPG in PyTorch and here.

Plain PyTorch and this package are expected to learn equally well. See docs/speed.md.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from eagerly.benchmarks.measuring import Contender, output_of, peer
from eagerly.storage.evaluations import LAST, Results, last_step_of, read_results
from eagerly.storage.files import RunFiles

ENV, STEPS, WARMUP = "HalfCheetah-v5", 100_000, 10_000
SEEDS = (0, 1, 2)
SIDES = {"ours": "ddpg-article", "PyTorch": "ddpg-article-torch"}


def table_of(folder: Path, side: str, seed: int) -> Path:
    """Returns the path of a run's evaluation table."""
    return folder / f"{SIDES[side]}-{ENV}-{seed}.csv"


def measure(python: Path, folder: Path, say: Callable[[str], None]) -> None:
    """Trains the missing runs of DDPG: 3 seeds with this package and 3 with PyTorch."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        for side in SIDES:
            table = table_of(folder, side, seed)
            if last_step_of(table) == STEPS:
                say(f"{table} is complete: skipping")
                continue
            say(f"training the run for {table}")
            with tempfile.TemporaryDirectory() as scratch:
                made = Path(scratch) / "run" / "evaluations.csv"
                made.parent.mkdir()
                train = _ours(made.parent, seed) if side == "ours" else _torch(python, made, seed)
                output_of(train)
                RunFiles(folder).write(table.name, [made.read_bytes()])


def _ours(run: Path, seed: int) -> Contender:
    words = f"ddpg --preset article --env {ENV} --steps {STEPS} --warmup-steps {WARMUP}"
    train = [sys.executable, "-m", "eagerly.scripts.train", *words.split(), "--seed", str(seed)]
    return Contender(f"ours, seed {seed}", (*train, "--run-dir", str(run), "--no-progress"))


def _torch(python: Path, table: Path, seed: int) -> Contender:
    words = f"ddpg best {ENV} {WARMUP} {STEPS} --warmup {WARMUP} --seed {seed} --evaluations"
    return peer(python, f"PyTorch, seed {seed}", "torch_agents.py", *words.split(), table)


def curves(folder: Path) -> dict[str, list[Results]]:
    """Reads the evaluations of all seeds with this package and with PyTorch.

    Raises:
        RuntimeError: If a table is missing or incomplete.
    """
    for table in (table_of(folder, side, seed) for side in SIDES for seed in SEEDS):
        if last_step_of(table) != STEPS:
            raise RuntimeError(f"{table} is missing or incomplete: run without --report-only")
    return {side: [read_results(table_of(folder, side, seed)) for seed in SEEDS] for side in SIDES}


def table(found: dict[str, list[Results]]) -> list[str]:
    """Returns the mean of the last 3 evaluations of each run as Markdown."""
    lines = [
        f"| | {' | '.join(f'seed {seed}' for seed in SEEDS)} | mean |",
        "|---|" + "---|" * (len(SEEDS) + 1),
    ]
    for side, runs in found.items():
        scores = [float(np.mean(run.return_mean[-LAST:])) for run in runs]
        cells = " | ".join(f"{score:.0f}" for score in scores)
        lines.append(f"| {side} | {cells} | {np.mean(scores):.0f} |")
    return [
        *lines,
        "",
        f"DDPG with the settings of the article of 2018 (preset `article`), {ENV}, {STEPS:,} "
        "steps. Scores are mean returns over the last 3 evaluations of 10 episodes each.",
    ]
