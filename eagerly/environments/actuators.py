"""Wrappers that act on actions: delays, rate limits, a cost of changes, and previous actions.

Before the first step of an episode, actuators are at rest: the previous action is 0, or the nearest
bound if 0 is out of bounds. If a safety layer reports `info["executed_action"]`, this is the
previous action of the next step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from eagerly.environments.values import EXECUTED

Env = gymnasium.Env[Any, Any]
_KEY = "previous_actions"  # of the entry that `PreviousActions` adds to a `Dict`
_MOST = 1000  # steps


class _Actuator(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """A wrapper that depends on the previous actions of the episode.

    Raises:
        ValueError: If the actions are not a `Box` of floats.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        space = env.action_space
        if not isinstance(space, gymnasium.spaces.Box) or space.dtype not in (
            np.float32,
            np.float64,
        ):
            raise ValueError(f"actions must be a Box of float32 or float64; got {space}")
        self._box = space
        self._begin()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment. Its actuators are at rest."""
        self._begin()
        return self.env.reset(seed=seed, options=options)

    def _begin(self) -> None:
        self._before = _at_rest(self._box)


class DelayAction(_Actuator):
    """Executes each action a number of steps later, and the action at rest until then.

    A safety layer's `info["executed_action"]` is removed, because it would replace the action of
    another step.

    Args:
        env: An environment whose actions are a `Box` of floats.
        delay: Number of steps, in [1, 1000].

    Raises:
        ValueError: If the actions are not a `Box` of floats, or the delay is out of range.
    """

    def __init__(self, env: Env, delay: int) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, delay=delay)
        _check_steps(delay=delay)
        self._delay = delay
        super().__init__(env)

    def _begin(self) -> None:
        self._waiting = deque([_at_rest(self._box)] * self._delay)

    def step(self, action: Any) -> Any:
        """Executes the action of `delay` steps ago."""
        self._waiting.append(np.array(action))
        *result, info = self.env.step(self._waiting.popleft().copy())
        return *result, {key: info[key] for key in info if key != EXECUTED}


class RateLimit(_Actuator):
    """Limits the change of each action component per step, like a servo with a maximum speed.

    Args:
        env: An environment whose actions are a `Box` of floats.
        change: Largest change per step in the units of the environment, above 0: one number, or one
            for each action component.

    Raises:
        ValueError: If the actions are not a `Box` of floats, or the change is out of range or of
            another shape.
    """

    def __init__(self, env: Env, change: float | Sequence[float]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, change=change)
        super().__init__(env)
        shape = self._box.shape
        try:
            self._change = np.broadcast_to(np.array(change, self._box.dtype), shape)
            is_valid = bool(np.all(np.isfinite(self._change) & (self._change > 0)))
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise ValueError(
                f"change must be a finite number above 0, or one for each of the {shape} action "
                f"components; got {change!r}"
            )

    def step(self, action: Any) -> Any:
        """Executes the action, clipped to the reachable range around the previous one."""
        low, high = self._before - self._change, self._before + self._change
        limited = np.clip(np.asarray(action, self._box.dtype), low, high)
        result = self.env.step(limited.copy())
        self._before = _executed(result, limited)
        return result


class SmoothnessCost(_Actuator):
    """Subtracts a cost of action changes from the reward.

    The cost is `weight * mean(((action - previous) / (high - low)) ** 2)`, the mean being over the
    action components. `info["smoothness_cost"]` is its sum since the start of the episode.

    Args:
        env: An environment whose actions are a bounded `Box` of floats.
        weight: Weight of the cost, above 0.

    Raises:
        ValueError: If the actions are not a bounded `Box` of floats, or the weight is out of range.
    """

    def __init__(self, env: Env, weight: float) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, weight=weight)
        if not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise ValueError(f"weight must be a finite number above 0; got {weight!r}")
        super().__init__(env)
        if not self._box.is_bounded():
            raise ValueError(
                f"the cost is relative to the bounds of actions, which must be finite; got "
                f"{self._box}"
            )
        span = self._box.high.astype(np.float64) - self._box.low
        self._weight, self._span = weight, np.where(span > 0, span, 1.0)

    def _begin(self) -> None:
        super()._begin()
        self._total = 0.0

    def step(self, action: Any) -> Any:
        """Executes the action and subtracts the cost of its change."""
        given = np.array(action, self._box.dtype)
        result = self.env.step(given.copy())
        executed = _executed(result, given).astype(np.float64)
        cost = self._weight * float(np.mean(((executed - self._before) / self._span) ** 2))
        self._before, self._total = executed, self._total + cost
        observation, reward, *ends, info = result
        return observation, float(reward) - cost, *ends, {**info, "smoothness_cost": self._total}


class PreviousActions(gymnasium.Wrapper[Any, Any, Any, Any], gymnasium.utils.RecordConstructorArgs):
    """Adds the last actions of the episode to the observation, the oldest first.

    They are appended to a flat `Box` of floats and become the entry "previous_actions" of a `Dict`.
    Any other observation becomes the entry "observation" of a `Dict` with both. Discrete choices
    are one-hot.

    Args:
        env: An environment whose actions have a fixed size.
        count: Number of actions, in [1, 1000].

    Raises:
        ValueError: If the count is out of range, the actions have no fixed size, or the observation
            already has this entry.
    """

    def __init__(self, env: Env, count: int = 1) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, count=count)
        super().__init__(env)
        _check_steps(count=count)
        self._count = count
        space: Any = env.observation_space
        flat = gymnasium.spaces.flatten_space(env.action_space)
        if not isinstance(flat, gymnasium.spaces.Box):
            raise ValueError(f"actions must have a fixed size; got {env.action_space}")
        self._rest = _at_rest(flat)
        low, high = np.tile(flat.low, count), np.tile(flat.high, count)
        self._is_flat = isinstance(space, gymnasium.spaces.Box) and (
            len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)
        )
        if self._is_flat:
            low, high = np.concatenate([space.low, low]), np.concatenate([space.high, high])
            self.observation_space = gymnasium.spaces.Box(
                low.astype(space.dtype), high.astype(space.dtype), dtype=space.dtype
            )
            return
        is_dict = isinstance(space, gymnasium.spaces.Dict)
        entries = dict(space.spaces) if is_dict else {"observation": space}
        if _KEY in entries:
            raise ValueError(f"the observation already has an entry {_KEY!r}; got {space}")
        actions = gymnasium.spaces.Box(low, high, dtype=flat.dtype)
        self.observation_space = gymnasium.spaces.Dict({**entries, _KEY: actions})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment. The previous actions are those at rest."""
        self._actions = deque([self._rest] * self._count, maxlen=self._count)
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with_actions(observation), info

    def step(self, action: Any) -> Any:
        """Steps the environment and adds the action to the observation."""
        space = self.env.action_space
        # A copy, because an environment may modify the array that it receives.
        flat = np.array(gymnasium.spaces.flatten(space, action))
        observation, *rest, info = self.env.step(action)
        if EXECUTED in info:
            flat = np.array(gymnasium.spaces.flatten(space, info[EXECUTED]))
        self._actions.append(flat)
        return self._with_actions(observation), *rest, info

    def _with_actions(self, observation: Any) -> Any:
        actions = np.concatenate(self._actions)
        if self._is_flat:
            return np.concatenate([observation, actions], dtype=self.observation_space.dtype)
        is_dict = isinstance(self.env.observation_space, gymnasium.spaces.Dict)
        return {**(observation if is_dict else {"observation": observation}), _KEY: actions}


def _at_rest(box: gymnasium.spaces.Box) -> np.ndarray:
    """Returns the action closest to 0."""
    return np.clip(np.zeros(box.shape, box.dtype), box.low, box.high)


def _executed(result: tuple[Any, ...], action: np.ndarray) -> np.ndarray:
    """Returns the action that a safety layer reports in the result of a step, or `action`."""
    return np.array(result[-1].get(EXECUTED, action), action.dtype)


def _check_steps(**steps: int) -> None:
    for name, count in steps.items():
        if type(count) is not int or not 1 <= count <= _MOST:
            raise ValueError(f"{name} must be an integer from 1 to {_MOST}; got {count!r}")
