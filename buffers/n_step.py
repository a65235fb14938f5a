"""n-step returns: transitions that span several steps of an episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.buffers.counts import check_began, check_count
from eagerly.buffers.transition import Transition

# The parts of a waiting step, with their dtype and rank in a state.
_PARTS = {
    "observation": (np.float32, 2),
    "action": (np.float32, 2),
    "reward": (np.float64, 1),
    "discount": (np.float64, 1),
}


class NStep:
    """Makes of each step a transition that looks n steps ahead, fewer where the episode ends.

    The reward of the step at t is r_t + γ r_{t+1} + ... + γ^{m-1} r_{t+m-1}, its discount γ^m, or 0
    if the episode terminated on the way, and the next observation is that m steps later, where
    m = n, or less if the episode ended before. Where it was truncated that is the real last one
    (Sutton and Barto 2018, "Reinforcement Learning: An Introduction", section 7.1). Actions after
    the first are those of the policy that collected them; nothing corrects for that.

    A transition is returned n - 1 steps late. Steps that `on_reset` drops give none.

    Args:
        steps: n, at least 1.

    Raises:
        ValueError: If n is less than 1.
    """

    one_to_one = False

    def __init__(self, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1; got {steps}")
        self._steps = steps
        self._waiting: Transition | None = None  # `[n, N]`, sums so far; a ring over the first axis
        self._ages = np.zeros(0, np.int64)  # of each environment, steps that wait
        self._newest = 0  # its place in the ring

    def accumulate(
        self, transitions: Transition, ended: np.ndarray
    ) -> tuple[Transition, np.ndarray]:
        """Takes one step of each of N environments; returns those that have their n steps.

        Of an environment whose episode ended all that wait are returned, the oldest first.

        Raises:
            ValueError: If the number of environments changed without `on_reset`.
        """
        count, steps = len(ended), self._steps
        waiting = self._room(transitions, count)
        self._newest = newest = (self._newest + 1) % steps
        # What is summed up is complete for those that left; they are overwritten one by one.
        waiting.reward[newest], waiting.discount[newest] = 0.0, 1.0
        waiting.observation[newest] = transitions.observation
        waiting.action[newest] = transitions.action
        self._ages += 1
        waiting.reward[...] += waiting.discount * transitions.reward
        waiting.discount[...] *= transitions.discount
        order = (newest + 1 + np.arange(steps)) % steps  # the oldest first
        age = np.arange(steps, 0, -1)[:, np.newaxis]
        leaves = (age <= self._ages) & ((age == steps) | ended)
        place, environment = np.nonzero(leaves)
        place = order[place]
        self._ages = np.where(ended, 0, np.minimum(self._ages, steps - 1))
        observation, action, reward, discount = (part[place, environment] for part in waiting[:4])
        reached = np.asarray(transitions.next_observation)[environment]
        return Transition(observation, action, reward, discount, reached), ended[environment]

    def _room(self, transitions: Transition, count: int) -> Transition:
        """Returns the steps that wait; makes room for them at first."""
        if self._waiting is None:
            shape = (self._steps, count)
            self._ages = np.zeros(count, np.int64)
            self._waiting = Transition(
                np.zeros((*shape, *np.shape(transitions.observation)[1:]), np.float32),
                np.zeros((*shape, *np.shape(transitions.action)[1:]), np.float32),
                np.zeros(shape),
                np.zeros(shape),
                None,
            )
        check_count(len(self._ages), count)
        for name in ("observation", "action"):
            waiting = np.shape(getattr(self._waiting, name))[2:]
            came = np.shape(getattr(transitions, name))[1:]
            if waiting != came:
                raise ValueError(f"{name} has the shape {came}; of the steps that wait {waiting}")
        return self._waiting

    def on_reset(self, began: np.ndarray) -> None:
        """Drops the steps that wait in environments, `[N]` bool, whose episodes cannot go on."""
        if self._waiting is None:
            return
        check_began(began, len(self._ages))
        if len(began) == len(self._ages):
            self._ages = np.where(began, 0, self._ages)
        else:
            self._waiting = None

    def state(self) -> dict[str, Any]:
        """Returns the waiting steps, the oldest first; `{}` if there are none.

        Nothing in it depends on the ring position, so equal steps have equal states. Under "ages"
        stands how many steps of each environment wait, `[N]`; the other arrays are `[S, ...]`, S
        steps in the order of time, then of environments.
        """
        if self._waiting is None or not self._ages.any():
            return {}
        place, environment = self._places(self._ages, self._newest)
        parts = zip(_PARTS, self._waiting, strict=False)
        return {"ages": self._ages} | {name: part[place, environment] for name, part in parts}

    def _places(self, ages: np.ndarray, newest: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns ring positions and environments, `[S]` each, of the waiting steps."""
        age = np.arange(self._steps, 0, -1)
        slot, environment = np.nonzero(age[:, np.newaxis] <= ages)
        return (newest - age[slot] + 1) % self._steps, environment

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores what `state` returned.

        Raises:
            ValueError: If it is the state of another accumulator, or of another n.
        """
        self._waiting, self._ages, self._newest = None, np.zeros(0, np.int64), 0
        if not state:
            return
        ages, parts = state["ages"], {name: state[name] for name in _PARTS}
        self._check(ages, parts)
        waiting = {
            name: np.zeros((self._steps, len(ages), *part.shape[1:]), part.dtype)
            for name, part in parts.items()
        }
        places = self._places(ages, self._newest)
        for name, part in parts.items():
            waiting[name][places] = part
        self._waiting = Transition(**waiting, next_observation=None)
        self._ages = ages.copy()

    def _check(self, ages: np.ndarray, parts: Mapping[str, np.ndarray]) -> None:
        """Raises a `ValueError` unless these are waiting steps as `state` returns them."""
        most = self._steps - 1
        if ages.dtype != np.int64 or ages.ndim != 1 or ((ages < 0) | (ages > most)).any():
            raise ValueError(
                f"at most {most} steps of each environment wait for n = {self._steps}: ages must "
                f"be int64 of shape [N]; got {ages.dtype} {ages.shape} {ages[:9].tolist()}"
            )
        for name, part in parts.items():
            dtype, rank = _PARTS[name]
            if part.dtype != dtype or part.ndim != rank or len(part) != ages.sum():
                shape = f"[{ages.sum()}{', ...' if rank == 2 else ''}]"
                raise ValueError(
                    f"{name} of the waiting steps must be {np.dtype(dtype)} of shape {shape}; got "
                    f"{part.dtype} {part.shape}"
                )
