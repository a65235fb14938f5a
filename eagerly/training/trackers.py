"""Sends the curves of a run to an experiment tracker: Weights & Biases or MLflow."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from eagerly.errors import INTERRUPTIONS, summary
from eagerly.storage.event_log import read_points
from eagerly.storage.run import Run
from eagerly.storage.tracking import split_track, tracker_id

_log = logging.getLogger(__name__)


class Session(Protocol):
    """A session of an experiment tracker, in the module `<tracker>_tracker`.

    Args:
        path: The run directory. It gives the run its name, and its parent has the tracker's files.
        run_id: ID of the run in the tracker. If the run exists already, it is continued.
        target: Project or address; "" for the default.
        settings: Settings to show in the tracker, by name.
    """

    def __init__(
        self, path: Path, run_id: str, target: str, settings: Mapping[str, Any]
    ) -> None: ...

    def has(self, tag: str, step: int) -> bool:
        """Returns whether the tracker has a point already, or would reject it."""

    def send(self, values: Mapping[str, float], step: int) -> None:
        """Sends the values of tags at a step."""

    def finish(self, *, failed: bool) -> None:
        """Ends the session and marks the run as finished or failed."""


class Tracker:
    """Sends each point of a run's curves to an experiment tracker, once per tag and step.

    `begin` first sends the points of the event files that the tracker does not have, for example
    because it failed or was not used before. Points that a resumed run computes again are skipped:
    they are equal, except for the speed.

    If the tracker raises an exception, a warning is logged and the session ends.

    Args:
        track: The setting `track`.
    """

    def __init__(self, track: str) -> None:
        self._track = track
        self._session: Session | None = None

    def begin(self, run: Run, settings: Mapping[str, Any]) -> None:
        """Starts or continues the run in the tracker, and sends missing points.

        Args:
            run: The run.
            settings: Settings to show in the tracker, by name.
        """
        self._guarded(self._begin, run, settings)

    def add(self, values: Mapping[str, float], steps: int) -> None:
        """Sends points, as the event file stores them: as 32-bit numbers."""
        self._guarded(self._send_missing, values, steps)

    def end(self, *, failed: bool = False) -> None:
        """Ends the session, unless it has ended already.

        Args:
            failed: Whether an error ended the run.
        """
        if session := self._session:
            self._session = None
            self._guarded(lambda: session.finish(failed=failed))

    def _begin(self, run: Run, settings: Mapping[str, Any]) -> None:
        kind, target = split_track(self._track)
        run_id = tracker_id(run.path, self._track, run.history)
        module = importlib.import_module(f"eagerly.training.{kind}_tracker")
        self._session = module.Session(run.path.resolve(), run_id, target, settings)
        for step, values in read_points(run.path):
            self._send_missing(values, step)

    def _send_missing(self, values: Mapping[str, float], step: int) -> None:
        if session := self._session:
            missing = {
                n: float(np.float32(v)) for n, v in values.items() if not session.has(n, step)
            }
            if missing:
                session.send(missing, step)

    def _guarded(self, action: Callable[..., None], *about: Any) -> None:
        try:
            action(*about)
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # includes `SystemExit`: a tracker must not end a run
            kind, _ = split_track(self._track)
            _log.warning(
                f"--track {kind} failed and is not used until the run is resumed: "
                f"{summary(error)}. The run continues; its event files have all points"
            )
            session, self._session = self._session, None
            with suppress(Exception, SystemExit):
                if session:
                    session.finish(failed=True)
