"""A Python environment with only NumPy and LiteRT: its size, its memory and its installation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from eagerly import RunError, load_policy
from eagerly.export.exporting import export_policy
from eagerly.export.formats import FORMATS
from tests.helpers import ROOT
from tests.small_runs import train_in

pytestmark = pytest.mark.long
LITERT = ("numpy", "ai-edge-litert")


def install(folder: Path, *packages: str) -> Path:
    """Installs packages in a new environment without pip; returns its Python executable."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", *packages]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"packages cannot be installed here: {done.stderr.strip()[-200:]}")
    return python


def forget(folder: Path) -> None:
    """Drops files from the page cache, because the kernel maps larger parts of cached files."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python executable of an environment that contains only NumPy and LiteRT."""
    return install(tmp_path_factory.mktemp("environments") / "robot", *LITERT)


def megabytes(folder: Path) -> float:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files) / 1e6


def test_the_runtime_environment_is_small_on_disk(robot: Path) -> None:
    """The size includes links to Python, NumPy, LiteRT and their dependencies, but no pip."""
    assert megabytes(robot.parents[1]) <= 160
    code = """
        from importlib.util import find_spec

        print([name for name in ("tensorflow", "keras", "gymnasium", "eagerly") if find_spec(name)])
    """
    assert subprocess.check_output([robot, "-I", "-c", textwrap.dedent(code)]) == b"[]\n"


def test_a_process_that_runs_a_policy_uses_little_memory(robot: Path, tmp_path: Path) -> None:
    _needs_litert()
    train_in(tmp_path / "run", env="HalfCheetah-v5", hidden_sizes=(256, 256))
    made = export_policy(tmp_path / "run", format="litert", out=tmp_path / "x", episodes=0)
    code = """
        import json, sys
        from runner import Policy

        policy = Policy()
        for _ in range(100):
            action = policy([0.1] * 17)
        lines = open("/proc/self/status").read().splitlines()
        most = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        print(json.dumps([action.tolist(), most / 1000, "tensorflow" in sys.modules]))
    """
    command = [robot, "-B", "-c", textwrap.dedent(code)]
    forget(robot.parents[1])
    action, most, loaded = json.loads(subprocess.check_output(command, cwd=made.path))
    expected = load_policy(tmp_path / "run")(np.full(17, 0.1))
    np.testing.assert_allclose(action, expected, atol=2e-5)
    assert most <= 50
    assert not loaded


def test_the_five_documented_commands_work(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "export.md").read_text()
    block = re.search(r"```bash\n(.*?)```", text, re.S)
    assert block is not None
    commands = block[1].replace("\\\n", "").strip().splitlines()
    assert len(commands) == 5
    _needs_litert()
    # The first two commands are not run: a shorter run replaces the training, and this clone is
    # already installed with the extra.
    assert commands[0].startswith("make train ENV=Pendulum-v1 STEPS=10000")
    assert "install --editable '.[export]'" in commands[1]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    train = "td3 --env Pendulum-v1 --steps 400 --warmup-steps 100 --run-dir runs/td3-Pendulum-v1-0"
    script = [sys.executable, ROOT / "scripts" / "train.py", *train.split(), "--no-progress"]
    subprocess.run(script, cwd=tmp_path, check=True, env=environment)
    eagerly = Path(sys.executable).with_name("eagerly")
    run = _runner(tmp_path)
    assert commands[2].startswith(".venv/bin/eagerly export")
    run(commands[2].replace(".venv/bin/eagerly", str(eagerly)))
    run(commands[3])
    shutil.rmtree(tmp_path / "runs")
    done = run(commands[4])
    assert re.fullmatch(r"\[-?[\d.e-]+\]", done.strip())


def _needs_litert() -> None:
    try:
        FORMATS["litert"].check_installed()
    except RunError as error:
        pytest.skip(str(error))


def _runner(folder: Path) -> Callable[[str], str]:
    def run(command: str) -> str:
        done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
