from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pytest
from gymnasium import spaces

from eagerly.datasets import open_dataset
from eagerly.datasets.minari import MAIN_FILE, METADATA_FILE, minari_space, minari_writer
from eagerly.errors import RunError, UsageError
from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations
from eagerly.training.evaluation import Evaluation
from eagerly.training.recording import NoisyPolicy, RecordingEnvironment, record_episodes

OBSERVATIONS = spaces.Dict(
    {
        "image": spaces.Box(0, 255, (32, 32, 1), np.uint8),
        "pose": spaces.Tuple([spaces.Box(-1e6, 1e6, (2,)), spaces.Discrete(4, start=1)]),
        "note": spaces.Text(9),
    }
)
ACTIONS = spaces.Dict({"grip": spaces.Discrete(2), "move": spaces.Box(-1.0, 3.0, (2,))})
LAYOUT = Observations(OBSERVATIONS, ignored=("note",)), Actions(ACTIONS)


class Logging(gymnasium.Env[Any, Any]):
    """An environment that logs what it receives and returns, and reuses its arrays."""

    observation_space, action_space = OBSERVATIONS, ACTIONS

    def __init__(self, length: int = 3) -> None:
        self.length, self.log = length, list[Any]()
        self._pose, self._image = np.zeros(2, np.float32), np.zeros((32, 32, 1), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps = 0
        self._pose[:] = self.np_random.random(2)
        self.log.append([])
        return self._observed(), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        self._pose += 1.0
        self._image += 1
        reward = float(self._pose.sum()) / 3
        self.log[-1].append((action["move"].copy(), action["grip"], reward, self._pose.copy()))
        return self._observed(), reward, self._steps == self.length, False, {}

    def _observed(self) -> Any:
        return {"image": self._image, "pose": (self._pose, self._steps + 1), "note": "x"}


def policy() -> Policy:
    """Returns a policy that always moves to the center of the action space and grips."""
    scores = np.array([0.0, 0.0, -1.0, 1.0], np.float32)
    return Policy(lambda rows: np.tile(scores, (len(rows), 1)), *LAYOUT, steps=0)


def record(
    path: Path, env: Any = None, *, noise: float = 0.0, seed: int = 0, steps_limit: int = 9
) -> Evaluation:
    env = env or Logging()
    spaces = LAYOUT[0].kept_space, ACTIONS
    with minari_writer(path / MAIN_FILE, *spaces) as writer:
        played = record_episodes(
            NoisyPolicy(policy(), LAYOUT[1], noise, seed),
            RecordingEnvironment(env, *LAYOUT),
            writer,
            episodes=3,
            seed=seed,
            steps_limit=steps_limit,
        )
    document = writer.metadata(1_000_000, dataset_id="eagerly/logging-v0")
    (path / METADATA_FILE).write_text(json.dumps(document))
    return played


def test_keys_with_slashes_are_recorded(tmp_path: Path) -> None:
    of_robot = spaces.Dict({"robot/arm": spaces.Box(-1, 1, (1,)), "robot/time": spaces.Box(0, 9)})
    seen = [{"robot/arm": np.float32([0.5]), "robot/time": np.float32([n])} for n in range(3)]
    with minari_writer(tmp_path / "data.hdf5", of_robot, ACTIONS["grip"]) as writer:
        writer.write(seen, [1, 0], [0.0, 1.0], terminated=True, truncated=False, seed=0)
    (chunk,) = open_dataset(tmp_path / "data.hdf5", of_robot, ACTIONS["grip"]).chunks()
    assert chunk.next_observations["robot/time"].tolist() == [[1], [2]]


def test_a_recording_holds_exactly_what_the_environment_saw(tmp_path: Path) -> None:
    env = Logging()
    played = record(tmp_path, env, noise=0.5)
    found = open_dataset(tmp_path, LAYOUT[0].kept_space, ACTIONS)
    (chunk,) = found.chunks()
    steps = [step for episode in env.log for step in episode]
    moves, grips, rewards, poses = (np.array(column) for column in zip(*steps, strict=True))
    assert (chunk.actions["move"] == moves).all()
    assert (chunk.actions["grip"] == grips).all()
    assert (chunk.rewards == rewards).all()
    assert (chunk.next_observations["pose"][0] == poses).all()
    assert (chunk.observations["pose"][0][1:3] == poses[:2]).all()
    assert chunk.observations["pose"][1].tolist() == [1, 2, 3] * 3
    assert chunk.next_observations["image"][:, 0, 0, 0].tolist() == list(range(1, 10))
    assert chunk.terminated.tolist() == [False, False, True] * 3
    assert not chunk.truncated.any()
    assert found.summary is not None
    assert found.summary.return_mean == pytest.approx(played.returns.mean())


def test_actions_of_a_safety_layer_are_recorded(tmp_path: Path) -> None:
    safe = {"grip": 0, "move": np.array([0.5, -0.25])}

    class Safe(Logging):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"executed_action": safe}

    record(tmp_path, Safe())
    (chunk,) = open_dataset(tmp_path, LAYOUT[0].kept_space, ACTIONS).chunks()
    assert (chunk.actions["move"] == safe["move"]).all()
    assert not chunk.actions["grip"].any()
    safe["grip"] = 2
    (tmp_path / MAIN_FILE).unlink()
    with pytest.raises(RunError, match=r"info\['executed_action'\] must be an action: .*2"):
        record(tmp_path, Safe())


