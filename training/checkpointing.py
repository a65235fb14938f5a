"""Saving a run, and taking it up again exactly where it was."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from eagerly.agents.persistence import VariableCheckpoint
from eagerly.buffers import Buffer
from eagerly.errors import RunError
from eagerly.state import Stateful
from eagerly.storage.checkpoint_reader import Checkpoint
from eagerly.storage.checkpoint_writer import CheckpointWriter
from eagerly.storage.run import Run
from eagerly.training.hardware import conditions, differing

_log = logging.getLogger(__name__)


class Checkpointing:
    """Writes everything that a run's next step depends on, and takes it over again.

    Args:
        run: The run.
        variables: Networks, targets and optimisers.
        buffer: The replay buffer, whose rows are appended to files as they come.
        components: All else that has a state, by name, in the order in which it is restored.
        spaces: Those of the environment, as a checkpoint keeps them.
    """

    def __init__(
        self,
        run: Run,
        variables: VariableCheckpoint,
        buffer: Buffer,
        components: Mapping[str, Stateful],
        spaces: dict[str, Any],
    ) -> None:
        self._run, self._variables, self._buffer = run, variables, buffer
        self._components: dict[str, Stateful] = {"buffer": buffer, **components}
        self._spaces = spaces
        self._writer = CheckpointWriter(run.path, run.config.keep_checkpoints)

    def save(self, steps: int, updates: int, *, in_round: bool) -> None:
        """Writes a checkpoint.

        Args:
            steps: Environment steps done.
            updates: Updates done.
            in_round: Whether calls of the train body are still owed.

        Raises:
            FloatingPointError: If a variable is not finite; nothing is published then.
            OSError: If something cannot be written; nothing is published then.
        """
        self._writer.save(
            steps=steps,
            updates=updates,
            in_round=in_round,
            variables=self._variables,
            components=self._components,
            buffer=self._buffer,
            spaces=self._spaces,
            conditions=conditions(),
            config=self._run.document(),
        )

    def restore(self, saved: Checkpoint) -> None:
        """Takes over a checkpoint; nothing on disk is touched.

        Raises:
            RunError: If what was saved does not fit the settings.
            FloatingPointError: If an environment gives something that is not finite.
        """
        manifest = saved.manifest
        # An environment with other spaces is another one, unless it is overridden.
        if manifest.spaces != self._spaces and not self._run.overridden:
            raise RunError(
                f"the environment has other spaces than it had: {self._spaces}, not "
                f"{manifest.spaces}. Go on with the version that the run began with, or begin "
                "another --run-dir."
            )
        try:
            with saved.networks_prefix() as prefix:
                self._variables.read(prefix)
            saved.restore_rows(self._buffer)
            for name, component in self._components.items():
                component.restore(saved.state(name))
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

    def cut_back(self, saved: Checkpoint | None) -> None:
        """Removes from disk what was written after a checkpoint, or everything without one."""
        self._writer.cut_back(saved.manifest if saved else None)
