"""Callbacks, which observe a run and can stop it."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
from tqdm import TqdmWarning

from eagerly.agents.agent import Agent
from eagerly.buffers import Replay
from eagerly.environments.group import Rollout
from eagerly.errors import RunError
from eagerly.policies.policy import Policy
from eagerly.storage.evaluations import SUCCESS, format_return
from eagerly.storage.run import Run
from eagerly.training.best_policy import BestPolicyTracker
from eagerly.training.collector import Collector
from eagerly.training.curriculum import change_kwargs, current_kwargs
from eagerly.training.evaluation import Evaluation
from eagerly.training.offline import OfflineCollector
from eagerly.training.update_budget import UpdateBudget

# Callback methods that are called at the same steps in a resumed run, before a checkpoint.
_REPEATED = ("on_rollout", "on_update", "on_evaluation", "on_round")


class Curves(Protocol):
    """The part of the curves that callbacks may use."""

    def log_value(self, name: str, value: float) -> None:
        """See `TrainerView.log`."""


class TrainerView(Protocol):
    """The part of the trainer that callbacks may use.

    Attributes:
        run: The run: its directory and settings.
        agent: The agent.
        buffer: The replay buffer.
        budget: Decides when updates are made. With policy checkpoints, it also keeps the best
            policy.
        policies: The evaluated policy and the best policy so far.
        summaries: Writes the curves.
        event: The callback method that was called last, such as "on_rollout".
        has_failed: Whether an error in a callback ends the run.
    """

    run: Run
    agent: Agent
    buffer: Replay
    budget: UpdateBudget
    policies: BestPolicyTracker
    collector: Collector | OfflineCollector
    summaries: Curves
    event: str = ""
    has_failed: bool = False

    @property
    def steps(self) -> int:
        """Environment steps so far, summed over all environments."""

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self.agent.updates

    @property
    def policy(self) -> Policy:
        """The current deterministic policy."""

    @property
    def best_return(self) -> float:
        """The best mean return of an evaluation since the first update; -inf without one.

        After an override, only later evaluations count.
        """
        return self.policies.best_return

    @property
    def score(self) -> float:
        """The mean return of the last 3 evaluations that count for `best_return`; -inf without one.

        If the table of a resumed run is damaged, only new evaluations count.
        """

    def stop(self, reason: str) -> None:
        """Saves and ends `train` at the next safe point."""

    def log(self, name: str, value: float) -> None:
        """Adds a number to the curve `custom/NAME`, in TensorBoard and in the run's tracker.

        Each point of the curve is the mean of the numbers since the previous point. Checkpoints
        contain the numbers that are in no point yet, so a resumed run writes the same curve.

        Args:
            name: Name of the curve.
            value: A finite number.

        Raises:
            ValueError: If `value` is not a finite number, or `name` is not valid Unicode.
            RunError: If the call does not come from `on_rollout`, `on_update`, `on_evaluation` or
                `on_round`.
        """
        self._check_event("log")
        self.summaries.log_value(name, value)

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """A copy of the setting `env_kwargs`, merged with the changes by `set_env_kwargs`."""
        return current_kwargs(self.run, self.collector.environments)

    def set_env_kwargs(self, **changes: Any) -> None:
        """Changes keyword arguments of the training environments; others keep their values.

        Each environment is closed and recreated before its next reset in a round that begins
        after this call, so its running episode ends unchanged. With `policy_lag` 1, the next round
        has already begun. Equal values change nothing. Checkpoints contain the arguments.

        Args:
            **changes: New values by name: numbers, booleans, text, None, lists or dictionaries.

        Raises:
            TypeError: If JSON cannot represent a value exactly.
            RunError: In an offline run, or if the call does not come from `on_rollout`,
                `on_update`, `on_evaluation` or `on_round`. If an environment later cannot be
                created with these arguments, or has other spaces, all environments return to the
                last valid ones, the run is saved, and `train` raises this error.
        """
        self._check_event("set_env_kwargs")
        change_kwargs(self.run, self.collector.environments, changes)

    def _check_event(self, method: str) -> None:
        if self.event not in _REPEATED:
            raise RunError(
                f"{method} must be called in {', '.join(_REPEATED[:-1])} or {_REPEATED[-1]}; got "
                f"{self.event or 'a call outside of callbacks'}, which a resumed run repeats at "
                "other steps"
            )


class Callback:
    """Base class of callbacks: override the methods that you need.

    If a callback raises an exception, the run is saved and stopped. The traceback is then reported.
    """

    def on_begin(self, training: TrainerView) -> None:
        """Called when `train` starts, in new and resumed runs."""

    def on_rollout(self, training: TrainerView, rollout: Rollout) -> None:
        """Called after every environment has made `rollout_steps` steps, with the rollout."""

    def on_update(self, training: TrainerView, metrics: Mapping[str, np.ndarray]) -> None:
        """Called after a call of the train body. Each metric has one value per update."""

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        """Called after an evaluation. `is_best`: whether its mean return is the best so far.

        If a run ends without a best policy, its final policy is evaluated after the last
        checkpoint.
        """

    def on_round(self, training: TrainerView) -> None:
        """Called at the end of a round, after updates and evaluation, before any checkpoint."""

    def on_checkpoint(self, training: TrainerView) -> None:
        """Called after a checkpoint is written."""

    def on_end(self, training: TrainerView) -> None:
        """Called when `train` ends without an error, after the last checkpoint."""


class ProgressBar(Callback):
    """Shows steps, speed and the last evaluation: a bar in a terminal, a widget in a notebook.

    In a notebook without ipywidgets, the bar is drawn as text.

    Args:
        disable: Whether to hide the bar. None hides it if standard error is not a terminal, except
            in notebooks.
        say: Prints one line per evaluation if the bar is hidden.
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
            warnings.simplefilter("ignore", TqdmWarning)  # no ipywidgets: falls back to text
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

    # `OSError` is suppressed below: a closed terminal must not end the run.

    def on_round(self, training: TrainerView) -> None:
        """Advances the bar."""
        with suppress(OSError):
            if self._bar is not None:
                self._bar.update(training.steps - self._bar.n)

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        """Shows the return next to the bar, or prints it."""
        text = _described(evaluation, is_best, training.updates)
        with suppress(OSError):
            if self._bar is not None and not self._bar.disable:
                self._bar.set_postfix_str(text)
            elif self._say:
                self._say(f"step {training.steps}: {text}")

    def close(self) -> None:
        """Closes the bar, which stays visible."""
        with suppress(OSError):
            if self._bar is not None:
                self._bar.close()

    def on_end(self, training: TrainerView) -> None:
        """Closes the bar."""
        self.close()


