"""Names, shapes and dtypes of the fields of logged data, and checks of their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.errors import UsageError
from eagerly.spaces.description import inner_spaces
from eagerly.spaces.observations import choices_of


@dataclass(frozen=True)
class Names:
    """The names of the fields in a format."""

    observations: str
    actions: str
    rewards: str
    terminated: str
    truncated: str
    next_observations: str


D4RL = Names("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
MINARI = Names("observations", "actions", "rewards", "terminations", "truncations", "")
CSV = Names("observation", "action", "reward", "terminated", "truncated", "next_observation")
COUNTING = "(rows count from 0)"  # after row numbers in messages


class Field:
    """One field: an array with one element per step.

    Args:
        path: The data file, for messages.
        name: Name of the field in the file.
        shape: Shape of an element.
        dtype: Dtype of the elements that `convert` returns.
        low, high: Bounds of the elements, or None if every finite number is valid.
    """

    def __init__(
        self,
        path: str,
        name: str,
        shape: tuple[int, ...],
        dtype: Any,
        low: Any = None,
        high: Any = None,
    ) -> None:
        self.name, self.shape, self.dtype = name, shape, np.dtype(dtype)
        self._path, self._low, self._high = path, low, high
        self._where, self._row = path, 0
        self._rows = self._outside = 0
        self._worst, self._worst_text = 0.0, ""

    def check(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Validates the shape `[N, ...]` and the dtype of the whole field, before it is read.

        Raises:
            UsageError: If they do not match the space.
        """
        if dtype.kind not in "biuf":
            kind = "objects, which could execute code" if dtype.hasobject else str(dtype)
            raise UsageError(
                f"{self._where}: {self.name} must contain numbers, such as float32; got {kind}"
            )
        if shape[1:] != self.shape or not shape or shape[0] < 0:
            expected = ", ".join(map(str, ("N", *self.shape)))
            got = ", ".join(map(str, shape))
            raise UsageError(
                f"{self._where}: {self.name} must have shape [{expected}]; got [{got}]"
            )

    def begin(self, where: str) -> None:
        """Starts an array of the field, such as that of an episode, named in messages."""
        self._where, self._row = where, 0

    def convert(self, values: np.ndarray) -> np.ndarray:
        """Returns validated values `[n, ...]` in the field's dtype.

        Values outside the bounds are counted; `check_bounds` reports them.

        Raises:
            UsageError: If a value is NaN, infinite or, where the space is discrete, not an integer.
        """
        with np.errstate(invalid="ignore", over="ignore"):
            converted = values.astype(self.dtype, copy=False)
            if self.dtype.kind == "f":
                valid = np.isfinite(converted.astype(np.float32, copy=False))
                expected = "finite in float32"
            else:
                valid = converted == values
                expected = "True, False, 1 or 0" if self.dtype == bool else f"{self.dtype}"
        if not valid.all():
            at = tuple(np.argwhere(~valid)[0])
            raise UsageError(
                f"{self._where}: {self.name} must be {expected}; got {values[at]} in row "
                f"{self._row + at[0]:,}{_place(at[1:])} {COUNTING}"
            )
        if self._low is not None:
            self._count_outside(converted)
        self._row += len(values)
        self._rows += len(values)
        return converted

    def _count_outside(self, values: np.ndarray) -> None:
        below, above = values < self._low, values > self._high
        outside = (below | above).any(axis=tuple(range(1, values.ndim)))
        if not outside.any():
            return
        self._outside += int(outside.sum())
        beyond = np.maximum(self._low - values.astype(np.float64), values - self._high)
        at = tuple(map(int, np.unravel_index(beyond.argmax(), beyond.shape)))
        if beyond[at] > self._worst:
            low, high = (np.broadcast_to(e, self.shape)[at[1:]] for e in (self._low, self._high))
            self._worst = float(beyond[at])
            place = f"row {self._row + at[0]:,}{_place(at[1:])}"
            if self._where != self._path:
                place += f" of {self._where.removeprefix(self._path).strip(': ')}"
            self._worst_text = f"{values[at]:g} in {place}, outside [{low:g}, {high:g}]"

    @property
    def is_outside(self) -> bool:
        """True if a value so far was outside the bounds."""
        return self._outside > 0

    def check_bounds(self) -> None:
        """Reports the values outside the bounds, after all of them were converted.

        Raises:
            UsageError: If there are any. The message contains their number and the worst one.
        """
        if self._outside:
            raise UsageError(
                f"{self._path}: {self.name} must be within the bounds of the environment's space, "
                f"in its units; got {self._outside:,} of {self._rows:,} rows outside, the worst "
                f"with {self._worst_text} {COUNTING}"
            )


class Fields:
    """All fields of a data file whose spaces are known.

    Args:
        path: The data file, for messages.
        names: The names in the format of the file.
        observation_space, action_space: The spaces.
        stores_next: Whether the file contains the next observations.

    Attributes:
        names: The names.
        observations, actions, next_observations: One field per leaf of the space. The last list is
            empty if the file does not contain them.
        rewards, terminated, truncated: The other fields.
    """

    def __init__(
        self,
        path: str,
        names: Names,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        *,
        stores_next: bool,
    ) -> None:
        def fields(name: str, space: gymnasium.Space[Any], *, bounded: bool) -> list[Field]:
            return [_field(path, *leaf, bounded=bounded) for leaf in named_leaves(name, space)]

        self.names = names
        self.observations = fields(names.observations, observation_space, bounded=False)
        self.actions = fields(names.actions, action_space, bounded=True)
        self.rewards = Field(path, names.rewards, (), np.float64)
        self.terminated = Field(path, names.terminated, (), bool)
        self.truncated = Field(path, names.truncated, (), bool)
        self.next_observations: list[Field] = []
        if stores_next:
            self.next_observations = fields(
                names.next_observations, observation_space, bounded=False
            )

    def __iter__(self) -> Iterator[Field]:
        yield from (*self.observations, *self.actions)
        yield from (self.rewards, self.terminated, self.truncated)
        yield from self.next_observations


def named_leaves(
    name: str, space: gymnasium.Space[Any]
) -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    """Yields the name and space of each leaf, such as "observations/goal", in the space's order.

    Entries of a `Tuple` are named `_index_0`, `_index_1` and so on, as in Minari.
    """
    inner = inner_spaces(space)
    if inner is None:
        yield name, space
        return
    for key, part in inner.items():
        own = key if isinstance(space, spaces.Dict) else f"_index_{key}"
        yield from named_leaves(f"{name}/{own}", part)


def nested(space: gymnasium.Space[Any], values: Iterator[Any]) -> Any:
    """Builds the structure of a space from the values of its leaves, in the space's order."""
    inner = inner_spaces(space)
    if inner is None:
        return next(values)
    parts = {key: nested(part, values) for key, part in inner.items()}
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def _field(path: str, name: str, space: gymnasium.Space[Any], *, bounded: bool) -> Field:
    shape = tuple(space.shape or ())
    choices = choices_of(space)
    if choices is not None:
        sizes, firsts = (np.reshape(part, shape) for part in choices)
        return Field(path, name, shape, space.dtype, firsts, firsts + sizes - 1)
    if not isinstance(space, spaces.Box):
        raise UsageError(f"{path}: {name} must be a Box or a discrete space; got {space}")
    # The bounds of observations are only documentation.
    ends = (space.low, space.high) if bounded else (None, None)
    return Field(path, name, shape, space.dtype, *ends)


def _place(at: tuple[Any, ...]) -> str:
    if not at:
        return ""
    return f", dimension {at[0]}" if len(at) == 1 else f", dimension {tuple(map(int, at))}"
