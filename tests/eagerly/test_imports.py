"""Packages import only allowed packages, and imports have no cycles and no side effects."""

from __future__ import annotations

import ast
import functools
import graphlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import eagerly
from eagerly.keras_backend import check_backend

ROOT = Path(__file__).parents[2]
FACE = {
    "errors",
    "importing",
    "keras_backend",
    "noise",
    "quiet",
    "reaper",
    "sanitizing",
    "seeding",
    "settings",
    "state",
    "suggestions",
    "version",
}  # modules of `eagerly` that every package may import
# These folders are at the root; all others are in `eagerly`.
CORE = {"agents", "buffers", "networks", "scripts", "benchmarks"}
MAY_IMPORT: dict[str, set[str]] = {
    "spaces": set(),
    "buffers": set(),
    "policies": {"spaces"},
    "networks": {"policies", "spaces"},
    "environments": {"spaces"},
    "workers": {"environments", "policies", "spaces"},
    "agents": {"networks", "policies", "buffers", "spaces"},
    "storage": {
        "agents",
        "workers",
        "environments",
        "networks",
        "policies",
        "buffers",
        "spaces",
    },
    "datasets": {"storage", "spaces"},
    "training": {
        "datasets",
        "storage",
        "agents",
        "workers",
        "environments",
        "networks",
        "policies",
        "buffers",
        "spaces",
    },
    "curves": {"storage"},
    "studies": {"storage"},
    "reports": {"curves", "storage"},
    "export": {"training", "storage", "agents", "environments", "policies", "buffers", "spaces"},
}
SHIPPED = {*MAY_IMPORT, "scripts"}
MAY_IMPORT |= {"scripts": SHIPPED, "benchmarks": SHIPPED, "eagerly": SHIPPED}
FOLDERS = tuple(MAY_IMPORT)
HOMES = {name: ROOT / name if name in CORE else ROOT / "eagerly" / name for name in FOLDERS[:-1]}
BUFFERS_MAY_USE = {
    "__future__",
    "collections",
    "dataclasses",
    "enum",
    "math",
    "numpy",
    "threading",
    "typing",
}


def files(folder: str) -> list[Path]:
    if folder == "eagerly":
        return sorted((ROOT / folder).glob("*.py"))
    return sorted(HOMES[folder].rglob("*.py"))


