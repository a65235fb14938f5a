"""Statistics, operation counts and tables of benchmarks. The tests measure nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly.benchmarks import inside, measuring, td7_speed, whole_runs
from eagerly.benchmarks.contenders import replay_loops
from eagerly.benchmarks.contenders import td7_loops as td7_contender
from eagerly.benchmarks.contenders.budget import Clocks
from eagerly.benchmarks.contenders.limit import flops_per_update
from eagerly.benchmarks.contenders.ours import timed_run
from eagerly.benchmarks.measuring import (
    Contender,
    LoadedMachineError,
    check_quiet,
    in_turns,
    ratios,
    run,
    spread,
)


def silent(line: str) -> None:
    """Ignores a message."""


def test_the_interval_of_a_median_uses_order_statistics() -> None:
    # The interval from the second to the eighth of nine sorted values contains the median with a
    # probability of 96 %, and that from the third to the seventh only with 82 %.
    found = spread([9.0, 1.0, 5.0, 3.0, 7.0, 2.0, 8.0, 4.0, 6.0])
    assert (found.median, found.low, found.high) == (5.0, 2.0, 8.0)


def test_the_interval_contains_the_median_at_the_nominal_rate() -> None:
    random = np.random.default_rng(0)
    held = [
        s.low <= 1.0 <= s.high for s in (spread(random.lognormal(size=9) ** 2) for _ in range(500))
    ]
    assert np.mean(held) > 0.90


def test_the_interval_of_few_values_is_their_range() -> None:
    found = spread([2.0, 1.0, 4.0])
    assert (found.median, found.low, found.high) == (2.0, 1.0, 4.0)


def test_ratios_compare_values_of_the_same_round() -> None:
    assert ratios([10.0, 200.0, 3000.0], [5.0, 100.0, 1500.0]).median == 2.0
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def _prints(name: str, value: int) -> Contender:
    return Contender(name, (sys.executable, "-c", f"print('noise'); print('{{\"v\": {value}}}')"))


def test_contenders_take_turns_and_the_order_alternates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "load_of_others", lambda: 0.0)
    heard: list[str] = []
    found = in_turns([_prints("one", 1), _prints("two", 2)], 2, heard.append)
    assert [[r["v"] for r in runs] for runs in found.values()] == [[1, 1], [2, 2]]
    assert [line.split(": ")[1] for line in heard] == ["one", "two", "two", "one"]


def test_the_error_of_a_failed_contender_contains_its_output() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)broken failed.*no such thing"):
        run(Contender("broken", (sys.executable, "-c", "raise SystemExit('no such thing')")))


def test_a_loaded_machine_raises_or_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "load_of_others", lambda: 1.3)
    with pytest.raises(LoadedMachineError, match=r"1\.3 cores.*--loaded"):
        check_quiet(True, silent)
    heard: list[str] = []
    assert check_quiet(False, heard.append) == 1.3
    assert "NOT IDLE" in heard[0]


def test_the_operations_of_an_update_match_a_manual_count() -> None:
    # Multiplications counted by hand, for batch size 1, 2 state values, two layers of 3 units and 1
    # action value. The terms of `critics` are the forward pass, the gradients of kernels, and the
    # gradients of inputs, which first layers do not need. `actors` includes a pass through a critic
    # whose kernels need no gradients.
    actor, critic = 2 * 3 + 3 * 3 + 3 * 1, 3 * 3 + 3 * 3 + 3 * 1
    target = actor + 2 * critic
    critics = 2 * (critic + critic + (3 * 3 + 3 * 1))
    actors = actor + critic + critic + (actor + (3 * 3 + 3 * 1))
    expected = 2 * (target + critics + actors / 2)
    assert flops_per_update(1, 3, observation=2, action=1) == expected
    assert flops_per_update(256, 256) == pytest.approx(415e6, rel=0.01)


def test_the_products_of_a_td7_update_match_a_manual_count() -> None:
    # Multiplications counted by hand, for batch size 1, width 3, 2 state values and 1 action value.
    states, pairs = 2 * 3 + 3 * 3 + 3 * 3, 4 * 3 + 3 * 3 + 3 * 3
    actor = 2 * 3 + 6 * 3 + 3 * 3 + 3 * 1
    critics = 2 * (3 * 3 + 9 * 3 + 3 * 3 + 3 * 1)
    encoder = 2 * states + pairs + (states + pairs) + (2 * 3 * 3 + 3 * 3 * 3)
    target = states + actor + pairs + critics
    # A critic's first hidden layer has 9 inputs: 3 features of the critic, zsa and zs. Only the 3
    # features propagate a gradient.
    critic = states + pairs + critics + critics + 2 * (3 * 3 + 3 * 3 + 3 * 1)
    # The gradient flows from the values to the action and zsa, from zsa to the action, and from the
    # action to the actor.
    through = 2 * (3 * 1 + 3 * 3 + 6 * 3 + 1 * 3) + (3 * 3 + 3 * 3 + 1 * 3)
    moved = actor + pairs + critics + through + actor + (3 * 1 + 3 * 3 + 3 * 3)
    flops = [
        sum(product.flops for product in td7_contender.products(1, 3, 2, 1, moves_actor=moves))
        for moves in (False, True)
    ]
    assert flops == [2 * (encoder + target + critic), 2 * (encoder + target + critic + moved)]
    assert td7_contender.flops_per_update() == pytest.approx(2.44e9, rel=0.01)


def test_the_work_for_single_steps_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_loops, "STEPS", 100)
    monkeypatch.setattr(replay_loops, "ROWS", 100)
    given = {"n_step": 3, "sampling": "lap"}
    for found in (replay_loops.time_steps(given), replay_loops.time_goals()):
        assert all(seconds > 0 for seconds in found.values())


def test_clocks_exclude_nested_timed_calls() -> None:
    class Thing:
        def outer(self) -> int:
            return self.inner() + 1

        def inner(self) -> int:
            return sum(range(200_000))

    thing, clocks = Thing(), Clocks()
    clocks.wrap(thing, "inner", "inside")
    clocks.wrap(thing, "outer", "outside")
    thing.outer()
    seconds = clocks.take()
    assert seconds["outside"] < seconds["inside"]
    assert vars(thing) == {}
    assert not clocks.seconds


def test_a_timed_run_performs_the_reported_updates() -> None:
    settings = {"env": "Pendulum-v1", "hidden_sizes": [8], "mode": "eager", "warmup_steps": 100}
    settings |= {"replay_ratio": 0.1, "updates_per_call": 10}
    found = timed_run("td3", settings, 150, 300)
    assert (found["steps"], found["updates_in_all"]) == (150, 20)
    assert found["seconds"] > 0


def test_the_article_table_uses_the_preset_of_the_agent(tmp_path: Path) -> None:
    (own,) = (c for c in whole_runs.article_contenders(tmp_path) if c.name == "ours, xla")
    settings = json.loads(own.command[4])
    assert settings["preset"] == "article"


def test_every_figure_and_table_is_built_from_stored_results(tmp_path: Path) -> None:
    from eagerly.benchmarks import pictures

    random = np.random.default_rng(0)

    def runs(**values: float) -> list[dict[str, Any]]:
        return [{k: v * random.uniform(0.9, 1.1) for k, v in values.items()} for _ in range(5)]

    names = [c.name for c in whole_runs.run_contenders(tmp_path, "HalfCheetah-v5")]
    found = {"ours": "ours", "runs": {n: runs(seconds=4.0, steps=2000) for n in names}}
    assert len(whole_runs.runs_table(found)) == 2 + len(names)
    pictures.bars(found, "title", tmp_path / "bars.png")
    shares = {
        "seconds_per_update": 1e-3,
        "products_per_second": 4e11,
        "share": 0.7,
        "flops_per_update": 4e8,
    }
    limit: dict[str, Any] = {"runs": {name: runs(**shares) for name in inside.LIMITS}}
    limit["machine"] = measuring.machine()
    assert len(inside.limit_table(limit)) == 2 + len(inside.LIMITS) + 2
    pictures.shares(limit, tmp_path / "shares.png")
    assert inside.bfloat16_figure(limit).median == pytest.approx(1.0, rel=0.3)
    assert (tmp_path / "bars.png").stat().st_size > 5000
    assert (tmp_path / "shares.png").stat().st_size > 5000


def test_the_td7_table_is_built_from_stored_results() -> None:
    def runs(**values: float) -> list[dict[str, Any]]:
        return [{name: value * factor for name, value in values.items()} for factor in (1, 2, 3)]

    spent = {"seconds_per_update": 0.01, "processor_seconds_per_update": 0.02}
    shares = {"seconds_of_products": 0.008, "share_of_products": 0.25, "share": 0.2}
    found = {f"TD7, K = {count}": runs(**spent, **shares) for count in td7_speed.UPDATES_PER_CALL}
    found |= {
        "PyTorch, as in the article": runs(seconds_per_update=0.04, processor_seconds_per_update=1),
        "PyTorch, at its best": runs(seconds_per_update=0.02, processor_seconds_per_update=1),
        "TD3, K = 50": runs(seconds_per_update=0.002, processor_seconds_per_update=1),
        "acting": runs(td7=6e-5, td3=2e-5),
    }
    lines = td7_speed.td7_table({"runs": found})
    (line,) = (line for line in lines if line.startswith("| TD7, K = 50 |"))
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[1].startswith("20 [10, 30]")
    assert cells[4].startswith("50 %")
    assert [cell.split()[0] for cell in cells[6:]] == ["4", "2", "5"]
    assert [line.count("|") for line in lines[:8]] == [10] * 8
    assert "| TD7 | 120 [60, 180] | 3 [3, 3] |" in lines


def test_the_cost_of_a_return_counts_the_updates_before_it(tmp_path: Path) -> None:
    for seed, best in enumerate((7000.0, 3500.0)):
        rows = ["steps,updates,return_mean", "5000,0,9.5", f"10000,4000,{best}", "15000,9000,9999"]
        rows = rows[: 4 - seed]
        (tmp_path / f"td7-HalfCheetah-v5-{seed}.csv").write_text("\n".join(rows) + "\n")
    row = td7_speed.cost_table({"td7": [0.02, 0.03, 0.04]}, tmp_path)[2]
    assert row == "| TD7, 2 runs | 10,000, 10,000 | 120, 120 | 10,000, 1 never | 120 |"
