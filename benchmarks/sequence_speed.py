"""Table F: padding, and recurrent updates compared with PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagerly.benchmarks.measuring import Contender, Spread, in_turns, ours, peer, ratios, spread
from eagerly.benchmarks.workload import ACTION_SIZE, OBSERVATION_SIZE

MEMORIES = ("lstm", "gru")
UNITS, HIDDEN, LENGTH, SEQUENCES = 64, [64, 64], 32, 32
_OURS = {
    "memory_units": UNITS,
    "hidden_sizes": HIDDEN,
    "sequence_length": LENGTH,
    "sequences_per_update": SEQUENCES,
}
_THEIRS = {
    "observation": OBSERVATION_SIZE,
    "action": ACTION_SIZE,
    "units": UNITS,
    "hidden": HIDDEN,
    "length": LENGTH,
    "sequences": SEQUENCES,
}
_MODES = {"xla": 50, "graph": 50, "eager": 1}  # updates per call


def measure_sequences(python: Path, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measures table F; `python` is the peers' interpreter."""
    contenders = [ours("padding", "sequence_loops", "padding")]
    for memory in MEMORIES:
        contenders += [_updates(memory, mode) for mode in _MODES]
        sizes = json.dumps(_THEIRS | {"memory": memory})
        contenders.append(peer(python, f"{memory}, PyTorch", "torch_recurrent.py", sizes))
    contenders.append(_updates("attention", "xla"))
    return {"runs": in_turns(contenders, rounds, say)}


def _updates(memory: str, mode: str) -> Contender:
    given = {"memory": memory, "mode": mode, "updates_per_call": _MODES[mode]}
    return ours(f"{memory}, {mode}", "sequence_loops", "updates", _OURS | given)


def sequences_table(found: dict[str, Any]) -> list[str]:
    """Returns table F as Markdown."""
    runs = found["runs"]
    lines = [
        "| padding 100 sequences, 10 to 50 steps of 10 values | µs | relative to `pad`, XLA |",
        "|---|---|---|",
    ]
    ways = [name for name in runs["padding"][0] if name != "load_of_others"]
    fastest = [r["`pad`, XLA"] for r in runs["padding"]]
    for name in ways:
        times = [r[name] for r in runs["padding"]]
        lines.append(f"| {name} | {_micro(times)} | {ratios(times, fastest)} |")
    lines += [
        "",
        f"| TD3 updates, {SEQUENCES} sequences of {LENGTH} steps, {UNITS} units "
        "| sequences per second | relative to PyTorch | relative to eager |",
        "|---|---|---|---|",
    ]
    for name in (name for name in runs if name != "padding"):
        memory = name.partition(",")[0]
        rates = _rates(runs[name])
        beside = [
            str(ratios(rates, _rates(runs[f"{memory}, {other}"])))
            if f"{memory}, {other}" in runs
            else ""
            for other in ("PyTorch", "eager")
        ]
        lines.append(f"| {name} | {_whole(spread(rates))} | {' | '.join(beside)} |")
    return lines


def _rates(runs: list[dict[str, Any]]) -> list[float]:
    return [r["sequences"] / r["seconds_per_update"] for r in runs]


def _micro(seconds: list[float]) -> str:
    micro = spread([1e6 * value for value in seconds])
    return _whole(micro) if micro.median >= 100 else str(micro)


def _whole(values: Spread) -> str:
    return f"{values.median:.0f} [{values.low:.0f}, {values.high:.0f}]"
