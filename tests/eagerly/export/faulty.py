"""A C converter with the fault that the environment variable FAULT names."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.export import c
from eagerly.policies.network import ActorNetwork

refusal = c.refusal


def convert(network: ActorNetwork, precision: str, folder: Path, **more: Any) -> dict[str, Any]:
    fault = os.environ["FAULT"]
    (folder / "begun").touch()
    if fault == "aborts":
        os.abort()
    if fault == "terminated":
        Path(os.environ["CHILD"]).write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
    weights = dict(network.weights)
    kernels = [name for name in weights if name.endswith("kernel")]
    if fault == "no weights":
        weights |= {name: np.zeros_like(weights[name]) for name in kernels}
    made = c.convert(ActorNetwork(network.architecture, weights), precision, folder, **more)
    if fault == "NaN":
        text = (folder / "policy.c").read_text()
        (folder / "policy.c").write_text(text.replace("tanhf(", "NAN * tanhf("))
    if fault == "forgotten":
        (folder / "policy.c").unlink()
    return made
