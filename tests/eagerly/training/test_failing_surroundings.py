"""Failures of the environment or the disk end a run with one message and keep its checkpoints."""

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
from tests import toys
from tests.eagerly.training.test_trainer import _same
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
    "dtype": r"observation must have dtype float64; got <U4",
    "reward": r"reward must be a number; got array\(\[1.\]\) of shape \(1,\)",
    "no reward": "reward must be a number; got None",
    "ended": "terminated must be True or False; got 'no'",
    "four": r"step must return \(observation, reward, terminated, truncated, info\); got",
}


def assert_whole(run: Path, steps: int) -> None:
    """Asserts that no file is incomplete, and that the newest checkpoint is intact, at `steps`."""
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
def test_invalid_results_of_an_environment_stop_the_run(
    train: TrainRun, tmp_path: Path, fault: str
) -> None:
    where = "stopped after step 144: environment 0, step 5 of its episode: "
    with pytest.raises(RunError, match=where + FAULTS[fault]) as caught:
        train(**faulty(fault))
    assert str(caught.value).endswith("All complete rounds are saved.")
    assert_whole(tmp_path / "run", 144)


def test_changing_spaces_stop_the_run(train: TrainRun, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"(?s)stopped after step 149: .*: spaces must stay"):
        train(**faulty("spaces"))
    assert_whole(tmp_path / "run", 149)


def test_a_failing_evaluation_environment_stops_the_run(train: TrainRun, tmp_path: Path) -> None:
    settings = {"evaluate_every_steps": 100, "evaluation_episodes": 20}
    message = r"stopped after step 100: the evaluation environment, step . of its episode: "
    with pytest.raises(RunError, match=message + FAULTS["raises"]):
        train(**faulty("raises") | settings, checkpoint_every_steps=50)
    assert_whole(tmp_path / "run", 50)


def test_a_failure_while_an_episode_is_replayed_stops_the_run(
    train: TrainRun, tmp_path: Path
) -> None:
    from tests.toys import Counting

    class Moody(Counting):
        """Fails in `step` unless `works` is true."""

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


class FailsOnce(toys.Counting):
    """Fails in one of the steps of all instances."""

    steps_left = 0

    def step(self, action: Any) -> Any:
        FailsOnce.steps_left -= 1
        if FailsOnce.steps_left == 0:
            raise OSError("the cable is loose")
        return super().step(action)


@pytest.mark.parametrize(
    ("settings", "saved"),
    [
        ({"exploration": "ornstein_uhlenbeck"}, 38),
        ({"exploration": "held", "rollout_steps": 7, "num_envs": 3, "group_size": 2}, 21),
        ({"exploration": "held", "rollout_steps": 7, "policy_lag": 1}, 35),
    ],
)
def test_complete_rounds_are_saved_if_an_environment_fails(
    train: TrainRun, tmp_path: Path, settings: dict[str, Any], saved: int
) -> None:
    settings |= {"env": FailsOnce, "env_kwargs": {"length": 9}, "check_env": False, "steps": 63}
    settings |= {"evaluations": "none", "warmup_steps": 10, "replay_ratio": 0.1, "agent": "ddpg"}
    straight = train("straight", **settings)
    FailsOnce.steps_left = 39  # in the second of two groups
    with pytest.raises(RunError, match=rf"stopped after step {saved}: .*, step \d of") as caught:
        train("run", **settings)
    assert str(caught.value).endswith("OSError: the cable is loose\nAll complete rounds are saved.")
    assert_whole(tmp_path / "run", saved)
    _same(train("run", env=FailsOnce), straight)


@pytest.mark.parametrize("fault", ["panics", "hangs"])
def test_a_failing_environment_in_a_process_stops_the_run(
    train: TrainRun, tmp_path: Path, fault: str
) -> None:
    message = {
        "panics": r"environment \d, step 5 of its episode: " + FAULTS["panics"],
        "hangs": r"environment \d: step timed out after 1 second",
    }[fault]
    settings = faulty(fault, num_envs=2, collectors="processes")
    if fault == "hangs":
        # Without the fault "hangs", a timeout of 1 s could stop a slow step on a loaded machine.
        settings["environment_timeout_seconds"] = 1.0
    with pytest.raises(RunError, match=r"stopped after step 288: .*" + message) as caught:
        train(**settings)
    assert str(caught.value).endswith("No new checkpoint was written.")
    assert_whole(tmp_path / "run", 200)


