"""Tests on a local Ray cluster in an isolated network, run by test_ray_workers.py."""

from __future__ import annotations

import logging
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from eagerly import Trainer, open_run
from eagerly.environments.factory import environment_maker
from eagerly.environments.silence import Silence
from eagerly.errors import RunError
from eagerly.training.callbacks import Callback
from eagerly.workers import ray_workers as on_ray
from eagerly.workers.environment_groups import Environments
from eagerly.workers.local_cluster import LocalCluster
from eagerly.workers.versions import surroundings
from tests import toys
from tests.eagerly.training.test_trainer import _same
from tests.helpers import gone
from tests.small_runs import SMALL

toys.register()
OWN_MEMORY = 120 * 2**20  # limit in bytes for the private memory of a collector
STILL = np.zeros((2, 2), np.float32)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[LocalCluster]:
    """One cluster for all tests, because starting one takes seconds."""
    made = LocalCluster(on_ray._ray(), 4)
    yield made
    made.close()
    assert not made._folder.exists()


def on_actors(make: Any, count: int = 2, **more: Any) -> Environments:
    settings = {"group_size": 1, "collectors": "ray", "num_collectors": count}
    return Environments(make, 2, 0, **settings | more)


def told(environments: Environments, method: str) -> list[Any]:
    answers = environments._ask(dict.fromkeys(range(2), (toys.tell, (method,))))
    return [each for group in answers.values() for each in group]


def test_a_collector_is_a_lightweight_actor_that_is_restarted_if_killed() -> None:
    environments = on_actors(environment_maker("Worker-v0"))
    environments.start()
    found = told(environments, "process")
    assert len({os.getpid(), *(pid for pid, _ in found)}) == 3
    for pid, modules in found:
        assert not {"tensorflow", "keras"} & set(modules)
        assert psutil.Process(pid).memory_full_info().uss < OWN_MEMORY
    environments.step(STILL)
    # Collector 0 is killed just before a request, collector 1 a second before one.
    for again in range(2):
        os.kill(told(environments, "process")[again][0], signal.SIGKILL)
        time.sleep(again)
        step = environments.step(STILL)
        assert step.next_observations[0, :, 1].tolist() == [2 + again] * 2
        assert not environments.lost.any()
    environments.close()


def test_a_frozen_collector_is_restarted_and_ends_with_the_others() -> None:
    environments = on_actors(environment_maker("Worker-v0"), timeout=2.0)
    environments.start()
    environments.step(STILL)
    # A frozen collector is restarted after 4 s without a heartbeat. If it has no timeout, it is
    # restarted 5 s after the call of `expect_stop`.
    for frozen, hurries in ((0, False), (1, True)):
        os.kill(told(environments, "process")[frozen][0], signal.SIGSTOP)
        if hurries:
            environments._collectors._silences[1] = Silence(0.0)
            environments.expect_stop()
        step = environments.step(STILL)
        assert step.next_observations[0, :, 1].tolist() == [2 + frozen] * 2
        assert not environments.lost.any()
    pids = [pid for pid, _ in told(environments, "process")]
    os.kill(pids[0], signal.SIGSTOP)
    environments.close()
    assert all(gone(pid) for pid in pids)


def test_other_users_cannot_access_a_local_cluster(cluster: LocalCluster) -> None:
    listening = [each for each in psutil.net_connections("tcp") if each.status == "LISTEN"]
    hosts = {each.laddr.ip.removeprefix("::ffff:") for each in listening}
    assert hosts == {"127.0.0.1"}  # not the machine's other address
    assert stat.S_IMODE(cluster._folder.stat().st_mode) == 0o700
    raylets = [each for each in psutil.Process().children() if each.name() == "raylet"]
    assert len(raylets[0].environ()["RAY_AUTH_TOKEN"]) == 64
    assert "RAY_AUTH_TOKEN" not in os.environ


def test_a_collector_that_dies_at_every_attempt_is_reported() -> None:
    environments = on_actors(environment_maker("Worker-v0"))
    environments.start()
    with pytest.raises(RunError, match=r"collector 1 died .*: giving up after 5 attempts"):
        environments.step(np.array([[0, 0], [0, 3]], np.float32))
    environments.close()


