"""Trains the grid of the learning curves in the documentation: `make reproduce PARTS=td3`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from eagerly.benchmarks.grid import SEEDS, parts
from eagerly.errors import RunError
from eagerly.scripts.commands import FOLDER, Command
from eagerly.scripts.flags import format_seeds, parse_seeds
from eagerly.scripts.output import say, write_page


@click.command(cls=Command)
@click.argument("names", metavar="[PART]...", nargs=-1, type=click.Choice(list(parts())))
@click.option(
    "--seeds",
    type=parse_seeds,
    default=format_seeds(SEEDS),
    help="Seeds of the runs, such as 0..4 or 0,3,7.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=2, help="Number of parallel runs.")
@click.option(
    "--output",
    type=FOLDER,
    default=Path("benchmarks/learning"),
    help="Folder for the tables. Runs with a complete table are skipped.",
)
@click.option(
    "--work",
    type=FOLDER,
    default=Path("runs/reproduce"),
    help="Folder for unfinished runs.",
)
@click.option(
    "--peers",
    type=FOLDER,
    default=Path("build/peers"),
    help="Virtual environment of Stable-Baselines3, created if missing.",
)
@click.option("--report-only", is_flag=True, help="Only check the gates of existing tables.")
def main(
    names: tuple[str, ...],
    seeds: tuple[int, ...],
    jobs: int,
    output: Path,
    work: Path,
    peers: Path,
    report_only: bool,
) -> None:
    """Trains the grid of agents, environments and seeds for the learning curves.

    Parts (default: all): td3 and ddpg (compared with Stable-Baselines3), walker, solved, pendulum,
    normalization, quantization, replay, goals, td7, lag, vector, memory, flickering, discrete, own
    (custom models), pixels, box2d, dm_control, offline, million, efficient, components. The parts
    goals, box2d and dm_control need the packages listed in docs/environments.md.

    All parts together take about 100 core-hours, 40 of them for million. Run the same command again
    to resume after an interruption. Each completed run writes a table of its evaluations to the
    output folder. At the end, the gates of the selected parts are checked and printed. The exit
    code is 1 if one of them fails, or if it cannot be decided because runs are missing. If all
    gates of all parts can be decided, they are written to gates.md.
    """
    from eagerly.benchmarks.gates import TEN_SEEDS, Gates, table
    from eagerly.benchmarks.measuring import peers_python
    from eagerly.benchmarks.reproduction import Reproduction

    grid = parts(seeds)
    reproduction = Reproduction(output, work, lambda: peers_python(peers, say), say)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: reproduction.stop())
    selected = names or tuple(grid)
    if not report_only:
        try:
            failed = reproduction.make([cell for name in selected for cell in grid[name]], jobs)
        except RuntimeError as error:
            raise click.ClickException(str(error)) from error
        if reproduction.stopped:
            say("stopped: run the same command again to resume")
            sys.exit(130)
        if failed:
            listed = ", ".join(cell.name for cell in failed)
            raise click.ClickException(f"{len(failed)} runs failed: {listed}")
    of_all = [cell for part in parts(TEN_SEEDS).values() for cell in part]
    try:
        verdicts = Gates(output, reproduction.complete(of_all)).verdicts()
    except RunError as error:
        raise click.ClickException(str(error)) from error
    if all(verdict.holds is not None for verdict in verdicts):
        write_page(output / "gates.md", "Learning curve gates", table(verdicts))
    shown = [verdict for verdict in verdicts if verdict.part in selected]
    say("\n".join(table(shown)) if shown else "the selected parts have no gates")
    results = [verdict.holds for verdict in shown]
    if not all(results):
        failed_, open_ = results.count(False), results.count(None)
        raise click.ClickException(f"gates: {len(results)} checked, {failed_} failed, {open_} open")


if __name__ == "__main__":
    main()
