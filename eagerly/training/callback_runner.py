"""Calls the callbacks of a run, and reports the exception of one that fails."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any

from eagerly.environments.group import Rollout
from eagerly.errors import RunError, UsageError
from eagerly.training.callbacks import Callback, TrainerView

# Methods of callbacks of Stable-Baselines3.
_OTHER_METHODS = {
    "_on_step",
    "_on_training_start",
    "_on_training_end",
    "_on_rollout_start",
    "_on_rollout_end",
}


class CallbackRunner:
    """The callbacks of a run. Once one fails, no callback is called.

    Args:
        callbacks: The callbacks, in call order.

    Attributes:
        is_empty: Whether there are no callbacks.

    Raises:
        RunError: If `callbacks` is not a list of `Callback` objects, or one has an unknown
            `on_...` method, which would never be called.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        if isinstance(callbacks, Iterable):
            callbacks = list(callbacks)
        if not isinstance(callbacks, list) or not all(isinstance(x, Callback) for x in callbacks):
            raise UsageError(
                "callbacks must be a list of objects whose class derives from eagerly.Callback, as "
                f"in callbacks=[ProgressBar()]; got {callbacks}"
            )
        self._callbacks = callbacks
        self.is_empty = not self._callbacks
        self._failed: tuple[str, BaseException] | None = None  # the method and its exception
        self._unusable = ""  # why environments rejected new keyword arguments
        methods = [name for name in vars(Callback) if name.startswith("on_")]
        for callback in self._callbacks:
            names = dir(callback)
            unknown = {name for name in names if name.startswith("on_")} - {*methods}
            unknown |= _OTHER_METHODS.intersection(names)
            for name in sorted(unknown):
                if callable(getattr(callback, name)):
                    raise RunError(
                        f"{type(callback).__name__}.{name} would never be called: callback methods "
                        f"are {', '.join(methods)}"
                    )

    def call(self, event: str, training: TrainerView, *about: Any) -> None:
        """Calls the method `event` of each callback; stops the run if one raises an exception."""
        training.event = event
        for callback in self._callbacks:
            if self._failed or self._unusable:
                break
            try:
                getattr(callback, event)(training, *about)
            except KeyboardInterrupt:  # a second signal ends the run immediately
                raise
            except BaseException as error:  # includes `SystemExit`: the run is saved first
                method = f"{type(callback).__name__}.{event}"
                self._failed, training.has_failed = (method, error), True
                training.stop(f"{method} raised {type(error).__name__}")

    def check_recreated(self, training: TrainerView, rollout: Rollout) -> None:
        """Stops the run if an environment could not be created with other keyword arguments."""
        for number, kept, error in rollout.recreated:
            if error and not self._unusable:
                self._unusable = (
                    f"environment {number} rejects the arguments of set_env_kwargs and keeps "
                    f"{kept}: {error}. Correct the callback and resume the run"
                )
                training.has_failed = True
                training.stop(f"environment {number} rejects the arguments of set_env_kwargs")

    def check(self, step: int) -> None:
        """Reports the failure of a callback, after everything is saved.

        Raises:
            RunError: If a callback raised an exception, with its traceback, or set keyword
                arguments with which environments cannot be created.
        """
        if self._failed:
            method, raised = self._failed
            told = "".join(traceback.format_exception(raised)).rstrip()
            raise RunError(
                f"stopped after step {step}, checkpoint saved: {method} raised\n{told}"
            ) from raised
        if self._unusable:
            raise RunError(f"stopped after step {step}, checkpoint saved: {self._unusable}")
