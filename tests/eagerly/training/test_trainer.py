"""The training loop: stored transitions, number of updates, stopping and exact resuming."""

from __future__ import annotations

import csv
import gc
import itertools
import json
import shutil
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorflow.python.framework import ops

from eagerly import TD3, Trainer, load_policy, open_run
from eagerly.buffers import ReplayBuffer
from eagerly.environments.guard import GuardedEnvironment
from eagerly.errors import RunError, UsageError
from eagerly.export.played_episodes import play_episodes
from eagerly.settings import flag_name
from eagerly.state import flatten_state
from eagerly.storage.checkpoint_reader import resumable_checkpoint
from eagerly.storage.checkpoint_writer import CheckpointWriter
from eagerly.storage.config import RESUMABLE, RunConfig
from eagerly.storage.evaluations import read_results
from eagerly.storage.files import RunFiles
from eagerly.storage.listing import summary
from eagerly.storage.manifest import published, write_manifest
from eagerly.training.callbacks import Callback
from eagerly.training.signals import StopSignals, Terminated
from tests import toys
from tests.helpers import equal_weights, spaces, weights_of
from tests.small_runs import SMALL, TrainRun, logged, scalars, train_in


def stored(trainer: Trainer) -> dict[str, np.ndarray]:
    rows = trainer.buffer.rows(0, trainer.buffer.added)
    return trainer.buffer.layout.unpack(rows)._asdict()


# --- stored transitions -----------------------------------------------------------------------


@pytest.mark.parametrize(("env", "last"), [("Terminating-v0", 0.0), ("Truncated-v0", 0.9)])
def test_termination_ends_the_discount_and_truncation_does_not(
    train: TrainRun, env: str, last: float
) -> None:
    parts = stored(train(env=env, steps=12, discount=0.9))
    np.testing.assert_array_equal(parts["observation"][:, 1], [0, 1, 2] * 4)
    np.testing.assert_array_equal(parts["next_observation"][:, 1], [1, 2, 3] * 4)
    np.testing.assert_allclose(parts["discount"], [0.9, 0.9, last] * 4)
    np.testing.assert_array_equal(
        parts["observation"][:, 0], parts["next_observation"][:, 0], "the episodes differ"
    )


def test_warmup_actions_are_uniform_and_later_ones_come_from_the_policy(train: TrainRun) -> None:
    trainer = train(env="Long-v0", steps=1010, warmup_steps=1000, exploration_noise=0.0)
    actions = stored(trainer)["action"]
    warmup = actions[:1000]
    assert np.abs(warmup).max() <= 1
    assert np.abs(warmup.mean(axis=0)).max() < 4 / np.sqrt(3 * 1000)
    assert np.abs(warmup.std(axis=0) - 1 / np.sqrt(3)).max() < 0.05
    # No update is due in these ten steps, so the untrained policy acts.
    untrained = trainer.agent.Builder(trainer.agent.config, *spaces(2, 2), seed=0).actor()
    expected = untrained(stored(trainer)["observation"][1000:1010])
    np.testing.assert_allclose(actions[1000:1010], expected, rtol=0, atol=1e-6)


# --- updates ----------------------------------------------------------------------------------


def _counted_alone(agent: TD3, batch: Any, *_: Any) -> Any:
    """An update that changes nothing, for tests that only count updates."""
    return {"losses/critic": tf.constant(0.0)}, {"td_error": tf.zeros_like(batch.reward)}


@pytest.mark.parametrize("num_envs", [1, 3, 8])
@pytest.mark.parametrize("replay_ratio", [0.5, 1.0, 2.0])
def test_updates_are_required_per_environment_step_and_made_in_whole_calls(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch, num_envs: int, replay_ratio: float
) -> None:
    monkeypatch.setattr(TD3, "update", _counted_alone)
    trainer = train(
        env="Long-v0",
        steps=177,
        warmup_steps=100,
        num_envs=num_envs,
        replay_ratio=replay_ratio,
        updates_per_call=7,
        evaluate_every_steps=177,
        checkpoint_every_steps=177,
    )
    assert trainer.steps == -(-177 // num_envs) * num_envs
    owed = int(replay_ratio * (trainer.steps - 100))
    assert trainer.updates == trainer.agent.updates == owed // 7 * 7


def test_pending_updates_are_counted_without_rounding_errors(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TD3, "update", _counted_alone)
    # In floating-point arithmetic, 0.29 * 100 is less than 29.
    settings = {"env": "Long-v0", "steps": 200, "warmup_steps": 100}
    trainer = train(**settings, replay_ratio=0.29, updates_per_call=29)
    assert trainer.updates == 29


# --- evaluation -------------------------------------------------------------------------------


def test_evaluations_fall_on_the_first_round_at_or_after_their_step(train: TrainRun) -> None:
    trainer = train(env="Long-v0", num_envs=7, steps=400)
    with trainer.run.evaluations_path.open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["steps"]) for row in rows] == [154, 301]
    assert [float(row["return_mean"]) for row in rows] == [40, 40]


