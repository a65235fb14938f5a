"""Trains a simulated robot, which runs in real time in another process and is never reset.

`python -m eagerly.benchmarks.robot measure` starts the robot and a run with `--hardware`, kills the
run with SIGKILL, resumes it, and writes the ages of the actions that the robot applied.
"""

from __future__ import annotations

import json
import math
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

import click
import gymnasium
import numpy as np

from eagerly.benchmarks.killing import Training
from eagerly.scripts.output import say

ENV = "RobotPendulum-v0"
_STATE = struct.Struct("<qddd")  # number of the observation, then the observation
_ACTION = struct.Struct("<qd")  # number of the observation on which it is based, torque
# Period, time in seconds, number of the observation of the applied action, its age in seconds.
# The number is -1, and the age NaN, while the safe action is applied.
_RECORD = np.dtype([("period", "<i8"), ("time", "<f8"), ("based_on", "<i8"), ("age", "<f8")])
_SAFE_AFTER = 10  # periods after which the robot replaces an old action by zero torque
_SILENCE = 5.0  # seconds without an observation after which the environment raises an error


def serve(port: int, hertz: float, log: Path) -> None:
    """Runs the robot: a pendulum with a motor. It never ends.

    In every period, it applies the newest action that it received and publishes an observation.
    Without a recent action, it applies no torque.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", port))
    sock.setblocking(False)
    angle, speed, trainer = math.pi, 0.0, None
    newest, torque = -1, 0.0
    published = [0.0] * 1024  # times of the last observations
    began = time.monotonic()
    with log.open("wb", buffering=0) as file:
        period = 0
        while True:
            time.sleep(max(0.0, began + period / hertz - time.monotonic()))
            now = time.monotonic()
            while True:
                try:
                    message, trainer = sock.recvfrom(64)
                except BlockingIOError:
                    break
                number, given = _ACTION.unpack(message)
                if number > newest:  # a packet may be late
                    newest, torque = number, max(-2.0, min(2.0, given))
            is_safe = newest < 0 or period - newest > _SAFE_AFTER
            applied = 0.0 if is_safe else torque
            age = math.nan if is_safe else now - published[newest % 1024]
            file.write(struct.pack("<qdqd", period, now, -1 if is_safe else newest, age))
            acceleration = 15.0 * math.sin(angle) + 3.0 * applied - 0.1 * speed
            speed = max(-8.0, min(8.0, speed + acceleration / hertz))
            angle += speed / hertz
            published[period % 1024] = now
            if trainer:
                state = _STATE.pack(period, math.cos(angle), math.sin(angle), speed)
                sock.sendto(state, trainer)
            period += 1


class RobotPendulum(gymnasium.Env[np.ndarray, np.ndarray]):
    """Connects to the robot. A step takes one period; a reset only reads the current state.

    Args:
        port: UDP port of the robot.
    """

    observation_space = gymnasium.spaces.Box(
        np.array([-1, -1, -8], np.float32), np.array([1, 1, 8], np.float32)
    )
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(("127.0.0.1", port))
        self._number = -1

    def _newest(self) -> np.ndarray:
        """Waits for the next observation. If several have arrived, returns the last."""
        self._socket.settimeout(_SILENCE)
        message = self._socket.recv(64)
        self._socket.setblocking(False)
        try:
            while True:
                message = self._socket.recv(64)
        except BlockingIOError:
            self._number, *values = _STATE.unpack(message)
        return np.array(values, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Returns the current observation. The robot continues to move."""
        super().reset(seed=seed)
        self._socket.send(_ACTION.pack(-1, 0.0))  # tells the robot this address
        return self._newest(), {}

    def step(self, action: np.ndarray) -> Any:
        """Sends an action and waits for the next period."""
        self._socket.send(_ACTION.pack(self._number, float(action[0])))
        observation = self._newest()
        cos, sin, speed = observation.tolist()
        angle = math.atan2(sin, cos)
        reward = -(angle**2 + 0.1 * speed**2 + 0.001 * float(action[0]) ** 2)
        return observation, reward, False, False, {}

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


