"""Creates the first environment of a run, which has the spaces for which the agent is built."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import gymnasium

from eagerly.agents.agent_settings import NO_HINDSIGHT
from eagerly.environments.adapting import warn_if_unseeded
from eagerly.environments.checking import check_environment
from eagerly.environments.factory import EnvironmentMaker
from eagerly.environments.flattening import make_flat
from eagerly.environments.guard import GuardedEnvironment, close_with_warning
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError, UsageError
from eagerly.spaces import text_of
from eagerly.storage.config import NO_EVALUATIONS, SEPARATE
from eagerly.storage.run import Run
from eagerly.workers.group_specs import HERE

# Settings of the checked environment.
CHECKED = {"env", "env_kwargs", "wrapper", "evaluation_env_kwargs"}
_ONE_INSTANCE = (
    "An instance that this run created before is still open. If only one can exist, use "
    "--hardware, --evaluations shared or --evaluations none, with --num-envs 1."
)
_Env = gymnasium.Env[Any, Any]


class FirstEnvironment:
    """The environment that a run creates first, and the factory of its training environments.

    With separate evaluations, it is the evaluation environment. Otherwise, it is the first training
    environment, so that a run with one environment never opens a second one. If collectors run in
    other processes, it is closed before they start.

    Args:
        run: The run.
        watchdog: Monitors the environment.

    Attributes:
        name: Name of the environment in messages.
        spaces: Its observation space and action space.
        observations, actions: The agent's layouts of these spaces.

    Raises:
        RunError: If the environment cannot be created, or the agent does not support its spaces.
    """

    def __init__(self, run: Run, watchdog: Watchdog) -> None:
        self._run, self._watchdog = run, watchdog
        self._make = run.environment()
        self.name = self._make.name
        self._is_separate = run.config.evaluations == SEPARATE
        env = self._created(run.evaluation_environment() if self._is_separate else self._make)
        self.spaces = env.observation_space, env.action_space
        try:
            self.observations, self.actions = run.agent_config.spaces(*self.spaces)
        except ValueError as error:
            close_with_warning(env, f"environment {self.name!r}")
            raise UsageError(f"environment {self.name!r}: {error}") from error
        self._opened = ExitStack()
        self._env = self._guarded(env, "the evaluation environment")
        # The training environment with index 0, if it exists already.
        self._training = None if self._is_separate else self._env
        warn_if_unseeded(env, self.name)

    def _created(self, make: Callable[[], _Env]) -> _Env:
        before = os.stat(".")
        with self._watchdog.calling(f"creating environment {self.name!r}"):
            env = make()
        if not (self._run.path.is_absolute() or os.path.samestat(before, os.stat("."))):
            close_with_warning(env, f"environment {self.name!r}")
            raise UsageError(
                f"environment {self.name!r} changed the working directory when it was created, so "
                f"the relative path {self._run.path} refers to another place now: give the run "
                "directory as an absolute path"
            )
        return env

    def _guarded(self, env: _Env, name: str) -> GuardedEnvironment:
        guarded = GuardedEnvironment(env, name, self._watchdog, self.observations)
        return self._opened.enter_context(closing(guarded))

    @property
    def for_evaluation(self) -> GuardedEnvironment | None:
        """The environment for evaluations; None if the run is never evaluated."""
        return None if self._run.config.evaluations == NO_EVALUATIONS else self._env

    @property
    def _may_differ(self) -> bool:
        """Whether training environments may differ from this one in more than their index."""
        kwargs = self._run.config.evaluation_env_kwargs
        return self._is_separate and (bool(kwargs) or "is_evaluation" in self._make.declared)

    def check(self) -> bool | None:
        """Checks the environment; see `check_environment`.

        Returns:
            Whether training episodes are reproducible; None if only evaluation episodes were tested
            and may differ.
        """
        what = f"checking environment {self.name!r}"
        with self._watchdog.calling(what, patience=100):  # makes dozens of steps and resets
            masks = self._run.agent_config.action_masks
            repeats = check_environment(
                self._env.env, self.name, observations=self.observations, masks=masks
            )
        return None if self._may_differ else repeats

    def with_goals(self) -> GuardedEnvironment:
        """Returns an environment that computes the rewards of training for any goal.

        Raises:
            RunError: If the agent uses hindsight replay, and only a training environment that runs
                elsewhere, in a process or a thread, computes these rewards.
        """
        config = self._run.config
        if self._run.agent_config.hindsight == NO_HINDSIGHT:
            return self._env
        if self._is_separate and not self._may_differ:
            return self._env
        if config.collectors != HERE or config.policy_lag:
            raise UsageError(
                "hindsight replay computes rewards in the training environment if evaluations is "
                "not separate, or if evaluation environments may differ (evaluation_env_kwargs, or "
                "a factory with is_evaluation): set collectors here and policy_lag 0; got "
                f"{config.collectors} and {config.policy_lag}"
            )
        if self._training is None:
            make = partial(_training_environment, self._make, None, True, None, 0)
            self._training = self._guarded(self._created(make), "environment 0")
        return self._training

    def make_training(self) -> Callable[[int], _Env]:
        """Returns a factory that creates the training environment with a given index, flattened."""
        existing = None
        if self._training is not None:
            existing = self._training.env
            if self._run.config.collectors != HERE:
                existing = None
                self.close()
        spaces = self.spaces if self._may_differ else None
        make = partial(_training_environment, self._make, existing, self._is_separate, spaces)
        return partial(make_flat, make, self.observations, self.actions)

    def close(self) -> None:
        """Closes the environment, unless its group has closed it."""
        self._opened.close()


def _training_environment(
    make: EnvironmentMaker,
    existing: _Env | None,
    is_second: bool,
    spaces: tuple[Any, Any] | None,
    index: int,
) -> _Env:
    """Creates a training environment, or returns the existing one with index 0.

    Args:
        make: Creates the environment.
        existing: The training environment with index 0, if it exists already.
        is_second: Whether the evaluation environment is open.
        spaces: Spaces of the evaluation environment, if training environments may differ.
        index: Index of the training environment.

    Raises:
        RunError: If it cannot be created, or its spaces differ from `spaces`.
    """
    if existing is not None and index == 0:
        return existing
    try:
        env = make(index)
    except RunError as error:
        if not (is_second or index):
            raise
        raise RunError(f"{error}. {_ONE_INSTANCE}") from error
    found = env.observation_space, env.action_space
    if spaces is not None and found != spaces:
        close_with_warning(env, f"environment {make.name!r}")
        expected, got = (" and ".join(map(text_of, each)) for each in (spaces, found))
        raise RunError(
            f"environment {make.name!r}: training environments must have the spaces of the "
            f"evaluation environment, {expected}; got {got}"
        )
    return env
