"""The memory that is left, as the machine or its container has it."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from eagerly.errors import RunError
from eagerly.training import memory


def group(path: Path, limit: str, used: int, files: int, *, version: int = 2) -> None:
    """Writes what a control group says of itself."""
    folder = path if version == 2 else path / "memory"
    folder.mkdir(exist_ok=True)
    names = {
        2: ("memory.max", "memory.current", "inactive_file"),
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }[version]
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 7\n{names[2]} {files}\nslab 3\n")


@pytest.mark.parametrize("version", [1, 2])
def test_a_containers_limit_counts_and_files_it_has_read_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    group(tmp_path, "1000000", 900_000, 600_000, version=version)
    assert memory.available_memory() == 700_000
    memory.check_memory(700_000, "the buffer", "take less")
    message = "the buffer needs 1.00 GiB of memory, 0.00 GiB are available: take less"
    with pytest.raises(RunError, match=message):
        memory.check_memory(2**30, "the buffer", "take less")


def test_without_a_limit_it_is_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    for limit in (None, "max"):
        if limit:
            group(tmp_path, limit, 5, 5)
        found = memory.available_memory()
        assert found == pytest.approx(psutil.virtual_memory().available, rel=0.2)
