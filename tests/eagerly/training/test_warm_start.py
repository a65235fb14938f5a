"""Runs initialized with the policy of another run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly import load_policy
from eagerly.errors import RunError
from eagerly.storage.replayed import replayed_rows
from eagerly.storage.run import open_run
from tests.eagerly.training.test_trainer import _same
from tests.helpers import edit_sealed
from tests.small_runs import TrainRun

OBSERVATION = np.array([0.6, -0.8, 1.5], np.float32)


@pytest.mark.parametrize(
    "normalized",
    [pytest.param(False, id="raw", marks=pytest.mark.long), pytest.param(True, id="normalised")],
)
def test_a_run_is_initialized_with_the_best_policy_of_another(
    train: TrainRun, tmp_path: Path, normalized: bool
) -> None:
    settings: dict[str, Any] = {"normalize_observations": normalized, "warmup_steps": 40}
    settings |= {"replay_ratio": 0.04, "evaluate_every_steps": 70}
    first = train("first", **settings, actor_learning_rate=0.03, steps=150)
    policy = load_policy(tmp_path / "first")
    trainer = train("second", **settings, seed=1, init_from=str(tmp_path / "first"), steps=30)
    line = f"starts with the policy of {tmp_path / 'first'} from step {policy.steps}"
    assert line in trainer.lines
    for model in (trainer.agent.actor.network, trainer.agent.actor.target):
        acted = np.array(model(OBSERVATION[np.newaxis]))[0]
        expected = policy(OBSERVATION)
        np.testing.assert_allclose(trainer.actions.to_environment(acted), expected, 1e-4, 1e-5)
    shutil.copytree(tmp_path / "first", tmp_path / "overridden")
    entry = {"time": "2026-01-01T00:00:00+00:00", "steps": 150, "overridden": {"tau": [0.1, 0.2]}}
    edit_sealed(tmp_path / "overridden" / "config.json", lambda d: d["history"].append(entry))
    other = train("third", **settings, init_from=str(tmp_path / "overridden"), steps=10)
    assert any(line.endswith("overridden from step 150") for line in other.lines)
    if normalized:
        counts = [each.agent.normalization.moments.count for each in (trainer, first)]
        assert counts[0] > counts[1] > 0
    given = {"seed": 1, "init_from": str(tmp_path / "first"), "steps": 30}
    whole = train("whole", **settings, **given, init_critics=True)
    for name in ("critic", "critic_target"):
        own, theirs = (t.agent.modules.networks()[name].variables for t in (whole, first))
        for mine, source in zip(own, theirs, strict=True):
            if "normalization" not in mine.path:  # statistics are applied before the first update
                np.testing.assert_array_equal(mine.numpy(), source.numpy())
    longer = {"seed": 1, "init_from": str(tmp_path / "first")}
    straight = train("straight", **settings, **longer, steps=100)
    _same(train("second", steps=100), straight)
    other = train("other", **settings, seed=1, steps=100)
    assert not np.array_equal(
        straight.agent.act(OBSERVATION[np.newaxis]),
        other.agent.act(OBSERVATION[np.newaxis]),
    )


def test_networks_that_critics_use_are_copied_with_them(train: TrainRun, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"agent": "td7", "normalize_rewards": True}
    first = train("first", **settings, warmup_steps=40, steps=100)
    settings |= {"init_from": str(tmp_path / "first"), "init_critics": True, "seed": 1}
    second = train("second", **settings, warmup_steps=40, steps=30)
    theirs = first.agent.modules.networks()
    for name, network in second.agent.modules.networks().items():
        for mine, source in zip(network.variables, theirs[name].variables, strict=True):
            np.testing.assert_array_equal(mine.numpy(), source.numpy())
    assert second.agent.rewards.moments.count > first.agent.rewards.moments.count > 0
    with pytest.raises(
        RunError, match=r"--reward-scale is 1\.0 in .* the same with --init-critics"
    ):
        train("third", **settings, reward_scale=2.0, steps=30)


def test_an_invalid_run_or_incompatible_actor_is_rejected(train: TrainRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not exist"):
        train(init_from=str(tmp_path / "nothing"))
    train("first", steps=50)
    with pytest.raises(
        RunError, match=r"(?s)--init-from: the networks of .*first are incompatible with this"
    ):
        train(init_from=str(tmp_path / "first"), hidden_sizes=(16,))
    with pytest.raises(RunError, match="are incompatible with this run's"):
        train(init_from=str(tmp_path / "first"), normalize_observations=True)
    normalized = {"normalize_observations": True, "normalization_floor": 2.0}
    with pytest.raises(RunError, match=r"--normalization-floor is 0\.0 in .* and 2\.0 in this"):
        train(init_from=str(tmp_path / "first"), **normalized)
    with pytest.raises(RunError, match=r"--activation is relu in .* and tanh in this run"):
        train(init_from=str(tmp_path / "first"), activation="tanh")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("normalized", [False, True], ids=["raw", "normalised"])
def test_an_unquantized_policy_can_initialize_a_quantized_run_but_not_vice_versa(
    train: TrainRun, tmp_path: Path, normalized: bool
) -> None:
    common: dict[str, Any] = {"normalize_observations": normalized, "hidden_sizes": (8, 8)}
    first = train("first", **common, steps=50)
    settings = {"quantize": "int8", "init_from": str(tmp_path / "first"), **common}
    second = train("second", steps=60, **settings)
    begun = second.agent.policy_weights()
    for path, values in first.agent.policy_weights().items():
        np.testing.assert_array_equal(begun[path], values)
    # The ranges must be those of the first run's observations and of their outputs of each layer.
    run, acting = open_run(tmp_path / "first", None, {}), load_policy(tmp_path / "first", "latest")
    spaces = run.agent_config.spaces(acting.observation_space, acting.action_space)
    hidden = acting.actor.scaled(replayed_rows(run, *spaces, 10_000))
    assert len(hidden) == 50
    ranges = [(hidden.min(), hidden.max())]
    for layer in ("hidden_0", "hidden_1", "action"):
        kernel, bias = (acting.actor.network.weights[f"{layer}/{p}"] for p in ("kernel", "bias"))
        hidden = hidden @ kernel + bias
        hidden = np.maximum(hidden, 0.0) if layer != "action" else np.clip(hidden, -4.0, 4.0)
        ranges.append((hidden.min(initial=0.0), hidden.max(initial=0.0)))
    low, high = (begun[f"quantization/{part}"] for part in ("low", "high"))
    np.testing.assert_allclose(np.transpose([low, high])[:4], ranges, 1e-5, 2.0**-10)
    assert not second.agent.acting._quantization.is_first()
    train("third", steps=50, quantize="int8", **common)
    with pytest.raises(RunError, match="are incompatible with this run's: trained networks cannot"):
        train("fourth", init_from=str(tmp_path / "third"), **common)


def test_quantization_ranges_start_wide_if_the_other_run_has_no_replay_buffer(
    train: TrainRun, tmp_path: Path
) -> None:
    train("first", steps=50)
    shutil.rmtree(tmp_path / "first" / "replay")
    second = train("second", steps=50, quantize="int8", init_from=str(tmp_path / "first"))
    assert any(
        "first has no replay buffer to measure quantization ranges" in x for x in second.lines
    )
    assert second.agent.acting._quantization.is_first()


class Weaker(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A pendulum with half the torque."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make("Pendulum-v1", render_mode=render_mode))
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))


class WithArm(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A pendulum whose observations have another entry."""

    def __init__(self, render_mode: str | None = None) -> None:
        env = gymnasium.make("Pendulum-v1", render_mode=render_mode)
        super().__init__(env)
        arm = gymnasium.spaces.Box(-1.0, 1.0, (2,))
        self.observation_space = gymnasium.spaces.Dict(
            {"arm": arm, "pendulum": env.observation_space}
        )

    def observation(self, observation: np.ndarray) -> Any:
        return {"arm": np.zeros(2, np.float32), "pendulum": observation}


def test_different_spaces_and_wrappers_are_reported(train: TrainRun, tmp_path: Path) -> None:
    train("first", steps=50)
    told = f"{tmp_path / 'first'} and this run differ in "
    settings = {"init_from": str(tmp_path / "first"), "steps": 50}
    same = train("same", **settings)
    assert not any(told in line for line in same.lines)
    limit = "eagerly.wrappers:RateLimit(change=0.1)"
    other = train("other", **settings, env=Weaker, wrapper=[limit])
    assert [line.removeprefix(told) for line in other.lines if told in line] == [
        "actions: Box(-2.0, 2.0, (1,), float32) and Box(-1.0, 1.0, (1,), float32)",
        f"--wrapper: none and {limit}",
    ]


def test_different_observations_are_reported_before_weights(
    train: TrainRun, tmp_path: Path
) -> None:
    train("first", steps=50)
    message = (
        r"first observes Box\(-inf, inf, \(3,\), float32\); this run observes Dict\('arm': Box\("
    )
    with pytest.raises(RunError, match=message):
        train("second", init_from=str(tmp_path / "first"), env=WithArm)
