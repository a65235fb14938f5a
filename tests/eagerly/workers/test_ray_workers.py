"""Collectors on Ray: what needs no cluster, and, in a network of their own, what needs one."""

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
# A network with an address besides that of the loopback interface.
NETWORK = "ip link set lo up && ip addr add 10.9.8.7/24 dev lo && ip route add default dev lo"
ALONE = ["unshare", "-rn", "sh", "-c", NETWORK + ' && exec "$@"', "sh"]
ENDED = 15.0  # seconds after the learner's end in which nothing may be left


def _alone() -> list[str]:
    """Returns the first words of a command that has a network of its own."""
    if not HAS_RAY:
        pytest.skip("Ray is not installed: pip install eagerly[ray]")
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("unshare and ip are needed for a network of its own")
    if subprocess.run([*ALONE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make a network of their own (unshare -rn)")
    return ALONE


@pytest.mark.long
def test_on_a_cluster_of_this_machine(tmp_path: Path) -> None:
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
def test_actors_nodes_and_learners_that_are_killed_change_nothing(
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
def test_nothing_is_left_of_a_cluster_whose_learner_was_killed(tmp_path: Path) -> None:
    # In a session of its own, by which its processes are found, whoever their parents are.
    words = ["td3", "--env", "Pendulum-v1", "--num-envs", "2", "--group-size", "1"]
    words += ["--collectors", "ray", "--run-dir", "run", "--evaluate-every-steps", "200"]
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
    os.kill(collectors[0], signal.SIGSTOP)  # it would not notice that its cluster has ended
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


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"cannot be imported .*: install eagerly\[ray\]"):
        Environments(environment_maker("Long-v0"), 1, 0, collectors="ray")


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install eagerly[ray]")
def test_a_head_that_does_not_answer_is_named() -> None:
    with pytest.raises(RunError, match=r"no Ray cluster answers at 127.0.0.1:1: .*ray start --he"):
        Environments(environment_maker("Long-v0"), 1, 0, collectors="ray:127.0.0.1:1")


@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed: pip install eagerly[ray]")
@pytest.mark.long
def test_a_port_that_accepts_connections_and_never_answers_is_given_up() -> None:
    with socket.create_server(("", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(RunError, match=rf"no Ray cluster answers at {address}: .*ray start"):
            Environments(environment_maker("Long-v0"), 1, 0, collectors=f"ray:{address}")


def test_what_differs_between_a_collector_and_here_is_listed() -> None:
    here = surroundings()
    assert {"Python", "eagerly", "gymnasium", "mujoco", "numpy", "instruction set"} == set(here)
    assert differences(here, here) == ""
    there = here | {"mujoco": "none", "instruction set": "Haswell"}
    assert differences(there, here).startswith(f"mujoco none (here {here['mujoco']}), instr")


@pytest.mark.parametrize("kind", ["there", "ray:", "ray:host", "ray:host:port", "ray://host:1"])
def test_collectors_that_there_are_not_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="collectors must be here, processes, ray, or ray:HOST"):
        Environments(environment_maker("Long-v0"), 1, 0, collectors=kind)
