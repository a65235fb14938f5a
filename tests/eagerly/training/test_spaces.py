"""Runs with observations or actions that are not flat boxes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly import RunError, Trainer, load_policy, open_run, training
from eagerly.storage.evaluations import read_results
from eagerly.training.evaluation import evaluation_seeds, run_episodes
from tests import toys
from tests.helpers import equal_weights, weights_of
from tests.small_runs import SMALL, TrainRun

LONG = pytest.mark.long
GEARS: dict[str, Any] = {
    "env": "Gears-v0",
    "steps": 160,
    "warmup_steps": 60,
    "replay_ratio": 0.02,
}


def test_an_image_policy_is_loaded(train: TrainRun, tmp_path: Path) -> None:
    settings = {"env": "Camera-v0", "steps": 60, "warmup_steps": 40, "replay_ratio": 0.1}
    trainer = train(**settings, random_shift=1, batch_size=4)
    env = gymnasium.make("Camera-v0")
    observation, _ = env.reset(seed=0)
    action = load_policy(tmp_path / "run", "latest")(observation)
    rows = trainer.observations.flatten(observation)[np.newaxis]
    np.testing.assert_array_equal(action, trainer.agent.act(rows)[0])


def test_the_policy_uses_the_environments_observations_and_actions(
    train: TrainRun, tmp_path: Path
) -> None:
    trainer = train(**GEARS, evaluation_episodes=3)
    env = gymnasium.make("Gears-v0")
    policy = load_policy(tmp_path / "run", "latest")
    assert policy.observation_space == env.observation_space
    assert policy.action_space == env.action_space
    observation, info = env.reset(seed=5)
    action = policy(observation, info["action_mask"])
    assert env.action_space.contains(action)
    assert info["action_mask"][0][action[0] - 1]
    for index, gear in enumerate(info["action_mask"][0]):  # makes each gear the only valid one
        if gear:
            alone = (np.arange(4) == index).astype(np.int8), None
            assert policy(observation, alone)[0] == index + 1
    several = {"number": np.zeros((3, 1), np.float32), "gear": np.array([1, 2, 4])}
    gears, numbers = policy(several, (np.tile([0, 1, 0, 0], (3, 1)), None))
    np.testing.assert_array_equal(gears, [2, 2, 2])
    assert numbers.shape == (3, 1)
    seeds = evaluation_seeds(trainer.config.evaluation_seed, 3)
    results = read_results(trainer.run.evaluations_path)
    best = results.return_mean[results.best]
    assert run_episodes(load_policy(tmp_path / "run"), env, seeds).returns.mean() == best


class Told(gymnasium.Wrapper):
    """A pendulum that also observes a text instruction and a sensor that returns NaN."""

    observation_space = gymnasium.spaces.Dict(
        {
            "mission": gymnasium.spaces.Text(20, charset="stayup "),
            "heat": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32),
            "seen": gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32),
        }
    )

    def __init__(self) -> None:
        super().__init__(gymnasium.make("Pendulum-v1", max_episode_steps=40))

    def reset(self, **given: Any) -> Any:
        observation, info = super().reset(**given)
        return self._said(observation), info

    def step(self, action: np.ndarray) -> Any:
        observation, *rest = super().step(action)
        return self._said(observation), *rest

    def _said(self, observation: np.ndarray) -> dict[str, Any]:
        heat = np.full(2, np.nan, np.float32)
        return {"mission": "stay up", "heat": heat, "seen": observation}


@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"num_envs": 2, "collectors": "processes"}, marks=pytest.mark.long)],
)
def test_a_run_with_ignored_entries_equals_a_run_without_them(
    train: TrainRun, tmp_path: Path, settings: dict[str, Any]
) -> None:
    settings = settings | {"warmup_steps": 40, "replay_ratio": 0.04, "evaluate_every_steps": 60}
    pendulum = {"env_kwargs": {"max_episode_steps": 40}}
    straight = train("straight", **settings, steps=120, **pendulum)
    settings = settings | {"env": Told, "ignore_entries": "mission, heat"}
    train("parts", **settings, steps=77)
    trainer = train("parts", env=Told, steps=120)
    assert equal_weights(weights_of(trainer.agent), weights_of(straight.agent))
    env = Told()
    observation, _ = env.reset(seed=0)
    policy = load_policy(tmp_path / "parts", "latest")
    assert policy.observation_space == env.observation_space
    expected = load_policy(tmp_path / "straight", "latest")(observation["seen"])
    for given in (observation, {"seen": observation["seen"]}):
        np.testing.assert_array_equal(policy(given), expected)
    assert np.isfinite(run_episodes(policy, env, seeds=[0]).returns).all()
    with pytest.raises(
        RunError, match=r"ignore_entries has an effect only for Dict or Tuple obs|no entries"
    ):
        train("other", ignore_entries="mission")


def test_an_unsupported_entry_is_reported_with_the_flag_that_ignores_it(train: TrainRun) -> None:
    with pytest.raises(RunError, match=r"'mission' is Text.*ignore it with --ignore-entries mi"):
        train(env=Told)


class Measured(gymnasium.ObservationWrapper):
    """A pendulum whose speed is measured only in the laboratory."""

    def __init__(self, laboratory: bool = True) -> None:
        super().__init__(gymnasium.make("Pendulum-v1", max_episode_steps=40))
        self.sizes = {"angle": slice(2)} | ({"speed": slice(2, 3)} if laboratory else {})
        space = self.env.observation_space
        self.observation_space = gymnasium.spaces.Dict(
            {
                name: gymnasium.spaces.Box(space.low[columns], space.high[columns])
                for name, columns in self.sizes.items()
            }
        )

    def observation(self, observation: np.ndarray) -> dict[str, Any]:
        return {name: observation[columns] for name, columns in self.sizes.items()}


@pytest.mark.parametrize(
    "settings",
    [
        {"normalize_observations": True},
        pytest.param({"memory": "gru", "memory_units": 4, "sequence_length": 4}, marks=LONG),
        pytest.param({"num_envs": 2, "collectors": "processes", "policy_lag": 1}, marks=LONG),
        pytest.param({"sampling": "prioritized", "n_step": 3, "agent": "ddpg"}, marks=LONG),
    ],
)
def test_a_run_with_entries_of_critics_resumes_and_its_policy_works_without_them(
    train: TrainRun, tmp_path: Path, settings: dict[str, Any]
) -> None:
    settings = settings | {"critic_entries": "speed", "evaluate_every_steps": 60}
    settings |= {"env": Measured, "warmup_steps": 40, "replay_ratio": 0.04}
    straight = train("straight", **settings, steps=120)
    train("parts", **settings, steps=77)
    trainer = train("parts", env=Measured, steps=120)
    assert equal_weights(weights_of(trainer.agent), weights_of(straight.agent))
    policy = load_policy(tmp_path / "parts", "latest")
    found = [run_episodes(policy, Measured(given), seeds=[0, 1]) for given in (True, False)]
    own = run_episodes(trainer.agent.as_policy(), Measured(), seeds=[0, 1])
    for each in found:
        np.testing.assert_array_equal(each.returns, own.returns)
    with pytest.raises(RunError, match="critic_entries: unknown entry 'speed'; observations have"):
        train("other", **settings | {"env_kwargs": {"laboratory": False}})
    if "normalize_observations" in settings:
        given = {**SMALL, "env": Measured, "env_kwargs": {"laboratory": False}}
        given["hidden_sizes"] = trainer.agent.config.hidden_sizes
        given |= {"normalize_observations": True, "init_from": str(tmp_path / "parts")}
        with Trainer(open_run(tmp_path / "warm", "td3", given)) as warm:
            mean = warm.agent.normalization.moments.mean
            theirs = trainer.agent.normalization.moments.mean
            np.testing.assert_array_equal(mean, theirs[-len(mean) :])
            assert len(mean) < len(theirs)


def test_a_mask_without_valid_actions_is_reported_with_the_step(train: TrainRun) -> None:
    with pytest.raises(
        RunError, match=r"environment 0, step 7 .*action_mask\[0\] leaves no valid action"
    ):
        train(**GEARS, env_kwargs={"says": "nothing valid"}, check_env=False)


class Forgetful(toys.Gears):
    """Omits the mask of step 3."""

    def _shown(self) -> Any:
        observation, info = super()._shown()
        return observation, {} if self.count == 3 else info


class Misspelt(toys.Gears):
    """Allows every gear, and reports its masks under a misspelled key."""

    def __init__(self) -> None:
        super().__init__("nothing")

    def _shown(self) -> Any:
        return super()._shown()[0], {"action_masks": (np.ones(4), None)}


def test_a_missing_mask_is_reported(train: TrainRun) -> None:
    with pytest.raises(RunError, match=r"step 3 .*no action_mask, but .* reset contained one"):
        train(**GEARS | {"env": Forgetful}, check_env=False)
    lines = train("other", **GEARS | {"env": Misspelt}).lines
    assert any("info contains 'action_masks' but no 'action_mask'" in line for line in lines)


class Jammed(toys.Gears):
    """Allows no action after the first step while `jams` is true."""

    jams = False

    def _shown(self) -> Any:
        observation, info = super()._shown()
        if self.count == 1 and Jammed.jams:
            info["action_mask"] = (np.zeros(4), None)
        return observation, info


def test_a_mask_without_valid_actions_is_reported_by_the_check_and_by_evaluations(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = GEARS | {"env": Jammed, "steps": 150, "evaluate_every_steps": 150}
    where = r"action_mask\[0\] leaves no valid action"
    monkeypatch.setattr(Jammed, "jams", True)
    with pytest.raises(RunError, match=f"Jammed', step 1 of an episode: {where}"):
        train(**settings)
    monkeypatch.setattr(Jammed, "jams", False)
    original = training.evaluator.run_episodes

    def evaluated(*arguments: Any, **more: Any) -> Any:
        monkeypatch.setattr(Jammed, "jams", True)
        return original(*arguments, **more)

    monkeypatch.setattr(training.evaluator, "run_episodes", evaluated)
    with pytest.raises(RunError, match="after step 150: step 1 of an evaluation episode: " + where):
        train(**settings, check_env=False)


def test_disabled_masks_are_not_validated(train: TrainRun) -> None:
    class Odd(toys.Gears):
        def _shown(self) -> Any:
            return super()._shown()[0], {"action_mask": [0, 2]}

    settings = {"env": Odd, "env_kwargs": {"says": "nothing"}, "action_masks": False, "steps": 20}
    assert train(**GEARS | settings).steps == 20


def test_without_a_mask_all_actions_are_valid(train: TrainRun) -> None:
    assert train(**GEARS, env_kwargs={"says": "nothing"}).steps == 160


def test_with_disabled_masks_the_environment_receives_invalid_actions(
    train: TrainRun,
) -> None:
    with pytest.raises(RunError, match=r"gear \d is not valid"):
        train(**GEARS, action_masks=False, check_env=False)


def test_an_observation_outside_its_space_is_reported(
    train: TrainRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = toys.Gears._shown

    def shown(env: toys.Gears) -> Any:
        observation, info = original(env)
        return observation | ({"gear": 5} if env.count == 3 else {}), info

    monkeypatch.setattr(toys.Gears, "_shown", shown)
    with pytest.raises(
        RunError, match=r"step 3 of its episode: observation 'gear' must be in its space.*got 5"
    ):
        train(**GEARS, env_kwargs={"says": "nothing"}, check_env=False)


@pytest.mark.long
def test_a_mixed_environment_is_solved(tmp_path: Path) -> None:
    settings = {
        "env": "Gears-v0",
        "steps": 900,
        "warmup_steps": 300,
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "batch_size": 64,
        "hidden_sizes": (64, 64),
        "tau": 0.02,
        "discount": 0.5,
        "replay_ratio": 0.5,
        "evaluate_every_steps": 900,
        "mode": "graph",
    }
    with Trainer(open_run(tmp_path / "run", "td3", settings)) as trainer:
        trainer.train()
    # An episode has eight steps. It returns -11 with random valid actions and 0 with the best ones.
    assert read_results(trainer.run.evaluations_path).return_mean.max() > -1.5


class CountedTaxi(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Taxi-v4 that counts all actions and those that its mask forbids."""

    actions, invalid = 0, 0

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make("Taxi-v4", render_mode=render_mode))

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**options)
        self.mask = info["action_mask"]
        return observation, info

    def step(self, action: Any) -> Any:
        CountedTaxi.actions += 1
        CountedTaxi.invalid += int(self.mask[action] == 0)
        result = self.env.step(action)
        self.mask = result[-1]["action_mask"]
        return result


