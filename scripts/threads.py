"""How many threads runs have that train side by side: they share the cores of the machine."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from eagerly.errors import RunError
from eagerly.scripts.flags import format_seeds
from eagerly.storage.config import RunConfig
from eagerly.storage.run import Run, read_settings
from eagerly.workers.process_workers import cores

_THREADS = ("intra_op_threads", "inter_op_threads")


def threads_of_new_runs(
    typed: Collection[str], folder: Path, at_a_time: int
) -> tuple[dict[str, int], str]:
    """Decides on the threads of runs that begin: as many as runs beside them have, or a share.

    Runs with other thread counts are of another kind: their bits may differ for that reason.

    Args:
        typed: Names of the settings that were typed.
        folder: Where the runs lie.
        at_a_time: How many train at a time.

    Returns:
        Thread counts that were not typed, and why they are what they are.
    """
    names = [name for name in _THREADS if name not in typed]
    if not names:
        return {}, ""
    for path in sorted(folder.glob("seed-*")):
        with suppress(RunError):
            saved = read_settings(path)
            return {n: saved[n] for n in names if n in saved}, f"the same as {path} has"
    share = max(1, cores() // at_a_time)
    counts = {name: min(getattr(RunConfig, name), share) for name in names}
    if all(counts[name] == getattr(RunConfig, name) for name in names):
        return counts, ""
    alone = " x ".join(str(getattr(RunConfig, name)) for name in _THREADS)
    return counts, (
        f"{at_a_time} runs share {cores()} cores. By default a run has {alone}, and thread "
        "counts can change the last bits: --intra-op-threads and --inter-op-threads set them"
    )


def described_threads(runs: Sequence[Run], why: str) -> str:
    """Says how many threads the runs have, and why.

    Args:
        runs: The runs, new and begun ones.
        why: What is said of new ones (`threads_of_new_runs`).
    """
    seeds: dict[str, list[int]] = {}
    for run in runs:
        config = run.config
        counts = f"{config.intra_op_threads} x {config.inter_op_threads}"
        seeds.setdefault(counts, []).append(config.seed)
    if len(seeds) > 1:
        kinds = "; ".join(f"{n} for seeds {format_seeds(found)}" for n, found in seeds.items())
        return f"{kinds}: runs that were begun keep theirs"
    (counts,) = seeds
    if not any(run.is_new for run in runs):
        return f"{counts} per run, as they were begun"
    return f"{counts} per run" + (f": {why}" if why else "")
