"""A simulated robot, which runs in real time in its own process, and its environment."""

from __future__ import annotations

import math
import socket
import struct
import time
from pathlib import Path
from typing import Any

import click
import gymnasium
import numpy as np

ENV = "RobotPendulum-v0"
_STATE = struct.Struct("<qddd")  # number of the observation, then the observation
_ACTION = struct.Struct("<qd")  # number of the observation on which it is based, torque
# Period, time in seconds, number of the observation of the applied action, its age in seconds.
# The number is -1, and the age NaN, while the safe action is applied.
RECORD = np.dtype([("period", "<i8"), ("time", "<f8"), ("based_on", "<i8"), ("age", "<f8")])
SAFE_AFTER = 10  # periods after which the robot replaces an old action by zero torque
_SILENCE = 5.0  # seconds without an observation after which the environment raises an error


def serve(port: int, hertz: float, log: Path) -> None:
    """Runs the robot: a pendulum with a motor. It never ends.

    In every period, it applies the newest action that it received and publishes an observation.
    Without a recent action, it applies no torque. If this process wakes up late, the schedule moves
    by that time: a robot has its own processor, which other programs do not delay.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", port))
    sock.setblocking(False)
    angle, speed, trainer = math.pi, 0.0, None
    newest, torque = -1, 0.0
    published = [0.0] * 1024  # times of the last observations
    due = time.monotonic()
    with log.open("wb", buffering=0) as file:
        period = 0
        while True:
            time.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            due = max(due, now - 0.1 / hertz) + 1.0 / hertz
            while True:
                try:
                    message, trainer = sock.recvfrom(64)
                except BlockingIOError:
                    break
                number, given = _ACTION.unpack(message)
                if number > newest:  # a packet may be late
                    newest, torque = number, max(-2.0, min(2.0, given))
            is_safe = newest < 0 or period - newest > SAFE_AFTER
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

    def _newest(self, seconds: float = _SILENCE) -> np.ndarray:
        """Waits for the next observation. If several have arrived, returns the last."""
        self._socket.settimeout(seconds)
        message = self._socket.recv(64)
        self._socket.setblocking(False)
        try:
            while True:
                message = self._socket.recv(64)
        except BlockingIOError:
            self._number, *values = _STATE.unpack(message)
        return np.array(values, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Waits for the robot and returns its current observation. The robot continues to move."""
        super().reset(seed=seed)
        while True:
            try:
                self._socket.send(_ACTION.pack(-1, 0.0))  # the robot answers to this address
                return self._newest(0.5), {}
            except (TimeoutError, ConnectionRefusedError):
                time.sleep(0.1)

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


@click.group()
def main() -> None:
    """Runs the robot, or a program that controls it."""


@main.command("serve")
@click.option("--port", type=int, required=True)
@click.option("--hertz", type=float, required=True)
@click.option("--log", type=click.Path(path_type=Path), required=True)
def _serve(port: int, hertz: float, log: Path) -> None:
    """Runs the robot."""
    serve(port, hertz, log)


@main.command()
@click.option("--port", type=int, required=True)
def answer(port: int) -> None:
    """Sends an action for each observation and does nothing else, to measure the machine."""
    env = RobotPendulum(port)
    env.reset()
    while True:
        env.step(np.zeros(1, np.float32))


if __name__ == "__main__":
    main()
