"""Plays episodes with the policy or the export, to gather examples and to compare returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import gymnasium
import numpy as np

from eagerly.environments.factory import EnvironmentMaker
from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError, summary
from eagerly.export.examples import COUNT, MAX_STEPS, Layout, Steps
from eagerly.export.raw_observations import RawObservations
from eagerly.importing import FACTORY
from eagerly.spaces import Actions, Observations
from eagerly.spaces.serialization import recorded_spaces
from eagerly.storage.run import Run
from eagerly.training.evaluation import Evaluation, run_episodes

_MAX_EPISODES = 1000
_MAX_ROWS, _MAX_VALUES = 20_000, 2**25  # at most 128 MiB
_RAW_BYTES, _FEWEST = 2**25, 10  # recorded raw observations


@contextmanager
def open_environment(
    make: EnvironmentMaker, run: Run, doing: str
) -> Iterator[gymnasium.Env[Any, Any]]:
    """Creates the environment of a run under a watchdog, and closes it on exit.

    Args:
        make: The environment factory.
        run: The run.
        doing: What the environment is used for, such as "while playing episodes with the policy";
            appears in messages.

    Raises:
        RunError: If the environment cannot be created, raises an exception, or returns data that
            the policy cannot process. The message names the environment and the error in one line.
    """
    name = f"environment {make.name!r}"
    with ExitStack() as stack, _errors_in_one_line(make.name, run):
        watchdog = Watchdog(
            run.config.environment_timeout_seconds,
            lambda: doing,
            "Nothing was exported.",
            limits_resets=not run.config.hardware,
        )
        stack.callback(watchdog.close)
        with watchdog.calling(f"creating {name}"):
            made = make()
        observations, _ = run.agent_config.spaces(made.observation_space, made.action_space)
        env = GuardedEnvironment(made, name, watchdog, observations)
        yield stack.enter_context(closing(env))


@contextmanager
def _errors_in_one_line(name: str, run: Run) -> Iterator[None]:
    """Re-raises environment errors as one-line messages with advice.

    The traceback in a guarded environment's message is omitted; `eagerly evaluate` shows it.
    """
    shows = ""
    if not name.startswith(FACTORY):
        shows = f"; `eagerly evaluate {run.path}` shows where it fails"
    advice = f"Nothing was exported: fix the environment first{shows}"
    try:
        yield
    except RunError as error:
        what, traceback, _ = str(error).partition("\nTraceback")
        if traceback and (cause := error.__cause__) is not None:
            what += f" {summary(cause)}"
        raise RunError(f"{' '.join(what.split())}. {advice}") from error
    except (ValueError, FloatingPointError) as error:  # caused by the policy or the environment
        raise RunError(f"in environment {name!r}: {error}. Nothing was exported") from error


def layout_in(env: gymnasium.Env[Any, Any], run: Run, layout: Layout) -> Layout:
    """Returns a policy's layout with the observation bounds that the environment declares.

    A checkpoint stores only the size of flat observations, without their bounds; of all other
    observations, it stores the full space. The layout is returned unchanged if it is not flat or
    does not match the environment.

    Args:
        env: The environment.
        run: The run.
        layout: The layout of observations and actions in the checkpoint.
    """
    if not all(part.is_row for part in layout):
        return layout
    found: Layout = run.agent_config.spaces(env.observation_space, env.action_space)
    kept, declared = (recorded_spaces(*each, custom_models=False) for each in (layout, found))
    return found if declared == kept else layout


class EpisodeRecorder:
    """Wraps a policy and records up to 20,000 of the observations and rewards it receives.

    It records fewer if they are larger than 1,677 values, but at least `COUNT`.

    Args:
        policy: The policy.
        observations: The layout of its observations.
        actions: The layout of its actions.
        raw: The layer that keeps the raw observations, if they are recorded, too. They fill at
            most 32 MiB, but there are at least 10.

    Attributes:
        most: Maximum number of recorded steps.
    """

    def __init__(
        self,
        policy: Any,
        observations: Observations,
        actions: Actions,
        raw: RawObservations | None = None,
    ) -> None:
        self._policy, self._observations, self._actions = policy, observations, actions
        self._layer, self._raw = raw, list[np.ndarray]()
        self.most = min(_MAX_ROWS, max(COUNT, _MAX_VALUES // observations.size))
        if raw is not None:
            self.most = max(_FEWEST, min(MAX_STEPS, _RAW_BYTES // raw.size))
        self._rows: list[np.ndarray] = []
        self._rewards: list[float] = []
        self._begins: list[bool] = []
        self.parts = policy.parts

    def __len__(self) -> int:
        return len(self._rows)

    def start_episode(self) -> Any:
        """Starts an episode and returns a function that acts in it."""
        act = self._policy.start_episode()

        def record_and_act(observation: Any, reward: Any = None, **more: Any) -> Any:
            if len(self._rows) < self.most:
                self._rows.append(self._row(observation, more.get("action_mask")))
                self._rewards.append(float(reward or 0.0))
                self._begins.append(reward is None)
                if self._layer is not None:
                    self._raw.append(self._layer.last)
            return act(observation, reward, **more)

        return record_and_act

    def _row(self, observation: Any, given: Any) -> np.ndarray:
        mask = None
        if given is not None and self._observations.masked:
            mask = self._actions.mask(given)
        return self._observations.flatten(observation, mask)

    def steps(self) -> Steps:
        """Returns the recorded steps."""
        rewards = np.array(self._rewards, np.float32)
        raw = np.stack(self._raw) if self._raw else None
        return Steps(np.stack(self._rows), rewards, np.array(self._begins, bool), raw)


def play_episodes(
    policy: Any,
    env: gymnasium.Env[Any, Any],
    seeds: list[int],
    episodes: int,
    min_steps: int,
    layout: Layout,
    steps_limit: int,
) -> tuple[Steps, Evaluation | None]:
    """Plays at least `episodes` episodes, and more until there are `min_steps` steps.

    Args:
        policy: The policy.
        env: The environment.
        seeds: `[max_seeds(episodes)]`, one seed per episode.
        episodes: Number of episodes to evaluate.
        min_steps: Number of steps required.
        layout: The layout of observations and actions.
        steps_limit: Maximum number of steps per episode.

    Returns:
        The steps, and the evaluation of the first `episodes` episodes (None if `episodes` is 0).
    """
    recorder = EpisodeRecorder(policy, *layout, RawObservations.of(env))
    found = list[Evaluation]()
    for index, seed in enumerate(seeds):
        if index >= episodes and len(recorder) >= min(min_steps, recorder.most):
            break
        found.append(run_episodes(recorder, env, [seed], steps_limit=steps_limit))
    counted = found[:episodes]
    evaluation = None
    if counted:
        returns = np.concatenate([one.returns for one in counted])
        evaluation = Evaluation(returns, np.concatenate([one.lengths for one in counted]))
    return recorder.steps(), evaluation


def max_seeds(episodes: int) -> int:
    """Returns the maximum number of seeds that `play_episodes` needs."""
    return max(episodes, _MAX_EPISODES)
