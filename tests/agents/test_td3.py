"""TD3 against an independent implementation, against itself in other modes, and by its parts."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.noise import standard_normal
from eagerly.agents.td3 import TD3, TD3Config
from eagerly.buffers import ReplayBuffer, Transition
from tests.agents import reference_td3
from tests.helpers import (
    equal_weights,
    filled_buffer,
    random_transitions,
    small_td3,
    spaces,
    weights_of,
)

# --- against a slow NumPy TD3 ---------------------------------------------------------------


def reference_of(agent: TD3) -> reference_td3.ReferenceTD3:
    config = agent.config
    return reference_td3.ReferenceTD3(
        _network(agent.networks.actor.variables),
        [_network(agent.networks.critic.variables, member) for member in range(config.n_critics)],
        # Keras keeps a learning rate as float32, whatever the precision of the variables.
        actor_rate=float(np.float32(config.actor_learning_rate)),
        critic_rate=float(np.float32(config.critic_learning_rate)),
        epsilon=config.adam_epsilon,
        tau=config.tau,
        delay=config.policy_delay,
        clip=config.target_noise_clip,
    )


def _network(variables: list, member: int | None = None) -> reference_td3.Network:
    arrays = [v.numpy() if member is None else v.numpy()[member] for v in variables]
    return list(zip(arrays[::2], arrays[1::2], strict=True))


def _step_of_divergence(agent: TD3, reference: reference_td3.ReferenceTD3) -> str | None:
    pairs = {
        "actor": (_network(agent.networks.actor.variables), reference.actor),
        "actor_target": (_network(agent.networks.actor_target.variables), reference.actor_target),
    }
    for member in range(agent.config.n_critics):
        for name, model, networks in (
            ("critic", agent.networks.critic, reference.critics),
            ("critic_target", agent.networks.critic_target, reference.critic_targets),
        ):
            pairs[f"{name} {member}"] = (_network(model.variables, member), networks[member])
    for name, (ours, theirs) in pairs.items():
        for depth, (layer, other) in enumerate(zip(ours, theirs, strict=True)):
            for part in (0, 1):
                if not np.allclose(layer[part], other[part], rtol=1e-8, atol=1e-12):
                    return f"{name}, layer {depth}, {('kernel', 'bias')[part]}"
    return None


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_critics": 1, "policy_delay": 1},
        {"n_critics": 3, "policy_delay": 3, "tau": 0.3, "target_noise_clip": 0.1},
        {"initializer": "torch_linear", "actor_learning_rate": 3e-3, "adam_epsilon": 1e-3},
    ],
    ids=["paper", "one critic", "three critics", "torch weights"],
)
def test_it_equals_a_numpy_td3_over_100_updates_in_float64(settings: dict) -> None:
    agent = small_td3(precision="float64", mode="xla", batch_size=32, **settings)
    reference = reference_of(agent)
    buffer, twin = filled_buffer(500), filled_buffer(500)
    for update in range(1, 101):
        agent.train(buffer, 1)
        batch = [part[0].astype(np.float64) for part in twin.sample(1, 32)]
        noise = standard_normal((32, 2), 0, tf.constant(update, tf.int64), tf.float64).numpy()
        reference.update(*batch, agent.config.target_noise * noise)
        diverged = _step_of_divergence(agent, reference)
        assert diverged is None, f"diverged in update {update}: {diverged}"


def test_the_reference_has_the_gradients_of_finite_differences() -> None:
    random = np.random.default_rng(0)

    def network(*sizes: int) -> reference_td3.Network:
        return [
            (random.normal(size=pair), random.normal(size=pair[1]))
            for pair in itertools.pairwise(sizes)
        ]

    actor, critic = network(3, 5, 4, 2), network(5, 6, 4, 1)
    observation = random.normal(size=(7, 3))
    inputs, target = random.normal(size=(7, 5)), random.normal(size=7)
    cases = [
        (
            critic,
            lambda n: reference_td3.critic_loss(n, inputs, target),
            reference_td3.critic_gradients(critic, inputs, target),
        ),
        (
            actor,
            lambda n: reference_td3.actor_loss(n, critic, observation),
            reference_td3.actor_gradients(actor, critic, observation),
        ),
    ]
    for weights, loss, gradients in cases:
        for depth, layer in enumerate(weights):
            for part, array in enumerate(layer):
                for place in np.ndindex(array.shape):
                    kept = array[place]
                    array[place] = kept + 1e-6
                    above = loss(weights)
                    array[place] = kept - 1e-6
                    below = loss(weights)
                    array[place] = kept
                    slope = (above - below) / 2e-6
                    assert np.isclose(gradients[depth][part][place], slope, rtol=1e-4, atol=1e-7)


# --- eager, graph and XLA -------------------------------------------------------------------


def test_the_modes_are_the_same_algorithm_in_float64() -> None:
    after = {}
    for mode in ("eager", "graph", "xla"):
        agent = small_td3(mode=mode, precision="float64", batch_size=32)
        agent.train(filled_buffer(500), 100)
        after[mode] = weights_of(agent)
    for mode in ("graph", "xla"):
        for name, values in after["eager"].items():
            np.testing.assert_allclose(after[mode][name], values, 1e-7, 0, err_msg=name)


MODES = ("eager", "graph", "xla")


def _trained(mode: str, seed: int, updates: int, **settings: object) -> TD3:
    """An agent of HalfCheetah's sizes after some updates on random transitions."""
    agent = TD3(*spaces(17, 6), TD3Config(mode=mode, **settings), seed=seed)
    random = np.random.default_rng(seed)
    buffer = ReplayBuffer(2000, 17, 6, seed=seed)
    buffer.add(
        Transition(
            random.normal(size=(2000, 17)),
            random.uniform(-1, 1, (2000, 6)),
            random.normal(size=2000),
            np.full(2000, 0.99),
            random.normal(size=(2000, 17)),
        )
    )
    agent.train(buffer, updates)
    return agent


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_modes_agree_in_float32_after_the_first_update(seed: int) -> None:
    # Adam's first step is nearly the sign of the gradient. Where a gradient is within rounding of
    # 0 no tolerance holds; the more weights, the more such places (docs/eager-and-compiled.md).
    after = {
        mode: weights_of(_trained(mode, seed, 1, hidden_sizes=(64, 64), batch_size=64))
        for mode in MODES
    }
    for mode in ("graph", "xla"):
        for name, values in after["eager"].items():
            np.testing.assert_allclose(after[mode][name], values, 1e-5, 1e-7, err_msg=name)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hardly_a_weight_of_large_networks_disagrees_after_the_first_update(seed: int) -> None:
    # Here there are enough weights for some to meet a gradient within rounding of 0.
    after = {mode: weights_of(_trained(mode, seed, 1)) for mode in MODES}
    for mode in ("graph", "xla"):
        differences = [
            np.abs(after[mode][name] - values).ravel() - 1e-5 * np.abs(values).ravel()
            for name, values in after["eager"].items()
        ]
        difference = np.concatenate(differences)
        assert (difference > 1e-7).sum() <= 5, f"of {difference.size}"
        assert difference.max() < 1e-5


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_modes_stay_close_in_float32_over_100_updates(seed: int) -> None:
    flat = {}
    for mode in MODES:
        agent = _trained(mode, seed, 100)
        flat[mode] = {
            name: np.concatenate(
                [v.numpy().ravel() for v in getattr(agent.networks, name).variables]
            )
            for name in ("actor", "critic", "actor_target", "critic_target")
        }
    for mode in ("graph", "xla"):
        for name, values in flat["eager"].items():
            difference = np.linalg.norm(flat[mode][name] - values) / np.linalg.norm(values)
            assert difference < 1e-2, f"{name} of {mode}: {difference}"


