"""Observations of any space as rows of numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.spaces.description import below, inner_spaces, text_of
from eagerly.spaces.ignoring import (
    ignored_paths,
    unread_message,
    without,
    without_values,
)

VECTOR, IMAGE, CHOICE = "vector", "image", "choice"


@dataclass(frozen=True)
class Entry:
    """One part of an observation, and the columns of a row that hold it.

    Attributes:
        path: Its name, such as "goal" or "robot/camera"; "" where it is the whole observation.
        kind: `VECTOR`, `IMAGE` or `CHOICE`.
        shape: Its shape in the space.
        dtype: Its dtype there.
        sizes: Of a choice, how many values each of its numbers has; they stand one-hot.
        firsts: Of a choice, the least of these values.
        start, stop: Its columns.
    """

    path: str
    kind: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    sizes: tuple[int, ...]
    firsts: tuple[int, ...]
    start: int
    stop: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Of an image, (H, W, channels), with what is stacked among the channels."""
        frames, *frame = self.frames
        return frame[0], frame[1], frame[2] * frames

    @property
    def frames(self) -> tuple[int, int, int, int]:
        """Of an image, (K, H, W, C): K frames, as `FrameStackObservation` stacks them.

        Its shape is (H, W), (H, W, C), (K, H, W) or (K, H, W, C). Of three axes the last is
        channels where it has up to 4 of them, or is the shortest.
        """
        shape = self.shape
        if len(shape) == 2:
            shape = 1, *shape, 1
        elif len(shape) == 3:
            shape = (1, *shape) if shape[2] <= max(4, min(shape[:2]) - 1) else (*shape, 1)
        frames, height, width, channels = shape
        return frames, height, width, channels


