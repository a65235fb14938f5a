"""Environments with goals: rewards and terminations that belong to goals other than the one set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from eagerly.environments.flattening import FlatEnvironment
from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.values import plain
from eagerly.errors import INTERRUPTIONS, RunError
from eagerly.spaces import Actions, Observations
from eagerly.spaces.description import GOAL_ENTRIES
from eagerly.spaces.observations import VECTOR, Entry

_METHODS = ("compute_reward", "compute_terminated")
_OF_STEP = ("reward", "termination")  # what they are of a step
_STEPS = 20  # that are looked at


class Goals:
    """Asks an environment for the rewards and terminations of goals, in batches where it can.

    `compute_reward(achieved_goal, desired_goal, info)` and `compute_terminated`, as Gymnasium's
    robotics environments have them, must depend on nothing but their arguments.

    Args:
        env: The environment, of observations with `GOAL_ENTRIES`; it is reset and stepped.
        name: Its name in messages.
        observations: How its observations are laid out.

    Attributes:
        achieved, desired: The columns of the goals in a row.
        info_keys: What `compute_reward` and `compute_terminated` read of `info`.

    Raises:
        RunError: If a key or a method is missing, or they do not give the rewards and
            terminations of `step`.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, observations: Observations) -> None:
        entries = {entry.path: entry for entry in observations.entries}
        achieved, desired = _goal_entries(entries, name)
        self.achieved = slice(achieved.start, achieved.stop)
        self.desired = slice(desired.start, desired.stop)
        self._name, self._entry = name, desired
        self._methods = [_method(env, method, name) for method in _METHODS]
        self._batches = [False] * len(_METHODS)  # until they are known to take them
        read: set[str] = set()
        steps = list(self._played(env, observations, read))
        env.reset(seed=_STEPS + 1)
        self._check_repeats(steps)
        self._batches = [self._takes_batches(index, steps, read) for index in range(len(_METHODS))]
        self.info_keys = tuple(sorted(read))
        for key in self.info_keys:
            try:
                for step in steps:
                    plain(step.info.get(key))
            except TypeError as error:
                raise RunError(
                    f"environment {name!r}: its compute_reward or compute_terminated reads "
                    f"info[{key!r}], which must be {error}"
                ) from error

    def outcomes(
        self, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rewards `[M]` and terminations `[M]` bool of goals.

        Args:
            achieved: `[M, G]`, columns of rows.
            desired: `[M, G]`.
            infos: Of each step a dictionary of what `info_keys` names, or None.

        Raises:
            RunError: If a method fails, or returns what is no number.
        """
        shape = (len(achieved), *self._entry.shape)
        first, second = (x.astype(self._entry.dtype).reshape(shape) for x in (achieved, desired))
        rewards, terminated = (
            self._called(index, first, second, [_copied(info or {}) for info in infos])
            for index in range(len(_METHODS))
        )
        return rewards, terminated.astype(bool)

    def _called(self, index: int, achieved: Any, desired: Any, infos: Sequence[Any]) -> np.ndarray:
        """Returns the results of a method, `[M]` float64."""
        method = self._methods[index]
        # Copies: a method may change its arguments in place, and others are called with them.
        achieved, desired = np.array(achieved), np.array(desired)
        try:
            if self._batches[index]:
                found = np.asarray(method(achieved, desired, infos), np.float64)
            else:
                each = zip(achieved, desired, infos, strict=True)
                found = np.array([_number(method(*given)) for given in each])
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # whatever a user's environment raises
            why = f"{_METHODS[index]} failed, {type(error).__name__}: {error}"
            raise RunError(f"environment {self._name!r}: {why}") from error
        if found.shape != (len(infos),) or not np.isfinite(found).all():
            fits = found.shape == (len(infos),)
            shown = found[~np.isfinite(found)][0] if fits else f"shape {found.shape}"
            raise RunError(f"environment {self._name!r}: {_METHODS[index]} returned {shown}")
        return found

    def _check_repeats(self, steps: Sequence[_Step]) -> None:
        """Refuses methods that say something else once the environment has gone on.

        Raises:
            RunError: If they do.
        """
        for index, name in enumerate(_METHODS):
            before = [step.found[index] for step in steps]
            achieved, desired, _, _ = zip(*steps, strict=True)
            now = self._called(index, achieved, desired, [_copied(step.info) for step in steps])
            for one, other in zip(before, now, strict=True):
                if not _equal(one, other):
                    raise RunError(
                        f"environment {self._name!r}: {name} returned {one:g} for a step, and "
                        f"{other:g} after a reset: hindsight needs it to depend on achieved_goal, "
                        "desired_goal and info alone"
                    )

    def _takes_batches(self, index: int, steps: Sequence[_Step], read: set[str]) -> bool:
        """Whether a batch of goals gives the same as one after the other."""
        # Every goal with every other one: what is reached, and what is not.
        pairs = [(one, other) for one in steps for other in steps]
        first = np.array([one.achieved for one, _ in pairs] * 2)
        second = np.array([x.achieved for _, x in pairs] + [x.desired for _, x in pairs])
        details = [_Read(_copied(one.info), read) for one, _ in pairs * 2]
        try:
            alone = self._called(index, first, second, details)
            together = self._methods[index](first, second, details)
        except INTERRUPTIONS:
            raise
        except BaseException:  # errors of single calls are reported elsewhere
            return False
        is_array = isinstance(together, np.ndarray) and together.shape == (len(first),)
        return is_array and np.array_equal(together, alone)

    def _played(
        self, env: gymnasium.Env[Any, Any], observations: Observations, read: set[str]
    ) -> Iterator[_Step]:
        """Plays a few steps, and yields them.

        Raises:
            RunError: If the methods do not give the rewards and terminations of `step`.
        """
        actions, draws = Actions(env.action_space), np.random.default_rng(0)
        # As the run has them: of rows of float32, with masks behind them.
        name = f"environment {self._name!r}"
        flat = GuardedEnvironment(FlatEnvironment(env, observations, actions), name)
        with _within(env) as inner:
            row, _ = flat.reset(seed=0)
            for number in range(_STEPS):
                mask = observations.mask_of(row[np.newaxis])
                action = actions.to_environment(actions.random(draws, 1, mask))[0]
                row, reward, terminated, truncated, info = flat.step(action)
                achieved, desired = (
                    row[columns].astype(self._entry.dtype).reshape(self._entry.shape)
                    for columns in (self.achieved, self.desired)
                )
                where = f"{name}, step {number + 1}"
                _check_goals(where, inner, achieved_goal=achieved, desired_goal=desired)
                kept = _copied(info)
                found = [
                    float(self._called(i, [achieved], [desired], [_Read(_copied(kept), read)])[0])
                    for i in range(len(_METHODS))
                ]
                for index, came in enumerate((float(reward), float(terminated))):
                    if not _equal(found[index], came):
                        raise RunError(
                            f"{where}: its {_OF_STEP[index]} was {came:g}, but {_METHODS[index]}"
                            f"(achieved_goal, desired_goal, info) returned {found[index]:g}: "
                            f"hindsight needs {_OF_STEP[index]}s that depend on these alone, and "
                            "that no wrapper changes"
                        )
                yield _Step(achieved, desired, kept, found)
                if terminated or truncated:
                    row, _ = flat.reset(seed=number + 1)


class _Step(NamedTuple):
    """A step that was played: its goals, its `info`, and what the methods say of it."""

    achieved: np.ndarray
    desired: np.ndarray
    info: dict[str, Any]
    found: list[float]


class _Read(dict[str, Any]):
    """An `info` that takes note of what is read of it: by iterating, everything."""

    def __init__(self, info: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(info)
        self._read = read

    def __getitem__(self, key: str) -> Any:
        self._read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))
        return super().__contains__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self._read.add(key)
        return super().pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self._read.add(key)
        return super().setdefault(key, default)

    def __iter__(self) -> Iterator[str]:
        self._read.update(super().keys())
        return super().__iter__()

    def keys(self) -> Any:
        self._read.update(super().keys())
        return super().keys()

    def items(self) -> Any:
        self._read.update(super().keys())
        return super().items()

    def values(self) -> Any:
        self._read.update(super().keys())
        return super().values()

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()


class _Inner(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Remembers the last observation of a step."""

    observation: Any = None

    def step(self, action: Any) -> Any:
        result = super().step(action)
        self.observation = result[0]
        return result


@contextmanager
def _within(env: gymnasium.Env[Any, Any]) -> Iterator[_Inner | None]:
    """Shows what the layer that has the methods gives, before wrappers around it; None if none."""
    outer = env
    if not isinstance(outer, gymnasium.Wrapper) or hasattr(outer, _METHODS[0]):
        yield None
        return
    while isinstance(outer.env, gymnasium.Wrapper) and not hasattr(outer.env, _METHODS[0]):
        outer = outer.env
    layer = outer.env
    outer.env = inner = _Inner(layer)
    try:
        yield inner
    finally:
        outer.env = layer


def _check_goals(where: str, inner: _Inner | None, **goals: np.ndarray) -> None:
    """Refuses goals that are not those of the layer that has the methods."""
    if inner is None or not isinstance(inner.observation, Mapping):
        return
    for key, goal in goals.items():
        if key in inner.observation and not _equal(inner.observation[key], goal):
            raise RunError(
                f"{where}: a wrapper changes {key} to {goal.tolist()}, and compute_reward would "
                "take it for a goal of the environment inside: give the wrapper methods of its "
                f"own, {' and '.join(_METHODS)}, or leave goals as they are"
            )


def _equal(one: Any, other: Any) -> bool:
    """Whether two numbers or arrays are equal but for the rounding of float32."""
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-4, atol=1e-6)


def _number(value: Any) -> float:
    """Returns the number in a Python number, a truth value, or an array of one element."""
    return float(np.asarray(value, np.float64).reshape(()))


def _copied(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of an `info`; what `plain` does not take stays the same object."""
    found = dict(info)
    for key, value in found.items():
        with suppress(TypeError):
            found[key] = plain(value)
    return found


def _goal_entries(entries: Mapping[str, Entry], name: str) -> tuple[Entry, Entry]:
    if missing := [key for key in GOAL_ENTRIES if key not in entries]:
        raise RunError(
            f"environment {name!r}: hindsight needs observations that are dictionaries with the "
            f"entries {', '.join(GOAL_ENTRIES)}; got {list(entries)}, without {', '.join(missing)}"
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
