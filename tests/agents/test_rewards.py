"""Scaling of rewards by a constant or by the standard deviation of discounted returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eagerly.buffers import ReplayBuffer
from eagerly.policies.behavior import BehaviorPolicy
from eagerly.state import packed, unpacked
from tests.helpers import equal_weights, random_transitions, small_agent, weights_of

pytestmark = pytest.mark.usefixtures("unoptimized")

ENDED = [[False, False], [True, False], [False, False]]
REWARDS = [[1.0, 0.0], [2.0, 4.0], [8.0, -4.0]]
# Discounted sums of the rewards of an episode so far, with a discount of 1/2. Values alternate
# between the two environments.
RETURNS = [1.0, 0.0, 2.0 + 0.5, 4.0, 8.0, -4.0 + 0.5 * 4.0]


def observe(behavior: BehaviorPolicy, rewards: Any = REWARDS, ended: Any = ENDED) -> None:
    for of_step, ends in zip(rewards, ended, strict=True):
        behavior.act(np.zeros((len(of_step), 4)))
        behavior.observe(np.array(of_step), np.array(ends))


def trained(agent: Any, reward_unit: float = 1.0) -> Any:
    steps = random_transitions(200)
    buffer = ReplayBuffer(1000, 4, 2, seed=0)
    buffer.add(steps._replace(reward=steps.reward * reward_unit))
    agent.metrics = agent.train(buffer, 3)
    return agent


def test_discounted_returns_are_recorded_and_restart_with_each_episode() -> None:
    agent = small_agent("td3", normalize_rewards=True, discount=0.5)
    observe(agent.behavior())
    moments = agent.rewards.moments
    assert moments.count == len(RETURNS)
    np.testing.assert_allclose(moments.mean, [np.mean(RETURNS)], 1e-12)
    np.testing.assert_allclose(moments.inverse_deviation(), [1 / np.std(RETURNS)], 1e-12)


@pytest.mark.parametrize("kind", [int, float])
def test_ends_of_episodes_may_be_numbers(kind: type) -> None:
    agent = small_agent("td3", normalize_rewards=True, discount=0.5)
    observe(agent.behavior(), ended=np.array(ENDED, kind))
    np.testing.assert_allclose(agent.rewards.moments.mean, [np.mean(RETURNS)], 1e-12)


@pytest.mark.parametrize("mode", ["graph", pytest.param("xla", marks=pytest.mark.long)])
def test_normalized_rewards_train_like_rewards_stored_in_the_new_unit(mode: str) -> None:
    settings = {"precision": "float64"}
    normalised = small_agent(
        "ddpg", normalize_rewards=True, discount=0.5, reward_scale=3.0, mode=mode, **settings
    )
    observe(normalised.behavior())
    plain = trained(small_agent("ddpg", **settings), 3.0 / np.std(RETURNS))
    after = weights_of(trained(normalised))
    for path, values in weights_of(plain).items():
        # The replay buffer rounds rewards to float32.
        np.testing.assert_allclose(after[path], values, 1e-4, 1e-5, err_msg=path)
    np.testing.assert_allclose(normalised.metrics["rewards/scale"], [3.0 / np.std(RETURNS)] * 3)


def test_scaled_rewards_train_like_rewards_stored_in_the_new_unit() -> None:
    scaled = trained(small_agent("td3", reward_scale=0.25))
    assert equal_weights(weights_of(scaled), weights_of(trained(small_agent("td3"), 0.25)))
    assert "rewards/scale" not in scaled.metrics


def test_updates_use_new_statistics_only_from_the_next_call() -> None:
    agent = small_agent("td3", normalize_rewards=True)
    behavior = agent.behavior()
    observe(behavior)
    trained(agent)
    scale = agent.rewards.scale.numpy()
    observe(behavior, [[100.0, 1.0]], [[False, False]])
    assert agent.rewards.scale.numpy() == scale
    assert trained(agent).metrics["rewards/scale"][0] < scale


def test_constant_returns_leave_rewards_unchanged() -> None:
    agent = small_agent("td3", normalize_rewards=True, discount=0.0)
    observe(agent.behavior(), [[2.0], [2.0], [2.0]], [[False]] * 3)
    assert trained(agent).metrics["rewards/scale"].tolist() == [1.0] * 3


def test_training_without_recorded_rewards_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"no rewards were recorded: collect with agent\.behavior"):
        trained(small_agent("td3", normalize_rewards=True))


def test_returns_in_progress_and_statistics_are_restored_exactly() -> None:
    def begun() -> tuple[Any, BehaviorPolicy]:
        agent = small_agent("td3", normalize_rewards=True, discount=0.5)
        return agent, agent.behavior()

    (whole, behavior), (agent, other) = begun(), begun()
    observe(behavior, REWARDS[:2], ENDED[:2])
    saved = unpacked(packed({"agent": whole.state(), "behavior": behavior.state()}))
    assert saved["behavior"]["returns"]["returns"].tolist() == [0.0, 4.0]
    observe(behavior, REWARDS[2:], ENDED[2:])

    agent.restore(saved["agent"])
    other.restore(saved["behavior"])
    observe(other, REWARDS[2:], ENDED[2:])
    np.testing.assert_equal(agent.state(), whole.state())
    other.on_reset(np.array([False, True]))  # environment 1 starts a new episode
    assert other.state()["returns"]["returns"].tolist() == [8.0, 0.0]
    with pytest.raises(ValueError, match=r"returns of DiscountedReturns must be a finite array"):
        other.restore(saved["behavior"] | {"returns": {"returns": [None]}})
    with pytest.raises(ValueError, match="the state has no statistics of rewards"):
        agent.restore({"updates": 0, "statistics": {"moments": {}}})
    with pytest.raises(ValueError, match="normalize_rewards is not set, but the state has stat"):
        small_agent("td3").restore(saved["agent"])


def test_weights_include_reward_statistics() -> None:
    agent, other = (small_agent("td3", seed=seed, normalize_rewards=True) for seed in (0, 1))
    observe(agent.behavior())
    weights = agent.get_weights()
    assert weights["rewards/count"] == 6
    other.set_weights(weights)
    assert equal_weights(other.get_weights(), weights)


def test_weights_with_invalid_statistics_change_nothing() -> None:
    agent = small_agent("td3", normalize_rewards=True, normalize_observations=True)
    observe(agent.behavior())
    weights = agent.get_weights()
    wrong = {"observations/count": np.array(9), "rewards/count": np.array(-1)}
    with pytest.raises(ValueError, match=r"count of .* at least 0; got -1"):
        agent.set_weights(weights | wrong)
    assert equal_weights(agent.get_weights(), weights)
