"""Sessions of MLflow."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_EXPERIMENT = "eagerly"  # the default
_INVALID = re.compile(r"[^\w\-. :/]")  # in names of metrics
_PARAMS = 100  # MLflow's limit per request


class Session:
    """A session of MLflow. The default database is `mlflow.db` next to the run directory."""

    def __init__(self, path: Path, run_id: str, target: str, settings: Mapping[str, Any]) -> None:
        from mlflow.entities import Param
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        uri = target or os.environ.get("MLFLOW_TRACKING_URI") or _uri(path.parent / "mlflow.db")
        client = self._client = MlflowClient(_ready(uri) if uri.startswith("sqlite") else uri)
        experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME") or _EXPERIMENT
        if client.get_experiment_by_name(experiment) is None:
            with suppress(MlflowException):  # another run has created it in the meantime
                client.create_experiment(experiment)
        at = client.get_experiment_by_name(experiment).experiment_id
        found = client.search_runs([at], f"tags.`eagerly.id` = '{run_id}'", max_results=1)
        tags = {"eagerly.id": run_id, "group": path.parent.name}
        run = found[0] if found else client.create_run(at, run_name=path.name, tags=tags)
        self._run = run.info.run_id
        client.update_run(self._run, status="RUNNING")
        missing = sorted(settings.keys() - run.data.params.keys())  # MLflow cannot change others
        for first in range(0, len(missing), _PARAMS):
            names = missing[first : first + _PARAMS]
            client.log_batch(self._run, params=[Param(n, str(settings[n])) for n in names])
        self._points = {
            (name, metric.step)
            for name in run.data.metrics
            for metric in client.get_metric_history(self._run, name)
        }

    def has(self, tag: str, step: int) -> bool:
        """See `trackers.Session`."""
        return (metric_name(tag), step) in self._points

    def send(self, values: Mapping[str, float], step: int) -> None:
        """See `trackers.Session`."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        metrics = [Metric(metric_name(tag), value, now, step) for tag, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)
        self._points |= {(metric.key, step) for metric in metrics}

    def finish(self, *, failed: bool) -> None:
        """See `trackers.Session`."""
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def metric_name(tag: str) -> str:
    """Returns a tag if MLflow accepts it as a name, otherwise a similar name with a hash."""
    name = posixpath.normpath("/" + _INVALID.sub("_", tag)).lstrip("/")
    return name if name == tag else f"{name}-{hashlib.sha256(tag.encode()).hexdigest()[:8]}"


def _uri(path: Path) -> str:
    return "sqlite:///" + str(path).replace("%", "%25").replace("?", "%3F")


def _ready(uri: str) -> str:
    """Returns the address of a SQLite database with a time limit, after creating the file.

    A concurrent run waits up to a minute for the database, unless the address has another limit.
    """
    from sqlalchemy import make_url

    url = make_url(uri)
    if url.database and not url.database.startswith((":memory:", "file:")):
        _create(Path(url.database))
    return uri if "timeout" in url.query else f"{uri}{'&' if '?' in uri else '?'}timeout=60"


def _create(path: Path) -> None:
    """Creates a database if the file does not exist.

    It appears under its name only when it is complete. MLflow can use neither a database whose
    creation was interrupted nor one that two processes create at once.
    """
    if path.exists():
        return
    from mlflow.tracking import MlflowClient

    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{path.name}.", dir=path.parent) as folder:
        complete = Path(folder, path.name)
        MlflowClient(_uri(complete))
        with suppress(FileExistsError):  # created by another run in the meantime
            os.link(complete, path)