def test_the_train_body_runs_as_plain_python_in_eager_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = small_td3(mode="eager")
    seen = []
    original = agent._update

    def spy(batch: Transition, noise: tf.Tensor, update: tf.Tensor) -> dict:
        seen.append(batch.reward.numpy())  # only a real tensor has numbers
        return original(batch, noise, update)

    monkeypatch.setattr(agent, "_update", spy)
    agent.train(filled_buffer(), 2)
    assert [rewards.shape for rewards in seen] == [(8,), (8,)]


# --- by its parts -----------------------------------------------------------------------------


def constant_td3(**settings: object) -> TD3:
    """An agent whose networks are linear with weights that a person can calculate with."""
    agent = TD3(
        *spaces(1, 1), TD3Config(hidden_sizes=(), batch_size=1, mode="eager", **settings), seed=0
    )
    for model, weights in (
        (agent.networks.actor, [[[0.0]], [0.0]]),
        (agent.networks.actor_target, [[[0.0]], [0.0]]),
        (agent.networks.critic, [[[[1.0], [2.0]], [[1.0], [2.0]]], [[0.0], [5.0]]]),
        (agent.networks.critic_target, [[[[1.0], [2.0]], [[1.0], [2.0]]], [[0.0], [5.0]]]),
    ):
        model.set_weights([np.array(w, np.float32) for w in weights])
    return agent


