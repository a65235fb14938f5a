"""What one step of an environment is to an agent, and how steps are packed into rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple


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
class Layout:
    """Where the parts of a step stand in a packed row of `width` floats.

    Attributes:
        observation_size: O.
        action_size: A.

    Raises:
        ValueError: If a size is out of range.
    """

    observation_size: int
    action_size: int

    _LEAST: ClassVar[dict[str, int]] = {"observation_size": 1, "action_size": 1}

    def __post_init__(self) -> None:
        for name, least in self._LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}")

    @property
    def width(self) -> int:
        """Floats in a row."""
        raise NotImplementedError

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample of a buffer."""
        return (self.width,)

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes in a buffer."""
        return 4 * self.width

    def least_rows(self, environments: int) -> int:
        """Returns the least capacity of a buffer for N environments."""
        return environments

    def unpack(self, rows: Any) -> Any:
        """Splits samples `[..., *sample_shape]` into their parts."""
        raise NotImplementedError


@dataclass(frozen=True)
class RowLayout(Layout):
    """A row is a whole transition, observations before and after included."""

    @property
    def width(self) -> int:
        """Floats in a row: 2 O + A + 2."""
        return 2 * self.observation_size + self.action_size + 2

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


class StepLayout(Layout):
    """A row is what a step led to, and says where the row of the step before stands."""

    def split(self, rows: Any) -> StepColumns:
        """Splits rows `[..., width]`, an array or a tensor, into views or slices."""
        return StepColumns(
            action=rows[..., : self.action_size],
            reward=rows[..., self.action_size],
            discount=rows[..., self.action_size + 1],
            observation=rows[..., self.action_size + 2 : -1],
            back=rows[..., -1],
        )
