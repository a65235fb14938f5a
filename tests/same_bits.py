"""Says whether a change moved a bit: short trainings, and the digests of what they came to.

`python -m tests.same_bits` is `make same-bits`. It trains, each time in a process of its own, and
compares with `tests/same_bits.json`: the digests of the commit that wrote it, with the machine and
the versions. Digests are equal on one machine alone. `--write` writes the file: in a commit of its
own that says which bits changed and why, or where another machine compares two commits.
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
KEPT = Path(__file__).with_suffix(".json")
_SMALL = "--hidden-sizes 32,32 --batch-size 32 --evaluate-every-steps 300 --evaluation-episodes 2"
_EVERY = "--summarize-every-steps 100 --checkpoint-every-steps 250"
_MEMORY = "--sequence-length 12 --sequences-per-update 6 --memory-units 16 --replay-ratio 0.2"
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
    """An actor of our own, as `--actor` names it."""
    layers = keras.layers.Dense(16, "relu"), keras.layers.Dense(action_space.shape[0], "tanh")
    return keras.Sequential([keras.Input(observation_space.shape), *layers])


def critic(observation_space: Any, action_space: Any) -> Any:
    """A critic of our own, as `--critic` names it."""
    inputs = [keras.Input(observation_space.shape), keras.Input(action_space.shape)]
    hidden = keras.layers.Dense(16, "relu")(keras.layers.Concatenate()(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden))


def trained(folder: Path, name: str) -> dict[str, str]:
    """Trains, and returns the digests of the parts of the run, shortened."""
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
@click.option("--write", is_flag=True, help="Keep the digests, instead of comparing with them.")
@click.option("--only", multiple=True, type=click.Choice(list(TRAININGS)), help="Of all.")
@click.option("--jobs", default=2, show_default=True)
@click.option("--digests-of", type=click.Path(path_type=Path), hidden=True)
def main(write: bool, only: tuple[str, ...], jobs: int, digests_of: Path | None) -> None:
    """Trains them all and compares digests with those that were kept; fails if any differs."""
    from eagerly.storage.digests import digests
    from eagerly.training.hardware import conditions

    if digests_of:
        click.echo(json.dumps({part: digest[:16] for part, digest in digests(digests_of).items()}))
        return
    names = list(only or TRAININGS)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        found = dict(zip(names, pool.map(lambda n: trained(Path(folder), n), names), strict=True))
    if write:
        document = {"conditions": conditions(), "trainings": found}
        KEPT.write_text(json.dumps(document, indent=1) + "\n")
        return
    kept = json.loads(KEPT.read_text())
    here = conditions()
    for key in sorted(kept["conditions"].keys() | here.keys()):
        if kept["conditions"].get(key) != here.get(key):
            click.echo(f"{key} was {kept['conditions'].get(key)}, is {here.get(key)}")
    differ = {name: _differing(kept["trainings"][name], found[name]) for name in names}
    for name, parts in differ.items():
        click.echo(f"{name}: {'equal' if not parts else 'DIFFERS in ' + ', '.join(parts)}")
    sys.exit(any(differ.values()))


def _differing(kept: dict[str, str], found: dict[str, str]) -> list[str]:
    return sorted(n for n in kept.keys() | found.keys() if kept.get(n) != found.get(n))


if __name__ == "__main__":
    main()
