"""Policies can be copied, pickled and called from several threads."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
from gymnasium import spaces

from eagerly.agents.config import AgentConfig
from eagerly.networks import acting_policy
from eagerly.policies.numpy_actor import numpy_actor
from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations

BOX = spaces.Box(-1, 1, (3,))
GEARS = spaces.Dict({"steer": spaces.Box(-2.0, 1.0, (2,)), "gear": spaces.Discrete(3, start=1)})
PARTS = spaces.Dict({"goal": BOX, "light": spaces.Discrete(2)})


def policy_of(observation: gymnasium.Space, action: gymnasium.Space, memory: str) -> Policy:
    """Returns a NumPy policy with random weights."""
    config = AgentConfig(hidden_sizes=(32, 32), memory=memory, memory_units=8)
    observations, actions = config.spaces(observation, action)
    architecture = config.actor_architecture(observations, actions)
    assert architecture is not None
    random = np.random.default_rng(0)
    weights = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in architecture.shapes().items()
    }
    return Policy(numpy_actor(architecture, weights), observations, actions, 7, "best")


def played(policy: Policy, seed: int) -> list[Any]:
    """Returns the actions of an episode with random observations and rewards."""
    random, act = np.random.default_rng(seed), policy.start_episode()
    policy.observation_space.seed(seed)
    done = [act(policy.observation_space.sample())]
    for _ in range(30):
        done.append(act(policy.observation_space.sample(), random.normal()))
    return done


def assert_equal(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for mine, its in zip(one, other, strict=True):
        np.testing.assert_equal(mine, its)


@pytest.mark.parametrize("memory", ["none", "gru", "attention"])
@pytest.mark.parametrize("duplicate", [lambda p: pickle.loads(pickle.dumps(p)), copy.deepcopy])
def test_a_pickled_or_copied_policy_returns_the_same_actions(
    duplicate: Callable[[Policy], Policy], memory: str
) -> None:
    policy = policy_of(PARTS, GEARS, memory)
    again = duplicate(policy)
    assert_equal(played(again, 1), played(policy, 1))
    assert repr(again) == repr(policy)
    assert again.action_space == policy.action_space


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_threads_can_share_a_policy(memory: str) -> None:
    policy = policy_of(PARTS, GEARS, memory)
    copies = [pickle.loads(pickle.dumps(policy)) for _ in range(8)]
    alone = [played(each, seed) for seed, each in enumerate(copies)]
    rows = [[policy._observations.flatten(PARTS.sample()) for _ in range(200)] for _ in range(8)]
    act = policy.actor if memory == "none" else None

    def together(seed: int) -> list[Any]:
        # Sampling changes the space, so each thread needs a copy.
        mine = copy.copy(policy)
        mine.observation_space = copy.deepcopy(policy.observation_space)
        found = played(mine, seed)
        if act is not None:
            for row in rows[seed]:
                np.testing.assert_array_equal(act(row[np.newaxis]), act(row[np.newaxis]))
        return found

    with ThreadPoolExecutor(8) as pool:
        for one, other in zip(pool.map(together, range(8)), alone, strict=True):
            assert_equal(one, other)


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy])
def test_copying_a_tensorflow_policy_raises_with_advice(
    duplicate: Callable[[Any], Any],
) -> None:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, "tanh")])
    actions = Actions(spaces.Box(-1, 1, (2,)))
    policy = Policy(acting_policy(model, 2), Observations(BOX), actions, 0)
    for held in (policy, [policy], policy.start_episode()):
        with pytest.raises(TypeError, match=r"send the run directory instead, and call eag"):
            duplicate(held)
