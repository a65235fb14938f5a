"""The wheel, the editable install, the symbolic links in a clone, and the files next to them."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import runpy
import subprocess
import sys
import tokenize
import zipfile
from collections import Counter
from pathlib import Path

import lazy_loader
import pytest

import eagerly
from tests.eagerly.test_imports import CORE, FOLDERS, HOMES, ROOT, SHIPPED
from tests.prose import strings

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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _built("build_wheel", tmp_path_factory.mktemp("wheel"))


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


def test_the_wheel_contains_all_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    packages = [name for name in FOLDERS[:-1] if name != "benchmarks"]
    files = {f"eagerly/{p.name}" for p in (ROOT / "eagerly").iterdir() if p.is_file()}
    for package in packages:
        home = HOMES[package]
        files |= {f"eagerly/{package}/{path.relative_to(home)}" for path in home.rglob("*.py")}
        files |= {f"eagerly/{package}/{path.name}" for path in home.glob("*.css")}
    assert sorted(names) == sorted(files)


MISSING = r"\b(?:docs|benchmarks|tests)/\w[\w./-]*|\beagerly\.benchmarks\b|\b[a-z-]+\.md\b"
# Both forms of a reference to a page. Titles may end with a parenthesis.
REFERENCE = r'documentation: (.+?)\)(?!\))|"([^"]*)" in the documentation'


def _texts(source: str) -> list[str]:
    """Returns all strings of a module, including docstrings, and its comments as one text."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = (each.string.lstrip("# ") for each in tokens if each.type == tokenize.COMMENT)
    texts = [*strings(ast.parse(source)), " ".join(comments)]
    return [" ".join(text.split()) for text in texts]


def test_packaged_modules_refer_to_pages_by_title_and_to_no_file_that_the_wheel_lacks() -> None:
    titles = {page.read_text().splitlines()[0][2:] for page in (ROOT / "docs").glob("*.md")}
    modules = [path for name in SHIPPED for path in HOMES[name].rglob("*.py")]
    modules += (ROOT / "eagerly").glob("*.py*")
    references = set()
    for module in modules:
        source = module.read_text()
        assert re.findall(MISSING, source) == [], module
        for text in _texts(source) if "documentation" in source else ():
            found = {first or second for first, second in re.findall(REFERENCE, text)}
            assert found <= titles, module
            references |= found
    assert references


@pytest.mark.parametrize("name", sorted(CORE))
def test_links_point_to_the_folders_at_the_root(name: str) -> None:
    link = ROOT / "eagerly" / name
    assert link.is_symlink()
    assert os.readlink(link) == f"../{name}"
    assert link.resolve() == ROOT / name


# The targets of links and figures in Markdown.
TARGET = r'(?:\]\(|src="|srcset=")([^)"\s]+)'


def test_the_description_of_the_wheel_has_no_relative_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        _, _, description = archive.read(name).decode().partition("\n\n")
    relative = [t for t in re.findall(TARGET, description) if not t.startswith("https://")]
    assert relative == []
    blocks = re.findall(r"```.*?```", (ROOT / "README.md").read_text(), re.S)
    assert re.findall(r"```.*?```", description, re.S) == blocks


def test_links_of_the_description_are_absolute_if_the_source_has_an_address() -> None:
    description = runpy.run_path(str(ROOT / "setup.py"))["description"]
    text = (
        "[a\nb](docs/a.md#c) [d](https://d.org) [e](#e) ![f](f/f.png)\n"
        '<source srcset="g.png"> <img alt="h" src="i.png">'
    )
    assert description(text, "https://x.org/y") == (
        "[a\nb](https://x.org/y/blob/HEAD/docs/a.md#c) [d](https://d.org) [e](#e) "
        "![f](https://x.org/y/raw/HEAD/f/f.png)\n"
        '<source srcset="https://x.org/y/raw/HEAD/g.png"> '
        '<img alt="h" src="https://x.org/y/raw/HEAD/i.png">'
    )


def test_the_citation_has_the_version_of_the_package() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.+)$", text, re.M) == [eagerly.__version__]


def test_constraints_are_the_versions_with_which_most_results_were_measured() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    records = map(Path.read_text, (ROOT / "benchmarks" / "learning").glob("*.json"))
    found = Counter(tuple(json.loads(text)["machine"]["versions"].items()) for text in records)
    ((versions, _),) = found.most_common(1)
    assert dict(versions) == {package: pinned[package] for package, _ in versions}
