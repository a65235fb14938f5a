"""Recurrent agents: padding has no effect, and single steps agree with whole sequences.

Updates are also compared with the NumPy loops of reference_memory.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents import losses
from eagerly.agents.agent_settings import MEMORIES
from eagerly.agents.inputs import Batch, batch_of_windows
from eagerly.agents.schedule import Phase
from eagerly.agents.td3 import TD3
from eagerly.agents.td3_config import TD3Config
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import PADDING, Sample, SequenceLayout, UniformSampler, Window
from eagerly.buffers.replay import aligned
from eagerly.buffers.window import BURN_IN, LEARNED
from eagerly.networks import History
from eagerly.policies import Episodes
from tests.agents.reference_memory import ReferenceUpdate
from tests.helpers import (
    buffer_for,
    equal_weights,
    random_of,
    reseed,
    restore_networks,
    small_agent,
    spaces,
    stepped,
    weights_of,
)

MODES = ("eager", "graph", "xla")
pytestmark = pytest.mark.usefixtures("unoptimized")
KINDS = [
    pytest.param("td3", "lstm", id="td3-lstm"),
    pytest.param("ddpg", "gru", id="ddpg-gru"),
    pytest.param("td3", "attention", id="td3-attention"),
]
SMALL = {
    "memory_units": 8,
    "sequence_length": 6,
    "burn_in": 2,
    "sequences_per_update": 5,
    "hidden_sizes": (16,),
}


def agent_with(name: str, memory: str, **settings: Any) -> Any:
    # A policy delay of 2 would double the time for tracing.
    more = {"policy_delay": 1} if name == "td3" else {}
    more |= {"attention_heads": 2} if memory == "attention" else {}
    return small_agent(name, **SMALL | {"mode": "graph"} | more | {"memory": memory} | settings)


class Given:
    """A buffer that always returns the same windows."""

    def __init__(self, layout: SequenceLayout, rows: np.ndarray) -> None:
        self.layout, self.sampler, self._rows = layout, UniformSampler(), rows

    def draw(self, updates: int, batch_size: int) -> Sample:
        assert self._rows.shape[1] == batch_size
        rows = aligned((updates, *self._rows.shape[1:]))
        rows[...] = self._rows
        return Sample(rows, None)


# --- padding has no effect --------------------------------------------------------------------


def with_padding(rows: np.ndarray, value: float) -> np.ndarray:
    """Returns rows whose padding is set to a value, except in the last column, the role."""
    changed = rows.copy()
    padding = rows[..., -1] == PADDING
    padding[..., 0] = False  # the first row holds the first observation
    changed[padding, :-1] = value
    assert padding.any()
    return changed


FILLS = {"huge": 1e38, "nan": np.nan}


@pytest.mark.parametrize(
    ("name", "memory", "fill", "mode"),
    [
        # NaN reveals any use of padding. Huge values reveal an overflow that is multiplied by 0.
        pytest.param("td3", "lstm", "huge", "eager", id="td3-lstm-huge"),
        *(pytest.param(*kind.values, "nan", "eager", id=f"{kind.id}-nan") for kind in KINDS),
        *(
            # Compiling with XLA takes ten seconds. test_cores.py tests gradients in every mode.
            pytest.param(*kind.values, "nan", "xla", id=f"{kind.id}-xla", marks=pytest.mark.long)
            for kind in KINDS
        ),
    ],
)
def test_padding_values_do_not_change_losses_and_weights(
    name: str, memory: str, fill: str, mode: str, tmp_path: Path
) -> None:
    results = []
    agent = agent_with(name, memory, mode=mode, normalize_observations=mode == "eager")
    if agent.normalization is not None:
        agent.normalization.update(np.arange(8.0).reshape(2, 4))
    agent.checkpoint.write(str(tmp_path / "networks"))
    for value in (0.0, FILLS[fill]):
        agent.checkpoint.read(str(tmp_path / "networks"))  # resets only the weights
        agent.refresh()
        rows = with_padding(buffer_for(agent).sample_rows(1, 5), value)
        metrics = agent.train(Given(agent.layout, rows), 1)
        results.append((metrics, weights_of(agent)))
    (metrics, weights), (other_metrics, other_weights) = results
    assert equal_weights(weights, other_weights)
    assert equal_weights(metrics, other_metrics)


@pytest.mark.parametrize(("name", "memory"), KINDS)
def test_more_padding_changes_results_only_by_rounding(name: str, memory: str) -> None:
    after = []
    # Windows of 5 steps have 6 observations. Attention covers all 6 with both lengths below.
    windows = buffer_for(agent_with(name, memory, sequence_length=5)).sample_rows(1, 5)
    for length in (6, 11):
        more = {"adam_epsilon": 1e-3, "mode": "eager"}
        more |= {"target_noise": 0.0} if name == "td3" else {}
        agent = agent_with(name, memory, sequence_length=length, precision="float64", **more)
        rows = np.pad(windows, ((0, 0), (0, 0), (0, length - 5), (0, 0)))
        agent.train(Given(agent.layout, rows), 1)
        after.append(weights_of(agent))
    for path, values in after[0].items():
        other = after[1][path]
        if "distances" in path:  # these variables have one number per step that attention covers
            assert not np.any(other[..., 6:])
            other = other[..., :6]
        np.testing.assert_allclose(other, values, 1e-8, 1e-11, err_msg=path)


@pytest.mark.parametrize(("name", "memory"), KINDS)
def test_the_masked_loss_equals_that_of_separate_sequences(name: str, memory: str) -> None:
    agent = agent_with(name, memory, precision="float64", burn_in=0)
    rows = buffer_for(agent).sample(1, 5)
    window = Window(*(part[0].astype(np.float64) for part in rows))
    actor, critic = agent.actor.network, agent.critic.network

    def loss_of(batch: Batch, counted: bool) -> tuple[tf.Tensor, list[tf.Tensor]]:
        variables = [v.value for v in (*critic.trainable_variables, *actor.trainable_variables)]
        with tf.GradientTape() as tape:
            values = critic(batch.observation, batch.action)
            target = tf.stop_gradient(batch.reward * 0.3)
            mask = batch.mask if counted else None
            loss = losses.critic_loss(values, target, mask)
            action = actor(batch.observation)
            loss += losses.actor_loss(critic.first(batch.observation, action), mask)
        return loss, tape.gradient(loss, variables)

    whole, gradients = loss_of(batch_of_windows(Window(*map(tf.constant, window))), True)
    lengths = (window.role != PADDING).sum(axis=1)
    assert len(set(lengths)) > 2
    total, sums = 0.0, [0.0] * len(gradients)
    for row, length in enumerate(lengths):
        alone = Window(
            *(part[row : row + 1, : length + 1] for part in window[:3]),
            *(part[row : row + 1, :length] for part in window[3:]),
        )
        loss, parts = loss_of(batch_of_windows(Window(*map(tf.constant, alone))), False)
        weight = length / lengths.sum()
        total += weight * loss
        sums = [s + weight * part for s, part in zip(sums, parts, strict=True)]
    np.testing.assert_allclose(whole, total, 1e-12)
    for found, expected in zip(gradients, sums, strict=True):
        np.testing.assert_allclose(found, expected, 1e-9, 1e-12)


def test_losses_reject_masks_that_would_broadcast() -> None:
    values, target = tf.zeros((2, 4)), tf.zeros(4)
    for mask, message in (
        (tf.ones((2, 4), tf.bool), r"mask must have shape \[B\], got \(2, 4\)"),
        (tf.ones(1, tf.bool), r"mask must have the batch size of values, 4; got \(1,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            losses.critic_loss(values, target, mask)
    mask = tf.constant([True, True, False, False])
    values = tf.constant([[1.0, 3.0, np.nan, 1e30], [0.0, 2.0, 5.0, -7.0]])
    assert losses.critic_loss(values, tf.constant([1.0, 1.0, np.nan, 0.0]), mask) == 2 + 1
    assert losses.actor_loss(values[0], mask) == -2


def test_burn_in_affects_the_recurrent_state_but_not_the_loss() -> None:
    agent = agent_with("td3", "gru", burn_in=3)
    window = buffer_for(agent).sample(1, 5)
    batch = batch_of_windows(Window(*(tf.constant(part[0]) for part in window)))
    learned = np.array(window.role[0] == LEARNED).reshape(-1)
    np.testing.assert_array_equal(batch.mask, learned)

    def values(part: str, change: float) -> tuple[np.ndarray, float]:
        """Returns values and loss after `change` is added to the field `part` of burn-in steps."""
        role, changed = window.role[0], np.array(getattr(window, part)[0])
        changed[:, : role.shape[1]][role == BURN_IN] += change
        parts = window._asdict() | {part: changed[np.newaxis]}
        batch = batch_of_windows(Window(*(tf.constant(p[0]) for p in parts.values())))
        values = agent.critic.network(batch.observation, batch.action)
        target = batch.reward + batch.discount
        return values.numpy()[:, learned], float(losses.critic_loss(values, target, batch.mask))

    (before, loss), (seen, other) = values("observation", 0.0), values("observation", 1.0)
    assert (before != seen).any()
    assert loss != other
    np.testing.assert_array_equal(values("discount", 1.0)[1], loss)


class Weighing(UniformSampler):
    """A sampler in which the weight of each window is its index in the batch."""

    def weights(self, places: np.ndarray) -> np.ndarray:
        return np.tile(np.arange(5, dtype=np.float32), (len(places), 1))


class Told(TD3):
    """Trains nothing. Returns the weighted sum of rewards, and the sum expected, as metrics."""

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        of_windows = tf.reduce_sum(tf.reshape(batch.reward, [5, 6]), axis=1)
        weighed = tf.reduce_sum(batch.reward * batch.weight)
        return {"weighed": weighed, "expected": tf.reduce_sum(of_windows * tf.range(5.0))}, {}


@pytest.mark.parametrize(
    "mode", ["eager", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("graph", "xla"))]
)
def test_each_step_has_the_weight_of_its_window(mode: str) -> None:
    agent = Told(*spaces(), TD3Config(**SMALL, memory="gru", mode=mode), seed=0)
    metrics = agent.train(buffer_for(agent, sampler=Weighing()), 2)
    np.testing.assert_allclose(metrics["weighed"], metrics["expected"], 1e-4)
    learning = agent_with("td3", "gru", mode="eager")
    learning.train(buffer_for(learning, sampler=Weighing()), 1)


# --- comparison of an update with slow loops -----------------------------------------------------


@pytest.mark.parametrize(("memory", "mode"), [("lstm", "graph"), ("gru", "eager")])
def test_an_update_equals_slow_loops_in_numpy(memory: str, mode: str) -> None:
    settings = {
        "memory": memory,
        "memory_units": 3,
        "hidden_sizes": (4,),
        "sequence_length": 4,
        "burn_in": 1,
        "sequences_per_update": 3,
        "policy_delay": 1,
        "target_noise": 0.0,
        "adam_epsilon": 0.1,  # with a small epsilon, Adam's first step ignores the gradient's size
        "actor_learning_rate": 0.125,
        "critic_learning_rate": 0.25,
        "tau": 0.25,
        "activation": "tanh",  # finite differences require a smooth activation
    }
    config = TD3Config(**settings, precision="float64", mode=mode)
    agent = TD3(*spaces(4, 2), config, seed=0)
    window = Window(*(part[0].astype(np.float64) for part in buffer_for(agent, 60).sample(1, 3)))
    assert {0.0, 1.0, 2.0} <= set(window.role.ravel())
    reference = ReferenceUpdate(agent, memory)
    agent.train(buffer_for(agent, 60), 1)
    reference.update(window)
    for name, expected in reference.weights().items():
        variables = agent.modules.networks()[name].variables
        for variable, value in zip(variables, expected, strict=True):
            np.testing.assert_allclose(
                variable.numpy(), value, 1e-7, 1e-8, err_msg=f"{name} {variable.path}"
            )


# --- acting -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "memory"), KINDS)
def test_stepwise_acting_equals_acting_on_whole_episodes(name: str, memory: str) -> None:
    agent, random = agent_with(name, memory, precision="float64"), np.random.default_rng(0)
    observations = random.normal(size=(2, 9, 4)).astype(np.float32)
    rewards = random.normal(size=(2, 9)).astype(np.float32)
    ends = {3: 0, 6: 1}  # maps a step to the environment whose episode ends then
    chosen, done = np.zeros((2, 9, 2)), np.zeros((2, 9, 2), np.float32)
    quiet, loud = agent.behavior(), agent.behavior()
    for step in range(9):
        ended = np.arange(2) == ends.get(step)
        chosen[:, step] = quiet.act(observations[:, step], explore=False)
        done[:, step] = loud.act(observations[:, step])
        loud.observe(rewards[:, step], ended)
        quiet.observe(rewards[:, step], ended, done[:, step])
    for row, end in ((0, 4), (1, 7)):
        for piece in (slice(0, end), slice(end, 9)):
            count = piece.stop - piece.start
            assert count <= 7
            before = np.zeros((1, count, 2)), np.zeros((1, count))
            before[0][0, 1:], before[1][0, 1:] = (part[row, piece][:-1] for part in (done, rewards))
            valid = tf.ones((1, count), tf.bool)
            parts = (observations[row : row + 1, piece].astype(np.float64), *before)
            whole = agent.actor.network(History(*map(tf.constant, parts), valid, valid))
            np.testing.assert_allclose(chosen[row, piece], whole, 1e-5, 1e-6)


def test_recurrent_agents_act_only_through_their_behavior_policy() -> None:
    agent, observations = agent_with("td3", "gru"), np.zeros((2, 4))
    with pytest.raises(ValueError, match=r"recurrent policy .*: collect with agent\.behavior\(\)"):
        agent.act(observations)
    behavior = agent.behavior()
    behavior.act(observations)
    with pytest.raises(ValueError, match=r"must have shapes \[\(2, 2\), \(2,\), \(2,\)\]"):
        behavior.observe(np.zeros(2), np.zeros(2, bool), np.zeros((2, 3)))
    behavior.observe(np.zeros(2), np.zeros(2, bool))
    episodes = Episodes(agent.policy, 2)
    with pytest.raises(ValueError, match="acted was called before act"):
        episodes.acted(np.zeros((2, 2)), np.zeros(2), np.zeros(2, bool))
    episodes.act(observations)
    with pytest.raises(ValueError, match=r"act was called twice in a row: .* call acted\("):
        episodes.act(observations)


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_recurrent_state_is_saved_and_reset_at_episode_starts(memory: str) -> None:
    agent, random = agent_with("td3", memory), np.random.default_rng(0)
    behavior = agent.behavior()
    for _ in range(8):
        stepped(behavior, random.normal(size=(2, 4)))
    other = agent.behavior()
    other.restore(behavior.state())
    observations = random.normal(size=(2, 4))
    both = []
    for each, began in ((behavior, np.array([False, True])), (other, np.array([0, 1]))):
        each.on_reset(began)
        both.append(each.act(observations, explore=False))
    np.testing.assert_array_equal(*both)
    new = agent.behavior().act(observations, explore=False)
    np.testing.assert_array_equal(new[1], both[0][1])
    assert not np.allclose(new[0], both[0][0])
    with pytest.raises(ValueError, match="state of Episodes must be a finite array of float32"):
        agent_with("td3", memory, memory_units=16).behavior().restore(behavior.state())


# --- requirements of every agent ----------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(("name", "memory"), KINDS)
def test_modes_agree_and_results_do_not_depend_on_calls_or_restoring(
    name: str, memory: str, tmp_path: Path
) -> None:
    agents = {m: agent_with(name, memory, precision="float64", mode=m) for m in MODES}
    beginning, middle, whole = str(tmp_path / "0"), str(tmp_path / "2"), {}
    agents["graph"].checkpoint.write(beginning)
    for mode, agent in agents.items():
        agent.train(buffer_for(agent), 4)
        whole[mode] = weights_of(agent)
    for mode in ("eager", "xla"):
        for path, values in whole["graph"].items():
            np.testing.assert_allclose(whole[mode][path], values, 1e-7, 1e-12, err_msg=path)
    for mode in ("eager", "graph"):
        agent = agents[mode]
        restore_networks(agent, beginning)
        buffer = buffer_for(agent)
        agent.train(buffer, 2)
        agent.checkpoint.write(middle + mode)
        agent.train(buffer, 2)
        assert equal_weights(whole[mode], weights_of(agent))
    restored = agent_with(name, memory, precision="float64", mode="eager", seed=9)
    reseed(restored, 0)
    restore_networks(restored, middle + "eager")
    buffer = buffer_for(restored)
    buffer.sample_rows(2, 5)
    restored.train(buffer, 2)
    assert equal_weights(whole["eager"], weights_of(restored))


@pytest.mark.parametrize(("name", "memory"), KINDS)
def test_critic_and_actor_steps_update_exactly_their_variables(name: str, memory: str) -> None:
    agent = agent_with(name, memory, mode="eager", initializer="torch_linear")
    random = random_of(agent)
    batch = agent.inputs.batch(
        tf.constant(buffer_for(agent).sample_rows(1, 5)[0]), tf.constant(1, tf.int64)
    )
    outputs = agent.outputs(random)
    for step, mine in (
        (lambda: agent.critic_step(batch, tf.ones(30)), ("critic:", "critic_optimizer:")),
        (lambda: agent.actor_step(batch, outputs), ("actor:", "actor_optimizer:")),
    ):
        before = weights_of(agent)
        step()
        after = weights_of(agent)
        for path in before:
            moved = not np.array_equal(before[path], after[path])
            assert moved == (path.startswith(mine) and "learning_rate" not in path), path


def test_mixed_precision_trains() -> None:
    agent = agent_with("td3", "gru", precision="mixed_bfloat16", mode="eager")
    metrics = agent.train(buffer_for(agent), 2)
    assert np.isfinite(metrics["losses/critic"]).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "gru", "burn_in": 31}, "burn_in must leave at least 2 steps of seq"),
        ({"memory": "attention", "attention_heads": 5}, "attention_heads must divide memory_units"),
        ({"memory": "elman"}, "memory must be one of none, lstm, gru, attention; got 'elman'"),
    ],
)
def test_incompatible_settings_are_rejected(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TD3Config(**settings)


def test_a_buffer_of_transitions_is_rejected() -> None:
    agent, flat = agent_with("td3", "gru"), small_agent("td3")
    with pytest.raises(ValueError, match=r"buffer must have layout SequenceLayout.* got RowLayout"):
        agent.train(buffer_for(flat), 1)
