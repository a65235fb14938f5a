"""TD3 compared with a NumPy reference, and its parts compared with hand calculations.

Tests that apply to all agents are in test_conformance.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.inputs import Batch
from eagerly.agents.schedule import Phase
from eagerly.agents.td3 import TD3
from eagerly.agents.td3_config import TD3Config
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import ReplayBuffer, Transition, UniformSampler
from tests.agents import reference_td3
from tests.agents.reference import difference, network_of
from tests.helpers import (
    filled_buffer,
    small_agent,
    spaces,
    weights_of,
)

# --- comparison with a slow NumPy TD3 -------------------------------------------------------


def reference_of(
    agent: Any, kind: type[reference_td3.ReferenceTD3] = reference_td3.ReferenceTD3
) -> Any:
    config = agent.config
    return kind(
        network_of(agent.actor.network.variables),
        [network_of(agent.critic.network.variables, member) for member in range(config.n_critics)],
        # Keras stores learning rates as float32, regardless of the precision of variables.
        actor_rate=float(np.float32(config.actor_learning_rate)),
        critic_rate=float(np.float32(config.critic_learning_rate)),
        epsilon=config.adam_epsilon,
        tau=config.tau,
        delay=config.policy_delay,
        clip=config.target_noise_clip,
    )


def step_of_divergence(agent: Any, twin: reference_td3.ReferenceTD3) -> str | None:
    pairs = {
        "actor": (network_of(agent.actor.network.variables), twin.actor),
        "actor_target": (network_of(agent.actor.target.variables), twin.actor_target),
    }
    for member in range(agent.config.n_critics):
        for name, model, networks in (
            ("critic", agent.critic.network, twin.critics),
            ("critic_target", agent.critic.target, twin.critic_targets),
        ):
            pairs[f"{name} {member}"] = (network_of(model.variables, member), networks[member])
    return difference(pairs)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"n_critics": 1, "policy_delay": 1}, marks=pytest.mark.long),
        {
            **{"n_critics": 3, "policy_delay": 3, "tau": 0.3, "target_noise_clip": 0.1},
            "hidden_sizes": (128, 16),  # width 128: cache-friendly gradient of `product`
        },
        pytest.param(
            {"initializer": "torch_linear", "actor_learning_rate": 3e-3, "adam_epsilon": 1e-3},
            marks=pytest.mark.long,
        ),
    ],
    ids=["paper", "one critic", "three critics of wide rows", "torch weights"],
)
def test_it_equals_a_numpy_td3_over_100_updates_in_float64(settings: dict) -> None:
    mode = "graph" if settings else "xla"
    settings = {"hidden_sizes": (16, 16), "batch_size": 32, **settings}
    agent = small_agent("td3", precision="float64", mode=mode, **settings)
    reference = reference_of(agent)
    buffer, twin = filled_buffer(500), filled_buffer(500)
    for update in range(1, 101):
        agent.train(buffer, 1)
        batch = [part[0].astype(np.float64) for part in twin.sample(1, 32)]
        first = tf.constant(update, tf.int64)
        noise = UpdateRandom(0, first, tf.float64).normal((32, 2)).numpy()
        reference.update(*batch, agent.config.target_noise * noise)
        diverged = step_of_divergence(agent, reference)
        assert diverged is None, f"diverged in update {update}: {diverged}"


# --- parts ------------------------------------------------------------------------------------


def constant_td3(**settings: object) -> TD3:
    """Returns an agent with linear networks and constant weights, for calculations by hand."""
    agent = TD3(
        *spaces(1, 1),
        TD3Config(hidden_sizes=(), batch_size=1, mode="eager", **settings),
        seed=0,
    )
    for model, weights in (
        (agent.actor.network, [[[0.0]], [0.0]]),
        (agent.actor.target, [[[0.0]], [0.0]]),
        (agent.critic.network, [[[[1.0], [2.0]], [[1.0], [2.0]]], [[0.0], [5.0]]]),
        (agent.critic.target, [[[[1.0], [2.0]], [[1.0], [2.0]]], [[0.0], [5.0]]]),
    ):
        model.set_weights([np.array(w, np.float32) for w in weights])
    return agent


def one_transition(sampler: Any = None, **changes: float) -> ReplayBuffer:
    parts = {
        "observation": [[3.0]],
        "action": [[0.5]],
        "reward": [10.0],
        "discount": [0.5],
        "next_observation": [[4.0]],
    } | {name: np.full((1, 1) if "ob" in name else 1, v) for name, v in changes.items()}
    buffer = ReplayBuffer(1, 1, 1, sampler=sampler)
    buffer.add(Transition(**{name: np.array(value) for name, value in parts.items()}))
    return buffer


def test_the_critic_loss_equals_a_hand_calculation() -> None:
    agent = constant_td3(target_noise=0.0)
    metrics = agent.train(one_transition(), 1)
    # The next action is tanh(0) = 0. Its values are 1*4 + 2*0 = 4 and, in critic 2, 4 + 5 = 9.
    target = 10 + 0.5 * min(4, 4 + 5)
    first, second = 3 + 2 * 0.5, 3 + 2 * 0.5 + 5
    assert metrics["losses/critic"][0] == (first - target) ** 2 + (second - target) ** 2
    assert metrics["values/target_mean"][0] == target
    assert metrics["values/mean"][0] == first


class Weighing(UniformSampler):
    """A sampler that gives all rows the same weight, and records its feedback."""

    per_row = ("td_error",)

    def weights(self, places: np.ndarray) -> np.ndarray:
        return np.full(places.shape, 0.25, np.float32)

    def feedback(self, places: np.ndarray, per_row: Any) -> None:
        self.told = per_row["td_error"]


def test_a_sampler_weights_the_critic_loss_and_receives_the_largest_error() -> None:
    agent, sampler = constant_td3(target_noise=0.0), Weighing()
    metrics = agent.train(one_transition(sampler), 1)
    # As in the hand calculation above, the values are 4 and 9, and the target is 12.
    assert metrics["losses/critic"][0] == 0.25 * ((4 - 12) ** 2 + (9 - 12) ** 2)
    np.testing.assert_array_equal(sampler.told, [[8.0]])


def test_termination_stops_bootstrapping_and_truncation_does_not() -> None:
    for discount, target in ((0.0, 10.0), (0.5, 12.0)):
        agent = constant_td3(target_noise=0.0)
        metrics = agent.train(one_transition(discount=discount), 1)
        assert metrics["values/target_mean"][0] == target


def test_smoothing_noise_affects_the_target() -> None:
    agent = constant_td3(target_noise=100.0, target_noise_clip=0.25)
    metrics = agent.train(one_transition(), 1)
    # The noise is clipped to ±0.25, which changes the critics' values by ±0.5.
    assert metrics["values/target_mean"][0] in (10 + 0.5 * 3.5, 10 + 0.5 * 4.5)


def test_the_actor_maximizes_only_the_first_critic() -> None:
    agent = constant_td3(policy_delay=1, actor_learning_rate=0.125)
    kernel, bias = (w.copy() for w in agent.critic.network.get_weights())
    kernel[1] = [[1.0], [-2.0]]  # the second critic prefers smaller actions
    agent.critic.network.set_weights([kernel, bias])
    agent.train(one_transition(), 1)
    # Adam's first step has the size of the learning rate, and increases the value.
    np.testing.assert_allclose(agent.actor.network.get_weights()[1], [0.125], rtol=1e-5)


def _moved(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    return {n.split(":")[0] for n in before if not np.array_equal(before[n], after[n])}


@pytest.mark.parametrize("delay", [1, 2, 3, 6])
def test_actor_and_targets_change_every_policy_delay_updates(delay: int) -> None:
    agent, buffer = small_agent("td3", policy_delay=delay), filled_buffer()
    for update in range(1, 7):
        before = weights_of(agent)
        agent.train(buffer, 1)
        expected = {"updates", "critic", "critic_optimizer"}
        if update % delay == 0:
            expected |= {"actor", "actor_optimizer", "actor_target", "critic_target"}
        assert _moved(before, weights_of(agent)) == expected, update


class Numbered(TD3):
    """Trains nothing. The value of each metric is the number of the update that returns it."""

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        moves = phase.is_multiple_of(self.config.policy_delay)
        names = ("losses/critic", "losses/actor") if moves else ("losses/critic",)
        return dict.fromkeys(names, tf.cast(phase.update, tf.float32)), {}


class Reading(Numbered):
    """Reads the number of updates within an update, and in another thread."""

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        with pytest.raises(RuntimeError, match=r"its number is phase\.update, not self\.updates"):
            _ = self.updates
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lambda: self.updates).result() == 0
        return super().update(batch, random, phase)


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_only_the_thread_of_an_update_cannot_read_the_number_of_updates(mode: str) -> None:
    agent = Reading(*spaces(), TD3Config(batch_size=8, hidden_sizes=(8,), mode=mode))
    agent.train(filled_buffer(), 1)
    assert agent.updates == 1


@pytest.mark.parametrize(
    ("mode", "delay"), [("eager", 2), ("eager", 3), ("eager", 7), ("graph", 3)]
)
def test_actor_updates_do_not_depend_on_the_division_into_calls(mode: str, delay: int) -> None:
    config = TD3Config(policy_delay=delay, batch_size=8, hidden_sizes=(8,), mode=mode)
    agent, buffer = Numbered(*spaces(), config, seed=0), filled_buffer()
    before = 0
    # Graph mode compiles a separate program for each number of updates per call.
    more = ((2, 2, 2, 14), (1,) * 20) if mode == "eager" else ()
    for calls in ((20,), (1, 12, 7), *more):
        metrics = [agent.train(buffer, updates) for updates in calls]
        for name, every in (("losses/critic", 1), ("losses/actor", delay)):
            moved = np.concatenate([m[name] for m in metrics if name in m])
            expected = [n for n in range(before + 1, before + 21) if n % every == 0]
            np.testing.assert_array_equal(moved, expected)
        before += 20
