"""Resumes runs from the files left by a process killed after any single file operation.

`python -m tests.dying` is part of `make fuzz`. It prints a table of all file operations in three
scenarios: a single checkpoint, a resumed run and a new run. The traced process is forked from one
that has imported TensorFlow but has not started its threads. After each file operation, the traced
process is paused while its files are copied. If it were killed at this point, it would leave the
same files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tests.tracing import begin, end, traced

SETTINGS: dict[str, Any] = {
    "mode": "eager",
    "hidden_sizes": (8,),
    "warmup_steps": 100,
    "replay_ratio": 0.02,
    "updates_per_call": 1,
    "replay_capacity": 130,  # small enough that replay segments are removed
    "evaluate_every_steps": 50,
    "actor_learning_rate": 0.03,  # high enough that the best policy changes
    "checkpoint_every_steps": 50,
}
BEFORE, DYING, AFTER = 300, 350, 400  # `steps` of the initial, killed and resumed runs
SCENARIOS = ("checkpoint", "resumed run", "new run")


@dataclass(frozen=True)
class Survival:
    """The result of resuming a run whose process was killed.

    Attributes:
        number: The operation after which the process was killed, counted from 1.
        operation: The name of that operation.
        path: The file, relative to the run directory.
        published: Steps of the newest complete checkpoint in the files left; 0 if there is none.
        equal: Whether the resumed run equals an uninterrupted one.
        said: Lines logged while the run was resumed.
        left: Files that only the resumed run or only the uninterrupted run has.
    """

    number: int
    operation: str
    path: str
    published: int
    equal: bool
    said: list[str]
    left: list[str]


def survivals(scenario: str, folder: Path) -> list[Survival]:
    """Runs a scenario, and resumes the run from the files present after each operation."""
    from eagerly.storage.digests import digests
    from tests.small_runs import train_in

    run, straight = folder / "run", folder / "straight"
    if scenario == "new run":
        run.mkdir()
    else:
        train_in(run, **SETTINGS | {"steps": BEFORE})
    end = AFTER if scenario != "new run" else DYING - BEFORE + 50
    train_in(straight, **SETTINGS | {"steps": end})
    expected, names = digests(straight), _names(straight)
    output = subprocess.run(
        [sys.executable, "-m", "tests.dying", "--children", scenario, str(folder)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
    )
    if output.returncode:
        raise RuntimeError(output.stderr)
    found = []
    for line in output.stdout.splitlines():
        died = json.loads(line)
        copy = folder / str(died["number"])
        published = [int(p.parent.name[:12]) for p in copy.glob("checkpoints/*/manifest.json")]
        again = train_in(copy, **({} if (copy / "config.json").exists() else SETTINGS), steps=end)
        found.append(
            Survival(
                **died,
                published=max(published, default=0),
                equal=digests(copy) == expected,
                said=again.lines,
                left=sorted(_names(copy) ^ names),
            )
        )
    return found


def _names(run: Path) -> set[str]:
    """Returns the names of all files except event files, whose names contain the time."""
    files = (path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    return {name for name in files if not name.startswith("events")}


def _die(scenario: str, folder: Path) -> None:
    """Runs a scenario, copies the run after every file operation, and prints the operation."""
    import eagerly.training.trainer  # noqa: F401  - imported before the fork

    run = folder / "run"
    for number, operation in enumerate(traced(_scenario(scenario, run), run), 1):
        shutil.copytree(run, folder / str(number))
        line = {"number": number, "operation": operation.name, "path": operation.path}
        click.echo(json.dumps(line))


def _scenario(name: str, path: Path) -> Callable[[], None]:
    def run() -> None:
        from eagerly import Trainer, open_run
        from tests.small_runs import SMALL

        if name != "checkpoint":
            begin()
        new = SMALL | SETTINGS | {"steps": DYING - BEFORE}
        trainer = Trainer(open_run(path, "td3", new if name == "new run" else {"steps": DYING}))
        save = trainer.checkpoint
        if name == "checkpoint":
            trainer.checkpoint = lambda: (begin(), save(), end())  # type: ignore[method-assign]
        trainer.train()
        trainer.close()
        if name != "checkpoint":
            end()

    return run


def table(found: list[Survival]) -> str:
    """Returns a Markdown table with each operation and the result of resuming the run after it."""
    lines = ["| | dead after | file | newest checkpoint | continued |", "|---|---|---|---|---|"]
    for one in found:
        path = re.sub(r"(tempstate|tfevents\.)[\w.]+", r"\1...", one.path)
        verdict = "equal" if one.equal and not one.left else f"NOT EQUAL, {one.left}"
        said = f"; said: {' / '.join(one.said)}" if one.said else ""
        lines.append(
            f"| {one.number} | {one.operation} | {path} | {one.published} | {verdict}{said} |"
        )
    return "\n".join(lines)


@click.command()
@click.option("--children", type=(click.Choice(SCENARIOS), click.Path(path_type=Path)), hidden=True)
def main(children: tuple[str, Path] | None) -> None:
    """Prints a table per scenario; fails if a resumed run differs from an uninterrupted one."""
    if children:
        _die(*children)
        return
    bad = 0
    for scenario in SCENARIOS:
        with tempfile.TemporaryDirectory() as folder:
            found = survivals(scenario, Path(folder))
        bad += sum(not one.equal or bool(one.left) for one in found)
        click.echo(f"\n### {scenario.capitalize()}: {len(found)} file operations\n\n{table(found)}")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