def one_transition(**changes: float) -> ReplayBuffer:
    parts = {
        "observation": [[3.0]],
        "action": [[0.5]],
        "reward": [10.0],
        "discount": [0.5],
        "next_observation": [[4.0]],
    } | {name: np.full((1, 1) if "ob" in name else 1, v) for name, v in changes.items()}
    buffer = ReplayBuffer(1, 1, 1)
    buffer.add(Transition(**{name: np.array(value) for name, value in parts.items()}))
    return buffer


def test_the_critic_loss_is_what_the_arithmetic_says() -> None:
    agent = constant_td3(target_noise=0.0)
    metrics = agent.train(one_transition(), 1)
    # Next action tanh(0) = 0, next values 1*4 + 2*0 (+ 5 for the second critic): the smaller is 4.
    target = 10 + 0.5 * min(4, 4 + 5)
    first, second = 3 + 2 * 0.5, 3 + 2 * 0.5 + 5
    assert metrics["losses/critic"][0] == (first - target) ** 2 + (second - target) ** 2
    assert metrics["values/target_mean"][0] == target
    assert metrics["values/mean"][0] == first


def test_termination_stops_the_bootstrap_and_truncation_does_not() -> None:
    for discount, target in ((0.0, 10.0), (0.5, 12.0)):
        agent = constant_td3(target_noise=0.0)
        metrics = agent.train(one_transition(discount=discount), 1)
        assert metrics["values/target_mean"][0] == target


def test_the_smoothing_noise_reaches_the_target() -> None:
    agent = constant_td3(target_noise=100.0, target_noise_clip=0.25)
    metrics = agent.train(one_transition(), 1)
    # The noise is clipped at ±0.25, which the critics weigh with 2.
    assert metrics["values/target_mean"][0] in (10 + 0.5 * 3.5, 10 + 0.5 * 4.5)


def test_the_actor_climbs_the_first_critic_alone() -> None:
    agent = constant_td3(policy_delay=1, actor_learning_rate=0.125)
    kernel, bias = (w.copy() for w in agent.networks.critic.get_weights())
    kernel[1] = [[1.0], [-2.0]]  # the second critic wants the opposite
    agent.networks.critic.set_weights([kernel, bias])
    agent.train(one_transition(), 1)
    # Adam's first step is the learning rate, uphill.
    np.testing.assert_allclose(agent.networks.actor.get_weights()[1], [0.125], rtol=1e-5)


