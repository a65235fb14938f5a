"""How many environments there are: it changes only where all episodes begin anew."""

from __future__ import annotations

import numpy as np


def check_count(before: int, count: int) -> None:
    """Refuses steps of another number of environments.

    Raises:
        ValueError: With both numbers.
    """
    if before != count:
        raise ValueError(
            f"there were {before} environments, and are {count}: call on_reset, or add the "
            "steps of an episode one at a time"
        )


def check_began(began: np.ndarray, before: int) -> None:
    """Refuses what cannot be said to `on_reset`.

    Args:
        began: Which environments begin an episode, `[N]` bool.
        before: How many environments there were.

    Raises:
        ValueError: If N is another number and not all of them begin.
    """
    if len(began) != before and not np.all(began):
        raise ValueError(
            f"began must have shape [{before}], or be true for all where the number of "
            f"environments changes; got {np.shape(began)}"
        )
