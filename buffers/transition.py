"""What one step of an environment is to an agent, and how it is packed into a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Transition(NamedTuple):
    """One step, or an array or tensor of steps with the same leading axes `[...]`.

    Attributes:
        observation: `[..., O]`, what the agent saw.
        action: `[..., A]` in [-1, 1], what it did.
        reward: `[...]`, what it got.
        discount: `[...]` in [0, 1], the factor on the value of the next observation: γ, or 0
            where the episode terminated. Where an episode was only truncated it is γ.
        next_observation: `[..., O]`, what it saw then; at an episode's end the real last one.
    """

    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any


@dataclass(frozen=True)
class RowLayout:
    """Where the parts of a transition stand in a packed row of `width` floats.

    Raises:
        ValueError: If a size is not positive.
    """

    observation_size: int
    action_size: int

    def __post_init__(self) -> None:
        for name in ("observation_size", "action_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")

    @property
    def width(self) -> int:
        """Floats in a row: 2 O + A + 2."""
        return 2 * self.observation_size + self.action_size + 2

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of what one draw from a buffer is."""
        return (self.width,)

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes."""
        return 4 * self.width

    def least_rows(self, environments: int) -> int:
        """Rows that a buffer must have room for."""
        return environments

    def unpack(self, rows: Any) -> Transition:
        """Splits rows `[..., width]`, an array or a tensor, into views or slices."""
        action = self.observation_size
        reward = action + self.action_size
        return Transition(
            observation=rows[..., :action],
            action=rows[..., action:reward],
            reward=rows[..., reward],
            discount=rows[..., reward + 1],
            next_observation=rows[..., reward + 2 :],
        )