def _moved(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    return {n.split(":")[0] for n in before if not np.array_equal(before[n], after[n])}


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_actor_and_all_targets_move_every_policy_delay_updates(delay: int) -> None:
    agent, buffer = small_td3(policy_delay=delay), filled_buffer()
    for update in range(1, 7):
        before = weights_of(agent)
        agent.train(buffer, 1)
        expected = {"critic", "critic_optimizer"}
        if update % delay == 0:
            expected |= {"actor", "actor_optimizer", "actor_target", "critic_target"}
        assert _moved(before, weights_of(agent)) == expected, update


def test_the_critic_step_gives_gradients_to_the_critic_alone_and_to_all_of_it() -> None:
    agent, buffer = small_td3(policy_delay=10), filled_buffer()
    before = weights_of(agent)
    agent.train(buffer, 1)
    after = weights_of(agent)
    for name in before:
        changed = not np.array_equal(before[name], after[name])
        is_rate = "learning_rate" in name
        assert changed == (name.startswith("critic") and "target" not in name and not is_rate), name


def test_the_actor_step_leaves_the_critic_alone_and_moves_all_of_the_actor() -> None:
    agent = small_td3(policy_delay=1)
    batch = Transition(*(tf.constant(p, tf.float32) for p in random_transitions(8)))
    before = weights_of(agent)
    agent._update_actor_and_targets(batch)
    after = weights_of(agent)
    moved = {name for name in before if not np.array_equal(before[name], after[name])}
    assert {n for n in before if n.startswith("actor:")} <= moved
    assert not {n for n in moved if n.startswith(("critic:", "critic_optimizer:"))}


def test_how_updates_are_cut_into_calls_does_not_change_a_bit() -> None:
    results = []
    for calls in ((12,), (5, 7), (1, 1, 6, 4)):
        agent, buffer = small_td3(mode="xla"), filled_buffer()
        for updates in calls:
            agent.train(buffer, updates)
        results.append(weights_of(agent))
    assert equal_weights(results[0], results[1])
    assert equal_weights(results[0], results[2])


def test_metrics_have_one_value_per_update_and_those_of_the_actor_one_per_move() -> None:
    agent = small_td3(policy_delay=2)
    metrics = agent.train(filled_buffer(), 5)
    assert {len(metrics[n]) for n in ("losses/critic", "values/mean", "values/max")} == {5}
    assert {len(metrics[n]) for n in ("losses/actor", "actions/saturation")} == {2}
    assert agent.updates == 5


# --- acting -----------------------------------------------------------------------------------


def test_acting_without_exploration_is_deterministic_and_in_bounds() -> None:
    agent = small_td3()
    observations = np.random.default_rng(0).normal(size=(5, 4)) * 100
    actions = agent.act(observations, explore=False)
    np.testing.assert_array_equal(actions, agent.act(observations, explore=False))
    assert actions.shape == (5, 2)
    assert actions.dtype == np.float32
    assert np.abs(actions).max() <= 1


def test_exploration_adds_noise_of_the_given_size_and_stays_in_bounds() -> None:
    agent = small_td3(exploration_noise=0.1)
    observations = np.zeros((20_000, 4))
    noise = agent.act(observations, explore=True) - agent.act(observations, explore=False)
    assert abs(noise.std() - 0.1) < 0.002
    loud = small_td3(exploration_noise=5.0).act(observations, explore=True)
    assert np.abs(loud).max() == 1


def test_an_action_that_is_not_finite_is_named() -> None:
    agent = small_td3()
    variable = agent.networks.actor.variables[0]
    variable.assign(np.full(variable.shape, np.nan))
    for explore in (True, False):
        with pytest.raises(FloatingPointError, match=r"action became .*nan"):
            agent.act(np.ones((2, 4)), explore=explore)


def test_acting_follows_the_actor_after_training() -> None:
    agent, buffer = small_td3(actor_learning_rate=0.1), filled_buffer()
    observations = np.ones((3, 4), np.float32)
    before = agent.act(observations, explore=False)
    agent.train(buffer, 4)
    after = agent.act(observations, explore=False)
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after, agent.networks.actor(observations), atol=1e-6)


