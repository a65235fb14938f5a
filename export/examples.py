"""Observations that an export is checked on, and what the policy does there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from eagerly.environments.factory import EnvironmentMaker
from eagerly.environments.guard import GuardedEnvironment
from eagerly.environments.watchdog import Watchdog
from eagerly.policies.numpy_actor import NumpyActor, NumpyMemoryActor
from eagerly.spaces import Actions, Observations
from eagerly.storage.arrays import npz_chunks
from eagerly.storage.run import Run
from eagerly.training.evaluation import Evaluation, evaluate, single_blas_thread

COUNT = 1000  # examples of a policy without a memory
LEAST_STEPS, MOST_STEPS = 300, 500  # of one with a memory
_MOST_EPISODES = 1000
_MOST_ROWS = 20_000


@dataclass(frozen=True)
class Steps:
    """Steps of episodes, one behind the other.

    Attributes:
        rows: `[N, O]`, what was observed, with masks.
        rewards: `[N]`, what came with it; 0 where an episode begins.
        begins: `[N]` bool, where episodes begin.
    """

    rows: np.ndarray
    rewards: np.ndarray
    begins: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)


@contextmanager
def opened(make: EnvironmentMaker, run: Run, doing: str) -> Iterator[gymnasium.Env[Any, Any]]:
    """Makes the environment of a run, and watches over it, while entered.

    Args:
        make: Makes it.
        run: The run.
        doing: What it is for, in words.
    """
    with ExitStack() as stack:
        timeout = run.config.environment_timeout_seconds
        watchdog = Watchdog(timeout, lambda: doing, "Nothing was exported.")
        stack.callback(watchdog.close)
        with watchdog.calling(f"making environment {make.name!r}"):
            made = make()
        observations, _ = run.agent_config.spaces(made.observation_space, made.action_space)
        env = GuardedEnvironment(made, f"environment {make.name!r}", watchdog, observations)
        yield stack.enter_context(closing(env))


class Recorder:
    """Plays episodes as a policy does, and keeps what it was shown.

    Args:
        policy: The policy.
        observations: How its observations are laid out.
        actions: How its actions are.
    """

    def __init__(self, policy: Any, observations: Observations, actions: Actions) -> None:
        self._policy, self._observations, self._actions = policy, observations, actions
        self._rows: list[np.ndarray] = []
        self._rewards: list[float] = []
        self._begins: list[bool] = []
        self.parts = policy.parts

    def __len__(self) -> int:
        return len(self._rows)

    def begin_episodes(self) -> Any:
        """Returns what acts in one episode."""
        act = self._policy.begin_episodes()

        def acted(observation: Any, reward: Any = None, **masked: Any) -> Any:
            if len(self._rows) < _MOST_ROWS:
                self._rows.append(self._row(observation, masked.get("action_mask")))
                self._rewards.append(float(reward or 0.0))
                self._begins.append(reward is None)
            return act(observation, reward, **masked)

        return acted

    def _row(self, observation: Any, given: Any) -> np.ndarray:
        mask = None
        if given is not None and self._observations.masked:
            mask = self._actions.mask(given)
        return self._observations.flatten(observation, mask)

    def steps(self) -> Steps:
        """Returns what was seen."""
        rewards = np.array(self._rewards, np.float32)
        return Steps(np.stack(self._rows), rewards, np.array(self._begins, bool))


def played(
    policy: Any,
    env: gymnasium.Env[Any, Any],
    seeds: list[int],
    episodes: int,
    least: int,
    layout: tuple[Observations, Actions],
) -> tuple[Steps, Evaluation | None]:
    """Plays episodes: as many as are asked for, and more until there are enough steps.

    Args:
        policy: The policy.
        env: The environment.
        seeds: Seeds of the episodes, enough of them.
        episodes: How many episodes count.
        least: Steps that are needed.
        layout: How observations and actions are laid out.

    Returns:
        The steps, and what the episodes that count gave; None where none does.
    """
    recorder, found = Recorder(policy, *layout), list[Evaluation]()
    for index, seed in enumerate(seeds):
        if index >= episodes and len(recorder) >= least:
            break
        found.append(evaluate(recorder, env, [seed]))
    counted = found[:episodes]
    evaluation = None
    if counted:
        returns = np.concatenate([one.returns for one in counted])
        evaluation = Evaluation(returns, np.concatenate([one.lengths for one in counted]))
    return recorder.steps(), evaluation


def most_seeds(episodes: int) -> int:
    """Returns how many seeds `played` may need."""
    return max(episodes, _MOST_EPISODES)


def spread(rows: np.ndarray, count: int) -> np.ndarray:
    """Takes rows evenly spread over all, in their order."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]


