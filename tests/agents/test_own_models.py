"""Custom models: all supported kinds, shared variables, and the errors for invalid models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest
import sonnet
import tensorflow as tf

from eagerly import TD3, TD3Config
from eagerly.agents import agent_class
from eagerly.agents.ddpg import DDPG
from eagerly.agents.ddpg_config import DDPGConfig
from eagerly.agents.inputs import Batch
from eagerly.networks.custom import CustomCritic
from eagerly.networks.models import named_variables
from tests.helpers import (
    equal_weights,
    filled_buffer,
    random_of,
    reseed,
    restore_networks,
    spaces,
    weights_of,
)

pytestmark = pytest.mark.usefixtures("unoptimized")
SMALL = {"batch_size": 8, "policy_delay": 1}


def sizes_of(observations: Any, actions: Any) -> tuple[int, int]:
    return observations.shape[0], actions.shape[0]


# --- every kind of model ------------------------------------------------------------------------


def sequential_actor(observations: Any, actions: Any) -> Any:
    size, count = sizes_of(observations, actions)
    layers = [keras.Input((size,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(8, "relu")]
    return keras.Sequential([*layers, keras.layers.Dense(count, "tanh")])


def functional_critic(observations: Any, actions: Any) -> Any:
    observation, action = (keras.Input(space.shape) for space in (observations, actions))
    hidden = keras.layers.Dense(8, "relu")(keras.layers.Concatenate()([observation, action]))
    return keras.Model([observation, action], keras.layers.Dense(1)(hidden))


class Late(keras.Model):
    """A Keras model whose layers create their variables in the first call."""

    def __init__(self, outputs: int, activation: str | None) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(8, "relu")
        self.normalization = keras.layers.BatchNormalization()
        self.last = keras.layers.Dense(outputs, activation)

    def call(
        self, observation: tf.Tensor, action: tf.Tensor | None = None, training: bool = False
    ) -> tf.Tensor:
        inputs = observation if action is None else tf.concat([observation, action], -1)
        hidden = self.hidden(inputs)
        return self.last(self.normalization(hidden, training=training))


class Plain(tf.Module):
    """A `tf.Module` whose layers have variables of the same names."""

    def __init__(self, inputs: int, outputs: int, *, bounded: bool) -> None:
        super().__init__()
        self.layers = []
        for before, after in ((inputs, 8), (8, outputs)):
            kernel = tf.Variable(tf.random.normal((before, after), stddev=0.3), name="w")
            self.layers.append((kernel, tf.Variable(tf.zeros(after), name="b")))
        self.bounded = bounded

    def __call__(self, *inputs: tf.Tensor) -> tf.Tensor:
        (kernel, bias), (last, last_bias) = self.layers
        hidden = tf.nn.relu(tf.concat(inputs, -1) @ kernel + bias)
        found = hidden @ last + last_bias
        return tf.tanh(found) if self.bounded else tf.transpose(found)


class Untold(Late):
    """Like `Late`, but `call` has no argument `training`. Keras passes its value to the layers."""

    def call(self, observation: tf.Tensor, action: tf.Tensor | None = None) -> tf.Tensor:
        inputs = observation if action is None else tf.concat([observation, action], -1)
        return self.last(self.normalization(self.hidden(inputs)))


def late_actor(observations: Any, actions: Any) -> Any:
    return Late(actions.shape[0], "tanh")


def late_critic(observations: Any, actions: Any) -> Any:
    return Late(1, None)


def plain_actor(observations: Any, actions: Any) -> Any:
    return Plain(observations.shape[0], actions.shape[0], bounded=True)


def plain_critics(observations: Any, actions: Any) -> Any:
    return Plain(observations.shape[0] + actions.shape[0], 2, bounded=False)


def sonnet_actor(observations: Any, actions: Any) -> Any:
    return sonnet.Sequential([sonnet.nets.MLP([8, actions.shape[0]]), tf.tanh])


def sonnet_critics(observations: Any, actions: Any) -> Any:
    network = sonnet.nets.MLP([8, 2])

    class Critics(sonnet.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
            return tf.transpose(self.network(tf.concat([observation, action], -1)))

    return Critics()


KINDS = {
    "sequential and functional": (sequential_actor, functional_critic),
    "Sonnet": (sonnet_actor, sonnet_critics),
    "subclassed with running statistics": (late_actor, late_critic),
    "tf.Module": (plain_actor, plain_critics),
    "an own actor, our critics": (sequential_actor, ""),
    "our actor, own critics": ("", functional_critic),
}


def agent_of(actor: Any, critic: Any, seed: int = 0, **settings: Any) -> TD3:
    # If both networks are custom, `hidden_sizes` is rejected.
    sizes = {} if actor and critic else {"hidden_sizes": (8,)}
    config = TD3Config(**SMALL | sizes | settings)
    return TD3(*spaces(), config, seed=seed, actor=actor, critic=critic)


@pytest.mark.parametrize(
    ("kind", "modes"),
    [
        *(
            pytest.param(
                kind,
                ("eager", "graph"),
                marks=() if "statistics" in kind else pytest.mark.long,
            )
            for kind in KINDS
        ),
        *((kind, ("eager",)) for kind in ("sequential and functional", "tf.Module")),
        *(
            # Compiling with XLA takes long.
            pytest.param(kind, ("eager", "xla"), marks=pytest.mark.long)
            for kind in KINDS
        ),
    ],
)
def test_every_kind_of_model_trains_and_can_be_restored_in_every_mode(
    kind: str, modes: tuple[str, ...], tmp_path: Path
) -> None:
    agents, after = {}, {}
    for mode in modes:
        agent, buffer = agent_of(*KINDS[kind], mode=mode), filled_buffer()
        agents[mode] = agent
        before = weights_of(agent)
        agent.train(buffer, 2)
        agent.checkpoint.write(str(tmp_path / mode))
        sampling = buffer.state()
        agent.train(buffer, 2)
        after[mode] = weights_of(agent)
        moved = {n for n, v in after[mode].items() if not np.array_equal(before[n], v)}
        weights = {n for n, v in before.items() if v.ndim > 1 and "embedding" not in n}
        assert weights
        assert weights <= moved
    for name, values in after["eager"].items():
        np.testing.assert_allclose(after[mode][name], values, 1e-3, 1e-5, err_msg=name)
    # Graph mode is slow here, and test_conformance.py already tests restoring in graph mode.
    restored = "eager" if mode == "graph" else mode
    again, buffer = agent_of(*KINDS[kind], seed=3, mode=restored), filled_buffer()
    reseed(again, 0)
    restore_networks(again, str(tmp_path / restored))
    buffer.restore(sampling)
    again.train(buffer, 2)
    assert equal_weights(after[restored], weights_of(again))
    observations = np.random.default_rng(0).normal(size=(3, 4))
    actions = again.act(observations)
    np.testing.assert_array_equal(actions, agents[restored].act(observations))
    assert np.abs(actions).max() <= 1


def test_the_factory_is_called_for_every_critic_and_every_target() -> None:
    made = []

    def critic(observations: Any, actions: Any) -> Any:
        made.append(functional_critic(observations, actions))
        return made[-1]

    agent = agent_of("", critic, n_critics=3, mode="eager")
    assert len(made) == 6
    kernels = [model.trainable_variables[0].numpy() for model in made]
    assert not np.allclose(kernels[0], kernels[1])
    np.testing.assert_array_equal(kernels[0], kernels[3])  # target networks start as copies
    values = agent.critic.network(tf.zeros((5, 4)), tf.zeros((5, 2)))
    assert values.shape == (3, 5)
    single = made[1]([tf.zeros((5, 4)), tf.zeros((5, 2))])
    np.testing.assert_allclose(values[1], single[:, 0], 1e-6)


def test_a_custom_critic_values_several_actions_per_observation() -> None:
    network = agent_of("", functional_critic, n_critics=2, mode="eager").critic.network
    random = np.random.default_rng(0)
    observation, action = (tf.constant(random.normal(size=(6, n)), "float32") for n in (4, 2))
    found = network.first(observation[:2], action, 3)
    repeated = tf.concat([observation[:2]] * 3, axis=0)
    np.testing.assert_allclose(found, network(repeated, action)[0], 1e-6)


def test_equal_seeds_give_equal_weights_and_do_not_change_global_generators() -> None:
    np.random.seed(7)
    expected = np.random.RandomState(7).normal()
    one, same, other = (
        agent_of(plain_actor, functional_critic, seed, mode="eager", n_critics=1)
        for seed in (5, 5, 6)
    )
    assert np.random.normal() == expected
    assert equal_weights(weights_of(one), weights_of(same))
    assert not equal_weights(weights_of(one), weights_of(other))


def test_variable_names_do_not_depend_on_earlier_models() -> None:
    def names(seed: int) -> list[str]:
        agent = agent_of(sequential_actor, plain_critics, seed, mode="eager")
        return [*weights_of(agent)][: len(agent.actor.network.variables) * 2]

    first = names(0)
    keras.layers.Dense(3)
    assert names(1) == first
    paths = [
        variable.path
        for variable in agent_of("", plain_critics, mode="eager").critic.network.variables
    ]
    assert paths == ["b", "w", "b#2", "w#2"] or sorted(paths) == ["b", "b#2", "w", "w#2"]


class Branching(Plain):
    """Branches on a tensor in Python, which requires AutoGraph in graphs."""

    def __call__(self, *inputs: tf.Tensor) -> tf.Tensor:
        found = super().__call__(*inputs)
        if tf.reduce_max(tf.abs(found)) > 1e6:
            found = tf.zeros_like(found)
        return found


class BranchingTD3(TD3):
    """An algorithm that branches on a tensor in Python."""

    def update(self, batch: Batch, random: Any, phase: Any) -> Any:
        metrics, per_row = super().update(batch, random, phase)
        largest = tf.reduce_max(batch.reward)
        if largest < 0.0:
            largest = -largest
        return metrics | {"largest_reward": largest}, per_row


def function_actor(observations: Any, actions: Any) -> Any:
    kernel = tf.Variable(tf.zeros((4, 2)), name="kernel")

    def act(observation: tf.Tensor) -> tf.Tensor:
        return tf.tanh(observation @ kernel)

    act.variables = [kernel]  # type: ignore[attr-defined]
    return act


def test_user_code_may_branch_on_tensors() -> None:
    def branching_actor(observations: Any, actions: Any) -> Any:
        return Branching(4, 2, bounded=True)

    config = TD3Config(**SMALL, mode="graph", hidden_sizes=(8,))
    agent = BranchingTD3(*spaces(), config, actor=branching_actor)
    metrics = agent.train(filled_buffer(), 2)
    assert (metrics["largest_reward"] > 0).all()
    eager = TD3Config(**SMALL, hidden_sizes=(8,), mode="eager")
    for kind, actor, needed in (
        (BranchingTD3, "", True),
        (TD3, branching_actor, True),
        (TD3, function_actor, True),
        (TD3, late_actor, False),
    ):
        assert kind(*spaces(), eager, actor=actor)._needs_autograph() == needed


@pytest.mark.parametrize("kind", [Late, Untold])
def test_running_statistics_are_copied_to_targets_and_change_only_in_training(kind: Any) -> None:
    def critic(observations: Any, actions: Any) -> Any:
        return kind(1, None)

    agent = agent_of(late_actor, critic, mode="eager", tau=0.25, n_critics=1)
    actor, critics = agent.actor, agent.critic

    def statistics(model: Any) -> list[np.ndarray]:
        return [v.numpy() for v in model.variables if "moving" in v.path]

    before = statistics(critics.network)
    assert len(before) == 2
    agent.act(np.ones((3, 4)))
    np.testing.assert_array_equal(statistics(critics.network), before)
    agent.train(filled_buffer(), 2)
    after = statistics(critics.network)
    assert not np.allclose(after[0], before[0])
    np.testing.assert_array_equal(statistics(critics.target), after)
    np.testing.assert_array_equal(statistics(actor.target), statistics(actor.network))


def test_a_sequential_critic_receives_observation_and_action_in_one_row() -> None:
    def critic(observations: Any, actions: Any) -> Any:
        return keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])

    agent = agent_of("", critic, mode="eager")
    agent.train(filled_buffer(), 1)
    assert agent.critic.network.trainable_variables[0].shape == (6, 8)


# --- variables shared by actor and critics --------------------------------------------------------


class Encoder(tf.Module):
    """Maps each observation to one number, w · o."""

    def __init__(self, dtype: tf.DType) -> None:
        super().__init__()
        self.w = tf.Variable([[1.0], [0.5], [0.0], [0.0]], name="w", dtype=dtype)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return observation @ self.w


class SharingActor(tf.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.k = tf.Variable([[0.5, -0.25]], name="k", dtype=encoder.w.dtype)

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.tanh(self.encoder(observation) @ self.k)


class SharingCritic(tf.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.c = tf.Variable([2.0, 1.0, -1.0], name="c", dtype=encoder.w.dtype)

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        known = tf.concat([self.encoder(observation), action], -1)
        return tf.reduce_sum(known * self.c, -1)


def sharing(
    observations: Any, actions: Any, dtype: tf.DType = tf.float32
) -> tuple[SharingActor, SharingCritic]:
    encoder = Encoder(dtype)
    return SharingActor(encoder), SharingCritic(encoder)


def linear_sharing(observations: Any, actions: Any) -> tuple[Any, Any]:
    encoder = keras.layers.Dense(4)
    return Joined(encoder, keras.layers.Dense(actions.shape[0], "tanh")), Joined(
        encoder, keras.layers.Dense(1)
    )


class Joined(keras.Model):
    """Encodes the first input, and passes the result and all other inputs to the last layer."""

    def __init__(self, encoder: Any, last: Any) -> None:
        super().__init__()
        self.encoder, self.last = encoder, last

    def call(self, observation: tf.Tensor, action: tf.Tensor | None = None) -> tf.Tensor:
        known = self.encoder(observation)
        return self.last(known if action is None else tf.concat([known, action], -1))


def sharing_agent(dtype: tf.DType = tf.float32, **settings: Any) -> DDPG:
    small = {"batch_size": 8, "mode": "eager", "adam_epsilon": 1.0} | settings
    config = DDPGConfig(**small)
    return DDPG(*spaces(), config, seed=0, models=partial(sharing, dtype=dtype))


def test_shared_variables_are_saved_once_and_update_their_targets_once(tmp_path: Path) -> None:
    agent = sharing_agent(tau=0.25)
    actor, critic = agent.actor.network, agent.critic.network
    assert sorted(v.path for v in actor.variables) == ["k", "w"]
    assert sorted(v.path for v in critic.variables) == ["c", "w"]
    (shared,) = (v for v in actor.variables if v.path == "w")
    assert any(v.value is shared.value for v in critic.variables)
    agent.checkpoint.write(str(tmp_path / "networks"))
    saved = [name for name, _ in tf.train.list_variables(str(tmp_path / "networks"))]
    assert sorted(n.partition("/.A")[0] for n in saved if "optimizer" not in n)[1:] == [
        "actor/k",
        "actor/w",
        "actor_target/k",
        "actor_target/w",
        "critic/c",
        "critic_target/c",
        "updates/updates:0",
    ]
    # The shared target variable moves by a quarter of the difference once, not once per network:
    # 1 + (3 - 1) / 4.
    shared.assign([[3.0], [0.5], [0.0], [0.0]])
    agent.modules.update_targets(0.25)
    (target,) = (v for v in agent.actor.target.variables if v.path == "w")
    np.testing.assert_array_equal(target.numpy()[:, 0], [1.5, 0.5, 0.0, 0.0])


@pytest.mark.parametrize(
    ("setting", "by_critic", "by_actor"),
    [("critic", True, False), ("actor", False, True), ("both", True, True)],
)
def test_a_setting_selects_the_losses_that_train_shared_variables(
    setting: str, by_critic: bool, by_actor: bool
) -> None:
    agent = sharing_agent(
        shared_gradient=setting, critic_learning_rate=0.5, actor_learning_rate=0.5
    )
    variables = [*agent.actor.network.variables, *agent.critic.network.variables]
    # The batch has o = (1, 2, 0, 0), h = w · o = 2, a = (0.5, 0), q = 2 h + a₁ - a₂ = 4.5, y = 4.
    observation, action = tf.constant([[1.0, 2.0, 0, 0]]), tf.constant([[0.5, 0.0]])
    batch = Batch(observation, action, tf.zeros(1), tf.zeros(1), observation)
    counts = [len(o.variables) for o in (agent.actor.optimizer, agent.critic.optimizer)]
    assert counts == [2 + 2 * (1 + by_actor), 2 + 2 * (1 + by_critic)]

    def adam(gradient: np.ndarray) -> np.ndarray:
        """Returns Adam's first step, with a learning rate of 0.5 and an epsilon of 1."""
        m, v = 0.1 * gradient, 0.001 * gradient**2
        return 0.5 * np.sqrt(1 - 0.999) / (1 - 0.9) * m / (np.sqrt(v) + 1.0)

    w, c, k = (np.array(v) for v in ([1, 0.5, 0, 0.0], [2, 1, -1.0], [0.5, -0.25]))
    agent.critic_step(batch, tf.constant([4.0]))
    # The derivative of (q - y)² with respect to q is 2 (q - y) = 1. The loss therefore has the
    # gradient (h, a₁, a₂) with respect to c, and c₁ o with respect to w.
    c = c - adam(np.array([2.0, 0.5, 0.0]))
    w = w - adam(2.0 * np.array([1.0, 2.0, 0, 0])) * by_critic
    found = {v.path: v.numpy().ravel() for v in variables}
    np.testing.assert_allclose(found["c"], c, 1e-5)
    np.testing.assert_allclose(found["w"], w, 1e-5)
    np.testing.assert_allclose(found["k"], k, 1e-6)
    agent.actor_step(batch, agent.outputs(random_of(agent)))
    # The gradient of -q with respect to h k is u = -(c₂, c₃) (1 - a²), because a = tanh(h k). With
    # respect to k it is u h, and with respect to w it is (u · k) o.
    h = float(w @ [1.0, 2.0, 0, 0])
    upstream = -c[1:] * (1 - np.tanh(h * k) ** 2)
    w = w - adam(float(upstream @ k) * np.array([1.0, 2.0, 0, 0])) * by_actor
    k = k - adam(upstream * h)
    found = {v.path: v.numpy().ravel() for v in variables}
    np.testing.assert_allclose(found["c"], c, 1e-5)
    np.testing.assert_allclose(found["w"], w, 1e-4, 1e-6)
    np.testing.assert_allclose(found["k"], k, 1e-4)


