"""Whether there is memory for what a run is going to fill."""

from __future__ import annotations

from pathlib import Path

import psutil

from eagerly.errors import RunError

_CGROUP = Path("/sys/fs/cgroup")
# Limit and use of the control group that a container's processes are in, of version 2 and 1, and
# what of the use is files that were read or written: it makes way for whoever needs memory.
_LIMITS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def available_memory() -> int:
    """Returns the bytes that this process can still take: the machine's, or its container's."""
    available = int(psutil.virtual_memory().available)
    for limit, used, statistics, files in _LIMITS:
        try:
            left = int((_CGROUP / limit).read_text()) - int((_CGROUP / used).read_text())
            lines = (_CGROUP / statistics).read_text().splitlines()
            left += int(dict(line.split() for line in lines).get(files, 0))
        except (OSError, ValueError):  # none is set, or none here
            continue
        available = min(available, max(left, 0))
    return available


def check_memory(needed: int, what: str, advice: str) -> None:
    """Refuses what will not fit.

    Args:
        needed: Bytes.
        what: What needs them.
        advice: What to do otherwise.

    Raises:
        RunError: If they are more than is available, with both numbers.
    """
    available = available_memory()
    if needed > available:
        raise RunError(
            f"{what} needs {gigabytes(needed)} of memory, {gigabytes(available)} are available: "
            f"{advice}"
        )


def gigabytes(count: int) -> str:
    """Writes a number of bytes."""
    return f"{count / 2**30:.2f} GiB"
