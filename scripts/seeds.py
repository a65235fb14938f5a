"""The option --seeds: one run per seed, as in `eagerly train td3 --seeds 0..4 --jobs 2`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from eagerly.errors import UsageError
from eagerly.scripts.batch import Batch, Planned
from eagerly.scripts.flags import Option, command, format_seeds, parse_seeds
from eagerly.storage.files import RUNS
from eagerly.storage.run import readable_name
from eagerly.storage.run_settings import flag_words


def seed_options() -> list[click.Option]:
    """Returns the options for training several seeds."""
    return [
        Option(
            ["--seeds"],
            type=parse_seeds,
            brief="Train one run per seed, such as 0..4, and print a table of their scores.",
            metavar="SEEDS",
            help="Seeds, such as 0..4 or 0,3,7: train one run per seed in --run-dir/seed-N, then "
            "print a table of their scores. [default --run-dir: runs/AGENT-ENV]",
        ),
        Option(
            ["--jobs"],
            type=click.IntRange(min=1),
            help="Number of --seeds runs trained at the same time, sharing the cores. [default: 1]",
            brief="Number of --seeds runs trained at the same time. [1]",
        ),
        click.Option(["--report-to"], type=int, hidden=True),
    ]


def batch_of_seeds(
    agent: str,
    seeds: Sequence[int],
    jobs: int,
    folder: Path | None,
    typed: Mapping[str, Any],
    **options: Any,
) -> Batch:
    """Returns the runs of one algorithm with different seeds.

    Args:
        agent: Name of the agent.
        seeds: The seed of each run.
        jobs: Maximum number of runs trained at the same time.
        folder: Parent of the run directories; None for `runs/AGENT-ENV`.
        typed: Settings shared by all runs, by name.
        **options: `override`, `trust` and `profile_calls` of the batch.
    """
    if "seed" in typed:
        raise click.UsageError("--seeds and --seed are mutually exclusive: omit one")
    words = [*flag_words(typed), "--seeds", format_seeds(seeds), "--jobs", str(jobs)]
    words += [] if folder is None else ["--run-dir", str(folder)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        words += [flag] * value if value is True else [flag, str(value)] * (value > 0)
    if folder is None:
        env = typed.get("env")
        if not env:
            raise UsageError(
                "a new run needs an environment: pass --env, for example HalfCheetah-v5"
            )
        folder = RUNS / readable_name(agent, env)
    runs = [
        Planned(f"seed {seed}", folder / f"seed-{seed}", agent, {**typed, "seed": seed})
        for seed in seeds
    ]
    again, title = command("train.py", agent, *words), f"seeds {format_seeds(seeds)}"
    return Batch(runs, folder, title, again, jobs, **options)
