"""Agents with several replicas, compared with one device.

Run as a program, it compares all cases on logical CPU devices: `python -m
tests.agents.replica_cases`. It must run in a process in which TensorFlow has no devices yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.scripts.output import say
from tests.agents import test_discrete, test_images
from tests.helpers import buffer_for, random_transitions, small_agent

Case = Callable[..., tuple[Any, Any]]
_WINDOWS = {"sequence_length": 6, "burn_in": 2, "sequences_per_update": 8, "memory_units": 8}


def _rows(name: str = "td3", **settings: Any) -> Case:
    def made(**more: Any) -> tuple[Any, Any]:
        agent = small_agent(name, **settings, **more)
        if agent.normalization is not None:
            seen = np.random.default_rng(1).normal(2.0, 3.0, (50, agent.observations.size))
            agent.normalization.update(seen)
        return agent, buffer_for(agent)

    return made


def _weighted(**more: Any) -> tuple[Any, Any]:
    agent = small_agent("td3", sampling="prioritized", **more)
    buffer = agent.replay_buffer(1000, seed=2)
    buffer.add(random_transitions(200))
    return agent, buffer


def _of(module: Any, *arguments: Any, **settings: Any) -> Case:
    def made(**more: Any) -> tuple[Any, Any]:
        agent = module.agent_of(*arguments, **settings | more)
        return agent, module.filled(agent)

    return made


def _sharing(**more: Any) -> tuple[Any, Any]:
    from tests.agents import test_own_models  # importing it initializes TensorFlow's devices

    agent = test_own_models.sharing_agent(dtype=tf.float64, **more)
    return agent, buffer_for(agent)


CASES: dict[str, Case] = {
    "TD3, rows, clipped gradients": _rows(clip_gradients=0.01),
    "DDPG, rows, normalized": _rows(
        "ddpg", normalize_observations=True, schedule="linear", schedule_steps=99
    ),
    "TD3, weighted rows": _weighted,
    "TD3, GRU": _rows(memory="gru", **_WINDOWS),
    "DDPG, attention": _rows("ddpg", memory="attention", attention_heads=2, **_WINDOWS),
    "TD3, images": _of(test_images, test_images.CAMERA, random_shift=2),
    "TD3, action masks": _of(test_discrete, "td3", test_discrete.MIXED),
    "DDPG, custom models with shared variables": _sharing,
}


def weights(agent: Any) -> dict[str, np.ndarray]:
    """Returns all variables of an agent, including those of optimizers."""
    return {
        f"{group}/{name}": variable.numpy()
        for group, variables in agent.checkpoint.groups.items()
        for name, variable in variables.items()
    }


def of_replicas(agent: Any) -> list[list[np.ndarray]]:
    """Returns the variables of each replica."""
    return [
        [v.value.numpy() for group in each.modules.groups().values() for v in group]
        for each in agent._replicas._agents
    ]


def trained(case: Case, updates: int, **more: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns an agent after some updates, and their metrics."""
    agent, buffer = case(precision="float64", **more)
    return agent, agent.train(buffer, updates)


def check(name: str, replicas: int, updates: int, mode: str) -> float:
    """Compares replicas with one device. Returns the largest difference of a variable."""
    case = CASES[name]
    one, expected = trained(case, updates, mode=mode)
    several, metrics = trained(case, updates, mode=mode, replicas=replicas)
    assert expected.keys() == metrics.keys()
    for metric, values in expected.items():
        np.testing.assert_allclose(metrics[metric], values, rtol=1e-9, atol=1e-9, err_msg=metric)
    found, known = weights(several), weights(one)
    for path, value in known.items():
        np.testing.assert_allclose(found[path], value, rtol=1e-9, atol=1e-9, err_msg=path)
    first, *others = of_replicas(several)
    for other in others:
        for mine, its in zip(first, other, strict=True):
            np.testing.assert_array_equal(mine, its)
    return max(float(np.abs(found[path] - known[path]).max()) for path in known)


def main() -> None:
    """Compares all cases on 2 and 4 logical devices, and each with its repetition."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * 4
    tf.config.set_logical_device_configuration(cpu, parts)
    for name, case in CASES.items():
        for replicas in (2, 4):
            difference = check(name, replicas, 50, "graph")
            again = [
                weights(trained(case, 50, mode="graph", replicas=replicas)[0]) for _ in range(2)
            ]
            for path, value in again[0].items():
                np.testing.assert_array_equal(again[1][path], value, err_msg=path)
            say(f"{name}, {replicas} devices: {difference:.1e}")


if __name__ == "__main__":
    main()
