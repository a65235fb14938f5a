"""Creates the replay buffer of a run, and fills it with logged data."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from eagerly.agents.agent import Agent
from eagerly.buffers import Accumulator, Buffer, MixedBuffer, OneStep, Replay, Transition
from eagerly.datasets import Dataset, Transitions, open_dataset
from eagerly.errors import RunError, UsageError
from eagerly.seeding import Stream, seed_sequence
from eagerly.storage.run import Run
from eagerly.training.memory_requirements import available_memory, check_memory, gigabytes

_log = logging.getLogger(__name__)


def make_buffer(run: Run, agent: Agent) -> Replay:
    """Creates the replay buffer of a run, with a separate part for logged data, if it has data.

    Raises:
        RunError: As in `describe`; also if the buffer does not fit into memory.
    """
    config = run.config
    if not config.data:
        return _online(run, agent)
    run.data = run.data or describe(run, agent)
    transitions, episodes = (sum(each[n] for each in run.data) for n in ("transitions", "episodes"))
    # Buffers that keep episodes store the last observation of each in a separate row.
    rows = transitions * agent.config.rows_per_step + episodes
    rows = max(rows, agent.layout.least_rows(1))
    check_memory(agent.layout.row_bytes * rows, f"logged data of {rows:,} rows", "use less data")
    data = _empty_buffer(rows, agent, seed_sequence(config.seed, Stream.DATA))
    return data if config.offline else MixedBuffer(data, _online(run, agent), config.data_share)


def _online(run: Run, agent: Agent) -> Buffer:
    seed = seed_sequence(run.config.seed, Stream.SAMPLING)
    return _empty_buffer(run.config.replay_capacity, agent, seed)


def _empty_buffer(capacity: int, agent: Agent, seed: np.random.SeedSequence) -> Buffer:
    """Creates a replay buffer. Memory pages are committed only as it fills."""
    try:
        buffer = agent.replay_buffer(capacity, seed=seed)
    except TypeError as error:  # the buffer does not support the sampler
        raise UsageError(str(error)) from error
    except (MemoryError, ValueError) as error:  # more than the system can allocate
        raise RunError(
            f"cannot allocate a replay buffer of {capacity} rows: {error}; "
            f"{gigabytes(available_memory())} available: reduce --replay-capacity"
        ) from error
    if len(buffer):  # a resumed run would add them twice
        raise UsageError(
            f"{type(agent).__name__}.replay_buffer must return an empty buffer; got {len(buffer)} "
            "rows: add them in a callback's on_begin, while len(training.buffer) is 0"
        )
    return buffer


def describe(run: Run, agent: Agent) -> list[dict[str, Any]]:
    """Reads and validates the data that the setting `data` names.

    Returns:
        The path, SHA-256 digest and numbers of transitions and episodes of each file or folder.

    Raises:
        RunError: If it cannot be read, is damaged, does not fit the spaces of the agent, or comes
            from a run directory that the user does not trust.
    """
    run.check_trusted("data")
    found, needed = [], agent.config.uses_terminal_observations
    for dataset in _datasets(run, agent):
        terminations = sum(int(chunk.terminated.sum()) for chunk in dataset.chunks())
        if terminations and needed and not dataset.has_next_observations:
            raise UsageError(
                f"{dataset.path} must contain next_observations, because {run.agent} with these "
                "settings also learns from the observation after a termination"
            )
        summary = dataset.summary
        assert summary is not None
        _log.info("data %s: %s", dataset.path, summary)
        counts = {"transitions": summary.transitions, "episodes": summary.episodes}
        found.append({"path": str(dataset.path), "sha256": dataset.sha256(), **counts})
    return found


def load(run: Run, agent: Agent, buffer: Replay, accumulator: Accumulator) -> None:
    """Adds the data to the buffer of a new run, episode by episode.

    Each step also counts once in the statistics that normalize observations and rewards.

    Args:
        run: The run. `run.data` is the result of `describe`.
        agent: Its agent.
        buffer: Its buffer. A `MixedBuffer` stores the data apart from other rows.
        accumulator: Converts steps to transitions. It must have no pending steps.

    Raises:
        RunError: If the data has changed since `describe`, its observations do not follow each
            other as memory and stacked images require, or the user does not trust the run.
    """
    run.check_trusted("data")  # `describe` does not check a resumed run without a checkpoint
    if isinstance(buffer, MixedBuffer):
        buffer = buffer.data
    behavior = agent.behavior()
    in_chunks = isinstance(accumulator, OneStep) and not (buffer.keeps_episodes or behavior.counts)
    for dataset, known in zip(_datasets(run, agent), run.data, strict=True):
        if dataset.sha256() != known["sha256"]:
            raise UsageError(f"{dataset.path} has changed since the run began: start a new run")
        for chunk in dataset.chunks():
            steps, ended = _converted(agent, chunk)
            count = len(ended)
            parts = [slice(count)] if in_chunks else [slice(n, n + 1) for n in range(count)]
            for part in parts:
                step = Transition(*(values[part] for values in steps))
                if behavior.counts:
                    behavior.count(step.observation, step.reward, ended[part])
                rows, ends = accumulator.accumulate(step, ended[part])
                try:
                    if len(ends):
                        buffer.add(rows, ends)
                except ValueError as error:
                    raise UsageError(f"{dataset.path} cannot be used: {error}") from error
    # New episodes follow, possibly in another number of environments.
    began = np.ones(run.config.num_envs, bool)
    accumulator.on_reset(began)
    buffer.on_reset(began)


def _datasets(run: Run, agent: Agent) -> list[Dataset]:
    spaces = agent.observations.kept_space, agent.actions.space
    return [open_dataset(path, *spaces) for path in run.config.data.split(",")]


def _converted(agent: Agent, chunk: Transitions) -> tuple[Transition, np.ndarray]:
    """Returns transitions in the form that buffers store, and which of them end episodes."""
    laid = agent.observations
    steps = Transition(
        laid.flatten(laid.completed(chunk.observations)),
        agent.actions.from_environment(chunk.actions),
        chunk.rewards,
        # Only a termination ends the return: a truncated episode would have continued.
        agent.config.discount * ~chunk.terminated,
        laid.flatten(laid.completed(chunk.next_observations)),
    )
    return steps, chunk.terminated | chunk.truncated
