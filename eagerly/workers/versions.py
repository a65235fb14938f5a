"""Package versions and the instruction set, on which a collector's results depend."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

import eagerly

_PACKAGES = ("gymnasium", "mujoco", "numpy")


def surroundings() -> dict[str, str]:
    """Returns the versions and instruction set that all collectors of a run must share."""
    found = {"Python": platform.python_version(), "eagerly": eagerly.__version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    pools = [pool for pool in threadpool_info() if "architecture" in pool]
    own = [pool for pool in pools if "numpy" in pool["filepath"]]  # SciPy may bundle another BLAS
    kernels = {pool["architecture"] for pool in own or pools}
    config: Any = np.show_config(mode="dicts")
    extensions = config["SIMD Extensions"].get("found", [])
    found["instruction set"] = " ".join([platform.machine(), *sorted(kernels), *extensions])
    return found


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Describes how a collector differs from this process; "" if it does not."""
    return ", ".join(
        f"{name} {there.get(name, 'unknown')} (here {own})"
        for name, own in here.items()
        if there.get(name) != own
    )