def test_an_episode_at_the_step_limit_is_recorded_as_truncated(tmp_path: Path) -> None:
    assert record(tmp_path, steps_limit=2).at_limit == 3
    with h5py.File(tmp_path / MAIN_FILE) as file:
        for episode in file.values():
            assert episode["truncations"][:].tolist() == [False, True]
            assert not episode["terminations"][:].any()


def test_the_seed_determines_the_file(tmp_path: Path) -> None:
    contents = []
    for index, seed in enumerate((0, 0, 1)):
        folder = tmp_path / str(index)
        folder.mkdir()
        record(folder, noise=0.5, seed=seed)
        contents.append((folder / MAIN_FILE).read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_noise_is_relative_to_the_range_of_actions_and_clipped() -> None:
    noisy = NoisyPolicy(policy(), LAYOUT[1], 0.5, seed=0)
    observation = Logging().reset()[0]
    episodes = []
    for _ in range(2):
        act = noisy.start_episode()
        actions = [act(observation) for _ in range(600)]
        assert all(action["grip"] == 1 for action in actions)
        episodes.append(np.array([action["move"] for action in actions]))
    assert (episodes[0] != episodes[1]).any()
    moves = np.concatenate(episodes)  # 1 + 2 n with n ~ N(0, 0.5²), clipped to [-1, 3]
    assert moves.min() == -1.0
    assert moves.max() == 3.0
    assert moves.mean() == pytest.approx(1.0, abs=0.06)
    middle = np.abs(moves - 1.0) < 1.0  # one standard deviation
    assert middle.mean() == pytest.approx(0.683, abs=0.04)


def test_without_noise_actions_are_those_of_the_policy() -> None:
    observation = Logging().reset()[0]
    act = NoisyPolicy(policy(), LAYOUT[1], 0.0, seed=0).start_episode()
    assert act(observation)["move"].tolist() == policy()(observation)["move"].tolist() == [1, 1]


def test_a_recurrent_policy_reads_the_executed_actions() -> None:
    executed = []

    class Played:
        def __call__(self, observation: Any, reward: Any = None) -> Any:
            return policy()(observation)

        def executed(self, actions: np.ndarray) -> None:
            executed.append(actions.copy())

    class Recurrent(Policy):
        def start_episode(self, count: int | None = None) -> Any:
            return Played()

    recurrent = Recurrent(lambda rows: rows, *LAYOUT, steps=0)
    act = NoisyPolicy(recurrent, LAYOUT[1], 0.1, seed=0).start_episode()
    move = act(Logging().reset()[0])["move"]
    assert executed[0].shape == (1, 4)
    assert executed[0][0, :2] == pytest.approx((move - 1.0) / 2.0)
    assert executed[0][0, 2:].tolist() == [0, 1]


def test_noise_on_choices_is_an_error() -> None:
    with pytest.raises(UsageError, match="--noise requires continuous actions"):
        NoisyPolicy(policy(), Actions(spaces.Discrete(2)), 0.1, seed=0)


def test_spaces_that_minari_cannot_store_are_errors(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="must be a Box or a discrete space; got Text"),
        minari_writer(tmp_path / MAIN_FILE, spaces.Text(3), ACTIONS),
    ):
        pass


def test_minari_reads_recordings(tmp_path: Path) -> None:
    minari = pytest.importorskip("minari")
    record(tmp_path, noise=0.5)
    dataset = minari.MinariDataset(tmp_path)
    assert dataset.total_steps == 9
    assert dataset.observation_space == LAYOUT[0].kept_space
    assert dataset.action_space == ACTIONS
    (chunk,) = open_dataset(tmp_path, dataset.observation_space, dataset.action_space).chunks()
    episodes = list(dataset)
    assert "total_steps=3" in repr(episodes[0])

    def all_of(part: Any) -> np.ndarray:
        return np.concatenate([part(episode) for episode in episodes])

    assert (all_of(lambda e: e.observations["image"][:-1]) == chunk.observations["image"]).all()
    assert (all_of(lambda e: e.observations["pose"][0][:-1]) == chunk.observations["pose"][0]).all()
    assert (all_of(lambda e: e.actions["move"]) == chunk.actions["move"]).all()
    assert (all_of(lambda e: e.rewards) == chunk.rewards).all()
    assert (all_of(lambda e: e.terminations) == chunk.terminated).all()
    for space in (
        spaces.MultiBinary(3),
        spaces.MultiBinary([2, 3]),
        spaces.MultiDiscrete([2, 3], start=[1, 0]),
        spaces.Box(-np.inf, np.inf, (2,), np.float64),
    ):
        text = json.dumps(minari_space(space))
        assert minari.serialization.deserialize_space(text) == space
