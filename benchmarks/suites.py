"""Tests runs, from training to video, in environments of many packages: `suites.py [NAME]...`.

Each environment is tested in a separate process, with the packages of the current interpreter. The
results replace earlier results of the same environments in `results/environments.json`. The table
of all results is written to `results/environments.md`.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from eagerly import Trainer, load_policy, open_run
from eagerly.benchmarks.measuring import write_json
from eagerly.benchmarks.tasks import SHORT, TASKS, Task
from eagerly.spaces import text_of
from eagerly.storage.digests import digests
from eagerly.storage.evaluations import read_results
from eagerly.training.evaluation import evaluation_seeds, run_episodes
from eagerly.training.video import Camera

RESULTS = Path(__file__).parent / "results"
STEPS, STOP = 600, 300  # steps of the extended run, and of the run before it is extended
STAGES = ("train", "resume", "same bits", "evaluate", "video", "load_policy")
FINE, UNDRAWN = "yes", "–"  # the stage passed; the environment cannot render
_SECONDS = 1200.0
_SETTINGS: dict[str, Any] = {
    "preset": "defaults",
    "mode": "graph",
    "hidden_sizes": (16, 16),
    "batch_size": 16,
    "warmup_steps": 100,
    "replay_ratio": 0.2,
    "updates_per_call": 10,
    "replay_capacity": 2000,
    "evaluate_every_steps": 200,
    "evaluation_episodes": 1,
    "checkpoint_every_steps": 250,
}
_PACKAGES = (
    *("tensorflow", "keras", "numpy", "gymnasium", "mujoco", "dm-control", "shimmy"),
    *("gymnasium-robotics", "minigrid", "box2d"),
)


class Examination:
    """Trains a small agent in an environment and tests everything that a run supports.

    Args:
        task: The environment.
        folder: Folder for the runs.
    """

    def __init__(self, task: Task, folder: Path) -> None:
        self.task, self._run, self._straight = task, folder / "run", folder / "straight"
        self._film = folder / "video.mp4"

    def stages(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yields the stages in order, each with a function that raises an exception on failure."""
        for stage in STAGES:
            yield stage, getattr(self, "_" + stage.replace(" ", "_"))

    def spaces(self) -> list[str]:
        """Returns descriptions of the observation and action spaces."""
        with closing(self._make()) as env:
            return [_short(env.observation_space), _short(env.action_space)]

    def _make(self, **more: Any) -> Any:
        return open_run(self._run, None, {}).environment()(**more)

    def _train(self) -> None:
        self._train_in(self._run, STOP)

    def _resume(self) -> None:
        with Trainer(open_run(self._run, None, {"steps": STEPS})) as trainer:
            if trainer.steps != STOP:
                raise ValueError(f"expected to resume at step {STOP}, got {trainer.steps}")
            trainer.train()

    def _same_bits(self) -> None:
        self._train_in(self._straight, STEPS)
        one, other = digests(self._run), digests(self._straight)
        apart = sorted(name for name in one.keys() | other if one.get(name) != other.get(name))
        if apart:
            raise ValueError(f"differs from an uninterrupted run in {', '.join(apart)}")

    def _evaluate(self) -> None:
        policy, config = load_policy(self._run, "latest"), open_run(self._run, None, {}).config
        seeds = evaluation_seeds(config.evaluation_seed, config.evaluation_episodes)
        with closing(self._make()) as env:
            found = run_episodes(policy, env, seeds).summary()["return_mean"]
        recorded = float(
            read_results(open_run(self._run, None, {}).evaluations_path).return_mean[-1]
        )
        if found != recorded:
            raise ValueError(f"expected the recorded return {recorded}, got {found}")

    def _video(self) -> None:
        with closing(Camera(open_run(self._run, None, {}).environment())) as camera:
            camera.record(load_policy(self._run, "latest"), 0, self._film)
        if not self._film.stat().st_size:
            raise ValueError("the video is empty")

    def _load_policy(self) -> None:
        policy = load_policy(self._run)
        with closing(self._make()) as env:
            observation, info = env.reset(seed=1)
            for _ in range(10):
                action = policy(observation, info.get("action_mask"))
                if not env.action_space.contains(action):
                    raise ValueError(f"the action {action!r} is not in {env.action_space}")
                observation, _, terminated, truncated, info = env.step(action)
                if terminated or truncated:
                    observation, info = env.reset()

    def _train_in(self, path: Path, steps: int) -> None:
        about = {"env": self.task.env, "env_kwargs": self.task.kwargs, "steps": steps}
        with Trainer(open_run(path, "td3", _SETTINGS | self.task.settings | about)) as trainer:
            trainer.train()
            if trainer.steps != steps:
                raise ValueError(f"the run ended at step {trainer.steps}, not at {steps}")


def _short(space: Any) -> str:
    """Describes a space without its bounds."""
    kind = type(space).__name__
    if kind in ("Dict", "Tuple"):
        parts = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
        inside = [f"{k} {_short(part)}" if kind == "Dict" else _short(part) for k, part in parts]
        return f"{kind}({', '.join(inside)})"
    if kind == "Box":
        return f"{np.dtype(space.dtype).name} {list(space.shape)}"
    return text_of(space)


