"""Critics see whole observations; the actor does not see the entries in `critic_entries`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete, flatdim

from eagerly.agents import agent_class
from eagerly.agents.agent import Agent
from eagerly.buffers import Transition
from eagerly.networks import History
from eagerly.networks.custom import CustomActor

pytestmark = pytest.mark.usefixtures("unoptimized")

PARTS = Dict(
    {
        "a": Box(-9, 9, (2,), np.float32),
        "hidden": Dict({"load": Box(-9, 9, (3,), np.float32), "side": Discrete(2)}),
        "mode": Discrete(3),
    }
)
PICTURES = Dict({**PARTS.spaces, "view": Box(0, 255, (4, 5, 1), np.uint8)})
ACTIONS = Box(-1, 1, (2,), np.float32)
CHOICES = Dict({"gear": Discrete(3), "pedal": ACTIONS})


def custom_actor(observation_space: Any, action_space: Any) -> Any:
    assert set(observation_space) == {"a", "mode"}
    layers = [keras.Input((flatdim(observation_space),)), keras.layers.Dense(2, "tanh")]
    return keras.Sequential(layers)


class CustomCritic(keras.Model):
    """The value is the first number of `hidden/load`, scaled, plus the sum of the action."""

    def __init__(self, observation_space: Any) -> None:
        super().__init__()
        assert set(observation_space) == {"a", "hidden", "mode"}
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return self.scale * (observation[:, 2] + tf.reduce_sum(action, axis=1))


def custom_critic(observation_space: Any, action_space: Any) -> Any:
    return CustomCritic(observation_space)


def agent_of(
    space: gymnasium.Space[Any] = PARTS, actions: Any = ACTIONS, name: str = "td3", **more: Any
) -> Agent:
    kind = agent_class(name)
    small: dict[str, Any] = {"hidden_sizes": (8,), "encoder_units": 5, "batch_size": 4}
    if name != "ddpg":
        small["policy_delay"] = 1
    if more.get("memory"):
        small = {"memory_units": 4, "sequence_length": 4, "sequences_per_update": 2} | small
        del small["batch_size"], small["encoder_units"]
    if "critic" in more or "models" in more:
        del small["hidden_sizes"], small["encoder_units"]
    given = {"critic_entries": "hidden", "mode": "eager"} | small | more
    return kind(space, actions, kind.Config(**given), seed=0)


def rows_of(agent: Agent, count: int, seed: int = 0) -> np.ndarray:
    """Returns random observations, with the second half of choices masked."""
    space = agent.observations.space
    space.seed(seed)
    rows = np.stack([agent.observations.flatten(space.sample()) for _ in range(count)])
    if agent.observations.masked:
        rows[: count // 2, -1] = 0.0
    return rows


def trained(agent: Agent) -> Agent:
    """Returns the agent after an update with the transitions of one episode."""
    buffer, rows = agent.replay_buffer(200, seed=0), rows_of(agent, 13)
    draws = np.random.default_rng(0)
    if agent.normalization is not None:
        agent.normalization.update(rows)
    for now, then in itertools.pairwise(rows):
        action = agent.actions.random(draws, 1)
        step = Transition(now[None], action, np.ones(1), np.full(1, 0.9), then[None])
        buffer.add(step, np.array([False]))
    metrics = agent.train(buffer, 1)
    assert np.isfinite(metrics["losses/actor"]).all()
    return agent


def inputs_of(agent: Agent, rows: tf.Tensor) -> Any:
    if not agent.config.remembers:
        return rows
    count, steps = rows.shape[0] // 4, np.ones((rows.shape[0] // 4, 4), bool)
    history = tf.reshape(rows, [count, 4, -1])
    actions = tf.zeros([count, 4, agent.actions.size])
    return History(history, actions, tf.zeros([count, 4]), steps, steps)


CASES: dict[str, dict[str, Any]] = {
    "vectors": {"normalize_observations": True},
    "one vector": {"ignore_entries": "mode", "name": "ddpg"},
    "normalized": {"normalize_observations": True, "name": "td3_bc"},
    "image of critics": {"space": PICTURES, "critic_entries": "view"},
    "image of both": {"space": PICTURES, "random_shift": 1},
    "choices": {"actions": CHOICES, "normalize_observations": True},
    "memory": {"memory": "gru", "normalize_observations": True},
    "masks and memory": {"memory": "attention", "actions": CHOICES},
    "custom": {"actor": custom_actor, "critic": custom_critic},
    "custom actor": {"actor": custom_actor, "normalize_observations": True},
    "quantized": {"ignore_entries": "mode", "quantize": "int8"},
}


SHORT = ("vectors", "memory", "custom")


@pytest.mark.parametrize(
    "case", [pytest.param(n, marks=() if n in SHORT else pytest.mark.long) for n in CASES]
)
def test_critics_depend_on_their_entries_and_the_actor_does_not(case: str) -> None:
    agent = trained(agent_of(**CASES[case]))
    rows, size = rows_of(agent, 8, seed=1), agent.observations.actor.size
    other, count = rows.copy(), rows.shape[1] - size
    other[:, :count] = rows[::-1, :count]
    assert count > 0
    actor, critic = agent.actor.network, agent.critic.network
    inputs = [inputs_of(agent, tf.constant(each)) for each in (rows, other)]
    for network in (actor, agent.actor.target):
        np.testing.assert_array_equal(*(network(each) for each in inputs))
    actions = agent.actions.decided(actor(inputs[0]).numpy())
    values = [critic(each, actions).numpy() for each in inputs]
    assert (values[0] != values[1]).any()

    columns = tf.constant(rows)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(columns)
        scores = actor(inputs_of(agent, columns))
        values = critic(inputs_of(agent, columns), scores)
    seen = tape.gradient(scores, columns).numpy()
    assert not seen[:, :count].any()
    assert seen[:, count:].any()
    assert tape.gradient(values, columns).numpy()[:, :count].any()
    gradients = tape.gradient(values, [v.value for v in actor.trainable_variables])
    assert any(gradient is not None and gradient.numpy().any() for gradient in gradients)

    check_policy(agent, rows)
    if agent.normalization is not None and "custom" not in case:
        check_statistics(agent, size)


def check_policy(agent: Agent, rows: np.ndarray) -> None:
    """Checks that the agent's policy acts like the agent, with and without critics' entries."""
    policy, hidden = agent.as_policy(), agent.config.critic_entries
    whole = agent.observations.unflatten(rows)
    assert policy.observation_size == agent.observations.actor.size
    assert hidden not in policy.parts(whole)
    masks = agent.observations.mask_of(rows)
    given = None if masks is None else {"gear": masks, "pedal": None}
    if agent.config.remembers:
        behavior = agent.behavior()
        acted = behavior.act(rows, explore=False)
    else:
        acted = agent.act(rows)
    expected = agent.actions.unflatten(agent.actions.to_environment(acted))
    for observation in (whole, {k: v for k, v in whole.items() if k != hidden}):
        found = policy.start_episode(len(rows))(observation, action_mask=given)
        for key in found if isinstance(found, dict) else [...]:
            np.testing.assert_array_equal(found[key], expected[key])


def check_statistics(agent: Agent, size: int) -> None:
    """Checks that the actor's statistics are the critics' statistics of its columns."""
    weights = agent.get_weights()
    for part in ("mean", "scale"):
        names = [f"{role}/observation_normalization/{part}" for role in ("actor", "critic")]
        own, whole = (weights[name] for name in names)
        np.testing.assert_array_equal(own, whole[-size:])
        assert (len(own), len(whole)) == (size, agent.observations.size)
        assert not agent.observations.scalable[0] or (own != whole[:size]).any()


def test_custom_critics_receive_the_columns_in_the_order_of_the_space() -> None:
    agent = agent_of(actor=custom_actor, critic=custom_critic)
    hidden = {"load": np.array([3, 4, 5], np.float32), "side": 1}
    row = agent.observations.flatten(
        {"a": np.array([1, 2], np.float32), "hidden": hidden, "mode": 2}
    )
    assert row.tolist() == [3, 4, 5, 0, 1, 1, 2, 0, 0, 1]
    values = agent.critic.network(tf.constant(row[None]), tf.constant([[0.25, 0.5]]))
    assert values.numpy().tolist() == [[3.75], [3.75]]


class Shared(agent_class("td3").Builder):
    """Builds an actor with the critics' encoder."""

    def models(self, suffix: str = "") -> Any:
        encoder = self._encoder(self.observations, None)
        return self.actor(f"actor{suffix}", encoder), self.critic(f"critic{suffix}", encoder)


