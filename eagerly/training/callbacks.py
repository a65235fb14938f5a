"""Callbacks: they hear what happens in a run, and can stop it."""

from __future__ import annotations

import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from tqdm import TqdmWarning

from eagerly.agents.agent import Agent
from eagerly.buffers import Buffer
from eagerly.environments.group import Rollout
from eagerly.errors import RunError
from eagerly.policies.policy import Policy
from eagerly.storage.evaluations import SUCCESS, format_return
from eagerly.storage.run import Run
from eagerly.training.best_policy import BestPolicyTracker
from eagerly.training.evaluation import Evaluation
from eagerly.training.update_budget import UpdateBudget


class TrainerView(Protocol):
    """What a callback may use of the trainer that calls it.

    Attributes:
        run: The run: its directory and settings.
        agent: The agent.
        buffer: The replay buffer.
        budget: Decides when updates are made; with policy checkpoints it keeps the best policy.
        policies: The policy that is evaluated, and the best one so far.
    """

    run: Run
    agent: Agent
    buffer: Buffer
    budget: UpdateBudget
    policies: BestPolicyTracker

    @property
    def steps(self) -> int:
        """Environment steps so far, counting every environment."""

    @property
    def updates(self) -> int:
        """Updates so far."""

    @property
    def policy(self) -> Policy:
        """The deterministic policy as it is now."""

    @property
    def best_return(self) -> float:
        """The best mean return of an evaluation since the first update, -inf without one."""

    def stop(self, reason: str) -> None:
        """Ends `train` at the next place where nothing is lost; everything is saved."""


class Callback:
    """Hears what happens in a run; derive from it and override what you need.

    An exception in a callback ends the run: everything is saved, then its traceback is shown.
    """

    def on_begin(self, training: TrainerView) -> None:
        """Called when `train` begins, also to continue."""

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        """Called after every environment was stepped `rollout_steps` times, with what that gave."""

    def on_update(self, training: TrainerView, metrics: Mapping[str, np.ndarray]) -> None:
        """Called after a call of the train body, with its metrics, one number per update."""

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        """Called after an evaluation, which has the best mean return so far or not.

        A run that has no best policy when it ends is evaluated after its last checkpoint.
        """

    def on_round(self, training: TrainerView) -> None:
        """Called when a step's updates and evaluation are done; checkpoints follow."""

    def on_checkpoint(self, training: TrainerView) -> None:
        """Called after a checkpoint was written."""

    def on_end(self, training: TrainerView) -> None:
        """Called when `train` ends without an error, after the last checkpoint."""


class Callbacks:
    """The callbacks of a run. The first one that raises is the last one that is called.

    Args:
        callbacks: The callbacks, in call order.

    Attributes:
        hear: Whether there are any.

    Raises:
        RunError: If a callback has a method `on_...` that nothing calls.
    """

    def __init__(self, callbacks: Iterable[Callback]) -> None:
        self._callbacks = list(callbacks)
        for callback in self._callbacks:
            unknown = [
                name
                for name in dir(callback)
                if name.startswith("on_")
                and not hasattr(Callback, name)
                and callable(getattr(callback, name))
            ]
            if unknown:
                methods = ", ".join(name for name in vars(Callback) if name.startswith("on_"))
                raise RunError(
                    f"{type(callback).__name__}.{unknown[0]} would never be called: the methods of "
                    f"a callback are {methods}"
                )
        self.hear = bool(self._callbacks)
        self._failed: tuple[str, BaseException] | None = None  # a method and its exception

    def tell(self, event: str, training: TrainerView, *about: Any) -> str:
        """Calls the method `event` of each; returns why the run must stop, or ""."""
        for callback in self._callbacks:
            if self._failed:
                break
            try:
                getattr(callback, event)(training, *about)
            except KeyboardInterrupt:  # a second signal ends the run at once
                raise
            except BaseException as error:  # `SystemExit`, too: everything is saved first
                self._failed = f"{type(callback).__name__}.{event}", error
                return f"{self._failed[0]} raised {type(error).__name__}"
        return ""

    def check(self, step: int) -> None:
        """Reports what a callback has raised, once everything is saved.

        Raises:
            RunError: With the traceback.
        """
        if self._failed:
            method, raised = self._failed
            told = "".join(traceback.format_exception(raised)).rstrip()
            raise RunError(
                f"stopped after step {step}, with a checkpoint: {method} raised\n{told}"
            ) from raised