def first_episodes(steps: Steps) -> Steps:
    """Takes the first steps: whole episodes up to the least number, or the most that are wanted."""
    ends = np.flatnonzero(steps.begins[1:]) + 1
    enough = ends[ends >= LEAST_STEPS]
    stop = min(int(enough[0]) if len(enough) else len(steps), MOST_STEPS)
    return Steps(steps.rows[:stop], steps.rewards[:stop], steps.begins[:stop])


def acted(
    actor: NumpyActor | NumpyMemoryActor, actions: Actions, steps: Steps
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Runs an actor over recorded steps and returns its scores and states.

    Returns:
        Scores `[N, A]`, and where it has a memory `previous_action` `[N, A]` and the parts
        `state_i` `[N, ...]` of its state before each step.
    """
    if isinstance(actor, NumpyActor):
        with single_blas_thread():
            found = [actor(row[np.newaxis])[0] for row in steps.rows]
        return np.stack(found).astype(np.float32), {}
    scores, before = [], np.zeros((1, actor.action_size), np.float32)
    state, told, states = actor.initial_state(1), [], []
    with single_blas_thread():
        for row, reward, begins in zip(steps.rows, steps.rewards, steps.begins, strict=True):
            if begins:
                state, before = actor.initial_state(1), np.zeros_like(before)
            told.append(before[0])
            states.append([part[0] for part in state])
            made, state = actor.step(row[np.newaxis], before, np.array([reward]), state)
            scores.append(made[0].astype(np.float32))
            before = actions.decided(np.array(scores[-1:]))
    parts = {
        f"state_{index}": np.stack(part).astype(np.float32)
        for index, part in enumerate(zip(*states, strict=True))
    }
    return np.stack(scores), {"previous_action": np.stack(told)} | parts


def example_arrays(
    steps: Steps,
    scores: np.ndarray,
    memory: Mapping[str, np.ndarray],
    observations: Observations,
    actions: Actions,
) -> dict[str, np.ndarray]:
    """Returns what `examples.npz` holds, by name."""
    arrays: dict[str, np.ndarray] = {}
    values = observations.parts(observations.unflatten(steps.rows))
    for entry, value in zip(observations.entries, values, strict=True):
        arrays[f"observation/{entry.path}".rstrip("/")] = value
    if (masks := observations.mask_of(steps.rows)) is not None:
        arrays["action_mask"] = masks.astype(np.int8)
    if memory:
        arrays |= {"begins": steps.begins, "reward": steps.rewards, **memory}
    arrays["action"] = actions.to_environment(actions.decided(scores))
    return arrays | {"scores": scores}


def rows_of(arrays: Mapping[str, np.ndarray], observations: Observations) -> np.ndarray:
    """Lays observations of `examples.npz` out as rows `[N, O]` again."""
    values = {
        entry.path: arrays[f"observation/{entry.path}".rstrip("/")]
        for entry in observations.entries
    }
    return observations.flatten(observations.put_together(values), arrays.get("action_mask"))


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays as an `.npz` file."""
    with path.open("wb") as file:
        file.writelines(npz_chunks(arrays))
