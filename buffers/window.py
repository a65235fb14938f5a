"""A window of steps of one episode, and how it is packed into rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from eagerly.buffers.transition import StepLayout

# What a step of a window is for.
PADDING, BURN_IN, LEARNED = 0.0, 1.0, 2.0


class Window(NamedTuple):
    """T consecutive steps of an episode, or an array or tensor of such windows `[...]`.

    Fewer steps than T are followed by padding, whatever stands there.

    Attributes:
        observation: `[..., T + 1, O]`, what the agent saw before each step, and after the last.
        previous_action: `[..., T + 1, A]`, the action that led to each of these, in [-1, 1]; 0
            where the episode began.
        previous_reward: `[..., T + 1]`, the reward that came with each of them; 0 where the
            episode began.
        discount: `[..., T]`, as in `Transition`.
        role: `[..., T]`, what each step is for: `PADDING`, `BURN_IN` or `LEARNED`.
    """

    observation: Any
    previous_action: Any
    previous_reward: Any
    discount: Any
    role: Any

    @property
    def action(self) -> Any:
        """`[..., T, A]`, what the agent did in each step."""
        return self.previous_action[..., 1:, :]

    @property
    def reward(self) -> Any:
        """`[..., T]`, what it got."""
        return self.previous_reward[..., 1:]


@dataclass(frozen=True)
class SequenceLayout(StepLayout):
    """Where the parts of a step stand in a packed row, and what a window is.

    A row is what a step led to: action, reward, discount, observation. Its last number is, in a
    buffer, how many rows before it the step before stands, 0 where an episode begins; in a
    window it is the role of the step.

    Attributes:
        length: T, steps in a window.
        burn_in: How many of them only warm the memory, at most T - 2.
    """

    length: int
    burn_in: int = 0

    _LEAST: ClassVar[dict[str, int]] = StepLayout._LEAST | {"length": 2, "burn_in": 0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.burn_in > self.length - 2:
            raise ValueError(
                f"burn_in must leave 2 steps of {self.length} to learn from; got {self.burn_in}"
            )

    @property
    def width(self) -> int:
        """Floats in a row: A + O + 3."""
        return self.action_size + self.observation_size + 3

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of a window."""
        return self.length + 1, self.width

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes, with the number of the row after it."""
        return 4 * self.width + 8

    def least_rows(self, environments: int) -> int:
        """Returns the least capacity of a buffer for N environments."""
        return 4 * environments

    def unpack(self, rows: Any) -> Window:
        """Splits windows `[..., T + 1, width]`, an array or a tensor, into views or slices."""
        action, reward, discount, observation, role = self.split(rows)
        return Window(observation, action, reward, discount[..., 1:], role[..., 1:])
