"""Tests of the algorithms in this folder, each in one file like those of users.

Tests that apply to all algorithms come first: each algorithm trains, and its results do not depend
on the mode, on the division of updates into calls, or on restoring. `make test` runs all of these
tests for REDQ, but only the training test for the others. Tests of single algorithms follow.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly import TD3Config, Trainer, open_run
from eagerly.agents.inputs import Batch
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import ReplayBuffer
from eagerly.storage.evaluations import read_results
from tests.algorithms.crossq import CrossQConfig
from tests.algorithms.huber import huber
from tests.algorithms.quantiles import TQCConfig, quantile_huber_loss, truncated_target
from tests.algorithms.redq import REDQConfig
from tests.helpers import (
    equal_weights,
    filled_buffer,
    random_transitions,
    small_agent,
    weights_of,
)
from tests.small_runs import scalars, train_in

REDQ, HUBER, ENCODED = "redq:REDQ", "huber:HuberTD3", "encoded:EncodedTD3"
TQC, HARD_COPIES, CROSSQ = "quantiles:TQC", "hard_copies:HardCopies", "crossq:CrossQ"
ALGORITHMS = (REDQ, HUBER, ENCODED, TQC, HARD_COPIES, CROSSQ)
# To keep tests fast, critics, quantiles and features are few, and target copies frequent.
SMALL: dict[str, dict[str, Any]] = {
    TQC: {"n_critics": 2, "n_quantiles": 5, "dropped": 1},
    HARD_COPIES: {"copy_every": 10},
    ENCODED: {"features": 8},
}
CRITIC = {"losses/critic", "values/mean", "values/max", "values/target_mean"}
ACTOR = {"losses/actor", "actions/saturation"}
MORE = {ENCODED: {"losses/encoder"}}

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
redq_first = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == REDQ else pytest.mark.long) for name in ALGORITHMS],
)
MODES = [
    pytest.param(name, mode, marks=() if (name, mode) == (REDQ, "eager") else pytest.mark.long)
    for name in ALGORITHMS
    for mode in ("eager", "graph", "xla")
    if (name, mode) != (CROSSQ, "xla")
]


def made(name: str, **settings: Any) -> Any:
    return small_agent(f"tests.algorithms.{name}", **(SMALL.get(name, {}) | settings))


def some_batch() -> Batch:
    return Batch(*(tf.constant(part, tf.float32) for part in random_transitions(8)))


# --- requirements of every algorithm ----------------------------------------------------------


@every_algorithm
def test_it_trains_and_returns_its_metrics(name: str) -> None:
    agent = made(name, policy_delay=2)
    metrics = agent.train(filled_buffer(), 2)
    assert set(metrics) == CRITIC | ACTOR | MORE.get(name, set())
    for metric, values in metrics.items():
        count = 1 if metric in ACTOR else 2
        assert values.shape == (count,), metric
        assert np.isfinite(values).all(), metric
    assert agent.updates == 2


def weights_after(name: str, mode: str, calls: tuple[int, ...]) -> dict[str, np.ndarray]:
    agent, buffer = made(name, mode=mode), filled_buffer()
    for updates in calls:
        agent.train(buffer, updates)
    return weights_of(agent)


@pytest.mark.parametrize(("name", "mode"), MODES)
def test_results_do_not_depend_on_the_division_into_calls(name: str, mode: str) -> None:
    # If targets are copied every 10 updates, a call can have 10, 5, 2 or 1 updates.
    cuts = ((10, 10), (5,) * 4) if name == HARD_COPIES else ((6,), (1, 5))
    assert equal_weights(*(weights_after(name, mode, cut) for cut in cuts))


@pytest.mark.long
def test_in_xla_the_division_into_calls_only_changes_crossqs_last_bits() -> None:
    # XLA rounds running statistics differently in different programs. Runs are not affected,
    # because a run always divides its updates in the same way.
    whole, parts = (weights_after(CROSSQ, "xla", cut) for cut in ((20,), (7, 13)))
    for path, values in whole.items():
        np.testing.assert_allclose(parts[path], values, 1e-4, 1e-6, err_msg=path)


@pytest.mark.long
@every_algorithm
def test_modes_are_equivalent_in_float64(name: str) -> None:
    after = {}
    for mode in ("eager", "graph", "xla"):
        agent, buffer = made(name, mode=mode, precision="float64", batch_size=32), filled_buffer()
        for _ in range(2):
            agent.train(buffer, 10)
        after[mode] = weights_of(agent)
    for mode in ("graph", "xla"):
        for path, values in after["eager"].items():
            np.testing.assert_allclose(after[mode][path], values, 1e-7, 1e-12, err_msg=path)


@redq_first
def test_a_restored_agent_makes_the_same_next_updates(name: str, tmp_path: Path) -> None:
    # The agent is saved between two copies of its targets.
    more = {"copy_every": 4} if name == HARD_COPIES else {}
    agent, buffer = made(name, **more), filled_buffer()
    for _ in range(3):
        agent.train(buffer, 2)
    agent.checkpoint.write(str(tmp_path / "networks"))
    saved, state, sampling = weights_of(agent), agent.state(), buffer.state()
    agent.train(buffer, 2)

    restored, again = made(name, **more), filled_buffer()
    restored.checkpoint.read(str(tmp_path / "networks"))
    restored.restore(state)
    again.restore(sampling)
    assert equal_weights(saved, weights_of(restored))
    restored.train(again, 2)
    assert equal_weights(weights_of(agent), weights_of(restored))


@redq_first
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    agent = f"tests.algorithms.{name}"
    # More than 10 updates are needed for a copy of targets.
    updates = 14 if name == HARD_COPIES else 7
    settings = {"agent": agent, "replay_ratio": updates / 350, "policy_delay": 2}
    settings |= SMALL.get(name, {})
    whole = train_in(tmp_path / "whole", **settings)
    train_in(tmp_path / "parts", **settings, steps=250)
    parts = train_in(tmp_path / "parts", steps=400)
    assert parts.updates == whole.updates == updates
    assert equal_weights(weights_of(whole.agent), weights_of(parts.agent))
    assert scalars(tmp_path / "whole") == scalars(tmp_path / "parts")


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (REDQConfig, {"n_critics": 3, "subset_size": 4}, "at most n_critics, 3; got 4"),
        (TQCConfig, {"n_quantiles": 5, "dropped": 5}, "dropped must be below n_quantiles, 5"),
    ],
)
def test_incompatible_settings_are_rejected(
    config: type[TD3Config], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        config(**settings)


@pytest.mark.parametrize("name", [ENCODED, TQC, CROSSQ])
def test_recurrent_networks_are_rejected_where_unsupported(name: str) -> None:
    with pytest.raises(ValueError, match=r"without recurrent networks"):
        made(name, memory="gru")


# --- REDQ -------------------------------------------------------------------------------------


def values_by_member(agent: Any) -> None:
    """Sets critic i and target critic i to the constant value i."""
    for network in (agent.critic.network, agent.critic.target):
        *_, kernel, bias = network.variables
        kernel.assign(tf.zeros_like(kernel))
        bias.assign(tf.range(5.0)[:, tf.newaxis])


def test_redq_draws_a_new_pair_of_critics_in_each_update() -> None:
    agent, batch = made(REDQ), some_batch()
    values_by_member(agent)
    pairs = []
    for update in range(1, 61):
        first, second = (
            UpdateRandom(0, tf.constant(update, tf.int64), tf.float32) for _ in range(2)
        )
        pairs.append(frozenset(first.subset(2, 5, "critics").numpy().tolist()))
        action = agent.next_action(batch, agent.outputs(second))
        target = agent.target(batch, action, second)
        np.testing.assert_allclose(target, batch.reward + batch.discount * min(pairs[-1]), 1e-6)
    assert set(pairs) == {frozenset(pair) for pair in combinations(range(5), 2)}
    repeated = sum(one == other for one, other in pairwise(pairs))
    assert repeated < 15  # of 59 pairs, 6 are expected to equal the previous pair


def test_redqs_actor_maximizes_the_mean_of_all_critics() -> None:
    agent = made(REDQ)
    values_by_member(agent)
    random = UpdateRandom(0, tf.constant(1, tf.int64), tf.float32)
    metrics = agent.actor_step(some_batch(), agent.outputs(random))
    assert metrics["losses/actor"] == -(0 + 1 + 2 + 3 + 4) / 5


# --- Huber loss -------------------------------------------------------------------------------


def test_the_huber_loss_is_quadratic_then_linear() -> None:
    errors = tf.constant([-3.0, -1.0, 0.0, 0.5, 2.0])
    np.testing.assert_array_equal(huber(errors, 1.0), [2.5, 0.5, 0.0, 0.125, 1.5])
    np.testing.assert_array_equal(huber(errors, 2.0), [4.0, 0.5, 0.0, 0.125, 2.0])


@pytest.mark.parametrize("delta", [0.5, 1.0, 3.0])
def test_the_custom_gradient_is_the_derivative_of_the_huber_loss(delta: float) -> None:
    errors = tf.constant(np.random.default_rng(0).normal(0, 2, 100))
    with tf.GradientTape() as tape:
        tape.watch(errors)
        loss = huber(errors, delta)
    step = 1e-6
    difference = (huber(errors + step, delta) - huber(errors - step, delta)) / (2 * step)
    np.testing.assert_allclose(tape.gradient(loss, errors), difference, rtol=0, atol=1e-8)


def test_the_critic_loss_applies_weights_and_masks() -> None:
    agent = made(HUBER)
    values, target = tf.constant([[0.0, 0.0, 9.0], [1.0, 3.0, 9.0]]), tf.constant([1.0, 3.0, 0.0])
    weight, mask = tf.constant([1.0, 2.0, 1.0]), tf.constant([True, True, False])
    # Critic 0 has errors of 1 and 3, with losses of 1/2 and 5/2; critic 1 has no errors.
    assert agent.critic_loss(values, target, mask) == (0.5 + 2.5) / 2
    assert agent.critic_loss(values, target, mask, weight) == (0.5 + 2 * 2.5) / 2


# --- an encoder ---------------------------------------------------------------------------------


@pytest.mark.long
def test_the_encoder_learns_to_predict() -> None:
    steps = random_transitions(500)
    push = np.concatenate([steps.action, -steps.action], axis=1)
    buffer = ReplayBuffer(500, 4, 2)
    buffer.add(steps._replace(next_observation=push))
    agent = made(ENCODED, encoder_learning_rate=3e-2, batch_size=64, policy_delay=100)
    loss = agent.train(buffer, 40)["losses/encoder"]
    assert loss[-10:].mean() < 0.1 < 1 / 3 < loss[0]  # 1/3: the variance of an action


def test_critics_use_features_and_do_not_train_the_encoder() -> None:
    agent, batch = made(ENCODED), some_batch()
    before = weights_of(agent)
    agent.critic_step(batch, tf.zeros(8))
    moved = {n for n, w in weights_of(agent).items() if not np.array_equal(w, before[n])}
    assert {name.split(":")[0] for name in moved} == {"critic", "critic_optimizer"}
    values = agent.value(batch.observation, batch.action)
    encoder = agent.modules["encoder"].network
    encoder.last.bias.assign_add(tf.ones(8))
    assert not np.allclose(agent.value(batch.observation, batch.action), values)


# --- quantiles --------------------------------------------------------------------------------


def test_a_target_pools_the_atoms_of_all_critics_and_drops_the_largest() -> None:
    atoms = tf.constant([[[8.0, 0.0, 4.0]], [[2.0, 10.0, 6.0]]])  # [C, B, Q] = [2, 1, 3]
    reward, discount = tf.constant([1.0]), tf.constant([0.5])
    target = truncated_target(reward, discount, atoms, dropped=1)
    np.testing.assert_array_equal(target, [[1 + 0 / 2, 1 + 2 / 2, 1 + 4 / 2, 1 + 6 / 2]])
    assert truncated_target(reward, discount, atoms, dropped=0).shape == (1, 6)


def test_the_quantile_huber_loss_and_its_gradient_equal_hand_calculations() -> None:
    quantiles = tf.constant([[[0.0, 2.0]]])  # for τ = 1/4 and 3/4
    target = tf.constant([[0.5, 3.0]])
    with tf.GradientTape() as tape:
        tape.watch(quantiles)
        loss = quantile_huber_loss(quantiles, target)
    # The errors are 1/2 and 3 for the first quantile, and -3/2 and 1 for the second.
    pairs = 1 / 4 * 1 / 8 + 1 / 4 * 5 / 2 + 1 / 4 * 1 + 3 / 4 * 1 / 2
    assert loss == pairs / 4
    gradient = [-(1 / 4 * 1 / 2 + 1 / 4 * 1) / 4, -(-1 / 4 * 1 + 3 / 4 * 1) / 4]
    np.testing.assert_array_equal(tape.gradient(loss, quantiles), [[gradient]])
    twice = tf.concat([quantiles, quantiles], axis=0)
    assert quantile_huber_loss(twice, target) == 2 * pairs / 4
    assert quantile_huber_loss(quantiles, target, tf.constant([3.0])) == 3 * pairs / 4


def test_quantile_critics_return_a_distribution_per_row() -> None:
    agent, batch = made(TQC), some_batch()
    quantiles = agent.critic(batch.observation, batch.action)
    assert quantiles.shape == (2, 8, 5)
    np.testing.assert_allclose(
        agent.value(batch.observation, batch.action),
        quantiles.numpy().mean(axis=(0, 2)),
        rtol=1e-5,
        atol=1e-6,
    )


# --- hard copies ------------------------------------------------------------------------------


def test_targets_are_copied_only_every_n_updates() -> None:
    agent, buffer = made(HARD_COPIES, copy_every=4), filled_buffer()

    targets = {name: module.target.get_weights() for name, module in agent.modules.items()}
    for update in range(1, 10):
        agent.train(buffer, 1)
        for name, module in agent.modules.items():
            if update % 4 == 0:
                targets[name] = module.network.get_weights()
            for value, expected in zip(module.target.get_weights(), targets[name], strict=True):
                np.testing.assert_array_equal(value, expected, err_msg=f"{name}, {update}")


def test_calls_across_a_copy_are_rejected() -> None:
    agent, buffer = made(HARD_COPIES, copy_every=4), filled_buffer()
    for updates in (3, 8):
        with pytest.raises(ValueError, match=f"updates per call must divide 4.*got {updates}"):
            agent.train(buffer, updates)
    assert agent.updates == 0


def test_without_copies_the_algorithm_is_td3_and_with_copies_tau_is_rejected() -> None:
    plain, following = small_agent("td3", tau=0.1), made(HARD_COPIES, copy_every=0, tau=0.1)
    for agent in (plain, following):
        agent.train(filled_buffer(), 4)
    assert equal_weights(weights_of(plain), weights_of(following))
    with pytest.raises(ValueError, match="tau has an effect only with --copy-every 0"):
        made(HARD_COPIES, tau=0.1)


# --- CrossQ -----------------------------------------------------------------------------------


def test_crossqs_statistics_include_both_halves_of_the_batch() -> None:
    agent, batch = made(CROSSQ), some_batch()
    random = UpdateRandom(0, tf.constant(1, tf.int64), tf.float32)
    agent.joint_step(batch, agent.next_action(batch, agent.outputs(random)))
    observations = np.concatenate([batch.observation, batch.next_observation])
    for member in range(2):
        path = f"critic: {member}/sequential/batch_normalization/moving_mean"
        moved = weights_of(agent)[path][:4]  # the last columns hold actions
        np.testing.assert_allclose(moved, 0.01 * observations.mean(axis=0), rtol=1e-4)


def test_crossq_has_no_targets_in_its_checkpoint() -> None:
    agent = made(CROSSQ)
    assert set(agent.checkpoint.groups) == {
        *("updates", "actor", "critic", "actor_optimizer", "critic_optimizer")
    }
    kept = {path.rpartition("/")[2].partition("#")[0] for path in agent.checkpoint.groups["critic"]}
    assert {"moving_mean", "moving_variance"} <= kept
    with pytest.raises(TypeError, match=r"unexpected keyword argument .tau."):
        CrossQConfig(tau=0.1)


def test_only_the_actor_step_changes_the_statistics_of_the_actor() -> None:
    agent, batch = made(CROSSQ), some_batch()
    random = UpdateRandom(0, tf.constant(1, tf.int64), tf.float32)
    weights = [weights_of(agent)]
    for step in (
        lambda: agent.act(batch.observation.numpy()),
        lambda: agent.actor_step(batch, agent.outputs(random)),
    ):
        step()
        weights.append(weights_of(agent))
    before, acted, stepped = weights
    assert equal_weights(before, acted)
    moved = {path for path in before if not np.array_equal(before[path], stepped[path])}
    assert {path.partition(":")[0] for path in moved} == {"actor", "actor_optimizer"}
    assert any("moving_mean" in path for path in moved)


# --- learning ---------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", [REDQ, TQC, CROSSQ])
def test_pendulum_swings_up(name: str, tmp_path: Path) -> None:
    settings = {"hidden_sizes": (64, 64), "evaluate_every_steps": 1000, "warmup_steps": 1000}
    run = open_run(
        tmp_path / "run",
        f"tests.algorithms.{name}",
        # With seed 0, on a processor without AVX-512, CrossQ's actor saturates, at -583.
        {"env": "Pendulum-v1", "steps": 8000, "seed": 1, **settings},
    )
    with Trainer(run) as trainer:
        trainer.train()
    # Policies with a constant torque have returns below -900, good policies near -150.
    assert read_results(run.evaluations_path).return_mean.max() > -300
