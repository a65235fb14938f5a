"""How a step is packed into a row where episodes are kept whole."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class StepColumns(NamedTuple):
    """The columns of rows `[..., width]`, views of an array or slices of a tensor.

    Attributes:
        action: `[..., A]`, what led to the observation.
        reward: `[...]`, what came with it.
        discount: `[...]`.
        observation: `[..., n]`, in whatever way the layout packs it.
        back: `[...]`, how many rows before it the step before stands, 0 where an episode begins.
    """

    action: Any
    reward: Any
    discount: Any
    observation: Any
    back: Any


class StepLayout(Protocol):
    """Where the parts of a step stand in a row."""

    @property
    def observation_size(self) -> int:
        """O."""

    @property
    def action_size(self) -> int:
        """A."""

    @property
    def width(self) -> int:
        """Floats in a row."""

    def least_rows(self, environments: int) -> int:
        """Rows that a buffer must have room for."""

    def split(self, rows: Any) -> StepColumns:
        """Splits rows `[..., width]` into their columns."""


def split_steps(rows: Any, action_size: int) -> StepColumns:
    """Splits rows `[..., width]`, an array or a tensor, into views or slices of their columns."""
    return StepColumns(
        action=rows[..., :action_size],
        reward=rows[..., action_size],
        discount=rows[..., action_size + 1],
        observation=rows[..., action_size + 2 : -1],
        back=rows[..., -1],
    )