@pytest.mark.parametrize(
    ("masks", "steps", "seed"),
    [(True, 300_000, 0), (True, 300_000, 1), (True, 300_000, 2), (False, 60_000, 0)],
)
@pytest.mark.long
def test_taxi_is_learned_without_a_single_invalid_action(
    train: TrainRun, masks: bool, steps: int, seed: int
) -> None:
    # `make reproduce PARTS=discrete` uses the same settings.
    CountedTaxi.actions = CountedTaxi.invalid = 0
    settings = {"env": CountedTaxi, "steps": steps, "warmup_steps": 10_000, "batch_size": 256}
    settings |= {"actor_learning_rate": 1e-3, "critic_learning_rate": 1e-3, "tau": 0.05}
    settings |= {"replay_ratio": 0.1, "updates_per_call": 10, "hidden_sizes": (256, 256)}
    settings |= {"policy_delay": 2, "mode": "xla", "check_env": False, "action_masks": masks}
    settings |= {"evaluate_every_steps": 20_000, "evaluation_episodes": 20, "seed": seed}
    trainer = train(**settings, restore_episodes="no", checkpoint_every_steps=60_000)
    sys.stdout.write(f"{CountedTaxi.actions} actions, {CountedTaxi.invalid} of them invalid\n")
    assert CountedTaxi.actions > steps
    assert (CountedTaxi.invalid == 0) == masks
    last = read_results(trainer.run.evaluations_path).return_mean[-1]
    assert last > 5 if masks else last < 5
