"""Environments with unusual but supported spaces, for `suites.py`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

Step = tuple[Any, float, bool, bool, dict[str, Any]]


class Bandit(gymnasium.Env[Any, Any]):
    """A contextual bandit with one-step episodes; the context is the best action."""

    observation_space = Box(-1.0, 1.0, (1,), np.float64)
    action_space = Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Samples a context."""
        super().reset(seed=seed)
        self._context = self.np_random.uniform(-1, 1, 1)
        return self._context.copy(), {}

    def step(self, action: Any) -> Step:
        """Returns the negative distance to the context as reward and ends the episode."""
        reward = -float(np.abs(action - self._context)[0])
        return self._context.copy(), reward, True, False, {}


class Uneven(gymnasium.Env[Any, Any]):
    """A valve and a heater: float64 actions whose bounds differ by orders of magnitude."""

    observation_space = Box(-np.inf, np.inf, (2, 3), np.float64)
    action_space = Box(np.array([[-1e-3], [273.0]]), np.array([[2e-3], [4000.0]]), dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Samples an initial state."""
        super().reset(seed=seed)
        self._at, self._count = self.np_random.normal(size=(2, 3)), 0
        return self._at.copy(), {}

    def step(self, action: Any) -> Step:
        """Moves the first row with the valve and the second row with the heater."""
        if action.shape != (2, 1) or not self.action_space.contains(action):
            raise ValueError(f"action must lie in {self.action_space}; got {action!r}")
        self._at = 0.9 * self._at + action * np.array([[100.0], [1e-4]])
        self._count += 1
        return self._at.copy(), -float(np.square(self._at).sum()), False, self._count == 35, {}


class Nested(gymnasium.Env[Any, Any]):
    """Nested observations and actions of many kinds."""

    observation_space = Dict(
        {
            "arm": Tuple([Box(-1.0, 1.0, (3,), np.float32), Discrete(4, start=-1)]),
            "lamps": MultiBinary(5),
            "load": Box(0.0, 1.0, (), np.float64),
        }
    )
    action_space = Dict(
        {
            "grip": Tuple([MultiDiscrete([2, 3]), Box(-2.0, 0.5, (2,), np.float32)]),
            "horn": Discrete(2),
        }
    )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Samples an initial observation."""
        super().reset(seed=seed)
        self._count = 0
        return self._observation(), {}

    def step(self, action: Any) -> Step:
        """Rewards a closed grip and penalizes the horn."""
        if not self.action_space.contains(action):
            raise ValueError(f"action must lie in {self.action_space}; got {action!r}")
        choices, force = action["grip"]
        reward = float(choices.sum() + force.sum()) - float(action["horn"])
        self._count += 1
        return self._observation(), reward, self._count == 35, False, {"is_success": reward > 2}

    def _observation(self) -> dict[str, Any]:
        random = self.np_random
        return {
            "arm": (random.uniform(-1, 1, 3).astype(np.float32), random.integers(-1, 3)),
            "lamps": random.integers(0, 2, 5, dtype=np.int8),
            "load": np.array(random.uniform()),
        }


for _name in ("Bandit", "Uneven", "Nested"):
    gymnasium.register(f"{_name}-v0", entry_point=f"{__name__}:{_name}")