def test_evaluation_does_not_affect_training(train: TrainRun, straight: Trainer) -> None:
    often = train("often", **STRAIGHT | {"evaluate_every_steps": 50})
    assert equal_weights(weights_of(often.agent), weights_of(straight.agent))
    np.testing.assert_array_equal(often.buffer.rows(0, 300), straight.buffer.rows(0, 300))


def test_the_best_policy_is_kept(train: TrainRun, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"evaluate_every_steps": 100, "evaluation_episodes": 2}
    settings |= {"keep_checkpoints": 1, "actor_learning_rate": 0.03}
    settings |= {"env_kwargs": {"max_episode_steps": 50}}
    trainer = train(steps=500, **settings)
    with trainer.run.evaluations_path.open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["updates"])]
    best = max(rows, key=lambda row: float(row["return_mean"]))
    assert trainer.policies.best_step is not None
    assert (trainer.policies.best_step, trainer.policies.best_return) == (
        int(best["steps"]),
        float(best["return_mean"]),
    )


# --- stopping and resuming --------------------------------------------------------------------


def _same(one: Trainer, other: Trainer) -> None:
    assert equal_weights(weights_of(one.agent), weights_of(other.agent))
    assert one.buffer.added == other.buffer.added
    start = one.buffer.added - len(one.buffer)
    np.testing.assert_array_equal(
        one.buffer.rows(start, one.buffer.added), other.buffer.rows(start, other.buffer.added)
    )
    (kept, weights), expected = (flatten_state(t.policies.state()) for t in (one, other))
    assert (one.steps, one.updates, kept) == (other.steps, other.updates, expected[0])
    assert equal_weights(weights, expected[1])
    tables = [t.run.evaluations_path for t in (one, other)]
    assert [t.exists() for t in tables] in ([True, True], [False, False])
    if tables[0].exists():
        assert tables[0].read_bytes() == tables[1].read_bytes()
    assert scalars(one.run.path) == scalars(other.run.path)


MEMORY = {
    "env": "PendulumPositions-v1",
    "memory_units": 8,
    "sequence_length": 6,
    "burn_in": 2,
    "sequences_per_update": 4,
}


# This run is evaluated twice, in one 40-step episode each. The second evaluation is in the last
# round.
STRAIGHT: dict[str, Any] = {"env": "Long-v0", "steps": 300, "hidden_sizes": (8,)}


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """An uninterrupted run."""
    return train_in(tmp_path_factory.mktemp("straight") / "run", **STRAIGHT)


# Each step after the warm-up requires three calls of the train body.
OWING: dict[str, Any] = {
    "env": "Long-v0",
    "warmup_steps": 100,
    "replay_ratio": 3.0,
    "steps": 103,
    "evaluate_every_steps": 101,
    "hidden_sizes": (8,),
}


@pytest.fixture(scope="module")
def owing(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """An uninterrupted run with several calls per round."""
    return train_in(tmp_path_factory.mktemp("owing") / "run", **OWING)


# Of the rounds with updates, the first makes call 2, the second call 5, and the last call 7.
@pytest.mark.parametrize("calls", [2, 5, 7])
def test_a_signal_between_calls_stops_within_the_round_and_the_run_resumes_exactly(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch, owing: Trainer, calls: int
) -> None:
    original, made = TD3.train, []

    def signalling(agent: TD3, *arguments: Any) -> dict[str, np.ndarray]:
        made.append(original(agent, *arguments))
        if len(made) == calls:
            signal.raise_signal(signal.SIGINT)
        return made[-1]

    monkeypatch.setattr(TD3, "train", signalling)
    stopped = train("parts", **OWING)
    assert len(made) == stopped.updates == calls
    assert stopped.in_round
    assert not stopped.finished
    _same(train("parts"), owing)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_stops(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch, straight: Trainer, number: signal.Signals
) -> None:
    original = TD3.train

    def signalling(agent: TD3, *arguments: Any) -> dict[str, np.ndarray]:
        signal.raise_signal(number)
        return original(agent, *arguments)

    monkeypatch.setattr(TD3, "train", signalling)
    stopped = train("parts", **STRAIGHT)
    assert stopped.steps == 150
    monkeypatch.undo()
    _same(train("parts"), straight)


def test_an_ignored_sighup_stays_ignored(train: TrainRun) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does
    try:
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGHUP)
        assert signals.received is None
    finally:
        signal.signal(signal.SIGHUP, before)


