"""Labels group the runs of one algorithm and name only what sets a group apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eagerly.curves.labels import OVERRIDES, algorithm_overrides, labels
from eagerly.storage.run_settings import COMPARABLE, new_run_defaults

BASE = {"agent": "td3", "env": "Hopper-v5", "seed": 0, "tau": 0.005, "batch_size": 256}
BASE |= {OVERRIDES: []}


def _labels(*changes: dict[str, Any]) -> list[str]:
    return labels(
        [(Path(f"runs/run-{n}"), {**BASE, **changed}) for n, changed in enumerate(changes)]
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mode", ("xla", "graph")),
        ("device", ("cpu", "gpu")),
        ("intra_op_threads", (1, 2)),
        ("collectors", ("here", "processes")),
        ("checkpoint_every_steps", (100, 10_000)),
        ("evaluate_every_steps", (100, 500)),
        ("seed", (0, 1)),
        ("steps", (100, 200)),
    ],
)
def test_settings_that_cannot_change_the_algorithm_split_no_group(
    name: str, values: tuple[Any, Any]
) -> None:
    assert _labels({name: values[0]}, {name: values[1]}) == ["td3", "td3"]


def test_every_other_setting_splits_groups() -> None:
    """A new setting counts as part of the algorithm unless its declaration says otherwise."""
    assert {
        "mode", "device", "intra_op_threads", "inter_op_threads", "seed", "group_size",
        "evaluate_every_steps", "evaluation_episodes", "evaluation_seed", "summarize_every_steps",
    } <= COMPARABLE  # fmt: skip
    assert COMPARABLE.isdisjoint(
        {"env", "env_kwargs", "init_from", "num_envs", "precision", "updates_per_call"}
    )
    # With a limit, an evaluation measures something else.
    assert "evaluation_steps_limit" not in COMPARABLE
    for name in new_run_defaults("td3").keys() - COMPARABLE - {"env"}:
        assert len(set(_labels({name: 1}, {name: 2}))) == 2, name


def test_only_settings_that_differ_from_the_majority_are_shown() -> None:
    assert _labels({}, {"tau": 0.1}, {"batch_size": 32}, {"tau": 0.1, "batch_size": 32}, {}) == [
        "td3, tau 0.005, batch_size 256",
        "td3, tau 0.1, batch_size 256",
        "td3, tau 0.005, batch_size 32",
        "td3, tau 0.1, batch_size 32",
        "td3, tau 0.005, batch_size 256",
    ]  # each value occurs in two groups: there is no majority
    assert _labels({}, {"tau": 0.1}, {"batch_size": 32}) == [
        "td3",
        "td3, tau 0.1",
        "td3, batch_size 32",
    ]


def test_a_group_of_many_runs_counts_once() -> None:
    many = [{"tau": 0.1, "seed": seed} for seed in range(5)]
    assert _labels(*many, {"tau": 0.2}, {"tau": 0.2, "batch_size": 1})[::5] == [
        "td3, tau 0.1",
        "td3",
    ]


def test_overridden_runs_are_groups_of_their_own() -> None:
    def overridden(steps: int, **changes: list[Any]) -> dict[str, Any]:
        return {OVERRIDES: algorithm_overrides([{"steps": steps, "overridden": changes}])}

    changed = overridden(9, tau=[0.1, 0.005], mode=["xla", "graph"])
    same = overridden(9, tau=[0.1, 0.005])
    other = overridden(9, tau=[0.2, 0.005])  # the same settings now, but not before
    irrelevant, unused = overridden(9, mode=["xla", "graph"]), overridden(0, tau=[0.1, 0.005])
    assert _labels({}, irrelevant, unused, changed, same, {"tau": 0.1}, {"tau": 0.1} | other) == [
        *["td3, tau 0.005"] * 3,
        *["td3, tau 0.005 (overridden at 9)"] * 2,
        "td3, tau 0.1",
        "td3, tau 0.1 (overridden at 9)",
    ]
    assert _labels(changed, other) == [
        "td3 (overridden at 9) (runs/run-0)",
        "td3 (overridden at 9) (runs/run-1)",
    ]
    two = algorithm_overrides([{"steps": n, "overridden": {"tau": [1, 2]}} for n in (9, 12)])
    assert _labels({OVERRIDES: two}) == ["td3 (overridden at 9, 12)"]


def test_labels_are_built_per_environment_and_agent() -> None:
    walker, ddpg = {"env": "Walker2d-v5"}, {"agent": "ddpg", "tau": 0.001}
    assert _labels({"tau": 0.1}, walker, walker | {"tau": 0.1}, ddpg) == [
        "td3",
        "td3, tau 0.005",
        "td3, tau 0.1",
        "ddpg",
    ]


def test_numbers_have_three_digits_unless_more_are_needed() -> None:
    assert _labels({"tau": 0.0123456789012345}, {"tau": 0.02}) == [
        "td3, tau 0.0123",
        "td3, tau 0.02",
    ]
    assert _labels({"tau": 0.01234}, {"tau": 0.01233}) == ["td3, tau 0.01234", "td3, tau 0.01233"]
    assert _labels({"replay_capacity": 123_456}, {"replay_capacity": 1_000_000}) == [
        "td3, replay_capacity 123456",
        "td3, replay_capacity 1000000",
    ]
    assert _labels({"reward_scale": 1}, {"reward_scale": 1.0}) == ["td3", "td3"]


def test_values_have_their_command_line_form() -> None:
    assert _labels({"hidden_sizes": [8, 8]}, {"hidden_sizes": [8]}) == [
        "td3, hidden_sizes 8,8",
        "td3, hidden_sizes 8",
    ]
    assert _labels({"layer_norm": True}, {"layer_norm": False}) == [
        "td3, layer_norm",
        "td3, no layer_norm",
    ]
    assert _labels({"init_from": ""}, {"init_from": "runs/a"}) == [
        "td3, no init_from",
        "td3, init_from runs/a",
    ]
    assert (
        _labels({"env_kwargs": {"a": 1, "b": 2}}, {"env_kwargs": {"b": 2, "a": 1}}) == ["td3"] * 2
    )


def test_above_three_settings_a_label_is_the_name_of_the_folder() -> None:
    plain = {"n_step": 1, "policy_delay": 2, "reward_scale": 1.0}
    four = plain | {"tau": 0.2, "batch_size": 48, "n_step": 5, "policy_delay": 1}
    three = plain | {"tau": 0.1, "batch_size": 32, "n_step": 3}
    runs = [plain, plain | {"reward_scale": 2.0}, three, four]
    assert _labels(*runs)[2:] == ["td3, tau 0.1, batch_size 32, n_step 3", "run-3"]

    def label(*paths: str) -> str:
        copies = [(Path(p), BASE | four | {"seed": seed}) for seed, p in enumerate(paths)]
        return labels([*((Path(str(n)), BASE | run) for n, run in enumerate(runs[:3])), *copies])[3]

    assert label("runs/fast/seed-0", "runs/fast/seed-1") == "fast"
    assert label("runs/fast-0", "runs/fast-1") == "fast"
    assert label("runs/layers-10", "runs/layers-11") == "layers-10"  # 0 and 1 are not their seeds
    assert label("runs/layers-1-0", "runs/layers-1_seed1") == "layers-1"
    assert label("runs/fast/0", "runs/fast/1") == label("runs/fast/0") == "fast"
    assert label("runs/monday", "runs/friday") == "monday"
    assert label("0/td3") == "td3 (0/td3)"  # another group is named td3
