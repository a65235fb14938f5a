"""Runs that evaluate in the training environment or never, and separate evaluation environments."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from eagerly import Trainer, load_policy, open_run
from eagerly.curves.tables import read_groups
from eagerly.errors import RunError, UsageError
from eagerly.seeding import Stream, seed_word
from eagerly.storage.config import RunConfig
from eagerly.storage.evaluations import read_results
from eagerly.storage.listing import summary
from eagerly.storage.manifest import published
from eagerly.training.evaluation import evaluation_seeds
from tests.eagerly.training.test_trainer import _same, _signal_in_evaluations
from tests.helpers import equal_weights, weights_of
from tests.small_runs import TrainRun, logged, scalars, train_in
from tests.toys import Counting, Device, Reach

# Episodes have 40 steps: evaluations that are due at steps 150 and 300 wait until 160 and 320.
SHARED: dict[str, Any] = {
    "steps": 330,
    "evaluations": "shared",
    "evaluate_every_steps": 150,
    "evaluation_episodes": 2,
    "check_env": False,
    "hidden_sizes": (8,),
}
NEVER = {"evaluations": "none"}


def _device(folder: Path) -> dict[str, Any]:
    return {"env": "Device-v0", "env_kwargs": {"lock": str(folder / "lock")}}


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return SHARED | _device(tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, device: dict[str, Any]) -> Trainer:
    """An uninterrupted run with evaluations in the training environment."""
    Device.seeds.clear()
    trainer: Trainer = train_in(tmp_path_factory.mktemp("shared") / "run", **device)
    return trainer


def test_evaluations_in_the_training_environment_wait_for_the_end_of_an_episode(
    shared: Trainer,
) -> None:
    assert read_results(shared.run.evaluations_path).steps.tolist() == [160, 320]
    assert (shared.finished, shared.policies.best_step) == (True, 160)
    episodes = [seed_word(0, Stream.EPISODES, 0, episode) for episode in range(9)]
    evaluation = evaluation_seeds(0, 2)
    # Episodes 4 and 8 are reset again after an evaluation.
    order = [*episodes[:5], *evaluation, *episodes[4:9], *evaluation, episodes[8]]
    assert Device.seeds == order


def test_the_place_of_evaluations_does_not_change_training(
    train: TrainRun, shared: Trainer, device: dict[str, Any]
) -> None:
    separate = train("separate", **SHARED | {"env": "Long-v0", "evaluations": "separate"})
    without = {name: each for name, each in device.items() if name != "evaluate_every_steps"}
    never = train("never", **without | NEVER)
    assert read_results(separate.run.evaluations_path).steps.tolist() == [150, 300]
    for other in (separate, never):
        assert equal_weights(weights_of(shared.agent), weights_of(other.agent))
        rows = [t.buffer.rows(0, t.buffer.added) for t in (shared, other)]
        np.testing.assert_array_equal(*rows)
        curves = [
            {at: v for at, v in scalars(t.run.path).items() if not at[0].startswith("evaluation")}
            for t in (shared, other)
        ]
        assert curves[0] == curves[1]


def test_separate_evaluations_open_the_device_twice(
    train: TrainRun, device: dict[str, Any]
) -> None:
    with pytest.raises(RunError, match="device busy"):
        train(**device | {"evaluations": "separate"})


def test_an_interrupted_evaluation_in_the_training_environment_is_repeated(
    train: TrainRun,
    monkeypatch: pytest.MonkeyPatch,
    shared: Trainer,
    device: dict[str, Any],
) -> None:
    _signal_in_evaluations(monkeypatch, 127)  # an evaluation has two episodes of 40 steps
    stopped = train("parts", **device)
    assert (stopped.steps, stopped.in_round) == (320, True)
    monkeypatch.undo()
    _same(train("parts"), shared)


def test_a_waiting_evaluation_survives_kills_and_follows_an_extension(
    train: TrainRun, tmp_path: Path, shared: Trainer, device: dict[str, Any]
) -> None:
    stopped = train("parts", **device | {"steps": 155, "keep_checkpoints": 9})
    assert read_results(stopped.run.evaluations_path).steps.tolist() == [155]  # the final one
    train("parts", steps=161, checkpoint_every_minutes=1e-9)  # a checkpoint after every step
    *_, interrupted, _, last = published(tmp_path / "parts")
    assert (interrupted.steps, interrupted.pending) == (160, ("evaluation", "round"))
    for name in ("000000000160-*-1", last.folder.rpartition("/")[2]):
        for folder in (tmp_path / "parts" / "checkpoints").glob(name):
            shutil.rmtree(folder)  # simulates a kill during the evaluation
    _same(train("parts", steps=330, checkpoint_every_minutes=10.0), shared)


def test_a_run_without_evaluations_finishes_and_uses_its_latest_policy(
    train: TrainRun, tmp_path: Path
) -> None:
    trainer = train(**NEVER | _device(tmp_path), steps=60)
    assert (trainer.finished, trainer.stop_reason) == (True, "steps")
    assert not trainer.run.evaluations_path.exists()
    found = summary(tmp_path / "run")
    assert (found.state, found.best, found.score) == ("finished", None, None)
    with logged() as lines:
        policy = load_policy(tmp_path / "run")
    assert (policy.which, policy.steps, lines) == ("latest", 60, [])
    with pytest.raises(UsageError, match="no best policy yet, because it is never evaluated"):
        load_policy(tmp_path / "run", "best")
    skipped: list[Any] = []
    assert read_groups([tmp_path / "run"], skip=lambda *told: skipped.append(told)) == []
    assert skipped == [(tmp_path / "run", "it is never evaluated")]


def test_disabling_evaluations_discards_an_interrupted_one(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    _signal_in_evaluations(monkeypatch, 7)
    stopped = train(env="Long-v0", steps=152, check_env=False)
    assert (stopped.steps, stopped.in_round) == (150, True)
    monkeypatch.undo()
    resumed = train(evaluations="none", override=True)
    assert (resumed.steps, resumed.finished) == (152, True)
    assert not resumed.run.evaluations_path.exists()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"num_envs": 2}, "evaluations shared requires num_envs 1, because .* got num_envs 2"),
        ({"rollout_steps": 4}, "requires rollout_steps 1, because .* got rollout_steps 4"),
        ({"policy_lag": 1}, "requires policy_lag 0, because .* got policy_lag 1"),
        ({"collectors": "ray"}, "requires collectors here, because .* got collectors ray"),
        ({"video_every_steps": 9}, "video_every_steps needs a second environment, but evaluations"),
        ({"evaluation_env_kwargs": {"a": 1}}, "evaluation_env_kwargs needs a second environment"),
        ({"evaluations": "none", "stop_at_return": 1.0}, "stop_at_return needs evaluations, but"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_contradict_the_place_of_evaluations_are_rejected(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        RunConfig(env="Pendulum-v1", **{"evaluations": "shared"} | settings)


def test_an_interval_without_evaluations_has_no_effect(tmp_path: Path) -> None:
    settings = {"env": "Pendulum-v1", "evaluations": "none", "evaluate_every_steps": 100}
    with pytest.raises(UsageError, match="only with --evaluations separate or shared"):
        open_run(tmp_path / "run", "td3", settings)
    settings = {"num_envs": 8, "rollout_steps": 1000, "evaluations": "none"}
    assert RunConfig(env="Pendulum-v1", **settings).evaluate_every_steps == 5000


class Numbered(Counting):
    """Records the arguments of all environments of this process."""

    made: ClassVar[list[tuple[int, bool, float]]] = []

    def __init__(self, index: int, *, is_evaluation: bool, push: float = 0.0) -> None:
        super().__init__()
        self.made.append((index, is_evaluation, push))


def test_factories_receive_their_index_and_purpose(train: TrainRun) -> None:
    Numbered.made.clear()
    kwargs = {"env_kwargs": {"push": 2.0}, "evaluation_env_kwargs": {"push": 0.0}}
    trainer = train(env=Numbered, num_envs=2, steps=4, **kwargs)
    assert Numbered.made == [(0, True, 0.0), (0, False, 2.0), (1, False, 2.0)]
    assert trainer.collector.environments.repeats is None  # training was not tested
    Numbered.made.clear()
    train("never", env=Numbered, num_envs=2, steps=4, **NEVER)
    assert Numbered.made == [(0, False, 0.0), (1, False, 0.0)]


def test_training_environments_must_have_the_spaces_of_the_evaluation_environment(
    train: TrainRun,
) -> None:
    def make(is_evaluation: bool) -> Counting:
        env = Counting()
        if is_evaluation:
            env.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
        return env

    with pytest.raises(RunError, match=r"must have the spaces .*\(3,\).*; got .*\(2,\)"):
        train(env=make, steps=4, check_env=False)


class Moved(Reach):
    """Counts its instances."""

    made: ClassVar[list[bool]] = []

    def __init__(self, is_evaluation: bool) -> None:
        super().__init__()
        self.made.append(is_evaluation)


def test_hindsight_rewards_come_from_a_training_environment(train: TrainRun) -> None:
    settings = {"env": Moved, "hindsight": "future", "steps": 3, "check_env": False}
    train("separate", **settings)
    assert Moved.made == [True, False]
    Moved.made.clear()
    train("never", **settings, **NEVER)
    assert Moved.made == [False]
    with pytest.raises(UsageError, match="set collectors here and policy_lag 0; got processes"):
        train("processes", **settings, **NEVER, collectors="processes")
