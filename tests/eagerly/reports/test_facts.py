"""Settings that differ, overrides and versions of the runs of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eagerly.curves.groups import Curve, RunGroup
from eagerly.reports.facts import differing_settings, overrides, values_and_runs


def _group(label: str, *settings: dict[str, Any], history: tuple[Any, ...] = ()) -> RunGroup:
    nothing = np.zeros(0)
    runs = [{"agent": label, "seed": n} | each for n, each in enumerate(settings)]
    curves = (
        Curve(
            *(label, "Ant-v5", run["seed"], nothing, nothing, nothing, nothing),
            path=Path(label) / str(run["seed"]),
            settings=run,
            history=history,
        )
        for run in runs
    )
    return RunGroup(label, "Ant-v5", tuple(curves))


def test_settings_that_differ_have_the_values_of_each_group() -> None:
    groups = [
        _group("td3", {"tau": 0.1, "steps": 5, "policy_delay": 2}, {"tau": 0.1, "steps": 6}),
        _group("ddpg", {"tau": 0.2, "steps": 5, "decay": [1, 2]}),
    ]
    assert differing_settings(groups) == [
        ("agent", ["td3", "ddpg"]),
        ("tau", ["0.1", "0.2"]),
        ("steps", ["5, 6", "5"]),
    ]
    many = _group("td3", *({"gamma": n} for n in range(7)))
    assert differing_settings([many]) == [("gamma", ["0, 1, 2, 3, 4 and 2 more"])]


def test_overrides_have_steps_and_known_times() -> None:
    change = {"tau": [0.1, 0.2], "layers": [None, [1, 2]]}
    history = (
        {"steps": 20000, "time": "2026-05-01T14:30:10+02:00", "overridden": change},
        {"steps": 30000, "time": ["<b>"], "overridden": {}},
    )
    path = Path("td3/0")
    assert overrides([_group("td3", {}, history=history)]) == [
        ("td3", path, "20,000", "2026-05-01 12:30 UTC", "tau 0.1 → 0.2, layers none → 1,2"),
        ("td3", path, "30,000", "–", ""),
    ]


def test_versions_name_the_runs_if_they_differ() -> None:
    runs = {Path("a"): {"numpy": "2.1", "mujoco": "3"}, Path("b"): {"numpy": "2.2", "mujoco": "3"}}
    assert values_and_runs(runs) == [
        ("numpy", "2.1", "a"),
        ("numpy", "2.2", "b"),
        ("mujoco", "3", "all"),
    ]
