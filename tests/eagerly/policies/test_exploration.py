"""Exploration noise: its standard deviation, correlation and reproducibility."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.policies.exploration import EXPLORATIONS, Exploration
from eagerly.seeding import Stream, seed_sequence
from eagerly.spaces import Actions, Observations
from eagerly.state import packed, unpacked


def walk(noise: Exploration, steps: int, count: int = 3) -> np.ndarray:
    """Returns noisy actions `[steps, count, 2]` for actor outputs of 0. No episode ends."""
    found = []
    for _ in range(steps):
        found.append(noise.explored(np.zeros((count, 2), np.float32)))
        noise.stepped(np.zeros(count, bool))
    return np.array(found)


def exploration(
    kind: str = "gaussian",
    space: Any = None,
    first: int = 0,
    *,
    scale: float = 0.1,
    theta: float = 0.15,
    seed: int = 7,
) -> Exploration:
    space = gymnasium.spaces.Box(-1, 1, (2,)) if space is None else space
    spaces = Observations(gymnasium.spaces.Box(-1, 1, (3,))), Actions(space)
    return Exploration(kind, scale, theta, 0.3, *spaces, seed=seed, first=first)


def process(scale: float, theta: float = 0.15) -> Exploration:
    """Returns Ornstein-Uhlenbeck noise."""
    return exploration("ornstein_uhlenbeck", scale=scale, theta=theta, seed=0)


def played(each: Exploration, steps: int, count: int) -> np.ndarray:
    """Returns noisy actions for actor outputs of 0.

    Every third step draws random actions instead, and every fifth step ends all episodes.
    """
    found = []
    size = each._actions.size
    for _ in range(steps):
        scores, observations = np.zeros((count, size), np.float32), np.zeros((count, 3))
        is_random = each.step % 3 == 2
        found.append(each.random(observations) if is_random else each.explored(scores))
        each.stepped(np.full(count, each.step % 5 == 4))
    return np.array(found)


def test_gaussian_noise_is_independent_and_clipped() -> None:
    noise = walk(exploration(), 5000)
    assert abs(noise.std() - 0.1) < 0.002
    assert abs(np.mean(noise[1:] * noise[:-1])) < 0.02 * 0.1**2 * 5
    assert abs(np.mean(noise[:, 0] * noise[:, 1])) < 0.02 * 0.1**2 * 5
    assert np.abs(walk(exploration(scale=5.0), 1, 100)).max() == 1


def test_an_ornstein_uhlenbeck_process_follows_its_recursion() -> None:
    streams = [seed_sequence(0, Stream.EXPLORATION, 0, environment, 0) for environment in range(3)]
    draws = [np.random.Generator(np.random.PCG64(seeds)) for seeds in streams]
    normals = np.stack([draw.standard_normal((4, 2), np.float32) for draw in draws], axis=1)
    x = np.zeros((3, 2))
    for step, noise in enumerate(walk(process(0.02), 4)):
        x = (1 - 0.15) * x + 0.02 * normals[step]
        np.testing.assert_allclose(noise, x, rtol=1e-5, atol=1e-7)


def test_ornstein_uhlenbeck_noise_has_the_theoretical_deviation_and_correlation() -> None:
    noise = walk(process(0.05), 20_000)[100:]
    assert abs(noise.std() / (0.05 / np.sqrt(1 - 0.85**2)) - 1) < 0.03
    assert abs(np.mean(noise[1:] * noise[:-1]) / noise.var() - 0.85) < 0.02


def test_ornstein_uhlenbeck_noise_with_theta_1_is_gaussian() -> None:
    gaussian = walk(exploration(seed=0), 10)
    np.testing.assert_array_equal(walk(process(0.1, 1.0), 10), gaussian)


def test_ornstein_uhlenbeck_noise_starts_at_zero_in_each_episode() -> None:
    noise, twin = (process(0.05) for _ in range(2))
    walk(noise, 20)
    before = walk(twin, 20)[-1]
    noise.on_reset(np.array([False, True, False]))
    difference = walk(twin, 1)[0] - walk(noise, 1)[0]
    np.testing.assert_allclose(difference[1], (1 - 0.15) * before[1], rtol=1e-4)
    assert not difference[[0, 2]].any()


def test_held_noise_changes_after_1_to_16_steps_in_all_dimensions_at_once() -> None:
    noise = walk(exploration("held"), 20_000)
    changes = (noise[1:] != noise[:-1]).any(axis=2)
    assert (changes == (noise[1:] != noise[:-1]).all(axis=2)).all()
    ends = [np.flatnonzero(each) for each in changes.T]
    lengths = np.concatenate([np.diff(each) for each in ends])
    expected = 1 / np.arange(1, 17) ** 2
    frequency = np.bincount(lengths, minlength=17)[1:] / len(lengths)
    np.testing.assert_allclose(frequency, expected / expected.sum(), atol=0.01)
    assert abs(noise.std() - 0.1) < 0.003
    assert len({each.tobytes() for each in ends}) == 3


def test_held_noise_changes_when_an_episode_begins() -> None:
    noise = exploration("held")
    while True:
        before = walk(noise, 1)[0]
        if (noise.state()["process"][:, -1] > 0).all():
            break
    noise.on_reset(np.array([False, True, False]))
    is_held = (walk(noise, 1)[0] == before).all(axis=1)
    assert is_held.tolist() == [True, False, True]


SPACES = {
    "box": gymnasium.spaces.Box(-1, 1, (2,)),
    "mixed": gymnasium.spaces.Tuple(
        (gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(3))
    ),
}


@pytest.mark.parametrize("kind", EXPLORATIONS)
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_noise_is_independent_of_other_environments_and_can_be_restored(
    kind: str, space: Any
) -> None:
    steps = 600  # enough to draw three blocks of random numbers
    together = played(exploration(kind, space), steps, 4)
    for first in range(4):
        alone = played(exploration(kind, space, first), steps, 1)
        np.testing.assert_array_equal(alone[:, 0], together[:, first])
    assert len({together[:, each].tobytes() for each in range(4)}) == 4
    twice = exploration(kind, space)
    played(twice, 250, 4)
    state = unpacked(packed(twice.state()))
    for each in (twice, twice, exploration(kind, space)):
        each.restore(state)
        np.testing.assert_array_equal(played(each, 20, 4), together[250:270])


def test_noise_starts_at_zero_for_another_number_of_environments() -> None:
    noise = process(0.05)
    walk(noise, 50)
    noise.on_reset(np.array([True] * 5))  # ignored, because the noise has three environments
    assert np.abs(walk(noise, 1, 5)).max() < 5 * 0.05


@pytest.mark.parametrize("before", EXPLORATIONS)
@pytest.mark.parametrize("after", EXPLORATIONS)
def test_the_state_of_another_kind_of_noise_can_be_restored(before: str, after: str) -> None:
    one, other, gaussian = exploration(before), exploration(after), exploration()
    played(one, 4, 2)
    played(gaussian, 4, 2)
    other.restore(one.state())
    if before != after:  # the other kind starts with new noise
        np.testing.assert_array_equal(played(other, 1, 2), played(gaussian, 1, 2))