def regularized_critic(observations: Any, actions: Any) -> keras.Model:
    inputs = keras.Input(observations.shape), keras.Input(actions.shape)
    value = keras.layers.Dense(1, kernel_regularizer="l2")(keras.layers.Concatenate()(inputs))
    return keras.Model(inputs, value)


@pytest.mark.parametrize(
    ("name", "precision"),
    [("td3", "float32"), ("td3", "float64"), ("ddpg", "float64"), ("td3_bc", "float64")],
)
def test_penalties_of_a_custom_critic_are_added_to_the_loss(name: str, precision: str) -> None:
    settings = {"precision": precision, "mode": "eager", "critic": regularized_critic}
    agent = agent_class(name)(*spaces(), **settings)
    dtype = tf.as_dtype(precision)
    observation, action = tf.ones((1, 4), dtype), tf.zeros((1, 2), dtype)
    batch = Batch(observation, action, tf.zeros(1, dtype), tf.zeros(1, dtype), observation)
    weights = [v.numpy() for v in agent.critic.network.variables if v.path.endswith("kernel")]
    errors = 3.0 - agent.critic(observation, action).numpy()
    metrics, _ = agent.critic_step(batch, tf.constant([3.0], dtype))
    expected = sum(np.sum(part**2) for part in (errors, *(0.1 * w for w in weights)))
    np.testing.assert_allclose(metrics["losses/critic"], expected, 1e-5)


