"""TD7 runs make updates when episodes end, and evaluate and save the kept policy."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import RunError, Trainer, load_policy, open_run
from eagerly.training import policy_checkpoints
from eagerly.training.callbacks import Callback
from tests.eagerly.training.test_trainer import _same
from tests.small_runs import TrainRun, train_in

# Episodes have 10 steps, and each episode requires one update.
TD7: dict[str, Any] = {
    "agent": "td7",
    "env": "Regulator-v0",
    "embedding_size": 8,
    "encoder_hidden_sizes": (8,),
    "warmup_steps": 15,
    "steps": 104,
    "replay_ratio": 0.1,
    "updates_per_call": 1,
    "hidden_sizes": (8,),
    "copy_every": 2,
    "evaluate_every_steps": 20,
}


class Diary(Callback):
    """Records the steps and updates at each update, and can stop within a round."""

    def __init__(self, stop_at: int = -1) -> None:
        self.made: list[tuple[int, int]] = []
        self._stop_at = stop_at

    def on_update(self, trainer: Trainer, metrics: Any) -> None:
        self.made.append((trainer.steps, trainer.updates))
        if trainer.updates == self._stop_at:
            trainer.stop("enough")


def with_diary(path: Path, diary: Diary, **settings: Any) -> Trainer:
    given = {k: v for k, v in settings.items() if k != "agent"}
    with Trainer(open_run(path, settings.get("agent"), given), [diary]) as trainer:
        trainer.train()
    return trainer


def rows_of(trainer: Any) -> list[dict[str, str]]:
    with trainer.run.evaluations_path.open() as file:
        return list(csv.DictReader(file))


def test_updates_are_made_when_episodes_end_for_all_collected_steps(
    train: TrainRun,
) -> None:
    diary = Diary()
    trainer = with_diary(train(**TD7 | {"steps": 16}).run.path, diary, steps=64)
    # The warm-up of 15 steps is extended to the end of an episode, at step 20. Each later episode
    # requires one update.
    assert diary.made == [(10 * n, n - 2) for n in range(3, 7)]
    assert trainer.updates == 4


def test_the_kept_policy_is_evaluated_and_saved(train: TrainRun) -> None:
    trainer = train(**TD7 | {"steps": 84})
    agent = trainer.agent
    assert 0 < trainer.budget.kept < 6
    rows = rows_of(trainer)
    assert rows[-1]["return_mean"] != rows[-1]["current_return_mean"]
    names = [name for name in rows[0] if "return_mean" in name]
    assert names == ["return_mean", "current_return_mean"]
    observations = np.random.default_rng(0).normal(size=(5, agent.observations.size))
    kept, current = trainer.budget.policy(observations), agent.act(observations)
    assert not np.array_equal(kept, current)
    policy = load_policy(trainer.run.path, which="latest")
    for observation, action in zip(observations, agent.actions.to_environment(kept), strict=True):
        acted = policy(observation.astype(np.float32))
        np.testing.assert_allclose(np.squeeze(acted), np.squeeze(action), atol=1e-6)


def test_an_evaluation_before_a_policy_is_kept_is_not_the_best(train: TrainRun) -> None:
    trainer = train(**TD7 | {"evaluate_every_steps": 10, "steps": 44})
    # A row has 0 updates while the kept policy is untrained, up to step 30, and then the agent's 2.
    assert [row["updates"] for row in rows_of(trainer)] == ["0", "0", "0", "2"]
    assert (trainer.updates, trainer.policies.best_step) == (2, 40)


def test_without_policy_checkpoints_updates_do_not_wait_for_episode_ends(train: TrainRun) -> None:
    trainer = train(**TD7 | {"policy_checkpoints": False, "steps": 40})
    assert trainer.updates == 2  # each of 25 steps requires a tenth of an update
    assert not any(name.startswith("current") for name in rows_of(trainer)[0])


@pytest.mark.long  # test_algorithm.py tests this with TD3
def test_a_resumed_run_makes_pending_updates_before_acting(train: TrainRun, tmp_path: Path) -> None:
    settings = TD7 | {"replay_ratio": 0.2, "steps": 36}  # an episode requires two updates
    straight = train("straight", **settings)
    train("parts", **settings | {"steps": 16})
    stopped = with_diary(tmp_path / "parts", Diary(stop_at=1), steps=36)
    assert (stopped.steps, stopped.updates, stopped.in_round) == (30, 1, True)
    diary = Diary()
    again = with_diary(tmp_path / "parts", diary)
    assert diary.made == [(30, 2)]
    _same(again, straight)


def test_an_endless_episode_stops_the_run_after_saving_and_names_the_option(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_checkpoints, "LONGEST_EPISODE", 40)
    settings = TD7 | {"env": "Pendulum-v1", "steps": 300, "evaluate_every_steps": 300}
    trainer = train(**settings)
    assert trainer.steps == 41
    assert "--no-policy-checkpoints" in trainer.stop_reason
    assert train().steps == 42  # resumes in the same episode and stops again
    off = train("off", **settings | {"policy_checkpoints": False, "steps": 60})
    # Updates start after 15 random steps, although no episode has ended.
    assert (off.steps, off.updates) == (60, 4)


def test_settings_that_determine_checkpoint_contents_cannot_change(tmp_path: Path) -> None:
    train_in(tmp_path / "run", **TD7 | {"steps": 16})
    with pytest.raises(RunError, match=r"--policy-checkpoints of .* must stay True, even with"):
        train_in(tmp_path / "run", policy_checkpoints=False, override=True)


@pytest.mark.long
def test_a_run_is_initialized_with_the_policy_of_another_one(
    train: TrainRun, tmp_path: Path
) -> None:
    train("first", **TD7 | {"steps": 44})
    second = train("second", **TD7 | {"seed": 3, "init_from": str(tmp_path / "first"), "steps": 12})
    for settings in ({"encoder_activation": "tanh"}, {"activation": "tanh"}):
        with pytest.raises(RunError, match=r"activation is .* and tanh in this run"):
            train("third", **TD7 | settings | {"init_from": str(tmp_path / "first"), "steps": 12})
    nets = second.agent.modules.networks()
    policy = load_policy(tmp_path / "first")
    observation = np.full(second.agent.observations.size, 0.3, np.float32)
    wanted = policy(observation)
    for act in (second.agent.act, second.budget.policy):
        found = second.agent.actions.to_environment(act(observation[np.newaxis]))
        np.testing.assert_allclose(np.squeeze(found), np.squeeze(wanted), atol=1e-6)
    for layer, other in zip(
        nets["encoder"].states.weights, nets["fixed_encoder_target"].states.weights, strict=True
    ):
        np.testing.assert_array_equal(layer.numpy(), other.numpy())
