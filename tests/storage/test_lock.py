"""One process per run directory, whoever outlives whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eagerly import open_run
from eagerly.errors import RunError
from eagerly.storage.lock import RunLock, is_locked
from tests.helpers import ROOT
from tests.small_runs import SMALL

HOLDER = """
import os, sys, time
from pathlib import Path
from eagerly.storage.lock import RunLock

lock = RunLock(Path(sys.argv[1]))
child = os.fork()  # as an environment's own worker: it inherits every descriptor
if child:
    print(child, flush=True)
time.sleep(100)
"""


def test_a_second_process_is_refused_until_the_first_is_dead_workers_or_not(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    worker = int(holder.stdout.readline())
    try:
        with pytest.raises(RunError, match=f"by another process .process {holder.pid} on "):
            RunLock(tmp_path)
        holder.kill()
        holder.wait()
        os.kill(worker, 0)  # it lives, and holds the descriptor
        lock = RunLock(tmp_path)
        assert (tmp_path / "lock").read_text().startswith(f"process {os.getpid()} on ")
        lock.check()
        lock.close()
    finally:
        os.kill(worker, signal.SIGKILL)
        holder.stdout.close()


def test_the_same_process_is_refused_too_and_that_frees_nothing(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    with pytest.raises(RunError, match="already being trained in this process"):
        RunLock(tmp_path)
    code = "import sys; from pathlib import Path; from eagerly.storage.lock import RunLock\n"
    again = subprocess.run(
        [sys.executable, "-c", code + "RunLock(Path(sys.argv[1]))", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "is being trained by another process" in again.stderr
    lock.close()
    RunLock(tmp_path).close()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("thesis")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="is not a file, but a link"):
        RunLock(tmp_path / "run")
    assert (tmp_path / "precious").read_text() == "thesis"


def test_a_lock_that_is_another_file_too_is_not_written_through(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis"
    thesis.write_text("precious")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lock").hardlink_to(thesis)
    locks = [RunLock(tmp_path / name) for name in ("one", "other")]
    for lock, name in zip(locks, ("one", "other"), strict=True):
        lock.check()
        assert (tmp_path / name / "lock").read_text().startswith("process ")
        with pytest.raises(RunError, match="already being trained in this process"):
            RunLock(tmp_path / name)
        lock.close()
    assert thesis.read_text() == "precious"


def test_a_pipe_in_the_place_of_the_lock_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    assert not is_locked(tmp_path)
    with pytest.raises(OSError, match="is not a file"):
        RunLock(tmp_path)


def test_two_that_begin_the_same_run_at_once(tmp_path: Path) -> None:
    one, other = (open_run(tmp_path / "run", "td3", SMALL) for _ in range(2))
    one.write()
    with pytest.raises(RunError, match="already being trained"):
        other.write()
    one.unlock()
    with pytest.raises(RunError, match="was begun by another process meanwhile"):
        other.write()


def test_what_a_process_leaves_that_dies_before_it_begins_is_no_obstacle(tmp_path: Path) -> None:
    for name in ("lock", "config.json.tmp"):
        (tmp_path / name).write_text("{")
    run = open_run(tmp_path, "td3", SMALL)
    assert run.is_new
    run.write()
    run.unlock()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "lock"]
