"""Append-only files stay intact while the disk is full, and are completed later."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from eagerly.storage.append_log import AppendLog
from eagerly.storage.files import RunFiles


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Simulates a disk. While its "full" is true, it writes only three bytes of each record."""
    state, append = {"full": False}, RunFiles.append

    def limited(files: RunFiles, name: str, content: bytes) -> None:
        append(files, name, content[:3] if state["full"] else content)
        if state["full"]:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(RunFiles, "append", limited)
    return state


def test_records_are_buffered_while_the_disk_is_full(tmp_path: Path, disk: dict[str, bool]) -> None:
    log = AppendLog(tmp_path / "log")
    assert log.is_empty
    log.append(b"first ")
    disk["full"] = True
    for record in (b"second ", b"third "):
        log.append(record)
    with pytest.raises(OSError, match="full"):
        log.flush()
    assert (tmp_path / "log").read_bytes() == b"first "
    disk["full"] = False
    log.close()
    assert (tmp_path / "log").read_bytes() == b"first second third "


def test_a_partial_record_that_could_not_be_removed_is_removed_later(
    tmp_path: Path, disk: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise OSError("not now")

    log = AppendLog(tmp_path / "log")
    log.append(b"first ")
    disk["full"] = True
    with monkeypatch.context() as patched:
        patched.setattr(RunFiles, "cut", fails)
        log.append(b"second ")
    assert (tmp_path / "log").read_bytes() == b"first sec"
    disk["full"] = False
    log.append(b"third ")
    assert (tmp_path / "log").read_bytes() == b"first second third "


def test_a_truncated_file_is_not_appended_to(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log")
    log.append(b"first ")
    (tmp_path / "log").unlink()
    log.append(b"second ")
    with pytest.raises(OSError, match="was truncated by 6 bytes"):
        log.flush()
    assert not (tmp_path / "log").exists()
