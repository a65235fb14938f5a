"""An environment that writes to standard output and can be set to fail."""

from __future__ import annotations

import os
import sys
from typing import Any

import gymnasium
import numpy as np

LOW, HIGH = np.array([-1.0, 0.0]), np.array([1.0, 50.0])


class Walk(gymnasium.Env):
    """Observes (position, step). The reward is the position. An episode has 50 steps.

    The environment variable FAULT selects a failure. "make", "reset" and "step" raise an error in
    the constructor, in `reset` or in `step`. "exit make" and "exit step" exit the program there.
    "NaN" sets the position to NaN. With the suffix " in the child", only a process whose parent has
    the process id PARENT fails.
    """

    observation_space = gymnasium.spaces.Box(LOW, HIGH, dtype=np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self) -> None:
        self._fail("make")

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        print("an episode begins")  # noqa: T201
        sys.stdout.flush()
        os.write(1, b"output of compiled code\n")
        self._fail("reset")
        self._position, self._count = float(self.np_random.uniform(-0.5, 0.5)), 0
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict]:
        self._fail("step")
        self._count += 1
        if os.environ.get("FAULT") == "NaN":
            self._position = np.nan
            return self._observation(), 0.0, False, False, {}
        self._position = float(np.clip(self._position + 0.1 * float(action[0]), -1.0, 1.0))
        return self._observation(), self._position, self._count == 50, False, {}

    def _observation(self) -> np.ndarray:
        return np.array([self._position, self._count])

    def _fail(self, where: str) -> None:
        fault, _, child = os.environ.get("FAULT", "").partition(" in the ")
        if child and str(os.getppid()) != os.environ["PARENT"]:
            return
        if fault == where:
            raise ValueError(f"{where} went\nwrong")
        if fault == f"exit {where}":
            sys.exit(3)


def make_walk() -> Walk:
    return Walk()


def register() -> None:
    """Registers the environment as Walk-v0."""
    if "Walk-v0" not in gymnasium.registry:
        gymnasium.register("Walk-v0", entry_point=f"{__name__}:Walk")
