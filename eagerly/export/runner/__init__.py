"""Runs an exported policy from its folder, with NumPy and one runtime.

    from runner import Policy

    policy = Policy("path/to/the/export")  # the folder that contains policy.json
    action = policy(observation)

The runner lays observations out as rows, scales them in float64, applies masks, selects the most
likely value of each choice, and rescales actions to the environment's units.

`python -m runner` replays `examples.npz`, prints the differences from the recorded actions, and
exits with 1 if they exceed the tolerances in `policy.json`.
"""

from .actions import INVALID
from .document import FORMAT, check_files
from .examples import differences, replay, violations
from .policy import Episode, Policy

__all__ = [
    "FORMAT",
    "INVALID",
    "Episode",
    "Policy",
    "check_files",
    "differences",
    "replay",
    "violations",
]
