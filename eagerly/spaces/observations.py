"""Converts observations of any supported space to rows of numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.spaces.description import below, inner_spaces, text_of
from eagerly.spaces.ignoring import hidden_paths, unread_message, without, without_values

VECTOR, IMAGE, CHOICE = "vector", "image", "choice"


@dataclass(frozen=True)
class Entry:
    """One entry of an observation and its columns in a row.

    Attributes:
        path: Name of the entry, such as "goal" or "robot/camera"; "" for the whole observation.
        kind: `VECTOR`, `IMAGE` or `CHOICE`.
        shape: Shape of the entry in the space.
        dtype: Dtype of the entry in the space.
        sizes: If the kind is `CHOICE`, the number of values of each choice. Choices are one-hot.
        firsts: If the kind is `CHOICE`, the smallest value of each choice.
        start, stop: The entry's range of columns in a row.
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
        """The image shape (H, W, channels), with stacked frames merged into the channels."""
        frames, *frame = self.frames
        return frame[0], frame[1], frame[2] * frames

    @property
    def frames(self) -> tuple[int, int, int, int]:
        """The image shape (K, H, W, C), with K frames stacked by `FrameStackObservation`.

        The shape in the space is (H, W), (H, W, C), (K, H, W) or (K, H, W, C). The last of three
        axes holds the channels if it has at most 4 elements or is the shortest.
        """
        shape = self.shape
        if len(shape) == 2:
            shape = 1, *shape, 1
        elif len(shape) == 3:
            shape = (1, *shape) if shape[2] <= max(4, min(shape[:2]) - 1) else (*shape, 1)
        frames, height, width, channels = shape
        return frames, height, width, channels


