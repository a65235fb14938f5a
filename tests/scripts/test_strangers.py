"""Commands on untrusted run directories, which may be damaged or have malicious names."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eagerly.sanitizing import sanitize
from eagerly.scripts import evaluate, flags, plot, runs, train
from eagerly.scripts.output import log_to_terminal
from eagerly.storage.run import open_run
from tests.helpers import ROOT, edit_sealed
from tests.small_runs import SMALL, train_in

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2028"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a run with one checkpoint and one evaluation, which tests must not modify."""
    path = tmp_path_factory.mktemp("finished") / "run"
    train_in(path, steps=150, keep_checkpoints=1)
    return path


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        edit_sealed(run / "config.json", change)
        shutil.rmtree(run / "checkpoints")  # checkpoints also contain the settings

    return edit


def raw(content: str | bytes) -> Callable[[Path], None]:
    def write(run: Path) -> None:
        (run / "config.json").write_bytes(
            content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        )
        shutil.rmtree(run / "checkpoints")

    return write


def in_its_place(name: str, make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def replace(run: Path) -> None:
        (run / name).unlink()
        make(run / name)

    return replace


ODD = {
    "no env": edited(lambda document: document["settings"].pop("env")),
    "a seed that is no number": edited(
        lambda document: document["settings"].update(seed=float("nan"))
    ),
    "a seed that is text": edited(lambda document: document["settings"].update(seed="0")),
    "an env that is a list": edited(
        lambda document: document["settings"].update(env=["Pendulum-v1"])
    ),
    "steps without end": edited(lambda document: document["settings"].update(steps=10**400)),
    "half of a surrogate pair": edited(lambda document: document["settings"].update(env="\ud800")),
    "bytes": raw(b"\xff\xfe\x00"),
    "a list": raw("[]"),
    "nothing": raw(""),
    "a table that is a folder": in_its_place("evaluations.csv", Path.mkdir),
    "a table that is a pipe": in_its_place("evaluations.csv", os.mkfifo),
}
HARMLESS = {
    "a lock that is a pipe": in_its_place("lock", os.mkfifo),
    "a folder named like an event file": lambda run: (run / "events.out.tfevents.0").mkdir(),
}


def test_a_damaged_run_is_listed_in_one_line_and_skipped_in_plots(
    finished: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "runs"
    for name, spoil in (ODD | HARMLESS).items():
        spoil(Path(shutil.copytree(finished, folder / name)))
    shutil.copytree(finished, folder / "good")
    listed = CliRunner().invoke(runs.main, [str(folder)])
    assert listed.exit_code == 0, listed.output
    states = {
        line.removeprefix(f"{folder}/").partition("  ")[0]: line.partition(": ")[0].split()[-1]
        for line in listed.output.splitlines()[1:]
    }
    assert states == dict.fromkeys(ODD, "damaged") | dict.fromkeys((*HARMLESS, "good"), "finished")
    for axis in ("steps", "time"):
        words = [str(folder), "-o", str(tmp_path / "x.svg"), "--x", axis]
        drawn = CliRunner().invoke(plot.main, words)
        assert drawn.exit_code == 0, drawn.output
        for name in ODD:
            assert f"{folder / name} is skipped: " in drawn.output
        assert "| Pendulum-v1 | td3 | 0 | 150 |" in drawn.output


def test_control_characters_in_names_are_escaped(finished: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    run = shutil.copytree(finished, folder / f"name{ESCAPES}\n")
    agent = shutil.copytree(finished, folder / "agent")
    for path in (run, *run.glob("checkpoints/*/manifest.json")):
        file = path / "config.json" if path == run else path
        edit_sealed(
            file,
            lambda document: document.get("config", document)["settings"].update(
                env=f"Env{ESCAPES}"
            ),
        )
    edit_sealed(agent / "config.json", lambda document: document.update(agent=f"a{ESCAPES}:B"))
    invoke = CliRunner().invoke
    results = [
        invoke(runs.main, [str(folder)]),
        invoke(plot.main, [str(folder), "-o", str(tmp_path / "x.svg")]),
        invoke(evaluate.main, [str(run)]),
        invoke(train.main, ["resume", str(run)]),
        invoke(train.main, ["resume", str(agent)]),
        invoke(evaluate.main, [str(agent)]),
    ]
    for result in results:
        assert "Traceback" not in result.output
        assert not set(ESCAPES[:1] + "\x07\x9b\u202e\u2028") & set(result.output), result.output
    assert r"name\x1b[2J\x1b]0;owned\x07\u009b31m\u202egnp.exe\u2028\n" in results[0].output
    assert sanitize("\N{HOT BEVERAGE} é\n\tx\r") == "\N{HOT BEVERAGE} é\n\tx\\r"


def test_a_warning_is_printed_once_and_escaped_despite_root_handlers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = io.StringIO()  # for a root handler, such as TensorFlow adds at the first checkpoint
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(other)])
    log_to_terminal()
    logging.getLogger("eagerly.any").warning("a \x1b[2J")
    assert (capsys.readouterr().err, other.getvalue()) == ("a \\x1b[2J\n", "")


@pytest.mark.parametrize(
    "statement",
    ["raise SystemExit", "import sys; sys.exit('bye')", "1 / 0", "import no_such_thing"],
)
def test_a_package_that_fails_to_import_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    (tmp_path / "sulky.py").write_text(statement)
    monkeypatch.chdir(tmp_path)
    for given in (["--env", "sulky:X-v0"], ["--env", "Pendulum-v1", "--actor", "sulky:actor"]):
        words = ["td3", *given, "--run-dir", "run", "--steps", "10"]
        result = CliRunner().invoke(train.main, words)
        assert result.exit_code == 2
        told = " ".join(result.output.split())
        assert re.search(r"cannot be imported: \w+.* \(sulky.py:1\)$", told)
    result = CliRunner().invoke(train.main, ["sulky:Agent", "--env", "Pendulum-v1"])
    assert (result.exit_code, "cannot be imported" in " ".join(result.output.split())) == (2, True)


def test_an_environment_error_in_an_evaluation_is_reported_with_its_step(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "import gymnasium\nfrom gymnasium.envs.classic_control import PendulumEnv\n"
    module += (
        "class Moody(PendulumEnv):\n    def step(self, action):\n        raise OSError('no')\n"
    )
    module += "gymnasium.register('Moody-v0', entry_point=Moody)\n"
    (tmp_path / "moods.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(finished, "run")
    edit_sealed(
        Path("run/config.json"), lambda document: document["settings"].update(env="moods:Moody-v0")
    )
    result = CliRunner().invoke(evaluate.main, ["run", "--trust"])
    assert result.exit_code == 1
    assert "environment 'moods:Moody-v0', step 1 of its episode: step failed" in result.output
    assert isinstance(result.exception, SystemExit)


@pytest.mark.long
def test_a_closed_pipe_does_not_stop_training(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "scripts" / "train.py"), "td3", "--run-dir", "run"]
    settings = SMALL | {"evaluate_every_steps": 100, "steps": 250, "policy_delay": 1}
    settings |= {"intra_op_threads": 1, "inter_op_threads": 3}
    for name, value in settings.items():
        written = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words += [f"--{name.replace('_', '-')}", written]
    process = subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stderr
    assert process.stdout.readline().startswith("run ")
    process.stdout.close()  # like `| head -1`
    errors = process.stderr.read()
    assert process.wait(timeout=120) == 0, errors
    process.stderr.close()
    assert errors.count("standard output is closed") == 1
    assert errors.splitlines()[-1:] == ["standard output is closed: the run continues without it"]
    assert open_run(tmp_path / "run", None, {}).config.steps == 250
    (manifest,) = tmp_path.glob(f"run/checkpoints/{250:012d}-*/manifest.json")
    conditions = json.loads(manifest.read_text())["conditions"]
    assert (conditions["intra_op_threads"], conditions["inter_op_threads"]) == (1, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--models", ":"], "models must be module:factory; got ':'"),
        (["--models", ":", "--hidden-sizes", "8"], "models must be module:factory; got ':'"),
        (["--actor", "my_models.py:actor"], "omit the file extension, as in my_models:actor"),
        (["--init-from", "-"], "--init-from: - does not exist"),
        (["--seed", "9" * 400], "seed must be at least 0 and at most 2,147,483,647"),
        (["--evaluation-seed", "9" * 400], "evaluation_seed must be at least"),
        (
            ["--env-kwargs", '{"gravity": Infinity}'],
            "env_kwargs must be a dictionary of JSON values",
        ),
        (["--init-from", "\udcff"], "init_from must be text that UTF-8 can encode"),
    ],
)
def test_errors_name_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        train.main, ["td3", "--env", "Pendulum-v1", "--mode", "eager", *words]
    )
    assert done.exit_code == 2
    assert said in done.output
    assert isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_a_figure_replaces_links_and_pipes(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("thesis")
    for name in ("curves.png", "curves.png.tmp"):
        if kind == "link":
            Path(name).symlink_to(victim)
        elif kind == "hard link":
            os.link(victim, name)
        else:
            os.mkfifo(name)
    drawn = CliRunner().invoke(plot.main, [str(finished)])
    assert drawn.exit_code == 0, drawn.output
    assert victim.read_text() == "thesis"
    assert Path("curves.png").read_bytes().startswith(b"\x89PNG")


def test_names_are_not_parsed_as_formulas(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    edit_sealed(run / "config.json", lambda document: document["settings"].update(env=r"$\foo{$"))
    drawn = CliRunner().invoke(plot.main, [str(run), "-o", str(tmp_path / "x.svg")])
    assert drawn.exit_code == 0, drawn.output


def test_printed_commands_can_be_pasted_into_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = "a 'b'\n\x1b[2J\\é"
    printed = flags.command("evaluate.py", odd)
    assert sanitize(printed, lines=False) == printed
    words = subprocess.run(
        ["bash", "-c", f"printf %s {printed.rpartition('evaluate.py ')[2]}"],
        capture_output=True,
        check=True,
    )
    assert words.stdout.decode() == odd


@pytest.mark.parametrize("length", [300, 5000])
def test_invalid_paths_are_rejected(length: int) -> None:
    words = ["td3", "--env", "Pendulum-v1", "--run-dir"]
    for path, said in (("x" * length, "cannot be a run directory"), ("b\udcff", "cannot be a run")):
        done = CliRunner().invoke(train.main, [*words, path])
        assert (done.exit_code, said in done.output) == (2, True), done.output
