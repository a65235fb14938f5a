"""Writes small data files in every format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from gymnasium.spaces import Box

OBSERVATIONS = Box(-np.inf, np.inf, (2,), np.float64)
ACTIONS = Box(np.float32(-0.4), np.float32(0.4), (1,), np.float32)
FLAT = {"npz": "data.npz", "npy": "data", "hdf5": "data.hdf5", "csv": "data.csv"}


def arrays(
    count: int = 7, terminals: tuple[int, ...] = (2,), timeouts: tuple[int, ...] = (5,)
) -> Any:
    """Returns D4RL's fields: observation i is [i, -i], action 0.4, reward 2 ** i."""
    index = np.arange(count)
    return {
        "observations": np.stack([index, -index], axis=1).astype(np.float32),
        "actions": np.full((count, 1), 0.4, np.float32),
        "rewards": 2.0**index,
        "terminals": np.isin(index, terminals),
        "timeouts": np.isin(index, timeouts),
    }


def write(path: Path, kind: str, fields: Mapping[str, np.ndarray]) -> Path:
    """Writes flat fields in a format and returns the path."""
    path = path / FLAT[kind]
    if kind == "npz":
        np.savez(path, **fields)
    elif kind == "npy":
        for name, values in fields.items():
            file = path / f"{name}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, values)
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            for name, values in fields.items():
                file.create_dataset(name, data=values)
    else:
        path.write_text(csv_text(fields))
    return path


def csv_text(fields: Mapping[str, np.ndarray]) -> str:
    """Returns the text of a CSV file with D4RL's fields."""
    columns: dict[str, Any] = {}
    flags = {"rewards": "reward", "terminals": "terminated", "timeouts": "truncated"}
    for name, values in fields.items():
        if name in flags:
            columns[flags[name]] = values
            continue
        root, *more = name.split("/")
        stem = "/".join([root.removesuffix("s"), *more])
        flat = values.reshape(len(values), -1)
        columns |= {f"{stem}_{i}": flat[:, i] for i in range(flat.shape[1])}
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in rows), ""])


def episode(count: int = 3, first: int = 0, **changes: Any) -> dict[str, Any]:
    """Returns the fields of an episode in Minari's layout, which is truncated at its end."""
    index = np.arange(first, first + count + 1)
    ends = np.arange(count) == count - 1
    return {
        "observations": np.stack([index, -index], axis=1).astype(np.float64),
        "actions": np.full((count, 1), 0.4, np.float32),
        "rewards": 2.0 ** index[:-1],
        "terminations": np.zeros(count, bool),
        "truncations": ends,
    } | changes


def write_minari(path: Path, *episodes: Mapping[str, Any]) -> Path:
    """Writes episodes in Minari's layout."""
    with h5py.File(path, "w") as file:
        for number, fields in enumerate(episodes):
            for name, values in fields.items():
                file.create_dataset(f"episode_{number}/{name}", data=values)
    return path
