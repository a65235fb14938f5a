"""Writes episodes in the layout of Minari, without needing Minari.

The layout is that of `MinariStorage` and `HDF5Storage` in Minari 0.5 (Farama Foundation).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.datasets.fields import MINARI, named_leaves
from eagerly.datasets.hdf5 import h5py_module
from eagerly.errors import UsageError
from eagerly.spaces.observations import entry_values

MAIN_FILE, METADATA_FILE = "main_data.hdf5", "metadata.json"
_VERSION = "0.5.0"  # the oldest version of Minari that reads the layout


class MinariWriter:
    """Writes episodes to an HDF5 file. `minari_writer` creates it.

    Args:
        file: The file, opened with h5py.
        observation_space, action_space: The spaces.

    Attributes:
        episodes, steps: Numbers of episodes and steps written.
    """

    def __init__(
        self,
        file: Any,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> None:
        self._file = file
        self._spaces = observation_space, action_space
        self.episodes = self.steps = 0

    def write(
        self,
        observations: list[Any],
        actions: list[Any],
        rewards: list[float],
        *,
        terminated: bool,
        truncated: bool,
        seed: int,
    ) -> None:
        """Writes an episode of T steps.

        Args:
            observations: T + 1 elements of the observation space, from the reset on.
            actions: T elements of the action space.
            rewards: T rewards.
            terminated: Whether the last step terminated the episode.
            truncated: Whether the last step truncated it.
            seed: Seed of the reset.
        """
        steps = len(actions)
        group = self._file.create_group(f"episode_{self.episodes}")
        group.attrs["id"], group.attrs["seed"] = self.episodes, seed
        group.attrs["total_steps"] = steps
        ends = np.zeros((2, steps), bool)
        ends[:, -1] = terminated, truncated
        fields = {
            **_columns(MINARI.observations, self._spaces[0], observations),
            **_columns(MINARI.actions, self._spaces[1], actions),
            MINARI.rewards: np.array(rewards, np.float64),
            MINARI.terminated: ends[0],
            MINARI.truncated: ends[1],
        }
        for name, values in fields.items():
            group.create_dataset(name, data=values)
        group.create_group("infos")  # Minari cannot print episodes without it
        self.episodes += 1
        self.steps += steps

    def metadata(self, size: int, **more: Any) -> dict[str, Any]:
        """Returns the content of `metadata.json`.

        Args:
            size: Size of the HDF5 file in bytes.
            **more: Further entries, such as `dataset_id` and `algorithm_name`.
        """
        observation_space, action_space = self._spaces
        return {
            "total_episodes": self.episodes,
            "total_steps": self.steps,
            "data_format": "hdf5",
            "jpeg_encoding": False,  # JPEG would change images
            "observation_space": json.dumps(minari_space(observation_space)),
            "action_space": json.dumps(minari_space(action_space)),
            "minari_version": _VERSION,
            "dataset_size": round(size / 1e6, 1),  # in megabytes
        } | more


@contextmanager
def minari_writer(
    path: Path,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
) -> Iterator[MinariWriter]:
    """Creates an HDF5 file and yields its writer. Equal episodes give identical bytes.

    Raises:
        UsageError: If h5py is missing, or Minari has no form for a space.
        FileExistsError: If the file exists.
    """
    for space in (observation_space, action_space):
        minari_space(space)
    with h5py_module().File(path, "x") as file:
        yield MinariWriter(file, observation_space, action_space)


def minari_space(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """Returns the JSON form of a space in Minari's metadata.

    Raises:
        UsageError: If the space is not a `Box`, a discrete space, or a `Dict` or `Tuple` of these.
    """
    if isinstance(space, spaces.Dict):
        inner = {key: minari_space(part) for key, part in space.spaces.items()}
        return {"type": "Dict", "subspaces": inner}
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "subspaces": [minari_space(part) for part in space.spaces]}
    about: Mapping[str, Any]
    if isinstance(space, spaces.Box):
        about = {"shape": list(space.shape), "low": space.low.tolist(), "high": space.high.tolist()}
    elif isinstance(space, spaces.Discrete):
        about = {"start": int(space.start), "n": int(space.n)}
    elif isinstance(space, spaces.MultiDiscrete):
        about = {"nvec": space.nvec.tolist(), "start": space.start.tolist()}
    elif isinstance(space, spaces.MultiBinary):
        shape = list(space.shape)
        about = {"n": shape if len(shape) > 1 else shape[0]}
    else:
        raise UsageError(f"recorded spaces must be a Box or a discrete space; got {space}")
    return {"type": type(space).__name__, "dtype": str(space.dtype), **about}


def _columns(name: str, space: gymnasium.Space[Any], values: list[Any]) -> dict[str, np.ndarray]:
    """Stacks elements of a space into one array per leaf."""
    columns = {}
    of_leaves = zip(*(entry_values(space, value) for value in values), strict=True)
    for (path, leaf), found in zip(named_leaves(name, space), of_leaves, strict=True):
        columns[path] = np.stack([np.asarray(value, leaf.dtype) for value in found])
    return columns
