"""The machine: device, threads, memory, and what bit-exact continuation relies on."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import tensorflow as tf

from eagerly.errors import RunError
from eagerly.quiet import find_devices

_log = logging.getLogger(__name__)
_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16"}
_CPU_FLAGS = Path("/proc/cpuinfo")


def set_device(device: str) -> None:
    """Chooses the device of this process: "auto" takes a GPU where there is one.

    A GPU gives memory as it is needed, and operations that repeat themselves bit for bit.

    Raises:
        RunError: If a GPU is asked for and none is found.
    """
    find_devices()
    gpus = tf.config.list_physical_devices("GPU")
    if device == "gpu" and not gpus:
        built = "" if tf.test.is_built_with_cuda() else " This TensorFlow is built without CUDA."
        raise RunError(
            f"--device gpu: TensorFlow finds no GPU.{built} On Linux with an NVIDIA driver: "
            "pip install 'eagerly[gpu]'. If that is installed, TF_CPP_MIN_LOG_LEVEL=0 shows why "
            "TensorFlow does not use the GPU."
        )
    used = [] if device == "cpu" else gpus[:1]
    try:
        if used != gpus:
            tf.config.set_visible_devices(used, "GPU")
        for gpu in used:
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError:  # it was started before
        if tf.config.get_visible_devices("GPU") != used:
            _log.warning(
                f"TensorFlow is already running in this process with other devices: --device "
                f"{device} does not act"
            )
    if used:
        tf.config.experimental.enable_op_determinism()


def set_threads(intra_op: int, inter_op: int) -> None:
    """Fixes TensorFlow's thread counts; says so where the process has started others already."""
    try:
        tf.config.threading.set_intra_op_parallelism_threads(intra_op)
        tf.config.threading.set_inter_op_parallelism_threads(inter_op)
    except RuntimeError:
        running = threads()
        if running != {"intra_op_threads": intra_op, "inter_op_threads": inter_op}:
            _log.warning(
                f"TensorFlow is already running in this process with {running} (0 means all "
                "cores): the thread settings of the run do not act"
            )


def threads() -> dict[str, int]:
    """Returns the thread counts of this process; 0 means all cores."""
    return {
        "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads(),
        "inter_op_threads": tf.config.threading.get_inter_op_parallelism_threads(),
    }


def gpu() -> tf.config.PhysicalDevice | None:
    """Returns the GPU that this process trains on."""
    return next(iter(tf.config.get_visible_devices("GPU")), None)


def device_name() -> str:
    """Names the device that networks are trained on."""
    used = gpu()
    if used is None:
        return f"CPU ({platform.machine()})"
    return str(tf.config.experimental.get_device_details(used).get("device_name", "GPU"))


def continuation_note(*, restores: bool, repeats: bool | None) -> str:
    """Says whether a continued run is the run that was not stopped, on the device in use.

    Args:
        restores: Whether episodes in progress are brought back.
        repeats: Whether the environment was seen to repeat itself from its seed; None: that is
            not known.
    """
    kept = "networks, replay buffer and random states are restored"
    if not restores:
        return f"not bit for bit: episodes begin afresh (--restore-episodes no); {kept}"
    if repeats is False:
        return (
            "not bit for bit: the environment does not repeat itself from its seed, and an episode "
            f"that does not come back begins afresh; {kept}"
        )
    seen = "as it just did" if repeats else "which this start did not check"
    condition = f"if the environment repeats itself from its seed, {seen}"
    if gpu() is None:
        return f"bit for bit, with the same versions, threads and processor, {condition}"
    return (
        f"with TensorFlow's deterministic operations, {condition}; that this is bit for bit on a "
        "GPU was never measured: `make prove-resume` in a clone does it"
    )


def check_precision(precision: str, mode: str) -> None:
    """Refuses a precision that would only cost here, and warns of one that does not pay.

    Raises:
        RunError: If this is a CPU without bfloat16 instructions and "mixed_bfloat16" is asked for.
    """
    if precision != "mixed_bfloat16" or gpu() is not None:
        return
    flags = _cpu_flags()
    if flags is None:
        _log.warning(
            "whether this processor has bfloat16 instructions is unknown: without them "
            "mixed_bfloat16 is slower than float32"
        )
    elif not flags & _BFLOAT16_FLAGS:
        raise RunError(
            f"this processor has no bfloat16 instructions ({', '.join(sorted(_BFLOAT16_FLAGS))}): "
            "mixed_bfloat16 would be slower than float32 here; leave --precision float32"
        )
    if mode == "xla":
        _log.warning(
            "XLA does not use the bfloat16 instructions of a CPU: mixed_bfloat16 is slower than "
            "float32 in this mode; --mode graph --intra-op-threads 1 --inter-op-threads 2 uses them"
        )


def _cpu_flags() -> set[str] | None:
    """Reads what instructions the processor has; None where the system does not tell."""
    try:
        lines = _CPU_FLAGS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    flags = [line.partition(":")[2].split() for line in lines if line.startswith("flags")]
    return set(flags[0]) if flags else None


_CGROUP = Path("/sys/fs/cgroup")
# Limit and use of the control group that a container's processes are in, of version 2 and 1, and
# what of the use is files that were read or written: it makes way for whoever needs memory.
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def available_memory() -> int:
    """Returns the bytes that this process can still take: the machine's, or its container's."""
    available = int(psutil.virtual_memory().available)
    for limit, used, statistics, files in _LIMITS:
        try:
            left = int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text())
            lines = (_CGROUP / statistics).read_text().splitlines()
            left += int(dict(line.split() for line in lines).get(files, 0))
        except (OSError, ValueError):  # none is set, or none here
            continue
        available = min(available, max(left, 0))
    return available


def check_memory(needed: int, what: str, advice: str) -> None:
    """Refuses what will not fit.

    Args:
        needed: Bytes.
        what: What needs them.
        advice: What to do otherwise.

    Raises:
        RunError: If they are more than is available, with both numbers.
    """
    available = available_memory()
    if needed > available:
        raise RunError(
            f"{what} needs {gigabytes(needed)} of memory, {gigabytes(available)} are available: "
            f"{advice}"
        )


def gigabytes(count: int) -> str:
    """Writes a number of bytes."""
    return f"{count / 2**30:.2f} GiB"


# What is set in the environment of the process and can change the last bits.
_VARIABLES = (
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_XLA_FLAGS",
    "XLA_FLAGS",
    "TF_DETERMINISTIC_OPS",
    "NVIDIA_TF32_OVERRIDE",
)
_PACKAGES = ("eagerly", "tensorflow", "keras", "numpy", "gymnasium", "mujoco")


def conditions() -> dict[str, Any]:
    """Returns the conditions of this process, to be kept in a manifest."""
    found: dict[str, Any] = {"python": platform.python_version(), "device": device_name()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    simd = np.show_config(mode="dicts")
    assert simd is not None
    found["instruction_set"] = sorted(simd["SIMD Extensions"].get("found", []))
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return found | threads() | variables


def differing(saved: dict[str, Any], current: dict[str, Any]) -> list[str]:
    """Lists the conditions that are not what they were, as readable pairs."""
    return [
        f"{name} was {saved.get(name)}, is {current.get(name)}"
        for name in sorted(saved.keys() | current.keys())
        if saved.get(name) != current.get(name)
    ]
