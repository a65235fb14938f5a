"""Exports of trained runs are complete and verified. A failed export leaves no files."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest

from eagerly import TD3, RunError, load_policy
from eagerly.export import exporting, plan, verification
from eagerly.export.exporting import Exported, export_policy
from eagerly.export.formats import FORMATS, Format
from eagerly.export.model_card import model_card
from eagerly.training.signals import Terminated
from tests.eagerly.export.here import work_here
from tests.eagerly.training.test_failing_surroundings import can_mount
from tests.helpers import buffer_for, edit_sealed, filled_buffer, gone, small_agent
from tests.small_runs import train_in

BLOCKED = ("eagerly", "tensorflow", "keras", "gymnasium", "scipy")
PENDULUM = {"normalize_observations": True, "hidden_sizes": (16, 16), "env": "Pendulum-v1"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "pendulum"
    train_in(path, **PENDULUM)
    return path


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    out = tmp_path_factory.mktemp("exports") / "new" / "pendulum"
    return export_policy(run, format="c", out=out, episodes=1)


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """The destination of an export that fails. Nothing may remain there."""
    yield tmp_path / "exports" / "pendulum"
    assert list(tmp_path.iterdir()) == []


def faulty(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    stand_in = Format("tests.eagerly.export.faulty", "C", {}, "a C compiler", compiles=True)
    monkeypatch.setitem(FORMATS, "c", stand_in)
    monkeypatch.setenv("FAULT", fault)


def document(path: Path) -> Any:
    return json.loads((path / "policy.json").read_text())


def test_an_export_describes_its_source_and_measurements(run: Path, exported: Exported) -> None:
    about = document(exported.path)
    paths = (path for path in exported.path.rglob("*") if path.is_file())
    files = {path.relative_to(exported.path).as_posix() for path in paths}
    assert files == {*about["files"], "policy.json", "MODEL_CARD.md"} == set(exported.files)
    assert {"runner/policy.py", "examples.npz", "MODEL_CARD.md", "policy.c", "examples.c"} < files
    assert [path.name for path in exported.path.parent.iterdir()] == ["pendulum"]
    assert about["run"] == {
        "agent": "td3",
        "env": "Pendulum-v1",
        "seed": 0,
        "which": "best",
        "steps": load_policy(run).steps,
        "wrappers": [],
    }
    measured = about["measured"]
    assert measured == exported.measured
    assert measured["differences"]["largest"] < 1e-5
    returns = measured["returns"]
    assert len(returns["policy"]["returns"]) == 1
    assert returns["exported"]["mean"] == pytest.approx(returns["policy"]["mean"], rel=0.01)
    card = (exported.path / "MODEL_CARD.md").read_text()
    for part in ("TD3 on `Pendulum-v1`", "`Box(-2.0, 2.0, (1,), float32)`", "16 and 16 units"):
        assert part in card
    source = Path(exporting.__file__).with_name("runner") / "policy.py"
    assert (exported.path / "runner" / "policy.py").read_bytes() == source.read_bytes()


def test_examples_consist_of_replayed_rows_and_greedy_episodes(
    run: Path, exported: Exported
) -> None:
    with np.load(exported.path / "examples.npz") as file:
        examples = dict(file)
    policy = load_policy(run)
    assert {name: part.shape for name, part in examples.items()} == {
        "observation": (1000, 3),
        "action": (1000, 1),
        "scores": (1000, 1),
    }
    np.testing.assert_allclose(policy(examples["observation"]), examples["action"], atol=1e-5)
    env = gymnasium.make("Pendulum-v1")
    from eagerly.training.evaluation import evaluation_seeds

    first, _ = env.reset(seed=evaluation_seeds(0, 1)[0])
    greedy = 1000 - 400  # the first 400 examples are the rows of the replay buffer
    np.testing.assert_array_equal(examples["observation"][1000 - greedy], first)


def test_an_export_runs_in_a_program_with_only_numpy(run: Path, exported: Exported) -> None:
    code = f"""
        import sys

        class Blocked:
            def find_spec(self, name, *more):
                if name.partition(".")[0] in {BLOCKED}:
                    raise ImportError(f"{{name}} is blocked")

        sys.meta_path.insert(0, Blocked())
        sys.path.insert(0, {str(exported.path)!r})
        import numpy as np
        from runner import Policy

        policy = Policy({str(exported.path)!r})
        print(policy(np.array([0.5, -0.5, 2.0])).tolist())
        print(policy.start_episode()(np.ones(3)).tolist())
    """
    command = [sys.executable, "-I", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    policy = load_policy(run)
    expected = [policy(np.array([0.5, -0.5, 2.0])), policy(np.ones(3))]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["pendulum", "my policy", 'it\'s `"quoted"`', "class", "json"])
def test_the_code_in_the_model_card_loads_a_folder_of_any_name(
    name: str, exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(exported.path, tmp_path / name)
    card = model_card(document(exported.path), FORMATS["c"], name)
    loading = card.partition("```python\n")[2].partition("action = ")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    namespace: dict[str, Any] = {}
    try:
        exec(loading, namespace)
    finally:
        for module in list(sys.modules):
            if module.startswith(("runner", f"{name}.runner")):
                del sys.modules[module]
    assert namespace["policy"].folder.resolve() == tmp_path / name


def test_the_model_card_quotes_names_with_backticks(exported: Exported) -> None:
    about = document(exported.path)
    about["words"]["observation"] = "Dict('a``b': Box(0.0, 1.0, (1,), float32))"
    card = model_card(about, FORMATS["c"], "x")
    assert "- Observations: ``` Dict('a``b': Box(0.0, 1.0, (1,), float32)) ```\n" in card


def test_replaying_fails_if_a_file_was_changed(exported: Exported, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(exported.path, copy)

    def replayed() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-B", copy / "runner"]
        return subprocess.run(command, capture_output=True, text=True)

    (copy / "MODEL_CARD.md").write_text("mine")  # users may edit this file
    done = replayed()
    assert (done.returncode, done.stdout[:24]) == (0, "replayed 1000 examples, ")
    source = (copy / "examples.c").read_text()
    (copy / "examples.c").write_text(f"{source}\n")
    done = replayed()
    assert done.returncode == 1
    assert "examples.c has changed since the export" in done.stderr
    (copy / "examples.c").write_text(source)
    about = document(copy)
    about["tolerance"]["largest"] = 1e-12
    from eagerly.export.policy_document import write_document

    del about["sha256"]
    write_document(copy, about)
    done = replayed()
    assert done.returncode == 1
    assert "(limit 1e-12)" in done.stderr


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("no weights", "actions differ from the policy's: largest is"),
        ("aborts", "the conversion failed: its process was killed by SIGABRT"),
        pytest.param(
            "NaN", "the exported policy failed: FloatingPointError", marks=pytest.mark.long
        ),
        pytest.param("forgotten", "policy.c is missing", marks=pytest.mark.long),
    ],
)
def test_a_model_that_differs_from_the_policy_is_not_exported(
    fault: str, message: str, run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(monkeypatch, fault)
    if fault == "no weights":  # finding this fault needs no child process
        work_here(monkeypatch)
    with pytest.raises(RunError, match=message):
        export_policy(run, format="c", out=out, episodes=0)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("action", {"high": [3.0]}),
        pytest.param("action", {"low": [-1.0]}, marks=pytest.mark.long),
        ("normalization", None),
    ],
)
def test_a_policy_json_that_does_not_match_the_policy_is_not_exported(
    part: str, change: Any, run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = exporting.description_of

    def changed(*args: Any) -> dict[str, Any]:
        about = original(*args)
        return about | {part: change if change is None else about[part] | change}

    monkeypatch.setattr(exporting, "description_of", changed)
    work_here(monkeypatch)
    with pytest.raises(RunError, match="actions differ from the policy's: largest is"):
        export_policy(run, format="c", out=out, episodes=0)


def test_a_signal_leaves_no_files_and_no_process(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    child = tmp_path_factory.mktemp("child") / "process"
    faulty(monkeypatch, "terminated")
    monkeypatch.setenv("CHILD", str(child))
    with pytest.raises(Terminated):
        export_policy(run, format="c", out=out, episodes=0)
    assert gone(int(child.read_text()))


def test_exceeding_a_file_size_limit_leaves_no_files(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_here(monkeypatch)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(RunError, match=r"cannot be written: \[Errno 27\]"):
            export_policy(run, format="c", out=out, episodes=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_at_the_end_leaves_no_files(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(exporting.os, "fsync", full)
    work_here(monkeypatch)
    with pytest.raises(RunError, match=r"cannot be written: .* No space left on device"):
        export_policy(run, format="c", out=out, episodes=0)


@pytest.mark.long
@pytest.mark.skipif(not can_mount(), reason="needs to mount a file system")
def test_a_full_disk_leaves_no_files(run: Path) -> None:
    code = f"""
        from pathlib import Path
        from eagerly import RunError
        from eagerly.export.exporting import export_policy

        for free in (4, 40, 80):  # KiB
            filler = Path("/mnt/filler")
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
            with filler.open("r+b") as file:
                file.truncate(filler.stat().st_size - 1024 * free)
            try:
                export_policy({str(run)!r}, format="c", out="/mnt/out", episodes=0)
            except RunError as error:
                print(error)
            assert [path.name for path in Path("/mnt").iterdir()] == ["filler"]
    """
    inner = [sys.executable, "-c", textwrap.dedent(code)]
    mount = 'mount -t tmpfs -o size=1m none /mnt && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mount, "sh", *map(str, inner)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines
    assert all("No space left" in line for line in lines), lines


def test_existing_paths_are_not_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    for name in ("link", "folder"):
        with pytest.raises(RunError, match="already exists: choose another --out"):
            export_policy("no run at all", format="c", out=tmp_path / name)


def test_invalid_exports_fail_immediately(
    run: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunError, match=r"format must be one of saved-model, .*; got 'pickle'"):
        export_policy(run, format="pickle", out=out)
    with pytest.raises(RunError, match=r"precision must be one of float32, .*; got 'int4'"):
        export_policy(run, format="c", precision="int4", out=out)
    with pytest.raises(RunError, match="c does not support float16, only float32 or int8"):
        export_policy(run, format="c", precision="float16", out=out)
    with pytest.raises(RunError, match="does not exist: pass the path of a run directory"):
        export_policy(out, format="c", out=out)
    monkeypatch.setitem(FORMATS, "c", Format("x", "C", {"no_such": "no-such"}, ""))
    with pytest.raises(RunError, match=r"requires no-such: pip install 'eagerly\[export\]'"):
        export_policy(run, format="c", out=out)


NORMALIZED: dict[str, Any] = {"normalize_observations": True}
GEARS: dict[str, Any] = {"env": "Gears-v0", "warmup_steps": 100, "normalize_observations": True}
POSITIONS: dict[str, Any] = {"env": "PendulumPositions-v1", "memory_units": 8}
POSITIONS |= {"sequence_length": 6, "normalize_observations": True}
RUNS: dict[str, dict[str, Any]] = {
    "box": PENDULUM,
    "layer norm": PENDULUM | {"layer_norm": True, "activation": "silu", "precision": "float64"},
    "dict and mask": GEARS,
    "one choice": {"env": "CartPole-v1"},
    "choices with mask": {"env": "Taxi-v4", "steps": 600},
    "trained on integers": PENDULUM | {"quantize": "int8"},
    "td7": PENDULUM | {"agent": "td7", "policy_checkpoints": False, "copy_every": 20},
    "gru": POSITIONS | {"memory": "gru"},
    "lstm": POSITIONS | {"memory": "lstm"},
    "pixels": {"env": "PendulumPixels-v1", "encoder_units": 8},
    "dictionary with images": {"env": "Camera-v0", **NORMALIZED},
    "attention": POSITIONS | {"memory": "attention", "attention_heads": 2},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("kinds")

    def trained(kind: str) -> Path:
        if not (folder / kind).exists():
            train_in(folder / kind, **RUNS[kind])
        return folder / kind

    return trained


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "format", "precision"),
    [
        *((kind, "onnx", "float32") for kind in RUNS),
        ("box", "saved-model", "float32"),
        ("gru", "saved-model", "float32"),
        ("box", "litert", "float16"),
        ("choices with mask", "litert", "int8"),
        *((kind, "litert", "float32") for kind in ("dict and mask", "gru", "lstm", "attention")),
        *((kind, "litert", "float32") for kind in ("pixels", "dictionary with images")),
        ("pixels", "litert", "float16"),
        ("pixels", "saved-model", "float32"),
        ("layer norm", "c", "float32"),
        ("td7", "c", "float32"),
        ("gru", "c", "float32"),
        ("lstm", "c", "float32"),
        ("attention", "c", "float32"),
        ("dict and mask", "c", "float32"),
        ("choices with mask", "c", "float32"),
        ("td7", "litert", "float16"),
        ("trained on integers", "c", "int8"),
        ("trained on integers", "litert", "int8"),
    ],
)
def test_every_kind_of_policy_can_be_exported(
    kind: str, format: str, precision: str, runs: Callable[[str], Path], tmp_path: Path
) -> None:
    try:
        FORMATS[format].check_installed()
    except RunError as error:
        pytest.skip(str(error))
    run = runs(kind)
    made = export_policy(run, format=format, precision=precision, out=tmp_path / "x", episodes=2)
    about = document(made.path)
    returns = made.measured["returns"]
    if kind == "trained on integers" and precision == "int8":
        assert made.measured["differences_to_policy"]["unequal"] <= 0.01
    if precision == "float32" or kind == "trained on integers":
        assert returns["exported"]["returns"] == pytest.approx(
            returns["policy"]["returns"], rel=0.01
        )
    with np.load(made.path / "examples.npz") as file:
        examples = dict(file)
    if about["memory"] is None:
        has_images = kind in ("pixels", "dictionary with images")
        assert made.measured["examples"] == (200 if has_images else 1000)
        return
    assert made.measured["examples"] >= 300
    states = [name for name in examples if name.startswith("state_")]
    assert len(states) == len(about["memory"]["states"])
    begins = examples["begins"]
    assert begins[0]
    assert not examples["reward"][begins].any()
    assert not examples["previous_action"][begins].any()
    for name in states:
        assert not examples[name][begins].any()
        assert examples[name][~begins].any()


def test_c_code_names_the_indices_of_the_entries(tmp_path: Path) -> None:
    box = gymnasium.spaces.Box(-1, 1, (2,))

    class Robot(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict({"velocity": box, "goal": box})
        action_space = gymnasium.spaces.Box(-1, 1, (1,))

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.steps = 0
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            self.steps += 1
            return self.observation_space.sample(), 0.0, False, self.steps >= 5, {}

    agent = TD3(Robot(), mode="eager", hidden_sizes=(4,), encoder_units=4)
    made = export_policy(agent, env=Robot, format="c", out=tmp_path / "x", episodes=1)
    assert (
        "#define POLICY_ENTRY_GOAL 0 /* goal: 2 numbers */\n"
        "#define POLICY_ENTRY_VELOCITY 2 /* velocity: 2 numbers */\n"
    ) in (made.path / "policy.h").read_text()


def test_a_custom_agent_with_a_built_in_actor_is_exported_without_its_module(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    edit_sealed(copy / "config.json", lambda about: about.update(agent="no_such_module:Huber"))
    work_here(monkeypatch)
    made = export_policy(copy, format="c", out=tmp_path / "x", episodes=1)
    assert document(made.path)["run"]["agent"] == "no_such_module:Huber"
    assert (made.path / "MODEL_CARD.md").read_text().startswith("# Huber on `Pendulum-v1`")
    # The environment of the run directory still needs consent.
    edit_sealed(copy / "config.json", lambda about: about["settings"].update(env="evil:Env-v0"))
    with pytest.raises(RunError, match=r"is not trusted .* evil:Env-v0 \(env"):
        export_policy(copy, format="c", out=tmp_path / "y", episodes=1)


def test_an_agent_of_a_class_in_a_function_can_be_exported() -> None:
    class Local(TD3):
        pass

    agent = Local(gymnasium.make("Pendulum-v1"), hidden_sizes=(4,))
    assert exporting._run_of(agent, {"env": "Pendulum-v1"}, None).agent == "Local"


def test_an_agent_is_exported_from_its_replay_buffer_without_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_here(monkeypatch)
    agent, buffer = small_agent("td3"), filled_buffer(30)
    made = export_policy(agent, buffer=buffer, format="c", precision="int8", out=tmp_path / "x")
    assert made.measured["examples"] == 30
    assert made.measured["returns"] is None
    with np.load(made.path / "examples.npz") as file:
        examples = file["observation"]
    assert np.array_equal(examples, buffer.layout.unpack(buffer.rows(0, 30)).observation)
    assert "custom training loop" in (made.path / "MODEL_CARD.md").read_text()
    limits = dict.fromkeys(verification.ROUNDING_LIMIT, 0.0)
    monkeypatch.setattr(verification, "ROUNDING_LIMIT", limits)
    with pytest.raises(RunError, match="too much"):
        export_policy(agent, buffer=buffer, format="c", precision="int8", out=tmp_path / "y")
    assert not (tmp_path / "y").exists()


def test_an_agent_requires_an_environment_or_its_buffer(out: Path) -> None:
    agent, options = small_agent("td3"), {"format": "c", "out": out}
    recurrent = small_agent("td3", memory="gru", memory_units=4, sequence_length=3)
    for refused, more, message in (
        (agent, {}, "requires its environment, .* or pass buffer="),
        (agent, {"buffer": agent.replay_buffer(9)}, "this agent with at least one row"),
        (agent, {"buffer": filled_buffer(3), "episodes": 2}, "episodes requires env"),
        (agent, {"buffer": filled_buffer(3), "wrapper": ["a:b"]}, "wrapper requires env"),
        (recurrent, {"buffer": buffer_for(recurrent, 9)}, "recurrent or sees images, requires"),
        ("runs/any", {"buffer": filled_buffer(3)}, "buffer requires an agent"),
    ):
        with pytest.raises(RunError, match=message):
            export_policy(refused, **options, **more)


def test_agents_with_custom_networks_are_rejected(tmp_path: Path) -> None:
    def actor(*spaces: gymnasium.Space) -> keras.Model:
        return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, "tanh")])

    agent = TD3(gymnasium.make("Pendulum-v1"), actor=actor)
    with pytest.raises(
        RunError, match=r"this policy runs in TensorFlow: export .* Keras model with"
    ):
        export_policy(agent, env="Pendulum-v1", format="c", out=tmp_path / "x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file/out", "file/out cannot be written: .*/file is not a directory"),
        ("file/deep/out", "cannot be written: .*/file is not a directory"),
        ("x" * 300, r"x cannot be written: \[Errno 36\]"),
        pytest.param(
            "locked/new/out",
            r"cannot be written: \[Errno 13\]",
            marks=pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere"),
        ),
    ],
)
def test_an_output_folder_that_cannot_be_created_fails_before_any_episode(
    name: str, message: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "locked").mkdir(mode=0o500)
    monkeypatch.setattr(plan, "replayed_rows", None)
    with pytest.raises(RunError, match=message):
        export_policy(run, format="c", out=tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "locked"]
