"""Image and dictionary observations: shared encoders, random shifts and packed bytes."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Box, Dict, Discrete

from eagerly.agents import agent_class
from eagerly.agents.agent import Agent
from eagerly.agents.augmentation import RandomShift
from eagerly.buffers import PixelReplayBuffer, Transition, replay_buffer
from eagerly.networks import KerasPolicy
from eagerly.spaces import Observations
from tests.helpers import equal_weights, restore_networks, weights_of

pytestmark = pytest.mark.usefixtures("unoptimized")

CAMERA = Dict(
    {"camera": Box(0, 255, (2, 16, 15, 1), np.uint8), "speed": Box(-9, 9, (2,), np.float32)}
)
SMALL = Dict({"image": Box(0, 255, (9, 7, 3), np.uint8), "direction": Discrete(4)})
PARTS = Dict({"speed": Box(-9, 9, (2,), np.float32), "tool": Discrete(3)})
ACTIONS = Box(-1, 1, (2,), np.float32)


def agent_of(observation_space: gymnasium.Space[Any], name: str = "td3", **settings: Any) -> Agent:
    kind = agent_class(name)
    small = {"hidden_sizes": (8,), "encoder_units": 5, "batch_size": 4, "mode": "eager"}
    actions = settings.pop("actions", ACTIONS)
    return kind(observation_space, actions, kind.Config(**small | settings), seed=0)


def filled(agent: Agent, seed: int = 0) -> Any:
    """Returns a buffer that contains 20 steps of one episode."""
    space, buffer = agent.observations.space, replay_buffer(agent.layout, 200, seed=seed)
    space.seed(seed)
    draws = np.random.default_rng(seed)

    def seen(before: np.ndarray | None = None) -> np.ndarray:
        observation = space.sample()
        if "camera" in observation:
            older = observation["camera"][1] if before is None else camera_of(agent, before)[1]
            observation["camera"][0] = older
        return agent.observations.flatten(observation)[np.newaxis]

    now = seen()
    for _ in range(20):
        then = seen(now)
        action = agent.actions.random(draws, 1)
        buffer.add(Transition(now, action, np.ones(1), np.full(1, 0.9), then), np.array([False]))
        now = then
    return buffer


def camera_of(agent: Agent, rows: np.ndarray) -> np.ndarray:
    return agent.observations.split(rows)["camera"].reshape(2, 16, 15, 1)


def test_packed_rows_are_unpacked_to_the_stored_transitions() -> None:
    agent = agent_of(CAMERA)
    buffer = filled(agent)
    assert isinstance(buffer, PixelReplayBuffer)
    rows = buffer.sample_rows(1, 16).copy()[0]
    expected = agent.layout.unpack(rows)
    number = tf.constant(1, tf.int64)
    for mode in (lambda f: f, tf.function, lambda f: tf.function(f, jit_compile=True)):
        batch = mode(lambda rows: tuple(agent.inputs.batch(rows, number))[:5])(tf.constant(rows))
        for part, other in zip(batch, expected, strict=True):
            np.testing.assert_array_equal(part, other)
    assert set(np.unique(expected.observation[:, : 2 * 16 * 15])) <= set(range(256))


@pytest.mark.usefixtures("with_graph")
@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.long), "float64"])
def test_an_update_with_images_has_a_graph_in_every_precision(precision: str) -> None:
    graph = agent_of(CAMERA, mode="graph", precision=precision).learner.graph()
    assert any("critic" in operation.name for operation in graph.get_operations())


def test_actor_and_critic_share_an_encoder_that_the_critic_loss_trains() -> None:
    agent, plain = agent_of(CAMERA), agent_of(PARTS)
    for each in (agent, plain):
        actor, critic = each.actor.network, each.critic.network
        encoder = {id(v) for v in actor._encoder.variables}
        assert encoder == {id(v) for v in critic._encoder.variables}
        assert encoder.isdisjoint(id(v) for v in each.actor.target._encoder.variables)
        kept = each.checkpoint.groups
        assert len(kept["actor"]) == len(actor.variables)
        assert len(kept["critic"]) == len(critic.variables) - len(encoder)
        before = weights_of(each)
        each.train(filled(each), 1)  # TD3's first update does not update the actor
        after = weights_of(each)
        moved = {name for name in before if not np.array_equal(before[name], after[name])}
        of_encoder = {name for name in before if name.startswith("actor: ") and "entry_" in name}
        assert len(of_encoder) == len(encoder)
        assert of_encoder <= moved
        assert not {n for n in moved if n.startswith("actor: ")} - of_encoder
        target, own = (part._encoder.variables for part in (each.actor.target, each.actor.network))
        behind = [variable.numpy() for variable in target]
        each.train(filled(each), 1)
        tau = each.config.tau
        for followed, source, old in zip(target, own, behind, strict=True):
            np.testing.assert_allclose(followed, (1 - tau) * old + tau * source.numpy(), 1e-4, 1e-7)
            assert not np.array_equal(followed, old)


@pytest.mark.parametrize(
    ("space", "name", "settings", "compiled"),
    [
        (CAMERA, "td3", {"random_shift": 2}, ("graph",)),
        pytest.param(SMALL, "td3", {"random_shift": 2}, ("graph",), marks=pytest.mark.long),
        pytest.param(
            CAMERA, "ddpg", {"actions": Discrete(3)}, ("graph", "xla"), marks=pytest.mark.long
        ),
        pytest.param(
            PARTS, "td3", {"normalize_observations": True}, ("xla",), marks=pytest.mark.long
        ),
    ],
    ids=["images", "small images", "images, discrete", "dictionary"],
)
def test_modes_agree_and_a_restored_agent_continues_identically(
    space: gymnasium.Space[Any],
    name: str,
    settings: dict[str, Any],
    compiled: tuple[str, ...],
    tmp_path: Any,
) -> None:
    # With this delay, TD3 compiles one program instead of two.
    settings = settings | ({"policy_delay": 1} if name == "td3" else {})
    agents, after = {}, {}
    for mode in ("eager", *compiled):
        agents[mode] = agent = agent_of(space, name, mode=mode, **settings)
        if agent.normalization is not None:
            agent.normalization.update(filled(agent).sample(1, 8).observation[0])
        for _ in range(2):
            metrics = agent.train(filled(agent), 1)
            assert all(np.isfinite(values).all() for values in metrics.values())
        after[mode] = weights_of(agent)
    for path, values in after["eager"].items():
        for mode in compiled:
            np.testing.assert_allclose(values, after[mode][path], rtol=1e-3, atol=2e-5)
    agent = agents["eager"]
    agent.checkpoint.write(str(tmp_path / "n"))
    again = agent_of(space, name, **settings)
    restore_networks(again, str(tmp_path / "n"))
    if agent.normalization is not None:
        again.normalization.moments.restore(agent.normalization.moments.state())
    for one in (agent, again):
        one.train(filled(one, seed=1), 2)
    assert equal_weights(weights_of(agent), weights_of(again))


def test_image_settings_have_an_effect() -> None:
    still, shifted = (agent_of(CAMERA, mode="eager", random_shift=by) for by in (0, 3))
    for agent in (still, shifted):
        agent.train(filled(agent), 1)
    assert not equal_weights(weights_of(still), weights_of(shifted))
    assert agent_of(PARTS, encoder_units=6).actor.network._encoder.features == 12


def test_a_separately_built_actor_equals_that_of_the_agent() -> None:
    agent = agent_of(CAMERA)
    alone = agent.Builder(agent.config, CAMERA, ACTIONS, seed=0).actor()
    assert [v.path for v in alone.variables] == [v.path for v in agent.actor.network.variables]
    rows = filled(agent).sample(1, 3).observation[0]
    np.testing.assert_allclose(KerasPolicy(alone)(rows), agent.act(rows), rtol=1e-5, atol=1e-6)


def test_shifts_do_not_depend_on_the_division_into_calls() -> None:
    whole, parts = agent_of(CAMERA, random_shift=3), agent_of(CAMERA, random_shift=3)
    buffer, twin = filled(whole), filled(parts)
    whole.train(buffer, 3)
    parts.train(twin, 1)
    parts.train(twin, 2)
    assert equal_weights(weights_of(whole), weights_of(parts))
    rows = tf.constant(buffer.sample_rows(1, 4)[0])
    shown = [whole.inputs.batch(rows, tf.constant(k, tf.int64)).observation for k in (1, 1, 2)]
    np.testing.assert_array_equal(shown[0], shown[1])
    assert not np.array_equal(shown[0], shown[2])


def test_observations_and_next_observations_are_shifted_independently() -> None:
    agent = agent_of(CAMERA, random_shift=3)
    rows = tf.constant(filled(agent).sample_rows(1, 4)[0])
    inputs: Any = agent.inputs
    shift, calls = inputs._shift, list[Any]()

    class Recording:
        images = shift.images

        def __call__(self, *arguments: tf.Tensor) -> tf.Tensor:
            calls.append([*arguments, shift(*arguments)])
            return calls[-1][-1]

    inputs._shift = Recording()
    batch = inputs.batch(rows, tf.constant(1, tf.int64))
    (before, now, shown), (after, then, next_shown) = calls
    assert batch.observation is shown
    assert batch.next_observation is next_shown
    assert not np.array_equal(before, after)
    assert not np.array_equal(now, then)
    np.testing.assert_array_equal(before, agent_of(CAMERA).inputs.batch(rows, 1).observation)


def test_all_frames_are_shifted_equally_and_edges_are_repeated() -> None:
    observations = Observations(CAMERA)
    shift = RandomShift(observations, 2)
    rows = np.random.default_rng(0).integers(0, 256, (500, observations.size)).astype(np.float32)
    uniform = np.random.default_rng(1).random((2, 500, 1)).astype(np.float32)
    uniform[:, 0], uniform[:, 1] = 1.0, 1e-9
    shifted = shift(tf.constant(rows), tf.constant(uniform)).numpy()
    # The last two columns, the speed, are not part of the image and therefore not shifted.
    np.testing.assert_array_equal(shifted[:, -2:], rows[:, -2:])
    seen = set()
    for before, after, drawn in zip(rows, shifted, uniform[:, :, 0].T, strict=True):
        down, right = np.minimum(np.floor(drawn * 5), 4).astype(int) - 2
        seen.add((down, right))
        image, moved = (row[:-2].reshape(2, 16, 15) for row in (before, after))
        padded = np.pad(image, ((0, 0), (2, 2), (2, 2)), mode="edge")
        np.testing.assert_array_equal(
            moved, padded[:, 2 + down : 18 + down, 2 + right : 17 + right]
        )
    assert len(seen) == 25


@pytest.mark.parametrize(
    ("space", "settings", "message"),
    [
        (
            CAMERA,
            {"memory": "gru", "batch_size": 256},
            "memory does not support image observations",
        ),
        (ACTIONS, {"random_shift": 2}, "random_shift has an effect only for image obs"),
        (ACTIONS, {"encoder_units": 6}, "encoder_units has an effect only for"),
        (
            ACTIONS,
            {"encoder_units": 64, "shared_gradient": "both"},
            "shared_gradient has an effect only with custom",
        ),
        (Box(0, 255, (2, 20), np.uint8), {}, "must be at least 3 by 3; got 2 by 20"),
        (SMALL, {"random_shift": 7}, r"less than the height and width of image 'image', 9 by 7"),
    ],
)
def test_incompatible_spaces_and_settings_are_rejected(
    space: gymnasium.Space[Any], settings: dict[str, Any], message: str
) -> None:
    if space == ACTIONS:
        settings = {"encoder_units": 64} | settings
    with pytest.raises(ValueError, match=message):
        agent_of(space, **settings)


def test_normalization_does_not_change_pixels_and_discrete_entries() -> None:
    agent = agent_of(Dict({**CAMERA.spaces, "tool": Discrete(3)}), normalize_observations=True)
    rows = np.stack([agent.observations.flatten(agent.observations.space.sample())] * 2)
    rows[1] += 1000.0
    speeds = agent.observations.scalable
    agent.normalization.update(rows)
    agent.normalization.sync()
    scaled = agent.normalization(rows[:1]).numpy()
    np.testing.assert_array_equal(scaled[:, ~speeds], rows[:1, ~speeds])
    np.testing.assert_allclose(scaled[:, speeds], -1.0, 1e-4)


def test_acting_in_bfloat16_does_not_round_observations() -> None:
    space = Dict({"far": Box(-np.inf, np.inf, (1,)), "near": Box(-1, 1, (1,))})
    agent = agent_of(space, precision="mixed_bfloat16", normalize_observations=True)
    rows = np.array([[998.5, 0], [999.5, 0], [1000.5, 0], [1001.5, 0]], np.float32)
    agent.normalization.update(rows)
    agent.normalization.sync()
    actions = agent.act(rows)
    assert len(np.unique(actions, axis=0)) > 2
    # Acting computes in float32. In bfloat16, all rows would be rounded to the same observation.
    seen = agent.actor.network(tf.constant(rows)).numpy()
    np.testing.assert_allclose(actions, seen, rtol=0, atol=0.01)
