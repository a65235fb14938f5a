"""Transitions, and the layouts of packed rows that store them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple


class Transition(NamedTuple):
    """One step, or arrays or tensors of steps with the same leading axes `[...]`.

    Attributes:
        observation: `[..., O]`.
        action: `[..., A]` in [-1, 1].
        reward: `[...]`.
        discount: `[...]` in [0, 1], the factor on the value of the next observation: γ, also after
            a truncation, or 0 after a termination.
        next_observation: `[..., O]`. At the end of an episode, this is its last observation, not
            the first of the next episode.
    """

    observation: Any
    action: Any
    reward: Any
    discount: Any
    next_observation: Any


@dataclass(frozen=True)
class Layout:
    """The layout of a step in a packed row of `width` floats.

    Attributes:
        observation_size: O, the length of an observation.
        action_size: A, the length of an action.

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
        """Number of floats per row."""
        raise NotImplementedError

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return (self.width,)

    @property
    def row_bytes(self) -> int:
        """Bytes per row in a buffer."""
        return 4 * self.width

    def least_rows(self, environments: int) -> int:
        """Returns the minimum capacity of a buffer for N environments."""
        return environments

    def unpack(self, rows: Any) -> Any:
        """Splits samples `[..., *sample_shape]` into their parts."""
        raise NotImplementedError


@dataclass(frozen=True)
class RowLayout(Layout):
    """The layout of a row that holds a complete transition, with both observations."""

    @property
    def width(self) -> int:
        """Floats per row: 2 O + A + 2."""
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
    """The columns of rows `[..., width]`, as array views or tensor slices.

    Attributes:
        action: `[..., A]`, the action that led to the observation.
        reward: `[...]`, the reward of that action.
        discount: `[...]`.
        observation: `[..., n]`, packed according to the layout.
        back: `[...]`, the distance in rows to the previous step, or 0 if an episode begins.
    """

    action: Any
    reward: Any
    discount: Any
    observation: Any
    back: Any


class StepLayout(Layout):
    """The layout of a row with the outcome of a step and a link to the previous step's row."""

    def split(self, rows: Any) -> StepColumns:
        """Splits rows `[..., width]`, an array or a tensor, into views or slices."""
        return StepColumns(
            action=rows[..., : self.action_size],
            reward=rows[..., self.action_size],
            discount=rows[..., self.action_size + 1],
            observation=rows[..., self.action_size + 2 : -1],
            back=rows[..., -1],
        )