gymnasium.register(ENV, "eagerly.benchmarks.robot:RobotPendulum")


def summary(records: np.ndarray, hertz: float) -> dict[str, Any]:
    """Returns the distribution of ages in periods with an action of the run."""
    ages = 1000 * records["age"]
    periods = records["period"] - records["based_on"]
    is_safe = records["based_on"] < 0
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
        "latest_wakeup_ms": round(
            float(1000 * np.diff(records["time"]).max(initial=0.0) - 1000 / hertz), 2
        ),
    }


@click.group()
def main() -> None:
    """Measures the ages of actions in a simulated robot."""


@main.command("serve")
@click.option("--port", type=int, required=True)
@click.option("--hertz", type=float, required=True)
@click.option("--log", type=click.Path(path_type=Path), required=True)
def _serve(port: int, hertz: float, log: Path) -> None:
    """Runs the robot."""
    serve(port, hertz, log)


@main.command()
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
def measure(
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
    """Trains, kills and resumes a run in the robot. FLAGS are further options of `train`."""
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    log = run_dir.with_suffix(".robot")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--port", str(port), "--hertz", str(hertz), "--log", str(log)]
    robot = Training(
        [sys.executable, "-m", "eagerly.benchmarks.robot", *words],
        run_dir.with_name(f"{run_dir.name}-robot"),
    )
    _prioritize(robot, priority)
    options = [
        "--env",
        f"eagerly.benchmarks.robot:{ENV}",
        "--env-kwargs",
        json.dumps({"port": port}),
    ]
    options += [
        "--steps",
        str(steps),
        "--warmup-steps",
        str(warmup_steps),
        "--run-dir",
        str(run_dir),
    ]
    options += ["--checkpoint-every-steps", str(checkpoint_every_steps), "--hardware"]
    train = [sys.executable, "-P", "-m", "eagerly.scripts.train"]
    try:
        run = Training([*train, agent, *options, "--no-progress", *flags], run_dir)
        _prioritize(run, priority)
        while _acted(log) < kill_after and run.runs():
            time.sleep(0.2)
        if not run.runs():
            run.finish()
        say(f"killed, newest checkpoint at step {run.saved_steps()}")
        killing = time.monotonic()
        run.kill()
        run.wait()
        killed = time.monotonic()
        resumed = Training([*train, "resume", str(run_dir), "--no-progress"], run_dir)
        _prioritize(resumed, priority)
        resumed.finish()
    finally:
        robot.kill()
    records = _read(log)
    acts, held = records["based_on"] >= 0, _SAFE_AFTER / hertz
    first = np.flatnonzero(acts & (records["time"] < killing))
    last = np.flatnonzero(acts & (records["time"] > killed + 2 * held))
    begins = first[0] + warmup_steps
    # The robot applies the last action for some periods after a kill and at the end.
    parts = {
        "warm-up": records[first[0] : begins],
        "updates until the kill": records[begins : first[-1]],
        "killed and starting again": records[first[-1] : last[0]],
        "updates of the resumed run": records[last[0] : last[-1] - _SAFE_AFTER],
    }
    found = {name: summary(part, hertz) for name, part in parts.items() if len(part)}
    say(json.dumps(found, indent=1))
    run_dir.with_suffix(".ages.json").write_text(json.dumps(found, indent=1) + "\n")
    say(run.printed())


def _prioritize(process: Training, priority: int) -> None:
    if priority:
        Path(f"/proc/{process.pid}/autogroup").write_text(str(priority), encoding="utf-8")


def _acted(log: Path) -> int:
    return int((_read(log)["based_on"] >= 0).sum())


def _read(log: Path) -> np.ndarray:
    if not log.exists():
        return np.empty(0, _RECORD)
    content = log.read_bytes()
    return np.frombuffer(content[: len(content) // _RECORD.itemsize * _RECORD.itemsize], _RECORD)


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
    main()
