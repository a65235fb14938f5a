"""Tables C, D and E: the time budget, the distance to the hardware limit, and scaling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerly.benchmarks import measuring
from eagerly.benchmarks.measuring import START, Contender, Spread, in_turns, ours, spread

BASE: dict[str, Any] = {"batch": 256, "width": 256, "updates_per_call": 50}
SWEEPS: dict[str, tuple[int, ...]] = {
    "batch": (64, 128, 256, 512, 1024, 2048, 4096),
    "width": (64, 128, 256, 512, 1024),
    "updates_per_call": (1, 10, 50, 200),
}
BFLOAT16 = "graph, mixed_bfloat16, K = 50, threads 1 x 2"
_BASE_NAME = "xla, batch 256, width 256, K = 50"
_GRAPH: dict[str, Any] = BASE | {"mode": "graph", "intra": 1, "inter": 2}


def row_of(setting: str, value: int) -> str:
    """Returns the name of the row of table D in which one setting differs from `BASE`."""
    if BASE[setting] == value:
        return _BASE_NAME
    return f"xla, {'K =' if setting == 'updates_per_call' else setting} {value}"


def _limits() -> dict[str, dict[str, Any]]:
    """Returns the settings of each row of table D."""
    rows = {_BASE_NAME: BASE}
    for setting, values in SWEEPS.items():
        for value in values:
            rows[row_of(setting, value)] = BASE | {setting: value}
    # 50 updates take seconds with these sizes, and the share does not depend on their number.
    for slow in (row_of("batch", 4096), row_of("width", 1024)):
        rows[slow] = rows[slow] | {"updates_per_call": 10}
    return rows | {
        "graph, K = 50, threads 1 x 2": _GRAPH,
        BFLOAT16: _GRAPH | {"precision": "mixed_bfloat16"},
        "eager, K = 2": BASE | {"mode": "eager", "updates_per_call": 2},
    }


LIMITS = _limits()
COUNTS = (1, 2, 4, 8, 16)


def measure_limit(rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures table D."""
    contenders = [ours(name, "limit", settings) for name, settings in LIMITS.items()]
    return {"runs": in_turns(contenders, rounds, say)}


def measure_budget(env: str, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures table C."""
    return {"runs": in_turns([ours("ours", "budget", env, START, 10_000)], rounds, say)}


def measure_scale(env: str, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures table E."""
    contenders: list[Contender] = [ours("replay", "scale", "replay")]
    for count in COUNTS:
        for kind in ("here", "processes"):
            contenders.append(
                ours(f"{kind} {count}", "scale", "environments", env, str(count), kind)
            )
    return {"runs": in_turns(contenders, rounds, say)}


def limit_figures(found: dict[str, Any]) -> dict[str, Spread]:
    """Returns the share of the rate of matrix products that the updates of each row reach."""
    return {name: spread([r["share"] for r in runs]) for name, runs in found["runs"].items()}


def bfloat16_figure(found: dict[str, Any]) -> Spread:
    """Returns the time of a bfloat16 update relative to that of its matrix products in float32."""
    runs = found["runs"]
    return spread(
        [
            low["seconds_per_update"] * full["products_per_second"] / full["flops_per_update"]
            for low, full in zip(runs[BFLOAT16], runs[_BASE_NAME], strict=True)
        ]
    )


def overhead_figure(found: dict[str, Any]) -> Spread:
    """Returns the microseconds per step spent outside the environment and the compiled call."""
    return spread([r["rest"] for r in found["runs"]["ours"]])


def limit_table(found: dict[str, Any]) -> list[str]:
    """Returns table D as Markdown."""
    lines = [
        "| | µs per update | MFLOP | matrix products, GFLOP/s | share of this rate |",
        "|---|---|---|---|---|",
    ]
    shares = limit_figures(found)
    for name, runs in found["runs"].items():
        times = spread([1e6 * r["seconds_per_update"] for r in runs])
        rates = spread([r["products_per_second"] / 1e9 for r in runs])
        share = shares[name]
        lines.append(
            f"| {name} | {_plain(times)} | {runs[0]['flops_per_update'] / 1e6:.0f} | "
            f"{_plain(rates)} | {100 * share.median:.0f} % "
            f"[{100 * share.low:.0f}, {100 * share.high:.0f}] |"
        )
    return [
        *lines,
        "",
        f"An update in mixed_bfloat16 takes {bfloat16_figure(found)} times as long as its "
        "matrix products alone would take in float32 with two threads."
        + ("" if _has_bfloat16(found) else " This CPU has no bfloat16 instructions."),
    ]


def _has_bfloat16(found: dict[str, Any]) -> bool:
    return measuring.BFLOAT16 in found["machine"]["vectors"]


def budget_table(found: dict[str, Any]) -> list[str]:
    """Returns table C as Markdown."""
    runs = found["runs"]["ours"]
    lines = ["| part | µs per environment step |", "|---|---|"]
    parts = sorted(runs[0]["per_step"], key=lambda name: -runs[0]["per_step"][name])
    for name in parts:
        lines.append(f"| {name} | {spread([r['per_step'][name] for r in runs])} |")
    lines += [
        f"| total, all parts timed | {spread([r['with_clocks'] for r in runs])} |",
        "| **total, only environment and compiled call timed** "
        f"| {spread([r['whole'] for r in runs])} |",
        f"| *total minus environment and compiled call* | {overhead_figure(found)} |",
        "",
        "| startup | seconds |",
        "|---|---|",
    ]
    for name in runs[0]["stages"]:
        lines.append(f"| {name} | {spread([r['stages'][name] for r in runs])} |")
    lines.append(
        f"| **total, to the end of the first call** | {spread([r['first_update'] for r in runs])} |"
    )
    rows = runs[0]["memory"]["rows"]
    lines += ["", "| replay buffer of 1,000,000 transitions | resident MB | relative to row data |"]
    lines.append("|---|---|---|")
    for state in ("empty", "full"):
        taken = spread([r["memory"][state] for r in runs])
        lines.append(f"| {state} | {taken.median / 1e6:.1f} | {taken.median / rows:.3f} |")
    return lines


def scale_table(found: dict[str, Any]) -> list[str]:
    """Returns table E as Markdown."""
    runs = found["runs"]
    lines = ["| transitions in the replay buffer | sampling, µs per update |", "|---|---|"]
    for size in runs["replay"][0]:
        if size.isdigit():
            lines.append(f"| {int(size):,} | {spread([r[size] for r in runs['replay']])} |")
    lines += [
        "",
        "| environments | sequential, with updates: µs per step | without updates "
        "| in processes, with updates: µs per step | without updates |",
        "|---|---|---|---|---|",
    ]
    for count in COUNTS:
        cells = [
            str(spread([r[name] for r in runs[f"{kind} {count}"]]))
            for kind in ("here", "processes")
            for name in ("with updates", "without")
        ]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return lines


def _plain(values: Spread) -> str:
    return f"{values.median:.0f} [{values.low:.0f}, {values.high:.0f}]"
