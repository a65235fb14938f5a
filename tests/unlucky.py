"""Short runs with an environment that misbehaves at a random step, including evaluations.

Each run must finish, stop as requested, or end with a `RunError`. When it is resumed with a correct
environment, the result must equal that of an undisturbed run.
"""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tests.toys import Counting, PanicError

SETTINGS: dict[str, Any] = {
    "steps": 60,
    "warmup_steps": 20,
    "replay_ratio": 0.1,
    "n_step": 3,
    "num_envs": 2,
    "evaluate_every_steps": 20,
    "evaluation_episodes": 2,
    "summarize_every_steps": 10,
    "checkpoint_every_steps": 10,
    "hidden_sizes": (4,),
    "batch_size": 4,
    "check_env": False,
}
_VALUES: dict[str, tuple[int, Any]] = {  # (index in the result of `step`, new value)
    "observation of another shape": (0, np.zeros(5)),
    "observation that is NaN": (0, np.full(2, np.nan)),
    "observation None": (0, None),
    "reward beyond a float": (1, 10**400),
    "reward that is NaN": (1, np.nan),
    "reward that is text": (1, "1"),
    "terminated that is no boolean": (2, "no"),
    "info None": (4, None),
    "info with odd keys": (4, {"\ud800": 1, 2: 3.0}),
    "info beyond a float": (4, {"x": 10**400}),
}
_ERRORS: dict[str, BaseException] = {
    "exception": ValueError("the arm is stuck"),
    "panic": PanicError("the simulator panicked"),
    "exit": SystemExit(3),
}
KINDS = (*_VALUES, *_ERRORS, "signal", "reads its directory", "changes its action")


class Unlucky(Counting):
    """Misbehaves as specified by `kind` in the step in which `remaining` reaches 0."""

    kind: ClassVar[str] = ""
    remaining: ClassVar[int] = 0
    run: ClassVar[Path] = Path()

    def __init__(self) -> None:
        super().__init__(length=7)

    def step(self, action: np.ndarray) -> Any:
        result = list(super().step(action))
        Unlucky.remaining -= 1
        if self.kind == "changes its action":
            action[...] = 0.5
        elif Unlucky.remaining == 0:
            if self.kind in _VALUES:
                part, value = _VALUES[self.kind]
                result[part] = value
            elif self.kind in _ERRORS:
                raise _ERRORS[self.kind]
            elif self.kind == "signal":
                signal.raise_signal(signal.SIGTERM)
            elif self.kind:
                shutil.copytree(self.run, self.run.with_name("copy"))
        return tuple(result)


class UnluckyRuns:
    """Runs cases with misbehaving environments.

    Args:
        folder: The folder for the runs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._straight = self._trained(folder / "lucky")

    def _trained(self, path: Path) -> dict[str, str]:
        from eagerly.storage.digests import digests
        from tests.small_runs import train_in

        train_in(path, env=Unlucky, **SETTINGS)
        return digests(path)

    def run(self, case: int) -> tuple[str, str, str, str]:
        """Runs a case. Returns its kind, the step, the outcome and the message."""
        from eagerly.errors import RunError
        from eagerly.storage.lock import is_locked

        draw, path = random.Random(case), self._folder / "unlucky"
        Unlucky.kind, Unlucky.remaining = draw.choice(KINDS), draw.randrange(1, 130)
        Unlucky.run = path
        kind, step, word, said = Unlucky.kind, str(Unlucky.remaining), "finished", ""
        try:
            self._trained(path)
        except RunError as error:
            word, said = "ended with a message", str(error)
        except BaseException as error:
            word, said = f"BAD: {type(error).__name__}", str(error)
        Unlucky.kind = ""
        if is_locked(path):
            word = "BAD: the directory stays locked"
        elif not word.startswith("BAD") and self._trained(path) != self._straight:
            word = "BAD: another run"
        for folder in (path, path.with_name("copy")):
            shutil.rmtree(folder, ignore_errors=True)
        return kind, step, word, said
