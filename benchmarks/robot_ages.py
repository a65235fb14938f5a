"""Measures the ages of actions in a simulated robot, which is trained and never reset.

`python -m eagerly.benchmarks.robot_ages --run-dir runs/robot` starts the robot and a run with
`--hardware`, kills the run with SIGKILL, resumes it, and writes the ages of the applied actions.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from eagerly.benchmarks.killing import Training
from eagerly.benchmarks.robot import ENV, RECORD, SAFE_AFTER
from eagerly.scripts.output import say
from eagerly.training.run_processes import train_command

_ROBOT = [sys.executable, "-m", "eagerly.benchmarks.robot"]


def summary(records: np.ndarray, hertz: float) -> dict[str, Any]:
    """Returns the distribution of ages in periods with an action of the run."""
    ages = 1000 * records["age"]
    periods = records["period"] - records["based_on"]
    is_safe = records["based_on"] < 0
    delays = 1000 * np.diff(records["time"]) - 1000 / hertz
    ages, periods = ages[~is_safe], periods[~is_safe]
    return {
        "periods": len(records),
        "without_recent_action": int(is_safe.sum()),
        "age_ms": {
            name: round(float(np.percentile(ages, q)), 2)
            for name, q in (("p50", 50), ("p99", 99), ("p99.9", 99.9), ("max", 100))
        },
        "age_periods": {
            str(n): int(count)
            for n, count in zip(*np.unique(periods, return_counts=True), strict=True)
        },
        "over_two_periods": int((periods > 2).sum()),
        # Delays of the robot's own process by this machine.
        "delayed_over_5_ms": int((delays > 5.0).sum()),
        "longest_delay_ms": round(float(delays.max(initial=0.0)), 2),
    }


@click.command()
@click.option("--agent", default="td3")
@click.option("--steps", default=20_000, show_default=True)
@click.option("--hertz", default=50.0, show_default=True)
@click.option("--kill-after", default=8_000, show_default=True, help="Actions before SIGKILL.")
@click.option("--warmup-steps", default=1_000, show_default=True)
@click.option("--checkpoint-every-steps", default=1_000, show_default=True)
@click.option(
    "--priority",
    type=click.IntRange(-20, 19),
    default=0,
    show_default=True,
    help="Priority of robot and run over other sessions on a busy machine (Linux autogroup).",
)
@click.option("--run-dir", type=click.Path(path_type=Path), required=True)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def main(
    agent: str,
    steps: int,
    hertz: float,
    kill_after: int,
    warmup_steps: int,
    checkpoint_every_steps: int,
    priority: int,
    run_dir: Path,
    flags: tuple[str, ...],
) -> None:
    """Trains, kills and resumes a run in the robot. FLAGS are further options of `train`.

    A second robot, with a program that only answers, measures the machine at the same time.
    """
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    processes: list[Training] = []

    def started(command: list[str], path: Path) -> Training:
        process = Training(command, path)
        processes.append(process)
        if priority:
            Path(f"/proc/{process.pid}/autogroup").write_text(str(priority), encoding="utf-8")
        return process

    def robot(name: str) -> tuple[Path, int]:
        path, port = run_dir.with_name(f"{run_dir.name}-{name}"), _free_port()
        words = ["--port", str(port), "--hertz", str(hertz), "--log", f"{path}.periods"]
        started([*_ROBOT, "serve", *words], path)
        return path.with_name(f"{path.name}.periods"), port

    settings = {
        "env": f"eagerly.benchmarks.robot:{ENV}",
        "steps": steps,
        "warmup_steps": warmup_steps,
        "checkpoint_every_steps": checkpoint_every_steps,
        "hardware": True,
    }
    try:
        control, port = robot("control")
        started(
            [*_ROBOT, "answer", "--port", str(port)], run_dir.with_name(f"{run_dir.name}-answer")
        )
        log, port = robot("robot")
        words = ["--run-dir", str(run_dir), "--no-progress", *flags]
        run = started(
            train_command(agent, settings | {"env_kwargs": {"port": port}}, *words), run_dir
        )
        while _acted(log) < kill_after and run.runs():
            time.sleep(0.2)
        if not run.runs():
            run.finish()
        say(f"killed, newest checkpoint at step {run.saved_steps()}")
        killed = time.monotonic()
        run.kill()
        run.wait()
        resumed = started(train_command("resume", {}, str(run_dir), "--no-progress"), run_dir)
        resumed.finish()
    finally:
        for process in processes:
            process.kill()
    records, others = read(log), read(control)
    acts, held = records["based_on"] >= 0, 2 * SAFE_AFTER  # periods until the robot is safe
    first = np.flatnonzero(acts & (records["time"] < killed))
    last = np.flatnonzero(acts & (records["time"] > killed + held / hertz))
    begins = first[0] + warmup_steps
    parts = {
        "warm-up": records[first[0] : begins],
        "updates until the kill": records[begins : first[-1]],
        "killed and starting again": records[first[-1] : last[0]],
        "updates of the resumed run": records[last[0] : last[-1] - held],
        "control: only answers": others[np.flatnonzero(others["based_on"] >= 0)[0] :],
    }
    found = {name: summary(part, hertz) for name, part in parts.items() if len(part)}
    say(json.dumps(found, indent=1))
    run_dir.with_name(f"{run_dir.name}.ages.json").write_text(json.dumps(found, indent=1) + "\n")
    say(resumed.printed())


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _acted(log: Path) -> int:
    return int((read(log)["based_on"] >= 0).sum())


def read(log: Path) -> np.ndarray:
    """Returns the complete records of a robot's log so far."""
    if not log.exists():
        return np.empty(0, RECORD)
    content = log.read_bytes()
    return np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    main()
