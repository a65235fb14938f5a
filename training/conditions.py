"""What bit-exact continuation relies on: threads, versions, instruction set, device."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

import numpy as np

from eagerly.training.hardware import device_name, threads

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
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
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