class Observations:
    """Lays observations of a space out as rows of O float32 numbers.

    Vectors come flattened, choices one-hot, images as their numbers from 0 to 255, in the order of
    the space; behind them, where actions can be masked, which choices are valid.

    Args:
        space: A `Box`, `Discrete`, `MultiDiscrete` or `MultiBinary`, or a `Dict` or `Tuple` of
            these. A `Box` of uint8 with two to four axes is an image, see `Entry.frames`.
        masked: M, the columns of a mask.
        ignored: Entries that are left out, by their paths, of any space. An observation may
            come with or without them, where they are in a `Dict`.

    Attributes:
        space: The space.
        entries: Its parts, without those that are left out.
        ignored: The paths of what is left out, and of each `Dict` or `Tuple` that is left empty.
        masked: M.
        size: O, all columns.

    Raises:
        ValueError: If the space is anything else; if a name of `ignored` is none of an entry, or
            nothing is left.
    """

    def __init__(
        self, space: gymnasium.Space[Any], masked: int = 0, ignored: Collection[str] = ()
    ) -> None:
        self.space, self.masked = space, masked
        self.ignored = ignored_paths(space, ignored)
        self.entries: list[Entry] = []
        kept = [(path, leaf) for path, leaf in leaves(space) if path not in self.ignored]
        unread = {path: leaf for path, leaf in kept if not _is_read(leaf)}
        if unread:
            raise ValueError(
                unread_message(unread, ",".join(ignored), others=len(unread) < len(kept))
            )
        stop = 0
        for path, leaf in kept:
            entry = _entry(path, leaf, stop)
            self.entries.append(entry)
            stop = entry.stop
        if not stop:
            raise ValueError(
                "observations must be a Box, a discrete space, or a Dict or Tuple of these, and "
                f"not empty; got {text_of(space)}"
            )
        paths = [entry.path for entry in self.entries]
        if len(set(paths)) < len(paths):
            raise ValueError(f"entries inside one another must have other names; got {paths}")
        self.size = stop + masked

    @property
    def kept_space(self) -> gymnasium.Space[Any]:
        """The space without what is left out; the space itself, if that is nothing."""
        return without(self.space, self.ignored)

    def kept(self, observation: Any) -> Any:
        """Returns an observation as `kept_space` has it; itself, if nothing is left out."""
        return without_values(self.space, observation, self.ignored)

    @property
    def is_row(self) -> bool:
        """Whether an observation is a row already: that of a flat `Box`, without a mask."""
        return (
            isinstance(self.space, spaces.Box)
            and len(self.space.shape) == 1
            and self.entries[0].kind == VECTOR
            and not self.masked
        )

    @property
    def is_one_vector(self) -> bool:
        """Whether there is one entry, and no image."""
        return len(self.entries) == 1 and self.entries[0].kind != IMAGE

    @property
    def images(self) -> list[Entry]:
        """The entries that are images."""
        return [entry for entry in self.entries if entry.kind == IMAGE]

    @property
    def scalable(self) -> np.ndarray:
        """Which columns have a unit that may be scaled, `[O]` bool: those of vectors."""
        columns = np.zeros(self.size, bool)
        for entry in self.entries:
            columns[entry.start : entry.stop] = entry.kind == VECTOR
        return columns

    def flatten(self, observation: Any, mask: np.ndarray | None = None) -> np.ndarray:
        """Lays out an observation, or a batch of N.

        Args:
            observation: As the space has it; of a batch each part begins with an axis N.
            mask: `[M]` or `[N, M]`, which choices are valid; None: all of them.

        Returns:
            `[O]` or `[N, O]`, float32.

        Raises:
            ValueError: If a part is missing, has another shape or dtype, or is no choice of its
                space; it names the part.
        """
        values = self.parts(observation)
        parts = [_numbers(entry, value) for entry, value in zip(self.entries, values, strict=True)]
        lead = parts[0].shape[:-1]
        rows = np.empty((*lead, self.size), np.float32)
        with np.errstate(over="ignore"):  # what becomes infinite is reported where it matters
            for entry, part in zip(self.entries, parts, strict=True):
                if part.shape[:-1] != lead:
                    raise ValueError(
                        f"observation{_at(entry.path)} must have as many rows as "
                        f"{self.entries[0].path!r}, {lead}; got {part.shape[:-1]}"
                    )
                rows[..., entry.start : entry.stop] = part
        if self.masked:
            if mask is not None and np.shape(mask) not in ((self.masked,), (*lead, self.masked)):
                raise ValueError(
                    f"mask must have shape {(*lead, self.masked)}; got {np.shape(mask)}"
                )
            rows[..., -self.masked :] = 1.0 if mask is None else mask
        return rows

    def parts(self, observation: Any) -> Iterator[Any]:
        """Walks through the parts of an observation that belong to `entries`.

        Raises:
            ValueError: If one is missing, or is of no entry; it names the part.
        """
        return _values(self.space, observation, "", self.ignored)

    def unflatten(self, rows: np.ndarray) -> Any:
        """Makes observations of rows, the inverse of `flatten` up to float32.

        What is left out is not there: no entry of a dictionary, None in a tuple. Masks are not
        either, see `mask_of`.

        Args:
            rows: `[O]` or `[N, O]`.

        Returns:
            What the space holds, of its shapes and dtypes; of N rows each part with an axis N in
            front.

        Raises:
            ValueError: If the rows have another length.
        """
        rows = np.asarray(rows)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.size:
            raise ValueError(
                f"rows must have shape [{self.size}] or [N, {self.size}]; got {rows.shape}"
            )
        return self.put_together({entry.path: _value(entry, rows) for entry in self.entries})

    def put_together(self, values: Mapping[str, Any]) -> Any:
        """Makes an observation, or a batch, of the values of its entries by their paths."""
        return _put_together(self.space, values, "", self.ignored)

    def mask_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Takes the mask `[..., M]` out of rows `[..., O]`; None if they have none."""
        return rows[..., -self.masked :] if self.masked else None

    def split(self, rows: Any) -> dict[str, Any]:
        """Takes rows `[..., O]`, an array or a tensor, apart into columns by the entries' names."""
        return {entry.path: rows[..., entry.start : entry.stop] for entry in self.entries}


def leaves(
    space: gymnasium.Space[Any], path: str = ""
) -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    """Walks through the spaces inside a `Dict` or `Tuple`, in their order, with their paths."""
    inner = inner_spaces(space)
    if inner is None:
        yield path, space
        return
    for key, part in inner.items():
        if isinstance(space, spaces.Dict) and not isinstance(key, str):
            raise ValueError(f"the entries of a Dict must be named by texts; got {key!r}")
        yield from leaves(part, below(path, key))