def test_an_error_in_an_environment_is_reported() -> None:
    environments = on_actors(environment_maker(toys.Failing, {"error": "runtime"}))
    environments.start()
    with pytest.raises(RunError, match=r"(?s)environment 0, step 1 .*the arm is stuck"):
        environments.step(STILL)
    environments.close()


def test_a_hanging_environment_is_reported_at_once() -> None:
    environments = on_actors(environment_maker("Worker-v0"), timeout=2.0)
    environments.start()
    began = time.monotonic()
    hangs = r"(?s)environment 1: step timed out after 2 seconds.*toys.py.*time.sleep\(60\)"
    with pytest.raises(RunError, match=hangs):
        environments.step(np.array([[0, 0], [0, 4]], np.float32))
    assert time.monotonic() - began < 15
    environments.close()


def test_an_interrupt_in_an_actor_is_reported() -> None:
    environments = on_actors(environment_maker("Worker-v0"))
    environments.start()
    with pytest.raises(RunError, match=r"(?s)a worker process failed.*KeyboardInterrupt: enough"):
        environments._ask(dict.fromkeys(range(2), (toys.interrupt, ())))
    environments.close()


def test_a_second_cluster_cannot_be_joined() -> None:
    with pytest.raises(RunError, match=r"ray:127\.0\.0\.1:1 is not the Ray cluster at"):
        on_actors(environment_maker("Long-v0"), collectors="ray:127.0.0.1:1")
    joined = on_ray._ray().get_runtime_context().gcs_address
    on_actors(environment_maker("Long-v0"), collectors=f"ray:{joined}").close()


def test_a_missing_package_is_named() -> None:
    make = environment_maker(toys.Elsewhere, {"only_in": os.getpid()})
    with pytest.raises(RunError, match=r"needs a package that is missing: .*no module 'simulator'"):
        on_actors(make)


def test_a_different_collector_is_rejected_unless_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(on_ray, "_here", lambda: surroundings() | {"mujoco": "2.1", "Python": "3"})
    make = environment_maker("Long-v0")
    with pytest.raises(RunError, match=r"collector 0 differs .*: Python .* \(here 3\), mujoco .*"):
        on_actors(make)
    with caplog.at_level(logging.WARNING, "eagerly"):
        on_actors(make, allow_different=True).close()
    assert "collector 1 differs from this machine: Python" in caplog.text


def test_waiting_for_more_collectors_than_cores_times_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eagerly.workers.remote_workers.STARTING", 5.0)
    settings = {"group_size": 1, "collectors": "ray", "num_collectors": 5, "timeout": 1.0}
    message = r"did not start within 6 seconds: each of the 5 --num-collectors requires a core"
    with pytest.raises(RunError, match=message):
        Environments(environment_maker("Long-v0"), 5, 0, **settings)


class Kills(Callback):
    """Kills a collector every 120 steps."""

    def __init__(self) -> None:
        self.killed = 0

    def on_round(self, trainer: Any) -> None:
        if trainer.steps % 120 == 0:
            found = [each for each in psutil.Process().children(recursive=True) if _collects(each)]
            if found:  # false while all collectors are being restarted
                found[self.killed % len(found)].kill()
                self.killed += 1


def _collects(process: psutil.Process) -> bool:
    try:
        return "".join(process.cmdline()).startswith("ray::Collector")
    except psutil.Error:  # the process has ended
        return False


@pytest.mark.parametrize("policy_lag", [0, 1])
def test_a_run_is_the_same_with_any_number_of_actors_and_kills(
    tmp_path: Path, policy_lag: int
) -> None:
    settings = SMALL | {"env": "Hopper-v5", "num_envs": 4, "group_size": 1, "rollout_steps": 5}
    settings |= {"policy_lag": policy_lag, "exploration": "ornstein_uhlenbeck"}

    def trained(name: str, *callbacks: Callback, **more: Any) -> Any:
        with Trainer(open_run(tmp_path / name, "td3", settings | more), callbacks) as trainer:
            trainer.train()
        return trainer

    here = trained("here")
    for count in (1, 2, 4):
        kills = Kills()
        _same(trained(f"ray {count}", kills, collectors="ray", num_collectors=count), here)
        assert kills.killed >= 2
