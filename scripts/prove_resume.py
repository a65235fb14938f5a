"""Proves that a run that is killed again and again equals one that never stopped.

`prove_resume.py td3 --env HalfCheetah-v5 --steps 20000 --kills 20` trains twice with the same
command: once straight through, once killed with SIGKILL at random moments and typed again.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from eagerly.quiet import quiet_tensorflow
from eagerly.scripts.commands import Command
from eagerly.training.processes import TrainingProcess

_TRAIN = Path(__file__).with_name("train.py")
_STARTUP_SHARE = 0.2  # of the kills: anywhere in a start, the others after a random step


@click.command(cls=Command, context_settings={"ignore_unknown_options": True})
@click.argument("agent")
@click.option("--env", default="HalfCheetah-v5")
@click.option("--steps", type=click.IntRange(min=1), default=20_000)
@click.option("--seed", type=click.IntRange(min=0), default=0)
@click.option("--kills", type=click.IntRange(min=0), default=20)
@click.option(
    "--checkpoint-every-steps",
    type=click.IntRange(min=1),
    help="[default: steps / (4 kills)]",
)
@click.option("--kill-seed", type=int, help="Seed of the moments. [default: another every time]")
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where both runs are kept; new. [default: under runs/, removed if all is equal]",
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Also write the result.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    agent: str,
    env: str,
    steps: int,
    seed: int,
    kills: int,
    checkpoint_every_steps: int | None,
    kill_seed: int | None,
    run_dir: Path | None,
    json_path: Path | None,
    flags: tuple[str, ...],
) -> None:
    """Trains AGENT straight through and killed, and compares digests of all that came of it.

    FLAGS are further ones of train.py.
    """
    every = checkpoint_every_steps or max(1, steps // (4 * max(kills, 1)))
    kill_seed = random.SystemRandom().randrange(2**32) if kill_seed is None else kill_seed
    folder = run_dir or Path("runs") / f"prove-resume-{time.strftime('%Y%m%d-%H%M%S')}"
    if folder.exists():
        raise click.ClickException(f"{folder} exists already: choose another --run-dir")
    folder.mkdir(parents=True)
    settings = {"env": env, "steps": steps, "seed": seed, "checkpoint-every-steps": every}
    words = [agent, "--no-progress", *(w for n, v in settings.items() for w in (f"--{n}", str(v)))]
    click.echo(f"train.py {' '.join([*words[:1], *words[2:], *flags])}")
    command = [sys.executable, str(_TRAIN), *words, *flags, "--run-dir"]

    began = time.monotonic()
    _Training([*command, str(folder / "straight")], folder / "straight").finish()
    seconds = time.monotonic() - began
    click.echo(f"straight through: {seconds:.0f} s")
    moments = _killed(
        [*command, str(folder / "killed")], folder / "killed", steps, kills, seconds, kill_seed
    )
    with quiet_tensorflow():
        result = _compared(folder)
    _print(result, moments, kill_seed)
    if json_path:
        about = {"command": [*words, *flags], "kill_seed": kill_seed, "kills": moments}
        json_path.write_text(json.dumps(about | result, indent=1) + "\n")
    if len(moments) < kills:
        raise click.ClickException(
            f"the run had ended before kill {len(moments) + 1} of {kills}: take more --steps"
        )
    if not result["equal"]:
        raise click.ClickException(f"the runs differ; both are in {folder}")
    if run_dir is None:
        shutil.rmtree(folder)


class _Training(TrainingProcess):
    """A process that trains, with what it prints kept beside its run directory."""

    def __init__(self, command: list[str], run: Path) -> None:
        self._run, self.began = run, time.monotonic()
        super().__init__(command, run.with_suffix(".log"))
        atexit.register(self.kill)  # of what is in another session Ctrl-C does not know

    def finish(self) -> None:
        """Waits for its end, which must be a good one."""
        if code := self.wait():
            raise click.ClickException(
                f"training ended with code {code}:\n{self.printed()[-3000:]}"
            )

    def runs(self) -> bool:
        return self.poll() is None

    def saved_steps(self) -> int:
        """The steps of the newest checkpoint; 0 without one."""
        found = [p.parent.name for p in self._run.glob("checkpoints/*/manifest.json")]
        return int(max(found).partition("-")[0]) if found else 0

    def saving(self) -> bool:
        """Whether a checkpoint is half-written, by this process or one that was killed before."""
        folders = list(self._run.glob("checkpoints/*"))
        return any(not (folder / "manifest.json").exists() for folder in folders)


def _killed(
    command: list[str], run: Path, steps: int, kills: int, seconds: float, seed: int
) -> list[dict[str, Any]]:
    """Trains with kills at random moments until the end, and returns the moments."""
    draw = random.Random(seed)
    startup = 0.0
    targets = sorted(draw.randrange(int(0.9 * steps) + 1) for _ in range(kills))
    moments: list[dict[str, Any]] = []
    for target in targets:
        training = _Training(command, run)
        in_startup = bool(startup) and draw.random() < _STARTUP_SHARE
        wanted = 0 if in_startup else target
        before = training.saved_steps()
        while training.runs() and (saved := training.saved_steps()) < wanted:
            if not startup and saved > before:
                startup = time.monotonic() - training.began
            time.sleep(0.002)
        # Any moment of a start, or of the time after a saved step.
        span = startup if in_startup else max(0.05 * seconds, 0.2)
        until = time.monotonic() + draw.uniform(0.0, span)
        while training.runs() and time.monotonic() < until:
            time.sleep(0.0005)
        if not training.runs():
            training.finish()
            break
        training.kill()
        training.wait()
        moment = {
            "seconds": round(time.monotonic() - training.began, 2),
            "saved_steps": training.saved_steps(),
            "in_startup": in_startup,
            "in_save": training.saving(),
        }
        moments.append(moment)
        click.echo(
            f"kill {len(moments):>2} after {moment['seconds']:6.2f} s, newest checkpoint "
            f"{moment['saved_steps']:>7}{', starting' if in_startup else ''}"
            f"{', a half-written one beside it' if moment['in_save'] else ''}"
        )
    _Training(command, run).finish()
    return moments


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
    click.echo(
        f"\n{len(moments)} kills (kill seed {seed}), {starting} of them in a start, {saving} with "
        "a half-written checkpoint in the directory\n"
    )
    click.echo("| part | straight | killed | |\n|---|---|---|---|")
    for name, (one, other) in result["digests"].items():
        verdict = "equal" if one == other else "DIFFERENT"
        click.echo(f"| {name} | `{str(one)[:12]}` | `{str(other)[:12]}` | {verdict} |")
    (one, other), twice = result["points"], result["points_twice"]
    verdict = "each once" if twice == [0, 0] else f"{twice} OF THEM TWICE"
    click.echo(f"| points of curves, (tag, step) | {one} | {other} | {verdict} |")
    if result["left_over"]:
        click.echo(f"left over: {result['left_over']}")
    click.echo(f"\n{'All parts are equal.' if result['equal'] else 'THE RUNS DIFFER.'}")


if __name__ == "__main__":
    # Its children are in sessions of their own: killing one reaches nobody else.
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main()
