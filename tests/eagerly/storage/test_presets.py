"""Environment presets and their precedence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest

from eagerly import open_run
from eagerly.agents import agent_names, config_class
from eagerly.errors import RunError
from eagerly.settings import flag_name
from eagerly.storage.presets import ENVIRONMENTS, presets
from eagerly.storage.run import Run
from eagerly.storage.run_settings import format_setting
from tests.helpers import ROOT


def _opened(tmp_path: Path, agent: str = "td3", **given: Any) -> Run:
    return open_run(tmp_path / "run", agent, given)


@pytest.mark.parametrize("agent", agent_names())
@pytest.mark.parametrize("env", list(ENVIRONMENTS))
def test_every_preset_belongs_to_an_environment_and_is_valid_for_every_agent(
    env: str, agent: str, tmp_path: Path
) -> None:
    assert env in gymnasium.registry
    preset = ENVIRONMENTS[env]
    assert preset.evidence
    settings = _opened(tmp_path, agent, env=env).settings()
    taken = config_class(agent).FROM_ENVIRONMENTS
    for name, value in preset.settings.items():
        assert (settings.get(name) == value) or (taken is not None and name not in taken)


def test_an_agent_uses_only_the_preset_settings_that_it_names(
    tmp_path: Path,
) -> None:
    run = _opened(tmp_path, "td7", env="Pendulum-v1")
    assert run.preset == "Pendulum-v1: warmup_steps 1000"
    assert (run.config.warmup_steps, run.agent_config.actor_learning_rate) == (1000, 3e-4)


@pytest.mark.parametrize("given", [{}, {"preset": "defaults"}])
def test_an_agent_can_define_other_defaults_for_run_settings(
    tmp_path: Path, given: dict[str, str]
) -> None:
    run = _opened(tmp_path, "td7", env="HalfCheetah-v5", **given)
    assert run.config.warmup_steps == 25_000
    run = _opened(tmp_path, "td7", env="HalfCheetah-v5", warmup_steps=5, **given)
    assert run.config.warmup_steps == 5


def test_a_new_run_uses_and_reports_the_preset_of_its_environment(tmp_path: Path) -> None:
    run = _opened(tmp_path, env="Swimmer-v5")
    assert run.agent_config.discount == 0.9999
    assert run.preset == "Swimmer-v5: discount 0.9999"
    run = _opened(tmp_path, env="HalfCheetah-v5")
    assert run.preset == "HalfCheetah-v5: the defaults"


def test_an_environment_without_a_preset_uses_and_reports_the_defaults(tmp_path: Path) -> None:
    run = _opened(tmp_path, env="Pusher-v5")
    assert run.config.warmup_steps == 10_000
    assert run.preset == "none for Pusher-v5: the defaults"


def test_an_agents_preset_sets_run_settings_and_replaces_the_environments(tmp_path: Path) -> None:
    run = _opened(tmp_path, "td7", env="Swimmer-v5", preset="efficient")
    assert (run.agent_config.embedding_size, run.agent_config.discount) == (128, 0.99)
    assert (run.config.warmup_steps, run.config.policy_checkpoints) == (1000, False)


def test_settings_in_a_file_have_an_effect_if_the_agent_has_other_defaults(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("hidden_sizes = [64, 64]\ncheckpoint_episodes = 5\n")
    run = _opened(tmp_path, "td7", env="Pendulum-v1", preset=str(file))
    assert (run.agent_config.hidden_sizes, run.config.checkpoint_episodes) == ((64, 64), 5)
    run = _opened(tmp_path, "td7", env="Pendulum-v1", preset=str(file), hardware=True)
    assert run.config.checkpoint_episodes != 5  # without policy checkpoints


def test_given_settings_take_precedence_over_the_preset(tmp_path: Path) -> None:
    run = _opened(tmp_path, env="Pendulum-v1", warmup_steps=7)
    assert (run.config.warmup_steps, run.agent_config.actor_learning_rate) == (7, 1e-3)
    acting = "actor_learning_rate 0.001, critic_learning_rate 0.001"
    assert run.preset == f"Pendulum-v1: {acting}; overridden: warmup_steps 7"


def test_another_preset_or_the_defaults_can_be_selected(tmp_path: Path) -> None:
    run = _opened(tmp_path, env="Swimmer-v5", preset="defaults")
    assert (run.agent_config.discount, run.preset) == (0.99, "defaults: the defaults")
    run = _opened(tmp_path, env="Pusher-v5", preset="Swimmer-v5")
    assert run.agent_config.discount == 0.9999
    run = _opened(tmp_path, env="Swimmer-v5", preset=None)
    assert run.agent_config.discount == 0.9999
    file = tmp_path / "mine.toml"
    file.write_text("discount = 0.5\n")
    assert _opened(tmp_path, env="Swimmer-v5", preset=file).agent_config.discount == 0.5
    with pytest.raises(RunError, match=r"preset must be a name or the path of .*; got 3"):
        _opened(tmp_path, env="Swimmer-v5", preset=3)
    run = _opened(tmp_path, "ddpg", env="Swimmer-v5", preset="article")
    assert (run.agent_config.discount, run.agent_config.batch_size) == (0.99, 100)
    with pytest.raises(RunError, match=r"preset must be one of environment, defaults, .*'best'"):
        _opened(tmp_path, env="Swimmer-v5", preset="best")
    assert "article" not in presets("td3")


def test_a_saved_run_keeps_its_settings_even_if_the_preset_changes(tmp_path: Path) -> None:
    run = _opened(tmp_path, env="Swimmer-v5", discount=0.5)
    run.write()
    run.unlock()
    again = _opened(tmp_path, env="Swimmer-v5")
    assert (again.agent_config.discount, again.preset) == (0.5, "")
    with pytest.raises(RunError, match=r"--discount: the run has 0\.5, you gave 0\.9999"):
        _opened(tmp_path, preset="environment")


def test_the_documentation_lists_all_presets() -> None:
    page = (ROOT / "docs" / "environments.md").read_text()
    for env, preset in ENVIRONMENTS.items():
        given = [
            f"`{flag_name(name)} {format_setting(value)}`"
            for name, value in preset.settings.items()
        ]
        assert f"| {env} | {', '.join(given) or 'nothing'} |\n" in page + "\n", env
