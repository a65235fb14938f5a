"""Wrappers that hide, drop or replace observations, and the log file of MuJoCo."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import GrayscaleObservation, TransformObservation

from eagerly.environments import DropObservations, Flicker, HideCoordinates, Pictures, register
from eagerly.environments.factory import environment_maker
from eagerly.environments.preprocessing import resized
from eagerly.environments.registration import PIXELS, POSITIONS
from eagerly.wrappers import Resize


class Ladder(gymnasium.Env):
    """Observes (step + 1, random number, -step), with a new random number in each step."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (3,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self._observation(), float(self.count), False, self.count == 200, {}

    def _observation(self) -> np.ndarray:
        return np.array([self.count + 1, self.np_random.uniform(), -self.count])


def episode(env: gymnasium.Env, seed: int) -> np.ndarray:
    env.action_space.seed(0)
    seen, ended = [env.reset(seed=seed)[0]], False
    while not ended:
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append(observation)
        ended = terminated or truncated
    return np.array(seen)


@pytest.mark.parametrize("name", POSITIONS)
def test_registered_ids_show_only_the_positions_of_their_base(name: str) -> None:
    register()  # registering twice raises no error
    base, _, hidden = POSITIONS[name]
    env, whole = gymnasium.make(name), gymnasium.make(base)
    kept = [i for i in range(whole.observation_space.shape[0]) if i not in hidden]
    assert env.spec.id == name
    assert env.spec.max_episode_steps == whole.spec.max_episode_steps
    np.testing.assert_array_equal(env.observation_space.low, whole.observation_space.low[kept])
    env.action_space.seed(0)
    action = env.action_space.sample()
    for one, other in zip(env.reset(seed=3)[:1], whole.reset(seed=3)[:1], strict=True):
        np.testing.assert_array_equal(one, other[kept])
    for _ in range(5):
        one, other = env.step(action), whole.step(action)
        np.testing.assert_array_equal(one[0], other[0][kept])
        assert one[1:4] == other[1:4]


@pytest.mark.parametrize("name", [n for n in POSITIONS if n.endswith("-v5")])
def test_exactly_the_velocities_are_hidden(name: str) -> None:
    env = gymnasium.make(name)
    observation, _ = env.reset(seed=0)
    data = env.unwrapped.data
    np.testing.assert_array_equal(observation, data.qpos[1:])
    assert len(POSITIONS[name][2]) == data.qvel.size
    with pytest.raises(ValueError, match="with these arguments the environment has"):
        gymnasium.make(name, exclude_current_positions_from_observation=False)


class Moving(Ladder):
    """Returns the same array in each step, with new values."""

    def __init__(self) -> None:
        super().__init__()
        self._shared = np.zeros(3)

    def _observation(self) -> np.ndarray:
        self._shared[...] = super()._observation()
        return self._shared


def test_a_dropped_observation_repeats_the_previous_one() -> None:
    env = DropObservations(Moving(), 1.0)
    first = np.array(env.reset(seed=0)[0])
    for _ in range(3):
        np.testing.assert_array_equal(env.step(env.action_space.sample())[0], first)


def test_half_of_the_observations_of_the_flickering_pendulum_are_lost() -> None:
    env = gymnasium.make("PendulumFlickering-v1")
    lost = [not step.any() for seed in range(5) for step in episode(env, seed)]
    assert 0.4 < np.mean(lost) < 0.6


def test_ids_are_registered_and_can_be_pickled() -> None:
    make = pickle.loads(pickle.dumps(environment_maker("PendulumPositions-v1")))
    assert make().reset(seed=0)[0].shape == (2,)
    assert make.name == "PendulumPositions-v1"


def test_chosen_coordinates_are_hidden() -> None:
    env = HideCoordinates(Ladder(), [1])
    np.testing.assert_array_equal(episode(env, 0)[:3], [[1, 0], [2, -1], [3, -2]])
    assert env.observation_space.shape == (2,)
    assert env.observation_space.dtype == np.float64


@pytest.mark.parametrize("kind", [DropObservations, Flicker])
@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_observations_fail_with_the_given_probability(kind: Any, probability: float) -> None:
    whole = np.concatenate([episode(Ladder(), seed) for seed in range(20)])
    seen = np.concatenate([episode(kind(Ladder(), probability), seed) for seed in range(20)])
    failed = (seen != whole).any(axis=1)
    first = whole[:, 0] == 1
    assert not failed[first].any(), "the first observation is never replaced"
    share = failed[~first].mean()
    assert abs(share - probability) < 0.03
    if kind is Flicker:
        assert not seen[failed].any()
    else:
        held = np.flatnonzero(failed)
        np.testing.assert_array_equal(seen[held], seen[held - 1])


@pytest.mark.parametrize("kind", [DropObservations, Flicker])
def test_failures_depend_on_the_seed_and_do_not_change_the_environment(kind: Any) -> None:
    env = kind(Ladder(), 0.5)
    first, other, again = episode(env, 1), episode(env, 2), episode(kind(Ladder(), 0.5), 1)
    np.testing.assert_array_equal(first, again)
    whole = episode(Ladder(), 1)
    shown = (first == whole).all(axis=1)
    other_shown = (other == episode(Ladder(), 2)).all(axis=1)
    assert not np.array_equal(shown, other_shown)


