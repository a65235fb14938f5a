"""Measures the CPU time in which agents of several packages reach given returns.

`python -m eagerly.benchmarks.time_to_score` trains the missing runs, seed by seed, and writes the
table `time_to_score.md` of the seeds whose runs are all measured. CPU time includes
startup, compilation and evaluations.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import shutil
import signal
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil

from eagerly.benchmarks.grid import CHEETAH, HOPPER, MILLION, THREE_SEEDS
from eagerly.benchmarks.measuring import (
    PEERS,
    machine,
    machine_text,
    peers_python,
    write_json,
)
from eagerly.benchmarks.reproduction import ONE_THREAD, PEER_SCRIPT, default_evaluation_seeds
from eagerly.scripts.commands import FOLDER, Command
from eagerly.scripts.output import say
from eagerly.storage.presets import DEFAULTS
from eagerly.training.run_processes import TrainingProcess, train_command

SCORES: dict[str, tuple[float, ...]] = {CHEETAH: (3000.0, 6000.0, 9000.0), HOPPER: (2000.0,)}
# Names of this package's contenders: an agent, or an agent and its preset.
OURS = {"td3": "TD3", "ddpg": "DDPG", "td7": "TD7", "td7-efficient": "TD7, `--preset efficient`"}
PACKAGES = {"stable_baselines3": "TD3 of Stable-Baselines3", "sbx": "TD3 of SBX"}
_POLL = 0.5  # seconds between two readings of CPU time and evaluations
_XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


@dataclass(frozen=True)
class Attempt:
    """A run that ends at the highest score of its environment, or when its CPU time is spent."""

    contender: str
    env: str
    seed: int

    @property
    def name(self) -> str:
        """Key in the results."""
        return f"{self.contender}-{self.env}-{self.seed}"

    def command(self, folder: Path, python: Path) -> list[str]:
        """Returns the command, whose evaluations are written to `evaluations(folder)`."""
        if self.contender in OURS:
            given = {"env": self.env, "seed": self.seed, "steps": MILLION, "intra_op_threads": 1}
            agent, _, preset = self.contender.partition("-")
            own = "--run-dir", str(folder / "run"), "--no-progress", "--preset", preset or DEFAULTS
            return train_command(agent, given | {"inter_op_threads": 1}, *own)
        words = "td3", self.env, MILLION, self.seed, folder, *default_evaluation_seeds()
        return [str(python), str(PEER_SCRIPT), "--package", self.contender, *map(str, words)]

    def evaluations(self, folder: Path) -> Path:
        """Returns the path of the table of evaluations."""
        return folder / ("run" if self.contender in OURS else "") / "evaluations.csv"


def attempts(seed: int) -> list[Attempt]:
    """Returns the runs with a seed."""
    pairs = itertools.product(SCORES, OURS | PACKAGES)
    return [Attempt(contender, env, seed) for env, contender in pairs]


def measured_seeds(found: dict[str, Any]) -> list[int]:
    """Returns the seeds whose runs are all measured."""
    return [
        seed for seed in THREE_SEEDS if all(attempt.name in found for attempt in attempts(seed))
    ]


def cpu_seconds(process: psutil.Process) -> float:
    """Returns the CPU time of a process and of its children, running or ended."""
    total = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:  # a child that ended meanwhile
            continue
        total += times.user + times.system
        if each.pid == process.pid:
            total += times.children_user + times.children_system
    return total


def measure(
    attempt: Attempt, folder: Path, python: Path, budget: float, stopping: threading.Event
) -> dict[str, Any] | None:
    """Trains until the highest score or the budget, in seconds of CPU time, is reached.

    Returns:
        The CPU time and the step at which each score was reached; None if stopped.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    environment = os.environ | ONE_THREAD | {"XLA_FLAGS": _XLA_FLAGS}
    process = TrainingProcess(attempt.command(folder, python), folder / "log.txt", env=environment)
    watched, table = psutil.Process(process.pid), attempt.evaluations(folder)
    reached: dict[str, dict[str, float]] = {}
    spent, last, best = 0.0, 0, None
    try:
        has_ended = False
        while not stopping.wait(_POLL) and not has_ended and spent < budget:
            has_ended = process.poll() is not None  # the table is read once more
            spent = spent if has_ended else cpu_seconds(watched)
            for row in _rows(table):
                score, step = float(row["return_mean"]), int(row["steps"])
                last, best = max(last, step), score if best is None else max(best, score)
                for wanted in SCORES[attempt.env]:
                    if score >= wanted and str(wanted) not in reached:
                        reached[str(wanted)] = {"cpu_seconds": round(spent, 1), "steps": step}
            if len(reached) == len(SCORES[attempt.env]):
                break
        if stopping.is_set():
            return None
        if process.poll():
            raise click.ClickException(f"{attempt.name} failed:\n{process.printed()[-2000:]}")
        return {"reached": reached, "cpu_seconds": round(spent, 1), "steps": last, "best": best}
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _rows(table: Path) -> list[dict[str, str]]:
    """Returns the complete rows of a table that may be growing."""
    if not table.exists():
        return []
    lines = table.read_text(encoding="utf-8").splitlines(keepends=True)
    return list(csv.DictReader([line for line in lines if line.endswith("\n")]))