# --- mistakes -------------------------------------------------------------------------------------


class InEveryCall(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones((4, 2)), name="w")

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.tanh(observation @ self.w + tf.Variable(tf.zeros(2), name="offset"))


class Hidden(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones((4, 2)), name="w")
        secret = tf.Variable(tf.zeros(2), name="secret")
        self.made = lambda: secret

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.tanh(observation @ self.w + self.made())


class Idle(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones((4, 2)), name="w")
        self.unused = tf.Variable(tf.zeros(2), name="unused")

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.tanh(observation @ self.w)


def linear(outputs: int, activation: str | None = "tanh", inputs: int = 4) -> Any:
    return keras.Sequential([keras.Input((inputs,)), keras.layers.Dense(outputs, activation)])


ONE = linear(2)
MISTAKES = {
    "no model": (lambda o, a: None, "", "actor must return a callable model; it returned None"),
    "no variables": (
        lambda o, a: lambda x: x[:, :2],
        "",
        "has no trainable variables: store them as attributes of a keras.Model or tf.Mod",
    ),
    "variables in every call": (
        lambda o, a: InEveryCall(),
        "",
        "the actor InEveryCall .*creates variable 'offset.*' in every call: create it once",
    ),
    "variables that are not its own": (
        lambda o, a: Hidden(),
        "",
        "uses variable 'secret:0', which is not among its variables: store it as an attribute",
    ),
    "no gradient": (
        lambda o, a: Idle(),
        "",
        "a variable without gradient, 'unused', because .*trainable=False",
    ),
    "another shape": (
        lambda o, a: linear(3),
        "",
        r"the actor Sequential 'sequential.*' must return actions of shape \[B, 2\]; got \(17, 3\)",
    ),
    "other inputs": (
        lambda o, a: linear(2, inputs=5),
        "",
        r"cannot be called with float32 observation \(17, 4\): .* Input 0",
    ),
    "out of bounds": (
        lambda o, a: linear(2, None),
        "",
        r"must return actions in \[-1, 1\]; got .*: apply a tanh to its output",
    ),
    "the same model again": (lambda o, a: ONE, "", "was returned by two calls of its factory"),
    "values of another shape": (
        "",
        lambda o, a: linear(3, None, 6),
        r"must return values of shape \[n_critics, B\], \[B\] or \[B, 1\]; got \(17, 3\) for B",
    ),
    "another number of critics": (
        "",
        lambda o, a: Plain(6, 3, bounded=False),
        r"has 3 members, but n_critics is 2: return \[2, B\], or set n_critics to 3",
    ),
    "a critic without the action": (
        "",
        lambda o, a: Blind(),
        "the output of the critic Blind .*does not depend on the action",
    ),
    "a factory that fails": (
        lambda o, a: linear(a.n),
        "",
        "failed when called with Box.*AttributeError: 'Box' object has no attribute 'n' "
        r"\(.*test_own_models.py:\d+, in <lambda>\)$",
    ),
    "nothing there": (
        "no_such_module:f",
        "",
        "actor 'no_such_module:f' cannot be imported: .*run from",
    ),
    "no factory": ("json", "", "actor must be module:factory; got 'json'"),
    "a file": ("models.py:f", "", r"omit the file extension, as in models:f"),
    "NaN": (lambda o, a: Ended(2, lambda x: x * np.nan), "", "must return finite actions"),
    "small, and out of bounds all the same": (
        lambda o, a: Ended(2, lambda x: 1e-3 * x),
        "",
        r"must return actions in \[-1, 1\]; got .*: apply a tanh to its output",
    ),
    "zeros, and out of bounds all the same": (
        lambda o, a: keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(2, kernel_initializer="zeros")]
        ),
        "",
        r"must return actions in \[-1, 1\]; got .*: apply a tanh to its output",
    ),
    "Python on values": (
        lambda o, a: Ended(2, lambda x: tf.tanh(x) / (1.0 + float(x.numpy().max() > 1e9))),
        "",
        "the actor Ended .*cannot be called in a graph: use TensorFlow operations",
    ),
    "a critic with Python on values": (
        "",
        lambda o, a: Ended(1, lambda x: x + float(x.numpy().max()), 6),
        r"the critic Ended .*cannot be called in a graph.*\(.*test_own_models.py:\d+, in ",
    ),
    "of a program": ("factory __main__:f", "", "pass this factory again from Python"),
}


