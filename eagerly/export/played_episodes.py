"""Plays the episodes that an export is checked on, with the policy and with its export."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import gymnasium
import numpy as np

from eagerly.environments.factory import EnvironmentMaker
from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.export.examples import Layout, Steps
from eagerly.importing import FACTORY
from eagerly.spaces import Actions, Observations
from eagerly.spaces.serialization import recorded_spaces
from eagerly.storage.run import Run
from eagerly.training.evaluation import Evaluation, run_episodes

_MAX_EPISODES = 1000
_MAX_ROWS = 20_000


@contextmanager
def open_environment(
    make: EnvironmentMaker, run: Run, doing: str
) -> Iterator[gymnasium.Env[Any, Any]]:
    """Makes the environment of a run, and watches over it, while entered.

    Args:
        make: Makes it.
        run: The run.
        doing: What it is for, in words.

    Raises:
        RunError: If the environment cannot be made, raises something while entered, or gives what
            the policy cannot take. The message names the environment and the error in one line.
    """
    name = f"environment {make.name!r}"
    with ExitStack() as stack, _errors_in_one_line(make.name, run):
        timeout = run.config.environment_timeout_seconds
        watchdog = Watchdog(timeout, lambda: doing, "Nothing was exported.")
        stack.callback(watchdog.close)
        with watchdog.calling(f"making {name}"):
            made = make()
        observations, _ = run.agent_config.spaces(made.observation_space, made.action_space)
        env = GuardedEnvironment(made, name, watchdog, observations)
        yield stack.enter_context(closing(env))


@contextmanager
def _errors_in_one_line(name: str, run: Run) -> Iterator[None]:
    """Raises errors of an environment as one line that says what to do.

    The traceback, which the message of a guarded environment holds, is left to `evaluate`.
    """
    shows = ""
    if not name.startswith(FACTORY):
        shows = f"; `eagerly evaluate {run.path}` shows where it fails"
    advice = f"Nothing was exported: correct the environment first{shows}"
    try:
        yield
    except RunError as error:
        what, traceback, _ = str(error).partition("\nTraceback")
        if traceback and (cause := error.__cause__) is not None:
            what += f" {type(cause).__name__}: {cause}"
        raise RunError(f"{' '.join(what.split())}. {advice}") from error
    except (ValueError, FloatingPointError) as error:  # the policy's fault, or the environment's
        raise RunError(f"in environment {name!r}: {error}. Nothing was exported") from error


def layout_in(env: gymnasium.Env[Any, Any], run: Run, layout: Layout) -> Layout:
    """Returns a policy's layout with the bounds of observations that the environment declares.

    A checkpoint keeps no more than the size of flat observations, and everything of others.

    Args:
        env: The environment.
        run: The run.
        layout: The layout of observations and actions that the checkpoint gives.
    """
    if not all(part.is_row for part in layout):
        return layout
    found: Layout = run.agent_config.spaces(env.observation_space, env.action_space)
    kept, declared = (recorded_spaces(*each, custom_models=False) for each in (layout, found))
    return found if declared == kept else layout


class EpisodeRecorder:
    """Plays episodes as a policy does, and keeps the observations and rewards that it receives.

    Args:
        policy: The policy.
        observations: How its observations are laid out.
        actions: How its actions are laid out.
    """

    def __init__(self, policy: Any, observations: Observations, actions: Actions) -> None:
        self._policy, self._observations, self._actions = policy, observations, actions
        self._rows: list[np.ndarray] = []
        self._rewards: list[float] = []
        self._begins: list[bool] = []
        self.parts = policy.parts

    def __len__(self) -> int:
        return len(self._rows)

    def start_episode(self) -> Any:
        """Returns a function that acts in one episode."""
        act = self._policy.start_episode()

        def record_and_act(observation: Any, reward: Any = None, **masked: Any) -> Any:
            if len(self._rows) < _MAX_ROWS:
                self._rows.append(self._row(observation, masked.get("action_mask")))
                self._rewards.append(float(reward or 0.0))
                self._begins.append(reward is None)
            return act(observation, reward, **masked)

        return record_and_act

    def _row(self, observation: Any, given: Any) -> np.ndarray:
        mask = None
        if given is not None and self._observations.masked:
            mask = self._actions.mask(given)
        return self._observations.flatten(observation, mask)

    def steps(self) -> Steps:
        """Returns the recorded steps."""
        rewards = np.array(self._rewards, np.float32)
        return Steps(np.stack(self._rows), rewards, np.array(self._begins, bool))


def play_episodes(
    policy: Any,
    env: gymnasium.Env[Any, Any],
    seeds: list[int],
    episodes: int,
    min_steps: int,
    layout: Layout,
    steps_limit: int,
) -> tuple[Steps, Evaluation | None]:
    """Plays episodes: as many as are asked for, and more until there are enough steps.

    Args:
        policy: The policy.
        env: The environment.
        seeds: Seeds of the episodes, `max_seeds(episodes)` of them.
        episodes: How many episodes are evaluated.
        min_steps: Steps that are needed.
        layout: The layout of observations and actions.
        steps_limit: Steps at which an episode is ended.

    Returns:
        The steps, and the evaluation; None if `episodes` is 0.
    """
    recorder, found = EpisodeRecorder(policy, *layout), list[Evaluation]()
    for index, seed in enumerate(seeds):
        if index >= episodes and len(recorder) >= min_steps:
            break
        found.append(run_episodes(recorder, env, [seed], steps_limit=steps_limit))
    counted = found[:episodes]
    evaluation = None
    if counted:
        returns = np.concatenate([one.returns for one in counted])
        evaluation = Evaluation(returns, np.concatenate([one.lengths for one in counted]))
    return recorder.steps(), evaluation


def max_seeds(episodes: int) -> int:
    """Returns how many seeds `play_episodes` may need."""
    return max(episodes, _MAX_EPISODES)
