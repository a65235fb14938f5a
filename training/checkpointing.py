"""Taking a run up again exactly where its checkpoint has it."""

from __future__ import annotations

import logging
from typing import Any

from eagerly.errors import RunError
from eagerly.storage.checkpoint_reader import Checkpoint
from eagerly.storage.checkpoint_writer import Contents
from eagerly.training.hardware import conditions, differing

_log = logging.getLogger(__name__)


def restore(saved: Checkpoint, contents: Contents, spaces: dict[str, Any] | None) -> None:
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
