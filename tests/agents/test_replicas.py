"""Replicas equal one device, remain equal, and divide batches correctly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents import agent_class, replicas
from eagerly.agents.td3 import TD3
from eagerly.agents.update_random import UpdateRandom
from eagerly.training import hardware
from tests.agents.replica_cases import CASES, check, weights
from tests.agents.test_own_models import functional_critic
from tests.helpers import buffer_for, small_agent, small_config, spaces


@pytest.fixture
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Places all replicas on the same device, because a process cannot add devices later."""
    monkeypatch.setattr(replicas, "_devices", lambda count: ["CPU:0"] * count)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("one_device")
def test_replicas_learn_as_one_device_does(name: str) -> None:
    check(name, 2, 2, "eager")


@pytest.mark.usefixtures("one_device")
def test_replicas_are_traced_into_one_program() -> None:
    check("DDPG, rows, normalized", 2, 5, "graph")


@pytest.mark.long
def test_replicas_on_several_devices_learn_as_one_device_does() -> None:
    program = [sys.executable, "-m", "tests.agents.replica_cases"]
    subprocess.run(program, check=True, timeout=1000)


@pytest.mark.long
def test_a_killed_run_with_replicas_continues_bit_for_bit(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "eagerly.benchmarks.prove_resume", "td3"]
    words = ["--env", "Pendulum-v1", "--steps", "2000", "--kills", "2", "--run-dir", "runs"]
    settings = ["--replicas", "2", "--mode", "graph", "--warmup-steps", "500"]
    finished = subprocess.run(
        [*program, *words, "--", *settings], cwd=tmp_path, timeout=500, capture_output=True
    )
    assert b"All parts are equal" in finished.stdout


@pytest.mark.usefixtures("one_device")
def test_windows_are_never_cut() -> None:
    agent = small_agent(
        "td3", memory="gru", sequence_length=5, sequences_per_update=6, mode="graph", replicas=3
    )
    drawn, _ = buffer_for(agent).draw(1, 6)
    rows = tf.constant(drawn[0])
    number = tf.constant(1, tf.int64)
    for index, part in enumerate(replicas._divided(agent.inputs.batch(rows, number), 3)):
        expected = agent.inputs.batch(rows[2 * index : 2 * index + 2], number)
        for found, wanted in zip(tf.nest.flatten(part), tf.nest.flatten(expected), strict=True):
            assert (found is None) == (wanted is None)
            if found is not None:
                np.testing.assert_array_equal(found, wanted)


def test_parts_of_random_numbers_are_those_of_the_whole_batch() -> None:
    whole = UpdateRandom(3, tf.constant(7, tf.int64), tf.float64)
    parts = [whole.part(index) for index in range(3)]
    for name in ("", "more"):
        found = tf.concat([part.uniform((2, 2), name) for part in parts], axis=0)
        np.testing.assert_array_equal(found, whole.uniform((6, 2), name))
    subsets = {tuple(each.subset(2, 9, "subset").numpy()) for each in (whole, *parts)}
    assert len(subsets) == 1


@pytest.mark.usefixtures("one_device")
def test_all_replicas_follow_a_change_of_the_first() -> None:
    one = small_agent("td3", precision="float64")
    several = small_agent("td3", precision="float64", replicas=2)
    other = small_agent("td3", seed=5, precision="float64")
    for agent in (one, several):
        agent.set_weights(other.get_weights())
        agent.train(buffer_for(agent), 1)
    for name, value in weights(one).items():
        np.testing.assert_allclose(weights(several)[name], value, rtol=1e-9, atol=1e-9)


class Keeping(TD3):
    """Keeps a module and a constant in attributes, and returns an integer metric."""

    REPLICABLE = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.bonus = 0.5

    def build(self, builder: Any) -> Any:
        modules = super().build(builder)
        self.kept = modules["critic"]
        return modules

    def update(self, batch: Any, random: UpdateRandom, phase: Any) -> Any:
        batch = batch._replace(reward=batch.reward + self.bonus)
        assert self.kept is self.critic
        metrics, per_row = super().update(batch, random, phase)
        return metrics | {"rows": tf.constant(8)}, per_row


@pytest.mark.usefixtures("one_device")
def test_attributes_of_an_algorithm_belong_to_its_replica() -> None:
    settings: dict[str, Any] = {"hidden_sizes": (8,), "batch_size": 8, "precision": "float64"}
    one = Keeping(*spaces(), **settings, mode="eager")
    several = Keeping(*spaces(), **settings, mode="eager", replicas=2)
    metrics = [agent.train(buffer_for(agent), 2) for agent in (one, several)]
    assert metrics[1]["rows"].tolist() == [8, 8]
    for name, value in weights(one).items():
        np.testing.assert_allclose(weights(several)[name], value, rtol=1e-9, atol=1e-9)


class Failing(TD3):
    """Fails in the second replica."""

    REPLICABLE = True

    def update(self, batch: Any, random: UpdateRandom, phase: Any) -> Any:
        if random._part == 1:
            raise ArithmeticError("in part 1")
        return super().update(batch, random, phase)


class Uneven(TD3):
    """Minimizes a module once more in the second replica."""

    REPLICABLE = True

    def update(self, batch: Any, random: UpdateRandom, phase: Any) -> Any:
        if random._part == 1:
            self.critic_step(batch, batch.reward)
        return super().update(batch, random, phase)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [(Failing, ArithmeticError, "in part 1"), (Uneven, ValueError, "equally often")],
)
@pytest.mark.usefixtures("one_device")
def test_an_error_in_one_replica_ends_the_others(kind: Any, error: Any, message: str) -> None:
    agent = kind(*spaces(), hidden_sizes=(8,), batch_size=6, mode="eager", replicas=3)
    with pytest.raises(error, match=message):
        agent.train(buffer_for(agent), 1)
    assert agent.critic.exchange is None


def batch_normalized(*arguments: Any, **more: Any) -> Any:
    made = functional_critic(*arguments, **more)
    return keras.Model(made.inputs, keras.layers.BatchNormalization()(made.outputs[0]))


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        ("td3", {"mode": "xla"}, "replicas"),
        ("td3", {"replicas": 3}, "replicas must divide batch_size, 8; got 3"),
        ("td3", {"replicas": 8}, "replicas 8 requires 8 devices; TensorFlow has 1 of type CPU"),
        ("td7", {}, "replicas must be 1 for TD7, because its updates are not declared"),
        ("td3_bc", {}, "replicas must be 1 for TD3BC"),
        ("tests.algorithms.huber:HuberTD3", {}, "replicas must be 1 for HuberTD3"),
        ("td3", {"quantize": "int8"}, "actor has the variable .* not trained"),
        ("td3", {"critic": batch_normalized}, "critic has the variable .* not trained"),
    ],
)
def test_agents_that_cannot_be_divided_are_refused(kind: str, settings: Any, message: str) -> None:
    config = small_config(kind, **{"replicas": 2, "mode": "graph"} | settings)
    with pytest.raises(ValueError, match=message):
        agent_class(kind)(*spaces(), config)


def test_a_run_creates_one_cpu_device_per_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(
        tf.config, "set_logical_device_configuration", lambda device, parts: made.append(len(parts))
    )
    hardware.set_device("cpu", 3)
    assert made == [3]
