"""Agents whose actor is trained with fake quantization."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.agents.agent import Agent
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.td3 import TD3
from eagerly.agents.td3_config import TD3Config
from eagerly.networks import Actor
from tests.helpers import (
    equal_weights,
    filled_buffer,
    restore_networks,
    small_agent,
    spaces,
    trained_cheetah,
    weights_of,
)

INT8: dict[str, Any] = {"quantize": "int8"}


def ranges_of(agent: Agent, group: str = "actor") -> list[np.ndarray]:
    weights = agent.get_weights()
    return [weights[f"{group}/quantization/{part}"] for part in ("low", "high")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "gru"}, r"quantize has an effect only with --memory none; got --memory gru"),
        (
            {"activation": "elu"},
            r"only with --activation relu; got --activation elu",
        ),
        ({"layer_norm": True}, r"only without --layer-norm; got --layer-norm"),
        ({"precision": "float64"}, r"only with --precision float32; got --precision float64"),
        ({"precision": "mixed_bfloat16"}, r"only with --precision float32; got --precision mixed"),
        (
            {"actor": "a:b"},
            r"only for built-in networks; got custom networks",
        ),
        (
            {"models": "a:b"},
            r"only for built-in networks; got custom",
        ),
    ],
)
def test_incompatible_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TD3(*spaces(), TD3Config(**INT8, **settings))


def test_custom_critics_are_allowed_and_freezing_requires_quantization() -> None:
    TD3Config(**INT8, critic="a:b")
    with pytest.raises(
        ValueError, match="quantize_freeze_steps has an effect only with --quantize int8"
    ):
        TD3(*spaces(), TD3Config(quantize_freeze_steps=5))


@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Dict({"a": spaces()[0], "b": spaces()[0]}),
        gymnasium.spaces.Box(0, 255, (40, 40, 3), np.uint8),
    ],
    ids=["entries", "image"],
)
def test_dict_and_image_observations_are_rejected(space: gymnasium.Space) -> None:
    with pytest.raises(ValueError, match="quantize has an effect only for single-vector"):
        TD3(space, spaces()[1], TD3Config(**INT8))


class PlainBuilder(ModelBuilder):
    """A builder whose actor ignores the setting `quantize`."""

    def actor(self, name: str = "actor", encoder: Any = None) -> Actor:
        return Actor(*self._sizes, name=name)


class WithItsOwnActor(TD3):
    """An algorithm that uses `PlainBuilder`."""

    Builder = PlainBuilder


def test_an_algorithm_without_a_quantized_actor_is_rejected() -> None:
    WithItsOwnActor(*spaces())
    with pytest.raises(ValueError, match=r"quantize has no effect on this actor: .*builder\.actor"):
        WithItsOwnActor(*spaces(), TD3Config(**INT8))


def test_actor_steps_update_the_ranges_and_the_target_copies_them() -> None:
    agent, buffer = small_agent("td3", **INT8, hidden_sizes=(16, 16)), filled_buffer()
    begun = ranges_of(agent)
    for mine, its in zip(begun, ranges_of(agent, "actor_target"), strict=True):
        np.testing.assert_array_equal(mine, its)
    agent.train(buffer, 1)  # does not train the actor, because every second update does
    for before, after in zip(begun, ranges_of(agent), strict=True):
        np.testing.assert_array_equal(before, after)
    agent.train(buffer, 1)
    low, high = ranges_of(agent)
    assert (high[:4] != begun[1][:4]).all()
    assert (low[1:3] == 0).all()
    for mine, its in zip((low, high), ranges_of(agent, "actor_target"), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_acting_equals_the_quantized_actor_before_and_after_training() -> None:
    agent = small_agent("td3", **INT8, actor_learning_rate=0.01)
    rows = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    for updates in (0, 8):
        if updates:
            agent.train(filled_buffer(), updates)
        acted = agent.act(rows)
        assert (acted * 128 == np.rint(acted * 128)).all()
        assert (acted == agent.actor.network(rows).numpy()).mean() > 0.99


@pytest.mark.parametrize("name", ["td3", "ddpg"])
def test_ranges_are_frozen_after_quantize_freeze_steps(name: str) -> None:
    agent = small_agent(name, **INT8, quantize_freeze_steps=4)
    buffer, found = filled_buffer(), []
    for _ in range(4):
        agent.train(buffer, 2)
        found.append(ranges_of(agent)[1])
    assert (found[0] != found[1]).any()
    np.testing.assert_array_equal(found[1], found[2])
    np.testing.assert_array_equal(found[1], found[3])


def test_quantization_ranges_are_reported_as_curves() -> None:
    agent = small_agent("td3", **INT8, hidden_sizes=(16, 16))
    agent.train(filled_buffer(), 2)
    low, high = ranges_of(agent)
    names = ["input", "hidden_1", "hidden_2", "action"]  # "logits" exist only with choices
    assert agent.scalars() == {
        f"ranges/{name}_{end}": values[index]
        for end, values in (("low", low), ("high", high))
        for index, name in enumerate(names)
    }
    assert small_agent("td3").scalars() == {}


@pytest.mark.long
@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_results_do_not_depend_on_the_division_into_calls(mode: str) -> None:
    settings = {**INT8, "mode": mode, "hidden_sizes": (128, 16), "quantize_freeze_steps": 3}
    results = []
    for calls in ((6,), (1, 5)):
        agent, buffer = small_agent("ddpg", **settings), filled_buffer()
        for updates in calls:
            agent.train(buffer, updates)
        results.append(weights_of(agent))
    assert equal_weights(*results)
    eager, buffer = small_agent("ddpg", **settings | {"mode": "eager"}), filled_buffer()
    eager.train(buffer, 6)
    for path, values in weights_of(eager).items():
        np.testing.assert_allclose(results[0][path], values, 1e-2, 1e-3, err_msg=path)


@pytest.mark.long
@pytest.mark.parametrize(("mode", "seed"), [("graph", 0), ("xla", 0), ("xla", 1)])
def test_modes_agree_in_float32_after_the_first_actor_update(mode: str, seed: int) -> None:
    # test_conformance.py compares unquantized agents in the same way.
    small = {"hidden_sizes": (64, 64), "batch_size": 64, "adam_epsilon": 1e-4, **INT8}
    found, eager = (
        weights_of(trained_cheetah("ddpg", each, seed, 1, **small)) for each in (mode, "eager")
    )
    for path, values in eager.items():
        np.testing.assert_allclose(found[path], values, 1e-5, 1e-7, err_msg=path)


@pytest.mark.parametrize(
    "mode", ["eager", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("graph", "xla"))]
)
def test_a_restored_agent_makes_the_same_next_update(mode: str, tmp_path: Path) -> None:
    settings = {**INT8, "mode": mode, "quantize_freeze_steps": 5}
    agent, buffer = small_agent("td3", **settings), filled_buffer()
    agent.train(buffer, 3)
    agent.checkpoint.write(str(tmp_path / "networks"))
    sampling = buffer.state()
    agent.train(buffer, 3)
    restored, again = small_agent("td3", **settings), filled_buffer()
    restore_networks(restored, str(tmp_path / "networks"))
    again.restore(sampling)
    restored.train(again, 3)
    assert equal_weights(weights_of(agent), weights_of(restored))


def test_a_checkpoint_of_an_unquantized_actor_is_rejected(tmp_path: Path) -> None:
    small_agent("td3").checkpoint.write(str(tmp_path / "networks"))
    with pytest.raises(ValueError, match="quantization"):
        restore_networks(small_agent("td3", **INT8), str(tmp_path / "networks"))
