"""Opens logged data of any format and reads it in chunks of validated transitions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from eagerly.datasets.fields import Fields, nested
from eagerly.datasets.formats import (
    TABLES,
    blocks,
    check_names,
    found_names,
    kind_of,
    names_of,
    refusing,
)
from eagerly.datasets.hdf5 import has_episodes, hdf5_file
from eagerly.datasets.limits import size_of
from eagerly.datasets.steps import EpisodeReturns, Steps, regrouped, transitions_of_flat
from eagerly.errors import UsageError
from eagerly.storage.files import RunFiles

CHUNK_STEPS = 50_000
_CHUNK_BYTES = 2**28


@dataclass(frozen=True)
class Transitions:
    """n transitions, in the environment's units.

    Attributes:
        observations, actions, next_observations: Batches of the spaces: arrays `[n, ...]` in the
            dtypes of the spaces, in the structure of the spaces.
        rewards: `[n]`, float64, finite in float32.
        terminated: `[n]` bool; the discount is 0 there.
        truncated: `[n]` bool: the episode was cut after this transition by a time limit, a reset or
            the end of the file, or because the next transition is incomplete. The last transition
            of each episode is terminated or truncated.
    """

    observations: Any
    actions: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_observations: Any

    def __len__(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True)
class Summary:
    """Counts over a whole data file.

    Attributes:
        steps: Recorded steps.
        transitions: Complete transitions; the others have no next observation.
        episodes: Episodes, including cut ones.
        return_mean: Mean undiscounted episode return, including cut episodes.
    """

    steps: int
    transitions: int
    episodes: int
    return_mean: float

    def __str__(self) -> str:
        return (
            f"{self.transitions:,} transitions of {self.steps:,} steps in {self.episodes:,} "
            f"episodes, mean return {self.return_mean:,.1f}"
        )


class Dataset:
    """A data file whose layout matches the spaces. `open_dataset` creates it.

    Args:
        path: The file or folder, as the user named it.
        kind: "npz", "npy", "hdf5", "minari" or "csv".
        file: The file or folder to read.
        observation_space, action_space: The spaces.

    Attributes:
        path, kind, observation_space, action_space: As in the arguments.
        has_next_observations: Whether the file contains the observation after every step.
        summary: The counts, after `chunks` has read the whole file; None before.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        file: Path,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
    ) -> None:
        self.path, self.kind, self._file = path, kind, file
        self.observation_space, self.action_space = observation_space, action_space
        self.summary: Summary | None = None
        with refusing(path):
            found = found_names(kind, file)
            if kind == "hdf5" and has_episodes(found):
                self.kind = "minari"
            prefix = names_of(self.kind).next_observations
            self._stores_next = bool(prefix) and any(name.startswith(prefix) for name in found)
            self.has_next_observations = self._stores_next or self.kind == "minari"
            fields = self._fields()
            check_names(str(path), self.kind, fields, found)
            with TABLES[self.kind](file, fields):
                pass

    def chunks(self, steps: int = CHUNK_STEPS) -> Iterator[Transitions]:
        """Reads the file once and yields its transitions in order, at most `steps` at a time.

        Chunks of large observations are shorter: a chunk has at most 256 MiB.

        Raises:
            UsageError: If the file is damaged, a value is invalid, or there is no complete
                transition. If values exceed their bounds, the file is read to its end to count
                them, and the error is raised then; no invalid value is ever yielded.
        """
        returns, transitions, fields = EpisodeReturns(), 0, self._fields()
        bytes_per_step = sum(size_of(field.shape, field.dtype) for field in fields)
        steps = max(1, min(steps, _CHUNK_BYTES // bytes_per_step))
        with refusing(self.path):
            for part in self._parts(fields, steps, returns):
                if len(part) and not any(field.is_outside for field in fields):
                    transitions += len(part)
                    yield self._transitions(part)
            for field in fields:
                field.check_bounds()
            if not transitions:
                raise UsageError(
                    f"{self.path} must contain at least one complete transition; got "
                    f"{returns.steps:,} steps"
                )
        mean = returns.total / returns.episodes
        self.summary = Summary(returns.steps, transitions, returns.episodes, mean)

    def sha256(self) -> str:
        """Returns the SHA-256 of the file or, of a folder, of the names and hashes of its arrays.

        Only content that `chunks` reads is included.
        """
        with refusing(self.path):
            if self.kind != "npy":
                return RunFiles(self._file.parent).described(self._file.name)["sha256"]
            files, digest = RunFiles(self._file), hashlib.sha256()
            for name in sorted(f"{field.name}.npy" for field in self._fields()):
                digest.update(f"{name}\n{files.described(name)['sha256']}\n".encode())
            return digest.hexdigest()

    def _transitions(self, part: Steps) -> Transitions:
        def batch(space: gymnasium.Space[Any], leaves: list[np.ndarray]) -> Any:
            return nested(space, iter(leaves))

        return Transitions(
            batch(self.observation_space, part.observations),
            batch(self.action_space, part.actions),
            part.rewards,
            part.terminated,
            part.truncated,
            batch(self.observation_space, part.next_observations),
        )

    def _parts(self, fields: Fields, steps: int, returns: EpisodeReturns) -> Iterator[Steps]:
        if self.kind == "minari":
            with hdf5_file(self._file) as file:
                yield from regrouped(file.transitions(fields, steps, returns), steps)
            returns.finish()
            return
        with TABLES[self.kind](self._file, fields) as table:
            yield from transitions_of_flat(blocks(table, fields, steps), returns)

    def _fields(self) -> Fields:
        spaces = self.observation_space, self.action_space
        return Fields(str(self.path), names_of(self.kind), *spaces, stores_next=self._stores_next)


def open_dataset(
    path: str | Path,
    observation_space: gymnasium.Space[Any],
    action_space: gymnasium.Space[Any],
) -> Dataset:
    """Opens logged data and validates its layout. `Dataset.chunks` validates the values.

    Args:
        path: A file or folder in a supported format (documentation: Learn from logged data:
            offline RL). It must not be a link.
        observation_space: The space of the environment's observations; a `Box` or a discrete space,
            or a `Dict` or `Tuple` of these.
        action_space: The space of the environment's actions, whose bounds are checked.

    Raises:
        UsageError: If the path is in no supported format, or its fields do not match the spaces.
    """
    path = Path(path)
    with refusing(path):
        kind, file = kind_of(path)
    return Dataset(path, kind, file, observation_space, action_space)
