"""Builds and writes the `policy.json` of an export."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.environments.factory import environment_name
from eagerly.export.formats import Format
from eagerly.export.model_card import CARD
from eagerly.export.runner import FORMAT
from eagerly.policies.architecture import ActorArchitecture, MemoryCore, StateEmbedding
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import CLIP
from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations, document_of, text_of
from eagerly.state import sealed
from eagerly.storage.run import Run
from eagerly.version import __version__


def facts_of(run: Run, policy: Policy) -> dict[str, Any]:
    """Returns the `run` entry of `policy.json`.

    `env_kwargs` is omitted, because it may contain a secret such as a simulator's license key.
    """
    return {
        "agent": run.agent,
        "env": environment_name(run.config.env),
        "seed": run.config.seed,
        "which": policy.which,
        "steps": policy.steps,
        "wrappers": list(run.settings()["wrapper"]),
    }


def description_of(
    network: ActorNetwork, layout: tuple[Observations, Actions], model: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the entries of `policy.json` that describe the policy and suffice to run it.

    Args:
        network: The exported network.
        layout: The layout of observations and actions.
        model: The converter's description of the model, with its format and precision.
    """
    observations, actions = layout
    architecture = network.architecture
    core, normalization = architecture.encoder, None
    if moments := network.moments:
        mean, scale = (part[: architecture.visible].astype(float).tolist() for part in moments)
        normalization = {"mean": mean, "scale": scale, "clip": CLIP}
    count = actions.continuous
    return {
        "format": FORMAT,
        "eagerly": __version__,
        "model": dict(model),
        "network": {
            "hidden_sizes": list(architecture.hidden_sizes),
            "activation": architecture.activation,
            "layer_norm": architecture.layer_norm,
            "encoder_units": getattr(core, "units", None),
            "embedding": dataclasses.asdict(core) if isinstance(core, StateEmbedding) else None,
            "parameters": architecture.count_parameters(),
        },
        "observation": {
            "space": document_of(observations.space, describe=True),
            "ignored": sorted(observations.ignored),
            "size": observations.size,
            "masked": observations.masked,
            "entries": [
                {
                    "path": entry.path,
                    "kind": entry.kind,
                    "shape": list(entry.shape),
                    "dtype": entry.dtype.name,
                    "sizes": list(entry.sizes),
                    "firsts": list(entry.firsts),
                    "start": entry.start,
                    "stop": entry.stop,
                }
                for entry in observations.entries
            ],
        },
        "preprocessing": None,
        "normalization": normalization,
        "memory": _memory(architecture),
        "action": {
            "space": document_of(actions.space),
            "size": actions.size,
            "continuous": count,
            "choices": list(actions.choices),
            "firsts": [int(value) for value in actions.low[count:]],
            "low": actions.low.astype(float).tolist(),
            "high": actions.high.astype(float).tolist(),
            "dtype": actions.dtype.name,
        },
        # Without ignored entries and those that only critics see, which a robot need not provide.
        "words": {
            "observation": text_of(observations.kept_space),
            "action": text_of(actions.space),
        },
    }


def preprocessing_of(steps: Sequence[Mapping[str, Any]], raw: np.ndarray) -> dict[str, Any]:
    """Returns the `preprocessing` entry of `policy.json`.

    Args:
        steps: The steps that the runner repeats, see `Repeated`.
        raw: Raw observations, `[N, ...]`.
    """
    return {"shape": list(raw.shape[1:]), "dtype": raw.dtype.name, "steps": list(steps)}


def _memory(architecture: ActorArchitecture) -> dict[str, Any] | None:
    core = architecture.encoder
    if not isinstance(core, MemoryCore):
        return None
    return {"kind": core.kind, "states": [list(shape) for shape in core.state_shapes()]}


def versions_of(kind: Format) -> dict[str, str]:
    """Returns the versions of Python and of the packages that convert and run a format."""
    packages = {"numpy": "numpy", **kind.packages}
    found = {package: _version(module, package) for module, package in packages.items()}
    return {"python": platform.python_version(), **found}


def _version(module: str, package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # the module of another package, as onnxruntime-gpu
        return str(getattr(importlib.import_module(module), "__version__", "unknown"))


def write_document(folder: Path, about: Mapping[str, Any]) -> dict[str, Any]:
    """Writes `policy.json`, with the size and checksum of every other file.

    `MODEL_CARD.md` is excluded, because people may edit it.

    Returns:
        The contents of `policy.json`.
    """
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in ("policy.json", CARD):
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files[name] = {"bytes": len(content), "sha256": digest}
    # Tuples become lists, as when `policy.json` is read back.
    written: dict[str, Any] = json.loads(json.dumps({**about, "files": files}, allow_nan=False))
    (folder / "policy.json").write_bytes(sealed(written))
    return written