def test_wrappers_inside_each_other_fail_independently() -> None:
    whole = np.concatenate([episode(Ladder(), seed) for seed in range(20)])
    both = [episode(Flicker(DropObservations(Ladder(), 0.5), 0.5), seed) for seed in range(20)]
    seen, later = np.concatenate(both), whole[:, 0] > 1
    hidden = ~seen.any(axis=1) & whole.any(axis=1)
    stale = (seen != whole).any(axis=1) & ~hidden
    assert abs(hidden[later].mean() - 0.5) < 0.05
    assert abs(stale[later].mean() - 0.25) < 0.05


def test_invalid_arguments_are_rejected() -> None:
    for hidden, message in (
        ([3], r"hidden coordinates must be integers in \[0, 3\); got \[3\]"),
        ([-1], r"hidden coordinates must be integers in \[0, 3\); got \[-1\]"),
        ([1.5], r"must be integers in \[0, 3\); got \[1\.5\]"),
        ([0, 1, 2], "all 3 coordinates would be hidden: keep at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            HideCoordinates(Ladder(), hidden)
    with pytest.raises(ValueError, match=r"probability must be in \[0, 1\]; got 1.5"):
        Flicker(Ladder(), 1.5)
    positive = Ladder()
    positive.observation_space = gymnasium.spaces.Box(1.0, 2.0, (3,), np.float64)
    with pytest.raises(ValueError, match="the observation space must contain 0"):
        Flicker(positive, 0.5)
    positive.observation_space = gymnasium.spaces.Discrete(3)
    with pytest.raises(ValueError, match=r"observations must be a flat Box of shape \(O,\)"):
        HideCoordinates(positive, [0])


@pytest.mark.parametrize("name", PIXELS)
def test_images_are_stacked_newest_last_and_nothing_else_changes(name: str) -> None:
    env, whole = gymnasium.make(name), gymnasium.make(PIXELS[name], render_mode="rgb_array")
    first, _ = env.reset(seed=1)
    whole.reset(seed=1)
    assert env.observation_space.contains(first)
    assert first.shape == (3, 64, 64)
    assert (first[0] == first[2]).all()
    env.action_space.seed(0)
    before = first
    for _ in range(4):
        action = env.action_space.sample()
        one, other = env.step(action), whole.step(action)
        assert one[1:4] == other[1:4]
        np.testing.assert_array_equal(one[0][:2], before[1:])
        assert not np.array_equal(one[0][2], one[0][1])
        before = one[0]
        # The small image has the same mean brightness as the large one.
        large = np.asarray(whole.render()).mean()
        assert abs(before[2].mean() - large) < 3
    np.testing.assert_array_equal(env.reset(seed=1)[0], first)


def test_invalid_arguments_of_pictures_are_rejected() -> None:
    with pytest.raises(ValueError, match="require render_mode='rgb_array'; got None"):
        Pictures(gymnasium.make("Pendulum-v1"), 64)
    with pytest.raises(ValueError, match="size must be an integer from 1 to 4096; got 0"):
        Pictures(gymnasium.make("Pendulum-v1", render_mode="rgb_array"), 0)


@pytest.mark.parametrize("shape", [(7, 5), (8, 8, 3), (3, 10, 1)])
@pytest.mark.parametrize("size", [(4, 4), (7, 5), (1, 1), (9, 16)])
def test_resizing_averages_areas_exactly(shape: tuple[int, ...], size: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    found = resized(image, *size)
    # Each pixel repeated so often that new pixels consist of whole ones.
    fine = image.repeat(size[0], axis=0).repeat(size[1], axis=1)
    blocks = fine.reshape(size[0], shape[0], size[1], shape[1], *shape[2:])
    expected = np.floor(blocks.sum(axis=(1, 3)) / (shape[0] * shape[1]) + 0.5)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)


def test_images_are_resized() -> None:
    def photographed(shape: tuple[int, ...]) -> gymnasium.Env:
        space = gymnasium.spaces.Box(0, 255, shape, np.uint8)
        return TransformObservation(Ladder(), lambda row: np.full(shape, row[0], np.uint8), space)

    env = Resize(photographed((8, 6, 3)), height=4, width=3)
    assert env.observation_space == gymnasium.spaces.Box(0, 255, (4, 3, 3), np.uint8)
    assert episode(env, 0)[5].tolist() == np.full((4, 3, 3), 6).tolist()
    gray = GrayscaleObservation(env)
    assert Resize(gray, 2, 2).reset(seed=0)[0].shape == (2, 2)
    for bad in (Ladder(), photographed((3, 8, 8)), photographed((2, 8, 8, 3))):
        with pytest.raises(ValueError, match=r"images of shape .*Resize images before stacking"):
            Resize(bad, 4, 4)
    with pytest.raises(ValueError, match=r"height must be an integer from 1 to 4096; got 4\.0"):
        Resize(gray, 4.0, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("env", ["'HalfCheetah-v5'", "lambda: gymnasium.make('HalfCheetah-v5')"])
def test_mujoco_warnings_are_logged_and_not_written_to_a_file(tmp_path: Path, env: str) -> None:
    """By default, MuJoCo appends warnings to MUJOCO_LOG.TXT, even if it is a link."""
    code = f"""
import gymnasium, logging, warnings
from eagerly.environments.factory import environment_maker
warnings.simplefilter("always")
made = environment_maker({env})()
made.reset(seed=0)
made.unwrapped.data.qvel[0] = float("nan")
made.step(made.action_space.sample())
"""
    (tmp_path / "precious").write_text("thesis")
    (tmp_path / "MUJOCO_LOG.TXT").symlink_to(tmp_path / "precious")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("MuJoCo: Nan, Inf or huge value in QVEL at DOF 0.")
    assert done.stderr.count("\n") == 1
    assert (tmp_path / "precious").read_text() == "thesis"
