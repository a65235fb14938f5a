"""Proves that a run that is killed repeatedly equals an uninterrupted one.

`python -m eagerly.benchmarks.prove_resume td3 --env HalfCheetah-v5 --steps 20000 --kills 20` trains
twice with the same command: once without interruption, and once killed with SIGKILL at random
moments and restarted.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from eagerly.benchmarks.killing import Training, Trial
from eagerly.benchmarks.ray_cluster import RayCluster
from eagerly.scripts.commands import Command


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("agent")
@click.option("--env", default="HalfCheetah-v5")
@click.option("--steps", type=click.IntRange(min=1), default=20_000)
@click.option("--seed", type=click.IntRange(min=0), default=0)
@click.option("--kills", type=click.IntRange(min=0), default=20)
@click.option(
    "--checkpoint-every-steps",
    type=click.IntRange(min=1),
    help="Environment steps between checkpoints. [default: steps / (4 * kills)]",
)
@click.option(
    "--collectors",
    type=click.Choice(["processes", "ray"]),
    help="Collectors of the killed run. Kills alternate between the learner, a collector and, with "
    "ray, a node of a cluster on this machine. [default: as in FLAGS, killing only the learner]",
)
@click.option("--kill-seed", type=int, help="Seed of the kill times. [default: random]")
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="New folder for both runs. [default: below runs/, removed if the runs are equal]",
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="JSON file for the result."
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    agent: str,
    env: str,
    steps: int,
    seed: int,
    kills: int,
    checkpoint_every_steps: int | None,
    collectors: str | None,
    kill_seed: int | None,
    run_dir: Path | None,
    json_path: Path | None,
    flags: tuple[str, ...],
) -> None:
    """Trains AGENT without and with kills and compares digests of both runs.

    FLAGS are additional options of train.py. With --collectors, the uninterrupted run collects in
    the training process, and the killed one resumes with a different number of collectors each
    time.
    """
    every = checkpoint_every_steps or max(1, steps // (4 * max(kills, 1)))
    kill_seed = random.SystemRandom().randrange(2**32) if kill_seed is None else kill_seed
    folder = run_dir or Path("runs") / f"prove-resume-{time.strftime('%Y%m%d-%H%M%S')}"
    if folder.exists():
        raise click.ClickException(f"{folder} already exists: choose another --run-dir")
    folder.mkdir(parents=True)
    settings = {"env": env, "steps": steps, "seed": seed, "checkpoint-every-steps": every}
    words = [agent, "--no-progress", *(w for n, v in settings.items() for w in (f"--{n}", str(v)))]
    click.echo(f"train.py {' '.join([*words[:1], *words[2:], *flags])}")
    command = [sys.executable, "-m", "eagerly.scripts.train", *words, *flags, "--run-dir"]

    began = time.monotonic()
    Training([*command, str(folder / "straight")], folder / "straight").finish()
    seconds = time.monotonic() - began
    click.echo(f"uninterrupted run: {seconds:.0f} s")
    run = folder / "killed"
    with ExitStack() as opened:
        trial = Trial([*command, str(run)], run, random.Random(kill_seed), seconds)
        if collectors:
            trial.collectors = collectors
            trial.most_collectors = _most_collectors(folder / "straight")
        if collectors == "ray":
            trial.cluster = opened.enter_context(RayCluster(folder))
            trial.collectors = f"ray:{trial.cluster.address}"
        moments = trial.killed(steps, kills)
    result = _compared(folder)
    _print(result, moments, kill_seed)
    if json_path:
        about = {"command": [*words, *flags], "kill_seed": kill_seed, "kills": moments}
        json_path.write_text(json.dumps(about | result, indent=1) + "\n")
    if len(moments) < kills:
        raise click.ClickException(
            f"the run ended before kill {len(moments) + 1} of {kills}: increase --steps"
        )
    if not result["equal"]:
        raise click.ClickException(f"the runs differ; both are in {folder}")
    if run_dir is None:
        shutil.rmtree(folder)


def _most_collectors(run: Path) -> int:
    """Returns how many collector processes the settings of a run can keep busy."""
    from eagerly.storage.run import open_run

    config = open_run(run, None, {}).config
    return dataclasses.replace(config, collectors="processes").most_collectors


def _compared(folder: Path) -> dict[str, Any]:
    from eagerly.storage.digests import curves, digests
    from eagerly.training.hardware import conditions

    runs = [folder / name for name in ("straight", "killed")]
    points = [curves(run) for run in runs]
    both = [digests(run, found) for run, found in zip(runs, points, strict=True)]
    names = sorted(both[0].keys() | both[1].keys())
    parts = {name: [digest.get(name) for digest in both] for name in names}
    repeated = [sum(len(values) > 1 for values in found.values()) for found in points]
    left = [str(path.relative_to(folder)) for path in folder.rglob("*.tmp")]
    equal = all(one == other for one, other in parts.values()) and repeated == [0, 0] and not left
    return {
        "equal": equal,
        "digests": parts,
        "points": [len(found) for found in points],
        "points_twice": repeated,
        "left_over": left,
        "conditions": conditions(),
    }


def _print(result: dict[str, Any], moments: list[dict[str, Any]], seed: int) -> None:
    starting, saving = (sum(m[key] for m in moments) for key in ("in_startup", "in_save"))
    counts = Counter(moment["killed"] for moment in moments)
    victims = ", ".join(f"{count} of a {name}" for name, count in counts.items())
    click.echo(
        f"\n{len(moments)} kills (kill seed {seed}), {victims}, {starting} during startup, "
        f"{saving} with a half-written checkpoint in the directory\n"
    )
    click.echo("| part | uninterrupted | killed | |\n|---|---|---|---|")
    for name, (one, other) in result["digests"].items():
        verdict = "equal" if one == other else "DIFFERENT"
        click.echo(f"| {name} | `{str(one)[:12]}` | `{str(other)[:12]}` | {verdict} |")
    (one, other), twice = result["points"], result["points_twice"]
    verdict = "no duplicates" if twice == [0, 0] else f"DUPLICATES: {twice}"
    click.echo(f"| curve points (tag, step) | {one} | {other} | {verdict} |")
    if result["left_over"]:
        click.echo(f"leftover files: {result['left_over']}")
    click.echo(f"\n{'All parts are equal.' if result['equal'] else 'THE RUNS DIFFER.'}")


if __name__ == "__main__":
    # Without this, the log of a killed training process would lack its last lines.
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
