"""What bit-exact continuation relies on: threads, versions, instruction set, device."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

# What is set in the environment of the process and can change the last bits.
_VARIABLES = (
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "TF_DETERMINISTIC_OPS",
    "NVIDIA_TF32_OVERRIDE",
)
_PACKAGES = ("eagerly", "tensorflow", "keras", "numpy", "gymnasium", "mujoco")


def set_threads(intra_op: int, inter_op: int, say: Callable[[str], None]) -> None:
    """Fixes TensorFlow's thread counts; says so where the process has started others already."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(intra_op)
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)
    except RuntimeError:
        running = _threads()
        if running != {"intra_op_threads": intra_op, "inter_op_threads": inter_op}:
            say(
                f"TensorFlow is already running in this process with {running} (0 means all "
                "cores): the thread settings of the run do not act"
            )


def _threads() -> dict[str, int]:
    return {
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
    }


def device_name() -> str:
    """Names the device that networks are trained on."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        return str(tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU"))
    return f"CPU ({platform.machine()})"


def conditions() -> dict[str, Any]:
    """Returns the conditions of this process, to be kept in a manifest."""
    found: dict[str, Any] = {"python": platform.python_version(), "device": device_name()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    simd = np.show_config(mode="dicts")
    assert simd is not None
    found["instruction_set"] = sorted(simd["SIMD Extensions"].get("found", []))
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return found | _threads() | variables


def differing(saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Lists the conditions that are not what they were, as readable pairs."""
    return [
        f"{name} was {saved.get(name)}, is {current.get(name)}"
        for name in sorted(saved.keys() | current.keys())
        if saved.get(name) != current.get(name)
    ]
