"""Windows of consecutive steps of an episode, and their layout in packed rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from eagerly.buffers.transition import StepLayout

# Roles of the steps of a window. Agents rely on their order.
PADDING, BURN_IN, LEARNED = 0.0, 1.0, 2.0


class Window(NamedTuple):
    """T consecutive steps of an episode, or arrays or tensors of windows `[...]`.

    If there are fewer than T steps, they are followed by padding with arbitrary values.

    Attributes:
        observation: `[..., T + 1, O]`, the observations before each step and after the last one.
        previous_action: `[..., T + 1, A]` in [-1, 1], the action that led to each observation; 0 at
            the beginning of the episode.
        previous_reward: `[..., T + 1]`, the reward received with each observation; 0 at the
            beginning of the episode.
        discount: `[..., T]`, as in `Transition`.
        role: `[..., T]`, the role of each step: `PADDING`, `BURN_IN` or `LEARNED`.
    """

    observation: Any
    previous_action: Any
    previous_reward: Any
    discount: Any
    role: Any

    @property
    def action(self) -> Any:
        """`[..., T, A]`, the action of each step."""
        return self.previous_action[..., 1:, :]

    @property
    def reward(self) -> Any:
        """`[..., T]`, the reward of each step."""
        return self.previous_reward[..., 1:]


@dataclass(frozen=True)
class SequenceLayout(StepLayout):
    """The layout of a step in a packed row, and the length of windows.

    A row holds the outcome of a step: action, reward, discount and observation. In a buffer, the
    last column is the distance in rows to the previous step, or 0 if an episode begins. In a
    window, it is the role of the step.

    Attributes:
        length: T, the number of steps per window.
        burn_in: Number of steps that only warm up the recurrent state, at most T - 2.
    """

    length: int
    burn_in: int = 0

    _LEAST: ClassVar[dict[str, int]] = StepLayout._LEAST | {"length": 2, "burn_in": 0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.burn_in > self.length - 2:
            raise ValueError(
                f"burn_in must leave at least 2 of {self.length} steps to learn from; got "
                f"{self.burn_in}"
            )

    @property
    def width(self) -> int:
        """Floats per row: A + O + 3."""
        return self.action_size + self.observation_size + 3

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of a window."""
        return self.length + 1, self.width

    @property
    def row_bytes(self) -> int:
        """Bytes per row, including the number of the next row, which the buffer also stores."""
        return 4 * self.width + 8

    def least_rows(self, environments: int) -> int:
        """Returns the minimum capacity of a buffer for N environments."""
        return 4 * environments

    def unpack(self, rows: Any) -> Window:
        """Splits windows `[..., T + 1, width]`, an array or a tensor, into views or slices."""
        action, reward, discount, observation, role = self.split(rows)
        return Window(observation, action, reward, discount[..., 1:], role[..., 1:])
