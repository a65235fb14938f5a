"""Tests TD7 updates against a NumPy reference, and the copying of targets between updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.config import AgentConfig
from eagerly.agents.inputs import Batch
from eagerly.agents.schedule import Phase
from eagerly.agents.td7 import TD7
from eagerly.agents.td7_config import TD7Config
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import LAPSampler
from tests.helpers import filled_buffer, shared_agent, small_agent, spaces, weights_of

Weights = Mapping[str, np.ndarray]


class LeastConfig(AgentConfig):
    """The settings common to all agents, without those of the recurrent core."""

    WITHOUT = frozenset({"memory", "memory_units"})


def small(**settings: Any) -> TD7:
    agent: TD7 = small_agent("td7", **settings)
    return agent


# --- the reference ------------------------------------------------------------------------------


def elu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def norm(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.abs(x).mean(axis=-1, keepdims=True), 1e-8)


def layers(w: Weights, x: np.ndarray, names: list[str], activate: Callable[..., Any]) -> Any:
    for index, name in enumerate(names):
        x = (activate(x) if index else x) @ w[f"{name}/kernel"] + w[f"{name}/bias"]
    return x


def states(w: Weights, s: np.ndarray) -> np.ndarray:
    return norm(layers(w, s, ["embedding_0", "embedding_1"], elu))


def pairs(w: Weights, zs: np.ndarray, a: np.ndarray) -> Any:
    names = ["pair_embedding_0", "pair_embedding_1"]
    return layers(w, np.concatenate([zs, a], axis=1), names, elu)


def actor(w: Weights, s: np.ndarray, zs: np.ndarray) -> Any:
    hidden = np.concatenate([norm(layers(w, s, ["features"], elu)), zs], axis=1)
    names = ["hidden_0", "hidden_1", "action"]
    return np.tanh(layers(w, hidden, names, lambda x: np.maximum(x, 0)))


def critics(w: Weights, s: Any, a: Any, zsa: Any, zs: Any) -> np.ndarray:
    found = []
    for member in range(2):
        own = {name: values[member] for name, values in w.items() if "shared" not in name}
        shared = np.split(w["hidden_0/shared_kernel"], 2, axis=1)[member]
        kernel = np.concatenate([own["hidden_0/kernel"], shared])
        features = norm(layers(own, np.concatenate([s, a], axis=1), ["features"], elu))
        hidden = np.concatenate([features, zsa, zs], axis=1)
        names = ["hidden_0", "hidden_1", "value"]
        found.append(layers({**own, "hidden_0/kernel": kernel}, hidden, names, elu)[:, 0])
    return np.stack(found)


def slope(loss: Callable[[Weights], float], w: Weights, direction: Weights) -> float:
    """Returns the derivative of a loss along a direction, by a central difference."""
    far = 1e-5
    ends = [{n: w[n] + sign * far * direction[n] for n in w} for sign in (1, -1)]
    return (loss(ends[0]) - loss(ends[1])) / (2 * far)


def weights_by_group(agent: TD7) -> dict[str, dict[str, np.ndarray]]:
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, values in agent.get_weights().items():
        group, _, path = name.partition("/")
        found.setdefault(group, {})["/".join(path.split("/")[-2:])] = values
    return found


def test_an_update_follows_the_equations_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small(precision="float64", copy_every=1, hidden_sizes=(16, 16))
    rng = np.random.default_rng(0)
    buffer = filled_buffer()
    agent.train(buffer, 1)  # after this update, the fixed encoder differs from its target
    agent.train(buffer, 1)
    s, next_s = rng.normal(size=(2, 8, 4))
    a, r = rng.uniform(-1, 1, (8, 2)), rng.normal(size=8) * 3
    discount = np.where(np.arange(8) < 2, 0.0, 0.99)
    limits = agent.modules["value_range"].target
    limits.low.assign(-0.05)
    limits.high.assign(0.02)
    gradients: dict[str, dict[str, np.ndarray]] = {}
    for name in ("encoder", "critic", "actor"):
        _record(agent, name, gradients, monkeypatch)
    before = weights_by_group(agent)
    number = tf.constant(4, tf.int64)
    phase, random = Phase(number, (2,), (2,)), _random(number)
    batch = Batch(*(tf.constant(part) for part in (s, a, r, discount, next_s)))
    metrics, per_row = agent.update(batch, random, phase)
    after = weights_by_group(agent)

    # y = r + γ clip(min Q'(s', clip(π'(s') + clip(ε)))), with the target encoder's embeddings
    of_targets = before["fixed_encoder_target"]
    zs = states(of_targets, next_s)
    noise = 0.2 * _random(number).normal((8, 2)).numpy()
    next_a = np.clip(actor(before["actor_target"], next_s, zs) + np.clip(noise, -0.5, 0.5), -1, 1)
    next_q = critics(before["critic_target"], next_s, next_a, pairs(of_targets, zs, next_a), zs)
    clipped = np.clip(next_q.min(axis=0), -0.05, 0.02)
    assert np.isin(clipped, [-0.05, 0.02]).sum() > 0
    y = r + discount * clipped
    fixed = before["fixed_encoder"]
    zs, zsa = states(fixed, s), pairs(fixed, states(fixed, s), a)

    def of_encoder(w: Weights) -> float:
        wanted = states(before["encoder"], next_s)  # a target, which passes no gradient
        return float(np.square(pairs(w, states(w, s), a) - wanted).mean())

    def of_critics(w: Weights) -> float:
        errors = np.abs(critics(w, s, a, zsa, zs) - y)
        each = np.where(errors < 1, errors**2 / 2, errors - 0.5)
        return float(each.mean(axis=1).sum())

    def of_actor(w: Weights) -> float:
        chosen = actor(w, s, zs)  # the updated critics evaluate these actions
        return -float(critics(after["critic"], s, chosen, pairs(fixed, zs, chosen), zs).mean())

    errors = np.abs(critics(before["critic"], s, a, zsa, zs) - y).max(axis=0)
    np.testing.assert_allclose(per_row["td_error"], errors, rtol=1e-10)
    assert (errors > 1).any()
    assert (errors < 1).any()
    for name, loss in (("encoder", of_encoder), ("critic", of_critics), ("actor", of_actor)):
        assert float(metrics[f"losses/{name}"]) == pytest.approx(loss(before[name]), rel=1e-9), name
        direction = {path: rng.normal(size=values.shape) for path, values in before[name].items()}
        along = sum((gradients[name][path] * direction[path]).sum() for path in direction)
        assert along == pytest.approx(slope(loss, before[name], direction), rel=1e-5), name


def _random(number: tf.Tensor) -> UpdateRandom:
    return UpdateRandom(0, number, tf.float64)


def _record(
    agent: TD7, name: str, gradients: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records the gradients passed to an optimizer."""
    module = agent.modules[name]
    apply = module.optimizer.apply
    paths = ["/".join(variable.path.split("/")[-2:]) for variable in module.learned]

    def recorded(given: Any, variables: Any) -> None:
        gradients[name] = {path: g.numpy() for path, g in zip(paths, given, strict=True)}
        apply(given, variables)

    monkeypatch.setattr(module.optimizer, "apply", recorded)


