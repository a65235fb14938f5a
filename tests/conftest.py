"""Configures signals, trust files, logging and TensorFlow for the tests."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest

import eagerly  # noqa: F401  - hides the startup messages of TensorFlow

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The tests and the processes that they start share a separate trust store.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="eagerly-tests-")


atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# In background jobs and under `nohup`, these signals are ignored. The training runs that the tests
# start would inherit this.
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
for _number, _usual in _USUAL.items():
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


def pytest_configure(config: pytest.Config) -> None:
    """Prepares TensorFlow and MuJoCo, except in the process that only distributes tests."""
    if getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput"):
        return
    import tensorflow as tf

    from eagerly.environments.rendering import report_mujoco_warnings

    report_mujoco_warnings()  # also in environments that tests create directly
    # These are the default thread counts of a run. A Trainer warns if its process has others.
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.config.threading.set_inter_op_parallelism_threads(2)


def pytest_collection_finish() -> None:
    """Excludes TensorFlow and the collected tests from later garbage collections.

    These objects live until the end. Each full collection would spend 0.3 seconds on them.
    """
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option for the directory of the TD7 authors' code."""
    parser.addoption("--td7-authors", help="Directory of the TD7 authors' code (sfujim/TD7)")


@pytest.fixture
def with_graph() -> None:
    """Writes the TensorBoard graph, which other tests skip because tracing it takes long."""


@pytest.fixture(autouse=True)
def _graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from eagerly.agents.learner import Learner

    if "with_graph" not in request.fixturenames:
        monkeypatch.setattr(Learner, "graph", lambda learner: None)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Removes log handlers that a test's commands added, so that `caplog` receives records."""
    yield
    logger = logging.getLogger("eagerly")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture(scope="module")
def unoptimized() -> Iterator[None]:
    """Disables TensorFlow's graph optimizer, which takes a third of the time of a small graph."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
