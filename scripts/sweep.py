"""Trains a grid of runs: `eagerly sweep grid.toml --jobs 4`."""

from __future__ import annotations

from pathlib import Path

import click

from eagerly.scripts.batch import Batch, train_batch
from eagerly.scripts.commands import FOLDER, Command
from eagerly.scripts.flags import command
from eagerly.scripts.grid import read_grid
from eagerly.scripts.output import TRUST_HELP, log_to_terminal
from eagerly.scripts.slurm import write_array
from eagerly.storage.files import RUNS


@click.command(cls=Command)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    default=1,
    help="Number of runs trained at the same time. They share the GPUs of a machine evenly.",
)
@click.option("--run-dir", type=FOLDER, help="Parent of all runs. [default: runs/NAME of the file]")
@click.option(
    "--slurm",
    is_flag=True,
    help="Instead of training, write a job array for Slurm (array.sh and commands.txt).",
)
@click.option("--progress/--no-progress", default=True, help="Show a progress bar.")
@click.option("--trust", is_flag=True, help=TRUST_HELP)
def main(
    file: Path, jobs: int, run_dir: Path | None, slurm: bool, progress: bool, trust: bool
) -> None:
    """Train all combinations of the agents, environments, seeds and settings in FILE.

    The same command resumes interrupted runs and skips finished ones. In FILE, each key is a
    setting, and each element of a list adds a run:

    \b
        agent = ["td3", "ddpg"]
        env = ["Pendulum-v1", "Hopper-v5"]
        seed = "0..4"
        steps = 100_000
        hidden_sizes = [[64, 64], [256, 256]]
        [td3]  # settings of one agent
        policy_delay = [1, 2]
    """  # noqa: D301
    log_to_terminal()
    folder = run_dir or RUNS / file.stem
    runs = read_grid(file, folder)
    words = [str(file), "--jobs", str(jobs)]
    words += [] if run_dir is None else ["--run-dir", str(run_dir)]
    words += ["--trust"] * trust
    again = command("sweep.py", *words)
    batch = Batch(runs, folder, f"{len(runs)} runs", again, jobs, trust=trust)
    if slurm:
        write_array(batch)
    else:
        train_batch(batch, progress=progress)


if __name__ == "__main__":
    main()
