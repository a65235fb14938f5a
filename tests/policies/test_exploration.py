"""Exploration noise: its size, its memory, its state."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eagerly.policies.exploration import GaussianNoise, OrnsteinUhlenbeckNoise, exploration_noise

SEED = np.random.SeedSequence(0)


def walk(noise: GaussianNoise, steps: int, shape: tuple[int, int] = (3, 2)) -> np.ndarray:
    return np.array([noise(np.zeros(shape, np.float32)) for _ in range(steps)])


def test_gaussian_noise_is_independent_and_clipped() -> None:
    noise = walk(GaussianNoise(0.1, SEED), 5000)
    assert abs(noise.std() - 0.1) < 0.002
    assert abs(np.mean(noise[1:] * noise[:-1])) < 0.02 * 0.1**2 * 5
    assert np.abs(GaussianNoise(5.0, SEED)(np.zeros((100, 2)))).max() == 1


def test_an_ornstein_uhlenbeck_process_is_its_recursion() -> None:
    normals = np.random.Generator(np.random.PCG64(SEED)).standard_normal((4, 3, 2), np.float32)
    x = np.zeros((3, 2))
    for step, noise in enumerate(walk(OrnsteinUhlenbeckNoise(0.02, 0.15, SEED), 4)):
        x = (1 - 0.15) * x + 0.02 * normals[step]
        np.testing.assert_allclose(noise, x, rtol=1e-5, atol=1e-7)


def test_its_deviation_and_its_correlation_settle_where_the_theory_says() -> None:
    noise = walk(OrnsteinUhlenbeckNoise(0.05, 0.15, SEED), 20_000)[100:]
    assert abs(noise.std() / (0.05 / np.sqrt(1 - 0.85**2)) - 1) < 0.03
    assert abs(np.mean(noise[1:] * noise[:-1]) / noise.var() - 0.85) < 0.02


def test_at_theta_1_it_is_gaussian_noise() -> None:
    gaussian = walk(GaussianNoise(0.1, SEED), 10)
    np.testing.assert_array_equal(walk(OrnsteinUhlenbeckNoise(0.1, 1.0, SEED), 10), gaussian)


def test_it_begins_at_zero_in_every_episode_of_its_own_environment() -> None:
    noise, twin = (OrnsteinUhlenbeckNoise(0.05, 0.15, SEED) for _ in range(2))
    walk(noise, 20)
    before = walk(twin, 20)[-1]
    noise.begin_episodes(np.array([False, True, False]))
    difference = walk(twin, 1)[0] - walk(noise, 1)[0]
    np.testing.assert_allclose(difference[1], (1 - 0.15) * before[1], rtol=1e-4)
    assert not difference[[0, 2]].any()


@pytest.mark.parametrize("kind", ["gaussian", "ornstein_uhlenbeck"])
def test_its_state_passes_through_json_and_continues_exactly(kind: str) -> None:
    noise, other = (exploration_noise(kind, 0.1, 0.15, SEED) for _ in range(2))
    walk(noise, 7)
    other.restore(json.loads(json.dumps(noise.state())))
    np.testing.assert_array_equal(walk(noise, 5), walk(other, 5))


def test_another_number_of_environments_begins_at_zero() -> None:
    noise = OrnsteinUhlenbeckNoise(0.05, 0.15, SEED)
    walk(noise, 50)
    noise.begin_episodes(np.array([True] * 5))  # of no concern: it has three
    assert np.abs(walk(noise, 1, (5, 2))).max() < 5 * 0.05


def test_the_state_of_another_kind_is_taken_as_far_as_it_goes() -> None:
    gaussian, process = GaussianNoise(0.1, SEED), OrnsteinUhlenbeckNoise(0.1, 0.15, SEED)
    walk(gaussian, 3)
    process.restore(gaussian.state())
    np.testing.assert_array_equal(walk(process, 1), walk(gaussian, 1))
    GaussianNoise(0.1, SEED).restore(process.state())
