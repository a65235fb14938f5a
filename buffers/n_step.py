"""n-step returns: transitions that span several steps of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.buffers.counts import check_began, check_count
from eagerly.buffers.transition import Transition
from eagerly.errors import whole_number
from eagerly.state import check_keys

# The parts of a pending step, with their dtype and rank in a saved state.
_PARTS = {
    "observation": (np.float32, 2),
    "action": (np.float32, 2),
    "reward": (np.float64, 1),
    "discount": (np.float64, 1),
}


class NStep:
    """Converts each step to an n-step transition, which is shorter if the episode ends earlier.

    The reward of the step at t is r_t + γ r_{t+1} + ... + γ^{m-1} r_{t+m-1}, where m is n, or the
    number of steps left in the episode if that is less (Sutton and Barto 2018, "Reinforcement
    Learning: An Introduction", section 7.1). The discount is γ^m, or 0 if the episode terminates
    within these steps. The next observation is the one m steps later; if the episode was truncated
    there, it is the last observation before the reset. Actions after the first are those of the
    collecting policy, without off-policy correction.

    Transitions are returned n - 1 steps late. Steps that `on_reset` discards produce no transition.

    Args:
        steps: n, at least 1.

    Raises:
        ValueError: If n is not an integer of at least 1.
    """

    one_to_one = False

    def __init__(self, steps: int) -> None:
        self._steps = whole_number("steps", steps, 1)
        self._pending: Transition | None = None  # partial sums `[n, N]`; the first axis is a ring
        self._ages = np.zeros(0, np.int64)  # pending steps per environment
        self._newest = 0  # ring position of the newest step

    def accumulate(
        self, transitions: Transition, ended: np.ndarray
    ) -> tuple[Transition, np.ndarray]:
        """Accumulates one step of each of N environments and returns the completed transitions.

        If an episode ends, all pending transitions of its environment are returned, oldest first.

        Raises:
            ValueError: If the number of environments changed without `on_reset`.
        """
        count, steps = len(ended), self._steps
        pending = self._ring(transitions, count)
        self._newest = newest = (self._newest + 1) % steps
        # The sums below also change at ring positions that are no longer pending. These are
        # overwritten before they are used again.
        pending.reward[newest], pending.discount[newest] = 0.0, 1.0
        pending.observation[newest] = transitions.observation
        pending.action[newest] = transitions.action
        self._ages += 1
        pending.reward[...] += pending.discount * transitions.reward
        pending.discount[...] *= transitions.discount
        order = (newest + 1 + np.arange(steps)) % steps  # oldest first
        age = np.arange(steps, 0, -1)[:, np.newaxis]
        leaves = (age <= self._ages) & ((age == steps) | ended)
        place, environment = np.nonzero(leaves)
        place = order[place]
        self._ages = np.where(ended, 0, np.minimum(self._ages, steps - 1))
        observation, action, reward, discount = (part[place, environment] for part in pending[:4])
        reached = np.asarray(transitions.next_observation)[environment]
        return Transition(observation, action, reward, discount, reached), ended[environment]

    def _ring(self, transitions: Transition, count: int) -> Transition:
        """Returns the ring of pending steps, allocating it on the first call."""
        if self._pending is None:
            shape = (self._steps, count)
            self._ages = np.zeros(count, np.int64)
            self._pending = Transition(
                np.zeros((*shape, *np.shape(transitions.observation)[1:]), np.float32),
                np.zeros((*shape, *np.shape(transitions.action)[1:]), np.float32),
                np.zeros(shape),
                np.zeros(shape),
                None,
            )
        check_count(len(self._ages), count)
        for name in ("observation", "action"):
            pending = np.shape(getattr(self._pending, name))[2:]
            given = np.shape(getattr(transitions, name))[1:]
            if pending != given:
                raise ValueError(
                    f"{name} must have shape {pending}, as in pending steps; got {given}"
                )
        return self._pending

    def on_reset(self, began: np.ndarray) -> None:
        """Discards the pending steps of the environments in `began`, `[N]` bool."""
        if self._pending is None:
            return
        check_began(began, len(self._ages))
        if len(began) == len(self._ages):
            self._ages = np.where(began, 0, self._ages)
        else:
            self._pending = None

    def state(self) -> dict[str, Any]:
        """Returns the pending steps, oldest first, or `{}` if none are pending.

        The state does not depend on ring positions, so equal pending steps give equal states.
        "ages" holds the number of pending steps per environment, `[N]`. The other arrays are
        `[S, ...]`: S steps, ordered by time, then by environment.
        """
        if self._pending is None or not self._ages.any():
            return {}
        place, environment = self._places(self._ages, self._newest)
        parts = zip(_PARTS, self._pending, strict=False)
        return {"ages": self._ages} | {name: part[place, environment] for name, part in parts}

    def _places(self, ages: np.ndarray, newest: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ring positions and environments of the pending steps, `[S]` each."""
        age = np.arange(self._steps, 0, -1)
        slot, environment = np.nonzero(age[:, np.newaxis] <= ages)
        return (newest - age[slot] + 1) % self._steps, environment

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state returned by `state()`.

        Raises:
            ValueError: If the state is invalid for this n, or of another kind of accumulator.
                Nothing is restored.
        """
        if not state:
            self._pending, self._ages, self._newest = None, np.zeros(0, np.int64), 0
            return
        check_keys("NStep", state, {"ages", *_PARTS})
        ages, parts = state["ages"], {name: state[name] for name in _PARTS}
        self._check(ages, parts)
        pending = {
            name: np.zeros((self._steps, len(ages), *part.shape[1:]), part.dtype)
            for name, part in parts.items()
        }
        places = self._places(ages, newest=0)
        for name, part in parts.items():
            pending[name][places] = part
        self._pending = Transition(**pending, next_observation=None)
        self._ages, self._newest = ages.copy(), 0

    def _check(self, ages: np.ndarray, parts: Mapping[str, np.ndarray]) -> None:
        """Raises a `ValueError` unless these are pending steps as `state` returns them."""
        most = self._steps - 1
        if ages.dtype != np.int64 or ages.ndim != 1 or ((ages < 0) | (ages > most)).any():
            raise ValueError(
                f"ages must be int64 of shape [N] in [0, {most}] for n = {self._steps}; got "
                f"{ages.dtype} {ages.shape} {ages[:9].tolist()}"
            )
        for name, part in parts.items():
            dtype, rank = _PARTS[name]
            if part.dtype != dtype or part.ndim != rank or len(part) != ages.sum():
                shape = f"[{ages.sum()}{', ...' if rank == 2 else ''}]"
                raise ValueError(
                    f"{name} of the pending steps must be {np.dtype(dtype)} of shape {shape}; got "
                    f"{part.dtype} {part.shape}"
                )
