"""Checks whether a change altered any bit of the results of short training runs.

`make same-bits` runs `python -m tests.same_bits`. It trains each run in a separate process and
compares the digests of the run with `tests/same_bits.json`. This file also records the machine and
the package versions, because digests of different machines are not comparable.

There are two groups of digests. *Results* are digests of weights, targets, optimizers, replay
buffer rows, tables and curves. The command fails if one of them differs. *Layout* digests are those
of saved states whose structure may change although the results do not. If one of them differs, the
command only reports it, and the commit message must mention it.

`--write` stores all digests. `--write-layout` stores only the layout digests, and only if all
results are equal.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import keras

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_suffix(".json")
_SMALL = "--hidden-sizes 32,32 --batch-size 32 --evaluate-every-steps 300 --evaluation-episodes 2"
_EVERY = "--summarize-every-steps 100 --checkpoint-every-steps 250"
_MEMORY = "--sequence-length 12 --sequences-per-update 6 --memory-units 16 --replay-ratio 0.2"
LAYOUT = {"agent", "budget", "buffer", "collector", "policies", "summaries"}
_OWN = "tests.same_bits"
TRAININGS = {
    "td3": f"td3 --env HalfCheetah-v5 --steps 700 --warmup-steps 300 {_SMALL} {_EVERY}",
    "td7": "td7 --env Pendulum-v1 --steps 900 --warmup-steps 300 --updates-per-call 25 "
    f"--copy-every 50 --embedding-size 16 --encoder-hidden-sizes 32 {_SMALL} {_EVERY}",
    "ddpg": f"ddpg --preset lillicrap --env Hopper-v5 --steps 700 --warmup-steps 300 {_EVERY} "
    "--hidden-sizes 32,32 --evaluate-every-steps 300 --evaluation-episodes 2",
    "discrete": "td3 --env CartPole-v1 --steps 600 --warmup-steps 200 --mode graph "
    f"{_SMALL} {_EVERY}",
    "mixed": f"td3 --env tests.toys:Gears-v0 --steps 600 --warmup-steps 200 {_SMALL} {_EVERY}",
    "mixed, eager": "ddpg --env tests.toys:Gears-v0 --steps 400 --warmup-steps 200 --mode eager "
    f"--replay-ratio 0.5 --num-envs 2 --exploration ornstein_uhlenbeck {_SMALL} {_EVERY}",
    "gru": "td3 --env PendulumPositions-v1 --steps 700 --warmup-steps 300 --memory gru --burn-in 3 "
    f"--mode graph {_MEMORY} --hidden-sizes 32 --evaluate-every-steps 300 {_EVERY}",
    "attention": "td3 --env PendulumPositions-v1 --steps 700 --warmup-steps 300 --memory attention "
    f"--num-envs 2 {_MEMORY} --hidden-sizes 32 --evaluate-every-steps 300 {_EVERY}",
    "images": "td3 --env PendulumPixels-v1 --steps 400 --warmup-steps 200 --replay-ratio 0.1 "
    f"--updates-per-call 5 --batch-size 8 --random-shift 2 --hidden-sizes 16 {_EVERY}",
    "own models": f"td3 --env Pendulum-v1 --steps 700 --warmup-steps 300 --batch-size 32 {_EVERY} "
    f"--actor {_OWN}:actor --critic {_OWN}:critic --evaluate-every-steps 300",
    "processes": "td3 --env HalfCheetah-v5 --steps 800 --warmup-steps 300 --num-envs 2 "
    "--group-size 1 --collectors processes --normalize-observations --layer-norm "
    f"{_SMALL} {_EVERY}",
}


def actor(observation_space: Any, action_space: Any) -> Any:
    """Builds the custom actor of the run "own models"."""
    layers = keras.layers.Dense(16, "relu"), keras.layers.Dense(action_space.shape[0], "tanh")
    return keras.Sequential([keras.Input(observation_space.shape), *layers])


def critic(observation_space: Any, action_space: Any) -> Any:
    """Builds a custom critic of the run "own models"."""
    inputs = [keras.Input(observation_space.shape), keras.Input(action_space.shape)]
    hidden = keras.layers.Dense(16, "relu")(keras.layers.Concatenate()(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def trained(folder: Path, name: str) -> dict[str, str]:
    """Trains one run and returns the shortened digests of its parts."""
    run = folder / name.replace(" ", "-")
    words = [*TRAININGS[name].split(), "--no-progress", "--seed", "7", "--run-dir", str(run)]
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), *words]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if process.returncode:
        raise click.ClickException(f"{name}: {process.stderr[-2000:]}")
    command = [sys.executable, "-m", "tests.same_bits", "--digests-of", str(run)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(json.loads(process.stdout))


@click.command()
@click.option("--write", is_flag=True, help="Store all digests instead of comparing them.")
@click.option("--write-layout", is_flag=True, help="Store the layout digests if results are equal.")
@click.option("--only", multiple=True, type=click.Choice(list(TRAININGS)), help="[default: all]")
@click.option("--jobs", default=2, show_default=True)
@click.option("--digests-of", type=click.Path(path_type=Path), hidden=True)
def main(
    write: bool, write_layout: bool, only: tuple[str, ...], jobs: int, digests_of: Path | None
) -> None:
    """Trains all runs and compares their digests with the stored ones; fails if results differ."""
    from eagerly.storage.digests import digests
    from eagerly.training.hardware import conditions

    if digests_of:
        click.echo(json.dumps({part: digest[:16] for part, digest in digests(digests_of).items()}))
        return
    if (write or write_layout) and only:
        raise click.UsageError("--write and --write-layout store all trainings: omit --only")
    names = list(only or TRAININGS)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        trainings = pool.map(lambda n: _by_group(trained(Path(folder), n)), names)
        found = dict(zip(names, trainings, strict=True))
    here = conditions()
    if write:
        _write({"conditions": here, "trainings": found})
        return
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    for key in sorted(stored["conditions"].keys() | here.keys()):
        if stored["conditions"].get(key) != here.get(key):
            click.echo(f"{key} was {stored['conditions'].get(key)}, is {here.get(key)}")
    failed = False
    for name in names:
        results, layout = (
            _differing(stored["trainings"][name][group], found[name][group])
            for group in ("results", "layout")
        )
        failed |= bool(results)
        verdict = f"DIFFERS in {', '.join(results)}" if results else "equal"
        click.echo(
            f"{name}: {verdict}" + (f"; new layout of {', '.join(layout)}" if layout else "")
        )
    if write_layout and not failed:
        for name in names:
            stored["trainings"][name]["layout"] = found[name]["layout"]
        _write(stored)
    sys.exit(failed)


def _by_group(parts: dict[str, str]) -> dict[str, dict[str, str]]:
    layout = {name: digest for name, digest in parts.items() if name in LAYOUT}
    return {"results": {n: d for n, d in parts.items() if n not in LAYOUT}, "layout": layout}


def _differing(stored: dict[str, str], found: dict[str, str]) -> list[str]:
    return sorted(n for n in stored.keys() | found.keys() if stored.get(n) != found.get(n))


def _write(document: dict[str, Any]) -> None:
    STORED.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
