"""Training several seeds in parallel: validation, shared cores, stopping, resuming and scores."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import click
import pytest

from eagerly import open_run
from eagerly.scripts import batch, threads
from eagerly.scripts import job as job_module
from eagerly.scripts.flags import format_seeds, parse_seeds
from eagerly.scripts.job import Job
from eagerly.scripts.jobs import Jobs
from eagerly.scripts.train import main
from eagerly.storage.digests import digests
from eagerly.storage.lock import RunLock
from eagerly.storage.run_settings import flag_words
from eagerly.training.signals import StopSignals
from tests.helpers import ROOT, gone
from tests.scripts.test_train import invoke
from tests.small_runs import SMALL, train_in

WORDS = ("td3", "--env", "Pendulum-v1", "--preset", "defaults")
# The first part of each program that replaces a training process. It handles SIGTERM and reports
# step 0.
STAND_IN = """
    import os, signal, sys, time
    def words(name):
        return sys.argv[sys.argv.index(name) + 1]
    seed = int(words("--seed"))
    report = int(words("--report-to"))
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
    os.write(report, b"0\\n")
"""


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    code = textwrap.dedent(STAND_IN) + textwrap.dedent(program)
    train_command = batch.train_command

    def command(*words: Any) -> list[str]:
        return [sys.executable, "-S", "-c", code, *train_command(*words)[4:]]

    monkeypatch.setattr(batch, "train_command", command)


@pytest.mark.parametrize(
    ("text", "found"),
    [("0..4", (0, 1, 2, 3, 4)), ("0,3,7", (0, 3, 7)), ("5", (5,)), ("8, 0..2", (8, 0, 1, 2))],
)
def test_seeds_can_be_ranges_and_lists(text: str, found: tuple[int, ...]) -> None:
    assert parse_seeds(text) == found
    assert parse_seeds(format_seeds(found)) == found
    assert format_seeds(found) == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-4", "expected seeds such as 0..4 or 0,3,7; got '0-4'"),
        ("", "expected seeds such as"),
        ("1,-1", "expected seeds such as"),
        ("4..1", "expected an ascending range; got 4..1"),
        ("0,2,1..3", "expected distinct seeds"),
        ("0..999,1000", "at most 1000 seeds"),
        ("0..9999999999", "at most 1000 seeds"),
    ],
)
def test_invalid_seeds_are_rejected(text: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=re.escape(message)):
        parse_seeds(text)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "Pendulum-v1", "--jobs", "2"], "--jobs requires --seeds"),
        (
            ["--env", "Pendulum-v1", "--seeds", "0..1", "--jobs", "2", "--hardware"],
            "--hardware trains in a single environment: omit --jobs",
        ),
        (["--env", "Pendulum-v1", "--seeds", "0..1", "--seed", "1"], "mutually exclusive"),
        (["--seeds", "0..1"], "a new run needs an environment: pass --env"),
        (["--env", "Pendulam-v1", "--seeds", "0..1"], "Did you mean Pendulum-v1"),
        (
            ["--env", "Pendulum-v1", "--seeds", "0..1", "--tau", "2"],
            r"tau must be above 0 and at most 1",
        ),
        (["--env", "Pendulum-v1", "--seeds", "0,2147483648"], "seed must be at least 0"),
    ],
)
def test_invalid_input_is_reported_once_before_anything_is_written(
    tmp_path: Path, words: list[str], message: str
) -> None:
    code, output = invoke(main, "td3", *words)
    assert code in (1, 2)
    assert len(re.findall(message, output)) == 1, output
    assert list(tmp_path.iterdir()) == []


def test_a_run_directory_cannot_contain_seed_runs(tmp_path: Path) -> None:
    open_run(tmp_path / "run", "td3", {"env": "Pendulum-v1"}).write()
    code, output = invoke(main, *WORDS, "--seeds", "0..1", "--run-dir", "run")
    assert code == 2
    assert "got run, which is a run directory" in output


def test_changed_settings_of_an_existing_run_are_rejected_before_any_run_starts(
    tmp_path: Path,
) -> None:
    open_run(tmp_path / "all/seed-1", "td3", {"env": "Pendulum-v1", "seed": 1}).write()
    words = *WORDS, "--seeds", "0..1", "--run-dir", "all"
    code, output = invoke(main, *words, "--tau", "0.5")
    assert code == 2
    assert "--tau: the run has 0.005, you gave 0.5" in output
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["seed-1"]


@pytest.mark.parametrize(
    ("cores", "jobs", "counts"),
    [(2, 2, "1 x 1"), (2, 1, "2 x 2"), (16, 3, "2 x 2"), (2, 9, "1 x 1")],
)
def test_parallel_runs_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, jobs: int, counts: str
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: cores)
    _stand_in(monkeypatch, "print(sys.argv)\nsys.exit(143)")
    _, output = invoke(main, *WORDS, "--seeds", "0..2", "--jobs", str(jobs))
    intra, _, inter = counts.split()
    (line,) = re.findall("^threads .*", output, re.M)
    shares = f": {min(jobs, 3)} runs share {cores} cores. The default is 2 x 2"
    assert line.startswith(f"threads       {counts} per run" + shares * (counts == "1 x 1"))
    for log in Path("runs/td3-Pendulum-v1").glob("*.log"):
        assert (
            f"'--intra-op-threads', '{intra}', '--inter-op-threads', '{inter}'" in log.read_text()
        )


def test_new_runs_use_the_thread_counts_of_existing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"env": "Pendulum-v1", "preset": "defaults", "intra_op_threads": 3, "seed": 1}
    open_run(tmp_path / "all/seed-1", "td3", given).write()
    _stand_in(monkeypatch, "print(sys.argv)\nsys.exit(143)")
    words = *WORDS, "--run-dir", "all", "--jobs", "2"
    _, output = invoke(main, *words, "--seeds", "0..1")
    assert "threads       3 x 2 per run: same as all/seed-1" in output
    assert (
        "'--intra-op-threads', '3', '--inter-op-threads', '2'" in Path("all/seed-0.log").read_text()
    )
    assert "threads" not in Path("all/seed-1.log").read_text()
    code, output = invoke(main, *words, "--seeds", "0..1", "--intra-op-threads", "1")
    assert code == 2
    assert "--intra-op-threads: the run has 3, you gave 1" in output


def test_a_failed_run_reports_its_error_and_the_others_continue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _stand_in(
        monkeypatch,
        """
        os.write(report, b"40\\n50 evaluation 3 (best so far)\\n")
        if seed == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        sys.exit("Traceback\\nError: the motor is on fire\\nResume with this." if seed else 0)
        """,
    )
    code, output = invoke(main, *WORDS, "--seeds", "0..3", "--jobs", "1")
    assert code == 1
    assert "seed 0: step 50: evaluation 3 (best so far)\nseed 0: finished: 50 steps" in output
    assert "seed 1: failed: the motor is on fire\nResume with this.\n" in output
    assert "seed 2: failed: process killed by SIGSEGV; the run can resume from its last" in output
    assert "seed 3: failed: the motor is on fire" in output
    logs = [f"seed {n} (runs/td3-Pendulum-v1/seed-{n}.log)" for n in (1, 2, 3)]
    assert f"Error: 3 of 4 runs are not finished: {', '.join(logs)}. Resume them" in output


def test_an_error_shared_by_several_runs_is_printed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    _stand_in(monkeypatch, "sys.exit('Error: no GPU for ' + words('--run-dir'))")
    code, output = invoke(main, *WORDS, "--seeds", "0..2")
    assert code == 1
    assert output.count("no GPU") == 1
    assert output.count("failed for the same reason") == 2


def test_a_log_that_is_a_symlink_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all/seed-0.log").symlink_to(tmp_path / "mine")
    _stand_in(monkeypatch, "print('written')")
    code, output = invoke(main, *WORDS, "--seeds", "0..1", "--run-dir", "all")
    assert code == 1
    assert "seed 0: cannot be started: seed-0.log must be a regular file" in output
    assert "written" in (tmp_path / "all/seed-1.log").read_text()
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_running_jobs_save_and_starts_no_others(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    _stand_in(
        monkeypatch,
        """
        open(f"{seed}.began", "x")
        while not stopped:
            time.sleep(0.01)
        os.write(report, b"700\\n")
        sys.exit(143)
        """,
    )

    def send() -> None:
        while not (Path("0.began").exists() and Path("1.began").exists()):
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    code, output = invoke(main, *WORDS, "--steps", "900", "--seeds", "0..2", "--jobs", "2")
    sender.join()
    assert code == 128 + number
    assert "stopping after saving seed 0, seed 1 (a second" in output
    where = ", ".join(f"seed {n} at step {steps} of 900" for n, steps in enumerate((700, 700, 0)))
    assert f"stopped by {number.name}: {where}\n" in output
    words = "td3 --env Pendulum-v1 --preset defaults --steps 900 --seeds 0..2 --jobs 2"
    assert re.search(rf"^resume    .*train.py {words}$", output, re.M), output
    assert not Path("2.began").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_stops_immediately(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    _stand_in(monkeypatch, "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)")

    def send() -> None:
        while not (Path("pid").exists() and Path("pid").read_text()):
            time.sleep(0.01)
        for _ in range(2):
            os.kill(os.getpid(), number)
            time.sleep(0.5)

    sender = threading.Thread(target=send)
    sender.start()
    code, output = invoke(main, *WORDS, "--seeds", "0..1")
    sender.join()
    assert code == 128 + number
    assert "stopped immediately. Resume from the last checkpoints with " in output
    assert gone(int(Path("pid").read_text()))


def test_a_run_in_use_is_waited_for_and_then_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "_PATIENCE", 0.3)
    run = open_run(tmp_path / "all/seed-1", "td3", {"env": "Pendulum-v1", "seed": 1})
    run.write()
    run.unlock()
    lock = RunLock(run.path)
    code, output = invoke(main, *WORDS, "--seeds", "0..1", "--run-dir", "all")
    assert code == 1
    assert "waiting up to 0 s for a process that is still training all/seed-1" in output
    assert "all/seed-1 is already being trained" in output
    _stand_in(monkeypatch, "")
    monkeypatch.setattr(job_module, "_PATIENCE", 60.0)
    closing = threading.Timer(0.3, lock.close)
    closing.start()
    assert "seed 1: finished" in invoke(main, *WORDS, "--seeds", "0..1", "--run-dir", "all")[1]
    closing.join()


def test_a_process_that_has_not_locked_its_run_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all").mkdir()
    run = open_run(tmp_path / "all/seed-1", "td3", {"env": "Pendulum-v1", "seed": 1})
    job = Job("seed 1", run, [sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    # This process has not locked its run, as if its parent had died early.
    job.start()
    os.close(job._reports)
    _stand_in(monkeypatch, "")
    monkeypatch.setattr(job_module, "_PATIENCE", 0.3)
    words = *WORDS, "--seeds", "0..1", "--run-dir", "all"
    code, output = invoke(main, *words)
    assert code == 1
    assert "waiting up to 0 s for a process that is still training all/seed-1" in output
    assert "Error: all/seed-1 is still being started or stopped by a process of another" in output
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["seed-1.log"]
    with pytest.raises(OSError, match="another command is starting this run"):
        Job("seed 1", run, job.command).start()
    monkeypatch.setattr(job_module, "_PATIENCE", 60.0)
    ending = threading.Timer(0.3, job.process.kill)
    ending.start()
    code, output = invoke(main, *words)
    ending.join()
    assert "seed 1: finished" in output
    assert job.process.wait() == -signal.SIGKILL


def test_a_signal_before_any_job_starts_prints_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = open_run(Path("run"), "td3", {"env": "Pendulum-v1"})
    with StopSignals() as signals:
        jobs = Jobs([Job("seed 0", run, ["false"])], 1, signals, progress=False)
        os.kill(os.getpid(), signal.SIGTERM)  # a stop signal just before the first job starts
        jobs._look()
    assert signals.received == signal.SIGTERM
    assert capsys.readouterr().out == ""


# With the thread counts of the test process (see conftest.py), runs in other processes are
# bit-identical to runs in the test process.
SMALL_WORDS = ["td3", *flag_words({**SMALL, "intra_op_threads": 2, "inter_op_threads": 2})]


def test_seed_runs_equal_single_runs_and_the_table_lists_all(tmp_path: Path) -> None:
    train_in(tmp_path / "all/seed-0", seed=0)
    # Files of --print-config contain a seed and empty settings.
    Path("config.toml").write_text('seed = 7\ndata = ""\n')
    words = *SMALL_WORDS, "--config", "config.toml", "--seeds", "0..1", "--jobs", "2"
    words = *words, "--run-dir", "all"
    code, output = invoke(main, *words)
    assert code == 0, output
    assert "threads       2 x 2 per run\n" in output
    assert "seed 0: already finished: 400 steps" in output
    assert "seed 1: step 300: evaluation -" in output
    assert "seed 1: finished: 400 steps; mean of the last 2 evaluations" in output
    (row,) = re.findall(r"^\| Pendulum-v1 \| td3 \| 0, 1 \| 300 \| .* \|$", output, re.M)
    assert "intervals over fewer than 5 runs are too narrow" in output
    train_in(tmp_path / "alone", seed=1)
    assert digests(tmp_path / "all/seed-1") == digests(tmp_path / "alone")

    before = Path("all/seed-1.log").read_bytes()
    code, output = invoke(main, *words)
    assert code == 0, output
    assert "seed 1: already finished: 400 steps" in output
    assert row in output
    code, output = invoke(main, *words, "--steps", "300")
    assert (code, "all/seed-0 already has 400 steps: --steps is the total" in output) == (2, True)
    assert Path("all/seed-1.log").read_bytes() == before


@pytest.mark.long
@pytest.mark.parametrize("killed", ["parent", "child"])
def test_the_same_command_resumes_killed_runs(tmp_path: Path, killed: str) -> None:
    script = str(ROOT / "scripts" / "train.py")
    more = ["--steps", "3000", "--updates-per-call", "10", "--replay-ratio", "0.05"]
    words = [sys.executable, script, *SMALL_WORDS, "--seeds", "0..2", "--jobs", "2", *more]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = tmp_path / "runs/td3-Pendulum-v1"
    for line in process.stdout:
        if line.startswith("seed 1: step 300"):
            break
    holders = [(folder / f"seed-{seed}/lock").read_text() for seed in (0, 1)]
    pids = [int(re.findall(r"process (\d+) on", holder)[0]) for holder in holders]
    if killed == "parent":
        process.kill()
        process.communicate()
        assert all(gone(pid, within=30) for pid in pids)
        assert "the parent process has ended" in (folder / "seed-1.log").read_text()
    else:
        os.kill(pids[1], signal.SIGKILL)
        output, _ = process.communicate()
        assert process.returncode == 1
        assert "seed 1: failed: process killed by SIGKILL; the run can resume" in output
        assert "seed 2: finished: 3000 steps" in output
    again = subprocess.run(words, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert re.search(r"seed 1: resumes at step [1-9]", again.stdout)
    assert "| Pendulum-v1 | td3 | 0, 1, 2 | 3,000 |" in again.stdout
    for seed in range(3):
        code, output = invoke(
            main, *SMALL_WORDS, "--seed", str(seed), "--run-dir", f"alone-{seed}", *more
        )
        assert code == 0, output
        assert digests(folder / f"seed-{seed}") == digests(tmp_path / f"alone-{seed}")
