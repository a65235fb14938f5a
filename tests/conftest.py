"""What several tests need: a quiet TensorFlow with fixed threads, small agents, filled buffers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

# The defaults of a run, so that a Trainer inside this process finds what it asks for.
tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.threading.set_inter_op_parallelism_threads(2)


@pytest.fixture(scope="module")
def unoptimized() -> Iterator[None]:
    """Leaves TensorFlow's graph optimiser out, a third of the time of what is small and traced."""
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
