"""Converts outputs of the model to scores and to actions, as `policy.json` specifies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .spaces import described, floats, inner_spaces, leaf

INVALID = -1e9  # the score of a masked choice


class Actions:
    """The layout of actions: continuous values, then choices.

    Args:
        action: The entry `action` of `policy.json`.

    Attributes:
        space: The action space.
        continuous: C, the number of continuous values.
        size: A, the number of scores.
        dtype: The dtype of rows of actions.
        low, high: `[C + k]`, the bounds, in this dtype.
        center, half: `[C]`, which rescale continuous actions from [-1, 1].
    """

    def __init__(self, action: dict[str, Any]) -> None:
        self.space = action["space"]
        self.continuous, self._choices = int(action["continuous"]), tuple(action["choices"])
        self._firsts = np.array(action["firsts"], np.int64)
        self.size = self.continuous + sum(self._choices)
        self.dtype = np.dtype(action["dtype"])
        self.low, self.high = (np.array(action[n], np.float64) for n in ("low", "high"))
        low, high = (end[: self.continuous] for end in (self.low, self.high))
        self.center, self.half = (high + low) / 2, (high - low) / 2
        self.low, self.high = self.low.astype(self.dtype), self.high.astype(self.dtype)
        self._segments, start = [], self.continuous
        for count in self._choices:
            self._segments.append(slice(start, start + count))
            start += count

    def scores(self, outputs: list[np.ndarray], mask: np.ndarray | None) -> np.ndarray:
        """Returns scores `[A]`: actions in [-1, 1], then log-probabilities of choices.

        Args:
            outputs: The outputs of the model, for one observation.
            mask: `[M]` bool, the valid values of all choices; None if all are valid.
        """
        if not self._choices:
            return outputs[0][0]
        scores = np.empty(self.size, np.float32)
        if self.continuous:
            scores[: self.continuous] = outputs[0][0]
        logits = outputs[-1][0].astype(np.float64)
        for columns in self._segments:
            places = slice(columns.start - self.continuous, columns.stop - self.continuous)
            of_choice, valid = logits[places], np.ones(columns.stop - columns.start, bool)
            if mask is not None:
                valid = mask[places]
            highest = np.max(of_choice[valid], initial=-np.inf)
            rest = np.where(valid, of_choice - highest, 0.0)
            total = max(float((np.exp(rest) * valid).sum()), 0.5)
            scores[columns] = np.where(valid, rest - math.log(total), INVALID)
        return scores

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """See `Policy.decide`."""
        given = floats(scores)
        if given is None or given.shape[-1:] != (self.size,):
            raise ValueError(f"scores must have shape [..., {self.size}]; got {described(scores)}")
        if not self._choices:
            return given
        scores = given
        done = np.zeros(scores.shape, np.float32)
        done[..., : self.continuous] = scores[..., : self.continuous]
        for columns in self._segments:
            best = scores[..., columns].argmax(axis=-1)
            np.put_along_axis(done[..., columns], best[..., np.newaxis], 1.0, axis=-1)
        return done

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """See `Policy.to_environment`."""
        box = actions[..., : self.continuous] if self._choices else actions
        rows = (self.center + self.half * box).astype(self.dtype)
        if self._choices:
            chosen = [actions[..., columns].argmax(axis=-1) for columns in self._segments]
            values = (np.stack(chosen, axis=-1) + self._firsts).astype(self.dtype)
            rows = np.concatenate([rows, values], axis=-1)
        np.maximum(rows, self.low, out=rows)
        return np.minimum(rows, self.high, out=rows)

    def from_environment(self, action: Any) -> np.ndarray:
        """Converts a value of the environment's action space to `[A]`, in [-1, 1] and one-hot.

        Raises:
            ValueError: If it is not in the space.
        """
        boxes, chosen = list[np.ndarray](), list[np.ndarray]()

        def read(space: dict[str, Any], value: Any) -> None:
            inner = inner_spaces(space)
            if inner is not None:
                if len(value) != len(inner):
                    raise ValueError(f"expected {len(inner)} entries; got {len(value)}")
                for key, part in inner:
                    read(part, value[key])
                return
            shape, dtype, _ = leaf(space)
            array = np.asarray(value, dtype if "Box" in space else np.float64)
            if array.shape != shape:
                raise ValueError(f"expected shape {shape}; got {array.shape}")
            (boxes if "Box" in space else chosen).append(array.reshape(-1).astype(np.float64))

        try:
            read(self.space, action)
            row = np.concatenate([*boxes, *chosen])
            inside = ((self.low <= row) & (row <= self.high)).all()
            if not inside or (row[self.continuous :] % 1.0).any():
                raise ValueError(f"{row.tolist()} is not in the action space")
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"executed_action must be an action: {error}") from error
        acted, box = np.zeros(self.size, np.float32), row[: self.continuous]
        acted[: self.continuous] = ((box - self.center) / self.half).clip(-1.0, 1.0)
        values = row[self.continuous :].astype(np.int64) - self._firsts
        for columns, value in zip(self._segments, values, strict=True):
            acted[columns.start + value] = 1.0
        return acted

    def unflatten(self, actions: np.ndarray, single: bool) -> Any:
        """Converts actions `[N, A]` to values of the environment's action space."""
        rows = self.to_environment(actions[0] if single else actions)
        space = self.space
        if "Box" in space and len(space["Box"][0]) == 1:
            return rows
        boxes, choices = [0], [self.continuous]

        def made(space: dict[str, Any]) -> Any:
            if "Dict" in space:
                return {key: made(inner) for key, inner in space["Dict"]}
            if "Tuple" in space:
                return tuple(made(inner) for inner in space["Tuple"])
            shape, dtype, _ = leaf(space)
            place = boxes if "Box" in space else choices
            start, count = place[0], math.prod(shape)
            place[0] += count
            values = rows[..., start : start + count].reshape((*rows.shape[:-1], *shape))
            return dtype.type(values) if values.ndim == 0 else values.astype(dtype)

        return made(space)
