"""Opening runs: given settings must match the saved ones, and omitted settings are kept."""

from __future__ import annotations

import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from eagerly import TD3, open_run
from eagerly.agents.td3_config import TD3Config
from eagerly.errors import RunError
from eagerly.storage.config import RunConfig
from tests.helpers import ROOT, edit_sealed


def started(path: Path, **settings: Any) -> Path:
    run = open_run(path / "run", "td3", {"env": "Pendulum-v1"} | settings)
    run.write()
    run.unlock()
    return run.path


def edit(path: Path, change: Any) -> None:
    """Changes and reseals a `config.json`, as another version or an attacker would."""
    edit_sealed(path / "config.json", change)


def test_a_new_run_has_the_given_settings_and_defaults_for_all_others(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", "td3", {"env": "Pendulum-v1", "tau": 0.1, "num_envs": 3})
    assert run.is_new
    assert (run.config.num_envs, run.config.seed) == (3, RunConfig(env="x").seed)
    assert (run.agent_config.tau, run.agent_config.policy_delay) == (0.1, 2)
    assert not run.path.exists()


def test_omitted_settings_keep_their_saved_values_when_defaults_change(tmp_path: Path) -> None:
    path = started(tmp_path)
    edit(path, lambda d: d["settings"].update(tau=0.25))  # simulates another version's default
    run = open_run(path, "td3", {"env": "Pendulum-v1", "steps": 7})
    assert not run.is_new
    assert run.agent_config.tau == 0.25
    assert run.config.steps == 7


def test_a_setting_missing_from_an_old_run_gets_its_default(tmp_path: Path) -> None:
    path = started(tmp_path)
    edit(path, lambda d: d["settings"].pop("layer_norm"))
    assert open_run(path, None, {}).agent_config.layer_norm is False


def test_given_settings_that_differ_are_listed_and_rejected(tmp_path: Path) -> None:
    path = started(tmp_path, hidden_sizes=(64, 64))
    same = {"env": "Pendulum-v1", "hidden_sizes": (64, 64)}
    assert open_run(path, "td3", same).agent_config.hidden_sizes == (64, 64)
    with pytest.raises(RunError) as caught:
        open_run(path, "td3", same | {"tau": 0.5, "seed": 3, "checkpoint_every_steps": 1})
    message = str(caught.value)
    assert "--tau: the run has 0.005, you gave 0.5" in message
    assert "--seed: the run has 0, you gave 3" in message
    assert "checkpoint" not in message
    assert "--override" in message


def test_given_settings_may_be_lists_and_unknown_ones_are_named(tmp_path: Path) -> None:
    path = started(tmp_path, hidden_sizes=[64, 64])
    assert not open_run(path, "td3", {"hidden_sizes": [64, 64]}).overridden
    with pytest.raises(RunError, match="--hidden-sizes: the run has 64,64, you gave 8,8"):
        open_run(path, "td3", {"hidden_sizes": [8, 8]})
    with pytest.raises(RunError, match="unknown settings: tua"):
        open_run(path, "td3", {"tua": 1})


@pytest.mark.parametrize("override", [False, True])
def test_changes_of_immutable_settings_are_rejected_with_advice(
    tmp_path: Path, override: bool
) -> None:
    path = started(tmp_path, schedule="linear", schedule_steps=10)
    for given, (flag, kept) in (
        ({"schedule": "constant"}, ("--schedule", "linear")),
        ({"normalize_rewards": True}, ("--normalize-rewards", "False")),
        ({"quantize": "int8"}, ("--quantize", "none")),
        ({"data": "logs"}, ("--data", "none")),
    ):
        with pytest.raises(RunError, match=f"{flag} of .* must stay {kept}, .* with --init-from"):
            open_run(path, "td3", given, override=override)
    assert not open_run(path, "td3", {"schedule": "linear"}).overridden


def test_an_override_is_recorded(tmp_path: Path) -> None:
    path = started(tmp_path)
    run = open_run(path, "td3", {"tau": 0.5, "steps": 5}, override=True)
    assert run.overridden == {"tau": [0.005, 0.5]}
    before = open_run(path, None, {}).document()
    run.write(steps=3)
    again = open_run(path, None, {})
    assert again.changes(before) == {"tau": [0.005, 0.5]}
    assert again.agent_config.tau == 0.5
    assert not again.overridden
    assert (again.history[0]["steps"], again.history[0]["overridden"]) == (3, {"tau": [0.005, 0.5]})


def test_another_agent_or_environment_is_rejected(tmp_path: Path) -> None:
    path = started(tmp_path)
    edit(path, lambda d: d.update(agent="ddpg"))
    with pytest.raises(RunError, match="is a run of ddpg, not of td3"):
        open_run(path, "td3", {})
    with pytest.raises(RunError, match=r"agent must be one of ddpg, .*; got 'sac'"):
        open_run(path, "sac", {})
    edit(path, lambda d: d.update(agent="td3"))
    with pytest.raises(RunError, match="--env: the run has Pendulum-v1, you gave Hopper-v5"):
        open_run(path, "td3", {"env": "Hopper-v5"})


def test_a_directory_that_is_not_a_run_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunError, match=r"is not a run directory \(no config.json\)"):
        open_run(tmp_path, "td3", {"env": "Pendulum-v1"})
    with pytest.raises(RunError, match=r"is not a run directory: it has no config\.json"):
        open_run(tmp_path, None, {})
    with pytest.raises(RunError, match=r"missing does not exist: pass the path of a run directory"):
        open_run(tmp_path / "missing", None, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(format=99), "newer version of eagerly"),
        (lambda d: d.pop("agent"), "cannot be read"),
        (lambda d: d.update(settings=[]), "settings must be of type dict"),
        (lambda d: d["settings"].update(gravity=9.8), "unknown settings: gravity"),
        (
            lambda d: d["settings"].update(num_envs=0),
            r"num_envs must be at least 1 and at most 4,096; got 0",
        ),
        (lambda d: d["settings"].update(num_envs="3"), "num_envs must be of type int; got '3'"),
        (
            lambda d: d.update(agent="ppo"),
            "one of ddpg, td3, td3_bc, td7, or module:Class; got 'ppo'",
        ),
    ],
)
def test_an_invalid_config_is_rejected(tmp_path: Path, change: Any, message: str) -> None:
    path = started(tmp_path)
    edit(path, change)
    with pytest.raises(RunError, match=message):
        open_run(path, None, {})


