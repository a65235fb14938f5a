"""Actors of every exportable kind, and the expected outputs of their model files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from eagerly.export.interface import computed, in_float32, inputs, outputs
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import NumpyOperations
from tests.eagerly.policies.test_numpy_actor import NORMALIZED, TD7, built

Named = dict[str, np.ndarray]
CONTINUED = 300  # steps that `check_equal` runs, each with the states of the previous step


def _memory(kind: str, **more: Any) -> dict[str, Any]:
    return {"memory": kind, "memory_units": 8, "sequence_length": 6, **more}


ACTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "box": ("box", {}),
    "normalized": ("box", NORMALIZED),
    "float64": ("box", {"precision": "float64"}),
    "dict": ("dict", NORMALIZED | {"activation": "elu"}),
    "masked": ("masked", NORMALIZED | {"activation": "tanh"}),
    "mixed": ("mixed", {"activation": "leaky_relu"}),
    "layer norm": ("box", NORMALIZED | {"layer_norm": True, "activation": "silu"}),
    "gru": ("box", NORMALIZED | _memory("gru")),
    "lstm": ("masked", _memory("lstm")),
    "attention": ("mixed", NORMALIZED | _memory("attention", attention_heads=2)),
    "td7": ("box", TD7 | NORMALIZED),
    "td7, dict": ("vectors", TD7),
    "camera": ("camera", NORMALIZED),
    "symbols": ("symbols", {}),
    "stacked": ("stacked", {"activation": "silu"}),
}


@functools.cache
def network_of(name: str, settings: tuple[tuple[str, Any], ...] | None = None) -> ActorNetwork:
    """Returns the network of `ACTORS[name]`, or one for `SPACES[name]` with the given settings."""
    space, given = ACTORS[name] if settings is None else (name, dict(settings))
    actor, _ = built(space, given)
    network = actor.snapshot().network
    assert isinstance(network, ActorNetwork)
    return network


def inputs_of(network: ActorNetwork, count: int) -> list[Named]:
    """Draws the model inputs of `count` steps, `[1, ...]` each, except recurrent states."""
    random, drawn = np.random.default_rng(3), []
    pixels = network.architecture.pixels[: network.architecture.visible]
    for _ in range(count):
        given = {
            name: random.uniform(-2.0, 2.0, (1, *shape)).astype(np.float32)
            for name, shape in inputs(network.architecture).items()
            if not name.startswith("state_")
        }
        values = random.integers(0, 256, (1, int(pixels.sum())))
        given["observation"][:, pixels] = values
        if "previous_action" in given:
            given["previous_action"] /= 2.0
        drawn.append(given)
    return drawn


def played(
    network: ActorNetwork, act: Callable[[Named], Named], steps: list[Named]
) -> list[np.ndarray]:
    """Runs a model for N steps with the states that it returns. Returns its outputs, `[N, ...]`."""
    shapes = inputs(network.architecture)
    state = {
        name: np.zeros((1, *shape), np.float32)
        for name, shape in shapes.items()
        if name.startswith("state_")
    }
    found: list[Named] = []
    for given in steps:
        found.append(act(given | state))
        state = {name: found[-1][f"next_{name}"] for name in state}
    return [
        np.concatenate([each[name] for each in found]) for name in outputs(network.architecture)
    ]


def in_numpy(network: ActorNetwork) -> Callable[[Named], Named]:
    """Returns a NumPy function that computes the expected outputs of a model file."""
    network = in_float32(network)

    def act(given: Named) -> Named:
        ordered = [given[name] for name in inputs(network.architecture)]
        results = computed(network, NumpyOperations(), ordered)
        return dict(zip(outputs(network.architecture), results, strict=True))

    return act


def check_equal(network: ActorNetwork, act: Callable[[Named], Named], exact: float) -> None:
    """Asserts that a model and NumPy agree over `CONTINUED` steps.

    Images have thousands of values, which runtimes add in different orders: 1e-5 for them.
    """
    exact = max(exact, 1e-5 if network.architecture.pixels.any() else 0.0)
    steps = inputs_of(network, CONTINUED)
    expected = played(network, in_numpy(network), steps)
    for mine, its in zip(played(network, act, steps), expected, strict=True):
        assert mine.shape == its.shape
        np.testing.assert_allclose(mine, its, rtol=exact, atol=exact)
