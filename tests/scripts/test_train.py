"""The commands train, resume and evaluate, with valid and invalid input."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from eagerly.agents import agent_class, agent_names
from eagerly.scripts import evaluate, plot, runs, train, tune
from eagerly.scripts.main import main
from eagerly.settings import flag_name
from eagerly.storage.config import RunConfig
from eagerly.storage.presets import presets
from tests import toys
from tests.helpers import script

SMALL = [
    *("--warmup-steps", "200", "--updates-per-call", "10", "--evaluate-every-steps", "300"),
    *("--evaluation-episodes", "2", "--hidden-sizes", "16,16", "--batch-size", "16"),
    *("--checkpoint-every-steps", "500", "--summarize-every-steps", "100"),
]

toys.register()


def invoke(command: click.Command, *words: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.output


def test_resume_needs_no_flags_and_extends_a_run(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    words = ("td3", "--env", "Long-v0", "--steps", "300", "--run-dir", run, "--mode", "eager")
    code, output = invoke(train.main, *words, *SMALL, "--replay-ratio", "0.1")
    assert code == 0, output
    code, output = invoke(train.main, "resume", run, "--steps", "350")
    assert code == 0, output
    assert "resumes at step 300, up to step 350" in output
    code, output = invoke(train.main, "resume", run)
    assert code == 0
    assert "is already finished: 350 steps\n" in output
    code, output = invoke(train.main, "resume", run, "--steps", "400", "--stop-at-return", "-1e9")
    assert "350 steps (of 400: an evaluation reached --stop-at-return -1e+09)" in output
    (extend,) = re.findall(r"^extend .* (--steps .*)$", output, re.M)
    code, output = invoke(train.main, "resume", run, *extend.split())
    assert (code, extend) == (0, "--steps 400 --stop-at-return none")
    assert "finished: 400 steps, " in output
    code, output = invoke(evaluate.main, run, "--which", "latest", "--episodes", "3")
    assert code == 0
    assert "(step 400): return 40 ± 0 over 3 episodes" in output

    # A folder of runs, one of which is damaged
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    code, output = invoke(evaluate.main, str(tmp_path), run, "--which", "latest", "--json")
    (line,) = (line for line in output.splitlines() if line.startswith("{"))
    assert (code, json.loads(line)["run_dir"]) == (1, run)
    assert f"{tmp_path}/damaged/config.json cannot be read" in output
    assert "not evaluated: 1 of 2 runs" in output
    code, output = invoke(evaluate.main, str(tmp_path), "--render")
    assert (code, "require a single run; got 2 runs" in output) == (2, True)


def test_a_window_requires_a_display(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if sys.platform == "linux":
        (tmp_path / "config.json").write_text("{")
        code, output = invoke(evaluate.main, str(tmp_path), "--render")
        assert (code, "--render requires a display: record" in output) == (2, True)


def test_a_new_run_directory_is_created_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = invoke(
        train.main, "td3", "--env", "Long-v0", "--steps", "50", "--mode", "graph", *SMALL
    )
    assert code == 0
    (path,) = (tmp_path / "runs").iterdir()
    assert f"resume runs/{path.name}" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--env", "halfcheetah-v5"], "Did you mean HalfCheetah-v5"),
        (["--env", "PandaReach-v3"], "Use panda_gym:PandaReach-v3, after pip install panda-gym"),
        (["--env", "NeedsPackage-v0"], "package that is missing"),
        (["--env", "TextActions-v0"], "actions must be a Box, a discrete space"),
        (["--env", "TextObservations-v0"], "which networks cannot read"),
        ([], "needs an environment: set --env"),
        (["--env", "Long-v0", "--tau", "2"], r"tau must be above 0 and at most 1; got 2.0"),
        (
            ["--env", "Long-v0", "--num-envs", "0"],
            r"num_envs must be at least 1 and at most 4,096; got 0",
        ),
        (["--env", "Long-v0", "--num-envs", "two"], "'two' is not a valid integer"),
        (["--env", "Long-v0", "--num-envs", "1.5e0"], "'1.5e0' is not a valid integer"),
        (["Long-v0"], "expected options only; got Long-v0: if .*, use --env Long-v0"),
        (["--env", "Long-v0", "--hidden-sizes", "a,b"], "expected a list such as 256,256"),
        (["--env", "Long-v0", "--mode", "jit"], "not one of 'eager', 'graph', 'xla'"),
        (
            ["--env", "Long-v0", "--gama", "1"],
            r"No such option '--gama'\. Did you mean --discount\?",
        ),
        (["--env", "Long-v0", "--embedding-size", "3"], "embedding_size is a setting of td7"),
        (["--env", "Long-v0", "--resume"], "Use eagerly resume"),
        (["--env", "Long-v0", "--gamma", "1"], r"No such option '--gamma'\. Use --discount\."),
    ],
)
def test_invalid_input_fails_without_writing_anything(
    tmp_path: Path, words: list[str], message: str
) -> None:
    run = tmp_path / "run"
    code, output = invoke(train.main, "td3", "--run-dir", str(run), "--steps", "50", *words)
    assert code != 0
    assert re.search(message, output), output
    assert "random and nothing is learned" not in output
    assert not run.exists()


def test_unknown_agents_and_options_of_resume_are_explained(tmp_path: Path) -> None:
    code, output = invoke(train.main, "sac", "--env", "Long-v0")
    assert (
        code,
        "agent must be one of ddpg, td3, td3_bc, td7, or module:Class; got 'sac'" in output,
    ) == (
        2,
        True,
    )
    code, output = invoke(train.main, "--env", "Long-v0", "td3")
    assert (code, "No such option '--env'. Options follow the agent" in output) == (2, True)
    code, output = invoke(main, "TD3", "--env", "Long-v0")
    assert (code, "No such command 'TD3'. Use main train TD3." in output) == (2, True)
    code, output = invoke(train.main, "resume", str(tmp_path), "--actor-learning-rate", "1")
    assert (code, "train AGENT --run-dir RUN_DIR --override --actor-learning-rate" in output) == (
        2,
        True,
    )
    code, output = invoke(train.main, "resume", str(tmp_path), "--normalize-rewards")
    assert "Resuming keeps this setting, which cannot change: start a new run" in output
    code, output = invoke(train.main, "TD3", "--env", "Long-v0", "--print-config")
    assert (code, output.startswith("# ")) == (0, True)


def test_every_command_rejects_a_directory_that_is_not_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "thesis.tex").write_text("")
    for command, words in (
        (train.main, ["td3", "--env", "Long-v0", "--run-dir", str(tmp_path)]),
        (train.main, ["resume", str(tmp_path)]),
        (evaluate.main, [str(tmp_path)]),
    ):
        code, output = invoke(command, *words)
        assert code == 2
        assert "is not a run" in output
    # Other paths are not evaluated first, although one of them is damaged.
    (tmp_path / "runs" / "damaged").mkdir(parents=True)
    (tmp_path / "runs" / "damaged" / "config.json").write_text("{")
    nothing = str(tmp_path / "nothing")
    for command, words in (
        (train.main, ["resume", nothing]),
        (evaluate.main, [str(tmp_path / "runs"), nothing]),
        (plot.main, [nothing]),
    ):
        code, output = invoke(command, *words)
        assert (code, f"Error: {nothing} does not exist" in output) == (2, True)
        assert "damaged" not in output
    monkeypatch.chdir(tmp_path)  # by default, commands use the folder `runs`
    for command in (evaluate.main, plot.main, runs.main):
        assert "runs/damaged" in invoke(command)[1]
    shutil.rmtree("runs")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_run_without_a_checkpoint_cannot_be_evaluated(tmp_path: Path) -> None:
    from eagerly import open_run

    open_run(tmp_path / "run", "td3", {"env": "Long-v0"}).write()
    for command, why in (
        (evaluate.main, "has no checkpoint yet"),
        (plot.main, "have no evaluations yet"),
    ):
        code, output = invoke(command, str(tmp_path / "run"))
        assert (code, why in output) == (2, True)


def test_a_run_without_evaluations_is_reported_and_evaluated_later(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    words = ("td3", "--env", "Long-v0", "--steps", "60", "--run-dir", run, "--mode", "eager")
    small = *SMALL[:4], *SMALL[6:]  # an interval between evaluations is rejected
    code, output = invoke(train.main, *words, *small, "--evaluations", "none")
    assert (code, "result    never evaluated (--evaluations none)" in output) == (0, True)
    assert "environment   1 x Long-v0, evaluations none" in output
    given = ("--episodes", "1", "--evaluation-env-kwargs")
    code, output = invoke(evaluate.main, run, *given, '{"length": 7}')
    assert (code, "latest policy of" in output, "return 7 ± 0" in output) == (0, True, True)
    assert "no best policy" not in output
    code, output = invoke(evaluate.main, run, *given, "3")
    assert "evaluation_env_kwargs must be a dictionary of JSON values; got 3" in output
    assert code == 2


def test_changed_settings_are_rejected_unless_overridden(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    words = ["td3", "--env", "Long-v0", "--run-dir", run, "--mode", "graph"]
    assert invoke(train.main, *words, "--steps", "50", *SMALL)[0] == 0
    code, output = invoke(train.main, *words, "--steps", "60", "--tau", "0.5")
    assert code == 2
    assert "--tau: the run has 0.005, you gave 0.5" in output
    code, output = invoke(train.main, *words, "--tau", "0.5", "--override")
    assert code == 2
    assert "affect further steps only: increase --steps as well" in output
    code, output = invoke(train.main, *words, "--steps", "60", "--tau", "0.5", "--override")
    assert code == 0, output
    assert "\noverrides     tau 0.005 → 0.5 at step 50\n" in output


def test_a_non_finite_reward_fails_with_one_line(tmp_path: Path) -> None:
    words = ["td3", "--env", "NanReward-v0", "--run-dir", str(tmp_path / "run"), "--steps", "400"]
    code, output = invoke(train.main, *words, "--mode", "graph", *SMALL)
    assert code == 3
    assert output.splitlines()[-2].startswith("Error: stopped after step 144: reward must be")


@pytest.mark.parametrize("agent", agent_names())
def test_every_setting_is_a_flag_with_help_and_default(agent: str) -> None:
    code, output = invoke(train.main, agent, "--help-all")
    assert code == 0
    words = " ".join(output.split())
    for config in (RunConfig, agent_class(agent).Config):
        for group in config.GROUPS:
            assert f"\n{group.heading}:\n" in output
        for name in config.SETTINGS:
            assert f"{flag_name(name)} " in words, name
    assert words.count("default") >= 25


@pytest.mark.parametrize("agent", agent_names())
@pytest.mark.parametrize("command", [train.main, tune.main])
def test_help_lists_only_basic_settings(agent: str, command: click.Command) -> None:
    code, output = invoke(command, agent, "--help")
    assert code == 0
    assert len(output.splitlines()) <= 72
    assert "--help-all shows all.\n" in output
    settings = RunConfig.SETTINGS | agent_class(agent).Config.SETTINGS
    if command is tune.main:
        del settings["seed"]
    basic = [flag_name(name) for name, each in settings.items() if each.basic]
    assert 15 <= len(basic) <= 25
    listed = re.findall(r"^  (--[a-z-]+) ", output, re.M)
    assert sorted({*listed} & {*map(flag_name, settings)}) == sorted(basic)


def test_help_of_resume_leaves_out_settings_that_are_not_basic() -> None:
    code, output = invoke(train.main, "resume", "--help")
    assert (code, "--steps " in output, "--collectors " in output) == (0, True, False)
    code, output = invoke(train.main, "resume", "--help-all")
    assert (code, "--steps " in output, "--collectors " in output) == (0, True, True)


@pytest.mark.parametrize("agent", agent_names())
def test_the_examples_of_the_help_are_valid_commands(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, output = invoke(train.main, agent, "--help")
    examples = re.findall(rf" {agent} (--env .*)$", output, re.M)
    assert len(examples) == 3
    for example in examples:
        words = re.sub(r" --(seeds|jobs) \S+", "", example).split()
        code, output = invoke(train.main, agent, *words, "--print-config")
        assert code == 0, output


def test_help_names_the_presets_of_the_agent() -> None:
    _, output = invoke(train.main, "ddpg", "--help")
    assert "defaults, our, article, lillicrap, or an environment" in " ".join(output.split())
    _, output = invoke(train.main, "ddpg", "--help-all")
    assert all(name in output for name in presets("ddpg"))


def test_flags_become_settings_of_the_right_type(tmp_path: Path) -> None:
    run = tmp_path / "run"
    given: dict[str, Any] = {
        "layer_norm": "--layer-norm",
        "hidden_sizes": "--hidden-sizes=16,8",
        "tau": "--tau=0.01",
        "policy_delay": "--policy-delay=3",
        "replay_capacity": "--replay-capacity=1.5e3",
        "activation": "--activation=tanh",
    }
    words = ["td3", "--env", "Long-v0", "--run-dir", str(run), "--steps", "10", "--mode", "graph"]
    assert invoke(train.main, *words, *given.values())[0] == 0
    saved = json.loads((run / "config.json").read_text())["settings"]
    assert {name: saved[name] for name in given} == {
        "layer_norm": True,
        "hidden_sizes": [16, 8],
        "tau": 0.01,
        "policy_delay": 3,
        "replay_capacity": 1500,
        "activation": "tanh",
    }


def test_options_take_precedence_over_a_config_file(tmp_path: Path) -> None:
    words = ["td3", "--env", "Pendulum-v1", "--memory", "gru", "--hidden-sizes", "8,8"]
    words += ["--env-kwargs", '{"g": 9.81, "x": "\x85"}', "--steps", "30000"]
    words += ["--init-from", "none"]
    code, printed = invoke(train.main, *words, "--print-config")
    assert code == 0
    assert '\n# Recurrent networks\nmemory = "gru"\n' in printed
    assert '\nstop_at_return = "none"\n' in printed
    assert '\ninit_from = ""\n' in printed
    assert "# batch_size has an effect only with --memory none; got --memory gru" in printed
    file = tmp_path / "config.toml"
    file.write_text(printed)
    code, again = invoke(train.main, "td3", "--config", str(file), "--print-config")
    assert (code, again) == (0, printed)
    words = ["td3", "--env", "x", "--env-kwargs", '{"g": null}', "--print-config"]
    code, output = invoke(train.main, *words)
    assert (code, "TOML cannot represent env_kwargs {'g': None}" in output) == (2, True)
    words = ["td3", "--config", str(file), "--steps", "40000", "--print-config"]
    assert invoke(train.main, *words) == (0, printed.replace("steps = 30000", "steps = 40000", 1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("env = ", "--config config.toml cannot be read: Invalid value"),
        ("n_steps = 3", "unknown settings: n_steps. Use n_step."),
        ("n_step = 2.5", "n_step must be of type int; got 2.5"),
        ("[run]\nsteps = 3", "unknown settings: run"),
    ],
)
def test_an_invalid_config_file_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text(content)
    words = ["td3", "--env", "Pendulum-v1", "--config", "config.toml", "--run-dir", "run"]
    code, output = invoke(train.main, *words)
    assert (code, Path("run").exists()) == (2, False)
    assert message in output


def test_help_prints_nothing_to_stderr(tmp_path: Path) -> None:
    shown = script("train.py", "--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert shown.stderr == ""
    assert "td3" in shown.stdout
    assert "resume" in shown.stdout


def test_options_override_a_preset_and_the_same_command_resumes(
    tmp_path: Path,
) -> None:
    run = str(tmp_path / "run")
    words = [
        "ddpg",
        "--preset",
        "lillicrap",
        "--tau",
        "0.25",
        "--env",
        "Long-v0",
        "--mode",
        "graph",
    ]
    words += ["--run-dir", run, "--hidden-sizes", "8,8"]
    assert invoke(train.main, *words, "--steps", "10")[0] == 0
    saved = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (saved["tau"], saved["hidden_sizes"]) == (0.25, [8, 8])
    assert (saved["exploration"], saved["batch_size"]) == ("ornstein_uhlenbeck", 64)
    code, output = invoke(train.main, *words, "--steps", "20")
    assert code == 0
    assert "resumes at step 10" in output
    words[2] = "our"
    code, output = invoke(train.main, *words, "--steps", "30")
    assert code == 2
    assert "--batch-size: the run has 64, you gave 256" in output
    assert invoke(train.main, "ddpg", "--preset", "best")[0] == 2
    other = invoke(train.main, "td3", "--env", "Long-v0", "--preset", "our")
    assert (other[0], "got 'our', a preset of ddpg" in other[1]) == (2, True)


def test_a_setting_without_effect_is_rejected(tmp_path: Path) -> None:
    words = ["td3", "--env", "Long-v0", "--run-dir", str(tmp_path / "run")]
    code, output = invoke(train.main, *words, "--shared-gradient", "both")
    assert code == 2
    assert "shared_gradient has an effect only with custom `models`, or for image, Dict" in output
    code, output = invoke(train.main, *words, "--ou-theta", "0.2")
    assert code == 2
    assert (
        "ou_theta has an effect only with --exploration ornstein_uhlenbeck; got --exploration gaus"
        in output
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["frame_skip", "[1]", "{'a': 1}"])
def test_env_kwargs_that_are_not_json_are_rejected(text: str) -> None:
    code, output = invoke(train.main, "td3", "--env", "Long-v0", "--env-kwargs", text)
    assert code in (1, 2)
    assert "JSON" in output


def test_changed_env_kwargs_are_rejected_on_resume(tmp_path: Path) -> None:
    words = ["td3", "--env", "Pendulum-v1", "--run-dir", str(tmp_path / "run"), "--mode", "eager"]
    words += ["--steps", "10", "--env-kwargs"]
    assert invoke(train.main, *words, '{"g": 9.81}')[0] == 0
    code, output = invoke(train.main, *words, '{"g": 1}')
    assert code == 2
    assert '--env-kwargs: the run has {"g": 9.81}, you gave {"g": 1}' in output


def test_a_damaged_checkpoint_is_reported_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["td3", "--env", "Long-v0", "--run-dir", str(run), "--mode", "graph"]
    for steps in ("10", "20"):
        assert invoke(train.main, *words, "--steps", steps)[0] == 0
    (newest,) = run.glob("checkpoints/*20-*/policies.npz")
    newest.write_bytes(b"")
    code, output = invoke(train.main, *words, "--steps", "30")
    assert code == 0
    assert output.count("is damaged") == 1
    assert "resumes at step 10" in output


def test_a_video_path_must_end_in_mp4(tmp_path: Path) -> None:
    code, output = invoke(evaluate.main, str(tmp_path), "--video", "a.gif")
    assert code == 2
    assert "--video must end in .mp4; got a.gif" in output


def test_a_failed_run_reports_where_it_resumes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["td3", "--env", "NanReward-v0", "--run-dir", str(run), "--mode", "graph"]
    code, output = invoke(train.main, *words, "--steps", "200")
    assert code == 3
    assert re.search(r"^run .*, new, up to step 200$", output, re.M)
    assert "Nothing was saved yet. Start again with" in output
    code, output = invoke(train.main, *words, "--steps", "200", "--checkpoint-every-steps", "50")
    assert code == 3
    assert "starts again at step 0, because it has no checkpoint, up to step 200" in output
    assert "reward must be finite" in output
    assert re.search(r"Correct the cause first\. Resume from step 100 with ", output)
    assert re.search(r"Resume from step 100 with .*train.py resume .*run", output)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_sets_the_exit_code_and_prints_the_resume_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    def signalling(*arguments: Any) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr("eagerly.training.summaries.Summaries.on_rollout", signalling)
    words = ["td3", "--env", "Long-v0", "--run-dir", str(tmp_path / "run"), *SMALL]
    ended, output = invoke(train.main, *words, "--steps", "150")
    assert ended == code
    assert f"stopped by {number.name} at step 1 " in output
    assert re.search(r"resume    .*train.py resume .*run", output)


def test_an_environment_error_is_reported_with_its_step(tmp_path: Path) -> None:
    words = ["td3", "--env", "Faulty-v0", "--env-kwargs", '{"fault": "raises"}', *SMALL]
    words += ["--run-dir", str(tmp_path / "run"), "--checkpoint-every-steps", "100"]
    code, output = invoke(train.main, *words, "--steps", "400")
    assert code == 1
    assert "environment 0, step 5 of its episode: step failed" in output
    assert "the motor is on fire" in output
    assert re.search(r"Resume from step 144 with .*train.py resume .*run", output)


def test_a_damaged_evaluation_table_is_reported_without_failing_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["td3", "--env", "Long-v0", "--run-dir", str(run), *SMALL]
    words += ["--evaluate-every-steps", "100"]
    assert invoke(train.main, *words, "--steps", "150")[0] == 0
    table = run / "evaluations.csv"
    table.write_bytes(table.read_bytes().replace(b"\n100,", b"\n1oo,"))
    code, output = invoke(train.main, *words, "--steps", "160")
    assert code == 0
    assert "evaluations.csv is damaged: points of its curves may be lost or wrong" in output
    assert "result    evaluations.csv is damaged and cannot be read" in output
