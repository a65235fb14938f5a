"""Filters select runs by typed values of any setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eagerly.curves.filters import matching
from eagerly.errors import RunError

RUNS: list[tuple[Path, dict[str, Any]]] = [
    (Path("a"), {"agent": "td3", "tau": 0.005, "hidden_sizes": [256, 256], "layer_norm": False}),
    (Path("b"), {"agent": "td3", "tau": 0.02, "hidden_sizes": (64,), "layer_norm": True}),
    (Path("c"), {"agent": "ddpg", "tau": 0.005, "seed": 1, "stop_at_return": 7.0}),
    (Path("d"), {"agent": "ddpg", "tau": 1, "seed": 10, "stop_at_return": None}),
    (
        Path("e"),
        {"agent": "td7", "init_from": "", "encoder_hidden_sizes": [], "wrapper": ["a:B", "c"]},
    ),
    (
        Path("f"),
        {
            "agent": "mine:Agent",
            "init_from": "runs/a",
            "encoder_hidden_sizes": (),
            "env_kwargs": {},
        },
    ),
]


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({"tau": "5e-3"}, "ac"),
        ({"tau": 0.005, "agent": "td3"}, "a"),
        ({"tau": ["0.02", "1.0"]}, "bd"),
        ({"hidden_sizes": "256,256"}, "a"),
        ({"hidden_sizes": (64,)}, "b"),
        ({"hidden_sizes": [256, 256]}, "a"),
        ({"hidden_sizes": ["64", (256, 256)]}, "ab"),
        ({"agent": "TD3"}, "ab"),
        ({"agent": ["DDPG", "td8"]}, "cd"),
        ({"init_from": "none"}, "e"),
        ({"init_from": "runs/a"}, "f"),
        ({"encoder_hidden_sizes": "none"}, "ef"),
        ({"wrapper": ["a:B", "c"]}, "e"),
        ({"wrapper": "a:B,c"}, "e"),
        ({"env_kwargs": "none"}, "f"),
        ({"layer_norm": "true"}, "b"),
        ({"layer_norm": False}, "a"),
        ({"seed": "1"}, "c"),
        ({"stop_at_return": "none"}, "d"),
        ({}, "abcdef"),
    ],
)
def test_values_are_compared_by_type(wanted: dict[str, Any], names: str) -> None:
    assert "".join(str(path) for path, _ in matching(RUNS, wanted)) == names


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"tua": "1"}, r"no run has the setting 'tua'.*. Did you mean tau\?"),
        ({"tau": "small"}, "a filter on tau requires a number; got 'small'"),
        ({"layer_norm": "1"}, "a filter on layer_norm requires true or false; got '1'"),
        ({"hidden_sizes": "a"}, "a filter on hidden_sizes requires a list such as 256,256"),
        ({"wrapper": "a:B"}, "filter wrapper=a:B: the runs have wrapper a:B,c"),
        ({"encoder_hidden_sizes": "8"}, "the runs have encoder_hidden_sizes none"),
        (
            {"init_from": "runs/b"},
            "no run matches the filter init_from=runs/b: the runs have init_from none or runs/a",
        ),
        (
            {"tau": "0.3", "seed": [1, 2]},
            "no run matches the filter tau=0.3, seed=1 or 2: the runs have tau 0.005 or 0.02 or 1, "
            "seed 1 or 10",
        ),
    ],
)
def test_impossible_filters_are_rejected(wanted: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        matching(RUNS, wanted)
