"""Sends the curves of a run to an experiment tracker: Weights & Biases or MLflow."""

from __future__ import annotations

import fcntl
import logging
import os
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.errors import INTERRUPTIONS, summary
from eagerly.storage.event_log import read_points
from eagerly.storage.run import Run
from eagerly.storage.tracking import split_track, tracker_id
from eagerly.storage.wandb_log import wandb_points

_log = logging.getLogger(__name__)
_PROJECT = "eagerly"  # default W&B project and MLflow experiment
_INVALID = re.compile(r"[^\w\-. :/]")  # in MLflow's names of metrics
_PARAMS = 100  # MLflow's limit per request
_PATIENCE = 5.0  # seconds to wait for W&B's file


class Tracker:
    """Sends each point of a run's curves to an experiment tracker, once per tag and step.

    `begin` first sends the points of the event files that the tracker does not have, for example
    because it failed or was not used before. Points that a resumed run computes again are skipped:
    they are equal, except for the speed.

    If the tracker raises an exception, a warning is logged, and this object does not use it again.
    Subclasses implement `_start`, `_send` and `_finish`.

    Args:
        track: The setting `track`.

    Attributes:
        folder: Parent of the run directory, for the tracker's files.
        name: Name of the run in the tracker: that of its directory.
        id: ID of the run in the tracker.
        target: Project or address in `track`; "" for the default.
    """

    folder: Path
    name: str
    id: str

    def __init__(self, track: str) -> None:
        self._track = track
        self._kind, self.target = split_track(track)
        self._failed = self._began = False
        self._complete_below = 0  # the tracker has all points before this step
        self._recorded: set[tuple[str, int]] = set()  # further points that it has

    def begin(self, run: Run, settings: Mapping[str, Any], steps: int) -> None:
        """Starts or continues the run in the tracker, and sends missing points.

        Args:
            run: The run.
            settings: Settings to show in the tracker, by name.
            steps: Environment steps so far.
        """

        def begin() -> None:
            path = run.path.resolve()
            self.folder, self.name = path.parent, path.name
            self.id = tracker_id(run.path, self._track, run.history)
            self._complete_below, self._recorded = 0, set()
            self._start(settings)
            self._began = True
            for step, values in read_points(run.path):
                self._send_missing(step, values)
            self._recorded = {point for point in self._recorded if point[1] >= steps}

        self._guarded(begin)

    def add(self, values: Mapping[str, float], steps: int) -> None:
        """Sends points, as the event file stores them: as 32-bit numbers."""
        self._guarded(self._send_missing, steps, values)

    def end(self, *, failed: bool = False) -> None:
        """Ends the tracker's session, unless it has ended already.

        Args:
            failed: Whether an error ended the run.
        """
        if self._began:
            self._began = False
            self._guarded(self._finish, failed)

    def _send_missing(self, step: int, values: Mapping[str, float]) -> None:
        missing = {
            tag: float(np.float32(value))
            for tag, value in values.items()
            if step >= self._complete_below and (self._tag(tag), step) not in self._recorded
        }
        if missing:
            self._send(step, missing)

    def _guarded(self, action: Callable[..., None], *about: Any) -> None:
        if self._failed:
            return
        try:
            action(*about)
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # includes `SystemExit`: a tracker must not end a run
            self._failed = True
            _log.warning(
                f"--track {self._kind} failed and is not used until the run is resumed: "
                f"{summary(error)}. The run continues; its event files have all points"
            )

    def _tag(self, tag: str) -> str:
        """Returns the tracker's name for a tag."""
        return tag

    def _start(self, settings: Mapping[str, Any]) -> None:
        """Starts a session; sets `_complete_below` and `_recorded` if the run exists already."""
        raise NotImplementedError

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        """Sends the values of tags at a step."""
        raise NotImplementedError

    def _finish(self, failed: bool) -> None:
        """Ends the session."""
        raise NotImplementedError


class WandbTracker(Tracker):
    """Weights & Biases. Its files are in `WANDB_DIR` or next to the run directory.

    The server ignores steps before its newest one. Without a connection (`WANDB_MODE=offline`),
    each session has its own folder. A killed session loses its newest points, because W&B writes
    blocks of 32 KiB, so these folders are read to find out which points they contain.
    """

    def _start(self, settings: Mapping[str, Any]) -> None:
        import wandb

        self._run = wandb.init(
            project=self.target or os.environ.get("WANDB_PROJECT") or _PROJECT,
            id=self.id,
            resume="allow",
            reinit="create_new",  # the calling program may have a run of its own
            name=self.name,
            group=self.folder.name or None,
            dir=os.environ.get("WANDB_DIR") or self.folder,
            config=dict(settings),
            settings=wandb.Settings(console="off"),
        )
        self._complete_below = self._run.starting_step
        self._newest: tuple[str, int] | None = None
        session = Path(self._run.dir).parent
        self._file = session / f"run-{self.id}.wandb"
        if self._run.offline:
            for path in session.parent.glob(f"*run-*-{self.id}/run-{self.id}.wandb"):
                self._recorded |= wandb_points(path)

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)
        self._newest = next(iter(values)), step

    def _finish(self, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))
        # W&B completes the file about a second later. Another session in this process reads it.
        deadline = time.monotonic() + _PATIENCE
        while self._run.offline and self._newest and time.monotonic() < deadline:
            if self._newest in wandb_points(self._file):
                break
            time.sleep(0.1)


class MlflowTracker(Tracker):
    """MLflow. The default database is `mlflow.db` next to the run directory."""

    def _start(self, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        self._metric = Metric
        # A concurrent run waits up to a minute for the database.
        default = f"sqlite:///{self.folder}/mlflow.db?timeout=60"
        uri = self.target or os.environ.get("MLFLOW_TRACKING_URI") or default
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _PROJECT
        with _one_at_a_time(self.folder) if uri.startswith("sqlite:") else nullcontext():
            client = self._client = MlflowClient(uri)
            if client.get_experiment_by_name(experiment) is None:
                with suppress(MlflowException):  # another run has created it in the meantime
                    client.create_experiment(experiment)
        at = client.get_experiment_by_name(experiment).experiment_id
        found = client.search_runs([at], f"tags.`eagerly.id` = '{self.id}'", max_results=1)
        tags = {"eagerly.id": self.id, "group": self.folder.name}
        run = found[0] if found else client.create_run(at, run_name=self.name, tags=tags)
        self._run = run.info.run_id
        client.update_run(self._run, status="RUNNING")
        missing = sorted(settings.keys() - run.data.params.keys())  # MLflow cannot change others
        for first in range(0, len(missing), _PARAMS):
            names = missing[first : first + _PARAMS]
            client.log_batch(self._run, params=[Param(n, str(settings[n])) for n in names])
        for tag in run.data.metrics:
            history = client.get_metric_history(self._run, tag)
            self._recorded |= {(tag, metric.step) for metric in history}

    def _tag(self, tag: str) -> str:
        return posixpath.normpath(_INVALID.sub("_", tag))

    def _send(self, step: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        metrics = [self._metric(self._tag(tag), v, now, step) for tag, v in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def _finish(self, failed: bool) -> None:
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Locks a folder against other runs in it: MLflow fails if two create a database at once."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # raised by file systems without such locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


_KINDS = {"wandb": WandbTracker, "mlflow": MlflowTracker}


def make_tracker(track: str) -> Tracker | None:
    """Returns the tracker selected by the setting `track`, or None if there is none."""
    return _KINDS[split_track(track)[0]](track) if track else None
