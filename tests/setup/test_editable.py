"""What an editable install adds finds this clone from everywhere, and nothing else."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys, editable; editable.build_editable(sys.argv[1])"
# With -S there are no site-packages, as if nothing but `eagerly` were installed.
PROGRAM = """
import site, sys
site.addsitedir(sys.argv[1])
import eagerly, eagerly.agents, eagerly.errors
for module in (eagerly, eagerly.agents, eagerly.errors):
    print(module.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-P", "-c", BUILD, str(folder)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "setup")}
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment)
    return next(folder.glob("*.whl"))


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    with zipfile.ZipFile(wheel) as content:
        content.extractall(tmp_path / "site-packages")
    return tmp_path / "site-packages"


def _beside(folder: Path, installed: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder that holds the clone under the name `eagerly`."""
    folder.mkdir()
    (folder / "eagerly").symlink_to(ROOT, target_is_directory=True)
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-S", "program.py", str(installed)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def test_a_program_beside_the_clone_imports_the_package(installed: Path, tmp_path: Path) -> None:
    done = _beside(tmp_path / "projects", installed)
    assert done.stderr == ""
    files = ["eagerly/__init__.py", "agents/__init__.py", "eagerly/errors.py"]
    assert done.stdout.splitlines() == [str(ROOT / file) for file in files]


def test_another_clone_on_pythonpath_takes_precedence(installed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "eagerly"
    other.mkdir(parents=True)
    for name in ("__init__", "agents", "errors"):
        (other / f"{name}.py").touch()
    done = _beside(tmp_path / "projects", installed, path=str(other.parent))
    assert done.stdout.splitlines()[0] == str(other / "__init__.py"), done.stderr


def test_a_clone_that_has_moved_is_named_with_the_cure(installed: Path, tmp_path: Path) -> None:
    added = installed / "eagerly" / "__init__.py"
    gone = str(tmp_path / "gone")
    added.write_text(added.read_text(encoding="utf-8").replace(str(ROOT), gone), encoding="utf-8")
    said = _beside(tmp_path / "projects", installed).stderr
    assert f"there is no {gone}/eagerly/__init__.py. In the clone, run: {sys.executable} -m" in said


def test_every_file_of_the_wheel_is_in_its_record(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        (record,) = (name for name in content.namelist() if name.endswith(".dist-info/RECORD"))
        rows = {row[0]: row[1:] for row in csv.reader(content.read(record).decode().splitlines())}
        assert sorted(rows) == sorted(content.namelist())
        for name in rows.keys() - {record}:
            data = content.read(name)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert rows[name] == [f"sha256={digest}", str(len(data))]
