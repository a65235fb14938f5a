"""Collector processes: exact results, low memory, restarts, no orphans, ignored signals."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import gymnasium
import numpy as np
import pytest

from eagerly.agents.td3 import TD3
from eagerly.agents.td3_config import TD3Config
from eagerly.environments.factory import environment_maker
from eagerly.environments.remote import RemoteEnvironment
from eagerly.environments.silence import Silence
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import RunError
from eagerly.storage.config import RunConfig
from eagerly.training.callbacks import Callback
from eagerly.training.collector import Collector
from eagerly.training.signals import StopSignals
from eagerly.workers.environment_groups import Environments
from eagerly.workers.group_specs import GroupSpec
from tests import toys
from tests.eagerly.training.test_trainer import _same
from tests.helpers import ROOT, gone
from tests.small_runs import TrainRun

toys.register()


@pytest.fixture
def no_child_left() -> Iterator[None]:
    """Asserts that a test leaves no child process. Children of other tests may remain."""
    before = set(multiprocessing.active_children())
    yield
    assert set(multiprocessing.active_children()) <= before


def processes(make: Any, count: int, seed: int = 0, **more: Any) -> Environments:
    """Creates environments, each in a separate process."""
    settings = {"group_size": 1, "collectors": "processes", "num_collectors": count}
    return Environments(make, count, seed, **settings | more)


def made() -> Environments:
    environments = processes(environment_maker("Worker-v0"), 2)
    environments.start()
    return environments


def workers_of(environments: Environments) -> list[Any]:
    return [worker.process for worker in environments._collectors._workers.values()]


def pids(environments: Environments) -> list[int]:
    return [process.pid for process in workers_of(environments)]


def told(environments: Environments, method: str) -> list[Any]:
    answers = environments._ask(dict.fromkeys(range(2), (toys.tell, (method,))))
    return [each for group in answers.values() for each in group]


class Indexed(toys.Counting):
    def __init__(self, index: int, is_evaluation: bool) -> None:
        super().__init__()
        self.about = index, is_evaluation


def test_collectors_pass_the_index_of_an_environment_to_its_factory() -> None:
    groups = [range(2), range(2, 4)]
    spec = GroupSpec(environment_maker(Indexed), groups, 0, 0.0, ())
    content = cloudpickle.dumps(spec.elsewhere(print, {1: groups[1]}))
    worker = cloudpickle.loads(content)()  # as a collector process or a Ray actor does
    group = worker._groups[1]
    assert [env.get_wrapper_attr("about") for env in group.envs] == [(2, False), (3, False)]
    worker.close()


STILL = np.zeros((2, 2), np.float32)


def test_a_worker_is_lightweight_ignores_signals_and_is_killed_if_it_does_not_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eagerly.environments.worker_process._PATIENCE", 2.0)
    environments = made()
    found = told(environments, "process")
    assert [pid for pid, _ in found] == pids(environments)
    assert os.getpid() not in pids(environments)
    for _, modules in found:
        assert "tensorflow" not in modules
        assert "keras" not in modules
    for pid in pids(environments):
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGHUP)
    assert environments.step(STILL).next_observations[0, :, 1].tolist() == [1, 1]
    assert [pid for pid, _ in found] == pids(environments)  # no worker was restarted
    environments.step(np.array([[0, 2], [0, 0]], np.float32))  # makes worker 0 hang in `close`
    workers = workers_of(environments)
    environments.close()
    assert [process.exitcode for process in workers] == [-signal.SIGKILL, 0]
    assert all(gone(process.pid) for process in workers)


@pytest.mark.long
def test_a_remote_environment_supports_any_observation_space() -> None:
    env = RemoteEnvironment(toys.TextObservations, toys.TextObservations)
    with closing(env):
        assert env.observation_space == toys.TextObservations.observation_space
        here = toys.TextObservations()
        np.testing.assert_array_equal(env.reset(seed=0)[0], here.reset(seed=0)[0])
        action = here.action_space.sample()
        assert env.step(action)[1:4] == here.step(action)[1:4]


@pytest.mark.parametrize(
    ("env", "settings", "what"),
    [
        ("Hopper-v5", {"max_episode_steps": 20}, ["terminated", "truncated"]),
        ("Success-v0", {}, ["terminated", "infos"]),
    ],
)
def test_environments_in_processes_are_bitwise_identical(
    env: str, settings: dict[str, Any], what: list[str]
) -> None:
    make = environment_maker(env, settings)
    both = [Environments(make, 3, 5, group_size=1), processes(make, 3, 5, num_collectors=2)]
    space = both[0].action_space
    draws = np.random.default_rng(0).uniform(space.low, space.high, (60, 3, *space.shape))
    seen = set()
    for environments in both:
        environments.start()
    for draw in draws.astype(np.float32):
        one, other = (environments.step(draw) for environments in both)
        for part in ("observations", "next_observations", "rewards", "terminated", "truncated"):
            np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
        assert one.infos == other.infos
        np.testing.assert_array_equal(both[0].observations, both[1].observations)
        seen |= {part for part in what if np.any(getattr(one, part))}
    assert seen == set(what)
    # Restore the episodes of each of the two in the other one.
    for here, there in (both, reversed(both)):
        there.restore(here.state())
        assert not there.lost.any()
    for environments in both:
        environments.close()


def test_remote_groups_continue_after_a_live_collector_is_restored() -> None:
    made = gymnasium.make("Pendulum-v1")
    agent = TD3(
        made.observation_space, made.action_space, TD3Config(hidden_sizes=(8,), mode="eager")
    )
    environments = processes(environment_maker("Pendulum-v1"), 2, 0, group_size=1, num_collectors=1)
    collector = Collector(agent, environments, agent.replay_buffer(100))
    collector.collect()
    state = collector.state()
    actions = collector.collect().actions
    collector.restore(state)
    np.testing.assert_array_equal(collector.collect().actions, actions)
    collector.close()


@pytest.mark.parametrize("policy_lag", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_run_is_the_same_with_any_collectors_even_if_some_are_killed(
    train: TrainRun, policy_lag: int, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"env": "Hopper-v5", "num_envs": 4, "group_size": 2, "rollout_steps": 5}
    settings |= {"policy_lag": policy_lag, "exploration": "ornstein_uhlenbeck", "steps": 300}
    straight = train("straight", **settings)

    class Kills(Callback):
        """Kills the first collector, then the second, and records their loaded modules."""

        killed = 0
        loaded: ClassVar[set[str]] = set()

        def on_round(self, trainer: Any) -> None:
            environments = trainer.collector.environments
            if not policy_lag and trainer.steps == 160:  # with a lag, the collectors are busy
                answers = environments._ask(dict.fromkeys(range(2), (toys.loaded, ())))
                Kills.loaded.update(*(each for _, each in answers.values()))
            if trainer.steps in (60, 120):
                workers_of(environments)[Kills.killed].kill()
                Kills.killed += 1

    first = settings | {"steps": 161, "collectors": "processes", "num_collectors": 2}
    train("parts", callbacks=[Kills()], **first)
    assert Kills.killed == 2
    assert caplog.text.count("restarting and replaying its episodes") >= 2
    if not policy_lag:  # collectors act without TensorFlow
        assert "eagerly.policies.numpy_actor" in Kills.loaded
        assert not {"tensorflow", "keras"} & Kills.loaded
        train("parts", steps=221, collectors="here", num_collectors=0)
    parts = train("parts", steps=300, collectors="processes", num_collectors=1)
    assert parts.collector.environments.num_collectors == 1
    _same(parts, straight)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        pytest.param(
            {"memory": "gru", "memory_units": 8, "group_size": 2, "sequence_length": 4},
            1,
            marks=pytest.mark.long,
        ),
        ({"normalize_observations": True, "exploration": "ornstein_uhlenbeck"}, 2),
    ],
    ids=["memory", "one group"],
)
def test_collectors_only_step_if_the_policy_acts_in_the_trainer(
    train: TrainRun, settings: dict[str, Any], parts: int
) -> None:
    settings |= {"env": "Hopper-v5", "num_envs": 4, "rollout_steps": 3, "steps": 240}
    first = {"steps": 240 // parts, "collectors": "processes", "num_collectors": 2}
    divided = train("divided", **settings | first)
    assert [len(numbers) for numbers in divided.collector.environments.groups] == [2, 2]
    if parts > 1:
        divided = train("divided", steps=240, num_collectors=1)
    _same(divided, train("here", **settings))


@pytest.mark.parametrize(
    ("settings", "most"),
    [
        ({"num_envs": 3}, 3),
        ({"num_envs": 5, "group_size": 2}, 3),
        ({"num_envs": 3, "policy_lag": 1}, 1),
        ({"num_envs": 3, "collectors": "here"}, 1),
    ],
)
def test_more_collectors_than_groups_are_rejected(settings: dict[str, Any], most: int) -> None:
    settings = {"env": "Pendulum-v1", "collectors": "processes"} | settings
    RunConfig(**settings, num_collectors=most)
    with pytest.raises(
        ValueError, match=f"num_collectors must be at most {most} .* got {most + 1}"
    ):
        RunConfig(**settings, num_collectors=most + 1)


@pytest.mark.parametrize("as_it_starts", [False, True])
def test_an_unread_answer_is_not_mistaken_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch, as_it_starts: bool
) -> None:
    def interrupted(self: Any, timeout: float = 0.0) -> Any:
        raise KeyboardInterrupt

    make = environment_maker("Pendulum-v1")
    count = 1 if as_it_starts else 2  # the second worker also receives a request
    here, there = Environments(make, count, 0, group_size=1), processes(make, count)
    for environments in (here, there):
        environments.start()
    for worker in workers_of(there) if as_it_starts else []:
        worker.kill()
        worker.join()
    with monkeypatch.context() as patch:
        patch.setattr("eagerly.environments.worker_process.WorkerProcess.receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            there.step(np.full((count, 1), 2.0, np.float32))
    for _ in range(2):
        one, other = (environments.step(STILL[:count, :1]) for environments in (here, there))
        np.testing.assert_array_equal(one.observations, other.observations)
    there.close()


def test_a_lost_irreproducible_environment_begins_a_fresh_episode() -> None:
    environments = processes(environment_maker("Noisy-v0"), 2)
    environments.start()
    for _ in range(5):
        environments.step(STILL)
    os.kill(pids(environments)[1], signal.SIGKILL)
    step = environments.step(STILL)
    assert environments.lost.tolist() == [False, True]
    assert np.abs(step.observations[0, :, 1] - [5, 0]).max() < 4.9  # steps 5 and 0, plus noise
    assert [len(actions) for actions in environments.state()["actions"]] == [6, 1]
    assert environments.state()["episodes"] == [0, 1]
    assert environments.repeats is False
    environments.step(STILL)
    assert not environments.lost.any()
    environments.close()


def test_a_collector_that_dies_at_every_attempt_is_reported_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HELPERS", str(tmp_path / "helpers"))
    monkeypatch.setattr("eagerly.workers.recovery._TRIES", 2)
    environments = made()
    died = r"collector process 1 died \(exit code 7\): giving up after 2 attempts"
    with pytest.raises(RunError, match=died):
        environments.step(np.array([[0, 0], [0, 3]], np.float32))
    for helper in (tmp_path / "helpers").read_text().split():
        os.kill(int(helper), signal.SIGKILL)  # fails if it has ended
    left = pids(environments)
    environments.close()
    assert all(gone(pid) for pid in left)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("own", "joint 3 is at 80.0 degrees"),  # its class can be neither pickled nor recreated
        ("connection", "ConnectionResetError: the robot hung up"),
        ("runtime", "RuntimeError: the arm is stuck"),
    ],
)
def test_an_error_in_an_environment_is_reported_with_its_traceback(
    error: str, message: str
) -> None:
    environments = processes(environment_maker(toys.Failing, {"error": error}), 1)
    environments.start()
    with pytest.raises(RunError, match=rf"(?s)environment 0, step 1 .*: step failed:.*{message}"):
        environments.step(STILL[:1])
    environments.close()
    assert all(gone(pid) for pid in pids(environments))


@pytest.mark.usefixtures("no_child_left")
def test_an_error_while_a_worker_creates_its_environment_is_reported() -> None:
    here = {"error": "", "made_in": os.getpid()}
    with pytest.raises(RunError, match=r"cannot be created with .*: no port is free"):
        processes(environment_maker(toys.Failing, here), 2)


def test_a_slow_start_is_not_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(Watchdog, "_end_process", lambda self, frame: ended.append(self._what))
    make = environment_maker(toys.Slow, {"seconds": 1.5})
    with closing(Watchdog(0.5, lambda: "here")) as watchdog:
        processes(make, 1, watchdog=watchdog, timeout=0.5).close()
    assert ended == []


@pytest.mark.usefixtures("no_child_left")
def test_a_process_that_never_becomes_ready_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eagerly.workers.remote_workers.STARTING", 1.0)
    stuck = environment_maker(toys.Slow, {"seconds": 600.0})
    with pytest.raises(RunError, match=r"collector 0 did not create its .* within 1\.2 seconds"):
        processes(stuck, 1, timeout=0.2)


@pytest.mark.usefixtures("no_child_left")
def test_an_unpicklable_factory_is_reported() -> None:
    lock = threading.Lock()

    def make() -> toys.Counting:
        assert lock
        return toys.Counting()

    with pytest.raises(
        RunError, match=r"cannot be sent to another process .*lock.*collectors here"
    ):
        processes(environment_maker(make), 2)


@pytest.mark.usefixtures("no_child_left")
def test_a_failing_worker_is_reported_with_the_step_of_the_run(
    train: TrainRun, tmp_path: Path
) -> None:
    settings = {"env": toys.Failing, "env_kwargs": {"error": "runtime"}, "check_env": False}
    with pytest.raises(RunError, match=r"(?s)after step 0: environment 0, step 1 .*stuck"):
        train(**settings, collectors="processes")


@pytest.mark.usefixtures("no_child_left")
def test_a_trainer_that_cannot_start_leaves_no_processes(train: TrainRun) -> None:
    train(env="Long-v0", num_envs=2, steps=20)
    with pytest.raises(RunError, match="cannot be resumed with --hidden-sizes 9,9") as kept:
        train(hidden_sizes=(9, 9), collectors="processes", override=True)
    assert kept


def test_a_collector_that_holds_the_interpreter_lock_is_restarted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make = environment_maker(toys.Holding, {"mark": str(tmp_path / "mark")})
    environments = processes(make, 1, timeout=2.0)  # the worker counts as frozen after 4 s
    environments.start()
    steps = [environments.step(STILL[:1]) for _ in range(3)]
    assert [float(step.next_observations[0, 0, 1]) for step in steps] == [1, 2, 3]
    assert not environments.lost.any()
    assert "collector process 0 has sent no heartbeat for 4 seconds: restarting" in caplog.text
    environments.close()


def test_a_stopped_collector_does_not_prevent_a_run_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eagerly.environments.silence._HURRIED", 2.0)
    monkeypatch.setattr("eagerly.environments.worker_process._PATIENCE", 0.5)
    environments = made()  # has no timeout, so a frozen process never counts as lost
    environments.step(STILL)
    os.kill(pids(environments)[0], signal.SIGSTOP)
    with StopSignals() as signals:
        signals.then = environments.expect_stop
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM]).start()
        step = environments.step(STILL)
    assert signals.received == signal.SIGTERM
    assert step.next_observations[0, :, 1].tolist() == [2, 2]
    assert not environments.lost.any()
    os.kill(pids(environments)[1], signal.SIGSTOP)
    stopped = pids(environments)
    environments.close()
    assert all(gone(pid) for pid in stopped)


def test_silence_counts_ticks_beyond_the_timeout_since_the_last_heartbeat() -> None:
    silence = Silence(3.0)  # the process counts as frozen after 3 + 2 ticks of 1 s
    assert not any(silence.tick() for _ in range(4))
    silence.end()
    assert [silence.tick() for _ in range(5)] == [False] * 4 + [True]
    endless = Silence(0.0)
    assert not any(endless.tick() for _ in range(1000))
    long = Silence(60.0)
    endless.is_short = long.is_short = True
    assert endless.tick()
    assert [long.tick() for _ in range(5)] == [False] * 4 + [True]
    endless.is_short = long.is_short = False  # the run continues after a stop
    assert not endless.tick()
    assert not long.tick()


PROGRAM = """
import ctypes, os, signal, sys, threading, time
import tensorflow
import gymnasium
print("the program runs", flush=True)

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))
    def __init__(self, hangs=False):
        self.hangs = hangs
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype("float32"), {}
    def step(self, action):
        ctypes.PyDLL(None).sleep(300 if self.hangs else 0)  # holds the interpreter lock
        reward = float("tensorflow" in sys.modules)
        return self.np_random.uniform(-1, 1, 1).astype("float32"), reward, False, False, {}

