"""Suggestions for unknown names of settings."""

from __future__ import annotations

import pytest

from eagerly.agents import agent_names, config_class
from eagerly.settings import flag_name
from eagerly.storage.config import RunConfig
from eagerly.suggestions import AGENT_NAMES, RUN_NAMES, suggestion

OF_AGENTS = {name for agent in agent_names() for name in config_class(agent).SETTINGS}
OF_RUNS = {*RunConfig.SETTINGS, "agent", "run_dir"}


def test_the_table_names_existing_settings_and_hides_none() -> None:
    assert {name for names in RUN_NAMES.values() for name in names} <= OF_RUNS
    assert {name for names in AGENT_NAMES.values() for name in names} <= OF_AGENTS
    assert not (RUN_NAMES.keys() | AGENT_NAMES.keys()) & (OF_AGENTS | OF_RUNS)


@pytest.mark.parametrize(
    ("unknown", "known", "text"),
    [
        ("gamma", OF_AGENTS, "Use discount."),
        ("lr", OF_AGENTS, "Use actor_learning_rate and critic_learning_rate."),
        ("polyak", OF_AGENTS, "Use tau, which is 1 - polyak."),
        ("polyak", {"discount"}, ""),
        ("buffer_size", OF_RUNS, "Use replay_capacity."),
        ("buffer_size", OF_AGENTS, "Use replay_capacity in eagerly.train."),
        ("learning_starts", OF_AGENTS, "Use warmup_steps in eagerly.train."),
        ("warmup_steps", OF_AGENTS, "Use warmup_steps in eagerly.train."),
        ("tensorboard_log", OF_RUNS, "Use run_dir."),
        ("Total-Timesteps", OF_RUNS, "Use steps."),
        ("total_steps", OF_RUNS, "Use steps."),
        ("num_env", OF_RUNS, "Did you mean num_envs?"),
        ("gama", OF_AGENTS, "Did you mean discount?"),
        ("polyac", OF_AGENTS, "Did you mean tau, which is 1 - polyak?"),
        ("lerning_rate", {"discount"}, ""),
        ("algo", OF_RUNS, "Use agent."),
        ("gravity", OF_RUNS, ""),
        ("log_interval", OF_RUNS, "Use summarize_every_steps."),
        ("n-trials", OF_RUNS, "Use eagerly tune."),
        ("callback", OF_AGENTS, "Use callbacks in eagerly.train."),
    ],
)
def test_a_suggestion_names_the_intended_setting(unknown: str, known: set[str], text: str) -> None:
    assert suggestion(unknown, known) == text


def test_a_suggestion_may_name_options() -> None:
    assert suggestion("learning_starts", OF_RUNS, flag_name) == "Use --warmup-steps."
    assert suggestion("learning_starts", {"tau"}, flag_name) == ""