def test_observations_and_buffers_of_other_sizes_are_refused() -> None:
    agent = small_td3()
    for shape in ((4,), (3, 5), (1, 3, 4)):
        with pytest.raises(ValueError, match=r"observations must have shape \[N, 4\], got"):
            agent.act(np.zeros(shape), explore=False)
    with pytest.raises(ValueError, match=r"buffer must hold .*observation_size=4.*size=5"):
        agent.train(ReplayBuffer(10, 5, 2), 1)


# --- seeds, saving, settings ------------------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_and_another_one_others() -> None:
    one, same, other = (small_td3(seed=seed) for seed in (0, 0, 1))
    for agent in (one, same, other):
        agent.train(filled_buffer(), 6)
    assert equal_weights(weights_of(one), weights_of(same))
    assert not equal_weights(weights_of(one), weights_of(other))


def test_targets_begin_as_copies() -> None:
    nets = small_td3().networks
    for model, target in ((nets.actor, nets.actor_target), (nets.critic, nets.critic_target)):
        for weight, copy in zip(model.get_weights(), target.get_weights(), strict=True):
            np.testing.assert_array_equal(weight, copy)


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_a_restored_agent_makes_the_same_next_update(mode: str, tmp_path: Path) -> None:
    agent, buffer = small_td3(mode=mode), filled_buffer()
    agent.train(buffer, 7)
    agent.networks.save(str(tmp_path / "networks"))
    random_state, sampling = agent.exploration.random_state, buffer.random_state
    saved = weights_of(agent)
    agent.train(buffer, 3)
    acted = agent.act(np.ones((2, 4)), explore=True)

    restored, again = small_td3(mode=mode, seed=9), filled_buffer()
    restored._seed = 0  # the seed is a setting of the run, not part of a checkpoint
    restored.networks.restore(str(tmp_path / "networks"))
    assert equal_weights(saved, weights_of(restored))
    assert restored.updates == 7
    restored.exploration.random_state, again.random_state = random_state, sampling
    restored.train(again, 3)
    assert equal_weights(weights_of(agent), weights_of(restored))
    np.testing.assert_array_equal(restored.act(np.ones((2, 4)), explore=True), acted)


def test_every_variable_is_saved(tmp_path: Path) -> None:
    agent = small_td3()
    for name in ("actor", "actor_target", "critic", "critic_target"):
        for variable in getattr(agent.networks, name).variables:
            variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    for optimizer in (agent.networks.actor_optimizer, agent.networks.critic_optimizer):
        for variable in optimizer.variables[2:]:
            variable.assign(np.random.default_rng(1).uniform(size=variable.shape))
    agent.networks.save(str(tmp_path / "networks"))
    fresh = small_td3(seed=3)
    fresh.networks.restore(str(tmp_path / "networks"))
    assert equal_weights(weights_of(agent), weights_of(fresh))


def test_other_networks_are_not_restored(tmp_path: Path) -> None:
    small_td3().networks.save(str(tmp_path / "networks"))
    for settings in ({"hidden_sizes": (8, 8)}, {"hidden_sizes": (16,)}, {"layer_norm": True}):
        with pytest.raises(ValueError, match=r"networks|[Ss]hape"):
            small_td3(**settings).networks.restore(str(tmp_path / "networks"))


def test_a_new_learning_rate_survives_restoring(tmp_path: Path) -> None:
    small_td3(actor_learning_rate=1e-3).networks.save(str(tmp_path / "networks"))
    agent = small_td3(actor_learning_rate=1e-5)
    agent.networks.restore(str(tmp_path / "networks"))
    assert np.isclose(float(agent.networks.actor_optimizer.learning_rate), 1e-5)


def test_what_is_not_finite_is_named_and_not_saved(tmp_path: Path) -> None:
    agent = small_td3()
    variable = agent.networks.critic_target.variables[0]
    variable.assign(np.full(variable.shape, np.nan))
    with pytest.raises(FloatingPointError, match=r"hidden_0/kernel of critic_target is not finite"):
        agent.networks.save(str(tmp_path / "networks"))
    assert not list(tmp_path.iterdir())


