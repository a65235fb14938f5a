"""The training loop: collect, update, evaluate, checkpoint."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from typing import Any

import tensorflow as tf

from eagerly.agents.algorithm import algorithm_errors
from eagerly.errors import InterruptedRolloutError, NonFiniteError, RunError, RunStoppedError
from eagerly.policies.policy import Policy
from eagerly.storage.checkpoint_reader import Checkpoint, newest_checkpoint
from eagerly.storage.run import Run
from eagerly.training.assembly import assemble
from eagerly.training.callback_runner import CallbackRunner
from eagerly.training.callbacks import Callback, TrainerView
from eagerly.training.checkpointing import Checkpoints, spared_by_a_full_disk
from eagerly.training.evaluator import Evaluator, InterruptedEvaluationError
from eagerly.training.profiling import Profile
from eagerly.training.signals import StopSignals


class Trainer(TrainerView, AbstractContextManager["Trainer", None]):
    """Trains the agent of a run, starting from its newest checkpoint, if any.

    Args:
        run: The run, as returned by `open_run`.
        callbacks: Callbacks, which observe the run and can stop it.
        newest: The newest intact checkpoint, if the caller has already found it.
        profile_calls: Number of calls of the train body to trace for TensorBoard's profiler.

    Attributes:
        run, agent, buffer, budget, policies, updates, best_return, score: See `TrainerView`.
        config: The settings of the run.
        observations, actions: Layouts of the agent's observations and actions.
        collector: Acts in the environments and fills the buffer.
        checkpoints: Resumes and saves the run.

    Raises:
        RunError: If the run cannot be created, resumed or written.
    """

    def __init__(
        self,
        run: Run,
        callbacks: Iterable[Callback] = (),
        *,
        newest: Checkpoint | None = None,
        profile_calls: int = 0,
    ) -> None:
        self.run, self.config = run, run.config
        self._signals, self._training, self._must_advance = StopSignals(), False, False
        self._closed, self._stop_request = False, ""
        self._due_at = 0  # step of the next evaluation, curve point or checkpoint
        with ExitStack() as opened:
            opened.callback(run.unlock)
            self._callbacks = CallbackRunner(callbacks)
            if not run.is_new:
                run.lock()
                newest = newest or newest_checkpoint(run.path)
            parts = assemble(run, newest, lambda: f"after step {self.steps}", opened)
            self.agent, self.buffer, self.collector = parts.agent, parts.buffer, parts.collector
            self.observations, self.actions = self.agent.observations, self.agent.actions
            self.budget, self.policies = parts.budget, parts.policies
            self.summaries = parts.summaries
            self._evaluator = Evaluator(run, parts, self._between_steps)
            self.checkpoints = Checkpoints(run, parts)
            self._evaluator.restore(self.checkpoints.begin(newest))
            opened.callback(self.summaries.log.close)
            if self.summaries.tracker:
                opened.callback(self.summaries.tracker.end, failed=True)
            self._profile = opened.enter_context(closing(Profile(run.path, profile_calls)))
            self._opened = opened.pop_all()

    @property
    def steps(self) -> int:
        """Environment steps so far, summed over all environments."""
        return self.collector.steps if hasattr(self, "collector") else 0

    @property
    def policy(self) -> Policy:
        """The current deterministic policy."""
        return self._evaluator.policy()

    @property
    def score(self) -> float:
        """See `TrainerView`."""
        return -math.inf if (score := self.summaries.table.score) is None else score

    @property
    def stop_reason(self) -> str:
        """The reason passed to `stop`, else "steps" or "stop_at_return" if finished, else ""."""
        return self._stop_request or next(iter(self._reached if self.finished else ()), "")

    @property
    def _reached(self) -> list[str]:
        return self.config.limits_reached(self.steps, self.best_return)

    @property
    def finished(self) -> bool:
        """Whether the run has ended, including a final evaluation if it needs one."""
        return self.has_ended and not self._evaluator.lacks_final

    @property
    def has_ended(self) -> bool:
        """Whether the run has reached its steps or target return and completed the last round."""
        return self.collector.steps >= self._due_at and bool(self._reached) and not self.in_round

    @property
    def in_round(self) -> bool:
        """Whether the newest round still has updates or other work to do."""
        return bool(self._evaluator.pending) or self._is_call_due

    @property
    def _is_call_due(self) -> bool:
        """Whether a call of the train body is due, and the buffer has rows to sample."""
        return self.budget.is_call_due and len(self.buffer) > 0

    @property
    def _is_stopping(self) -> bool:
        """Whether a signal or a callback has requested a stop."""
        return bool(self._stop_request or (self._signals.received and not self._must_advance))

    def stop(self, reason: str) -> None:
        """Ends `train`, after saving, once the current call or evaluation step is complete."""
        self._stop_request = reason or "stop requested"
        self.collector.environments.expect_stop()

    def train(self, signals: StopSignals | None = None) -> None:
        """Trains until the run is finished or a signal or callback requests a stop, then saves.

        Args:
            signals: Signal handlers whose `received` the caller checks afterwards. If None, a
                received signal raises an exception after saving.

        Raises:
            KeyboardInterrupt: On SIGINT ("saved at step N"). On SIGTERM and SIGHUP, `Terminated`.
            RunError: If a value is not finite, a file cannot be written, an environment fails, or
                a callback raised an exception. The message states what was saved.
        """
        self._check_open()
        if self._training:
            raise RunError("train() is running: callbacks must not call it; use stop() to end it")
        self._training, self._stop_request = True, ""
        self.collector.environments.expect_stop(expected=False)
        try:
            with nullcontext(signals) if signals else StopSignals() as self._signals:
                self._signals.then = self.collector.environments.expect_stop
                self._train()
        finally:
            self._training = False
        self._callbacks.check(self.steps)
        if signals is None:
            self._signals.raise_received(f"saved at step {self.steps}")

    def _train(self) -> None:
        self.checkpoints.start_clock()
        missing = "No new checkpoint was written."
        try:
            self._notify("on_begin")
            # A job that is preempted at every start must still make progress.
            self._must_advance = self._signals.received is not None
            with suppress(InterruptedRolloutError):
                while not (self.has_ended or self._is_stopping):
                    self._round()
            self.checkpoint()
            missing = "Everything is saved."
            if not (self.finished or self._is_stopping):
                missing = "Only the final evaluation is missing."
                # Evaluate after the checkpoint, so that extending the run discards this evaluation.
                with suppress(InterruptedEvaluationError):
                    self._notify("on_evaluation", *self._evaluator.evaluate())
            self._notify("on_end")
        except (
            FloatingPointError, ImportError, OSError, RunError, MemoryError, tf.errors.OpError
        ) as error:  # fmt: skip
            if isinstance(error, RunStoppedError):  # the state is that before the failed round
                with suppress(Exception):
                    self.checkpoint()
                    missing = "All complete rounds are saved."
            what = str(error).rstrip(".\n")
            what += "\n" if "\n" in what else ". "  # a traceback needs no period
            kind = NonFiniteError if isinstance(error, FloatingPointError) else RunError
            raise kind(f"stopped after step {self.steps}: {what}{missing}") from error

    def _round(self) -> None:
        """Collects a round, makes the permitted updates, then evaluates, logs and saves if due."""
        if is_last_part := self.in_round:  # complete an interrupted round first
            is_last_part = not self._is_call_due
        else:
            self._collect()
        while self._is_call_due:
            if self._is_stopping:
                return
            self._learn()
        self._must_advance &= is_last_part
        due = self.collector.steps >= self._due_at or time.monotonic() >= self.checkpoints.deadline
        if due and not self._evaluator.complete(self._notify):
            return
        self._must_advance = False
        self._evaluator.pending.clear()
        if due or not self._callbacks.is_empty:
            self._notify("on_round")
        if due and self.checkpoints.is_due:
            with spared_by_a_full_disk(self.steps):
                self.checkpoint()

    def _collect(self) -> None:
        """Collects a round and adds its steps to the update budget."""
        if self.collector.steps >= self._due_at:
            self._due_at = self.config.next_due(self.collector.steps)
        rollout = self.collector.collect()
        try:
            self.budget.record_rollout(rollout, self.collector.steps_owing_updates)
        except RunStoppedError as error:
            self.stop(str(error))
        self._evaluator.pending.add("round")
        is_due = self.collector.steps >= self._due_at
        if (is_due or rollout.episodes) and self._evaluator.schedule(rollout, is_due=is_due):
            self._due_at = self.collector.steps
        if rollout.recreated:
            self._callbacks.check_recreated(self, rollout)
        if rollout.episodes or not self._callbacks.is_empty:
            self._notify("on_rollout", rollout)

    def _learn(self) -> None:
        try:
            with self._profile.call():
                metrics = self.agent.train(self.buffer, self.config.updates_per_call)
        except Exception:
            with algorithm_errors(type(self.agent), "updating"):
                raise
        self.budget.record_updates()
        self._notify("on_update", metrics)

    def _notify(self, event: str, *about: Any) -> None:
        """Calls the method `event` of the summaries and of each callback."""
        getattr(self.summaries, event)(self, *about)
        self._callbacks.call(event, self, *about)

    def _between_steps(self) -> None:
        """Interrupts an evaluation or video if requested; saves if a timed checkpoint is due."""
        if self._is_stopping:
            raise InterruptedEvaluationError
        if self.checkpoints.waited_long:
            with spared_by_a_full_disk(self.steps):
                self.checkpoint()

    def checkpoint(self) -> None:
        """Saves a checkpoint, unless the newest one has the same state.

        Raises:
            FloatingPointError: If a weight is not finite.
            OSError: If a file cannot be written. The previous checkpoint remains the newest one.
            RunError: If the trainer is closed.
        """
        self._check_open()
        if self.checkpoints.save(in_round=self.in_round, pending=sorted(self._evaluator.pending)):
            self._notify("on_checkpoint")

    def _check_open(self) -> None:
        if self._closed:
            raise RunError(f"the trainer of {self.run.path} is closed: create a new one")

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes environments, their processes and the event file; unlocks the run directory."""
        self._closed = True
        self._opened.close()