def _signal_in_evaluations(monkeypatch: pytest.MonkeyPatch, *step_numbers: int) -> None:
    """Raises SIGTERM at these steps, counted over all evaluations of this process."""
    original, count = GuardedEnvironment.step, itertools.count(1)

    def step(env: GuardedEnvironment, action: Any) -> Any:
        if env._name == "the evaluation environment" and next(count) in step_numbers:
            signal.raise_signal(signal.SIGTERM)
        return original(env, action)

    monkeypatch.setattr(GuardedEnvironment, "step", step)


@pytest.mark.parametrize("at", [150, 300], ids=["mid-run", "last round"])
def test_an_evaluation_interrupted_by_a_signal_is_made_on_resume(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch, straight: Trainer, at: int
) -> None:
    _signal_in_evaluations(monkeypatch, 7 if at == 150 else 47)  # an episode has 40 steps
    stopped = train("parts", **STRAIGHT)
    assert (stopped.steps, stopped.in_round, stopped.finished) == (at, True, False)
    evaluated = read_results(stopped.run.evaluations_path).steps.tolist()
    assert evaluated == [150, 300][: at // 150 - 1]
    monkeypatch.undo()
    _same(train("parts"), straight)


def test_a_final_evaluation_can_be_interrupted(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"env": "Long-v0", "steps": 170, "warmup_steps": 160, "replay_ratio": 0.2}
    straight = train("straight", **settings)
    _signal_in_evaluations(monkeypatch, 43)  # this step is in the second and final evaluation
    stopped = train("parts", **settings)
    assert (stopped.steps, stopped.in_round, stopped.finished) == (170, False, False)
    monkeypatch.undo()
    _same(train("parts"), straight)


def test_timed_checkpoints_are_written_during_long_evaluations(
    train: TrainRun, tmp_path: Path, straight: Trainer
) -> None:
    train("parts", **STRAIGHT | {"steps": 149, "keep_checkpoints": 9})
    train("parts", steps=152, checkpoint_every_minutes=1e-9)  # a checkpoint after every step
    found = published(tmp_path / "parts")
    assert [(manifest.steps, manifest.pending, manifest.revision) for manifest in found] == [
        (100, (), 0),
        (149, (), 0),
        (150, ("evaluation", "round"), 0),
        (150, (), 1),
        (151, (), 0),
        (152, (), 0),
    ]
    for manifest in found[3:]:  # simulates a kill during the evaluation
        shutil.rmtree(tmp_path / "parts" / manifest.folder)
    resumed = train("parts", steps=300, checkpoint_every_minutes=10.0)
    assert 300.0 < resumed.checkpoints.deadline - time.monotonic() <= 600.0
    _same(resumed, straight)


def test_a_checkpoint_written_by_a_callback_within_a_round_resumes_exactly(
    train: TrainRun, tmp_path: Path, straight: Trainer
) -> None:
    class Saves(Callback):
        def on_evaluation(self, training: Any, *_: Any) -> None:
            training.checkpoint()

    train("parts", callbacks=[Saves()], **STRAIGHT | {"steps": 160, "keep_checkpoints": 9})
    *_, saved, last = published(tmp_path / "parts")
    assert (saved.steps, saved.pending) == (150, ("round",))
    shutil.rmtree(tmp_path / "parts" / last.folder)  # simulates a kill after `saved`
    _same(train("parts", steps=300), straight)


def test_stop_interrupts_an_evaluation_from_another_thread(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch, straight: Trainer
) -> None:
    original, trainers = GuardedEnvironment.step, []

    class Keeps(Callback):
        def on_begin(self, training: Any) -> None:
            trainers.append(training)

    def step(env: GuardedEnvironment, action: Any) -> Any:
        if env._name == "the evaluation environment":
            thread = threading.Thread(target=trainers[0].stop, args=("time is up",))
            thread.start()
            thread.join()
        return original(env, action)

    monkeypatch.setattr(GuardedEnvironment, "step", step)
    stopped = train("parts", callbacks=[Keeps()], **STRAIGHT)
    assert (stopped.steps, stopped.stop_reason) == (150, "time is up")
    assert read_results(stopped.run.evaluations_path).steps.size == 0
    monkeypatch.undo()
    _same(train("parts"), straight)


def test_evaluation_episodes_at_the_step_limit_are_reported_once_and_counted(
    train: TrainRun, tmp_path: Path
) -> None:
    trainer = train(
        env=toys.Counting,
        env_kwargs={"terminates": False},
        evaluation_steps_limit=25,
        evaluation_episodes=2,
        steps=320,
    )
    (line,) = [line for line in trainer.lines if "evaluation episodes" in line]
    assert line.startswith("step 150: 2 of 2 evaluation episodes were cut off after 25 steps")
    with (tmp_path / "run" / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["episodes_at_limit"] for row in rows] == ["2", "2"]
    assert [float(row["length_mean"]) for row in rows] == [25.0, 25.0]
    # The episodes that an export plays have the same limit.
    env, layout = toys.Counting(terminates=False), (trainer.observations, trainer.actions)
    _, evaluation = play_episodes(trainer.policy, env, [0, 1], 2, 0, layout, 25)
    assert evaluation is not None
    assert evaluation.lengths.tolist() == [25, 25]


@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_train_raises_the_signals_exception_after_saving(
    tmp_path: Path, number: signal.Signals, expected: type[BaseException]
) -> None:
    class Signals(Callback):
        def on_round(self, training: Any) -> None:
            if training.steps == 120:
                signal.raise_signal(number)

    with Trainer(open_run(tmp_path / "run", "td3", SMALL), [Signals()]) as trainer:
        with pytest.raises(expected, match=r"^saved at step 120$") as raised:
            trainer.train()
        trainer.train()  # resumes, as in a notebook's next cell
        assert trainer.finished
    assert type(raised.value) is expected
    assert published(tmp_path / "run")[0].steps >= 120


def test_a_signal_before_the_first_step_still_allows_one_round(
    tmp_path: Path,
) -> None:
    settings = SMALL | {"evaluate_every_steps": 2}
    for steps in (1, 2, 2, 3):  # simulates a job that is preempted at every start
        with StopSignals() as signals:
            signal.raise_signal(signal.SIGTERM)
            with Trainer(open_run(tmp_path / "run", "td3", settings)) as trainer:
                trainer.train(signals)
        assert (trainer.steps, trainer.finished) == (steps, False)
        # The first start at step 2 interrupts the evaluation, the next start completes it.
    assert read_results(trainer.run.evaluations_path).steps.tolist() == [2]


def test_a_second_signal_while_saving_leaves_the_previous_checkpoint(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch, straight: Trainer, tmp_path: Path
) -> None:
    original = CheckpointWriter._append_replay

    def signalling(checkpoints: CheckpointWriter, buffer: Any, *arguments: Any) -> Any:
        if buffer.added == 200:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
        return original(checkpoints, buffer, *arguments)

    monkeypatch.setattr(CheckpointWriter, "_append_replay", signalling)
    with pytest.raises(KeyboardInterrupt):
        train("parts", **STRAIGHT)
    monkeypatch.undo()
    assert [manifest.steps for manifest in published(tmp_path / "parts")] == [100]
    _same(train("parts"), straight)


def test_a_second_signal_has_its_default_effect(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch, straight: Trainer
) -> None:
    original = TD3.train

    def signalling(agent: TD3, *arguments: Any) -> dict[str, np.ndarray]:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        return original(agent, *arguments)

    monkeypatch.setattr(TD3, "train", signalling)
    with pytest.raises(KeyboardInterrupt):
        train(**STRAIGHT)
    monkeypatch.undo()
    _same(train(), straight)


def test_every_point_of_every_curve_is_written_once(train: TrainRun, tmp_path: Path) -> None:
    for steps in (170, 300, 301):
        train(steps=steps)
    found = scalars(tmp_path / "run")
    assert {len(values) for values in found.values()} == {1}
    assert [step for tag, step in found if tag == "losses/critic"] == [150, 250]
    assert [step for tag, step in found if tag == "evaluation/return_mean"] == [150, 300]
    tags = {tag for tag, _ in found}
    assert {"training/return_mean", "training/length_mean", "losses/actor"} <= tags
    assert {"values/mean", "values/max", "actions/saturation"} <= tags


def test_a_nondeterministic_environment_is_reported_and_the_run_continues(
    train: TrainRun,
) -> None:
    train(env="Noisy-v0", steps=120, num_envs=2)
    trainer = train(steps=200)
    assert trainer.steps == 200
    (line,) = (line for line in trainer.lines if "started new episodes" in line)
    assert "[0, 1]" in line
    assert line.endswith("replaying their actions did not reproduce the episodes")


def test_changed_conditions_are_reported(train: TrainRun, tmp_path: Path) -> None:
    train(steps=120)
    assert train(steps=130).lines == []
    manifest = published(tmp_path / "run")[-1]
    assert {"python", "eagerly", "keras", "numpy", "gymnasium", "mujoco"} <= set(
        manifest.conditions
    )
    assert manifest.conditions["intra_op_threads"] == manifest.conditions["inter_op_threads"] == 2
    names = ["tensorflow", "device", "instruction_set", "XLA_FLAGS"]
    manifest.conditions.update(dict.fromkeys(names, "another"))
    write_manifest(RunFiles(tmp_path / "run"), manifest)
    (line,) = train(steps=140).lines
    assert "differ from an uninterrupted run in the last bits" in line
    for name in names:
        assert f"{name} was another" in line


def test_eager_mode_traces_nothing(train: TrainRun, monkeypatch: pytest.MonkeyPatch) -> None:
    original, eager = TD3.critic_step, []

    def spy(agent: TD3, *arguments: Any) -> Any:
        eager.append(tf.executing_eagerly())
        return original(agent, *arguments)

    monkeypatch.setattr(TD3, "critic_step", spy)
    train(mode="eager", steps=250)
    assert eager == [True] * 2


# --- values that are not finite ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "culprit", "n_step"),
    [
        ("NanReward-v0", "reward", 1),
        ("InfObservation-v0", "next_observation", 1),
        # The run stops at once, although the buffer would receive the value five steps later.
        ("InfObservation-v0", "next_observation", 9),
    ],
)
def test_values_that_are_not_finite_stop_the_run_and_are_not_saved(
    train: TrainRun, tmp_path: Path, env: str, culprit: str, n_step: int
) -> None:
    with pytest.raises(RunError, match=f"stopped after step 144: {culprit} must be finite"):
        train(env=env, summarize_every_steps=10, n_step=n_step)
    folders = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert folders == ["000000000100-000000000000"]


