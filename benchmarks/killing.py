"""Runs whose learner, collectors or cluster nodes are killed at random moments."""

from __future__ import annotations

import atexit
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import psutil

from eagerly.benchmarks.ray_cluster import RayCluster, collectors_of
from eagerly.scripts.job import log_of
from eagerly.training.run_processes import TrainingProcess

_LEARNER, _COLLECTOR, _NODE = "learner", "collector", "node"
_COUNTS = (4, 1, 2)  # numbers of collectors of successive starts
_STARTUP_SHARE = 0.2  # share of kills during startup; the others happen after a random step


class Training(TrainingProcess):
    """A training process whose log is written next to its run directory."""

    def __init__(self, command: list[str], run: Path, env: Mapping[str, str] | None = None) -> None:
        self._run, self.began = run, time.monotonic()
        super().__init__(command, log_of(run), env=env)
        atexit.register(self.kill)  # Ctrl-C does not reach the process's session

    def finish(self) -> None:
        """Waits for the process to exit.

        Raises:
            click.ClickException: If the exit code is not 0.
        """
        if code := self.wait():
            raise click.ClickException(
                f"training exited with code {code}:\n{self.printed()[-3000:]}"
            )

    def runs(self) -> bool:
        """Returns whether the process is running."""
        return self.poll() is None

    def saved_steps(self) -> int:
        """Returns the steps of the newest checkpoint, or 0 without one."""
        found = [p.parent.name for p in self._run.glob("checkpoints/*/manifest.json")]
        return int(max(found).partition("-")[0]) if found else 0

    def saving(self) -> bool:
        """Returns whether a half-written checkpoint exists, from this process or a killed one."""
        folders = list(self._run.glob("checkpoints/*"))
        return any(not (folder / "manifest.json").exists() for folder in folders)


class Trial:
    """A run that is killed repeatedly.

    Args:
        command: The command that starts and resumes the run.
        run: Run directory.
        draw: Random generator for the moments of the kills.
        seconds: Duration of the run without kills.

    Attributes:
        collectors: Value of `--collectors`, or "" to add no such option to the command.
        most_collectors: Maximum number of collectors.
        cluster: The Ray cluster on which collectors run, if any.
    """

    def __init__(self, command: list[str], run: Path, draw: random.Random, seconds: float) -> None:
        self._command, self._run, self._draw, self._seconds = command, run, draw, seconds
        self.collectors, self.most_collectors = "", 1
        self.cluster: RayCluster | None = None
        self._training: Training | None = None
        self._starts, self._startup = 0, 0.0

    def killed(self, steps: int, kills: int) -> list[dict[str, Any]]:
        """Trains to the end with kills at random moments and returns a record of each kill."""
        targets = sorted(self._draw.randrange(int(0.9 * steps) + 1) for _ in range(kills))
        moments: list[dict[str, Any]] = []
        for target in targets:
            victim = self._victim(len(moments))
            training, is_new = self._trained()
            in_startup = is_new and bool(self._startup) and self._draw.random() < _STARTUP_SHARE
            self._wait(training, 0 if in_startup else target, in_startup=in_startup)
            if not training.runs():
                training.finish()
                break
            before = training.saved_steps()
            victim = self._kill(training, victim)
            moments.append(
                {
                    "killed": victim,
                    "seconds": round(time.monotonic() - training.began, 2),
                    "saved_steps": before,
                    "in_startup": in_startup,
                    "in_save": victim == _LEARNER and training.saving(),
                }
            )
            _report(len(moments), moments[-1])
        self._trained()[0].finish()
        return moments

    def _victim(self, number: int) -> str:
        kinds = [_LEARNER, *([_COLLECTOR] * bool(self.collectors)), *([_NODE] * bool(self.cluster))]
        return kinds[number % len(kinds)]

    def _trained(self) -> tuple[Training, bool]:
        """Returns the training process and whether this call started it."""
        if self._training is not None:
            return self._training, False
        words = []
        if self.collectors:
            count = min(_COUNTS[self._starts % len(_COUNTS)], self.most_collectors)
            words = ["--collectors", self.collectors, "--num-collectors", str(count)]
        self._starts += 1
        env = self.cluster.environment if self.cluster else None
        self._training = Training([*self._command, *words], self._run, env)
        return self._training, True

    def _wait(self, training: Training, steps: int, *, in_startup: bool) -> None:
        """Waits for the checkpoint at `steps`, then for a random time.

        If `in_startup`, this time is at most the duration of a startup.
        """
        before = training.saved_steps()
        while training.runs() and (saved := training.saved_steps()) < steps:
            if not self._startup and saved > before:
                self._startup = time.monotonic() - training.began
            time.sleep(0.002)
        span = self._startup if in_startup else max(0.05 * self._seconds, 0.2)
        until = time.monotonic() + self._draw.uniform(0.0, span)
        while training.runs() and time.monotonic() < until:
            time.sleep(0.0005)

    def _collecting(self, training: Training) -> list[psutil.Process]:
        """Waits for collector processes and returns them, or none if the run ends."""
        cluster = self.cluster
        while training.runs():
            found = cluster.collectors() if cluster else collectors_of(training.pid)
            if found:
                return found
            time.sleep(0.05)
        return []

    def _kill(self, training: Training, victim: str) -> str:
        """Kills the learner, a collector or a node and returns the kind of victim."""
        while victim != _LEARNER and (found := self._collecting(training)):
            if victim == _NODE and self.cluster:
                self.cluster.kill_node(self._draw)
                return victim
            with suppress(psutil.NoSuchProcess):  # this one has just exited: try another
                self._draw.choice(found).kill()
                return victim
        training.kill()
        training.wait()
        self._training = None
        return _LEARNER


def _report(number: int, moment: Mapping[str, Any]) -> None:
    click.echo(
        f"kill {number:>2}, {moment['killed']}, after {moment['seconds']:6.2f} s, newest "
        f"checkpoint {moment['saved_steps']:>7}{', during startup' if moment['in_startup'] else ''}"
        f"{', with a half-written checkpoint' if moment['in_save'] else ''}"
    )