class Observations:
    """Converts observations of a space to rows of O float32 numbers.

    A row contains the entries in the order of the space: vectors are flattened, choices are
    one-hot, and images keep their values from 0 to 255. If actions can be masked, the row ends with
    the action mask. Entries that only critics see come first, so the last columns of a row are the
    row of the actor.

    Args:
        space: A `Box`, `Discrete`, `MultiDiscrete` or `MultiBinary`, or a `Dict` or `Tuple` of
            these. A uint8 `Box` with two to four axes is an image, see `Entry.frames`.
        masked: M, the number of mask columns.
        ignored: Paths of ignored entries, whose spaces may be of any type. In a `Dict`,
            observations may contain or omit them.
        of_critics: Paths of entries that only critics see.

    Attributes:
        space: The space.
        entries: The entries of the space, except ignored ones, in the order of their columns.
        actor: The layout of the actor, which also ignores the entries that only critics see; the
            same object if there are none.
        ignored: The paths of ignored entries, and of each `Dict` or `Tuple` that is left empty.
        masked: M.
        size: O, the number of columns.

    Raises:
        ValueError: If the space is not supported, an entry is unknown or named twice, or none is
            left.
    """

    def __init__(
        self,
        space: gymnasium.Space[Any],
        masked: int = 0,
        ignored: Collection[str] = (),
        of_critics: Collection[str] = (),
    ) -> None:
        self.space, self.masked = space, masked
        self.ignored = hidden_paths(space, ignored, "ignore_entries")
        hidden = hidden_paths(space, of_critics, "critic_entries", self.ignored)
        self.entries: list[Entry] = []
        kept = [(path, leaf) for path, leaf in leaves(space) if path not in self.ignored]
        unread = {path: leaf for path, leaf in kept if not _is_read(leaf)}
        if unread:
            raise ValueError(
                unread_message(unread, ",".join(ignored), others=len(unread) < len(kept))
            )
        # The position of each entry in the space, in the order of columns.
        self._places = sorted(range(len(kept)), key=lambda place: kept[place][0] not in hidden)
        stop = 0
        for place in self._places:
            entry = _entry(*kept[place], stop)
            self.entries.append(entry)
            stop = entry.stop
        if not stop:
            raise ValueError(
                "observations must be a Box, a discrete space, or a Dict or Tuple of these, and "
                f"not empty; got {text_of(space)}"
            )
        paths = [entry.path for entry in self.entries]
        if len(set(paths)) < len(paths):
            raise ValueError(f"paths of entries must be unique; got {paths}")
        self.size = stop + masked
        self.actor = Observations(space, masked, hidden) if of_critics else self

    @property
    def space_columns(self) -> np.ndarray | None:
        """The columns `[O - M]` in the order of the space; None if rows have this order."""
        if self.actor is self:
            return None
        entries = [self.entries[index] for index in np.argsort(self._places)]
        return np.concatenate([np.arange(entry.start, entry.stop) for entry in entries])

    @property
    def kept_space(self) -> gymnasium.Space[Any]:
        """The space without ignored entries; the space itself if nothing is ignored."""
        return without(self.space, self.ignored)

    def kept(self, observation: Any) -> Any:
        """Returns an observation without its ignored entries, as in `kept_space`."""
        return without_values(self.space, observation, self.ignored)

    def completed(self, observation: Any) -> Any:
        """Returns an element of `kept_space`, or a batch, with None for ignored tuple entries.

        Raises:
            ValueError: If an entry is missing or unknown.
        """
        paths = [path for path, _ in leaves(self.space) if path not in self.ignored]
        values = entry_values(self.kept_space, observation)
        return self.put_together(dict(zip(paths, values, strict=True)))

    @property
    def is_row(self) -> bool:
        """True if observations are already rows: a vector, without a mask."""
        return (
            isinstance(self.space, spaces.Box)
            and len(self.space.shape) == 1
            and self.entries[0].kind == VECTOR
            and not self.masked
        )

    @property
    def is_one_vector(self) -> bool:
        """True if there is only one entry, and it is not an image."""
        return len(self.entries) == 1 and self.entries[0].kind != IMAGE

    @property
    def images(self) -> list[Entry]:
        """The entries that are images."""
        return [entry for entry in self.entries if entry.kind == IMAGE]

    @property
    def scalable(self) -> np.ndarray:
        """The columns that may be scaled, `[O]` bool: those of vectors."""
        columns = np.zeros(self.size, bool)
        for entry in self.entries:
            columns[entry.start : entry.stop] = entry.kind == VECTOR
        return columns

    def flatten(self, observation: Any, mask: np.ndarray | None = None) -> np.ndarray:
        """Converts an observation, or a batch of N, to rows.

        Args:
            observation: An element of the space, or a batch whose parts have a leading axis N.
            mask: `[M]` or `[N, M]`, 1 for valid choices; None if all are valid.

        Returns:
            `[O]` or `[N, O]`, float32.

        Raises:
            ValueError: If an entry is missing, has a wrong shape or dtype, or is not a valid
                choice. The message names the entry.
        """
        values = self.parts(observation)
        parts = [_numbers(entry, value) for entry, value in zip(self.entries, values, strict=True)]
        lead = parts[0].shape[:-1]
        rows = np.empty((*lead, self.size), np.float32)
        with np.errstate(over="ignore"):  # infinite values are reported later, if they matter
            for entry, part in zip(self.entries, parts, strict=True):
                if part.shape[:-1] != lead:
                    raise ValueError(
                        f"observation{_at(entry.path)} must have the batch shape of "
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
        """Yields the value of each entry, in the order of `entries`.

        Raises:
            ValueError: If an entry is missing or unknown. The message names the entry.
        """
        values = entry_values(self.space, observation, "", self.ignored)
        if self.actor is self:
            return values
        in_space = list(values)
        return (in_space[place] for place in self._places)

    def unflatten(self, rows: np.ndarray) -> Any:
        """Converts rows to observations, the inverse of `flatten` up to float32 rounding.

        Ignored entries are missing from dictionaries and None in tuples. Masks are not included;
        see `mask_of`.

        Args:
            rows: `[O]` or `[N, O]`.

        Returns:
            An element of the space, with its shapes and dtypes. For N rows, each part has a leading
            axis N.

        Raises:
            ValueError: If the rows have the wrong length.
        """
        rows = np.asarray(rows)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.size:
            raise ValueError(
                f"rows must have shape [{self.size}] or [N, {self.size}]; got {rows.shape}"
            )
        return self.put_together({entry.path: _value(entry, rows) for entry in self.entries})

    def put_together(self, values: Mapping[str, Any]) -> Any:
        """Builds an observation, or a batch, from the values of its entries by path."""
        return _put_together(self.space, values, "", self.ignored)

    def mask_of(self, rows: np.ndarray) -> np.ndarray | None:
        """Returns the mask `[..., M]` of rows `[..., O]`; None if they have no mask."""
        return rows[..., -self.masked :] if self.masked else None

    def split(self, rows: Any) -> dict[str, Any]:
        """Splits rows `[..., O]`, an array or a tensor, into the columns of each entry, by path."""
        return {entry.path: rows[..., entry.start : entry.stop] for entry in self.entries}


def leaves(
    space: gymnasium.Space[Any], path: str = ""
) -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    """Yields the path and space of each leaf of nested `Dict` and `Tuple` spaces, in order.

    Raises:
        ValueError: If a key of a `Dict` is not a string.
    """
    inner = inner_spaces(space)
    if inner is None:
        yield path, space
        return
    for key, part in inner.items():
        if isinstance(space, spaces.Dict) and not isinstance(key, str):
            raise ValueError(f"the keys of a Dict must be strings; got {key!r}")
        yield from leaves(part, below(path, key))


def choices_of(space: gymnasium.Space[Any]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Returns the number of values and the smallest value per choice; None if not discrete."""
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


def entry_values(
    space: gymnasium.Space[Any], observation: Any, path: str = "", ignored: Collection[str] = ()
) -> Iterator[Any]:
    """Yields the values of an observation in the order of `leaves`, except ignored entries.

    Raises:
        ValueError: If an entry is missing or unknown.
    """
    inner = inner_spaces(space)
    if inner is None:
        yield observation
        return
    kept = {key: below(path, key) for key in inner}
    if ignored:
        kept = {key: inner_path for key, inner_path in kept.items() if inner_path not in ignored}
    if isinstance(space, spaces.Dict):
        if not isinstance(observation, Mapping) or not (
            kept.keys() <= observation.keys() <= inner.keys()
        ):
            got = list(observation) if isinstance(observation, Mapping) else type(observation)
            raise ValueError(
                f"observation{_at(path)} must be a dictionary with keys {list(inner)}; got {got}"
            )
    elif not isinstance(observation, tuple | list) or len(observation) != len(inner):
        raise ValueError(
            f"observation{_at(path)} must be a tuple of length {len(inner)}; got "
            f"{type(observation)}"
        )
    for key, inner_path in kept.items():
        yield from entry_values(inner[key], observation[key], inner_path, ignored)


def _numbers(entry: Entry, value: Any) -> np.ndarray:
    """Returns the validated columns `[..., stop - start]` of an entry."""
    try:
        array = np.asarray(value)
    except ValueError:  # ragged lists
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
            f"observation{_at(entry.path)} must have dtype {entry.dtype}; got {array.dtype}"
        )
    if entry.kind != CHOICE:
        return array.reshape((*lead, entry.stop - entry.start))
    indices = array.reshape((*lead, len(entry.sizes))).astype(np.int64) - np.array(entry.firsts)
    if ((indices < 0) | (indices >= np.array(entry.sizes))).any():
        raise ValueError(
            f"observation{_at(entry.path)} must be in its space, with {list(entry.sizes)} values "
            f"starting at {list(entry.firsts)}; got {array.tolist()}"
        )
    return one_hot(indices, entry.sizes)


def _value(entry: Entry, rows: np.ndarray) -> Any:
    """Converts an entry's columns of rows `[..., O]` to its value, the inverse of `_numbers`."""
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
    """Builds an observation recursively from the values of its entries."""
    inner = inner_spaces(space)
    if inner is None:
        return values[path]
    parts = {
        key: None if inner_path in ignored else _put_together(part, values, inner_path, ignored)
        for key, part in inner.items()
        if (inner_path := below(path, key)) not in ignored or isinstance(space, spaces.Tuple)
    }
    return parts if isinstance(space, spaces.Dict) else tuple(parts.values())


def one_hot(indices: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Converts indices `[..., k]` to one-hot vectors `[..., sum(sizes)]`, float32."""
    columns = indices + np.cumsum([0, *sizes[:-1]])
    hot = np.zeros((*indices.shape[:-1], sum(sizes)), np.float32)
    np.put_along_axis(hot, columns, 1.0, axis=-1)
    return hot


def _at(path: str) -> str:
    return f" {path!r}" if path else ""
