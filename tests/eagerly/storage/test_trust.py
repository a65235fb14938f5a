"""Settings with effects outside the process take effect only with the user's consent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eagerly import Trainer, load_policy, open_run
from eagerly.agents import agent_names, config_class
from eagerly.errors import RunError
from eagerly.importing import import_module, is_local, location_of
from eagerly.scripts import evaluate, plot, train
from eagerly.storage import trust
from eagerly.storage.config import RunConfig
from eagerly.storage.loading import open_policy_run
from eagerly.storage.run import _trust_error
from tests.helpers import edit_sealed
from tests.small_runs import SMALL, TrainRun, logged, train_in

# A module that writes a file when imported and defines objects that settings can name.
EVIL = """
from pathlib import Path
Path({trace!r}).write_text("it ran")
from tests.agents.test_own_models import sequential_actor as actor, functional_critic as critic
from eagerly.agents.td3 import TD3
class Agent(TD3):
    pass
import gymnasium
gymnasium.register("Evil-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv",
                   max_episode_steps=20)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with one checkpoint and one evaluation. Tests must not modify it."""
    path = tmp_path_factory.mktemp("finished") / "run"
    train_in(path, steps=150, keep_checkpoints=1)
    return path


class Stage:
    """A working directory with an untrusted run and a module that must not be imported."""

    def __init__(self, folder: Path, finished: Path) -> None:
        self.folder, self.run, self.trace = folder, folder / "run", folder / "trace"
        shutil.copytree(finished, self.run)

    def put(self, place: str) -> None:
        path = self.folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(EVIL.format(trace=str(self.trace)))

    def edit(self, change: Callable[[dict[str, Any]], Any]) -> None:
        """Changes the settings in `config.json` and in the manifests."""
        edit_sealed(self.run / "config.json", change)
        for manifest in self.run.glob("checkpoints/*/manifest.json"):
            edit_sealed(manifest, lambda document: change(document["config"]))

    def name(self, section: str | None, key: str, value: Any) -> None:
        self.edit(
            lambda document: (document[section] if section else document).update({key: value})
        )

    @property
    def ran(self) -> bool:
        return self.trace.exists()

    def opened_in_every_way(self, *words: str) -> list[Result]:
        invoke = CliRunner().invoke
        results = [
            invoke(train.main, ["resume", str(self.run), "--steps", "160", *words]),
            invoke(evaluate.main, [str(self.run), "--episodes", "1", *words]),
        ]
        assert not any(
            isinstance(r.exception, RunError) or "Traceback" in r.output for r in results
        )
        return results


@pytest.fixture
def stage(tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.chdir(tmp_path)
    _forget_modules()
    yield Stage(tmp_path, finished)
    _forget_modules()


def _forget_modules() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] in ("evil", "run", "other")]:
        del sys.modules[name]


NAMED = {
    "agent": (None, "agent", "evil:Agent"),
    "env": ("settings", "env", "evil:Evil-v0"),
    "actor": ("settings", "actor", "evil:actor"),
    "critic": ("settings", "critic", "evil:critic"),
    "models": ("settings", "models", "evil:both"),
}


@pytest.mark.parametrize("role", NAMED)
def test_untrusted_modules_are_reported_in_one_line_and_not_imported(
    stage: Stage, role: str
) -> None:
    stage.put("evil.py")
    stage.name(*NAMED[role])
    for result in stage.opened_in_every_way():
        assert result.exit_code == 2
        (line,) = result.output.splitlines()
        place = stage.folder / "evil.py"
        assert f"would import {NAMED[role][2]} ({role}, in {place}): add --trust" in line
    with pytest.raises(RunError, match=r"is not trusted \(you have .*\) and would import"):
        Trainer(open_run(stage.run, None, {"steps": 160})).close()
    if role in ("agent", "env", "critic"):  # a policy with a built-in actor needs none of them
        load_policy(stage.run)
    else:
        with pytest.raises(RunError, match="would import"):
            load_policy(stage.run)
    assert not stage.ran


@pytest.mark.parametrize(
    ("settings_class", "settings", "message"),
    [
        (None, {}, "would import evil:Agent"),
        ("TD3Config", {"actor": "evil:actor"}, "would import"),
        ("TD3Config", {"hidden_sizes": [2**15]}, "hidden_sizes must be at least 1 and at most"),
        ("TD3Config", {"hidden_sizes": [2**14] * 9}, "the policy of .* cannot be loaded"),
        ("TD7Config", {}, "the policy of .* cannot be loaded"),
        ("evil:Agent", {}, "settings_class must be one of AgentConfig, DDPGConfig"),
        ([], {}, "the policy of .* cannot be loaded"),
    ],
)
def test_only_a_described_actor_of_an_untrusted_agent_is_loaded(
    stage: Stage, settings_class: Any, settings: dict[str, Any], message: str
) -> None:
    stage.put("evil.py")
    stage.name(*NAMED["agent"])
    stage.edit(lambda document: document["settings"].update(unknown="evil", **settings))
    for path in stage.run.glob("checkpoints/*/manifest.json"):
        edit_sealed(path, lambda d: d["state"]["policies"].update(settings_class=settings_class))
    with pytest.raises(RunError, match=message):
        load_policy(stage.run)
    assert not stage.ran


def test_trust_in_a_run_whose_agent_is_not_imported_is_remembered(stage: Stage) -> None:
    stage.name(*NAMED["agent"])
    stage.edit(lambda document: document["settings"].update(unknown="evil", env_kwargs={"g": 5.0}))
    assert open_policy_run(stage.run, {})[0].untrusted == {"env_kwargs": {"g": 5.0}}
    run, _ = open_policy_run(stage.run, {}, trust=True)
    run.trust()
    assert open_policy_run(stage.run, {})[0].untrusted == {}


@pytest.mark.parametrize("role", ["agent", "env", "actor"])
def test_trust_imports_modules_from_the_working_directory(stage: Stage, role: str) -> None:
    stage.put("evil.py")
    stage.name(*NAMED[role])
    path = list(sys.path)
    if role == "actor":
        with pytest.raises(RunError, match="cannot be loaded: trained networks cannot change"):
            load_policy(stage.run, trust=True)  # the weights do not fit the imported actor
    else:
        result = CliRunner().invoke(evaluate.main, [str(stage.run), "--episodes", "1", "--trust"])
        assert result.exit_code == 0, result.output
    assert stage.ran
    assert sys.path == path


def test_modules_that_the_user_also_names_need_no_trust(stage: Stage) -> None:
    stage.put("evil.py")
    stage.name(*NAMED["env"])
    Trainer(open_run(stage.run, None, {"env": "evil:Evil-v0"})).close()
    assert stage.ran


# Regressions: an earlier version missed these names in its checks and imported their modules.
SHADOWED: dict[str, tuple[list[tuple[str | None, str, Any]], str]] = {
    "an agent beside another": (
        [(None, "agent", "shadow.evil1:X"), ("settings", "agent", "td3")],
        "reserved names: agent",
    ),
    "a preset": ([("settings", "preset", "x")], "reserved names: preset"),
    "more than there is": ([(None, "surprise", 1)], "surprise"),
    "the prefix of factories": (
        [(None, "agent", "factory run.evil2:X")],
        "agent must be one of ddpg, td3, td3_bc, td7, or module:Class; got 'factory run.evil2:X'",
    ),
    "a module of the run": ([(None, "agent", "run.evil2:X")], "it is inside the run directory"),
    "a sibling's module": (
        [("settings", "env", "B1.evil5:X")],
        "would import B1.evil5:X (env, in ",
    ),
    "an actor that is a list": (
        [("settings", "actor", ["evil:actor"])],
        "actor must be of type str",
    ),
    "an actor that forges a line": (
        [("settings", "actor", "a\nall is well:x")],
        r"actor must be at most 500 printable characters; got 'a\nall is well:x'",
    ),
    "no name of a module": ([("settings", "actor", "a b:x")], "must be module:factory"),
    "an env that is a list": ([("settings", "env", ["evil:X"])], "env must be of type str"),
    "the standard library": (
        [("settings", "actor", "os:abort")],
        "os is part of the standard library",
    ),
    "a file in a key of the environment's arguments": (
        [("settings", "env_kwargs", {"a": [{"/etc/passwd": 1}]})],
        'would pass {"a": [{"/etc/passwd": 1}]} to its environment',
    ),
    "a file of the environment": (
        [("settings", "env_kwargs", {"xml_file": "/etc/passwd"})],
        'would pass {"xml_file": "/etc/passwd"} to its environment',
    ),
}


@pytest.mark.parametrize("case", SHADOWED)
def test_all_names_are_checked_before_anything_is_imported(stage: Stage, case: str) -> None:
    for place in (
        "evil.py",
        "shadow/evil1.py",
        "run/evil2.py",
        "factory run/evil2.py",
        "B1/evil5.py",
    ):
        stage.put(place)
    changes, message = SHADOWED[case]
    for change in changes:
        stage.name(*change)
    # Other directories are damaged, which is a failure and not an invalid request.
    code = 2 if message.startswith(("would ", "it is inside", "os is part")) else 1
    for result in stage.opened_in_every_way():
        assert (result.exit_code, message in result.output) == (code, True), result.output
    assert not stage.ran


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((*NAMED["agent"][:2], "run.evil:Agent"), "it is inside the run directory"),
        ((*NAMED["env"][:2], "run.evil:Evil-v0"), "it is inside the run directory"),
        ((*NAMED["actor"][:2], "run.evil:actor"), "it is inside the run directory"),
        ((*NAMED["actor"][:2], "os:abort"), "os is part of the standard library"),
        ((*NAMED["env"][:2], "antigravity:X"), "antigravity is part of the standard library"),
    ],
)
def test_trust_excludes_modules_of_the_run_directory_and_of_python(
    stage: Stage, change: tuple[str | None, str, str], message: str
) -> None:
    stage.put("run/evil.py")
    stage.name(*change)
    for result in stage.opened_in_every_way("--trust"):
        assert (result.exit_code, message in result.output) == (2, True), result.output
    assert not stage.ran


def test_plots_do_not_import_untrusted_agents(
    stage: Stage, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put("evil.py")
    stage.name(*NAMED["agent"])
    shutil.copytree(stage.run, stage.folder / "second")
    # If a run lacks a setting, its default comes from the agent's class, which must be imported.
    edit_sealed(
        stage.folder / "second" / "config.json",
        lambda document: (document["settings"].update(seed=1), document["settings"].pop("tau")),
    )
    words = [str(stage.run), str(stage.folder / "second"), "-o", str(stage.folder / "x.svg")]
    refused = CliRunner().invoke(plot.main, words)
    assert (refused.exit_code, stage.ran) == (2, False)
    assert "would import evil:Agent (agent, in " in refused.output
    missing = "import gone:Agent (agent, in no folder of the module search path)"
    assert trust.described({"agent": "gone:Agent"}) == missing
    hint = "first change to the directory that contains it"
    for module, is_missing in (("gone", True), ("evil", False)):
        told = str(_trust_error(stage.run, {"agent": f"{module}:Agent"}, {"agent"}))
        assert (hint in told) == is_missing
    drawn = CliRunner().invoke(plot.main, [*words, "--trust"])
    assert (drawn.exit_code, stage.ran) == (0, True), drawn.output


def test_a_run_that_the_user_trained_is_trusted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(stage.folder / "state"))
    stage.put("evil.py")
    settings = SMALL | {"env": "evil:Evil-v0", "steps": 150}
    with logged() as lines, Trainer(open_run("mine", "td3", settings)) as trainer:
        trainer.train()
    assert lines == []
    (entry,) = (json.loads(path.read_text()) for path in trust._list().glob("*.json"))
    assert entry == {
        "path": str(stage.folder / "mine"),
        "names": {"env": "evil:Evil-v0"},
        "places": {"env": str(stage.folder / "evil.py")},
    }
    with Trainer(open_run("mine", None, {"steps": 160})) as trainer:
        trainer.train()
    assert CliRunner().invoke(evaluate.main, ["mine", "--episodes", "1"]).exit_code == 0
    # Neither a copy nor another module name in the same directory is trusted.
    shutil.copytree("mine", "copy")
    stage.put("other.py")
    edit_sealed(
        Path("mine/config.json"), lambda document: document["settings"].update(env="other:X-v0")
    )
    for path, name in (("copy", "evil:Evil-v0"), ("mine", "other:X-v0")):
        result = CliRunner().invoke(evaluate.main, [path])
        assert (result.exit_code, f"would import {name} (env, in " in result.output) == (2, True)
    # Resuming a copy with consent makes it trusted.
    with Trainer(open_run("copy", None, {"steps": 170}, trust=True)):
        pass
    assert CliRunner().invoke(evaluate.main, ["copy", "--episodes", "1"]).exit_code == 0


def test_a_name_that_resolves_to_another_module_elsewhere_is_not_trusted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.folder / "evil.py").write_text(EVIL.format(trace=str(stage.folder / "fine")))
    with Trainer(open_run("mine", "evil:Agent", SMALL | {"steps": 110})) as trainer:
        trainer.train()
    _forget_modules()
    stage.put("elsewhere/evil.py")
    monkeypatch.chdir("elsewhere")
    result = CliRunner().invoke(evaluate.main, ["../mine", "--which", "latest"])
    assert (result.exit_code, stage.ran) == (2, False)
    assert f"evil:Agent (agent, in {stage.folder / 'elsewhere' / 'evil.py'})" in result.output
    # An untrusted run whose `init_from` names that run does not import the module either.
    stage.name("settings", "init_from", "../mine")
    shutil.rmtree(stage.run / "checkpoints")
    for words in ([], ["--trust"]):
        result = CliRunner().invoke(train.main, ["resume", str(stage.run), *words])
        assert (result.exit_code, stage.ran) == (2, False), result.output
    assert (
        "--init-from: ../mine is not trusted (you have trained no run with this path, "
        in result.output
    )


def test_trust_in_a_run_does_not_depend_on_the_working_directory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put("evil.py")
    settings = SMALL | {"env": "evil:Evil-v0", "steps": 110}
    with Trainer(open_run("mine", "td3", settings)) as trainer:
        trainer.train()
    _forget_modules()
    for place in ("elsewhere", "other/elsewhere"):
        stage.put(f"{place}/evil.py")
    monkeypatch.chdir("elsewhere")
    # The same module is now found on the search path.
    monkeypatch.setattr(sys, "path", [*sys.path, str(stage.folder)])
    assert not open_run("../mine", None, {}).untrusted
    # Another module of this name is not trusted, wherever it is found.
    monkeypatch.setattr(sys, "path", [*sys.path[:-1], str(stage.folder / "other/elsewhere")])
    assert open_run("../mine", None, {}).untrusted.keys() == {"env"}
    monkeypatch.setattr(sys, "path", sys.path[:-1])
    assert open_run("../mine", None, {}).untrusted.keys() == {"env"}


def test_a_list_that_cannot_be_written_is_reported_and_does_not_end_the_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.folder / "home").write_text("a file, not a directory")
    monkeypatch.setenv("XDG_STATE_HOME", str(stage.folder / "home"))
    stage.put("evil.py")
    settings = SMALL | {"env": "evil:Evil-v0", "steps": 110}
    with logged() as lines, Trainer(open_run("mine", "td3", settings)) as trainer:
        trainer.train()
    (line,) = lines
    assert "cannot be added to the list of trusted runs" in line
    assert "add --trust to resume, evaluate or plot it" in line


def test_runs_that_need_no_consent_are_not_listed(
    train: TrainRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    train(steps=110)
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("env", ["gymnasium_robotics:FetchReach-v4", "plugin.envs:X-v0"])
def test_environments_registered_by_installed_distributions_need_no_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str
) -> None:
    info = tmp_path / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[gymnasium.envs]\n__root__ = gymnasium_robotics.__init__:register\nx = plugin.envs:go\n"
    )
    document = {"agent": "td3", "settings": {"env": env}}
    assert trust.outside_settings(document) == {"env": env}
    monkeypatch.syspath_prepend(tmp_path)
    assert trust.outside_settings(document) == {}


# Modules that TensorFlow, Keras, Gymnasium or Python's child processes may try to import.
LOOKED_FOR = (
    "jax",
    "torch",
    "pandas",
    "multiprocessing",
    "resource",
    "signal",
    "threading",
    "IPython",
)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["evaluate", ".", "--episodes", "1"], marks=pytest.mark.long),
        ["resume", ".", "--steps", "160", "--collectors", "processes"],
    ],
    ids=["evaluate", "resume"],
)
def test_nothing_in_the_working_directory_is_executed(stage: Stage, words: list[str]) -> None:
    for name in LOOKED_FOR:
        stage.put(f"run/{name}.py")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    environment.pop("TF_CPP_MIN_LOG_LEVEL")
    done = subprocess.run(
        ["eagerly", *words], cwd=stage.run, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert not stage.ran


def test_installed_modules_take_precedence_over_the_working_directory(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.put("evil.py")
    (stage.folder / "installed").mkdir()
    (stage.folder / "installed" / "evil.py").write_text("where = 'installed'")
    monkeypatch.setattr(sys, "path", [*sys.path, str(stage.folder / "installed")])
    assert not is_local("evil")
    assert location_of("evil") == str(stage.folder / "installed" / "evil.py")
    assert location_of("click") == ""
    assert import_module("evil").where == "installed"
    assert not stage.ran


def _named(**settings: Any) -> dict[str, Any]:
    return trust.outside_settings({"agent": "td3", "settings": settings})


def test_every_setting_either_stays_inside_the_process_or_needs_consent() -> None:
    kinds = [RunConfig, *map(config_class, agent_names())]
    declared = {name: each for kind in kinds for name, each in kind.SETTINGS.items()}
    listed = trust.INSIDE | trust.OUTSIDE.keys() - {"agent"}
    assert declared.keys() == listed, "storage/trust.py must list each setting in one table"
    assert not trust.INSIDE & trust.OUTSIDE.keys()
    texts = {
        n for n in trust.INSIDE if declared[n].kinds[0] in (str, dict) and not declared[n].choices
    }
    assert texts == {
        "ignore_entries",
        "critic_entries",
    }  # contains only names of observation entries


def test_settings_with_effects_outside_the_process_need_consent() -> None:
    reaching = {
        "env": "evil:X-v0",
        "env_kwargs": {"a": 1},
        "wrapper": ["eagerly.wrappers:RateLimit(change=1)", "evil:wrap"],
        "evaluation_env_kwargs": {"a": 2},
        "init_from": "../other",
        "data": "../data.npz",
        "collectors": "processes",
        "num_collectors": 2,
        "track": "wandb",
        **dict.fromkeys(trust.FACTORIES, "evil:make"),
    }
    assert reaching.keys() == trust.OUTSIDE.keys() - {"agent"}
    assert _named(**reaching) == reaching
    defaults = {name: each.default for name, each in RunConfig.SETTINGS.items()}
    assert _named(**defaults | {"env": "Pendulum-v1"}) == {}
    # The effects of a custom agent's settings are unknown until its class is imported.
    own = {"a": "x", "b": ["x"], "c": {"x": 1}, "d": 1, "e": 0.5, "f": True, "g": [1, 2]}
    assert _named(**own) == own


def test_untrusted_wrappers_are_not_imported(stage: Stage) -> None:
    stage.put("evil.py")
    own = "eagerly.wrappers:RateLimit(change=0.5)"
    others = ["evil:wrap(a=1)", "eagerly.wrappers:gymnasium.wrappers.RecordVideo(video_folder='x')"]
    stage.name("settings", "wrapper", [own, *others])
    place = stage.folder / "evil.py"
    would = f"would import {others[0]} (wrapper, in {place}), {others[1]} (wrapper"
    for result in stage.opened_in_every_way():
        assert result.exit_code == 2
        (line,) = result.output.splitlines()
        assert would in line
    load_policy(stage.run)  # needs no environment
    assert not stage.ran
    found = evaluate.main, [str(stage.run), "--episodes", "1", "--trust"]
    assert "'evil:wrap(a=1)' cannot be imported" in CliRunner().invoke(*found).output
    assert stage.ran
    shutil.move(stage.folder / "evil.py", stage.run)
    _forget_modules()
    stage.trace.unlink()
    (stage.folder / "link").symlink_to(stage.run)
    sys.path.insert(0, str(stage.folder / "link"))
    try:
        assert "it is inside the run directory" in CliRunner().invoke(*found).output
    finally:
        sys.path.pop(0)
    assert not stage.ran
    stage.name("settings", "wrapper", [own])  # this package's wrappers need no consent
    assert open_run(stage.run, None, {}).untrusted == {}
    assert CliRunner().invoke(evaluate.main, found[1][:-1]).exit_code == 0


def test_a_package_that_is_found_only_later_needs_consent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.name("settings", "env", "evil_later:Evil-v0")
    run = open_run(stage.run, None, {})
    stage.put("later/evil_later.py")
    monkeypatch.chdir(stage.folder / "later")
    with pytest.raises(RunError, match="would import evil_later:Evil-v0"):
        run.environment()
    assert not stage.ran


COLLECTING = {
    "ray:10.0.0.1:6379": "join the Ray cluster at 10.0.0.1:6379 and execute what its actors return",
    "ray": "start a Ray cluster on this machine",
    "processes": "start processes",
}


@pytest.mark.parametrize("kind", COLLECTING)
def test_untrusted_collectors_are_not_started(stage: Stage, kind: str) -> None:
    stage.name("settings", "collectors", kind)
    resume = ["resume", str(stage.run), "--steps", "160"]
    refused = CliRunner().invoke(train.main, resume)
    assert refused.exit_code == 2
    assert f"and would {COLLECTING[kind]}: add --trust" in refused.output
    assert refused.output.endswith(", or set --collectors yourself\n")
    assert load_policy(stage.run).which == "best"  # loading a policy starts no collectors
    evaluated = CliRunner().invoke(evaluate.main, [str(stage.run), "--episodes", "1"])
    assert evaluated.exit_code == 0, evaluated.output
    assert open_run(stage.run, None, {"collectors": "here"}).untrusted == {}
    assert open_run(stage.run, None, {}, trust=True).untrusted == {}


def test_an_untrusted_number_of_processes_is_not_started_with_the_users_collectors(
    stage: Stage,
) -> None:
    stage.edit(
        lambda document: document["settings"].update(
            num_envs=9, group_size=1, collectors="processes", num_collectors=9
        )
    )
    words = ["resume", str(stage.run), "--steps", "160", "--collectors", "processes"]
    refused = CliRunner().invoke(train.main, words)
    assert (refused.exit_code, "would start 9 processes: " in refused.output) == (2, True)
    own = {"collectors": "here", "num_collectors": 0}
    assert open_run(stage.run, None, own).untrusted == {}


def test_a_trusted_run_on_a_cluster_resumes_without_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    run = open_run("mine", "td3", SMALL | {"collectors": "ray:10.0.0.1:6379"})
    run.write()
    run.unlock()
    assert open_run("mine", None, {}).untrusted == {}
    shutil.copytree("mine", "copy")
    assert open_run("copy", None, {}).untrusted == {"collectors": "ray:10.0.0.1:6379"}
    modes = {path: path.stat().st_mode & 0o777 for path in Path("state").rglob("*")}
    assert sorted(modes.values()) == [0o600, 0o700, 0o700]


def test_consent_to_a_setting_without_effect_is_not_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = open_run(tmp_path / "run", "td3", SMALL | {"init_from": "../other"})
    run.write()
    run.unlock()
    shutil.rmtree(tmp_path / "state")
    again = open_run(tmp_path / "run", None, {})
    again.write()  # as for a run with a checkpoint, in which init_from no longer has an effect
    again.unlock()
    assert open_run(tmp_path / "run", None, {}).untrusted == {"init_from": "../other"}


def test_text_settings_of_a_custom_agent_need_consent_and_choices_do_not(
    stage: Stage,
) -> None:
    (stage.folder / "other.py").write_text(
        "from eagerly.agents.td3 import TD3\n"
        "from eagerly.agents.td3_config import TD3Config\n"
        "from eagerly.settings import setting\n"
        "class Config(TD3Config):\n"
        "    notes: str = setting('', 'A file')\n"
        "    kind: str = setting('a', 'A choice', choices=('a', 'b'))\n"
        "class Agent(TD3):\n"
        "    Config = Config\n"
    )
    stage.name(None, "agent", "other:Agent")
    stage.name("settings", "kind", "b")
    assert open_run(stage.run, "other:Agent", {}).agent_config.kind == "b"
    stage.name("settings", "notes", "/etc/passwd")
    with pytest.raises(RunError, match=r'set notes of its agent to "/etc/passwd"'):
        open_run(stage.run, "other:Agent", {})
    assert open_run(stage.run, "other:Agent", {"notes": "/etc/passwd"}).untrusted == {}


def test_an_agent_in_the_working_directory_can_import_adjacent_modules_when_created(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, code in {
        "run_agent": "from eagerly.agents.td3 import TD3\nclass Agent(TD3):\n"
        "    def __init__(self, *a, **k):\n        import run_neighbour\n"
        "        super().__init__(*a, **k)\n",
        "run_neighbour": "",
    }.items():
        (stage.folder / f"{name}.py").write_text(code)
    path = list(sys.path)
    with Trainer(open_run("mine", "run_agent:Agent", SMALL | {"steps": 110})) as trainer:
        trainer.train()
    load_policy("mine", "latest")
    assert sys.path == path
    for name in ("run_agent", "run_neighbour"):
        monkeypatch.delitem(sys.modules, name)
