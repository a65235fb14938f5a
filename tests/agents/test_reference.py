"""Compares the gradients of the NumPy references with finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.agents import reference


@pytest.mark.parametrize(("join", "l2"), [(0, 0.0), (0, 0.1), (1, 0.1), (2, 0.0)])
def test_gradients_of_the_references_equal_finite_differences(join: int, l2: float) -> None:
    random = np.random.default_rng(0)

    def network(*sizes: int, join: int | None = None) -> reference.Network:
        return [
            (random.normal(size=(rows + 2 * (depth == join), columns)), random.normal(size=columns))
            for depth, (rows, columns) in enumerate(itertools.pairwise(sizes))
        ]

    actor, critic = network(3, 5, 4, 2), network(3, 6, 4, 1, join=join)
    observation, action = random.normal(size=(7, 3)), random.normal(size=(7, 2))
    target = random.normal(size=7)
    about = observation, action, target, join, l2
    cases = [
        (
            critic,
            lambda n: reference.critic_loss(n, *about),
            reference.critic_gradients(critic, *about),
        ),
        (
            actor,
            lambda n: reference.actor_loss(n, critic, observation, join),
            reference.actor_gradients(actor, critic, observation, join),
        ),
    ]
    for weights, loss, gradients in cases:
        for depth, layer in enumerate(weights):
            for part, array in enumerate(layer):
                for place in np.ndindex(array.shape):
                    kept = array[place]
                    array[place] = kept + 1e-6
                    above = loss(weights)
                    array[place] = kept - 1e-6
                    below = loss(weights)
                    array[place] = kept
                    slope = (above - below) / 2e-6
                    assert np.isclose(gradients[depth][part][place], slope, rtol=1e-4, atol=1e-7)