class ProgressBar(Callback):
    """Shows steps, speed and the last evaluation: a bar in a terminal, a widget in a notebook.

    A notebook without ipywidgets gets a bar of text.

    Args:
        disable: Whether to show nothing; None shows nothing where standard error is no terminal,
            outside notebooks.
        say: Prints a line per evaluation where the bar is not shown.
    """

    def __init__(
        self, *, disable: bool | None = None, say: Callable[[str], object] | None = None
    ) -> None:
        self._disable, self._say = disable, say
        self._bar: Any = None

    def on_begin(self, training: TrainerView) -> None:
        """Draws the bar."""
        in_notebook = "ipykernel" in sys.modules
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TqdmWarning)  # without ipywidgets it draws with text
            from tqdm.auto import tqdm
        self._bar = tqdm(
            total=training.run.config.steps,
            initial=training.steps,
            unit=" steps",
            disable=False if in_notebook and self._disable is None else self._disable,
            dynamic_ncols=True,
            smoothing=0.05,
            file=sys.stderr,
        )

    # A terminal that has gone away must not end the run.

    def on_round(self, training: TrainerView) -> None:
        """Moves the bar."""
        with suppress(OSError):
            if self._bar is not None:
                self._bar.update(training.steps - self._bar.n)

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        """Shows the return beside the bar, or prints it."""
        text = _described(evaluation, is_best)
        with suppress(OSError):
            if self._bar is not None and not self._bar.disable:
                self._bar.set_postfix_str(text)
            elif self._say:
                self._say(f"step {training.steps}: {text}")

    def close(self) -> None:
        """Leaves the bar as it is."""
        with suppress(OSError):
            if self._bar is not None:
                self._bar.close()

    def on_end(self, training: TrainerView) -> None:
        """Closes the bar."""
        self.close()


class ProgressReports(Callback):
    """Tells the process that started this one how far the run is; stops the run if that is dead.

    A line is the number of steps, and after a space what an evaluation gave, if there was one.

    Args:
        descriptor: Write end of a pipe that nobody but that process reads; it should not block.
        seconds: Between two lines without an evaluation.
    """

    def __init__(self, descriptor: int, seconds: float = 0.5) -> None:
        self._descriptor, self._seconds = descriptor, seconds
        self._last = -float("inf")

    def on_begin(self, training: TrainerView) -> None:
        """Reports the step from which the run goes on."""
        self._report(training)

    def on_round(self, training: TrainerView) -> None:
        """Reports the steps, from time to time."""
        if time.monotonic() - self._last >= self._seconds:
            self._report(training)

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        """Reports the return."""
        self._report(training, " " + _described(evaluation, is_best))

    def on_end(self, training: TrainerView) -> None:
        """Reports the last step."""
        self._report(training)

    def _report(self, training: TrainerView, text: str = "") -> None:
        self._last = time.monotonic()
        try:
            os.write(self._descriptor, f"{training.steps}{text}\n".encode())
        except BlockingIOError:
            return  # nothing is read there for the time being
        except OSError:
            training.stop("the process that started it has ended")


def _described(evaluation: Evaluation, is_best: bool) -> str:
    figures = evaluation.summary()
    text = f"evaluation {_spread(figures)}"
    if SUCCESS in figures:
        text += f", success {figures[SUCCESS]:.0%}"
    text += " (best so far)" if is_best else ""
    for name, other in evaluation.others.items():
        text += f", {name} {_spread(other.summary())}"
    return text


def _spread(figures: Mapping[str, float]) -> str:
    """Writes the mean return of an evaluation and its deviation."""
    return " ± ".join(format_return(figures[name]) for name in ("return_mean", "return_std"))
