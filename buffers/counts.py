"""Checks of the number of environments, which may change only when all episodes restart."""

from __future__ import annotations

import numpy as np


def check_count(before: int, count: int) -> None:
    """Validates that the number of environments has not changed.

    Raises:
        ValueError: If it has. The message contains both numbers.
    """
    if before != count:
        raise ValueError(
            f"the number of environments changed from {before} to {count}: call on_reset first, or "
            "add the steps of an episode one at a time"
        )


def check_began(began: np.ndarray, before: int) -> None:
    """Validates the argument of `on_reset`.

    Args:
        began: `[N]` bool, the environments that begin an episode.
        before: Previous number of environments.

    Raises:
        ValueError: If N differs from `before` and not all environments begin an episode.
    """
    if len(began) != before and not np.all(began):
        raise ValueError(
            f"began must have shape [{before}], or be true for all environments if their number "
            f"changes; got {np.shape(began)}"
        )
