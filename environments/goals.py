"""Environments with goals: rewards and terminations that belong to goals other than the one set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from eagerly.environments.vector import plain
from eagerly.errors import RunError
from eagerly.spaces import Actions, Observations
from eagerly.spaces.observations import VECTOR, Entry

KEYS = ("observation", "achieved_goal", "desired_goal")
_METHODS = ("compute_reward", "compute_terminated")
_STEPS = 20  # of an episode that is looked at


class Goals:
    """Asks an environment for the rewards and terminations of goals, in batches where it can.

    `compute_reward(achieved_goal, desired_goal, info)` and `compute_terminated`, as Gymnasium's
    robotics environments have them, must depend on nothing but their arguments.

    Args:
        env: The environment, of observations with `KEYS`; it is reset and stepped.
        name: Its name in messages.
        observations: How its observations are laid out.

    Attributes:
        achieved, desired: The columns of the goals in a row.
        info_keys: What `compute_reward` and `compute_terminated` read of `info`.

    Raises:
        RunError: If a key or a method is missing, or they do not give the rewards of `step`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, observations: Observations) -> None:
        entries = {entry.path: entry for entry in observations.entries}
        achieved, desired = _goal_entries(entries, name)
        self.achieved = slice(achieved.start, achieved.stop)
        self.desired = slice(desired.start, desired.stop)
        self._name, self._entry = name, desired
        self._methods = [_method(env, method, name) for method in _METHODS]
        read: set[str] = set()
        steps = list(self._played(env, observations, read))
        self.info_keys = tuple(sorted(read))
        for key in self.info_keys:
            try:
                plain(steps[0][2].get(key))
            except TypeError as error:
                raise RunError(
                    f"environment {name!r}: its compute_reward or compute_terminated reads "
                    f"info[{key!r}], which must be {error}"
                ) from error
        self._batches = [self._takes_batches(index, steps) for index in range(len(_METHODS))]

    def outcomes(
        self, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rewards `[M]` and terminations `[M]` bool of goals.

        Args:
            achieved: `[M, G]`, columns of rows.
            desired: `[M, G]`.
            infos: Of each step what `info_keys` names, in that order; None without any.

        Raises:
            RunError: If a method fails, or returns what is no number.
        """
        shape = (len(achieved), *self._entry.shape)
        first, second = (x.astype(self._entry.dtype).reshape(shape) for x in (achieved, desired))
        details = [dict(zip(self.info_keys, info or (), strict=True)) for info in infos]
        rewards = self._called(0, first, second, details).astype(np.float64)
        if not np.isfinite(rewards).all():
            wrong = rewards[~np.isfinite(rewards)].tolist()
            why = f"compute_reward must return finite numbers; got {wrong}"
            raise RunError(f"environment {self._name!r}: {why}")
        return rewards, self._called(1, first, second, details).astype(bool)

    def _called(
        self, index: int, achieved: np.ndarray, desired: np.ndarray, infos: list[dict[str, Any]]
    ) -> np.ndarray:
        method = self._methods[index]
        try:
            if self._batches[index]:
                return np.asarray(method(achieved, desired, infos))
            found = [method(*each) for each in zip(achieved, desired, infos, strict=True)]
        except Exception as error:  # whatever a user's environment raises
            why = f"{_METHODS[index]} failed, {type(error).__name__}: {error}"
            raise RunError(f"environment {self._name!r}: {why}") from error
        return np.array(found).reshape(len(found))

    def _takes_batches(self, index: int, steps: list[tuple[Any, ...]]) -> bool:
        """Whether a batch of goals gives the same as one after the other."""
        achieved, desired, infos = (list(part) for part in zip(*steps, strict=True))
        # Every goal with every other one: what is reached, and what is not.
        pairs = [(i, j) for i in range(len(steps)) for j in range(len(steps))]
        first = np.array([achieved[i] for i, _ in pairs] * 2)
        second = np.array([achieved[j] for _, j in pairs] + [desired[j] for _, j in pairs])
        details = [infos[i] for i, _ in pairs] * 2
        method = self._methods[index]
        try:
            alone = [method(*each) for each in zip(first, second, details, strict=True)]
            together = method(first, second, details)
        except Exception:  # whatever it raises of a batch; alone it is told where it matters
            return False
        is_array = isinstance(together, np.ndarray) and together.shape == (len(first),)
        return is_array and np.array_equal(together, np.array(alone))

    def _played(
        self, env: gymnasium.Env[Any, Any], observations: Observations, read: set[str]
    ) -> Iterator[tuple[Any, ...]]:
        """Plays a few steps, and yields achieved goal, desired goal and info of each."""
        actions, draws = Actions(env.action_space), np.random.default_rng(0)
        env.reset(seed=0)
        for number in range(_STEPS):
            action = actions.to_environment(actions.random(draws, 1, None))[0]
            observation, reward, terminated, truncated, info = env.step(actions.unflatten(action))
            # As `outcomes` has them: of rows of float32.
            row = observations.flatten(observation)
            goals = [
                row[columns].astype(self._entry.dtype).reshape(self._entry.shape)
                for columns in (self.achieved, self.desired)
            ]
            seen = _Read(info, read)
            found = [method(*goals, seen) for method in self._methods]
            if not np.isclose(float(found[0]), float(reward), rtol=1e-4, atol=1e-6):
                raise RunError(
                    f"environment {self._name!r}, step {number + 1}: its reward was {reward}, but "
                    f"compute_reward(achieved_goal, desired_goal, info) returned {found[0]}: "
                    "hindsight needs rewards that depend on these alone, and no wrapper may change "
                    "them"
                )
            yield *goals, {key: info[key] for key in info}
            if terminated or truncated:
                env.reset(seed=number + 1)


class _Read(dict[str, Any]):
    """An `info` that takes note of what is read of it."""

    def __init__(self, info: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(info)
        self._read = read

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        return super().get(key, default)


def _goal_entries(entries: Mapping[str, Entry], name: str) -> tuple[Entry, Entry]:
    if missing := [key for key in KEYS if key not in entries]:
        raise RunError(
            f"environment {name!r}: hindsight needs observations that are dictionaries with the "
            f"entries {', '.join(KEYS)}; got {list(entries)}, without {', '.join(missing)}"
        )
    achieved, desired = entries["achieved_goal"], entries["desired_goal"]
    if achieved.kind != VECTOR or (achieved.shape, achieved.kind) != (desired.shape, desired.kind):
        raise RunError(
            f"environment {name!r}: hindsight needs goals that are arrays of one shape; "
            f"achieved_goal is a {achieved.kind} of shape {achieved.shape}, desired_goal a "
            f"{desired.kind} of shape {desired.shape}"
        )
    return achieved, desired


def _method(env: gymnasium.Env[Any, Any], method: str, name: str) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = env.get_wrapper_attr(method)
    except AttributeError as error:
        raise RunError(
            f"environment {name!r}: hindsight needs a method {method}(achieved_goal, desired_goal, "
            "info), as that of gymnasium_robotics.GoalEnv; it has none"
        ) from error
    return found