class Leaking(agent_class("td3").Builder):
    """Builds an actor that sees whole observations."""

    def actor(self, name: str = "actor", encoder: Any = None) -> CustomActor:
        size = self.observations.size
        model = keras.Sequential([keras.Input((size,)), keras.layers.Dense(2, "tanh")])
        return CustomActor(model, name=name, **self.custom_arguments())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"critic_entries": "hiden"}, "^critic_entries: unknown entry 'hiden'; observations have"),
        (
            {"critic_entries": "a,mode,hidden"},
            "^critic_entries a,mode,hidden would leave the actor",
        ),
        ({"ignore_entries": "hidden"}, "^critic_entries: entry 'hidden' is ignored already: rem"),
        ({"space": PARTS["a"], "critic_entries": "a"}, "^critic_entries: .* have no entries; they"),
        (
            {"shared_gradient": "both"},
            "shared_gradient has an effect only without --critic-entries",
        ),
        (
            {"models": custom_actor},
            "^critic_entries requires separate factories: models creates actor and critics from",
        ),
    ],
)
def test_each_mistake_has_its_message(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agent_of(**settings)


def test_a_text_without_names_hides_nothing() -> None:
    assert (
        agent_of(critic_entries=",").actor.network.architecture
        == agent_of(critic_entries="").actor.network.architecture
    )


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (Shared, "critic_entries requires an actor with a separate encoder"),
        (Leaking, "critic_entries has no effect, because Own builds its networks without reading"),
    ],
)
def test_custom_builders_cannot_show_the_entries_to_the_actor(builder: Any, message: str) -> None:
    class Own(agent_class("td3")):  # type: ignore[misc]
        Builder = builder

    with pytest.raises(ValueError, match=message):
        Own(PARTS, ACTIONS, critic_entries="hidden", hidden_sizes=(8,))


def test_critics_of_a_factory_that_normalize_can_be_loaded(tmp_path: Path) -> None:
    agent = trained(agent_of(critic=custom_critic, normalize_observations=True))
    agent.save(tmp_path / "saved")
    loaded = agent_class("td3").load(tmp_path / "saved", critic=custom_critic)
    for name, weights in agent.get_weights().items():
        np.testing.assert_equal(loaded.get_weights()[name], weights)


def test_td7_has_no_such_entries() -> None:
    with pytest.raises(TypeError, match=r"TD7Config\(\) got an unexpected .*'critic_entries'"):
        agent_of(name="td7")