class ProgressReports(Callback):
    """Reports progress to the parent process through a pipe; stops the run if the parent ended.

    Each line holds the number of steps. After an evaluation, the line also has the result,
    separated by a blank.

    Args:
        descriptor: Write end of a pipe that only the parent process reads. Should be nonblocking.
        seconds: Minimum interval between lines without an evaluation.
    """

    def __init__(self, descriptor: int, seconds: float = 0.5) -> None:
        self._descriptor, self._seconds = descriptor, seconds
        self._last = -float("inf")

    def on_begin(self, training: TrainerView) -> None:
        """Reports the step from which the run starts or resumes."""
        self._report(training)

    def on_round(self, training: TrainerView) -> None:
        """Reports the steps if the interval has passed."""
        if time.monotonic() - self._last >= self._seconds:
            self._report(training)

    def on_evaluation(self, training: TrainerView, evaluation: Evaluation, is_best: bool) -> None:
        """Reports the return."""
        self._report(training, " " + _described(evaluation, is_best, training.updates))

    def on_end(self, training: TrainerView) -> None:
        """Reports the last step."""
        self._report(training)

    def _report(self, training: TrainerView, text: str = "") -> None:
        self._last = time.monotonic()
        try:
            os.write(self._descriptor, f"{training.steps}{text}\n".encode())
        except BlockingIOError:
            return  # the pipe is full: skip this report
        except OSError:
            training.stop("the parent process has ended")


def _described(evaluation: Evaluation, is_best: bool, updates: int) -> str:
    figures = evaluation.summary()
    text = f"evaluation {_spread(figures)}"
    if SUCCESS in figures:
        text += f", success {figures[SUCCESS]:.0%}"
    text += " (best so far)" if is_best else "" if updates else " (before the first update)"
    for name, other in evaluation.others.items():
        text += f", {name} {_spread(other.summary())}"
    return text


def _spread(figures: Mapping[str, float]) -> str:
    return " ± ".join(format_return(figures[name]) for name in ("return_mean", "return_std"))
