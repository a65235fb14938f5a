"""Files that are appended to: whole whatever happens, and complete once there is space."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from eagerly.storage.append_log import AppendLog
from eagerly.storage.files import RunFiles


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A disk that takes three bytes of what is appended while it is full."""
    state, append = {"full": False}, RunFiles.append

    def limited(files: RunFiles, name: str, content: bytes) -> None:
        append(files, name, content[:3] if state["full"] else content)
        if state["full"]:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(RunFiles, "append", limited)
    return state


def test_records_wait_for_space_and_the_file_stays_whole(
    tmp_path: Path, disk: dict[str, bool]
) -> None:
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


def test_a_tear_that_could_not_be_cut_off_is_cut_off_later(
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


def test_a_file_that_has_lost_records_is_not_gone_on_with(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log")
    log.append(b"first ")
    (tmp_path / "log").unlink()
    log.append(b"second ")
    with pytest.raises(OSError, match="has lost 6 bytes"):
        log.flush()
    assert not (tmp_path / "log").exists()