def test_a_metric_that_is_not_finite_stops_training_and_names_the_update() -> None:
    agent, buffer = small_td3(mode="xla"), filled_buffer()
    agent.train(buffer, 3)
    agent.networks.critic.variables[0].assign(
        np.full(agent.networks.critic.variables[0].shape, np.inf)
    )
    with pytest.raises(FloatingPointError, match=r"losses/critic became (nan|inf) in update 4"):
        agent.train(buffer, 3)


def test_the_graph_names_networks_losses_and_optimizers() -> None:
    names = {op.name for op in small_td3().graph().get_operations()}
    for expected in (
        "target/actor_target",
        "target/critic_target",
        "critic_loss/critic",
        "actor_loss/actor",
        "actor_loss/critic_first",
        "critic_optimizer",
        "actor_optimizer",
        "target_update",
    ):
        # A network that is called twice in a graph gets a number behind its name.
        assert any(name.startswith((f"{expected}/", f"{expected}_")) for name in names), expected


CHANGED = {
    "hidden_sizes": (8,),
    "activation": "tanh",
    "layer_norm": True,
    "initializer": "torch_linear",
    "n_critics": 3,
    "actor_learning_rate": 1e-2,
    "critic_learning_rate": 1e-2,
    "adam_epsilon": 1e-2,
    "batch_size": 9,
    "tau": 0.5,
    "policy_delay": 3,
    "target_noise": 0.4,
    "target_noise_clip": 0.1,
    "exploration_noise": 0.3,
    "mode": "xla",
    "precision": "float64",
}


@functools.cache
def _unchanged() -> list:
    return _fingerprint()


def test_the_fingerprint_is_the_same_for_the_same_settings() -> None:
    assert _fingerprint() == _unchanged()


def _fingerprint(**settings: object) -> list:
    agent = small_td3(**settings)
    agent.train(filled_buffer(), 6)
    compiled = getattr(agent._compiled_train_body, "_jit_compile", None)
    acted = agent.act(np.ones((2, 4)), explore=True)
    return [acted.tobytes(), compiled, *(w.tobytes() for w in weights_of(agent).values())]


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(TD3Config)])
def test_every_setting_acts(field: str) -> None:
    assert _unchanged() != _fingerprint(**{field: CHANGED[field]})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": 0.0}, r"tau must be in \(0, 1\]; got 0.0"),
        ({"tau": 1.5}, r"tau must be in \(0, 1\]; got 1.5"),
        ({"batch_size": 0}, r"batch_size must be at least 1; got 0"),
        ({"batch_size": 2.5}, r"batch_size must be of type int; got 2.5"),
        ({"actor_learning_rate": -1.0}, r"actor_learning_rate must be above 0; got -1.0"),
        ({"actor_learning_rate": float("nan")}, r"actor_learning_rate must be above 0; got nan"),
        ({"activation": "sine"}, r"activation must be one of relu, .*; got 'sine'"),
        ({"hidden_sizes": (16, 0)}, r"hidden_sizes must be at least 1; got 0"),
        ({"hidden_sizes": 16}, r"hidden_sizes must be a tuple of int; got 16"),
        ({"layer_norm": 1}, r"layer_norm must be of type bool; got 1"),
        ({"mode": "jit"}, r"mode must be one of eager, graph, xla; got 'jit'"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TD3Config(**settings)


def test_unsupported_spaces_are_refused() -> None:
    box = gymnasium.spaces.Box
    with pytest.raises(ValueError, match="Discrete actions are not supported"):
        TD3(box(-1, 1, (3,)), gymnasium.spaces.Discrete(2))
    with pytest.raises(ValueError, match="observations must be a flat Box"):
        TD3(box(-1, 1, (3, 3)), box(-1, 1, (2,)))