class Ended(tf.Module):
    """A linear layer followed by the function `end`."""

    def __init__(self, outputs: int, end: Any, inputs: int = 4) -> None:
        super().__init__()
        self.w, self.end = tf.Variable(tf.ones((inputs, outputs)), name="w"), end

    def __call__(self, *inputs: tf.Tensor) -> tf.Tensor:
        return self.end(tf.concat(inputs, -1) @ self.w)


def test_a_model_that_xla_cannot_compile_is_rejected_before_the_run() -> None:
    def through_numpy(outputs: tf.Tensor) -> tf.Tensor:
        found = tf.numpy_function(np.tanh, [outputs], tf.float32)
        found.set_shape(outputs.shape)
        return outputs + tf.stop_gradient(found - outputs)

    def actor(observations: Any, actions: Any) -> Any:
        return Ended(2, through_numpy)

    agent_of(actor, "", mode="graph")
    with pytest.raises(ValueError, match=r"actor Ended .*cannot be compiled by XLA: set mode to"):
        agent_of(actor, "", mode="xla")


class Blind(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones((4, 1)), name="w")

    def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return observation @ self.w


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_has_its_message(mistake: str) -> None:
    actor, critic, message = MISTAKES[mistake]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        agent_of(actor, critic)


def test_a_model_is_no_factory() -> None:
    with pytest.raises(ValueError, match=r"must be a function that creates the model, .*Plain"):
        agent_of(Plain(4, 2, bounded=True), "")


