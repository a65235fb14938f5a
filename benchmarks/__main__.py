"""Compares the speed of this package with other packages: `make bench TABLES="article runs"`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from eagerly.scripts.commands import FOLDER, Command
from eagerly.scripts.output import say, write_page

_TABLES = {
    "article": "A. DDPG as in the article of 2018: HalfCheetah-v5, one update per step",
    "runs": "B. Training runs: TD3, 256-256, batch 256, one update per step",
    "budget": "C. Time budget: TD3, HalfCheetah-v5, default settings",
    "limit": "D. Distance to the hardware limit: TD3 updates compared with float32 products",
    "parity": "Second figure of the article of 2018: learning with PyTorch and with this package",
    "scale": "E. Scaling: replay buffer sizes and numbers of environments (HalfCheetah-v5)",
    "sequences": "F. Sequences: padding, and recurrent updates compared with PyTorch",
    "replay": "G. Replay: n-step returns, prioritized replay and hindsight replay",
    "td7": "H. TD7: acting, and updates compared with matrix products, PyTorch and TD3",
}

# A 90 % interval needs 5 rounds. `article` and `runs` have more, because they report
# speedups; `scale` has fewer, because only its trends matter.
_ROUNDS = {
    "article": 9,
    "runs": 9,
    "budget": 5,
    "limit": 5,
    "scale": 3,
    "sequences": 5,
    "replay": 5,
    "td7": 5,
}


@click.command(cls=Command)
@click.argument("tables", nargs=-1, type=click.Choice(list(_TABLES)))
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help=f"Measurements per contender. [default: {', '.join(map(str, _ROUNDS.values()))}]",
)
@click.option(
    "--output",
    type=FOLDER,
    default=Path("benchmarks/results"),
    help="Folder for JSON results, tables and figures.",
)
@click.option(
    "--peers",
    type=FOLDER,
    default=Path("build/peers"),
    help="Virtual environment of the peers, created if missing.",
)
@click.option("--loaded", is_flag=True, help="Measure even if other processes use the machine.")
@click.option("--report-only", is_flag=True, help="Rebuild tables and figures from stored results.")
def main(
    tables: tuple[str, ...],
    rounds: int | None,
    output: Path,
    peers: Path,
    loaded: bool,
    report_only: bool,
) -> None:
    """Measures TABLES (default: all).

    Tables: article, runs, budget, limit, parity, scale, sequences, replay, td7. Measuring all
    tables takes two hours or more and requires an otherwise idle machine. The table parity contains
    returns instead of times, so --rounds and --loaded do not apply to it.
    """
    from eagerly.benchmarks import measuring

    output.mkdir(parents=True, exist_ok=True)
    for table in tables or _TABLES:
        if table == "parity":
            _parity(output, None if report_only else peers)
            continue
        path = output / f"{table}.json"
        if not report_only:
            try:
                load = measuring.check_quiet(not loaded, say)
                turns = rounds or _ROUNDS[table]
                found = _measure(table, turns, peers)
            except (measuring.LoadedMachineError, RuntimeError) as error:
                raise click.ClickException(str(error)) from error
            found |= {
                "machine": measuring.machine(),
                "load_at_start": load,
                "date": time.strftime("%Y-%m-%d"),
                "rounds": turns,
            }
            measuring.write_json(path, found)
        elif not path.exists():
            raise click.ClickException(
                f"{path} does not exist: run without --report-only to measure it"
            )
        _report(table, json.loads(path.read_text(encoding="utf-8")), output)


def _parity(output: Path, peers: Path | None) -> None:
    """Trains the missing runs (unless `peers` is None) and writes the table and the figure.

    The evaluations of the runs are stored in the folder `learning` next to `output`.
    """
    from eagerly.benchmarks import measuring, parity, pictures

    folder = output.parent / "learning"
    try:
        if peers:
            parity.measure(measuring.peers_python(peers, say), folder, say)
        found = parity.curves(folder)
    except RuntimeError as error:
        raise click.ClickException(str(error)) from error
    pictures.learning(found, output / "parity.png")
    write_page(output / "parity.md", _TABLES["parity"], parity.table(found))


def _measure(table: str, rounds: int, peers: Path) -> dict[str, Any]:
    from eagerly.benchmarks import (
        inside,
        measuring,
        replay_speed,
        sequence_speed,
        td7_speed,
        whole_runs,
    )

    def python() -> Path:
        return measuring.peers_python(peers, say)

    environments = whole_runs.CHEETAH, whole_runs.HUMANOID
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "article": lambda: whole_runs.measure_article(python(), rounds, say),
        "runs": lambda: {
            env: whole_runs.measure_runs(python(), env, rounds, say) for env in environments
        },
        "budget": lambda: inside.measure_budget(whole_runs.CHEETAH, rounds, say),
        "limit": lambda: inside.measure_limit(rounds, say),
        "scale": lambda: inside.measure_scale(whole_runs.CHEETAH, rounds, say),
        "sequences": lambda: sequence_speed.measure_sequences(python(), rounds, say),
        "replay": lambda: replay_speed.measure_replay(rounds, say),
        "td7": lambda: td7_speed.measure_td7(python(), rounds, say),
    }
    return measures[table]()


def _report(table: str, found: dict[str, Any], output: Path) -> None:
    from eagerly.benchmarks import (
        inside,
        measuring,
        pictures,
        replay_speed,
        sequence_speed,
        td7_speed,
        whole_runs,
    )

    lines: list[str] = []
    if table == "article":
        lines += whole_runs.article_table(found)
        pictures.bars(found, "DDPG as in the article, HalfCheetah-v5", output / "article.png")
    elif table == "runs":
        for env in (whole_runs.CHEETAH, whole_runs.HUMANOID):
            lines += [f"## {env}", "", *whole_runs.runs_table(found[env]), ""]
            pictures.bars(found[env], f"TD3, {env}", output / f"runs-{env}.png")
    else:
        write = {
            "budget": inside.budget_table,
            "limit": inside.limit_table,
            "scale": inside.scale_table,
            "sequences": sequence_speed.sequences_table,
            "replay": replay_speed.replay_table,
            "td7": td7_speed.td7_table,
        }[table]
        lines += write(found)
        if table == "limit":
            pictures.shares(found, output / "limit.png")
    lines += ["", *measuring.conditions(found)]
    write_page(output / f"{table}.md", _TABLES[table], lines)


if __name__ == "__main__":
    main()
