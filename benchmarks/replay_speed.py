"""Table G: the cost of n-step returns, prioritized replay and hindsight replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from eagerly.benchmarks.measuring import Spread, in_turns, ours, ratios, spread

_PLAIN = "none"
OPTIONS: dict[str, dict[str, Any]] = {
    _PLAIN: {},
    "`--n-step 3`": {"n_step": 3},
    "`--sampling prioritized`": {"sampling": "prioritized"},
    "`--sampling lap`": {"sampling": "lap"},
    "`--n-step 3 --sampling lap`": {"n_step": 3, "sampling": "lap"},
}


def measure_replay(rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures table G."""
    contenders = [ours("goals", "replay_loops", "goals")]
    for what in ("updates", "steps"):
        contenders += [
            ours(f"{what}, {name}", "replay_loops", what, given) for name, given in OPTIONS.items()
        ]
    return {"runs": in_turns(contenders, rounds, say)}


def replay_table(found: dict[str, Any]) -> list[str]:
    """Returns table G as Markdown."""
    runs = found["runs"]
    lines = [
        "| option | update, ms | relative to none | sampler share | step, µs | relative to none |",
        "|---|---|---|---|---|---|",
    ]
    for name in OPTIONS:
        updates, steps = runs[f"updates, {name}"], runs[f"steps, {name}"]
        times = [run["seconds_per_update"] for run in updates]
        sampling = ratios([run["sampler_seconds_per_update"] for run in updates], times)
        each = [run["seconds_per_step"] for run in steps]
        cells = [
            _spread(times, 1e3),
            str(ratios(times, [run["seconds_per_update"] for run in runs[f"updates, {_PLAIN}"]])),
            f"{100 * sampling.median:.2g} % [{100 * sampling.low:.2g}, {100 * sampling.high:.2g}]",
            _spread(each, 1e6),
            str(ratios(each, [run["seconds_per_step"] for run in runs[f"steps, {_PLAIN}"]])),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    goals = {name: [run[name] for run in runs["goals"]] for name in runs["goals"][0]}
    lines += [
        "",
        "TD3 updates with default settings, 50 per call, from 1,000,000 transitions of "
        "HalfCheetah's dimensions. Step times include the accumulator, the replay buffer and the "
        "sampler, but neither acting nor the environment.",
        "",
        "| hindsight replay, 4 goals per step, episodes of 50 steps | µs |",
        "|---|---|",
        "| per step, goals replaced at the end of the episode | "
        f"{_spread(goals['seconds_per_step_at_ends'], 1e6)} |",
        "| per update, if goals were replaced during sampling (batch size 256), rewards per batch "
        f"| {_spread(goals['seconds_per_update_when_sampled_together'], 1e6)} |",
        "| the same, rewards computed one by one | "
        f"{_spread(goals['seconds_per_update_when_sampled_one_by_one'], 1e6)} |",
    ]
    return lines


def _spread(seconds: list[float], factor: float) -> str:
    found: Spread = spread([factor * value for value in seconds])
    return str(found)