# --- updated variables ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["encoder", "critic", "actor"])
def test_each_step_updates_exactly_the_variables_of_its_network(step: str) -> None:
    agent = shared_agent("td7")
    batch = Batch(*(tf.constant(part[0]) for part in filled_buffer().sample(1, 64)))
    state, zs = batch.observation, agent.fixed.states(batch.observation)
    before = weights_of(agent)
    if step == "encoder":
        agent.encoder_step(state, batch.action, batch.next_observation)
    elif step == "critic":
        agent.critic_step(batch, state, zs, tf.ones(64))
    else:
        agent.actor_step(state, zs)
    after = weights_of(agent)
    for name in before:
        is_moved = not np.array_equal(before[name], after[name])
        mine = name.startswith((f"{step}:", f"{step}_optimizer:"))
        assert is_moved == (mine and "learning_rate" not in name), name


def test_targets_and_encoders_advance_by_a_generation_with_each_copy() -> None:
    agent = small(copy_every=2)
    nets = agent.modules.networks()

    def values(name: str) -> list[np.ndarray]:
        found: list[np.ndarray] = nets[name].get_weights()
        return found

    begun, buffer = values("encoder"), filled_buffer()
    generations = [begun, begun]
    limits, observed = nets["value_range_target"], nets["value_range"]
    for copies in range(3):
        agent.train(buffer, 1)
        assert _equal(values("fixed_encoder"), generations[-1])
        agent.train(buffer, 1)
        generations.append(values("encoder"))
        assert not _equal(*generations[-2:])
        assert _equal(values("fixed_encoder"), generations[-1])
        assert _equal(values("fixed_encoder_target"), generations[-2])
        for name in ("actor", "critic"):
            assert _equal(values(name), values(f"{name}_target"))
        assert limits.low.numpy() == observed.low.numpy() < 0 < limits.high.numpy()
        assert limits.high.numpy() == observed.high.numpy()
        if not copies:
            first = limits.low.numpy(), limits.high.numpy()
    assert limits.low.numpy() <= first[0] <= first[1] <= limits.high.numpy()