def test_a_config_that_is_not_json_is_rejected(tmp_path: Path) -> None:
    path = started(tmp_path)
    (path / "config.json").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        open_run(path, None, {})


def test_settings_out_of_range_or_inconsistent_are_rejected(tmp_path: Path) -> None:
    for settings, message in (
        ({"tau": 2.0}, r"tau must be above 0 and at most 1; got 2.0"),
        ({"replay_capacity": 3, "num_envs": 4}, r"replay_capacity must be at least num_envs \(4\)"),
        ({"seed": -1}, r"seed must be at least 0 and at most 2,147,483,647; got -1"),
        (
            {"tua": 0.1, "gamma": 1},
            r"unknown settings: gamma, tua\. Use discount\. Did you mean tau\?",
        ),
        ({"policy_lag": -1}, r"policy_lag must be at least 0 and at most 1; got -1"),
    ):
        with pytest.raises(RunError, match=message):
            open_run(tmp_path / "run", "td3", {"env": "Pendulum-v1"} | settings)
    with pytest.raises(RunError, match="set --env"):
        open_run(tmp_path / "run", "td3", {})
    with pytest.raises(RunError, match=r"unknown settings: environment\. Use env\."):
        open_run(tmp_path / "run", "td3", {"environment": "Pendulum-v1"})


def test_generated_run_directories_have_readable_and_unique_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [open_run(None, "td3", {"env": "Pendulum-v1", "seed": 4}) for _ in range(3)]
    for run in runs:  # like parallel processes, opens all runs before creating the first
        run.write()
    paths = [run.path for run in runs]
    assert len(set(paths)) == 3
    assert all(str(path).startswith("runs/td3-Pendulum-v1-4-") for path in paths)


class OtherDefaults(TD3Config):
    """Changes defaults of the agent, some of them in groups, and of the run."""

    DEFAULTS = MappingProxyType({"memory_units": 32, "weight_decay": 0.01})
    RUN_DEFAULTS = MappingProxyType({"replay_ratio": 0.25, "warmup_steps": 500})


class WithOtherDefaults(TD3):
    Config = OtherDefaults


@pytest.mark.parametrize(("preset", "warmup_steps"), [("defaults", 500), (None, 1000)])
def test_defaults_of_an_agent_and_its_runs_can_be_changed(
    tmp_path: Path, preset: str | None, warmup_steps: int
) -> None:
    given: dict[str, Any] = {"env": "Pendulum-v1"} | ({"preset": preset} if preset else {})
    run = open_run(tmp_path / "run", f"{__name__}:WithOtherDefaults", given)
    assert (run.agent_config.memory_units, run.agent_config.weight_decay) == (32, 0.01)
    # The preset of the environment takes precedence over the defaults.
    assert (run.config.replay_ratio, run.config.warmup_steps) == (0.25, warmup_steps)


@pytest.mark.parametrize("name", ["tau", "warmup_step"])
def test_defaults_of_a_run_must_be_run_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(OtherDefaults, "RUN_DEFAULTS", {name: 1})
    with pytest.raises(RunError, match=f"must contain run settings; got {name}: correct its name"):
        open_run(tmp_path / "run", f"{__name__}:WithOtherDefaults", {"env": "Pendulum-v1"})


def test_every_setting_has_help_and_numbers_have_a_range() -> None:
    for name, each in (RunConfig.SETTINGS | TD3Config.SETTINGS).items():
        assert each.help
        if each.kinds in ((int,), (float,)):
            assert each.range(), name


def test_opening_a_run_takes_few_calls(tmp_path: Path) -> None:
    calls: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and Path(name).resolve().is_relative_to(ROOT) and ".venv" not in name:
            calls.append(f"{name}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        open_run(tmp_path / "run", "td3", {"env": "HalfCheetah-v5"})
    finally:
        sys.setprofile(None)
    assert 100 < len(calls) <= 400
