"""Configures signals, trust files, logging and TensorFlow for the tests."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# A separate trust store for the tests, shared with the processes that they start.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="eagerly-tests-")

from eagerly.quiet import quiet_tensorflow

atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# Background jobs and `nohup` ignore these signals, and training runs would inherit that.
_USUAL = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
for _number, _usual in _USUAL.items():
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


def pytest_configure(config: pytest.Config) -> None:
    """Prepares TensorFlow and MuJoCo, except in the process that only distributes tests."""
    if getattr(config.option, "dist", "no") != "no" and not hasattr(config, "workerinput"):
        return
    with quiet_tensorflow():
        import tensorflow as tf
    from eagerly.environments.rendering import report_mujoco_warnings

    report_mujoco_warnings()  # also for environments that tests create directly
    # A run's default thread counts, so that a Trainer in this process does not warn about them.
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.config.threading.set_inter_op_parallelism_threads(2)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option for the directory of the TD7 authors' code."""
    parser.addoption("--td7-authors", help="Directory of the TD7 authors' code, which is not ours")


@pytest.fixture
def with_graph() -> None:
    """Enables TensorBoard's graph, which takes longer to trace than the rest of a test run."""


@pytest.fixture(autouse=True)
def _graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from eagerly.agents.learner import Learner

    if "with_graph" not in request.fixturenames:
        monkeypatch.setattr(Learner, "graph", lambda learner: None)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Removes log handlers of commands run in this process, so that caplog sees records."""
    yield
    logger = logging.getLogger("eagerly")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture(scope="module")
def unoptimized() -> Iterator[None]:
    """Disables TensorFlow's graph optimizer, a third of the time of small traced functions."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
