"""What several tests need: a quiet TensorFlow with fixed threads, small agents, filled buffers."""

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
# What tests trust is remembered for them alone; processes that they start share it.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="eagerly-tests-")

from eagerly.quiet import quiet_tensorflow

atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# Whoever runs the tests in the background, or with `nohup`, has these ignored; so would every run.
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

    report_mujoco_warnings()  # also those of environments that tests make with Gymnasium
    # The defaults of a run, so that a Trainer in this process finds the threads that it asks for.
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.config.threading.set_inter_op_parallelism_threads(2)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds what tests beside the code of others need: where that is."""
    parser.addoption("--td7-authors", help="Directory of the TD7 authors' code, which is not ours")


@pytest.fixture
def with_graph() -> None:
    """Asks for TensorBoard's graph, which takes longer to trace than the rest of a run here."""


@pytest.fixture(autouse=True)
def _graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    from eagerly.agents.learner import Learner

    if "with_graph" not in request.fixturenames:
        monkeypatch.setattr(Learner, "graph", lambda learner: None)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Removes the handler of commands that ran in this process, so that caplog sees records."""
    yield
    logger = logging.getLogger("eagerly")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture(scope="module")
def unoptimized() -> Iterator[None]:
    """Leaves TensorFlow's graph optimiser out, a third of the time of what is small and traced."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
