"""Converts observations to rows and to inputs of the model, as `policy.json` specifies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .spaces import choice_masks, described, entry_columns, entry_values, floats, quoted


class Observations:
    """The layout of observations and their masks, and the normalization.

    Args:
        about: The contents of `policy.json`.

    Attributes:
        space: The observation space.
        size: O, the number of columns of a row.
        visible: The number of columns that the model receives: all but the mask.
        is_row: Whether an observation is one vector without a mask.
        moments: The mean and the scale, float64; empty if observations are not normalized.
        clip: The largest magnitude of a normalized value.
    """

    def __init__(self, about: dict[str, Any]) -> None:
        observation = about["observation"]
        self.size, self._masked = int(observation["size"]), int(observation["masked"])
        self.visible = self.size - self._masked
        self.space, self._entries = observation["space"], observation["entries"]
        self._ignored = frozenset(observation["ignored"])
        self.is_row = "Box" in self.space and not self._masked
        self.is_row = self.is_row and len(self.space["Box"][0]) == 1
        self.moments: tuple[np.ndarray, ...] = ()
        self.clip = math.inf
        if (scaling := about["normalization"]) is not None:
            moments = (np.array(scaling[name], np.float64) for name in ("mean", "scale"))
            self.moments = tuple(part[: self.visible] for part in moments)
            self.clip = float(scaling["clip"])
            self._limits = np.full(self.visible, self.clip)
            for entry in self._entries:
                if entry["kind"] == "image":  # pixels, 0 to 255, are not scaled
                    self._limits[entry["start"] : entry["stop"]] = math.inf
        self._action_space = about["action"]["space"]

    def rows(self, observation: Any, action_mask: Any) -> tuple[np.ndarray, bool]:
        """Returns observations as rows `[N, O]`, and whether it was a single observation."""
        if self.is_row:
            given = floats(observation)
            if given is None or given.ndim not in (1, 2) or given.shape[-1] != self.size:
                raise ValueError(
                    f"observation must have shape [{self.size}] or [N, {self.size}]; got "
                    f"{described(observation)}"
                )
            return (given[np.newaxis], True) if given.ndim == 1 else (given, False)
        values = list(entry_values(self.space, observation, "", self._ignored))
        parts = [entry_columns(entry, part) for entry, part in zip(self._entries, values)]  # noqa: B905
        lead = parts[0].shape[:-1]
        rows = np.ones((*lead, self.size), np.float32)
        with np.errstate(over="ignore"):
            for entry, part in zip(self._entries, parts):  # noqa: B905
                if part.shape[:-1] != lead:
                    raise ValueError(
                        f"observation{quoted(entry['path'])} must have the batch shape of the "
                        f"first entry, {lead}; got {part.shape[:-1]}"
                    )
                rows[..., entry["start"] : entry["stop"]] = part
        if self._masked and action_mask is not None:
            mask = self._mask(action_mask)
            if mask.shape not in ((self._masked,), (*lead, self._masked)):
                raise ValueError(
                    f"action_mask must have shape {(*lead, self._masked)}; got {mask.shape}"
                )
            rows[..., self.visible :] = mask
        return (rows, False) if lead else (rows[np.newaxis], True)

    def _mask(self, given: Any) -> np.ndarray:
        """Flattens masks in the format of `gymnasium.Space.sample` to `[M]` or `[N, M]`."""
        is_array = self._action_space.keys() & {"Discrete", "MultiBinary"}
        if given is not None and (
            (isinstance(given, np.ndarray) and given.dtype == object)
            or (isinstance(given, list) and not is_array)
        ):
            return self._stacked(given)
        parts = list(choice_masks(self._action_space, given, "action_mask"))
        lead = max((part.shape[:-1] for _, part in parts), key=len)
        for path, part in parts:
            if part.shape[:-1] not in ((), lead):
                raise ValueError(f"{path} must have the batch shape of the other masks, {lead}")
            if not part.any(axis=-1).all():
                raise ValueError(f"{path} leaves no valid action: {part.astype(int).tolist()}")
        columns = [np.broadcast_to(part, (*lead, part.shape[-1])) for _, part in parts]
        return np.concatenate(columns, axis=-1).astype(np.float32)

    def _stacked(self, masks: Any) -> np.ndarray:
        """Flattens a list or object array of N masks to `[N, M]`."""
        alone = isinstance(masks, np.ndarray) and not masks.ndim
        rows = [] if alone else [self._mask(one) for one in masks]
        if not rows or any(row.shape != rows[0].shape for row in rows):
            raise ValueError(
                "action_mask must be one mask, or a list with one mask per observation; got "
                f"{described(masks)}"
            )
        return np.stack(rows)

    def mask_of(self, row: np.ndarray) -> np.ndarray | None:
        """Returns the mask `[M]` bool in a row `[O]`; None if actions are not masked."""
        return row[self.visible :] > 0.5 if self._masked else None

    def scaled(self, row: np.ndarray) -> np.ndarray:
        """Returns the model input `[1, V]` of a row `[O]`: scaled, without the mask."""
        visible = row[: self.visible]
        if self.moments:
            mean, scale = self.moments
            scaled = (visible - mean) * scale  # in float64, like the moments
            np.maximum(scaled, -self._limits, out=scaled)
            np.minimum(scaled, self._limits, out=scaled)
            visible = scaled.astype(np.float32)
        return visible[np.newaxis]
