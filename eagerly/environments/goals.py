"""Rewards and terminations for substituted goals in goal-conditioned environments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from eagerly.environments.flattening import FlatEnvironment
from eagerly.environments.goal_termination import termination_code
from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.values import plain
from eagerly.errors import INTERRUPTIONS, RunError, UsageError, summary
from eagerly.spaces import Actions, Observations, text_of
from eagerly.spaces.description import GOAL_ENTRIES
from eagerly.spaces.observations import VECTOR, Entry

_METHODS = ("compute_reward", "compute_terminated")
_OF_STEP = ("reward", "termination")  # the corresponding results of `step`
_STEPS = 20  # number of steps played to validate the methods


class Goals:
    """Computes rewards and terminations for arbitrary goals, in batches if supported.

    Calls `compute_reward(achieved_goal, desired_goal, info)` and `compute_terminated`, as defined
    by Gymnasium-Robotics. Their results must depend only on their arguments.

    Args:
        env: The environment, whose observations contain `GOAL_ENTRIES`; it is reset and stepped.
        name: Name used in messages.
        observations: Observation layout.

    Attributes:
        achieved, desired: Columns of each goal in an observation row.
        info_keys: Keys of `info` that `compute_reward` and `compute_terminated` read.

    Raises:
        RunError: If a goal entry or a method is missing, the goals are not arrays of one shape, the
            methods do not reproduce the rewards and terminations of `step`, or they read a value
            of `info` that a checkpoint cannot hold.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], name: str, observations: Observations) -> None:
        achieved, desired = _goal_entries(observations, name)
        self.achieved = slice(achieved.start, achieved.stop)
        self.desired = slice(desired.start, desired.stop)
        self._name, self._entry = name, desired
        self._methods = [_method(env, method, name) for method in _METHODS]
        self._batches = [False] * len(_METHODS)  # until batch support is tested
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
                    f"environment {name!r}: compute_reward or compute_terminated reads "
                    f"info[{key!r}], which must be {error}"
                ) from error

    def outcomes(
        self, achieved: np.ndarray, desired: np.ndarray, infos: Sequence[Any]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns rewards `[M]` and terminations `[M]` (bool) for M pairs of goals.

        Args:
            achieved: Achieved goals, `[M, G]`, as columns of observation rows.
            desired: Desired goals, `[M, G]`.
            infos: For each pair, a dictionary with the entries `info_keys`, or None.

        Raises:
            RunError: If a method fails or does not return a finite number for each pair.
        """
        shape = (len(achieved), *self._entry.shape)
        first, second = (x.astype(self._entry.dtype).reshape(shape) for x in (achieved, desired))
        rewards, terminated = (
            self._called(index, first, second, [_copied(info or {}) for info in infos])
            for index in range(len(_METHODS))
        )
        return rewards, terminated.astype(bool)

    def _called(self, index: int, achieved: Any, desired: Any, infos: Sequence[Any]) -> np.ndarray:
        """Calls a method for M pairs of goals and returns the results, `[M]` float64."""
        method = self._methods[index]
        # The arguments are used again, and a method may modify them in place.
        achieved, desired = np.array(achieved), np.array(desired)
        try:
            if self._batches[index]:
                found = np.asarray(method(achieved, desired, infos), np.float64)
            else:
                each = zip(achieved, desired, infos, strict=True)
                found = np.array([_number(method(*given)) for given in each])
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # a user's environment may raise anything
            why = f"{_METHODS[index]} failed: {summary(error)}"
            raise RunError(f"environment {self._name!r}: {why}") from error
        if found.shape != (len(infos),) or not np.isfinite(found).all():
            fits = found.shape == (len(infos),)
            shown = found[~np.isfinite(found)][0] if fits else f"shape {found.shape}"
            raise RunError(
                f"environment {self._name!r}: {_METHODS[index]} must return a finite number for "
                f"each pair of goals; got {shown}"
            )
        return found

    def _check_repeats(self, steps: Sequence[_Step]) -> None:
        """Raises `RunError` if a method returns different results after a reset."""
        for index, name in enumerate(_METHODS):
            before = [step.found[index] for step in steps]
            achieved, desired, _, _ = zip(*steps, strict=True)
            now = self._called(index, achieved, desired, [_copied(step.info) for step in steps])
            for one, other in zip(before, now, strict=True):
                if not _equal(one, other):
                    raise RunError(
                        f"environment {self._name!r}: {name} returned {one:g} for a step but "
                        f"{other:g} after a reset: hindsight replay requires it to depend only on "
                        "achieved_goal, desired_goal and info"
                    )

    def _takes_batches(self, index: int, steps: Sequence[_Step], read: set[str]) -> bool:
        """Returns whether a batched call gives the same results as individual calls."""
        # Pairs of goals from different steps ensure that both achieved and missed goals occur.
        pairs = [(one, other) for one in steps for other in steps]
        first = np.array([one.achieved for one, _ in pairs] * 2)
        second = np.array([x.achieved for _, x in pairs] + [x.desired for _, x in pairs])
        details = [_Read(_copied(one.info), read) for one, _ in pairs * 2]
        try:
            alone = self._called(index, first, second, details)
            together = self._methods[index](first, second, details)
        except INTERRUPTIONS:
            raise
        except BaseException:  # `outcomes` raises errors of individual calls
            return False
        is_array = isinstance(together, np.ndarray) and together.shape == (len(first),)
        return is_array and np.array_equal(together, alone)

    def _played(
        self, env: gymnasium.Env[Any, Any], observations: Observations, read: set[str]
    ) -> Iterator[_Step]:
        """Plays a few steps and yields them.

        Raises:
            RunError: If the methods do not reproduce the rewards and terminations of `step`.
        """
        actions, draws = Actions(env.action_space), np.random.default_rng(0)
        # As in a run, the goals are taken from float32 rows that end with masks.
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
                            f"{where}: the {_OF_STEP[index]} was {came:g}, but {_METHODS[index]}"
                            f"(achieved_goal, desired_goal, info) returned {found[index]:g}: "
                            f"hindsight replay requires {_OF_STEP[index]}s that depend only on "
                            "these arguments and that no wrapper changes"
                        )
                yield _Step(achieved, desired, kept, found)
                if terminated or truncated:
                    row, _ = flat.reset(seed=number + 1)


class _Step(NamedTuple):
    """The goals and `info` of a step, and the results of the methods for it."""

    achieved: np.ndarray
    desired: np.ndarray
    info: dict[str, Any]
    found: list[float]


class _Read(dict[str, Any]):
    """An `info` dictionary that records which keys are read; iteration reads all keys."""

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
    """Stores the last observation returned by `step`."""

    observation: Any = None

    def step(self, action: Any) -> Any:
        result = super().step(action)
        self.observation = result[0]
        return result


@contextmanager
def _within(env: gymnasium.Env[Any, Any]) -> Iterator[_Inner | None]:
    """Records the observations of the environment layer that defines the methods.

    Yields the recorder, or None if that layer is the outermost one.
    """
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
    """Raises `RunError` if a wrapper changes the goals of the layer that defines the methods."""
    if inner is None or not isinstance(inner.observation, Mapping):
        return
    for key, goal in goals.items():
        if key in inner.observation and not _equal(inner.observation[key], goal):
            raise RunError(
                f"{where}: a wrapper changes {key} to {goal.tolist()}, but compute_reward expects "
                f"goals of the wrapped environment: define {' and '.join(_METHODS)} in the "
                "wrapper, or do not change goals there"
            )


def _equal(one: Any, other: Any) -> bool:
    """Returns whether two numbers or arrays are equal up to float32 rounding."""
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=1e-4, atol=1e-6)


def _number(value: Any) -> float:
    """Converts a number, a boolean or a one-element array to a float."""
    return float(np.asarray(value, np.float64).reshape(()))


def _copied(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of an `info`. Values that `plain` rejects are shared with the original."""
    found = dict(info)
    for key, value in found.items():
        with suppress(TypeError):
            found[key] = plain(value)
    return found


def _goal_entries(observations: Observations, name: str) -> tuple[Entry, Entry]:
    entries = {entry.path: entry for entry in observations.entries}
    if not entries.keys() >= set(GOAL_ENTRIES):
        raise UsageError(
            f"environment {name!r}: hindsight replay requires dictionary observations in which "
            f"{' and '.join(GOAL_ENTRIES)} are arrays; got {text_of(observations.kept_space)}"
        )
    achieved, desired = entries["achieved_goal"], entries["desired_goal"]
    if achieved.kind != VECTOR or (achieved.shape, achieved.kind) != (desired.shape, desired.kind):
        raise UsageError(
            f"environment {name!r}: hindsight replay requires array goals of the same shape; "
            f"got achieved_goal: {achieved.kind} of shape {achieved.shape}, desired_goal: "
            f"{desired.kind} of shape {desired.shape}"
        )
    return achieved, desired


def _method(env: gymnasium.Env[Any, Any], method: str, name: str) -> Callable[..., Any]:
    try:
        env.get_wrapper_attr(method)
    except AttributeError as error:
        how = ""
        if method == "compute_terminated":
            how = (
                ". Whether an episode would terminate with another goal depends on the "
                "environment. Add the method in a wrapper, and pass env=make_env to eagerly.train:"
                f"\n\n{termination_code(env, name)}"
            )
        raise UsageError(
            f"environment {name!r}: hindsight replay requires a method {method}(achieved_goal, "
            f"desired_goal, info), as in gymnasium_robotics.GoalEnv; it has none{how}"
        ) from error
    # Looked up at every call, because `recreate` replaces the environment inside its wrappers.
    return lambda *arguments: env.get_wrapper_attr(method)(*arguments)
