"""Checkpoints in training: resuming a run exactly from the newest one, and saving it."""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from eagerly.errors import RunError
from eagerly.spaces.serialization import recorded_spaces
from eagerly.storage.checkpoint_reader import Checkpoint, newest_checkpoint
from eagerly.storage.checkpoint_writer import CheckpointWriter, Contents
from eagerly.storage.evaluations import read_results
from eagerly.storage.manifest import has_evaluation_at_end
from eagerly.storage.run import Run
from eagerly.training.assembly import Assembly
from eagerly.training.hardware import conditions, differing
from eagerly.training.warm_start import warm_start

_log = logging.getLogger(__name__)


@contextmanager
def spared_by_a_full_disk(step: int) -> Iterator[None]:
    """Lets a run go on that has no space for a checkpoint, with a warning."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _log.warning(
            "NO CHECKPOINT at step %s: %s. Make space: the next one tries again, and the run "
            "fails if the last one does.",
            step,
            error,
        )


class Checkpoints:
    """The checkpoints of a run that is trained.

    Args:
        run: The run.
        parts: What it consists of, as new.

    Attributes:
        seconds: Wall time that this process has spent saving.
        deadline: When the next checkpoint is due, on the clock of `time.monotonic`.
    """

    def __init__(self, run: Run, parts: Assembly) -> None:
        self._run, self._parts = run, parts
        agent = parts.agent
        self._contents = Contents(agent.checkpoint, parts.buffer, parts.components())
        self._spaces = recorded_spaces(
            agent.observations,
            agent.actions,
            custom_models=run.agent_config.has_custom_models,
        )
        self.seconds = 0.0
        self.start_clock()

    def begin(self, newest: Checkpoint | None) -> Checkpoint | None:
        """Resumes the run from its newest checkpoint, or begins it.

        Nothing on disk is touched.

        Args:
            newest: The newest intact checkpoint, where the caller has looked already.

        Returns:
            The checkpoint, None where there was none.

        Raises:
            RunError: If what was saved does not fit the settings.
            FloatingPointError: If an environment gives something that is not finite.
        """
        run, parts = self._run, self._parts
        if not run.is_new:
            run.lock()
            newest = newest or newest_checkpoint(run.path)
        if newest:
            # An environment with other spaces is another one, unless it is overridden.
            _restore(newest, self._contents, None if run.overridden else self._spaces)
            self._after_restoring()
        elif run.config.init_from:
            warm_start(run, parts.agent, self._spaces)
            parts.policies.begin_with_given()
        try:
            parts.agent.learner.check_call(run.config.updates_per_call)
        except ValueError as error:
            raise RunError(f"--updates-per-call: {error}") from error
        if not newest:
            parts.collector.begin()
        return newest

    def _after_restoring(self) -> None:
        # After an override scores may not be comparable: the search for the best begins anew.
        run, policies = self._run, self._parts.policies
        overridden_at = [self._parts.collector.steps] if run.overridden else run.overridden_at()
        best = policies.best_step
        if best is not None and best <= max(overridden_at, default=-1):
            policies.forget_best()
        environments = self._parts.collector.environments
        if environments.lost.any():
            _log.warning(
                "environments %s began a fresh episode, and the run differs from one that never "
                "stopped: %s",
                environments.lost.nonzero()[0].tolist(),
                environments.why_lost,
            )

    def open(self, saved: Checkpoint | None) -> None:
        """Cuts what grows in the run directory back to a checkpoint, and begins to write there.

        The evaluation at the end of a run, which no checkpoint knows, stays until the run is
        extended.
        """
        run = self._run
        self._writer = CheckpointWriter(run.path, run.config.keep_checkpoints)
        if saved and has_evaluation_at_end(run.path, saved.manifest, run.config):
            mean_return = float(read_results(run.evaluations_path).return_mean[-1])
            self._parts.policies.compare(saved.manifest.steps, mean_return)
            return
        self._writer.cut_back(saved.manifest if saved else None)

    def start_clock(self) -> None:
        """Starts the clock of `checkpoint_every_minutes`."""
        minutes = self._run.config.checkpoint_every_minutes
        self.deadline = time.monotonic() + 60.0 * minutes if minutes > 0 else math.inf

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due at the end of this round."""
        config, steps = self._run.config, self._parts.collector.steps
        return config.is_due(config.checkpoint_every_steps, steps) or self.waited_long

    @property
    def waited_long(self) -> bool:
        """Whether the last checkpoint was written `checkpoint_every_minutes` ago."""
        return time.monotonic() >= self.deadline

    def save(self, *, in_round: bool, pending: Sequence[str] = ()) -> None:
        """Saves everything; what is not finite is reported and not saved.

        Args:
            in_round: Whether the newest round is incomplete.
            pending: Its remaining work after the updates, see `Evaluator.pending`.

        Raises:
            FloatingPointError: If a weight is not finite.
            OSError: If something cannot be written. The newest checkpoint stays the last one.
        """
        began = time.monotonic()
        try:
            self._run.check_lock()
            self._parts.summaries.flush()
            self._writer.save(
                self._contents,
                steps=self._parts.collector.steps,
                updates=self._parts.agent.updates,
                in_round=in_round,
                pending=tuple(pending),
                spaces=self._spaces,
                conditions=conditions(),
                config=self._run.document(),
            )
        finally:
            self.seconds += time.monotonic() - began
            self.start_clock()


def _restore(saved: Checkpoint, contents: Contents, spaces: dict[str, Any] | None) -> None:
    """Takes over a checkpoint; nothing on disk is touched.

    Args:
        saved: The checkpoint.
        contents: What takes it over, as new.
        spaces: Those of the environment, as a checkpoint keeps them; None if they may be others
            than the run had.

    Raises:
        RunError: If what was saved does not fit the settings.
        FloatingPointError: If an environment gives something that is not finite.
    """
    manifest = saved.manifest
    if spaces not in (None, manifest.spaces):
        raise RunError(
            f"the environment has other spaces than it had: {spaces}, not {manifest.spaces}. Go on "
            "with the version that the run began with, or begin another --run-dir."
        )
    try:
        saved.restore(contents)
    except (RunError, FloatingPointError):
        raise
    except Exception as error:  # whatever is in a directory that somebody handed over
        raise RunError(
            f"what was saved does not fit the settings: {type(error).__name__}: {error}"
        ) from error
    if changed := differing(manifest.conditions, conditions()):
        _log.warning(
            "continued, but the last bits may differ from a run that never stopped: %s",
            "; ".join(changed),
        )