gymnasium.register("Mine-v0", entry_point=Mine)
import numpy as np
from eagerly.workers.environment_groups import Environments
from eagerly.environments.factory import environment_maker
STILL = np.zeros((2, 1), "float32")
every = []
for make in (environment_maker("Mine-v0"), environment_maker(Mine, {"hangs": HANGS})):
    environments = Environments(
        make, 2, 0, group_size=1, collectors="processes", num_collectors=2
    )
    environments.start()
    every.append(environments)
workers = [each for made in every for each in made._collectors._workers.values()]
print(*[worker.process.pid for worker in workers], flush=True)
END
"""


def _run(path: Path, program: str) -> subprocess.CompletedProcess[str]:
    (path / "tensorflow.py").touch()  # replaces TensorFlow, which takes seconds to import
    # Output goes to files: reading a pipe would wait until the last worker has closed it.
    with (path / "out").open("w+") as out, (path / "err").open("w+") as err:
        done = subprocess.run(
            [sys.executable, program],
            cwd=path,
            stdout=out,
            stderr=err,
            timeout=120,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )
        time.sleep(0.5)  # workers may still write error messages
    texts = [(path / name).read_text() for name in ("out", "err")]
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def test_the_main_program_is_not_rerun_and_its_environments_are_sent(tmp_path: Path) -> None:
    # The program has no main guard, defines an environment and imports TensorFlow.
    end = "print(*[made.step(STILL).rewards[0] for made in every], flush=True)"
    (tmp_path / "program.py").write_text(PROGRAM.replace("HANGS", "False").replace("END", end))
    done = _run(tmp_path, "program.py")
    assert done.returncode == 0, done.stderr
    first, workers, rewards = done.stdout.splitlines()
    assert (first, rewards) == ("the program runs", "[0. 0.] [0. 0.]")
    assert all(gone(int(pid)) for pid in workers.split())  # workers end, although not closed


def test_no_worker_outlives_a_killed_trainer_not_even_a_frozen_one(
    tmp_path: Path,
) -> None:
    end = """
threading.Thread(target=environments.step, args=[STILL]).start()
time.sleep(1)
os.kill(workers[0].process.pid, signal.SIGSTOP)
os.kill(os.getpid(), 9)
"""
    (tmp_path / "program.py").write_text(PROGRAM.replace("HANGS", "True").replace("END", end))
    done = _run(tmp_path, "program.py")
    assert done.returncode == -9, done.stderr
    workers = [int(pid) for pid in done.stdout.splitlines()[-1].split()]
    assert len(workers) == 4
    assert all(gone(pid, within=30) for pid in workers)
    assert "Traceback" not in done.stderr
