"""The examples of an export: observations, and the policy's actions for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyActor, numpy_actor
from eagerly.spaces import Actions, Observations
from eagerly.storage.arrays import npz_chunks
from eagerly.training.evaluation import single_blas_thread

Layout = tuple[Observations, Actions]

COUNT = 1000  # examples of a non-recurrent policy
IMAGE_COUNT = 200  # if observations contain images, which take kilobytes each
MIN_STEPS, MAX_STEPS = 300, 500  # examples of a recurrent policy


@dataclass(frozen=True)
class Steps:
    """Steps of consecutive episodes.

    Attributes:
        rows: `[N, O]`, observations with their masks.
        rewards: `[N]`, the reward received with each observation; 0 at the start of an episode.
        begins: `[N]` bool, True at the start of an episode.
        raw: `[N, ...]`, the raw observations (see `raw_observations`); None if the runner repeats
            no preprocessing.
    """

    rows: np.ndarray
    rewards: np.ndarray
    begins: np.ndarray
    raw: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)


def spread(rows: np.ndarray, count: int) -> np.ndarray:
    """Returns at most `count` rows, evenly spread and in order."""
    return rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64)]


def take_first_episodes(steps: Steps) -> Steps:
    """Returns the first whole episodes with at least `MIN_STEPS` in total, cut at `MAX_STEPS`."""
    ends = np.flatnonzero(steps.begins[1:]) + 1
    enough = ends[ends >= MIN_STEPS]
    stop = min(int(enough[0]) if len(enough) else len(steps), MAX_STEPS)
    raw = None if steps.raw is None else steps.raw[:stop]
    return Steps(steps.rows[:stop], steps.rewards[:stop], steps.begins[:stop], raw)


def score_steps(
    network: ActorNetwork, actions: Actions, steps: Steps
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Runs the actor of a network over recorded steps and returns its scores and states.

    Returns:
        Scores `[N, A]` and, for a recurrent actor, `previous_action` `[N, A]` and the parts
        `state_i` `[N, ...]` of its state before each step.
    """
    actor = numpy_actor(network.architecture, network.weights)
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
    """Returns the arrays of `examples.npz`, by name."""
    arrays: dict[str, np.ndarray] = {}
    values = observations.parts(observations.unflatten(steps.rows))
    for entry, value in zip(observations.entries, values, strict=True):
        arrays[_name(entry.path)] = value
    if (masks := observations.mask_of(steps.rows)) is not None:
        arrays["action_mask"] = masks.astype(np.int8)
    if memory:
        arrays |= {"begins": steps.begins, "reward": steps.rewards, **memory}
    if steps.raw is not None:
        arrays |= {"begins": steps.begins, "raw_observation": steps.raw}
    arrays["action"] = actions.to_environment(actions.decided(scores))
    return arrays | {"scores": scores}


def rows_of(arrays: Mapping[str, np.ndarray], observations: Observations) -> np.ndarray:
    """Converts the observations of `examples.npz` back to rows `[N, O]`."""
    values = {entry.path: arrays[_name(entry.path)] for entry in observations.entries}
    return observations.flatten(observations.put_together(values), arrays.get("action_mask"))


def _name(path: str) -> str:
    return f"observation/{path}" if path else "observation"


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to an `.npz` file."""
    with path.open("wb") as file:
        file.writelines(npz_chunks(arrays))