def _examine(task: Task) -> dict[str, Any]:
    """Runs the stages in this process. If training fails, the other stages are skipped."""
    found: dict[str, Any] = {"stages": {}, "spaces": ["", ""]}
    with tempfile.TemporaryDirectory() as folder:
        examination = Examination(task, Path(folder))
        for stage, call in examination.stages():
            if stage == "video" and not task.drawn:
                found["stages"][stage] = UNDRAWN
                continue
            try:
                call()
                found["stages"][stage] = FINE
            except Exception as error:  # third-party packages may raise anything
                found["stages"][stage] = f"{type(error).__name__}: {error}"
                if stage == "train":
                    return found
        found["spaces"] = examination.spaces()
    return found


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "-"
    return found


def examined(task: Task) -> dict[str, Any]:
    """Tests an environment in a separate process, because it may crash or hang."""
    command = [sys.executable, "-m", "eagerly.benchmarks.suites", "--here", task.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
        found = dict(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        found = {"stages": {"train": f"not finished after {_SECONDS:.0f} s"}, "spaces": ["", ""]}
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        why = f"the process exited with code {done.returncode}: {last}"
        found = {"stages": {"train": why}, "spaces": ["", ""]}
    wrong = {stage: text for stage, text in found["stages"].items() if text not in (FINE, UNDRAWN)}
    summary = json.dumps(wrong) if wrong else "all stages passed"
    sys.stderr.write(f"{task.name}: {summary}\n")
    return found | {"versions": _versions()}


def table(rows: dict[str, Any]) -> list[str]:
    """Returns the rows as Markdown, followed by the error messages as notes."""
    lines = [
        f"In each environment, a TD3 with small networks trains for {STOP} steps (`train`) and is "
        f"then resumed up to step {STEPS} (`resume`). `same bits` compares this run with an "
        "uninterrupted one: weights, optimizers, replay buffer, "
        "random states and evaluations. `evaluate` repeats the evaluation and compares it with the "
        "recorded one. `video` renders an episode (–: the environment cannot render). "
        "`load_policy` loads the policy and acts. Episodes end after 70 steps, except in the suite "
        "`own`. Run `python -m eagerly.benchmarks.suites` to update this page.",
        "",
        f"| suite | `--env` | observations | actions | {' | '.join(STAGES)} |",
        "|---" * (4 + len(STAGES)) + "|",
    ]
    notes: list[str] = []
    for task in TASKS:
        row = rows.get(task.name, {"stages": {}, "spaces": ["", ""]})
        cells = []
        for stage in STAGES:
            text = row["stages"].get(stage, "")
            if text not in (FINE, UNDRAWN, ""):
                about = f". {task.note}" if task.note else ""
                notes.append(f"{task.name}, {stage}: {' '.join(text.split())}{about}")
                text = f"[{len(notes)}]"
            cells.append(text)
        kwargs = {name: value for name, value in task.kwargs.items() if name not in SHORT}
        flags = f" --env-kwargs '{json.dumps(kwargs)}'" if kwargs else ""
        for name, value in task.settings.items():
            flags += f" --{name.replace('_', '-')} {value}"
        parts = [task.suite, f"`{task.env}{flags}`", *row["spaces"], *cells]
        lines.append(f"| {' | '.join(parts)} |")
    lines += ["", *(f"{number}. {note}" for number, note in enumerate(notes, 1))]
    groups: dict[str, list[str]] = {}
    for task in TASKS:
        if task.name in rows:
            versions = rows[task.name]["versions"]
            text = ", ".join(f"{name} {version}" for name, version in versions.items())
            groups.setdefault(text, []).append(task.name)
    for text, names in groups.items():
        whose = f"{', '.join(names)}: " if len(groups) > 1 else ""
        lines += ["", f"{whose}{text}."]
    return lines


def main(names: list[str]) -> None:
    """Tests environments (default: all) and writes the table.

    Raises:
        SystemExit: If a name is unknown, or a stage fails unexpectedly.
    """
    known = {task.name: task for task in TASKS}
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"expected names among {', '.join(known)}; got {', '.join(unknown)}")
    kept = RESULTS / "environments.json"
    rows = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for name in names or known:
        rows[name] = examined(known[name])
        write_json(kept, {n: rows[n] for n in known if n in rows})
        page = "\n".join(["# Environments", "", *table(rows)])
        kept.with_suffix(".md").write_text(page + "\n", encoding="utf-8")
    if failed := failures(rows):
        raise SystemExit(f"failed: {', '.join(failed)}")


def failures(rows: dict[str, Any]) -> list[str]:
    """Returns the failed stages, except `same bits` of tasks whose note explains the failure."""
    explained = {task.name for task in TASKS if task.note}
    return [
        f"{name}, {stage}"
        for name, row in rows.items()
        for stage, text in row["stages"].items()
        if text not in (FINE, UNDRAWN) and not (name in explained and stage == "same bits")
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        (one,) = [task for task in TASKS if task.name == sys.argv[2]]
        sys.stdout.write(json.dumps(_examine(one)) + "\n")
    else:
        main(sys.argv[1:])
