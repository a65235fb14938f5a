"""Who imports whom, under which name, and what an import does not do."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import eagerly

ROOT = Path(__file__).parents[2]
FACE = {"errors", "importing", "seeding", "settings"}  # of `eagerly`, for every room
MAY_IMPORT: dict[str, set[str]] = {
    "spaces": set(),
    "buffers": set(),
    "policies": {"spaces"},
    "networks": {"policies", "spaces"},
    "environments": {"spaces"},
    "agents": {"networks", "policies", "buffers", "spaces"},
    "storage": {"training", "agents", "environments", "networks", "policies", "buffers", "spaces"},
    "training": {"storage", "agents", "environments", "networks", "policies", "buffers", "spaces"},
    "curves": {"storage"},
}
EVERYTHING = {*MAY_IMPORT, "benchmarks", "scripts"}
MAY_IMPORT |= {"benchmarks": EVERYTHING - {"scripts"}, "scripts": EVERYTHING, "eagerly": EVERYTHING}
FOLDERS = tuple(MAY_IMPORT)
BUFFERS_MAY_USE = {"__future__", "collections", "dataclasses", "enum", "math", "typing", "numpy"}


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.append(node.module or "")
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_import_only_what_they_may(folder: str) -> None:
    for path in files(folder):
        for name in imported(path):
            root, _, rest = name.partition(".")
            assert root not in (*FOLDERS[:-1], "tests"), f"{path.name}: {name}"
            if root == "eagerly":
                target = rest.partition(".")[0]
                allowed = {folder, *MAY_IMPORT[folder], *eagerly.__all__, *FACE, ""}
                assert target in allowed, f"{path.name}: {name}"


def test_buffers_use_numpy_alone() -> None:
    for path in files("buffers"):
        roots = {name.partition(".")[0] for name in imported(path)} - {"eagerly"}
        assert roots <= BUFFERS_MAY_USE, path.name


def test_agents_do_not_import_each_other() -> None:
    from eagerly.agents import _AGENTS

    modules = {home.partition(":")[0] for home in _AGENTS.values()}
    for module in modules:
        path = ROOT / "agents" / f"{module.rpartition('.')[2]}.py"
        assert not modules & set(imported(path)), path.name


def test_every_folder_is_installed() -> None:
    metadata = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    for folder in FOLDERS[:-1]:
        assert f"    eagerly.{folder} = {folder}\n" in metadata
        assert f"    eagerly.{folder}\n" in metadata


def _run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout


def test_importing_the_package_has_no_side_effect_and_loads_no_tensorflow() -> None:
    code = """
import logging, os, random, sys
import gymnasium, threadpoolctl  # they set variables of the environment, whoever imports them
before = dict(os.environ), random.getstate(), logging.getLogger().handlers[:]
import eagerly, eagerly.buffers, eagerly.environments.vector, eagerly.spaces
assert before == (dict(os.environ), random.getstate(), logging.getLogger().handlers)
print([m for m in sys.modules if m.partition(".")[0] in ("tensorflow", "keras")])
"""
    assert _run(code).strip() == "[]"


def test_no_file_is_loaded_under_two_names() -> None:
    code = """
import collections, sys
import eagerly
for name in eagerly.__all__:
    getattr(eagerly, name)
import eagerly.scripts.train, eagerly.scripts.evaluate
files = collections.Counter(m.__file__ for m in list(sys.modules.values())
                            if getattr(m, "__name__", "").startswith("eagerly"))
print([file for file, count in files.items() if count > 1])
print([m for m in sys.modules if m in ("agents", "buffers", "networks", "training", "scripts")])
"""
    assert _run(code).split("\n")[:2] == ["[]", "[]"]


def test_public_names_are_found_and_others_are_not() -> None:
    for name in eagerly.__all__:
        assert getattr(eagerly, name) is not None
        assert name in dir(eagerly)
    with pytest.raises(AttributeError, match="no attribute 'PPO'"):
        eagerly.PPO  # noqa: B018
