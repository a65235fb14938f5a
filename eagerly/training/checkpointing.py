"""Saves checkpoints during training, and resumes a run exactly from the newest one."""

from __future__ import annotations

import errno
import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from eagerly.environments.group import UNCHANGED
from eagerly.errors import NonFiniteError, RunError, UsageError, summary
from eagerly.settings import flag_name
from eagerly.spaces.serialization import recorded_spaces, spaces_text
from eagerly.storage.checkpoint_reader import Checkpoint
from eagerly.storage.checkpoint_writer import CheckpointWriter, Contents
from eagerly.storage.manifest import Manifest, has_evaluation_at_end
from eagerly.storage.run import Run
from eagerly.storage.run_settings import format_setting
from eagerly.storage.trust import FACTORIES
from eagerly.training.assembly import Assembly
from eagerly.training.hardware import conditions, differing
from eagerly.training.warm_start import warm_start

_log = logging.getLogger(__name__)


@contextmanager
def spared_by_a_full_disk(step: int) -> Iterator[None]:
    """Logs a warning instead of raising if the disk is too full for a checkpoint."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _log.warning(
            "NO CHECKPOINT at step %s: %s. Free disk space: the next checkpoint retries, and the "
            "run fails if its last checkpoint cannot be written.",
            step,
            error,
        )


class Checkpoints:
    """Restores and saves the checkpoints of a run during training.

    Args:
        run: The run.
        parts: The newly built components of the run.

    Attributes:
        seconds: Wall time that this process has spent saving checkpoints.
        deadline: When the next checkpoint is due, as a `time.monotonic()` value.
    """

    def __init__(self, run: Run, parts: Assembly) -> None:
        self._run, self._parts = run, parts
        agent = parts.agent
        self._contents = Contents(agent.checkpoint, parts.buffer, parts.components())
        self._spaces = recorded_spaces(
            agent.observations, agent.actions, custom_models=run.agent_config.has_custom_models
        )
        self.seconds = 0.0
        self.start_clock()

    def begin(self, newest: Checkpoint | None) -> tuple[str, ...]:
        """Resumes the run from its newest checkpoint, or starts it, and opens its files.

        Args:
            newest: The newest intact checkpoint, if any.

        Returns:
            The remaining work of the newest round, see `Evaluator.pending`.

        Raises:
            RunError: If the saved state does not match the settings, an environment returns a value
                that is not finite, or a file cannot be used.
        """
        run, parts = self._run, self._parts
        try:
            self._restore_or_start(newest)
            # Nothing on disk has changed so far: a run that cannot be resumed stays intact.
            run.write(parts.collector.steps)  # finalizes a generated directory name
            self._open(newest)
            parts.summaries.open(run, parts.agent, parts.collector.steps, newest)
        except FloatingPointError as error:
            raise NonFiniteError(f"before step {parts.collector.steps + 1}: {error}") from error
        except (OSError, tf.errors.OpError) as error:
            raise RunError(f"{run.path} cannot be used: {error}") from error
        return newest.manifest.pending if newest else ()

    def _restore_or_start(self, newest: Checkpoint | None) -> None:
        """Restores the newest checkpoint or, without one, starts the environments."""
        run, parts = self._run, self._parts
        if newest:
            self._restore(newest)
            self._after_restoring()
        elif run.config.init_from:
            warm_start(run, parts.agent, self._spaces)
            parts.policies.begin_with_given()
        try:
            parts.agent.learner.check_call(run.config.updates_per_call)
        except ValueError as error:
            raise UsageError(f"--updates-per-call: {error}") from error
        if not newest:
            if parts.load_data:
                parts.load_data()
            if not run.config.hardware:  # which must not wait between its reset and its first step
                parts.collector.begin()

    def _restore(self, saved: Checkpoint) -> None:
        """Restores a checkpoint, without changing anything on disk.

        Raises:
            RunError: If the spaces or the saved state do not match the settings.
            FloatingPointError: If an environment returns a value that is not finite.
        """
        run, manifest = self._run, saved.manifest
        environments = self._parts.collector.environments
        changed = run.changes(manifest.config)
        # Episodes can be replayed only with the same values.
        if different := sorted({"env", "env_kwargs", "wrapper", "seed"} & changed.keys()):
            flags = " and ".join(map(flag_name, different))
            environments.why_changed = f"{flags} changed"
        environments.keeps_kwargs = not {"env", "env_kwargs"} & changed.keys()
        # Different spaces mean a different environment; only an override allows that.
        if not changed and self._spaces != manifest.spaces:
            raise RunError(
                f"the environment's spaces have changed: got {spaces_text(self._spaces)}, expected "
                f"{spaces_text(manifest.spaces)}. Resume with the environment version that the run "
                "started with, or use a new --run-dir."
            )
        try:
            if environments.keeps_kwargs:
                _check_kwargs(run, manifest)
            saved.restore(self._contents)
        except (RunError, FloatingPointError):
            raise
        except Exception as error:  # a run directory is untrusted input
            problem = summary(error)
            if causes := _different_settings(run, changed):
                raise UsageError(
                    f"{run.path} cannot be resumed with {causes}: {problem}. Undo the change, or "
                    "start a new run in another --run-dir"
                ) from error
            raise RunError(f"the checkpoint does not match the settings: {problem}") from error
        if differing_conditions := differing(manifest.conditions, conditions()):
            _log.warning(
                "resumed, but results may differ from an uninterrupted run in the last bits: %s",
                "; ".join(differing_conditions),
            )

    def _after_restoring(self) -> None:
        # Scores may not be comparable across an override: restart the search for the best policy.
        run, policies = self._run, self._parts.policies
        steps = self._parts.collector.steps
        if run.overridden or steps <= run.last_override:
            policies.restart(steps)
        environments = self._parts.collector.environments
        if environments.lost.any():
            _log.warning(
                "environments %s started new episodes, and the run differs from an uninterrupted "
                "one: %s",
                environments.lost.nonzero()[0].tolist(),
                environments.why_lost,
            )

    def _open(self, saved: Checkpoint | None) -> None:
        """Truncates the run's growing files to a checkpoint, and prepares to write new ones.

        The evaluation at the end of a finished run comes after its last checkpoint. It is kept
        until the run is extended.
        """
        run = self._run
        self._writer = CheckpointWriter(run.path, run.config.keep_checkpoints)
        if saved and has_evaluation_at_end(run.path, saved.manifest, run.config, run.last_override):
            mean_return = float(run.results().return_mean[-1])
            self._parts.policies.compare(saved.manifest.steps, mean_return)
            return
        self._writer.cut_back(saved.manifest if saved else None)

    def start_clock(self) -> None:
        """Restarts the timer of `checkpoint_every_minutes`."""
        minutes = self._run.config.checkpoint_every_minutes
        self.deadline = time.monotonic() + 60.0 * minutes if minutes > 0 else math.inf

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is due at the end of this round."""
        config, steps = self._run.config, self._parts.collector.steps
        return config.is_due(config.checkpoint_every_steps, steps) or self.waited_long

    @property
    def waited_long(self) -> bool:
        """Whether the timer of `checkpoint_every_minutes` has expired."""
        return time.monotonic() >= self.deadline

    def save(self, *, in_round: bool, pending: Sequence[str] = ()) -> bool:
        """Saves a complete checkpoint, unless the newest one has the same state.

        Args:
            in_round: Whether the newest round is incomplete.
            pending: The round's remaining work after its updates, see `Evaluator.pending`.

        Returns:
            Whether a checkpoint was written.

        Raises:
            FloatingPointError: If a weight is not finite. Nothing is saved.
            OSError: If a file cannot be written. The previous checkpoint remains the newest one.
        """
        began = time.monotonic()
        try:
            self._run.check_lock()
            self._parts.summaries.flush()
            return self._writer.save(
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


def _check_kwargs(run: Run, manifest: Manifest) -> None:
    """Checks that the environments may receive the changed arguments in a checkpoint."""
    changed = manifest.state["collector"].get("environments", {}).get("kwargs", [])
    for kwargs in sorted(set(changed) - {UNCHANGED}):
        run.check_kwargs(json.loads(kwargs))


def _different_settings(run: Run, changed: Mapping[str, Sequence[Any]]) -> str:
    """Lists the settings that were overridden, and the custom code that may have been edited."""
    found = [
        f"{flag_name(name)} {format_setting(new)} instead of {format_setting(old)}"
        for name, (old, new) in changed.items()
    ]
    values = {"agent": run.agent, **run.settings()}
    code = {name: values.get(name, "") for name in ("agent", *FACTORIES) if name not in changed}
    found += [f"{name} {value}" for name, value in code.items() if ":" in value]
    return " and ".join(found)
