"""Accumulators: which transitions a replay buffer gets of the steps of environments."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from eagerly.buffers.transition import Transition
from eagerly.state import Saved, Stateful


class Accumulator(Stateful, Protocol):
    """Makes transitions of steps: of n steps each, for example.

    If its state is empty nothing is saved, and `restore` is called with `{}`.
    """

    @property
    def one_to_one(self) -> bool:
        """Whether each call returns one transition per environment, in order, for the same step.

        Buffers that keep episodes need that.
        """

    def accumulate(
        self, transitions: Transition, ended: np.ndarray
    ) -> tuple[Transition, np.ndarray]:
        """Takes one step of each of N environments and returns M transitions for the buffer.

        Args:
            transitions: The steps, `[N]`, always in the same order of environments. The arrays
                may be reused: copy what you keep.
            ended: Which episodes ended with these steps, `[N]` bool, terminated or truncated.

        Returns:
            M >= 0 transitions, and which of them ended an episode, `[M]` bool. A discount is the
            factor on the value of the next observation, such as γ^n, or 0 after a termination.
        """

    def on_reset(self, began: np.ndarray) -> None:
        """Drops the kept steps of environments, `[N]` bool, whose episodes cannot go on.

        If the number of environments has changed it is true for all.
        """


class OneStep(Saved):
    """Makes one transition of each step, without a change."""

    one_to_one = True

    def accumulate(
        self, transitions: Transition, ended: np.ndarray
    ) -> tuple[Transition, np.ndarray]:
        """Returns its arguments."""
        return transitions, ended

    def on_reset(self, began: np.ndarray) -> None:
        """Does nothing: no step is kept."""
