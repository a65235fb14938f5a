"""A resumed run equals an uninterrupted one, for many combinations of settings.

See test_trainer.py for stops by signals, and test_callbacks.py for stops by callbacks.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from eagerly import Trainer, open_run
from eagerly.storage.manifest import published
from tests.agents.test_own_models import late_actor
from tests.eagerly.training.test_replay_options import REPLAY
from tests.eagerly.training.test_rounds import ROUNDS
from tests.eagerly.training.test_td7 import TD7
from tests.eagerly.training.test_trainer import MEMORY, _same
from tests.small_runs import SMALL, TrainRun, train_in

# The first 30 of 120 steps are random. Updates are made at steps 55, 80 and 105, and evaluations at
# 60 and 120. At step 77, within an episode and between two updates, a checkpoint is saved.
# It contains a best policy.
BRIEF: dict[str, Any] = {
    "steps": 120,
    "warmup_steps": 30,
    "replay_ratio": 0.04,
    "evaluate_every_steps": 60,
    "summarize_every_steps": 30,
    "checkpoint_every_steps": 77,
    "keep_checkpoints": 9,
}
GEARS: dict[str, Any] = {"env": "Gears-v0"}
IMAGES: dict[str, Any] = {"env": "Camera-v0", "num_envs": 2, "random_shift": 1, "batch_size": 4}
OWN = "tests.agents.test_own_models:"
BRIEF_TD7: dict[str, Any] = {**TD7, "steps": 64, "checkpoint_every_steps": 47}


def own_actor(observation_space: Any, action_space: Any) -> Any:
    return keras.Sequential(
        [keras.layers.Dense(8, "relu"), keras.layers.Dense(2, activation="tanh")]
    )


def own_critic(observation_space: Any, action_space: Any) -> Any:
    return keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])


CASES: dict[str, dict[str, Any]] = {
    "graph, several environments": {
        "mode": "graph",
        "num_envs": 3,
        "replay_ratio": 0.5,
        "updates_per_call": 10,
    },
    "xla, ddpg, schedule": {
        "mode": "xla",
        "agent": "ddpg",
        "schedule": "linear",
        "schedule_steps": 2,
        "clip_gradients": 0.1,
    },
    "rounds, mujoco, correlated noise, full buffer": ROUNDS
    | {
        "env": "InvertedPendulum-v5",
        "exploration": "ornstein_uhlenbeck",
        "normalize_observations": True,
        "normalize_rewards": True,
        "n_step": 3,
        "replay_capacity": 50,
    },
    # Matrix products of this size could be split across CPU cores. The results must still be equal.
    "lag": {
        "policy_lag": 1,
        "num_envs": 16,
        "group_size": 16,
        "rollout_steps": 3,
        "hidden_sizes": (256, 256),
        "env": "HalfCheetah-v5",
        "normalize_observations": True,
        "exploration": "ornstein_uhlenbeck",
        "evaluation_steps_limit": 20,
        "steps": 240,
        "replay_ratio": 0.02,
    },
    "own models, normalised, policy checkpoints": {
        "env": "Regulator-v0",
        "policy_checkpoints": True,
        "actor": late_actor,
        "critic": OWN + "functional_critic",
        "normalize_observations": True,
    },
    "quantised, frozen": {
        "quantize": "int8",
        "quantize_freeze_steps": 2,
        "normalize_observations": True,
    },
    "lstm, rounds, full buffer": MEMORY | ROUNDS | {"memory": "lstm", "replay_capacity": 50},
    "hindsight, prioritised, own models": REPLAY
    | {
        "agent": "ddpg",
        "sampling": "prioritized",
        "num_envs": 2,
        "actor": f"{__name__}:own_actor",
        "critic": f"{__name__}:own_critic",
    },
    "hindsight, discrete": REPLAY
    | {"env": "ReachDiscrete-v0", "hindsight": "episode", "num_envs": 3},
    "mixed actions, correlated noise": GEARS | {"exploration": "ornstein_uhlenbeck"},
    "images, full buffer": IMAGES | {"replay_capacity": 60},
    "td7, n-step, normalised": BRIEF_TD7
    | {"n_step": 3, "normalize_rewards": True, "normalize_observations": True},
}
LONG: dict[str, dict[str, Any]] = {
    "shared models, ddpg, correlated noise, normalised rewards": {
        "agent": "ddpg",
        "models": OWN + "linear_sharing",
        "env": "Terminating-v0",
        "num_envs": 2,
        "exploration": "ornstein_uhlenbeck",
        "normalize_rewards": True,
    },
    "hindsight, normalised, full buffer": REPLAY
    | {"normalize_observations": True, "normalize_rewards": True, "replay_capacity": 90},
    "attention, graph, normalised": MEMORY
    | {"memory": "attention", "agent": "ddpg", "normalize_observations": True, "mode": "graph"},
    "hindsight, mixed actions": REPLAY | {"env": "ReachMixed-v0"},
    "mixed actions, ddpg": GEARS
    | {"agent": "ddpg", "num_envs": 2, "exploration": "ornstein_uhlenbeck"},
    "mixed actions, processes": GEARS | {"num_envs": 2, "collectors": "processes"},
    "mixed actions, memory": GEARS
    | {"memory": "gru", "memory_units": 8, "sequence_length": 4, "sequences_per_update": 3},
    "images": IMAGES | {"replay_capacity": 1000},
    "td7, processes": BRIEF_TD7
    | {"num_envs": 3, "collectors": "processes", "checkpoint_untrained": True}
    | {"steps": 114, "checkpoint_every_steps": 77},
    "td7, hindsight": BRIEF_TD7 | {"env": "Reach-v0", "hindsight": "future", "num_envs": 2},
    "td7, longer": BRIEF_TD7
    | {"checkpoint_episodes_after": 4, "checkpoint_episodes": 2, "steps": 84},
    "td7, prioritised": BRIEF_TD7 | {"sampling": "prioritized"},
    "td7, without policy checkpoints": BRIEF_TD7 | {"policy_checkpoints": False, "num_envs": 2},
}


@pytest.mark.parametrize(
    "settings",
    [*CASES.values(), *(pytest.param(case, marks=pytest.mark.long) for case in LONG.values())],
    ids=[*CASES, *LONG],
)
def test_a_resumed_run_equals_an_uninterrupted_one(
    train: TrainRun, tmp_path: Path, settings: dict[str, Any]
) -> None:
    straight = train("straight", **BRIEF | settings)
    _killed_after_its_first_checkpoint(straight, tmp_path / "parts")
    # Pass these settings again: factories are not stored, and a copied run is not trusted to import
    # modules or to start processes.
    asked_for = ("actor", "critic", "models", "collectors")
    given = {name: settings[name] for name in asked_for if name in settings}
    again = train("parts", **given)
    _same(again, straight)
    np.testing.assert_equal(again.agent.state(), straight.agent.state())
    if "hindsight" in settings:  # the buffer also contains relabeled steps of finished episodes
        assert straight.buffer.added > 2 * straight.steps


def _killed_after_its_first_checkpoint(trainer: Trainer, path: Path) -> None:
    """Copies a run as if it had been killed right after its first checkpoint."""
    shutil.copytree(trainer.run.path, path)
    first, *others = published(path)
    assert 0 < first.updates < trainer.updates
    assert first.steps < trainer.steps
    for manifest in others:
        shutil.rmtree(path / manifest.folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """An uninterrupted TD3 run with default options."""
    return train_in(tmp_path_factory.mktemp("plain") / "run", **BRIEF, hidden_sizes=(8,))


def test_a_run_may_be_stopped_anywhere_and_extended(train: TrainRun, plain: Trainer) -> None:
    # Stop in the warm-up, again at the same step, between updates, and after an evaluation.
    train("parts", **BRIEF | {"steps": 27})
    for steps in (27, 77, 101):
        train("parts", steps=steps)
    _same(train("parts", steps=120), plain)


@pytest.mark.long
def test_collector_processes_give_the_same_bits_and_resume_exactly(train: TrainRun) -> None:
    settings = {**BRIEF, **REPLAY, "env": "ReachScaled-v0", "num_envs": 2, "agent": "ddpg"}
    settings |= {"exploration": "ornstein_uhlenbeck", "replay_capacity": 130}
    straight = train("straight", **settings)
    train("parts", **settings | {"steps": 77, "collectors": "processes"})
    _same(train("parts", steps=120), straight)


@pytest.mark.parametrize("memory", [False, True], ids=["plain", "memory"])
def test_a_run_saved_before_its_first_step_resumes_exactly(
    train: TrainRun, tmp_path: Path, plain: Trainer, memory: bool
) -> None:
    settings = BRIEF | (MEMORY | {"memory": "gru", "steps": 70} if memory else {})
    small = {k: v for k, v in SMALL.items() if k != "batch_size" or "memory" not in settings}
    small |= {"hidden_sizes": (8,)}
    with Trainer(open_run(tmp_path / "parts", "td3", small | settings)) as trainer:
        trainer.checkpoint()
    _same(train("parts"), train("straight", **settings) if memory else plain)
