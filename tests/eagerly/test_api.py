"""The public API: training, resuming, evaluating, plotting, agents and names."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest

import eagerly
from eagerly import TD3, Callback, RunError, TD3Config, algorithms, datasets, replay, wrappers
from eagerly.agents import agent_class, agent_files
from tests.helpers import ROOT, equal_weights, filled_buffer, small_config, spaces, weights_of
from tests.small_runs import SMALL
from tests.toys import Counting

FEW = {**SMALL, "warmup_steps": 20, "evaluate_every_steps": 20, "checkpoint_every_steps": 20}
FEW["replay_ratio"] = 0.1
del FEW["env"]


class StopAt(Callback):
    def on_round(self, training: Any) -> None:
        if training.steps >= 30:
            training.stop("enough")


def train(path: Path, **settings: Any) -> eagerly.Result:
    return eagerly.train("td3", Counting, run_dir=path, **FEW | settings)


def test_a_run_is_trained_stopped_resumed_and_returned(tmp_path: Path) -> None:
    stopped = train(tmp_path / "run", steps=60, callbacks=[StopAt()])
    assert (stopped.steps, stopped.reason) == (30, "enough")
    result = train(tmp_path / "run", steps=60)
    assert (result.steps, result.reason, result.run.path) == (60, "steps", tmp_path / "run")
    again = eagerly.resume(tmp_path / "run", env=Counting)
    assert (again.steps, again.score, again.best_return) == (60, result.score, result.best_return)
    observation = Counting().observation_space.sample()
    np.testing.assert_array_equal(again.policy(observation), result.policy(observation))
    further = eagerly.resume(tmp_path / "run", env=Counting, steps=80, stop_at_return=-1e9)
    assert (further.steps, further.reason) == (60, "stop_at_return")
    evaluation = eagerly.evaluate(result.policy, Counting, episodes=3)
    assert evaluation.returns.shape == (3,)


def test_an_environment_instance_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match="of SyncVectorEnv: pass a single environment, and num_envs=2"
    ):
        eagerly.train("td3", gymnasium.make_vec("Pendulum-v1", num_envs=2))
    with pytest.raises(RunError, match="got an instance of EnvSpec: pass its id"):
        eagerly.train("td3", gymnasium.spec("Pendulum-v1"))
    with pytest.raises(RunError, match=r"got an instance of Counting.*pass the class, or lambda"):
        eagerly.train("td3", Counting(), run_dir=tmp_path / "run")  # type: ignore[arg-type]


def test_an_algorithm_can_be_passed_as_an_importable_class(tmp_path: Path) -> None:
    class Local(TD3):
        pass

    run = eagerly.train(TD3, "Pendulum-v1", run_dir=tmp_path / "run", **FEW | {"steps": 20}).run
    assert run.agent == "td3"
    assert repr(run) == f"Run('{tmp_path}/run')"
    with pytest.raises(RunError, match="Local must be defined at the top level of an importable"):
        eagerly.train(Local, "Pendulum-v1")
    with pytest.raises(RunError, match=r"agent must be one of ddpg, .*; got 'td4'"):
        eagerly.train("td4", "Pendulum-v1")


def test_a_policy_is_evaluated_in_an_environment_given_as_instance_id_or_factory() -> None:
    env = gymnasium.make("Pendulum-v1")
    agent = TD3(env, hidden_sizes=(8,), mode="eager")
    found = [
        eagerly.evaluate(policy, where, episodes=2, seed=3, steps_limit=20).returns.tolist()
        for policy in (agent, agent.as_policy(), lambda o: 2.0 * agent.act(o[np.newaxis])[0])
        for where in (env, "Pendulum-v1", lambda: gymnasium.make("Pendulum-v1"))
    ]
    assert found == found[:1] * 9
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        eagerly.evaluate(agent, env, episodes=0)
    with pytest.raises(ValueError, match="steps_limit must be at least 1 or None; got 0"):
        eagerly.evaluate(agent, env, steps_limit=0)
    with pytest.raises(TypeError, match=r"got .run.: load the policy of a run with eagerly\.load"):
        eagerly.evaluate("run", env)  # type: ignore[arg-type]


def test_curves_are_plotted(tmp_path: Path) -> None:
    train(tmp_path / "run", steps=60)
    figure = eagerly.plot(tmp_path / "run", output=tmp_path / "curves.svg", title="Mine")
    assert figure.axes
    assert "Mine" in (tmp_path / "curves.svg").read_text()
    selected = {
        "env": "factory tests.toys:Counting",
        "filter": {"steps": 60},
        "metric": "evaluation/length_mean",
    }
    figure = eagerly.plot(tmp_path / "run", csv=tmp_path / "curves.csv", **selected)
    assert figure.axes[0].get_ylabel().startswith("evaluation/length_mean")
    assert "Counting,60,3.0,,,1" in (tmp_path / "curves.csv").read_text()
    with pytest.raises(
        RunError, match="no run matches the filter steps=70: the runs have steps 60"
    ):
        eagerly.plot(tmp_path / "run", filter={"steps": 70})
    with pytest.raises(ValueError, match=r"statistic must be one of iqm, mean; got 'median'"):
        eagerly.plot(tmp_path / "run", statistic="median")
    with pytest.raises(ValueError, match=r"output must be one of .png, .svg, .pdf; got '.j"):
        eagerly.plot(tmp_path / "run", output="curves.jpg")


# --- agents -------------------------------------------------------------------------------------


def test_an_agent_is_created_for_an_environment_or_for_spaces() -> None:
    env = gymnasium.make("Pendulum-v1")
    settings: dict[str, Any] = {"hidden_sizes": (8,), "mode": "eager", "seed": 4}
    one = TD3(env, **settings)
    same = TD3(env.observation_space, env.action_space, TD3Config(mode="eager"), **settings)
    assert equal_weights(weights_of(one), weights_of(same))
    vector = gymnasium.make_vec("Pendulum-v1", num_envs=2)
    assert TD3(vector, **settings).observations.size == 3
    for wrong in ((env, TD3Config()), (env.observation_space,), ("Pendulum-v1",)):
        with pytest.raises(
            TypeError, match="an agent requires an environment, or an observation_space"
        ) as error:
            TD3(*wrong)
        assert ("gymnasium.make" in str(error.value)) == (wrong == ("Pendulum-v1",))
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_steps'"):
        TD3(env, n_steps=3)


def files_in(path: Path) -> list[Path]:
    return sorted(each for each in path.rglob("*") if each.is_file())


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_loaded_agent_makes_the_same_next_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config("td3", normalize_rewards=True, schedule="linear", schedule_steps=9)
    agent, buffer = TD3(*spaces(), config, seed=2), filled_buffer()
    agent.rewards.moments.update(np.array([[1.0], [4.0]]))
    agent.train(buffer, 3)
    agent.save(tmp_path / "agent")
    agent.save(tmp_path / "agent")  # the second save replaces the first
    complete = files_in(tmp_path)
    for name in ("_synced", "_sync_folder"):  # before and after the document is written
        with monkeypatch.context() as patched:
            patched.setattr(agent_files, name, _interrupted)
            for folder in ("agent", "other"):
                with pytest.raises(KeyboardInterrupt):
                    agent.save(tmp_path / folder)
        assert files_in(tmp_path) == complete
    (tmp_path / "agent" / "saved-0123abcd").mkdir()  # left by a kill
    agent.save(tmp_path / "agent")
    assert len(files_in(tmp_path)) == len(complete)
    same = TD3.load(tmp_path / "agent")
    assert (same.updates, same.config, same.seed) == (3, config, 2)
    for each in (agent, same):
        each.train(filled_buffer(), 2)
    assert equal_weights(weights_of(agent), weights_of(same))


def test_invalid_saved_agents_are_rejected(tmp_path: Path) -> None:
    TD3(*spaces(), small_config("td3")).save(tmp_path / "td3")
    with pytest.raises(ValueError, match=r"must contain an agent .*ddpg:DDPG; got .*td3:TD3"):
        eagerly.DDPG.load(tmp_path / "td3")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "todo.txt").touch()
    with pytest.raises(FileExistsError, match="exists and contains no agent"):
        TD3(*spaces(), small_config("td3")).save(tmp_path / "notes")
    with pytest.raises(FileNotFoundError):
        TD3.load(tmp_path / "notes")
    (tmp_path / "notes" / "config.json").touch()
    with pytest.raises(ValueError, match=r"notes is a run directory, .*: use eagerly\.load_policy"):
        TD3.load(tmp_path / "notes")
    with pytest.raises(TypeError, match="TD3 requires a config of type TD3Config; got DDPGConfig"):
        TD3(*spaces(), eagerly.DDPGConfig())
    (folder,) = (tmp_path / "td3").glob("saved-*")
    document = tmp_path / "td3" / "agent.json"
    for path in (*folder.iterdir(), document):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError):  # noqa: PT011  - each file causes a different message
            TD3.load(tmp_path / "td3")
        path.write_bytes(content)
    (folder / "more").touch()
    with pytest.raises(ValueError, match="more does not match its checksum"):
        TD3.load(tmp_path / "td3")
    (folder / "more").unlink()
    content = document.read_bytes()
    for old, new, message in (
        (b'"seed": 0', b'"seed": 1', "does not match its checksum"),
        (b'"format": 1', b'"format": 2', "has format 2; this version reads 1"),
        (content, b"[1]", "does not describe an agent"),
        (content, b"[" * 100_000, "is nested too deeply"),
    ):
        document.write_bytes(content.replace(old, new))
        with pytest.raises(ValueError, match=message):
            TD3.load(tmp_path / "td3")
    document.write_text("[1]")
    TD3(*spaces(), small_config("td3")).save(tmp_path / "td3")  # replaces a damaged agent
    assert TD3.load(tmp_path / "td3").updates == 0
    assert len(list((tmp_path / "td3").iterdir())) == 2


def test_loading_an_agent_with_a_factory_requires_the_factory(tmp_path: Path) -> None:
    def actor(observation_space: Any, action_space: Any) -> keras.Model:
        layers = [keras.Input((4,)), keras.layers.Dense(2, "tanh", name="only")]
        return keras.Sequential(layers)

    agent = TD3(*spaces(), small_config("td3", actor=actor))
    agent.save(tmp_path / "agent")
    with pytest.raises(ValueError, match=r"was saved with actor .*: pass actor=\.\.\. to load"):
        TD3.load(tmp_path / "agent")
    same = TD3.load(tmp_path / "agent", actor=actor)
    assert equal_weights(weights_of(agent), weights_of(same))


def test_an_agent_with_a_custom_loss_in_the_working_directory_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "tests" / "algorithms" / "huber.py", tmp_path / "only_here.py")
    monkeypatch.chdir(tmp_path)
    agent = agent_class("only_here:HuberTD3")(gymnasium.make("Pendulum-v1"), hidden_sizes=(8,))
    with pytest.raises(RunError, match=r"requires its environment.*export_policy\(agent, env="):
        eagerly.export_policy(agent, format="c", out=tmp_path / "policy")
    with pytest.raises(RunError, match=r"which .* must be None for an agent; got 'best'"):
        eagerly.export_policy(agent, format="c", out=tmp_path / "x", env="x", which="best")
    exported = eagerly.export_policy(
        agent, format="c", out=tmp_path / "policy", env="Pendulum-v1", episodes=1
    )
    assert {"policy.c", "policy.h", "runner/policy.py"} <= exported.files.keys()
    assert "after" not in (tmp_path / "policy" / "MODEL_CARD.md").read_text().splitlines()[2]


# --- names --------------------------------------------------------------------------------------


def test_the_api_page_lists_exactly_the_public_names() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    named = re.findall(r"^\.\. (?:auto\w+|py:data):: (\S+)", page, re.M)
    # The page names these two modules by the files that Sphinx imports.
    files = {"losses": "eagerly.agents.losses", "padding": "eagerly.networks.padding"}
    public_modules = {file: f"eagerly.algorithms.{name}" for name, file in files.items()}
    named = [public_modules.get(name, name) for name in named]
    assert len(set(named)) == len(named)
    public = {
        f"{module.__name__}.{name}"
        for module in (eagerly, algorithms, datasets, replay, wrappers)
        for name in module.__all__
    }
    hidden = {f"eagerly.{name}" for name in ("__version__", "algorithms", "replay", "wrappers")}
    # An object that several modules export is documented only once.
    objects = {id(_found(name)) for name in named}
    assert set(named) <= public - hidden
    assert {name for name in public - hidden if id(_found(name)) not in objects} == set()


def _found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    modules = {each.__name__: each for each in (eagerly, algorithms, datasets, replay, wrappers)}
    return getattr(modules[module], attribute)
