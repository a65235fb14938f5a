"""Modules (networks with optimizers and target networks): variables, updates and validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from eagerly import DDPG, DDPGConfig
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.modules import Module, Modules
from eagerly.agents.persistence import VariableCheckpoint
from eagerly.networks.models import CustomVariable
from eagerly.networks.optimizers import Adam
from tests.helpers import filled_buffer, spaces

schedules = keras.optimizers.schedules


class Network:
    """A custom network that returns `w · x + b`. It also has a running mean."""

    variable_dtype, losses = "float32", ()

    def __init__(self, name: str = "network", size: int = 2, w: tf.Variable | None = None) -> None:
        self.name = name
        self.w = tf.Variable(tf.range(1.0, size + 1)) if w is None else w
        self.b, self.mean = tf.Variable([0.5]), tf.Variable([7.0], trainable=False)

    @property
    def variables(self) -> list[CustomVariable]:
        values = {"w": self.w, "b": self.b, "mean": self.mean}
        return [CustomVariable(path, value, value.trainable) for path, value in values.items()]

    @property
    def trainable_variables(self) -> list[CustomVariable]:
        return [variable for variable in self.variables if variable.trainable]

    def __call__(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        if training:
            self.mean.assign_add([1.0])
        return tf.linalg.matvec(x, self.w) + self.b


def values(network: Network) -> list[list[float]]:
    return [variable.numpy().tolist() for variable in network.variables]


def adam(rate: float = 0.125, name: str = "adam") -> Adam:
    return Adam(rate, epsilon=1e-7, name=name)


X = tf.constant([[1.0, -2.0]])


# --- variable groups ----------------------------------------------------------------------------


def test_variable_groups_are_named_after_modules() -> None:
    modules = Modules(
        Module("one", Network(), target=Network(), optimizer=adam()),
        Module("other", Network()),
    )
    groups = {name: [v.path for v in variables] for name, variables in modules.groups().items()}
    assert groups == {
        "one": ["w", "b", "mean"],
        "one_target": ["w", "b", "mean"],
        "other": ["w", "b", "mean"],
        "one_optimizer": [
            *("iterations", "learning_rate"),
            *("w/momentum", "b/momentum", "w/velocity", "b/velocity"),
        ],
    }
    assert list(modules) == ["one", "other"]
    assert list(modules.networks()) == ["one", "one_target", "other"]
    assert modules["one"].target is modules.networks()["one_target"]


def test_shared_variables_appear_only_in_the_first_group() -> None:
    shared = tf.Variable([1.0, 2.0])
    modules = Modules(Module("one", Network(w=shared)), Module("other", Network(w=shared)))
    groups = {name: [v.path for v in variables] for name, variables in modules.groups().items()}
    assert groups == {"one": ["w", "b", "mean"], "other": ["b", "mean"]}


def test_duplicate_module_names_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"groups must have different names; got \['one', 'one', "):
        Modules(Module("one", Network()), Module("one", Network()))


def test_a_target_that_shares_trained_variables_is_rejected() -> None:
    one, other = Network("one"), Network("other")
    for target in (Network(w=one.w), Network(w=other.w)):
        with pytest.raises(ValueError, match="variable 'w' of one was returned by two calls"):
            Modules(
                Module("one", one, target=target, optimizer=adam()),
                Module("other", other, optimizer=adam()),
            )


def test_a_target_with_other_shapes_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"(?s)factory of network must .*\(2,\).*\(3,\)"):
        Module("one", Network(), target=Network(size=3))


# --- targets ------------------------------------------------------------------------------------


def test_a_target_starts_as_a_copy_and_follows_by_tau() -> None:
    network, target = Network(), Network()
    target.w.assign([9.0, 9.0])
    modules = Modules(Module("one", network, target=target))
    assert values(target) == values(network)
    network.w.assign([5.0, 6.0])
    network.mean.assign([3.0])
    modules.update_targets(0.25)
    # Trained variables move a quarter of the way to the network. Others are copied.
    assert values(target) == [[1 + 0.25 * 4, 2 + 0.25 * 4], [0.5], [3.0]]
    assert values(network) == [[5.0, 6.0], [0.5], [3.0]]


def test_a_target_with_copy_every_changes_only_when_copied() -> None:
    network, target = Network(), Network()
    module = Module("one", network, target=target, copy_every=3)
    network.w.assign([5.0, 6.0])
    Modules(module).update_targets(0.25)
    assert values(target)[0] == [1.0, 2.0]
    module.copy_to_target()
    assert values(target) == values(network)


@pytest.mark.parametrize(("target", "every"), [(None, 2), (Network(), -1)])
def test_an_invalid_copy_interval_is_rejected(target: Any, every: int) -> None:
    with pytest.raises(ValueError, match=f"one: copy_every must be at .*got {every}"):
        Module("one", Network(), target=target, copy_every=every)


# --- gradient steps -----------------------------------------------------------------------------


def step(module: Module) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(module(X, training=True))
    module.minimize(loss, tape)


def test_minimize_updates_only_learned_variables() -> None:
    network, target = Network(), Network()
    # The gradients are x and 1. Adam's first step has the size of the learning rate and the
    # opposite sign.
    step(Module("one", network, target=target, optimizer=adam()))
    expected = [[1 - 0.125, 2 + 0.125], [0.5 - 0.125]]
    for found, value in zip(values(network)[:2], expected, strict=True):
        np.testing.assert_allclose(found, value, 1e-5)
    assert values(network)[2] == [8.0]
    assert values(target) == [[1.0, 2.0], [0.5], [7.0]]

    network = Network()
    step(Module("one", network, learned=network.variables[1:2], optimizer=adam()))
    assert values(network)[0] == [1.0, 2.0]
    np.testing.assert_allclose(values(network)[1], [0.375], 1e-5)


def test_a_variable_without_gradient_is_named_and_nothing_changes() -> None:
    network = Network()
    module = Module("one", network, optimizer=adam())
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network.w)
    with pytest.raises(ValueError, match=r"loss of one does not depend on b: .*`learned`"):
        module.minimize(loss, tape)
    assert values(network) == [[1.0, 2.0], [0.5], [7.0]]


def test_a_module_without_an_optimizer_cannot_be_trained() -> None:
    with pytest.raises(ValueError, match="one has no optimizer: pass one to its"):
        step(Module("one", Network()))


def falling(factor: float = 0.5) -> Any:
    return schedules.ExponentialDecay(0.5, decay_steps=1, decay_rate=factor)


# Each entry has a factory of the optimizer, the learning rates of its first two steps (None: not
# checked), and the number of its variables when it trains two variables.
OPTIMIZERS = {
    "ours": (lambda: adam(0.5), None, 2 + 4),
    "SGD": (lambda: keras.optimizers.SGD(0.5), (0.5, 0.5), 2),
    "momentum": (lambda: keras.optimizers.SGD(0.5, momentum=0.9), None, 2 + 2),
    "schedule": (lambda: keras.optimizers.SGD(falling()), (0.5, 0.25), 1),
    "Adam with a schedule": (lambda: keras.optimizers.Adam(falling()), None, 1 + 4),
    "AMSGrad": (lambda: keras.optimizers.Adam(0.5, amsgrad=True), None, 2 + 6),
    "a function": (lambda: keras.optimizers.SGD(lambda: 0.5), (0.5, 0.5), 1),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("keras_names", [False, True])
def test_any_keras_optimizer_trains_a_module_and_can_be_restored(
    kind: str, keras_names: bool, tmp_path: Path
) -> None:
    make, rates, count = OPTIMIZERS[kind]

    def module() -> Module:
        network: Any = Network()
        if keras_names:
            layers = [keras.Input((2,)), keras.layers.Dense(1, name="only")]
            network = keras.Sequential(layers, name="network")
            network.set_weights([np.array([[1.0], [2.0]]), np.array([0.5])])
        return Module("one", network, optimizer=make())

    def weights(module: Module) -> list[np.ndarray]:
        return [variable.numpy().ravel() for variable in module.network.variables[:2]]

    one, again = module(), module()
    saved = VariableCheckpoint(**Modules(one).groups())
    assert len(saved.groups["one_optimizer"]) == count
    step(one)
    saved.write(str(tmp_path / "saved"))
    step(one)
    if rates:
        down = sum(rates)  # SGD subtracts this sum times the gradients, x and 1
        for found, value in zip(
            weights(one), ([1 - down, 2 + 2 * down], [0.5 - down]), strict=True
        ):
            np.testing.assert_allclose(found, value, 1e-6)
    VariableCheckpoint(**Modules(again).groups()).read(str(tmp_path / "saved"))
    again.keep_learning_rate()
    step(again)
    for found, expected in zip(weights(again), weights(one), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_an_optimizer_makes_the_same_steps_in_a_compiled_program() -> None:
    found = []
    for wrap in (lambda f: f, tf.function, lambda f: tf.function(f, jit_compile=True)):
        network = Network()
        module = Module("one", network, optimizer=keras.optimizers.SGD(falling(), momentum=0.5))
        compiled = wrap(lambda module=module: step(module))
        for _ in range(3):
            compiled()
        found.append(values(network))
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_allclose(same, one, 1e-6)


def test_the_configured_learning_rate_survives_restoring(tmp_path: Path) -> None:
    first, second = (Module("one", Network(), optimizer=adam(rate)) for rate in (0.5, 0.125))
    VariableCheckpoint(**Modules(first).groups()).write(str(tmp_path / "saved"))
    VariableCheckpoint(**Modules(second).groups()).read(str(tmp_path / "saved"))
    assert float(second.optimizer.learning_rate) == 0.5
    second.keep_learning_rate()
    assert float(second.optimizer.learning_rate) == 0.125
    Module("none", Network()).keep_learning_rate()


def test_a_saved_variable_of_another_shape_is_named(tmp_path: Path) -> None:
    def checkpoint(size: int) -> VariableCheckpoint:
        return VariableCheckpoint(net=[tf.Variable(tf.zeros((2, size)), name="a.S/kernel")])

    checkpoint(3).write(str(tmp_path / "saved"))
    message = r"net/a.S/kernel:0 is float32 of shape \(2, 3\) in .* float32 of shape \(2, 4\) in"
    with pytest.raises(ValueError, match=message):
        checkpoint(4).read(str(tmp_path / "saved"))


# --- in an agent --------------------------------------------------------------------------------


class Copying(DDPG):
    """DDPG whose target networks are copied between calls."""

    def build(self, builder: ModelBuilder) -> Modules:
        modules = super().build(builder)
        for module in modules.values():
            module.copy_every = 4
        return modules


@pytest.mark.parametrize("mode", ["eager", pytest.param("graph", marks=pytest.mark.long)])
def test_targets_of_an_agent_are_copied_between_calls(mode: str) -> None:
    config = DDPGConfig(hidden_sizes=(8,), batch_size=4, mode=mode)
    agent, buffer = Copying(*spaces(), config, seed=0), filled_buffer()

    def is_copied(module: Module) -> bool:
        pairs = zip(module.network.variables, module.target.variables, strict=True)
        return all(np.array_equal(one.numpy(), other.numpy()) for one, other in pairs)

    for updates, copied in ((2, False), (2, True), (1, False)):
        agent.train(buffer, updates)
        assert [is_copied(module) for module in agent.modules.values()] == [copied] * 2
        rows = np.ones((3, 4), np.float32)
        np.testing.assert_allclose(agent.act(rows), agent.actor.network(rows), 1e-5, 1e-6)
    with pytest.raises(ValueError, match=r"must divide 4, .*, and 5, the updates so far; got 4"):
        agent.train(buffer, 4)


def test_colliding_and_unknown_names_are_rejected() -> None:
    one, other, third = Network(), Network(), Network()
    with pytest.raises(ValueError, match="variable groups must have different"):
        Modules(Module("x", one, target=other), Module("x_target", third))
    with pytest.raises(KeyError, match="is named 'y'; modules are x"):
        Modules(Module("x", one))["y"]


def test_targets_can_be_updated_separately() -> None:
    modules = Modules(*(Module(n, Network(), target=Network()) for n in ("one", "other")))
    for module in modules.values():
        module.network.b.assign([2.5])
    modules.update_targets(0.5, "one")
    assert [float(module.target.b[0]) for module in modules.values()] == [1.5, 0.5]
