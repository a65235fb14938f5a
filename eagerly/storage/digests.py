"""Digests of a run's results, used to check that two runs are identical.

Wall-clock values are excluded: speed curves and event timestamps.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from eagerly.state import flatten_state
from eagerly.storage.checkpoint_reader import Checkpoint, required_checkpoint
from eagerly.storage.run import open_run

# Tags with wall-clock values, names, settings that may differ, or non-numeric data.
_LEFT_OUT = ("speed/", "_hparams_/", "settings", "custom_scalars__config__", "evaluation/video")
Point = tuple[str, int]


def digests(
    path: Path | str, points: dict[Point, list[np.ndarray]] | None = None
) -> dict[str, str]:
    """Returns a SHA-256 digest of each part of a run's newest checkpoint and of its curves.

    Args:
        path: The run directory.
        points: The result of `curves`, if the caller has already read them.

    Raises:
        RunError: If there is no intact checkpoint.
    """
    path = Path(path)
    run = open_run(path, None, {})
    saved = required_checkpoint(path)
    points = curves(path) if points is None else points
    rows = [saved.rows(segment) for segment in saved.manifest.replay] or [np.zeros(0)]
    return {
        **_variables(saved),
        "replay buffer": _of_arrays([np.concatenate(rows)[-run.config.replay_capacity :]]),
        **{name: _of_state(saved.state(name)) for name in saved.manifest.state},
        "steps and updates": _of_json([saved.manifest.steps, saved.manifest.updates]),
        "evaluations.csv": _of_bytes(
            [run.evaluations_path.read_bytes() if run.evaluations_path.exists() else b""]
        ),
        "TensorBoard: training returns": _of_points(points, "training/"),
        "TensorBoard: all scalars": _of_points(points, ""),
    }


def curves(path: Path) -> dict[Point, list[np.ndarray]]:
    """Returns all values written for each (tag, step), except wall-clock values.

    Each list has one element if the run wrote every point once. Points that TensorBoard would
    discard as orphaned are included.
    """
    events = EventAccumulator(
        str(path), size_guidance={"tensors": 0}, purge_orphaned_data=False
    ).Reload()
    found: dict[Point, list[np.ndarray]] = {}
    for tag in sorted(events.Tags()["tensors"]):
        if not tag.startswith(_LEFT_OUT):
            for event in events.Tensors(tag):
                value = tf.make_ndarray(event.tensor_proto)
                found.setdefault((tag, event.step), []).append(value)
    return found


def _variables(saved: Checkpoint) -> dict[str, str]:
    groups: dict[str, list[str]] = {}
    with saved.networks_prefix() as prefix:
        reader = tf.train.load_checkpoint(prefix)
        for name in sorted(reader.get_variable_to_shape_map()):
            if name != "_CHECKPOINTABLE_OBJECT_GRAPH":
                groups.setdefault(name.partition("/")[0].replace("_", " "), []).append(name)
        return {
            group: _of_arrays(np.asarray(reader.get_tensor(name)) for name in names)
            for group, names in groups.items()
        }


def _of_points(points: dict[Point, list[np.ndarray]], prefix: str) -> str:
    return _of_json(
        [
            [tag, step, [str(value.tolist()) for value in values]]
            for (tag, step), values in sorted(points.items())
            if tag.startswith(prefix)
        ]
    )


def _of_state(state: Any) -> str:
    document, arrays = flatten_state(state)
    return _of_json([document, _of_arrays(arrays[name] for name in sorted(arrays))])


def _of_arrays(arrays: Iterable[np.ndarray]) -> str:
    content = ((f"{a.dtype} {a.shape}".encode(), np.ascontiguousarray(a).tobytes()) for a in arrays)
    return _of_bytes(part for pair in content for part in pair)


def _of_json(document: Any) -> str:
    return _of_bytes([json.dumps(document, sort_keys=True).encode()])


def _of_bytes(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()
