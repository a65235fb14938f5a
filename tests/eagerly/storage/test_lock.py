"""One process at a time locks a run directory. Workers that survive it do not keep the lock."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eagerly import open_run
from eagerly.errors import RunError
from eagerly.storage import lock
from eagerly.storage.lock import RunLock, is_locked
from tests.helpers import ROOT
from tests.small_runs import SMALL

HOLDER = """
import ctypes, os, sys, time
from pathlib import Path
from eagerly.storage import lock

lock._OPEN_FILE_LOCKS = sys.argv[2] == "True"
held = lock.RunLock(Path(sys.argv[1]))
# Like a worker process, the child inherits every file descriptor.
child = os.fork() if sys.argv[3] == "python" else ctypes.CDLL(None).fork()
if not child:
    print(os.getpid(), flush=True)  # with Python's fork, the child has now closed the lock
time.sleep(100)
"""
KINDS = [
    pytest.param(True, marks=pytest.mark.skipif(not lock._OPEN_FILE_LOCKS, reason="not Linux"))
]
KINDS += [pytest.param(False)]


@pytest.fixture(params=KINDS, ids=["open file", "record"])
def open_file_locks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Runs a test with each kind of lock. Returns whether it is an open file lock."""
    monkeypatch.setattr(lock, "_OPEN_FILE_LOCKS", request.param)
    return bool(request.param)


@contextmanager
def holder(path: Path, open_file_locks: bool, fork: str = "python") -> Iterator[tuple[Any, int]]:
    """Runs a process that locks a run directory. Yields it and the process id of its child."""
    words = [sys.executable, "-c", HOLDER, str(path), str(open_file_locks), fork]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    try:
        yield process, worker
    finally:
        process.kill()
        process.wait()
        os.kill(worker, signal.SIGKILL)
        process.stdout.close()


def test_a_second_process_is_rejected_until_the_first_dies_even_if_its_workers_live(
    tmp_path: Path, open_file_locks: bool
) -> None:
    with holder(tmp_path, open_file_locks) as (process, worker):
        with pytest.raises(RunError, match=f"by another process .process {process.pid} on "):
            RunLock(tmp_path)
        assert is_locked(tmp_path)
        process.kill()
        process.wait()
        os.kill(worker, 0)  # raises an error unless the worker is alive
        assert not is_locked(tmp_path)
        lock = RunLock(tmp_path)
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
        lock.check()
        lock.close()


@pytest.mark.skipif(not lock._OPEN_FILE_LOCKS, reason="not Linux")
def test_a_child_forked_by_c_code_keeps_the_lock_and_the_error_names_the_dead_holder(
    tmp_path: Path,
) -> None:
    with holder(tmp_path, True, fork="C") as (process, _):
        process.kill()
        process.wait()
        with pytest.raises(RunError, match=rf"the lock holder is dead \(process {process.pid} on "):
            RunLock(tmp_path)


def _is_refused(path: Path) -> bool:
    """Returns whether another process is denied the lock. A forked one need not import anything."""
    child = os.fork()
    if not child:
        try:
            RunLock(path)
        except RunError:
            os._exit(1)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_reading_the_whole_directory_keeps_the_lock(tmp_path: Path, open_file_locks: bool) -> None:
    path = tmp_path / "run"
    path.mkdir()
    held = RunLock(path)
    shutil.copytree(path, tmp_path / "copy")
    assert is_locked(path)
    if not open_file_locks:  # copying released the record lock, which `check` takes again
        held.check()
    assert _is_refused(path)
    held.check()
    held.close()


def test_a_record_lock_taken_by_another_process_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_OPEN_FILE_LOCKS", False)
    held = RunLock(tmp_path)
    (tmp_path / "lock").read_bytes()  # closing the descriptor releases the record lock
    with (
        holder(tmp_path, False),
        pytest.raises(OSError, match="another process is now training in this run directory"),
    ):
        held.check()


def test_a_second_lock_in_the_same_process_is_rejected_and_the_first_is_kept(
    tmp_path: Path, open_file_locks: bool
) -> None:
    lock = RunLock(tmp_path)
    with pytest.raises(RunError, match="already being trained in this process"):
        RunLock(tmp_path)
    assert is_locked(tmp_path)
    assert _is_refused(tmp_path)
    lock.close()
    RunLock(tmp_path).close()


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("thesis")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="must be a regular file, not a link"):
        RunLock(tmp_path / "run")
    assert (tmp_path / "precious").read_text() == "thesis"


def test_a_lock_file_with_other_hard_links_is_not_written_through(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    thesis.write_text("precious")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").hardlink_to(thesis)
    locks = [RunLock(tmp_path / name) for name in ("one", "other")]
    for held, name in zip(locks, ("one", "other"), strict=True):
        held.check()
        assert (tmp_path / name / "lock").read_text().startswith("process ")
        with pytest.raises(RunError, match="already being trained in this process"):
            RunLock(tmp_path / name)
        held.close()
    assert thesis.read_text() == "precious"


def test_a_pipe_in_place_of_the_lock_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert not is_locked(tmp_path)
    with pytest.raises(OSError, match="must be a regular file"):
        RunLock(tmp_path)


def test_a_run_cannot_be_created_twice_at_once(tmp_path: Path) -> None:
    one, other = (open_run(tmp_path / "run", "td3", SMALL) for _ in range(2))
    one.write()
    with pytest.raises(RunError, match="already being trained"):
        other.write()
    one.unlock()
    with pytest.raises(RunError, match="was created by another process in the meantime"):
        other.write()


def test_files_of_a_run_killed_before_it_began_do_not_prevent_a_new_run(tmp_path: Path) -> None:
    for name in ("lock", "config.json.tmp"):
        (tmp_path / name).write_text("{")
    run = open_run(tmp_path, "td3", SMALL)
    assert run.is_new
    run.write()
    run.unlock()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "lock"]