@functools.cache
def _imports(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Returns all import statements of a file, including those for type checkers only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def imported(path: Path) -> list[str]:
    """Returns the names that a file imports."""
    names = []
    for node in _imports(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        else:
            # Only the runner may use relative imports, because it is copied into exports.
            assert node.level == 0 or path.parent.name == "runner", f"{path}: relative import"
            package = module_of(path.parent) if node.level else ""
            module = ".".join(filter(None, [package, node.module]))
            names += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return names


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] == "eagerly" else parts
    return ".".join(["eagerly", *(part for part in parts if part != "__init__")])


@functools.cache
def imports_between_files() -> dict[str, set[str]]:
    """Maps each module to the modules that it imports.

    `from package import submodule` does not count as an import of the package.
    """
    modules = {module_of(path): path for folder in FOLDERS for path in files(folder)}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        found = {name for name in imported(path) if name in modules}
        inner = {n.rpartition(".")[0] for n in found}
        graph[module] = found - {m for m in inner if not _uses_its_face(path, m)} - {module}
    return graph


def _uses_its_face(path: Path, package: str) -> bool:
    """Returns whether a file imports a name that a package's `__init__.py` defines."""
    for node in _imports(path):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            names = [alias.name for alias in node.names]
            if not all((ROOT / package.replace(".", "/") / f"{n}.py").exists() for n in names):
                return True
    return False


def test_there_are_no_import_cycles_between_files() -> None:
    graph = imports_between_files().copy()
    assert len(graph) > 100
    assert {"eagerly.training.assembly", "eagerly.storage.run"} <= graph["eagerly.training.trainer"]
    # The package `eagerly` imports every other package, but lazily.
    graph.pop("eagerly")
    list(graphlib.TopologicalSorter(graph).static_order())  # a cycle raises CycleError


def test_there_are_no_import_cycles_between_folders() -> None:
    graph: dict[str, set[str]] = {}
    for module, others in imports_between_files().items():
        if module != "eagerly":
            rooms = {room for other in others if (room := _room(other)) != _room(module)}
            graph.setdefault(_room(module), set()).update(rooms - {""})
    assert graph["training"] > {"storage", "agents"}
    list(graphlib.TopologicalSorter(graph).static_order())


def _room(module: str) -> str:
    """Returns the folder of a module, or "face" if it is in `FACE`, or "" for `eagerly` itself."""
    _, _, rest = module.partition(".")
    return "face" if rest in FACE else rest.partition(".")[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_import_only_allowed_folders(folder: str) -> None:
    for path in files(folder):
        for name in imported(path):
            root, _, rest = name.partition(".")
            assert root not in (*FOLDERS[:-1], "tests"), f"{path.name}: {name}"
            if root == "eagerly":
                target = rest.partition(".")[0]
                allowed = {folder, *MAY_IMPORT[folder], *eagerly.__all__, *FACE, ""}
                assert target in allowed, f"{path.name}: {name}"


def test_buffers_import_only_numpy_and_the_standard_library() -> None:
    for path in files("buffers"):
        roots = {name.partition(".")[0] for name in imported(path)} - {"eagerly"}
        assert roots <= BUFFERS_MAY_USE, path.name


def test_agents_do_not_import_each_other() -> None:
    from eagerly.agents import _AGENTS

    modules = {f"eagerly.agents.{home.partition(':')[0]}" for home, _ in _AGENTS.values()}
    for module in modules:
        path = ROOT / "agents" / f"{module.rpartition('.')[2]}.py"
        assert not modules & set(imported(path)), path.name


def _done(code: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"} | more
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    return done


def _run(code: str, cwd: Path = ROOT) -> str:
    return _done(code, cwd).stdout


WITHOUT_TENSORFLOW = [
    "eagerly",
    "eagerly.agents",
    "eagerly.agents.td3_config",
    "eagerly.agents.ddpg_config",
    "eagerly.settings",
    "eagerly.spaces",
    "eagerly.spaces.serialization",
    "eagerly.buffers",
    "eagerly.policies",
    "eagerly.policies.numpy_actor",
    "eagerly.policies.exploration",
    "eagerly.environments",
    "eagerly.environments.factory",
    "eagerly.environments.checking",
    "eagerly.workers.environment_groups",
    "eagerly.environments.worker_process",
    "eagerly.export.calibration",
    "eagerly.export.exporting",
    "eagerly.export.litert",
    "eagerly.export.onnx",
    "eagerly.export.runner",
    "eagerly.export.saved_model",
    "eagerly.datasets",
    "eagerly.storage.run_settings",
    "eagerly.storage.run",
    "eagerly.storage.listing",
    "eagerly.storage.loading",
    "eagerly.scripts.main",
    "eagerly.scripts.train",
    "eagerly.scripts.evaluate",
    "eagerly.scripts.export",
    "eagerly.scripts.plot",
    "eagerly.scripts.record",
    "eagerly.scripts.report",
    "eagerly.scripts.runs",
    "eagerly.scripts.study",
    "eagerly.scripts.sweep",
    "eagerly.scripts.tune",
]


def test_only_networks_and_the_choice_of_a_backend_import_keras() -> None:
    allowed = {ROOT / "eagerly" / "keras_backend.py", *files("networks"), *files("benchmarks")}
    for folder in FOLDERS:
        for path in {*files(folder)} - allowed:
            at_run_time = ast.parse(path.read_text(encoding="utf-8")).body
            names = {a.name for n in at_run_time if isinstance(n, ast.Import) for a in n.names}
            names |= {n.module for n in at_run_time if isinstance(n, ast.ImportFrom) and n.module}
            assert "keras" not in {name.partition(".")[0] for name in names}, path


@pytest.mark.parametrize("variable", ["jax", None])
def test_another_backend_is_reported_with_its_source(
    monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    # Keras cannot be imported with another backend here, because jax and torch are not installed.
    imported_keras = SimpleNamespace(config=SimpleNamespace(backend=lambda: "jax"))
    monkeypatch.setitem(sys.modules, "keras", imported_keras)
    monkeypatch.setenv("KERAS_HOME", "/settings")
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    if variable:
        monkeypatch.setenv("KERAS_BACKEND", variable)
    place = "KERAS_BACKEND=jax" if variable else "the file /settings/keras.json"
    with pytest.raises(ImportError, match=f"imported with jax, as set by {place}: set KERAS"):
        check_backend()


def test_importing_has_no_side_effects_and_loads_no_tensorflow() -> None:
    code = f"""
import logging, os, random, sys
import gymnasium, threadpoolctl  # importing them sets environment variables
before = dict(os.environ), random.getstate(), logging.getLogger().handlers[:]
import {", ".join(WITHOUT_TENSORFLOW)}
assert before == (dict(os.environ), random.getstate(), logging.getLogger().handlers)
heavy = ("tensorflow", "keras", "tensorboard", "torch", "mujoco", "matplotlib", "scipy")
print([m for m in sys.modules if m.partition(".")[0] in heavy])
"""
    assert _run(code).strip() == "[]"


def test_commands_without_training_load_no_tensorflow_and_help_loads_no_settings(
    tmp_path: Path,
) -> None:
    commands = ["--help", "--version", "completion bash"]  # these commands only print text
    commands += ["train td3 --help", "train ddpg --env Pendulum-v1 --tau 2,0", "runs ."]
    code = f"""
import sys
from eagerly.scripts.main import main
for words in {commands}:
    print("begins", words)
    try:
        main(words.split())
    except SystemExit:
        pass
    heavy = "numpy gymnasium eagerly.settings tensorflow keras".split()
    print("loaded", *(m for m in heavy if m in sys.modules))
"""
    lines = _run(code, cwd=tmp_path).splitlines()
    assert [line[7:] for line in lines if line.startswith("begins ")] == commands
    loaded = [line.split()[1:] for line in lines if line.startswith("loaded")]
    assert loaded[:3] == [[]] * 3
    assert "numpy" in loaded[3]  # proves that the program detects loaded modules
    assert not {"tensorflow", "keras"} & set(loaded[-1])


def test_imports_load_each_file_once_print_nothing_and_ignore_settings_of_keras(
    tmp_path: Path,
) -> None:
    (tmp_path / "keras.json").write_text(
        '{"backend": "jax", "image_data_format": "channels_first", "floatx": "float64"}'
    )
    settings = {
        "KERAS_BACKEND": "jax",
        "KERAS_HOME": str(tmp_path),
        "TF_USE_LEGACY_KERAS": "1",
    }
    code = """
import collections, os, sys
before = dict(os.environ)
import eagerly
for name in eagerly.__all__:
    getattr(eagerly, name)
import eagerly.algorithms, eagerly.scripts.train, eagerly.scripts.evaluate, eagerly.training.trainer
import keras, numpy
from gymnasium.spaces import Box
spaces = Box(0, 255, (36, 36, 3), numpy.uint8), Box(-1, 1, (1,))
agent = eagerly.TD3(*spaces, mode="eager", hidden_sizes=(4,), encoder_units=4)
assert agent.act(numpy.zeros((1, 36 * 36 * 3))).shape == (1, 1)
print(keras.config.backend(), before["KERAS_BACKEND"] == os.environ["KERAS_BACKEND"])
files = collections.Counter(m.__file__ for m in list(sys.modules.values())
                            if getattr(m, "__name__", "").startswith("eagerly"))
print([file for file, count in files.items() if count > 1])
print([m for m in sys.modules if m in ("agents", "buffers", "networks", "training", "scripts")])
"""
    done = _done(code, **settings)
    assert done.stdout.splitlines() == ["tensorflow True", "[]", "[]"]
    assert done.stderr == ""


def test_public_names_are_found_and_others_are_not() -> None:
    for name in eagerly.__all__:
        assert getattr(eagerly, name) is not None
        assert name in dir(eagerly)
    with pytest.raises(AttributeError, match="no attribute 'PPO'"):
        eagerly.PPO  # noqa: B018
