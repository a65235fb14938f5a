"""Thread counts of runs that train in parallel and share the machine's cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from eagerly.errors import RunError
from eagerly.storage.config import RunConfig
from eagerly.storage.run import Run
from eagerly.storage.run_document import read_settings
from eagerly.workers.process_workers import cores

_THREADS = ("intra_op_threads", "inter_op_threads")


def threads_of_new_runs(
    given: Sequence[Collection[str]], folders: Iterable[Path], at_a_time: int
) -> tuple[dict[str, int], str]:
    """Returns thread counts for new runs: those of existing runs, or a share of the cores.

    All runs get the same thread counts, because different counts can change the last bits of
    results.

    Args:
        given: Names of the settings that were given explicitly, for each run.
        folders: Parents of the run directories, which are called `seed-N`.
        at_a_time: Number of runs trained at the same time.

    Returns:
        Thread counts by setting, for settings that were not given, and the reason for their values.
    """
    names = [name for name in _THREADS if any(name not in each for each in given)]
    if not names:
        return {}, ""
    for path in sorted(path for folder in folders for path in folder.glob("seed-*")):
        with suppress(RunError):
            saved = read_settings(path)
            return {n: saved[n] for n in names if n in saved}, f"same as {path}"
    share = max(1, cores() // at_a_time)
    counts = {name: min(getattr(RunConfig, name), share) for name in names}
    if all(counts[name] == getattr(RunConfig, name) for name in names):
        return counts, ""
    alone = " x ".join(str(getattr(RunConfig, name)) for name in _THREADS)
    return counts, (
        f"{at_a_time} runs share {cores()} cores. The default is {alone}; thread counts can change "
        "the last bits of results: set them with --intra-op-threads and --inter-op-threads"
    )


def described_threads(runs: Sequence[Run], why: str) -> str:
    """Returns the thread counts of the runs and their reason, as text.

    Args:
        runs: New and existing runs.
        why: The reason returned by `threads_of_new_runs`.
    """
    found = Counter(
        f"{run.config.intra_op_threads} x {run.config.inter_op_threads}" for run in runs
    )
    if len(found) > 1:
        kinds = "; ".join(f"{counts} in {number} of them" for counts, number in found.items())
        return f"{kinds}: existing runs keep theirs"
    (counts,) = found
    if not any(run.is_new for run in runs):
        return f"{counts} per run, as saved"
    return f"{counts} per run" + (f": {why}" if why else "")
