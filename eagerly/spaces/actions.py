"""Converts actions between agent units ([-1, 1] and one-hot) and environment units.

Only this module and exported policies convert action units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from eagerly.spaces.description import inner_spaces, text_of
from eagerly.spaces.observations import choices_of, leaves, one_hot

INVALID = -1e9  # score of a masked choice; its probability is exactly 0


class Actions:
    """Converts actions between agent units and environment units.

    An agent's action has A numbers: C in [-1, 1] for the dimensions of all `Box` spaces, then a
    one-hot vector for each of k discrete choices. An environment row has C + k numbers: the C
    numbers in the environment's units, then the value of each choice. `unflatten` converts rows to
    elements of the space.

    Each dimension of a `Box` has its own bounds, which need not be symmetric.

    Args:
        space: A `Box` with finite bounds and a floating dtype, a `Discrete`, `MultiDiscrete` or
            `MultiBinary`, or a `Dict` or `Tuple` of these.

    Attributes:
        space: The space.
        continuous: C.
        choices: Number of values of each of the k choices.
        size: A.
        low, high: `[C + k]`, the bounds of environment rows.
        dtype: Dtype of environment rows.

    Raises:
        ValueError: If the space is not supported; the message names the supported spaces.
    """

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.space = space
        lows, highs = [], []
        self.choices: tuple[int, ...] = ()
        firsts: tuple[int, ...] = ()
        for path, leaf in leaves(space):
            choices = choices_of(leaf)
            if choices is None:
                box = _bounded(leaf, path)
                lows.append(box.low.ravel())
                highs.append(box.high.ravel())
            else:
                self.choices, firsts = self.choices + choices[0], firsts + choices[1]
        if not lows and not self.choices:
            raise ValueError(f"{_SUPPORTED}; got {text_of(space)}")
        low = np.concatenate(lows) if lows else np.zeros(0)
        if self.choices:
            low = low.astype(np.float64)  # represents every choice exactly, unlike other dtypes
        self.continuous = len(low)
        self.size = self.continuous + sum(self.choices)
        self._firsts, sizes = np.array(firsts, np.int64), np.array(self.choices, np.int64)
        self.low = np.concatenate([low, self._firsts.astype(low.dtype)])
        high = np.concatenate(highs) if highs else low
        self.high = np.concatenate([high, (self._firsts + sizes - 1).astype(low.dtype)])
        self.dtype = self.low.dtype
        low64, high64 = (end[: self.continuous].astype(np.float64) for end in (self.low, self.high))
        with np.errstate(over="ignore"):
            self._center, self._scale = (high64 + low64) / 2, (high64 - low64) / 2
        if not np.isfinite(self._scale).all() or (np.abs(self._firsts) > 2**53).any():
            raise ValueError(
                "bounds must be less than 1.8e308 apart, and discrete values between -2^53 and "
                f"2^53; got {text_of(space)}"
            )

    @property
    def mask_size(self) -> int:
        """M, the size of an action mask: one number for each value of each choice."""
        return self.size - self.continuous

    @property
    def row_space(self) -> spaces.Box:
        """The `Box` of environment rows."""
        return spaces.Box(self.low, self.high, dtype=self.dtype.type)

    def segments(self) -> Iterator[slice]:
        """Yields the columns of each choice in an action `[A]`."""
        return choice_segments(self.continuous, self.choices)

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Maps actions `[..., A]` to environment rows `[..., C + k]`, clipped to the bounds."""
        box = actions[..., : self.continuous] if self.choices else actions
        scaled = (self._center + self._scale * box).astype(self.dtype)
        if self.choices:
            chosen = [actions[..., segment].argmax(axis=-1) for segment in self.segments()]
            values = np.stack(chosen, axis=-1) + self._firsts
            scaled = np.concatenate([scaled, values.astype(self.dtype)], axis=-1)
        np.maximum(scaled, self.low, out=scaled)
        return np.minimum(scaled, self.high, out=scaled)

    def from_environment(self, actions: Any) -> np.ndarray:
        """Maps actions in the environment's units to agent actions, for example from logged data.

        The inverse of `to_environment` and `unflatten`, up to rounding in the dtypes of the space.

        Args:
            actions: An action of the space, or a batch whose arrays have a leading axis N.

        Returns:
            `[A]` or `[N, A]`, float32, in [-1, 1] and one-hot.

        Raises:
            ValueError: If the actions differ from the space in structure or shape, or contain
                values outside the space.
        """
        boxes, chosen = list[np.ndarray](), list[np.ndarray]()
        batch: tuple[int, ...] | None = None  # (N,), or () for one action
        for path, leaf, value in _parts(self.space, actions, "actions"):
            is_box, shape = isinstance(leaf, spaces.Box), tuple(leaf.shape or ())
            array = np.asarray(value, leaf.dtype if is_box else np.float64)
            lead = array.shape[: array.ndim - len(shape)]
            if array.shape != (*lead, *shape) or len(lead) > 1:
                raise ValueError(
                    f"{path} must have shape {shape} or a batch axis before it; got {array.shape}"
                )
            batch = lead if batch is None else batch
            if lead != batch:
                raise ValueError(
                    f"{path} must have the batch axis of the other parts, {batch}; got {lead}"
                )
            part = array.reshape(*lead, -1).astype(np.float64)
            (boxes if is_box else chosen).append(part)
        rows = np.concatenate([*boxes, *chosen], axis=-1)
        inside = (self.low <= rows) & (rows <= self.high)
        inside[..., self.continuous :] &= rows[..., self.continuous :] % 1.0 == 0.0
        if not inside.all():
            place = tuple(int(i) for i in np.argwhere(~inside)[0])
            low, high = self.low[place[-1]], self.high[place[-1]]
            raise ValueError(
                "actions must be in the environment's units, here within "
                f"[{low:.9g}, {high:.9g}]; got {rows[place]:.9g} at index {place[-1]}"
                + (f" of row {place[0]}" if place[1:] else "")
            )
        box = (rows[..., : self.continuous] - self._center) / self._scale
        values = (rows[..., self.continuous :] - self._firsts).astype(np.int64)
        hot = one_hot(values, self.choices)
        return np.concatenate([box.clip(-1.0, 1.0).astype(np.float32), hot], axis=-1)

    def unflatten(self, rows: np.ndarray) -> Any:
        """Converts an environment row `[C + k]`, or a batch of N rows, to elements of the space."""
        place, choice = 0, self.continuous

        def made(space: gymnasium.Space[Any]) -> Any:
            nonlocal place, choice
            if isinstance(space, spaces.Dict):
                return {key: made(inner) for key, inner in space.spaces.items()}
            if isinstance(space, spaces.Tuple):
                return tuple(made(inner) for inner in space.spaces)
            shape, lead = tuple(space.shape or ()), rows.shape[:-1]
            count = math.prod(shape)
            if isinstance(space, spaces.Box):
                place, start = place + count, place
            else:
                choice, start = choice + count, choice
            values = rows[..., start : start + count].reshape((*lead, *shape))
            dtype = np.dtype(space.dtype)
            return dtype.type(values) if values.ndim == 0 else values.astype(dtype)

        return rows if self.is_row else made(self.space)

    @property
    def is_row(self) -> bool:
        """True if actions of the space are already rows: a `Box` with one axis."""
        return isinstance(self.space, spaces.Box) and len(self.space.shape) == 1

    def decided(self, scores: np.ndarray) -> np.ndarray:
        """Converts scores to actions `[N, A]`, with the best-scored value of each choice."""
        if not self.choices:
            return scores
        best = [scores[:, segment].argmax(axis=1) for segment in self.segments()]
        hot = one_hot(np.stack(best, axis=1), self.choices)
        return np.concatenate([scores[:, : self.continuous].astype(np.float32), hot], axis=1)

    def random(
        self, generator: np.random.Generator, count: int, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Samples N uniform actions `[N, A]` in [-1, 1] and, for choices, among the valid values.

        Args:
            generator: Random number generator.
            count: N.
            mask: `[N, M]`, 1 for valid choices; None if all are valid.
        """
        return self.of_uniforms(generator.random((count, self.size)), mask)

    def of_uniforms(self, uniforms: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
        """Converts uniform random numbers to uniform random actions `[N, A]`.

        Args:
            uniforms: `[N, A]`, in [0, 1).
            mask: `[N, M]`, 1 for valid choices; None if all are valid.
        """
        actions = (2.0 * uniforms - 1.0).astype(np.float32)
        if mask is not None:
            actions[:, self.continuous :][mask == 0] = INVALID
        return self.decided(actions)

    def mask(self, given: Any) -> np.ndarray:
        """Flattens an action mask in the format of `gymnasium.Space.sample`.

        Args:
            given: For a `Discrete`, an array with 1 for each valid value and 0 for the others. For
                a `MultiDiscrete`, a tuple of such arrays. For a `MultiBinary`, an array of its
                shape with the required value 0 or 1, or 2 if both are valid. For a `Dict` or
                `Tuple`, a dictionary or tuple of masks. None at any level allows everything. For a
                batch, arrays have a leading axis N, or `given` is a list or object array of N
                masks.

        Returns:
            `[M]` or `[N, M]`, float32, 1 for valid choices.

        Raises:
            ValueError: If the structure, a shape or a value is wrong, or a choice has no valid
                value.
        """
        if self._stand_one_by_one(given):
            return np.stack([self.mask(one) for one in given])
        parts = list(_masks(self.space, given, "action_mask"))
        lead = max((part.shape[:-1] for _, part in parts), key=len)
        for path, part in parts:
            if part.shape[:-1] not in ((), lead):
                raise ValueError(f"{path} must have the batch shape of the other masks, {lead}")
            if not part.any(axis=-1).all():
                raise ValueError(f"{path} leaves no valid action: {part.astype(int).tolist()}")
        columns = [np.broadcast_to(part, (*lead, part.shape[-1])) for _, part in parts]
        return np.concatenate(columns, axis=-1).astype(np.float32)

    def _stand_one_by_one(self, masks: Any) -> bool:
        """Returns whether masks are a list or an object array with one mask per environment."""
        is_array = isinstance(self.space, spaces.Discrete | spaces.MultiBinary)
        if isinstance(masks, np.ndarray):
            return bool(masks.dtype == object)
        return isinstance(masks, list) and (not is_array or any(mask is None for mask in masks))


def _parts(
    space: gymnasium.Space[Any], given: Any, path: str
) -> Iterator[tuple[str, gymnasium.Space[Any], Any]]:
    """Yields name, space and value of each leaf of nested `Dict` and `Tuple` spaces.

    Raises:
        ValueError: If the structure of the values differs from that of the space.
    """
    inner = inner_spaces(space)
    if inner is None:
        yield path, space, given
        return
    is_dict = isinstance(space, spaces.Dict)
    kind: Any = Mapping if is_dict else tuple | list
    if not isinstance(given, kind) or set(given if is_dict else range(len(given))) != set(inner):
        raise ValueError(f"{path} must have the structure of {text_of(space)}; got {given!r}")
    for key, part in inner.items():
        yield from _parts(part, given[key], f"{path}[{key!r}]")


_SUPPORTED = "actions must be a Box, a discrete space, or a Dict or Tuple of these"


def choice_segments(first: int, choices: tuple[int, ...]) -> Iterator[slice]:
    """Yields the columns of each choice. The choices are consecutive, from column `first` on."""
    for count in choices:
        yield slice(first, first + count)
        first += count


def _bounded(space: gymnasium.Space[Any], path: str) -> spaces.Box:
    """Returns the space if it is a bounded, floating-point `Box`, or raises a `ValueError`."""
    supported = "actions must be a bounded, floating-point Box"
    if not isinstance(space, spaces.Box):
        raise ValueError(f"{_SUPPORTED}; got {text_of(space)}")
    at = f" in {path!r}" if path else ""
    if not math.prod(space.shape):
        raise ValueError(f"{supported} of at least one dimension{at}; got shape {space.shape}")
    if not np.issubdtype(space.dtype, np.floating):
        raise ValueError(f"{supported}{at}; got dtype {space.dtype}.")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        bounded = "gymnasium.spaces.Box(low, high, shape))."
        if path:
            bounded = f"space), where space is the whole action space with {path!r} bounded."
        raise ValueError(
            f"{supported}{at}; got {text_of(space)}. Set finite bounds in the environment's "
            "action_space, or wrap it in gymnasium.wrappers.TransformAction(env, lambda action: "
            f"action, {bounded}"
        )
    if not (space.low < space.high).all():
        raise ValueError(
            f"{supported} with low < high in every dimension{at}; got {text_of(space)}."
        )
    return space


def _masks(space: gymnasium.Space[Any], given: Any, path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the name and the mask `[..., n]` of each choice."""
    inner = inner_spaces(space)
    if inner is not None:
        if given is not None and not isinstance(given, Mapping | tuple):
            raise ValueError(
                f"{path} must have the structure of {text_of(space)}; got {type(given)}"
            )
        keys = set(given) if isinstance(given, Mapping) else set(range(len(given or ())))
        # Vector environments add a key _NAME that marks where NAME was present.
        keys -= {f"_{key}" for key in keys} - set(inner)
        if given is not None and keys != set(inner):
            raise ValueError(f"{path} must have the entries {list(inner)}; got {sorted(keys)}")
        for key, part in inner.items():
            of_part = None if given is None else given[key]
            yield from _masks(part, of_part, f"{path}[{key!r}]")
        return
    choices = choices_of(space)
    if isinstance(given, np.ndarray) and given.size and all(part is None for part in given.ravel()):
        given = None  # the array contains one None per environment
    if choices is None:
        if given is not None:
            raise ValueError(f"{path} must be None for a Box, which has no choices; got {given}")
        return
    sizes = choices[0]
    if given is None:
        yield from ((path, np.ones(size, bool)) for size in sizes)
        return
    if isinstance(space, spaces.Discrete):
        given = (given,)
    elif isinstance(space, spaces.MultiBinary):
        # 0 and 1 allow only that value, 2 allows both.
        asked, shape = np.asarray(given), tuple(space.shape)
        lead = asked.shape[: asked.ndim - len(shape)]
        if asked.shape != (*lead, *shape) or len(lead) > 1:
            raise ValueError(f"{path} must have shape {shape}; got {asked.shape}")
        if not np.isin(asked, (0, 1, 2)).all():
            raise ValueError(f"{path} must contain only 0, 1 and 2; got {asked.tolist()}")
        bits = np.moveaxis(asked.reshape(*lead, -1), -1, 0)
        given = tuple(np.stack([part != 1, part != 0], axis=-1) for part in bits)
    elif len(space.shape or ()) != 1:
        raise ValueError(
            f"{path}: only a MultiDiscrete with one axis can be masked; got {text_of(space)}"
        )
    if not isinstance(given, tuple) or len(given) != len(sizes):
        got = len(given) if isinstance(given, tuple) else type(given)
        raise ValueError(
            f"{path} must be a tuple of {len(sizes)} masks; got {got} (a list is a batch, with one "
            "mask per observation)"
        )
    for index, (part, size) in enumerate(zip(given, sizes, strict=True)):
        at = path if isinstance(space, spaces.Discrete) else f"{path}[{index}]"
        array = np.ones(size, bool) if part is None else np.asarray(part)
        if array.ndim not in (1, 2) or array.shape[-1] != size:
            raise ValueError(f"{at} must have shape ({size},); got {np.shape(part)}")
        if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
            raise ValueError(f"{at} must contain only 0 and 1; got {array.tolist()}")
        yield at, array == 1
