"""Tables A and B: training runs compared with PyTorch, Stable-Baselines3 and SBX."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagerly.benchmarks.measuring import (
    START,
    Contender,
    Spread,
    in_turns,
    ours,
    peer,
    ratios,
    spread,
)

CHEETAH, HUMANOID = "HalfCheetah-v5", "Humanoid-v5"
# Minutes and seconds for 200,000 steps, measured in 2018 on the machine of the article's author.
ARTICLE_2018 = {"PyTorch": "21:07", "eager TensorFlow": "66:00", "compiled TensorFlow": "17:12"}
ARTICLE_STYLE, BEST_STYLE = "PyTorch as in the article", "PyTorch at its best"


def article_contenders(python: Path) -> list[Contender]:
    """Returns the contenders of table A: the article's DDPG, HalfCheetah, one update per step."""

    def own(name: str, steps: int, start: int = START, **settings: Any) -> Contender:
        article = {"preset": "article", "env": CHEETAH} | settings
        return ours(name, "ours", "ddpg", article, start, start + steps)

    def torch(name: str, style: str) -> Contender:
        return peer(python, name, "torch_agents.py", "ddpg", style, CHEETAH, START, START + 2000)

    return [
        torch(ARTICLE_STYLE, "article"),
        torch(BEST_STYLE, "best"),
        # An eager update takes tens of milliseconds, so warm-up and measurement are short.
        own("ours, eager", 200, 1050, mode="eager", updates_per_call=1),
        own("ours, graph, one update per call", 2000, mode="graph", updates_per_call=1),
        own("ours, xla", 4000),
    ]


def run_contenders(python: Path, env: str) -> list[Contender]:
    """Returns the contenders of table B: TD3, 256-256, batch 256, one update per step."""

    def torch(name: str, style: str) -> Contender:
        return peer(python, name, "torch_agents.py", "td3", style, env, START, START + 2000)

    def stable(name: str, package: str, every: int) -> Contender:
        return peer(python, name, "stable_baselines.py", package, env, every, START, START + 2000)

    return [
        ours("ours", "ours", "td3", {"env": env}, START, START + 4000),
        torch(ARTICLE_STYLE, "article"),
        torch(BEST_STYLE, "best"),
        stable("Stable-Baselines3", "sb3", 1),
        stable("SBX as shipped", "sbx", 1),
        stable("SBX at its best", "sbx", 50),
    ]


def measure_article(python: Path, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures table A."""
    return {"ours": "ours, xla", "runs": in_turns(article_contenders(python), rounds, say)}


def measure_runs(python: Path, env: str, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures table B in one environment."""
    return {"ours": "ours", "runs": in_turns(run_contenders(python, env), rounds, say)}


def seconds_per_step(found: dict[str, Any]) -> dict[str, list[float]]:
    """Returns the seconds per environment step of every contender, one value per round."""
    return {
        name: [run["seconds"] / run["steps"] for run in runs]
        for name, runs in found["runs"].items()
    }


def speedups(found: dict[str, Any]) -> dict[str, Spread]:
    """Returns the factor by which this package is faster than each contender."""
    times = seconds_per_step(found)
    return {name: ratios(values, times[found["ours"]]) for name, values in times.items()}


def article_table(found: dict[str, Any]) -> list[str]:
    """Returns table A as Markdown."""
    times, own = seconds_per_step(found), found["ours"]
    lines = [
        "| | ms per step | 1000 steps | 200,000 steps, projected | our relative time |",
        "|---|---|---|---|---|",
    ]
    for name, values in times.items():
        s = spread(values)
        share = ratios(times[own], values)
        lines.append(
            f"| {name} | {spread([1e3 * v for v in values])} | {s.median * 1000:.2f} s | "
            f"{_clock(s.median * 200_000)} | {share} |"
        )
    then = ", ".join(f"{minutes} in {name}" for name, minutes in ARTICLE_2018.items())
    return [
        *lines,
        "",
        f"The article of 2018 measured these times for 200,000 steps (minutes:seconds): {then}.",
    ]


def runs_table(found: dict[str, Any]) -> list[str]:
    """Returns table B as Markdown."""
    lines = ["| | steps per second | our speedup |", "|---|---|---|"]
    factors = speedups(found)
    for name, values in seconds_per_step(found).items():
        lines.append(f"| {name} | {spread([1 / v for v in values])} | {factors[name]} |")
    return lines


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02}"
