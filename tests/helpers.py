"""Small agents, buffers and processes for tests."""

from __future__ import annotations

import atexit
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf

from eagerly.agents import agent_class
from eagerly.agents.agent import Agent
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import Buffer, ReplayBuffer, Sampler, Transition, replay_buffer
from eagerly.policies.behavior import BehaviorPolicy
from eagerly.storage.documents import sealed, unsealed

ROOT = Path(__file__).parents[1]
OBSERVATION_SIZE, ACTION_SIZE = 4, 2


def script(name: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script of the repository as a user would."""
    return python(str(ROOT / "scripts" / name), *words, cwd=cwd)


def python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python with a user's environment variables."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
    )


def edit_sealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Edits a document and renews its seal, as another version or an attacker would."""
    document = unsealed(json.loads(path.read_text()))
    change(document)
    path.write_bytes(sealed(document))


def gone(process: int, within: float = 10.0) -> bool:
    """Returns whether a process ends within `within` seconds; zombies count as ended."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def spaces(
    observation_size: int = OBSERVATION_SIZE, action_size: int = ACTION_SIZE
) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    return (
        gymnasium.spaces.Box(-np.inf, np.inf, (observation_size,)),
        gymnasium.spaces.Box(-1.0, 1.0, (action_size,)),
    )


# Extra settings that keep an agent small and make its policy change quickly.
_SMALL: dict[str, dict[str, Any]] = {
    "td7": {
        "embedding_size": 12,
        "encoder_hidden_sizes": (16,),
        "copy_every": 60,
    },
    "td3_bc": {"normalize_observations": False},  # by default, it requires statistics
}


def small_agent(name: str, *, seed: int = 0, **settings: Any) -> Any:
    config = small_config(name, **settings)
    return agent_class(name)(*spaces(), config, seed=seed)


def small_config(name: str, **settings: Any) -> Any:
    """Returns the settings of a small agent, whose networks have one hidden layer."""
    small = {"hidden_sizes": (16,), "batch_size": 8, "mode": "eager"} | _SMALL.get(name, {})
    if settings.get("memory", "none") != "none":
        del small["batch_size"]  # recurrent agents do not use it
    return agent_class(name).Config(**small | settings)


def shared_agent(name: str, **settings: Any) -> Any:
    """Returns an agent built and traced once per process, with its initial variables and state.

    A test may train the agent and change its variables and statistics, but nothing else.
    """
    agent, beginning, state = _shared(name, tuple(sorted(settings.items())))
    restore_networks(agent, beginning)
    agent.restore(state)
    return agent


@cache
def _shared(name: str, settings: tuple[tuple[str, Any], ...]) -> tuple[Any, str, Any]:
    agent, folder = small_agent(name, **dict(settings)), tempfile.mkdtemp(prefix="eagerly-agent-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    agent.checkpoint.write(f"{folder}/networks")
    return agent, f"{folder}/networks", copy.deepcopy(agent.state())


def filled_buffer(count: int = 200, *, capacity: int = 1000, seed: int = 0) -> ReplayBuffer:
    buffer = ReplayBuffer(capacity, OBSERVATION_SIZE, ACTION_SIZE, seed=seed)
    buffer.add(random_transitions(count, seed=seed))
    return buffer


def buffer_for(
    agent: Agent, count: int = 200, *, seed: int = 0, sampler: Sampler | None = None
) -> Buffer:
    """Returns a filled buffer: transitions, or random episodes for recurrent agents."""
    if not agent.config.remembers:
        return filled_buffer(count, seed=seed)
    buffer = replay_buffer(agent.layout, 1000, seed=seed, sampler=sampler)
    steps, random = random_transitions(count, seed=seed), np.random.default_rng(seed)
    ended = random.uniform(size=count) < 0.2
    for index in range(count):
        step = Transition(*(np.array(part[index : index + 1]) for part in steps))
        if index and not ended[index - 1]:
            step = step._replace(observation=steps.next_observation[index - 1 : index])
        if not ended[index]:
            step = step._replace(discount=np.array([0.99]))
        buffer.add(step, ended[index : index + 1])
    return buffer


def stepped(
    behavior: BehaviorPolicy, observations: np.ndarray, *, explore: bool = True
) -> np.ndarray:
    """Collects one step with reward 1 per environment, and returns the actions."""
    actions = behavior.act(observations, explore=explore)
    behavior.observe(np.ones(len(observations)), np.zeros(len(observations), bool))
    return actions


def random_transitions(
    count: int, sizes: tuple[int, int] = (OBSERVATION_SIZE, ACTION_SIZE), *, seed: int = 0
) -> Transition:
    random = np.random.default_rng(seed)
    observation_size, action_size = sizes
    return Transition(
        observation=random.normal(size=(count, observation_size)),
        action=random.uniform(-1, 1, (count, action_size)),
        reward=random.normal(size=count),
        discount=np.where(random.uniform(size=count) < 0.1, 0.0, 0.99),
        next_observation=random.normal(size=(count, observation_size)),
    )


def trained_cheetah(name: str, mode: str, seed: int, updates: int, **settings: Any) -> Any:
    """Returns an agent with the space sizes of HalfCheetah, trained on random transitions."""
    kind = agent_class(name)
    settings = {"normalize_observations": False, "mode": mode, **settings}
    agent = kind(*spaces(17, 6), kind.Config(**settings), seed=seed)
    buffer = ReplayBuffer(2000, 17, 6, seed=seed)
    buffer.add(random_transitions(2000, (17, 6), seed=seed))
    agent.train(buffer, updates)
    return agent


def random_of(agent: Agent, update: int = 1) -> UpdateRandom:
    """Returns the random number generator that an agent uses in an update."""
    return UpdateRandom(agent.seed, tf.constant(update, tf.int64), agent.inputs.dtype)


def reseed(agent: Agent, seed: int) -> None:
    """Sets an agent's seed, which a checkpoint does not restore: it is a setting of the run."""
    agent.seed = agent.learner._seed = seed
    agent.inputs._seed = seed  # type: ignore[attr-defined]


def weights_of(agent: Agent) -> dict[str, np.ndarray]:
    """Returns all variables in an agent's checkpoint, by name."""
    return {
        f"{part}: {path}": variable.numpy()
        for part, variables in agent.checkpoint.groups.items()
        for path, variable in variables.items()
    }


def equal_weights(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[n], other[n]) for n in one)


def restore_networks(agent: Agent, prefix: str) -> None:
    """Restores an agent from the files written by `agent.checkpoint.write`."""
    agent.checkpoint.read(prefix)
    agent.refresh()
