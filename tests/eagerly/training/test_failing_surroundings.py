"""What surrounds a run fails: one clear message with the step, and the last checkpoint stays."""

from __future__ import annotations

import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eagerly import Trainer, open_run
from eagerly.errors import RunError
from eagerly.storage.checkpoint_reader import newest_checkpoint
from eagerly.storage.digests import curves, digests  # noqa: F401  - programs below use them
from eagerly.storage.evaluations import read_results
from eagerly.training.callbacks import Callback, TrainerView
from tests.helpers import ROOT
from tests.small_runs import (  # noqa: F401
    SMALL,
    TrainRun,
    logged,
    train_in,
)

FAULTS = {
    "raises": r"step failed:\nTraceback[\s\S]*OSError: the motor is on fire",
    "panics": r"step failed:\nTraceback[\s\S]*PanicError: index out of bounds",
    "quits": r"step failed:\nTraceback[\s\S]*SystemExit: window closed",
    "shape": r"observation must have shape \(2,\); got \(3,\)",
    "dtype": r"observation must be of dtype float64; got <U4",
    "reward": r"reward must be a number; got array\(\[1.\]\) of shape \(1,\)",
    "no reward": "reward must be a number; got None",
    "ended": "terminated must be True or False; got 'no'",
    "four": r"step must return \(observation, reward, terminated, truncated, info\); got",
}


def assert_whole(run: Path, steps: int) -> None:
    """The newest checkpoint is the one of `steps`, intact, and nothing is half-written."""
    with logged() as lines:
        saved = newest_checkpoint(run)
    assert (saved and saved.manifest.steps, lines) == (steps, [])
    assert list(run.rglob("*.tmp")) == []
    assert all((folder / "manifest.json").exists() for folder in run.glob("checkpoints/*"))


def faulty(fault: str, **settings: Any) -> dict[str, Any]:
    return {
        "env": "Faulty-v0",
        "env_kwargs": {"fault": fault},
        "evaluate_every_steps": 10**6,
    } | settings


@pytest.mark.parametrize("fault", FAULTS)
def test_an_environment_that_hands_over_what_it_must_not(
    train: TrainRun, tmp_path: Path, fault: str
) -> None:
    where = "stopped after step 144: environment 0, step 5 of its episode: "
    with pytest.raises(RunError, match=where + FAULTS[fault]) as caught:
        train(**faulty(fault))
    assert str(caught.value).endswith("No checkpoint was written from it.")
    assert_whole(tmp_path / "run", 100)


def test_an_environment_whose_spaces_change(train: TrainRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"(?s)stopped after step 149: .*its spaces must stay"):
        train(**faulty("spaces"))
    assert_whole(tmp_path / "run", 100)


def test_the_environment_that_is_evaluated_in(train: TrainRun, tmp_path: Path) -> None:
    settings = {"evaluate_every_steps": 100, "evaluation_episodes": 20}
    message = r"stopped after step 100: the evaluation environment, step . of its episode: "
    with pytest.raises(RunError, match=message + FAULTS["raises"]):
        train(**faulty("raises") | settings, checkpoint_every_steps=50)
    assert_whole(tmp_path / "run", 50)


def test_an_environment_that_fails_while_its_episode_is_repeated(
    train: TrainRun, tmp_path: Path
) -> None:
    from tests.toys import Counting

    class Moody(Counting):
        """Works on some days only."""

        works = True

        def step(self, action: Any) -> Any:
            if not Moody.works:
                raise OSError("not today")
            return super().step(action)

    settings: dict[str, Any] = {"env": Moody, "env_kwargs": {"length": 50}, "check_env": False}
    train(**settings, steps=120)
    Moody.works = False
    with pytest.raises(RunError, match=r"environment 0, step 1 of its episode: step failed:"):
        train(env=Moody, steps=140)
    assert_whole(tmp_path / "run", 120)
    Moody.works = True
    assert train(env=Moody, steps=140).lines == []


@pytest.mark.parametrize("fault", ["panics", "hangs"])
def test_an_environment_in_a_process(train: TrainRun, tmp_path: Path, fault: str) -> None:
    message = {
        "panics": r"environment \d, step 5 of its episode: " + FAULTS["panics"],
        "hangs": r"environment \d, in step, has not come back for 1 second",
    }[fault]
    settings = faulty(fault, num_envs=2, collectors="processes")
    if fault == "hangs":
        # The others must not have such a limit: on a loaded machine a step may take as long.
        settings["environment_timeout_seconds"] = 1.0
    with pytest.raises(RunError, match=r"stopped after step 288: .*" + message):
        train(**settings)
    assert_whole(tmp_path / "run", 200)


