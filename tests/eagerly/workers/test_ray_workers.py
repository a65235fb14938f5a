"""Collectors on Ray: tests without a cluster, and tests with one in an isolated network."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from eagerly.environments.factory import environment_maker
from eagerly.errors import RunError
from eagerly.workers.environment_groups import Environments
from eagerly.workers.versions import differences, surroundings
from tests import toys
from tests.helpers import ROOT

toys.register()
HAS_RAY = importlib.util.find_spec("ray") is not None
# Configures a network that has another address in addition to the loopback interface.
NETWORK = "ip link set lo up && ip addr add 10.9.8.7/24 dev lo && ip route add default dev lo"
ALONE = ["unshare", "-rn", "sh", "-c", NETWORK + ' && exec "$@"', "sh"]
ENDED = 15.0  # seconds allowed for all processes to end after the learner


def _alone() -> list[str]:
    """Returns the first words of a command line that runs a command in an isolated network."""
    if not HAS_RAY:
        pytest.skip("Ray is not installed: pip install eagerly[ray]")
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("an isolated network requires unshare and ip")
    if subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not create an isolated network (unshare -rn)")
    return ALONE


@pytest.mark.long
def test_the_ray_cases_pass_on_a_local_cluster(tmp_path: Path) -> None:
    cases = Path(__file__).with_name("ray_cases.py")
    words = ["-q", "-x", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "cases")]
    done = subprocess.run(
        [*_alone(), sys.executable, "-m", "pytest", *words, str(cases)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.long
@pytest.mark.parametrize("policy_lag", ["0", "1"])
def test_killed_actors_nodes_and_learners_do_not_change_a_run(
    tmp_path: Path, policy_lag: str
) -> None:
    words = ["td3", "--env", "Hopper-v5", "--steps", "2400", "--kills", "6", "--kill-seed", "3"]
    words += ["--collectors", "ray", "--", "--warmup-steps", "800", "--num-envs", "4"]
    words += ["--group-size", "1", "--rollout-steps", "20", "--policy-lag", policy_lag]
    words += ["--hidden-sizes", "32,32", "--evaluate-every-steps", "800"]
    done = subprocess.run(
        [*_alone(), sys.executable, "-m", "eagerly.benchmarks.prove_resume", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "6 kills (kill seed 3), 2 of a learner, 2 of a collector, 2 of a node" in done.stdout
    assert "All parts are equal." in done.stdout


@pytest.mark.long
def test_no_process_of_a_cluster_outlives_its_killed_learner(tmp_path: Path) -> None:
    words = ["td3", "--env", "Pendulum-v1", "--num-envs", "2", "--group-size", "1"]
    words += ["--collectors", "ray", "--run-dir", "run", "--evaluate-every-steps", "200"]
    # All new processes count, regardless of their parents.
    before = {each.pid for each in psutil.process_iter()}
    learner = subprocess.Popen(
        [*_alone(), sys.executable, ROOT / "scripts" / "train.py", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def left() -> dict[int, str]:
        found = {each.pid: _words(each) for each in psutil.process_iter() if each.pid not in before}
        return {pid: text for pid, text in found.items() if "ray" in text and "pytest" not in text}

    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "evaluations.csv").exists():
        assert time.monotonic() < deadline
        assert learner.poll() is None
        time.sleep(0.1)
    collectors = [pid for pid, text in left().items() if "ray::Collector" in text]
    os.kill(collectors[0], signal.SIGSTOP)  # so it cannot notice the end of its cluster
    learner.kill()
    learner.wait()
    deadline = time.monotonic() + ENDED
    while left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left() == {}


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def test_a_missing_installation_of_ray_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"cannot be imported .*: pip install 'eagerly\[ray\]'"):
        Environments(environment_maker("Long-v0"), 1, 0, collectors="ray")


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install eagerly[ray]")
def test_an_unreachable_head_node_is_reported() -> None:
    with pytest.raises(RunError, match=r"no Ray cluster is reachable at 127.0.0.1:1: .*ray start"):
        Environments(environment_maker("Long-v0"), 1, 0, collectors="ray:127.0.0.1:1")


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install eagerly[ray]")
@pytest.mark.long
def test_a_port_that_accepts_connections_and_never_responds_is_reported() -> None:
    with socket.create_server(("", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RunError, match=rf"no Ray cluster is reachable at {address}: .*ray st"):
            Environments(environment_maker("Long-v0"), 1, 0, collectors=f"ray:{address}")


def test_differences_of_a_collector_are_listed() -> None:
    here = surroundings()
    assert {"Python", "eagerly", "gymnasium", "mujoco", "numpy", "instruction set"} == set(here)
    assert differences(here, here) == ""
    there = here | {"mujoco": "none", "instruction set": "Haswell"}
    assert differences(there, here).startswith(f"mujoco none (here {here['mujoco']}), instr")


@pytest.mark.parametrize("kind", ["there", "ray:", "ray:host", "ray:host:port", "ray://host:1"])
def test_unknown_collectors_are_rejected(kind: str) -> None:
    with pytest.raises(ValueError, match="collectors must be here, processes, ray, or ray:HOST"):
        Environments(environment_maker("Long-v0"), 1, 0, collectors=kind)
