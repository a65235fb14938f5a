"""Accumulators, which convert environment steps to transitions for a replay buffer."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from eagerly.buffers.transition import Transition
from eagerly.state import Saved, Stateful


class Accumulator(Stateful, Protocol):
    """Converts environment steps to transitions, such as n-step transitions.

    If its state is empty, nothing is saved, and `restore` is called with `{}`.
    """

    @property
    def one_to_one(self) -> bool:
        """True if each call returns exactly the transitions of the steps passed in, in order.

        Buffers that keep episodes require this.
        """

    def accumulate(
        self, transitions: Transition, ended: np.ndarray
    ) -> tuple[Transition, np.ndarray]:
        """Accumulates one step of each of N environments and returns M transitions to store.

        Args:
            transitions: The steps, `[N]`, always in the same environment order. The arrays may be
                reused: copy any that you keep.
            ended: `[N]` bool, true if the step ended its episode by termination or truncation.

        Returns:
            M >= 0 transitions, and `[M]` bool, true if the transition ended its episode. The
            discount multiplies the value of the next observation: for example γ^n, or 0 after a
            termination.
        """

    def on_reset(self, began: np.ndarray) -> None:
        """Discards the pending steps of environments whose episodes were interrupted.

        Args:
            began: `[N]` bool, true for these environments. If the number of environments has
                changed, true for all.
        """


class OneStep(Saved):
    """Returns each step unchanged, as a one-step transition."""

    one_to_one = True

    def accumulate(
        self, transitions: Transition, ended: np.ndarray
    ) -> tuple[Transition, np.ndarray]:
        """Returns its arguments unchanged."""
        return transitions, ended

    def on_reset(self, began: np.ndarray) -> None:
        """Does nothing, because no steps are pending."""
