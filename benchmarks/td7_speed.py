"""Table H: TD7 updates compared with PyTorch, TD3 and bare matrix products, and acting."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.benchmarks.measuring import Spread, in_turns, ours, peer, ratios, spread
from eagerly.benchmarks.workload import ACTION_SIZE, OBSERVATION_SIZE

UPDATES_PER_CALL = (250, 125, 50)  # the default, 50, comes last, so it runs next to PyTorch
LEVELS = (3000, 6000)  # returns; the table reports the cost of reaching them
LEARNING = Path(__file__).parent / "learning"
_BASE, _TD3, _ACTING = "TD7, K = 50", "TD3, K = 50", "acting"
_STYLES = {"PyTorch, as in the article": "article", "PyTorch, at its best": "best"}
_THEIRS = {
    "observation": OBSERVATION_SIZE,
    "action": ACTION_SIZE,
    "rows": 200_000,
    "updates": 100,
    "turns": 3,
}


def measure_td7(python: Path, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures table H; `python` is the peers' interpreter."""
    contenders = [
        ours(f"TD7, K = {count}", "td7_loops", "updates", "td7", str(count))
        for count in UPDATES_PER_CALL
    ]
    contenders += [
        peer(python, name, "torch_td7.py", style, json.dumps(_THEIRS))
        for name, style in _STYLES.items()
    ]
    contenders += [
        ours(_TD3, "td7_loops", "updates", "td3", "50"),
        ours(_ACTING, "td7_loops", "acting"),
    ]
    return {"runs": in_turns(contenders, rounds, say)}


def td7_table(found: dict[str, Any]) -> list[str]:
    """Returns table H as Markdown."""
    runs = found["runs"]
    names = [name for name in runs if name != _ACTING]
    times = {name: [r["seconds_per_update"] for r in runs[name]] for name in names}
    styles = list(_STYLES)
    lines = [
        "| | update, ms | CPU time, ms | bare products, ms | their share of the update "
        "| share of the best product rate "
        + "".join(f"| speedup over {name} " for name in styles)
        + "| relative to TD3 |",
        "|---" * (7 + len(styles)) + "|",
    ]
    for name in names:
        cells = [_milli(times[name]), _milli(_values(runs[name], "processor_seconds_per_update"))]
        if "share" in runs[name][0]:
            cells += [
                _milli(_values(runs[name], "seconds_of_products")),
                _percent(_values(runs[name], "share_of_products")),
                _percent(_values(runs[name], "share")),
            ]
        else:
            cells += ["", "", ""]
        is_td7 = name != _TD3
        cells += [str(ratios(times[style], times[name])) if is_td7 else "" for style in styles]
        cells.append(str(ratios(times[name], times[_TD3])))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    acting = {name: _values(runs[_ACTING], name) for name in ("td7", "td3")}
    return [
        *lines,
        "",
        "Default settings and HalfCheetah's dimensions. Updates include sampling from 200,000 "
        "transitions, by priority for TD7 and uniformly for TD3. K is the number of updates per "
        "call. *Bare products* are the matrix products that a TD7 update requires, in an XLA "
        "program without the rest of the update. The best product rate is the highest that NumPy "
        "or TensorFlow reaches with sizes 256 to 2048. Updates, bare products and this rate are "
        "measured alternately.",
        "",
        "| acting in NumPy, one observation | CPU time, µs | relative to TD3 |",
        "|---|---|---|",
        *(
            f"| {name.upper()} | {spread([1e6 * value for value in values])} | "
            f"{ratios(values, acting['td3'])} |"
            for name, values in acting.items()
        ),
        "",
        *cost_table(
            {
                "td3": _values(runs[_TD3], "processor_seconds_per_update"),
                "td7": _values(runs[_BASE], "processor_seconds_per_update"),
            },
            LEARNING,
        ),
    ]


def cost_table(seconds_per_update: dict[str, list[float]], tables: Path) -> list[str]:
    """Returns the cost of reaching a return on HalfCheetah-v5 as a Markdown table.

    Args:
        seconds_per_update: Measurements of the CPU seconds per update, by agent.
        tables: Folder of learning curves named agent-HalfCheetah-v5-seed.csv.
    """
    levels = [f"| steps to {level} | CPU time, s " for level in LEVELS]
    lines = [f"| HalfCheetah-v5 {''.join(levels)}|", "|---" * (1 + 2 * len(LEVELS)) + "|"]
    for agent, seconds in seconds_per_update.items():
        paths = sorted(tables.glob(f"{agent}-HalfCheetah-v5-*.csv"))
        cells = [f"{agent.upper()}, {len(paths)} runs"]
        for level in LEVELS:
            found = [reached for path in paths if (reached := _reached(path, level))]
            each = ", ".join(f"{steps:,}" for steps, _ in found)
            cells.append(
                each + (f", {missed} never" if (missed := len(paths) - len(found)) else "")
            )
            cells.append(", ".join(f"{updates * np.median(seconds):.0f}" for _, updates in found))
        lines.append(f"| {' | '.join(cells)} |")
    return [
        *lines,
        "",
        "*Steps* count up to the first evaluation with at least this mean return. TD7 evaluates "
        "the policy in its checkpoint. Evaluations are 5000 steps apart. *CPU time* is that of all "
        "updates up to this evaluation: their number times the median CPU time per update in the "
        "first table. The environment and evaluations cost the same with every agent.",
    ]


def _reached(path: Path, level: float) -> tuple[int, int] | None:
    """Returns the steps and updates of a run's first evaluation that reaches a return."""
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if float(row["return_mean"]) >= level:
                return int(row["steps"]), int(row["updates"])
    return None


def _values(runs: list[dict[str, Any]], name: str) -> list[float]:
    return [r[name] for r in runs]


def _milli(seconds: list[float]) -> str:
    return str(spread([1e3 * value for value in seconds]))


def _percent(shares: list[float]) -> str:
    share: Spread = spread([100 * value for value in shares])
    return f"{share.median:.0f} % [{share.low:.0f}, {share.high:.0f}]"
