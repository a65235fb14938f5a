"""What several tests need: a quiet TensorFlow with fixed threads, small agents, filled buffers."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

# The defaults of a run, so that a Trainer inside this process finds what it asks for.
tf.config.threading.set_intra_op_parallelism_threads(2)
tf.config.threading.set_inter_op_parallelism_threads(2)