def report(found: dict[str, Any], conditions: dict[str, Any]) -> str:
    """Returns the results as Markdown."""
    columns = [(env, score) for env, scores in SCORES.items() for score in scores]
    seeds = measured_seeds(found)
    lines = [
        "# CPU time until a return is reached",
        "",
        f"Each run ended at the highest return, or after {conditions['budget_minutes']:.0f} "
        "minutes of CPU time. The cells contain the CPU minutes up to the first evaluation of 10 "
        "episodes that reached the return"
        + (", as the median and, in parentheses, for each run" if len(seeds) > 1 else "")
        + f", with seed {', '.join(map(str, seeds))}. A dash means: not within this budget. "
        "Evaluations are 5000 steps apart. CPU time includes startup, compilation and evaluations. "
        f"Each run has one thread. {conditions['jobs']} runs were made at the same time. Agents of "
        "this package use their default settings, or the preset named below instead of that of "
        "the environment. The other packages use the settings of TD3.",
        "",
        "| | " + " | ".join(f"{env}, {score:.0f}" for env, score in columns) + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for contender, name in (OURS | PACKAGES).items():
        cells = [_cell(found, contender, env, str(score), seeds) for env, score in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    peers = dict(each.replace("[mujoco]", "").split("==") for each in conditions["peers"])
    return "\n".join([*lines, "", machine_text(conditions["machine"], peers), ""])


def _cell(found: dict[str, Any], contender: str, env: str, score: str, seeds: list[int]) -> str:
    times = []
    for seed in seeds:
        reached = found[Attempt(contender, env, seed).name]["reached"]
        times.append(reached.get(score, {}).get("cpu_seconds", float("inf")) / 60)
    middle, *shown = [
        "–" if each == float("inf") else f"{each:.1f}"
        for each in (statistics.median(times), *times)
    ]
    return f"{middle} ({', '.join(shown)})" if len(times) > 1 else middle


@click.command(cls=Command)
@click.option("--budget", default=60.0, help="CPU minutes of a run.")
@click.option("--jobs", default=2, help="Number of runs at the same time.")
@click.option(
    "--output",
    type=FOLDER,
    default=Path("benchmarks/results"),
    help="Folder of the results and the table.",
)
@click.option(
    "--work", type=FOLDER, default=Path("build/time_to_score"), help="Folder of the runs."
)
@click.option(
    "--peers",
    type=FOLDER,
    default=Path("build/peers"),
    help="Virtual environment of the peers, created if missing.",
)
def main(budget: float, jobs: int, output: Path, work: Path, peers: Path) -> None:
    """Trains the missing runs and writes the tables. SIGTERM ends the current runs."""
    output.mkdir(parents=True, exist_ok=True)
    path = output / "time_to_score.json"
    saved: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    here = {"budget_minutes": budget, "jobs": jobs, "machine": machine(), "peers": list(PEERS)}
    for name, value in here.items():
        if saved and saved[name] != value:
            raise click.UsageError(
                f"{path} was measured with {name.replace('_', ' ')} {saved[name]}, not {value}. "
                "Continue with the same, or choose another --output"
            )
    found: dict[str, Any] = saved.get("runs", {})
    python = peers_python(peers, say)
    stopping, writing = threading.Event(), threading.Lock()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())

    def run(attempt: Attempt) -> None:
        if stopping.is_set() or attempt.name in found:
            return
        began = time.monotonic()
        made = measure(attempt, work / attempt.name, python, 60 * budget, stopping)
        if made is None:
            return
        shutil.rmtree(work / attempt.name)
        minutes = (time.monotonic() - began) / 60
        with writing:
            found[attempt.name] = made
            write_json(path, here | {"runs": found})
            if measured_seeds(found):
                path.with_suffix(".md").write_text(report(found, here), encoding="utf-8")
        say(f"{attempt.name}: {made} ({minutes:.0f} minutes)")

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run, [attempt for seed in THREE_SEEDS for attempt in attempts(seed)]))
    if stopping.is_set():
        sys.exit(143)


if __name__ == "__main__":
    main()
