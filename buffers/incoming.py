"""What a replay buffer takes in: transitions, checked, as rows of float32."""

from __future__ import annotations

import math

import numpy as np

from eagerly.buffers.transition import RowLayout, Transition


class Incoming:
    """Takes transitions in, checked, as rows of a layout; its arrays are used again and again.

    Attributes:
        rows: `[N, width]`, those of the last transitions.
        parts: Views of their parts.
    """

    def __init__(self, layout: RowLayout) -> None:
        self._layout = layout
        self.rows = np.empty((0, layout.width), np.float32)
        self.parts = layout.unpack(self.rows)

    def take(self, transitions: Transition) -> None:
        """Takes transitions `[N]`.

        Raises:
            ValueError: If a part has the wrong shape, or an action is beyond [-1, 1].
            FloatingPointError: If a value is NaN or infinite in float32.
        """
        count = len(transitions.reward) if np.ndim(transitions.reward) else 0
        if count != len(self.rows):
            self.rows = np.empty((count, self._layout.width), np.float32)
            self.parts = self._layout.unpack(self.rows)
        # What overflows in the cast becomes infinite and is found. One sum is cheaper than five
        # checks; it may overflow, too: it only raises suspicion.
        with np.errstate(over="ignore", invalid="ignore"):
            for name, target, value in zip(
                Transition._fields, self.parts, transitions, strict=True
            ):
                if np.shape(value) != target.shape or not count:
                    width = "" if target.ndim == 1 else f", {target.shape[1]}"
                    raise ValueError(
                        f"{name} must have shape [N{width}] with the same N >= 1 for all parts; "
                        f"got {np.shape(value)}"
                    )
                target[...] = value
            total = self.rows.sum()
        if not math.isfinite(total):
            self._check_finite()
        if np.abs(self.parts.action).max() > 1.0:
            self._check_actions()

    def _check_finite(self) -> None:
        """Refuses NaN and infinite values, naming the part that the first stands in."""
        for name, value in zip(Transition._fields, self.parts, strict=True):
            finite = np.isfinite(value)
            if not finite.all():
                place = tuple(int(i) for i in np.argwhere(~finite)[0])
                where = f"environment {place[0]}" + (f", dimension {place[1]}" if place[1:] else "")
                raise FloatingPointError(
                    f"{name} must be finite in float32; got {value[place]} in {where}"
                )

    def _check_actions(self) -> None:
        """Raises a `ValueError` that names the first action beyond [-1, 1]."""
        actions = self.parts.action
        environment, dimension = (int(i) for i in np.argwhere(np.abs(actions) > 1.0)[0])
        raise ValueError(
            f"actions must be in [-1, 1]; got {actions[environment, dimension]} in environment "
            f"{environment}, dimension {dimension}: convert actions in the environment's units "
            "with agent.actions.from_environment"
        )