@pytest.mark.parametrize(
    ("fault", "step", "call"),
    [
        ("hangs", 144, "step"),
        pytest.param("hangs in reset", 149, "reset", marks=pytest.mark.long),
    ],
)
def test_an_environment_that_hangs_here_ends_the_process_with_the_step(
    tmp_path: Path, fault: str, step: int, call: str
) -> None:
    words = ["td3", "--env", "tests.toys:Faulty-v0", "--env-kwargs", json.dumps({"fault": fault})]
    words += ["--run-dir", str(tmp_path / "run"), "--checkpoint-every-steps", "100"]
    words += ["--environment-timeout-seconds", "1", "--hidden-sizes", "8,8"]
    words += ["--mode", "eager", "--no-check-env"]
    process = subprocess.run(
        [sys.executable, ROOT / "scripts" / "train.py", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert process.returncode == 1
    said = f"stopped after step {step}: environment 0, in {call}, has not come back for 1"
    assert said in process.stderr
    assert "time.sleep(600)" in process.stderr  # where it hangs
    assert "the same command continues from the last one" in process.stderr
    assert_whole(tmp_path / "run", 100)


def test_an_environment_with_other_spaces_than_the_run_began_with_is_refused(
    train: TrainRun, tmp_path: Path
) -> None:
    from tests.toys import Counting

    class Widened(Counting):
        """The same name and package, of another version."""

    settings: dict[str, Any] = {"env": Widened, "check_env": False, "evaluate_every_steps": 10**6}
    train(**settings, steps=150)
    Widened.action_space = type(Counting.action_space)(-1.0, 4.0, (2,))
    with pytest.raises(RunError, match="the environment has other spaces than it had"):
        train(env=Widened, steps=200)
    assert_whole(tmp_path / "run", 150)


def test_copies_of_an_environment_that_differ_are_refused(train: TrainRun) -> None:
    from tests.toys import Counting

    class Growing(Counting):
        """Every copy has one more action."""

        made = 0

        def __init__(self) -> None:
            super().__init__()
            Growing.made += 1
            self.action_space = type(Counting.action_space)(-1.0, 1.0, (Growing.made,))

    with pytest.raises(RunError, match="3 environments do not fit together"):
        train(env=Growing, check_env=False, num_envs=3)


# --- memory and disk ---------------------------------------------------------------------------


def test_a_buffer_that_does_not_fit_is_refused_before_the_run_with_both_numbers(
    train: TrainRun, tmp_path: Path
) -> None:
    numbers = r"9 float32 numbers, needs 33527\.61 GiB of memory, \d+\.\d\d GiB are available"
    with pytest.raises(RunError, match=numbers + ": give a smaller --replay-capacity"):
        train(replay_capacity=10**12, steps=10**12 - 1)
    assert not (tmp_path / "run").exists()
    train(replay_capacity=10**8, steps=120)  # of which it will fill 120


class Meddler(Callback):
    """Does something to the surroundings when a step is reached."""

    def __init__(self, step: int, deed: Any) -> None:
        super().__init__()
        self._step, self._deed = step, deed

    def on_round(self, training: TrainerView) -> None:
        self.reached(training.steps)

    def reached(self, steps: int) -> None:
        if steps == self._step:
            self._deed()


def meddled(run: Path, step: int, deed: Any, **settings: Any) -> None:
    trainer = Trainer(open_run(run, "td3", SMALL | settings), [Meddler(step, deed)])
    with closing(trainer):
        trainer.train()


def test_a_directory_that_vanishes_is_said_and_not_made_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(RunError, match=r"stopped after step 200: .*the run directory has vanished"):
        meddled(run, 150, functools.partial(shutil.rmtree, run))
    assert not run.exists()


def test_another_run_in_the_place_of_a_removed_one_is_left_alone(
    train: TrainRun, tmp_path: Path
) -> None:
    run = tmp_path / "run"

    def replace() -> None:
        run.rename(tmp_path / "moved")
        train(steps=50)

    with pytest.raises(RunError, match=r"stopped after step 200: .*is no longer the directory"):
        meddled(run, 170, replace, summarize_every_steps=10**6, evaluate_every_steps=100)
    assert read_results(run / "evaluations.csv").steps.tolist() == [50]
    assert_whole(run, 50)
    assert_whole(tmp_path / "moved", 100)


def limited(bytes_: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line with a limit on the size of files."""
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "train.py", *words],
        capture_output=True,
        text=True,
        timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_)),
    )


@pytest.mark.long
def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    words = ["td3", "--env", "Pendulum-v1", "--run-dir", run, "--hidden-sizes", "8,8"]
    words += ["--mode", "eager", "--replay-ratio", "0.01", "--updates-per-call", "10"]
    unlimited = 2**30
    assert limited(unlimited, *words, "--steps", "1000").returncode == 0
    process = limited(60_000, *words, "--steps", "4000")
    assert process.returncode == 1
    assert "stopped after step 4000: [Errno 27] File too large" in process.stderr
    assert "It goes on from step 1000 with" in process.stderr
    assert "Traceback" not in process.stderr
    assert_whole(tmp_path / "run", 1000)
    process = limited(unlimited, *words, "--steps", "4000")
    assert "continues at step 1000" in process.stdout
    assert "finished: 4000 steps" in process.stdout


def can_mount() -> bool:
    """Whether this machine lets a process have a file system of its own."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, check=False).returncode == 0


def on_own_disk(program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with a disk of 3 MB at /mnt that nobody else sees."""
    before = """
        import functools, os, shutil, signal, subprocess
        from pathlib import Path
        from tests.eagerly.training.test_failing_surroundings import *

        run, filler = Path("/mnt/run"), Path("/mnt/filler")

        def fill():
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(256))
                except OSError:
                    pass
        """
    code = textwrap.dedent(before) + textwrap.dedent(program)
    mount = "mount -t tmpfs -o size=3m none /mnt && exec "
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", mount + '"$0" -c "$1"', sys.executable, code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )


own_disk = pytest.mark.skipif(not can_mount(), reason="this machine lets no process mount a disk")


@own_disk
@pytest.mark.long
def test_a_full_disk_is_said_and_nothing_is_lost_once_there_is_space(tmp_path: Path) -> None:
    process = on_own_disk(
        f"""
        settings = SMALL | {{"steps": 600, "summarize_every_steps": 10, "evaluate_every_steps": 50}}
        straight = train_in(Path({str(tmp_path)!r}) / "straight", **settings)

        class Both(Meddler):
            def reached(self, steps):
                fill() if steps == 250 else None
                filler.unlink() if steps == 450 else None

        with logged() as lines:
            with Trainer(open_run(run, "td3", settings), [Both(0, None)]) as trainer:
                trainer.train()
        print(*lines, sep="\\n")
        assert digests(run) == digests(straight.run.path)
        assert {{len(values) for values in curves(run).values()}} == {{1}}
        assert_whole(run, 600)
        """
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "NO CHECKPOINT at step 300",
        "NO CHECKPOINT at step 400",
    ]
    assert all("No space left on device" in line for line in lines)


@own_disk
@pytest.mark.long
def test_a_run_that_is_killed_while_its_points_wait_for_space_makes_them_again(
    tmp_path: Path,
) -> None:
    process = on_own_disk(
        f"""
        settings = SMALL | {{"steps": 600, "summarize_every_steps": 10, "evaluate_every_steps": 50}}

        class Dies(Meddler):
            def reached(self, steps):
                fill() if steps == 250 else None
                os.kill(os.getpid(), signal.SIGKILL) if steps == 350 else None

        child = os.fork()  # before TensorFlow has threads
        if child == 0:
            with closing(Trainer(open_run(run, "td3", settings), [Dies(0, None)])) as trainer:
                trainer.train()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        assert_whole(run, 200)
        filler.unlink()
        train_in(run, **settings)
        straight = train_in(Path({str(tmp_path)!r}) / "straight", **settings)
        assert digests(run) == digests(straight.run.path)
        assert {{len(values) for values in curves(run).values()}} == {{1}}
        """
    )
    assert process.returncode == 0, process.stderr


@pytest.mark.long
@own_disk
def test_a_disk_that_stays_full_or_is_read_only_fails_the_run() -> None:
    process = on_own_disk(
        """
        try:
            meddled(run, 250, fill, summarize_every_steps=10)
        except RunError as error:
            print(error)
        assert_whole(run, 200)
        filler.unlink()

        subprocess.run(["mount", "-o", "remount,ro", "/mnt"], check=True)
        try:
            train_in(run, steps=400)
        except RunError as error:
            print(error)
        subprocess.run(["mount", "-o", "remount,rw", "/mnt"], check=True)
        assert_whole(run, 200)

        train_in(run, steps=400)
        assert_whole(run, 400)
        """
    )
    assert process.returncode == 0, process.stderr
    full, read_only = process.stdout.splitlines()
    assert full.startswith("stopped after step 400: [Errno 28]")
    assert "No space left on device" in full
    assert read_only == "/mnt/run cannot be used: [Errno 30] Read-only file system: '/mnt/run/lock'"
