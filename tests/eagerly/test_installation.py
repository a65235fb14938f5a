"""The wheel, the editable install, and the symbolic links in a clone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import lazy_loader
import pytest

from tests.eagerly.test_imports import CORE, FOLDERS, HOMES, ROOT

# This program runs with `python -S`, without site-packages. It adds a folder that contains only
# `eagerly` and `lazy_loader`.
PROGRAM = """
import site, sys
site.addsitedir(sys.argv[1])
import eagerly, eagerly.agents, eagerly.version
for module in (eagerly, eagerly.agents, eagerly.version):
    print(module.__file__)
"""
BUILD = "import sys; from setuptools import build_meta; build_meta.{}(sys.argv[1])"


def _built(hook: str, folder: Path) -> Path:
    """Builds a wheel without touching the clone's own build folder."""
    pytest.importorskip("setuptools", minversion="77", reason="builds with older versions fail")
    settings = folder / "build.cfg"
    settings.write_text(f"[build]\nbuild_base={folder / 'build'}\n[egg_info]\negg_base={folder}\n")
    environment = os.environ | {"DIST_EXTRA_CONFIG": str(settings)}
    command = [sys.executable, "-c", BUILD.format(hook), str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=environment)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a site-packages folder in which the clone is installed in editable mode."""
    folder = tmp_path_factory.mktemp("editable")
    with zipfile.ZipFile(_built("build_editable", folder)) as wheel:
        wheel.extractall(folder / "site-packages")
    place = Path(lazy_loader.__file__).parent
    (folder / "site-packages" / "lazy_loader").symlink_to(place, target_is_directory=True)
    return folder / "site-packages"


def _run_beside(folder: Path, editable: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a program in a folder that also contains a link to the clone, named `eagerly`."""
    folder.mkdir()
    (folder / "eagerly").symlink_to(ROOT, target_is_directory=True)
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-S", "program.py", str(editable)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def test_a_program_next_to_the_clone_imports_the_package(editable: Path, tmp_path: Path) -> None:
    done = _run_beside(tmp_path / "projects", editable)
    assert done.stderr == ""
    files = [".src/eagerly/__init__.py", "eagerly/agents/__init__.py", "eagerly/version.py"]
    assert done.stdout.splitlines() == [str(ROOT / file) for file in files]


def test_another_clone_on_pythonpath_takes_precedence(editable: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "eagerly"
    other.mkdir(parents=True)
    for name in ("__init__", "agents", "version"):
        (other / f"{name}.py").touch()
    done = _run_beside(tmp_path / "projects", editable, path=str(other.parent))
    assert done.stdout.splitlines()[0] == str(other / "__init__.py"), done.stderr


def test_an_editable_install_adds_one_name_to_the_import_path(editable: Path) -> None:
    (added,) = editable.glob("*.pth")
    assert added.read_text().split() == [str(ROOT / ".src")]
    assert [path.name for path in (ROOT / ".src").iterdir() if path.suffix != ".egg-info"] == [
        "eagerly"
    ]


def test_the_wheel_contains_all_packages_and_nothing_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(_built("build_wheel", tmp_path)) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
    packages = [name for name in FOLDERS[:-1] if name != "benchmarks"]
    files = {f"eagerly/{p.name}" for p in (ROOT / "eagerly").iterdir() if p.is_file()}
    for package in packages:
        home = HOMES[package]
        files |= {f"eagerly/{package}/{path.relative_to(home)}" for path in home.rglob("*.py")}
        files |= {f"eagerly/{package}/{path.name}" for path in home.glob("*.css")}
    assert sorted(names) == sorted(files)


@pytest.mark.parametrize("name", sorted(CORE))
def test_links_point_to_the_folders_at_the_root(name: str) -> None:
    link = ROOT / "eagerly" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert link.resolve() == ROOT / name
