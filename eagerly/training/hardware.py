"""Device, threads, precision, and the conditions for bit-exact resuming."""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.errors import UsageError
from eagerly.quiet import find_devices

_log = logging.getLogger(__name__)
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}
_CPU_FLAGS = Path("/proc/cpuinfo")


def set_device(device: str, replicas: int = 1) -> None:
    """Selects the devices of this process, one per replica; "auto" selects GPUs if available.

    On a GPU, memory is allocated on demand and TensorFlow's deterministic operations are enabled.
    Without a GPU, several replicas get logical CPU devices, which share all cores.

    Raises:
        RunError: If `device` is "gpu" and TensorFlow finds none.
    """
    find_devices()
    gpus = tf.config.list_physical_devices("GPU")
    if device == "gpu" and not gpus:
        built = "" if tf.test.is_built_with_cuda() else " This TensorFlow has no CUDA support."
        raise UsageError(
            f"--device gpu: TensorFlow found no GPU.{built} On Linux with an NVIDIA driver: "
            "pip install 'eagerly[gpu]'. If it is installed, TF_CPP_MIN_LOG_LEVEL=0 shows why "
            "TensorFlow does not use the GPU."
        )
    used = [] if device == "cpu" else gpus[:replicas]
    try:
        if used != gpus:
            tf.config.set_visible_devices(used, "GPU")
        for gpu in used:
            tf.config.experimental.set_memory_growth(gpu, True)
        if replicas > 1 and not used:
            parts = [tf.config.LogicalDeviceConfiguration()] * replicas
            cpu = tf.config.list_physical_devices("CPU")[0]
            tf.config.set_logical_device_configuration(cpu, parts)
    except RuntimeError:  # TensorFlow is already initialized
        if tf.config.get_visible_devices("GPU") != used:
            _log.warning(
                f"TensorFlow is already initialized in this process with other devices: --device "
                f"{device} has no effect"
            )
    if used:
        tf.config.experimental.enable_op_determinism()


def set_threads(intra_op: int, inter_op: int) -> None:
    """Sets TensorFlow's thread counts; logs a warning if different ones are already in effect."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(intra_op)
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)
    except RuntimeError:
        running = threads()
        if running != {"intra_op_threads": intra_op, "inter_op_threads": inter_op}:
            _log.warning(
                f"TensorFlow is already initialized in this process with {running} (0 means all "
                "cores): the run's thread settings have no effect"
            )


def threads() -> dict[str, int]:
    """Returns TensorFlow's thread counts in this process; 0 means all cores."""
    return {
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
    }


def gpu() -> tf.config.PhysicalDevice | None:
    """Returns the GPU that this process trains on; None if it trains on the CPU."""
    return next(iter(tf.config.get_visible_devices("GPU")), None)


def device_name() -> str:
    """Returns the name of the device that networks are trained on."""
    used = gpu()
    if used is None:
        return f"CPU ({platform.machine()})"
    return str(tf.config.experimental.get_device_details(used).get("device_name", "GPU"))


def continuation_note(*, restores: bool, repeats: bool | None) -> str:
    """Returns a message on how closely a resumed run matches an uninterrupted one on this device.

    Args:
        restores: Whether episodes in progress are restored.
        repeats: Whether the environment was found to be deterministic given its seed; None: not
            checked in this session.
    """
    kept = "networks, replay buffer and random states are restored"
    if not restores:
        return f"not bit for bit: episodes start over (--restore-episodes no); {kept}"
    if repeats is False:
        return (
            "not bit for bit: the environment is not deterministic given its seed, and episodes "
            f"that cannot be restored start over; {kept}"
        )
    seen = "as the check found" if repeats else "not checked in this session"
    condition = f"if the environment is deterministic given its seed, {seen}"
    if gpu() is None:
        return f"bit for bit, with the same versions, threads and CPU, {condition}"
    return (
        f"with TensorFlow's deterministic operations, {condition}; never measured to be bit for "
        'bit on a GPU (see "Stop, kill and resume a run" in the documentation)'
    )


def check_precision(precision: str, mode: str) -> None:
    """Checks that the precision can be faster than float32 here; logs a warning if it may not be.

    Raises:
        RunError: If the precision is "mixed_bfloat16" on a CPU without bfloat16 instructions.
    """
    if precision != "mixed_bfloat16" or gpu() is not None:
        return
    flags = _cpu_flags()
    if flags is None:
        _log.warning(
            "cannot determine whether this CPU has bfloat16 instructions: without them, "
            "mixed_bfloat16 is slower than float32"
        )
    elif not flags & _BFLOAT16_FLAGS:
        raise UsageError(
            f"this CPU has no bfloat16 instructions ({', '.join(sorted(_BFLOAT16_FLAGS))}): "
            "mixed_bfloat16 would be slower than float32; use --precision float32"
        )
    if mode == "xla":
        _log.warning(
            "XLA does not use a CPU's bfloat16 instructions: mixed_bfloat16 is slower than float32 "
            "in this mode; --mode graph --intra-op-threads 1 --inter-op-threads 2 uses them"
        )


def _cpu_flags() -> set[str] | None:
    """Reads the CPU's instruction set flags; returns None if the system does not report them."""
    try:
        lines = _CPU_FLAGS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return set(flags[0]) if flags else None


# Environment variables that can change the last bits of results.
_VARIABLES = (
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "TF_DETERMINISTIC_OPS",
    "NVIDIA_TF32_OVERRIDE",
)
_PACKAGES = ("eagerly", "tensorflow", "keras", "numpy", "gymnasium", "mujoco")


def conditions() -> dict[str, Any]:
    """Returns the conditions that can affect the bits of results, for a checkpoint's manifest."""
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return {**_software(), "device": device_name(), **threads(), **variables}


@functools.cache
def _software() -> Mapping[str, Any]:
    """Returns the versions of all packages and NumPy's instruction set, which takes 20 ms."""
    found: dict[str, Any] = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    simd = np.show_config(mode="dicts")
    assert simd is not None
    found["instruction_set"] = sorted(simd["SIMD Extensions"].get("found", []))
    return MappingProxyType(found)


def differing(saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Returns a readable text for each condition that has changed."""
    return [
        f"{name} was {saved.get(name)}, is now {current.get(name)}"
        for name in sorted(saved.keys() | current.keys())
        if saved.get(name) != current.get(name)
    ]