@pytest.mark.parametrize(
    ("fault", "step", "call"),
    [
        ("hangs", 144, "step"),
        pytest.param("hangs in reset", 149, "reset", marks=pytest.mark.long),
    ],
)
def test_a_hanging_environment_ends_the_process_and_names_the_step(
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
    said = f"stopped after step {step}: environment 0: {call} timed out after 1 second"
    assert said in process.stderr
    assert "time.sleep(600)" in process.stderr  # the traceback shows where it hangs
    assert "the same command resumes from the last one" in process.stderr
    assert_whole(tmp_path / "run", 100)


def test_resuming_with_different_spaces_is_rejected(train: TrainRun, tmp_path: Path) -> None:
    from tests.toys import Counting

    class Widened(Counting):
        """Its action space changes before the run is resumed, as after an update of its package."""

        resets = 0

        def reset(self, **given: Any) -> Any:
            Widened.resets += 1
            return super().reset(**given)

    settings: dict[str, Any] = {"env": Widened, "check_env": False, "evaluate_every_steps": 10**6}
    train(**settings, steps=150)
    Widened.action_space = type(Counting.action_space)(-1.0, 4.0, (2,))
    changed = r"spaces have changed: got observations .*, actions Box\(-1.0, 4.0, .*, expected obs"
    with pytest.raises(RunError, match=changed):
        train(env=Widened, steps=200)
    run = tmp_path / "run"
    assert_whole(run, 150)
    # After an override of the environment, its spaces may differ, even if the process was killed
    # before the next checkpoint, or that checkpoint is damaged.
    given = {"env": Widened, "env_kwargs": {"length": 5}, "steps": 160}
    Trainer(open_run(run, None, given, override=True)).close()
    train(env=Widened, check_env=False)
    next(run.glob("checkpoints/*160-*/networks.index")).write_text("")
    Widened.resets = 0
    Trainer(open_run(run, None, {"env": Widened, "check_env": True})).close()
    assert Widened.resets > 10  # the older checkpoint has another environment: check it again


def test_environment_instances_with_different_spaces_are_rejected(train: TrainRun) -> None:
    from tests.toys import Counting

    class Growing(Counting):
        """Each new instance has one more action dimension."""

        made = 0

        def __init__(self) -> None:
            super().__init__()
            Growing.made += 1
            self.action_space = type(Counting.action_space)(-1.0, 1.0, (Growing.made,))

    with pytest.raises(RunError, match="3 environments must have the same spaces"):
        train(env=Growing, check_env=False, num_envs=3)


# --- memory and disk ---------------------------------------------------------------------------


def test_a_buffer_that_does_not_fit_into_memory_is_rejected_with_both_sizes(
    train: TrainRun, tmp_path: Path
) -> None:
    numbers = r"9 float32 values each needs 33527\.61 GiB of memory, \d+\.\d\d GiB available"
    with pytest.raises(RunError, match=numbers + ": reduce --replay-capacity"):
        train(replay_capacity=10**12, steps=10**12 - 1)
    assert not (tmp_path / "run").exists()
    train(replay_capacity=10**8, steps=120)  # fits, because only 120 rows are filled


class Meddler(Callback):
    """Calls `deed` at a given step, for example to fill the disk or to move the run directory."""

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


def test_a_vanished_directory_is_reported_and_not_recreated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(RunError, match=r"stopped after step 200: .*the run directory was removed"):
        meddled(run, 150, functools.partial(shutil.rmtree, run))
    assert not run.exists()


def test_a_run_in_place_of_a_moved_run_is_not_changed(train: TrainRun, tmp_path: Path) -> None:
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
    """Runs the command line with a limit on file sizes."""
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "train.py", *words],
        capture_output=True,
        text=True,
        timeout=100,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_)),
    )


@pytest.mark.long
def test_a_file_size_limit_stops_the_run_with_a_message(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    words = ["td3", "--env", "Pendulum-v1", "--run-dir", run, "--hidden-sizes", "8,8"]
    words += ["--mode", "eager", "--replay-ratio", "0.01", "--updates-per-call", "10"]
    unlimited = 2**30
    assert limited(unlimited, *words, "--steps", "1000").returncode == 0
    process = limited(60_000, *words, "--steps", "4000")
    assert process.returncode == 1
    assert "stopped after step 4000: [Errno 27] File too large" in process.stderr
    assert "Resume from step 1000 with" in process.stderr
    assert "Traceback" not in process.stderr
    assert_whole(tmp_path / "run", 1000)
    process = limited(unlimited, *words, "--steps", "4000")
    assert "resumes at step 1000" in process.stdout
    assert "finished: 4000 steps" in process.stdout


def can_mount() -> bool:
    """Returns whether a process on this machine may mount a private file system."""
    command = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(command, check=False).returncode == 0


def on_own_disk(program: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with a private disk of 3 MB at /mnt."""
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
def test_a_full_disk_is_reported_and_nothing_is_lost_once_space_is_free(tmp_path: Path) -> None:
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
def test_a_run_killed_on_a_full_disk_rewrites_its_pending_points(
    tmp_path: Path,
) -> None:
    process = on_own_disk(
        f"""
        settings = SMALL | {{"steps": 600, "summarize_every_steps": 10, "evaluate_every_steps": 50}}

        class Dies(Meddler):
            def reached(self, steps):
                fill() if steps == 250 else None
                os.kill(os.getpid(), signal.SIGKILL) if steps == 350 else None

        child = os.fork()  # before TensorFlow starts threads
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