def _equal(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_calls_across_a_copy_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"must divide 4, .* copies of targets, and 0, .*; got 3"):
        small(copy_every=4).train(filled_buffer(), 3)


@pytest.mark.long
def test_target_noise_has_an_effect_once_values_are_not_clipped_to_0() -> None:
    found = []
    for settings in ({}, {"target_noise": 0.5}, {"target_noise_clip": 0.01}):
        agent = small(copy_every=1, **settings)
        for _ in range(2):
            agent.train(filled_buffer(), 1)
        found.append(agent.critic.network.get_weights())
    for changed in found[1:]:
        assert not _equal(found[0], changed)


def test_sampling_is_lap_by_default_and_resets_the_priority_of_new_rows() -> None:
    agent = small(copy_every=2)
    sampler = agent.sampler(np.random.SeedSequence(0))
    assert isinstance(sampler, LAPSampler)
    sampler.added(np.arange(3))
    for errors, highest in (((9.0, 4.0), 9.0), ((2.0, 4.0), 4.0)):
        sampler.feedback(np.array([[0, 1]]), {"td_error": np.array([errors])})
        assert sampler.highest == pytest.approx(highest**0.4)
    assert not isinstance(small(sampling="uniform").sampler(np.random.SeedSequence(0)), LAPSampler)


# --- settings -----------------------------------------------------------------------------------


def test_settings_that_td7_does_not_have_are_rejected_by_name() -> None:
    for name, value in (("memory", "gru"), ("tau", 0.1), ("quantize", "int8")):
        with pytest.raises(TypeError, match=f"TD7Config.* unexpected keyword argument '{name}'"):
            TD7Config(**{name: value})
    with pytest.raises(TypeError, match=r"LeastConfig.* unexpected keyword .* 'memory_units'"):
        LeastConfig(memory_units=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'layer_norm'"):
        TD7(gymnasium.make("Pendulum-v1"), layer_norm=True)
    assert LeastConfig.SETTINGS["batch_size"].requires == ()
    assert not TD7Config.WITHOUT & TD7Config.SETTINGS.keys()
    assert AgentConfig.SETTINGS.keys() >= TD7Config.WITHOUT


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces()[1]),
        (spaces()[0], gymnasium.spaces.Discrete(3)),
    ],
)
def test_images_and_discrete_actions_are_rejected(observations: Any, actions: Any) -> None:
    with pytest.raises(ValueError, match="TD7 requires vector observations and continuous"):
        TD7(observations, actions)


def test_observation_entries_are_read_as_one_vector() -> None:
    box = gymnasium.spaces.Box(-1.0, 1.0, (3,))
    agent = TD7(
        gymnasium.spaces.Dict({"a": box, "b": box}),
        spaces()[1],
        TD7Config(mode="eager", hidden_sizes=(8,), embedding_size=8, encoder_hidden_sizes=(8,)),
    )
    acted = agent.act(np.eye(6))
    assert len(np.unique(acted[:, 0])) == 6