def test_actions_that_are_not_finite_stop_the_run(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = TD3.train

    def poisoned(agent: TD3, *arguments: Any) -> dict[str, np.ndarray]:
        metrics = original(agent, *arguments)
        bias = agent.actor.network.variables[-1]
        bias.assign(np.full(bias.shape, np.nan))
        agent.policy.refresh()
        return metrics

    monkeypatch.setattr(TD3, "train", poisoned)
    with pytest.raises(RunError, match="stopped after step 150: action must be finite"):
        train("collecting")
    with pytest.raises(RunError, match="stopped after step 150: action must be finite"):
        train("evaluating", evaluate_every_steps=150)
    with pytest.raises(RunError, match="stopped after step 150: variable actor/action/bias"):
        train("saving", checkpoint_every_steps=150, evaluate_every_steps=1000)


def test_a_reset_that_is_not_finite_fails_immediately(train: TrainRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"'NanReset-v0' fails Gymnasium's checker"):
        train(env="NanReset-v0")
    with pytest.raises(RunError, match=r"before step 1: observation must be finite.*reset.*nan at"):
        train(env="NanReset-v0", check_env=False)
    assert not (tmp_path / "run").exists()


def test_diverging_networks_stop_the_run_and_are_not_saved(train: TrainRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"stopped after step \d+: losses/\w+ became (nan|inf)"):
        train(critic_learning_rate=1e30, actor_learning_rate=1e30)
    assert not list((tmp_path / "run" / "checkpoints").glob("0000000002*/manifest.json"))


# --- episodes ---------------------------------------------------------------------------------


def test_numbers_in_info_at_the_end_of_episodes_are_summarized(
    train: TrainRun, tmp_path: Path
) -> None:
    train(env="Success-v0", steps=150)
    found = scalars(tmp_path / "run")
    assert found["training_info/is_success", 100] == [1.0]
    assert found["training_info/distance", 50] == [3.0]
    assert found["evaluation_info/is_success", 150] == [1.0]
    assert not any("name" in tag or "/at" in tag for tag, _ in found)


def test_correlated_noise_restarts_with_every_episode(train: TrainRun) -> None:
    settings = {"env": "Terminating-v0", "exploration": "ornstein_uhlenbeck", "warmup_steps": 100}
    trainer = train(**settings, steps=102, hidden_sizes=(8,), exploration_noise=0.01)
    assert trainer.steps % 3 == 0  # an episode has just ended
    noise = trainer.collector.state()["behavior"]["exploration"]
    assert not np.any(noise["process"])
    assert noise["step"] == 102


def test_an_environment_may_come_from_a_factory(train: TrainRun, tmp_path: Path) -> None:
    from tests.toys import Counting

    trainer = train(env=Counting, env_kwargs={"length": 5}, steps=60, num_envs=2)
    assert trainer.collector.environments.state()["episodes"] == [6, 6]
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (saved["env"], saved["env_kwargs"]) == ("factory tests.toys:Counting", {"length": 5})
    assert train(env=Counting, env_kwargs={"length": 5}, steps=80).steps == 80
    with pytest.raises(RunError, match="pass the factory again from your program"):
        train(steps=100)
    with pytest.raises(RunError, match=r"--env-kwargs: the run has {\"length\": 5}, you gave {"):
        train(env=Counting, env_kwargs={"length": 6}, steps=100)


# --- settings ---------------------------------------------------------------------------------

# Episodes are short, and an update is made at step 140 of 150.
SHORT_EPISODES = {"max_episode_steps": 30}
UNCHANGED: dict[str, Any] = {
    "env_kwargs": SHORT_EPISODES,
    "steps": 150,
    "warmup_steps": 40,
    "evaluate_every_steps": 75,
    "hidden_sizes": (8,),
}
CHANGED: dict[str, Any] = {
    "evaluation_steps_limit": 20,
    "env": "MountainCarContinuous-v0",
    "env_kwargs": SHORT_EPISODES | {"g": 5.0},
    "collectors": "processes",
    "histograms": True,
    "video_every_steps": 100,
    "steps": 160,
    "seed": 1,
    "num_envs": 2,
    "rollout_steps": 60,
    "policy_lag": 1,
    "discount": 0.5,
    "warmup_steps": 70,
    "replay_ratio": 0.03,
    "updates_per_call": 3,
    "replay_capacity": 50,
    "evaluations": "shared",
    "evaluation_env_kwargs": {"g": 5.0},
    "evaluate_every_steps": 100,
    "evaluation_episodes": 2,
    "evaluation_seed": 1,
    "summarize_every_steps": 100,
    "checkpoint_every_steps": 50,
    "keep_checkpoints": 1,
    "policy_checkpoints": True,
}
# Thread counts need a separate process and are tested in tests/scripts/test_train.py, the device in
# test_hardware.py, and `check_env` in test_a_reset_that_is_not_finite_fails_immediately. The others
# are tested in test_stopping.py, test_callbacks.py, test_warm_start.py, test_rounds.py,
# test_logged_data.py, test_wrapped_runs.py, test_real_time.py,
# test_failing_surroundings.py, test_policy_checkpoints.py, test_trackers.py and
# tests/eagerly/workers.
ELSEWHERE = {
    "group_size",
    "num_collectors",
    "allow_different_collectors",
    "init_from",
    "init_critics",
    "data",
    "data_share",
    "offline",
    "hardware",
    "wrapper",
    "device",
    "intra_op_threads",
    "inter_op_threads",
    "check_env",
    "checkpoint_every_minutes",
    "restore_episodes",
    "environment_timeout_seconds",
    "stop_at_return",
    "track",
    "checkpoint_untrained",
    "checkpoint_episodes",
    "checkpoint_episodes_after",
    "checkpoint_reset",
}


def _fingerprint(trainer: Trainer) -> list[Any]:
    path = trainer.run.path
    events = EventAccumulator(str(path), size_guidance={"tensors": 0}).Reload()
    newest = sorted(path.glob("checkpoints/*/manifest.json"))[-1]
    return [
        trainer.steps,
        trainer.updates,
        {name: weight.tobytes() for name, weight in weights_of(trainer.agent).items()},
        trainer.run.evaluations_path.read_text(),
        scalars(path),
        [folder.name for folder in sorted((path / "checkpoints").iterdir())],
        [segment["path"] for segment in json.loads(newest.read_text())["replay"]],
        sorted(events.Tags()["tensors"]),
        sorted(path.glob("videos/*")),
        type(trainer.collector.environments._collectors).__name__,
    ]


@pytest.mark.parametrize("field", [name for name in RunConfig.SETTINGS if name not in ELSEWHERE])
def test_every_setting_has_an_effect(train: TrainRun, unchanged: list[Any], field: str) -> None:
    assert _fingerprint(train(**UNCHANGED | {field: CHANGED[field]})) != unchanged


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The fingerprint of a run with unchanged settings."""
    return _fingerprint(train_in(tmp_path_factory.mktemp("unchanged") / "run", **UNCHANGED))


def test_the_fingerprint_is_the_same_for_the_same_settings(
    train: TrainRun, unchanged: list[Any]
) -> None:
    assert _fingerprint(train(**UNCHANGED)) == unchanged


def test_settings_that_can_change_on_resume_do_not_change_the_result(train: TrainRun) -> None:
    changed: dict[str, Any] = {
        "check_env": False,
        "collectors": "processes",
        "num_collectors": 1,
        "allow_different_collectors": True,
        "histograms": True,
        "video_every_steps": 100,
        "checkpoint_every_steps": 30,
        "keep_checkpoints": 5,
        "checkpoint_every_minutes": 0.001,
        "restore_episodes": "no",  # takes effect only when a run is resumed
        "environment_timeout_seconds": 100.0,
        "stop_at_return": 1e9,
    }
    assert {"steps", "track", *changed} == RESUMABLE  # test_trackers.py tests `track`
    _same(train("one", **UNCHANGED | changed), train("other", **UNCHANGED))


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("TextActions-v0", "actions must be a Box, a discrete space"),
        ("UnboundedActions-v0", r"got Box\(-inf, inf, \(2,\), float32\)\. Set finite bounds"),
        ("TextObservations-v0", "which networks cannot read: convert them to a Box"),
    ],
)
def test_an_unsupported_environment_is_rejected_before_anything_is_written(
    train: TrainRun, tmp_path: Path, env: str, message: str
) -> None:
    with pytest.raises(RunError, match=message):
        train(env=env)
    assert not (tmp_path / "run").exists()


def test_an_incompatible_override_leaves_the_run_unchanged(train: TrainRun, tmp_path: Path) -> None:
    train(steps=150)
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    for settings, difference in (
        ({"hidden_sizes": (16,)}, r"float32 of shape \(8, 1\) .* float32 of shape \(16, 1\) in"),
        ({"precision": "float64"}, r"float32 of shape \(1,\) .* float64 of shape \(1,\) in"),
        ({"env": "Hopper-v5"}, r"float32 of shape \(1,\) .* float32 of shape \(3,\) in"),
    ):
        (flag,) = map(flag_name, settings)
        message = f"cannot be resumed with {flag} .* instead of .*: trained .* {difference} this"
        with pytest.raises(UsageError, match=message):
            train(override=True, **settings)
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_an_override_takes_effect_and_is_recorded(train: TrainRun, tmp_path: Path) -> None:
    train(steps=150)
    trainer = train(override=True, actor_learning_rate=1e-5, num_envs=2, steps=200)
    assert trainer.steps == 200
    assert np.isclose(float(trainer.agent.actor.optimizer.learning_rate), 1e-5)
    (entry,) = json.loads((tmp_path / "run" / "config.json").read_text())["history"]
    assert entry["steps"] == 150
    assert entry["overridden"] == {"actor_learning_rate": [0.0003, 1e-05], "num_envs": [1, 2]}


def test_a_new_replay_ratio_applies_to_later_steps(train: TrainRun) -> None:
    train(steps=200)
    trainer = train(override=True, replay_ratio=0.5, steps=220)
    assert trainer.updates == 1 + 10


def test_an_override_restarts_the_search_for_the_best_policy(
    train: TrainRun, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    before = train(steps=150, stop_at_return=1e9)
    assert before.policies.best_step == 150
    # No checkpoint follows this override, as if the process had been killed.
    Trainer(open_run(run, None, {"activation": "tanh", "steps": 220}, override=True)).close()
    assert (summary(run).best, summary(run).score) == (None, None)
    assert load_policy(run).which == "latest"
    # A limit that only an earlier evaluation reached does not finish the run.
    reached = open_run(run, None, {"stop_at_return": before.best_return})
    assert resumable_checkpoint(reached)[1] == []
    reached.unlock()
    # The best policy comes from a final evaluation, because earlier evaluations no longer count.
    trainer = train(steps=220)
    assert trainer.policies.best_step == 220
    assert summary(run).best == trainer.best_return == trainer.score == summary(run).score
    assert load_policy(run).steps == 220
    assert train(steps=240).policies.best_step == 240
    assert train(steps=300).policies.best_step == 300
    assert train(steps=320).policies.best_step == 300


def test_an_evaluation_that_was_due_before_an_override_does_not_count(
    train: TrainRun, tmp_path: Path
) -> None:
    class Stops(Callback):
        def on_rollout(self, training: Any, rollout: Any) -> None:
            if training.steps == 150:
                training.stop("enough")

    settings = {"evaluate_every_steps": 150, "stop_at_return": -1e9}
    train(steps=160, **settings, callbacks=[Stops()])
    trainer = train(override=True, tau=0.01)
    assert (trainer.steps, trainer.policies.best_step) == (160, 160)
    assert load_policy(tmp_path / "run").steps == 160


def test_an_override_restarts_the_search_for_the_kept_policy(
    train: TrainRun, tmp_path: Path
) -> None:
    train(steps=150, policy_checkpoints=True, env="Long-v0")
    for _ in range(2):  # no checkpoint follows, as if the process had been killed
        with Trainer(open_run(tmp_path / "run", None, {"tau": 0.01}, override=True)) as trainer:
            assert trainer.budget.best is None


def test_an_override_counts_from_the_checkpoint_that_a_run_fell_back_to(
    train: TrainRun, tmp_path: Path
) -> None:
    train(steps=200, evaluate_every_steps=50, keep_checkpoints=3)
    train(override=True, tau=0.01, steps=300)
    for newer in (200, 300):
        shutil.rmtree(next((tmp_path / "run" / "checkpoints").glob(f"*{newer}-*")))
    at_150 = train(steps=160)
    assert at_150.run.overridden_at() == [100]
    again = train(steps=170)
    assert (again.policies.best_step, again.policies.best_return) == (
        at_150.policies.best_step,
        at_150.policies.best_return,
    )


def test_a_directory_or_buffer_that_cannot_be_created_is_reported(
    train: TrainRun, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file/run cannot be used"):
        train("file/run")
    with pytest.raises(
        RunError, match="cannot allocate a replay buffer of 1000000000000 rows: Unable"
    ):
        train("huge", replay_capacity=10**12)


def test_a_full_buffer_cannot_grow(train: TrainRun) -> None:
    train(steps=200, replay_capacity=60, checkpoint_every_steps=50)
    with pytest.raises(RunError, match="replay_capacity cannot be increased"):
        train(override=True, replay_capacity=500, steps=300)


def test_a_process_with_other_thread_counts_is_reported(tmp_path: Path) -> None:
    with logged() as lines:
        Trainer(open_run(tmp_path / "run", "td3", SMALL | {"intra_op_threads": 7})).close()
    assert "already initialized" in lines[0]


def test_an_error_of_the_buffer_stops_the_run_with_its_message(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError("stacked frames must shift by one")

    monkeypatch.setattr(ReplayBuffer, "add", refuse)
    with pytest.raises(RunError, match=r"after step \d+: the replay buffer rejected .* shift by"):
        train("refused")


def test_a_buffer_too_small_for_whole_episodes_is_rejected_immediately(train: TrainRun) -> None:
    with pytest.raises(RunError, match="replay_capacity must be at least 8 for 2 environments"):
        train("small", **MEMORY, memory="gru", num_envs=2, replay_capacity=7)


def test_a_generated_directory_that_was_taken_in_the_meantime_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = open_run(None, "td3", SMALL | {"steps": 120})
    taken = run.path
    taken.mkdir(parents=True)
    with Trainer(run) as trainer:
        trainer.train()
    assert run.path == taken.with_name(f"{taken.name}-2")
    assert list(run.path.glob("checkpoints/*/manifest.json"))
    assert list(taken.iterdir()) == []


def test_a_closed_run_releases_its_variables_and_gradients(train: TrainRun) -> None:
    def variables(run: str) -> list[weakref.ref[Any]]:
        trainer = train(run, agent="ddpg", mode="graph", steps=150, activation="elu")
        groups = trainer.agent.modules.groups().values()
        return [weakref.ref(variable.value) for group in groups for variable in group]

    sizes = []
    for run in ("first", "second"):
        left = variables(run)
        gc.collect()
        assert len(left) > 20
        assert not [each() for each in left if each() is not None]
        sizes.append(len(ops.gradient_registry.list()))
    assert sizes[0] == sizes[1]