def choices_of(space: gymnasium.Space[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns how many values each number of a discrete space has, and the least of each."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),), (int(space.start),)
    if isinstance(space, spaces.MultiDiscrete):
        firsts = getattr(space, "start", np.zeros_like(space.nvec))
        return tuple(map(int, space.nvec.ravel())), tuple(map(int, np.ravel(firsts)))
    if isinstance(space, spaces.MultiBinary):
        count = math.prod(space.shape)
        return (2,) * count, (0,) * count
    return None


def _is_read(space: gymnasium.Space[Any]) -> bool:
    return isinstance(space, spaces.Box) or choices_of(space) is not None


def _entry(path: str, space: gymnasium.Space[Any], start: int) -> Entry:
    shape, dtype = tuple(space.shape or ()), np.dtype(space.dtype)
    choices = choices_of(space)
    if choices is not None and not isinstance(space, spaces.MultiBinary):
        sizes, firsts = choices
        return Entry(path, CHOICE, shape, dtype, sizes, firsts, start, start + sum(sizes))
    kind = IMAGE if dtype == np.uint8 and 2 <= len(shape) <= 4 else VECTOR
    return Entry(path, kind, shape, dtype, (), (), start, start + math.prod(shape))


def _values(
    space: gymnasium.Space[Any], observation: Any, path: str, ignored: Collection[str]
) -> Iterator[Any]:
    """Walks through an observation as `leaves` does through its space, past what is left out."""
    inner = inner_spaces(space)
    if inner is None:
        yield observation
        return
    kept = {key: below(path, key) for key in inner}
    if ignored:
        kept = {key: own for key, own in kept.items() if own not in ignored}
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or not (
            kept.keys() <= observation.keys() <= inner.keys()
        ):
            got = list(observation) if isinstance(observation, Mapping) else type(observation)
            raise ValueError(
                f"observation{_at(path)} must be a dictionary of {list(inner)}; got {got}"
            )
    elif not isinstance(observation, tuple | list) or len(observation) != len(inner):
        raise ValueError(
            f"observation{_at(path)} must be a tuple of {len(inner)}; got {type(observation)}"
        )
    for key, own in kept.items():
        yield from _values(inner[key], observation[key], own, ignored)


def _numbers(entry: Entry, value: Any) -> np.ndarray:
    """Returns the columns `[..., stop - start]` of a part, checked."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        array = np.empty((), object)
    axes = len(entry.shape)
    lead = array.shape[: array.ndim - axes]
    if array.shape != (*lead, *entry.shape) or len(lead) > 1:
        raise ValueError(
            f"observation{_at(entry.path)} must have shape {entry.shape}; got {array.shape}"
        )
    casts = entry.kind != IMAGE and np.can_cast(array.dtype, entry.dtype, "same_kind")
    if array.dtype != entry.dtype and not casts:
        raise ValueError(
            f"observation{_at(entry.path)} must be of dtype {entry.dtype}; got {array.dtype}"
        )
    if entry.kind != CHOICE:
        return array.reshape((*lead, entry.stop - entry.start))
    indices = array.reshape((*lead, len(entry.sizes))).astype(np.int64) - np.array(entry.firsts)
    if ((indices < 0) | (indices >= np.array(entry.sizes))).any():
        raise ValueError(
            f"observation{_at(entry.path)} must be in its space, of {list(entry.sizes)} values "
            f"from {list(entry.firsts)} on; got {array.tolist()}"
        )
    return one_hot(indices, entry.sizes)


def _value(entry: Entry, rows: np.ndarray) -> Any:
    """Makes of the columns of rows `[..., O]` what `_numbers` made columns of."""
    columns, lead = rows[..., entry.start : entry.stop], rows.shape[:-1]
    if entry.kind == CHOICE:
        ends = np.cumsum(entry.sizes)
        chosen = [part.argmax(axis=-1) for part in np.split(columns, ends[:-1], axis=-1)]
        columns = np.stack(chosen, axis=-1) + np.array(entry.firsts)
    elif entry.dtype.kind in "iu":
        columns = np.rint(columns)
    values = columns.reshape((*lead, *entry.shape)).astype(entry.dtype)
    return values if values.ndim else values[()]


def _put_together(
    space: gymnasium.Space[Any], values: Mapping[str, Any], path: str, ignored: Collection[str]
) -> Any:
    """Makes an observation of the values of its entries; walks as `leaves` does."""
    inner = inner_spaces(space)
    if inner is None:
        return values[path]
    parts = {
        key: None if own in ignored else _put_together(part, values, own, ignored)
        for key, part in inner.items()
        if (own := below(path, key)) not in ignored or isinstance(space, spaces.Tuple)
    }
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def one_hot(indices: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Writes indices `[..., k]` as zeros and ones `[..., sum(sizes)]`, float32."""
    columns = indices + np.cumsum([0, *sizes[:-1]])
    hot = np.zeros((*indices.shape[:-1], sum(sizes)), np.float32)
    np.put_along_axis(hot, columns, 1.0, axis=-1)
    return hot


def _at(path: str) -> str:
    return f" {path!r}" if path else ""