def test_a_loss_without_variables_to_train_is_named() -> None:
    def models(observations: Any, actions: Any) -> tuple[Any, Any]:
        actor = linear(2)
        return actor, Around(actor)

    config = DDPGConfig(mode="eager")
    with pytest.raises(
        ValueError, match=r"loss of the actor has no variables to train: .* is critic"
    ):
        DDPG(*spaces(), config, models=models)


def test_shared_gradient_requires_shared_variables() -> None:
    def models(observations: Any, actions: Any) -> tuple[Any, Any]:
        return sequential_actor(observations, actions), functional_critic(observations, actions)

    with pytest.raises(ValueError, match="they share none"):
        DDPG(*spaces(), DDPGConfig(mode="eager", shared_gradient="both"), models=models)


class Around(keras.Model):
    """A critic model that contains a complete actor."""

    def __init__(self, actor: Any) -> None:
        super().__init__()
        self.actor, self.last = actor, keras.layers.Dense(1)

    def call(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
        return self.last(tf.concat([self.actor(observation), action], -1))


def test_mutually_exclusive_settings_are_rejected() -> None:
    with pytest.raises(ValueError, match="models already creates actor and critics: remove act"):
        TD3Config(models=sharing, actor=sequential_actor)
    with pytest.raises(ValueError, match="memory must be none with custom networks; got gru"):
        TD3Config(memory="gru", actor=sequential_actor)
    with pytest.raises(TypeError, match="unexpected keyword argument 'actors'"):
        TD3(*spaces(), actors=sequential_actor)


def test_variables_of_a_model_have_distinct_names() -> None:
    class Listed:
        variables = Plain(4, 2, bounded=True).variables

    for model in (Plain(4, 2, bounded=True), Listed()):
        named = named_variables(model)
        assert len({variable.path for variable in named}) == 4
        assert all(variable.trainable for variable in named)


class Mixed(tf.Module):
    """A `tf.Module` with Keras layers, which lists all variables, those of one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        constraint = keras.constraints.MaxNorm(0.01, axis=None)
        self.first = keras.layers.Dense(4, "relu", kernel_constraint=constraint)
        self.last = keras.layers.Dense(2)
        self.scale = tf.Variable(1.0, name="scale")

    @property
    def variables(self) -> Any:
        return [self.scale, *self.first.variables, *self.last.variables, *self.last.variables]

    def __call__(self, observation: tf.Tensor) -> tf.Tensor:
        return tf.tanh(self.scale * self.last(self.first(observation)))


def test_all_variables_that_a_module_lists_are_trained_within_their_constraints() -> None:
    agent = agent_of(lambda o, a: Mixed(), "", mode="graph")
    before = {variable.path: variable.numpy() for variable in agent.acting.variables}
    assert len(before) == 5
    agent.train(filled_buffer(), 2)
    after = {variable.path: variable.numpy() for variable in agent.acting.variables}
    assert all((before[path] != after[path]).any() for path in before)
    assert np.linalg.norm(after["dense/kernel"]) <= 0.01 + 1e-6
    # A checkpoint can store arrays only, even for a variable of shape ().
    for weights in (agent.policy_weights(), agent.get_weights()):
        assert all(isinstance(values, np.ndarray) for values in weights.values())


class Embedded(keras.Model):
    """Embeds a discrete observation, which neither receives nor requires a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = keras.layers.Embedding(5, 4), keras.layers.Dense(2, "tanh")

    def call(self, observation: tf.Tensor) -> tf.Tensor:
        return self.last(self.table(tf.argmax(observation, -1)))


def test_an_actor_may_embed_its_observation() -> None:
    spaces_ = gymnasium.spaces.Discrete(5), gymnasium.spaces.Box(-1.0, 1.0, (2,))
    config = TD3Config(batch_size=8, mode="eager", actor=lambda o, a: Embedded())
    assert TD3(*spaces_, config, seed=0).act(np.eye(5)).shape == (5, 2)


class Deaf(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.last = keras.layers.Dense(2, "tanh")

    def call(self, observation: tf.Tensor) -> tf.Tensor:
        return self.last(tf.ones_like(observation))


def test_critics_must_be_a_list_with_a_model() -> None:
    with pytest.raises(ValueError, match=r"must be a list of models; got .*: pass \[model\]"):
        CustomCritic(Plain(3, 2, bounded=False), 2)
    with pytest.raises(ValueError, match="must contain at least one model"):
        CustomCritic([], 2)


def test_an_actor_that_ignores_its_observation_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"output of .* does not depend on the observation"):
        agent_of(lambda o, a: Deaf(), "")


def test_settings_without_effect_are_rejected() -> None:
    with pytest.raises(ValueError, match="layer_norm has an effect only for built-in networks"):
        TD3(*spaces(), TD3Config(models=sharing, layer_norm=True))
    words = gymnasium.spaces.MultiDiscrete([3, 4])
    with pytest.raises(
        ValueError, match=r"normalize_observations has an effect only for vector obs"
    ):
        TD3(words, spaces()[1], TD3Config(normalize_observations=True))
    with pytest.raises(ValueError, match="shared_gradient has an effect only if actor and critics"):
        TD3(*spaces(), TD3Config(actor=sequential_actor, shared_gradient="actor"))
