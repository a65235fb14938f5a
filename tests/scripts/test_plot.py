"""Figures and score tables of runs, read from run directories and evaluation tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from eagerly.curves import comparison
from eagerly.curves.selection import Selection
from eagerly.curves.tables import read_groups
from eagerly.errors import RunError
from eagerly.scripts.plot import main
from eagerly.state import sealed
from eagerly.storage.event_log import EventLog
from eagerly.storage.files import RunFiles
from eagerly.storage.run_document import FORMAT, read_document_of, results_of


def _table(folder: Path, name: str, returns: list[float], seconds: bool = True) -> Path:
    path = folder / f"{name}.csv"
    lines = ["steps,return_mean,seconds" if seconds else "steps,return_mean"]
    for number, value in enumerate(returns, start=1):
        lines.append(f"{1000 * number},{value}" + (f",{60 * number}" if seconds else ""))
    path.write_text("\n".join(lines) + "\n")
    return path


def _run(path: Path, returns: list[float], tag: str = "losses/critic", **settings: Any) -> Path:
    """Writes a run directory with evaluations and a scalar at every 1,000 steps."""
    path.mkdir(parents=True)
    settings = {"env": "Ant-v5", "seed": 0, "tau": 0.005} | settings
    agent = settings.pop("agent", "td3")
    document = {"format": FORMAT, "agent": agent, "history": [], "settings": settings}
    (path / "config.json").write_bytes(sealed(document))
    _table(path, "evaluations", returns, seconds=False)
    log = EventLog(path)
    for number, value in enumerate(returns, start=1):
        log.add(1000 * number, summary=scalar_pb("evaluation/return_mean", value))
        log.add(1000 * number, summary=scalar_pb(tag, 10 * value))
    log.close()
    return path


def _override(path: Path, steps: int) -> None:
    """Records in `config.json` that `tau` was overridden at this step."""
    document = read_document_of(path)
    entry = {"steps": steps, "overridden": {"tau": [0.01, 0.005]}}
    (path / "config.json").write_bytes(sealed({**document, "history": [entry]}))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for seed in range(3):
        _table(tmp_path, f"td3-Walker2d-v5-{seed}", [0.0, 10.0 + seed, 20.0 + seed, 30.0 + seed])
        _table(tmp_path, f"sb3-td3-Walker2d-v5-{seed}", [0.0, 1.0, 2.0, 3.0 + seed])
    _table(tmp_path, "td3-8-environments-Ant-v5-0", [5.0, 6.0], seconds=False)
    return tmp_path


@pytest.fixture
def unsaved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips writing figures, the slowest part, in tests that only check the printed text."""
    monkeypatch.setattr("eagerly.curves.figures.save", lambda figure, path: None)


def _plot(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_tables_are_grouped_by_label_and_environment(tables: Path) -> None:
    groups = {(group.label, group.env): group for group in read_groups([tables])}
    assert set(groups) == {
        ("td3", "Walker2d-v5"),
        ("sb3-td3", "Walker2d-v5"),
        ("td3-8-environments", "Ant-v5"),
    }
    group = groups["td3", "Walker2d-v5"]
    np.testing.assert_allclose(group.scores, [20.0, 21.0, 22.0])  # means of the last three returns
    steps, returns = group.over_steps()
    assert steps.tolist() == [1000, 2000, 3000, 4000]
    assert returns[1].tolist() == [0.0, 11.0, 21.0, 31.0]


def test_runs_of_different_lengths_are_compared_at_shared_evaluations(tmp_path: Path) -> None:
    _table(tmp_path, "td3-Ant-v5-0", [1.0, 2.0, 3.0])
    _table(tmp_path, "td3-Ant-v5-1", [1.0, 2.0])
    (group,) = read_groups([tmp_path])
    steps, returns = group.over_steps()
    assert steps.tolist() == [1000, 2000]
    assert returns.shape == (2, 2)
    seconds, returns = group.over_seconds(3)
    np.testing.assert_allclose(seconds, [60.0, 90.0, 120.0])
    np.testing.assert_allclose(returns, [[1.0, 1.5, 2.0]] * 2)


@pytest.mark.parametrize("ending", ["png", "SVG"])
def test_figures_are_drawn_and_scores_are_printed(tables: Path, ending: str) -> None:
    picture = tables / "new" / f"x.{ending}"
    result = _plot(tables, "-o", picture, "--theme", "both", "--baseline", "sb3-td3")
    assert result.exit_code == 0, result.output
    assert picture.stat().st_size > 5000
    assert picture.with_stem("x-dark").read_bytes() != picture.read_bytes()
    assert picture.with_stem("x-beside").exists()
    assert picture.with_stem("x-dark-beside").exists()
    assert "| Walker2d-v5 | td3 | 0, 1, 2 | 4,000 | 21 ± 1 | 21 [20, 22] |" in result.output
    assert "| Walker2d-v5 | td3 | 4,000 | 18.67 [" in result.output
    assert result.output.count(" | 1 [1, 1] |") == 1  # every td3 run beats every other run
    assert "not compared in Ant-v5: sb3-td3 has no runs there" in result.output


def test_environments_are_pooled_if_their_random_returns_are_known(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The baseline scores 10 in both environments, the DDPG runs 20 and 5, and random policies 0.
    monkeypatch.setattr(comparison, "RANDOM_RETURNS", {"Ant-v5": 0.0, "Hopper-v5": 0.0})
    for seed in range(3):
        for env, value in [("Ant-v5", 20.0), ("Hopper-v5", 5.0)]:
            _table(tables, f"ddpg-{env}-{seed}", [value])
            _table(tables, f"sb3-ddpg-{env}-{seed}", [10.0])
    groups = read_groups(tables.glob("*ddpg-*.csv"))
    ant, hopper, both = comparison.compare(groups, "sb3-ddpg")
    assert (ant.where, hopper.where, both.where) == ("Ant-v5", "Hopper-v5", "all 2")
    assert (ant.normalized.value, hopper.normalized.value) == (2.0, 0.5)
    assert both.normalized.value == 1.25  # the mean of 2 and 0.5
    assert (ant.improvement.value, hopper.improvement.value, both.improvement.value) == (1, 0, 0.5)
    assert both.steps == (1000, 1000)
    monkeypatch.setattr(comparison, "RANDOM_RETURNS", {"Ant-v5": 0.0})
    ant, hopper, both = comparison.compare(groups, "sb3-ddpg")
    assert [found.normalized is None for found in (ant, hopper, both)] == [False, True, True]
    assert both.difference is None


@pytest.mark.usefixtures("unsaved")
def test_runs_of_different_lengths_are_scored_at_the_same_step(tmp_path: Path) -> None:
    _table(tmp_path, "td3-Ant-v5-0", [1.0, 2.0, 3.0, 40.0, 50.0])
    _table(tmp_path, "td3-Ant-v5-1", [1.0, 2.0, 3.0, 4.0])
    _table(tmp_path, "ddpg-Ant-v5-0", [3.0, 3.0, 3.0])
    td3 = next(group for group in read_groups([tmp_path]) if group.label == "td3")
    assert (td3.last, td3.scores.tolist()) == (4000, [15.0, 3.0])
    (found,) = comparison.compare(read_groups([tmp_path]), "ddpg")
    assert found.steps == (3000,)
    assert found.difference.value == -1.0  # the td3 runs score 2 and 2, the ddpg run 3
    result = _plot(tmp_path, "-o", tmp_path / "x.png", "--baseline", "ddpg")
    assert "td3, Ant-v5: 1 of 2 runs are longer than the shortest" in result.output
    assert "scored up to step 4,000" in result.output
    _table(tmp_path, "td3-Ant-v5-2", [1.0]).write_text("steps,return_mean\n1500,7.0\n")
    result = _plot(tmp_path, "-o", tmp_path / "x.png")
    assert result.exit_code == 1
    assert (
        "the runs of td3 in Ant-v5 have no step in common: seed 0 at 1,000, 2,000, "
        "..., 5,000; seed 1 at 1,000, 2,000, 3,000, 4,000; seed 2 at 1,500. Plot them separately"
    ) in result.output


@pytest.mark.usefixtures("unsaved")
def test_runs_evaluated_at_different_intervals_are_drawn_at_shared_steps(tmp_path: Path) -> None:
    for seed, every in enumerate((1000, 1500)):
        steps = range(every, 9001, every)
        lines = "".join(f"{step},{step + seed}\n" for step in steps)
        (tmp_path / f"td3-Ant-v5-{seed}.csv").write_text(f"steps,return_mean\n{lines}")
    (group,) = read_groups([tmp_path])
    assert group.over_steps()[0].tolist() == [3000, 6000, 9000]
    assert group.scores.tolist() == [6000, 6001]
    result = _plot(tmp_path, "-o", tmp_path / "x.png")
    assert result.exit_code == 0
    assert "| Ant-v5 | td3 | 0, 1 | 9,000 | 6000 ± 0.7071 |" in result.output.replace(
        "6001", "6000"
    )
    assert (
        "td3, Ant-v5: the runs were evaluated at different steps; all are plotted and scored at "
        "the 3 steps that they share, up to step 9,000"
    ) in result.output


def test_only_steps_evaluated_in_both_groups_count(tmp_path: Path) -> None:
    sparse = _table(tmp_path, "td3-Ant-v5-0", [])
    sparse.write_text("steps,return_mean\n" + "".join(f"{2000 * n},{n}\n" for n in range(1, 6)))
    # At steps in both tables, the returns are equal. This run has 9,000 steps, the other 10,000.
    _table(tmp_path, "ddpg-Ant-v5-0", [n / 2 for n in range(1, 10)])
    (found,) = comparison.compare(read_groups([tmp_path]), "ddpg")
    assert found.steps == (8000,)
    assert found.difference.value == 0.0
    odd = _table(tmp_path, "td3-Ant-v5-0", [])
    odd.write_text("steps,return_mean\n1500,1.0\n")
    with pytest.raises(ValueError, match="td3 and ddpg have no step in common in A"):
        comparison.compare(read_groups([tmp_path]), "ddpg")


def test_a_run_counts_once(tables: Path, tmp_path: Path) -> None:
    heard: list[tuple[Path, object]] = []
    table = tables / "td3-Walker2d-v5-0.csv"
    (group,) = read_groups(
        [table, tables / ".." / tables.name / table.name], skip=lambda *it: heard.append(it)
    )
    assert (len(group.curves), heard) == (1, [])
    (tmp_path / "more").mkdir()
    again = _table(tmp_path / "more", "td3-Walker2d-v5-0", [1.0])
    with pytest.raises(RunError, match="are both td3, Walker2d-v5, seed 0: omit one"):
        read_groups([table, again])


@pytest.mark.usefixtures("unsaved")
def test_the_longer_of_two_runs_with_the_same_seed_is_kept(tmp_path: Path) -> None:
    short = _run(tmp_path / "short", [1.0], intra_op_threads=1, mode="xla")
    long = _run(tmp_path / "long", [1.0, 2.0], intra_op_threads=2, mode="graph")
    result = _plot(tmp_path, "-o", tmp_path / "x.png")
    why = f"{long} is in the same group and has the same seed: td3, Ant-v5, seed 0"
    assert f"{short} is skipped: {why}" in result.output
    assert "| Ant-v5 | td3 | 0 | 2,000 |" in result.output


@pytest.mark.usefixtures("unsaved")
def test_evaluations_before_an_override_are_drawn_and_do_not_count(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for seed in range(2):
        _run(runs / str(seed), [1.0, 2.0, 3.0 + seed, 5.0 + seed], seed=seed)
        _override(runs / str(seed), 2000)
    _run(runs / "ddpg", [0.0, 0.0, 2.0, 4.0], agent="ddpg")
    groups = {group.label: group for group in read_groups([runs])}
    overridden = groups["td3 (overridden at 2000)"]
    assert overridden.over_steps()[0].tolist() == [1000, 2000, 3000, 4000]
    assert overridden.scored_steps.tolist() == [3000, 4000]
    assert overridden.scores.tolist() == [4.0, 5.0]
    history = read_document_of(runs / "1")["history"]
    assert overridden.scores[1] == results_of(runs / "1", history).score
    (found,) = comparison.compare(list(groups.values()), "ddpg")
    assert found.difference.value == 4.5 - 3.0  # both at the steps that count
    (scalar,) = read_groups([runs / "1"], metric="losses/critic")
    assert scalar.scores.tolist() == [50.0]
    _override(runs / "1", 4000)
    result = _plot(runs, "-o", tmp_path / "x.png")
    assert result.exit_code == 0, result.output
    assert f"no score, because no evaluation of {runs / '1'} counts" in result.output
    assert "| Ant-v5 | td3 (overridden at 4000) | 1 | 4,000 | nan | nan |" in result.output
    result = _plot(runs, "-o", tmp_path / "x.png", "--baseline", "ddpg")
    assert "have no step in common in Ant-v5 at which evaluations count" in result.output


@pytest.mark.usefixtures("unsaved")
def test_runs_that_cannot_be_read_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = (_run(tmp_path / name, [1.0, 2.0], seed=n) for n, name in enumerate("gb"))
    (events,) = bad.glob("events.*")
    content = events.read_bytes()
    events.write_bytes(content[:-1])  # the last evaluation is in the record before
    assert _plot(tmp_path, "-o", tmp_path / "x.png", "--x", "time").exit_code == 0
    events.write_bytes(content[: len(content) // 2])
    result = _plot(tmp_path, "-o", tmp_path / "x.png", "--x", "time")
    why = "its event files contain no time of the evaluation at step 2000"
    assert (result.exit_code, f"{bad} is skipped: {why}" in result.output) == (0, True)

    def names(files: RunFiles, folder: str = "") -> list[str]:
        if files.path == bad:
            raise PermissionError("no access")
        return listed(files, folder)

    listed = RunFiles.names
    monkeypatch.setattr(RunFiles, "names", names)
    for words in (["--x", "time"], ["--metric", "losses/critic"]):
        result = _plot(good, bad, "-o", tmp_path / "x.png", *words)
        assert (result.exit_code, f"{bad} is skipped: no access" in result.output) == (0, True)


@pytest.mark.parametrize("words", [[], ["--env", "Ant-v5"], ["--filter", "seed=0"]])
def test_it_is_reported_if_no_run_can_be_read(tmp_path: Path, words: list[str]) -> None:
    run = _run(tmp_path / "run", [1.0])
    (run / "config.json").write_bytes(b"{")
    result = _plot(tmp_path, "-o", tmp_path / "x.png", *words)
    assert result.exit_code == 1
    assert f"{run} is skipped: " in result.output
    assert "none of these runs can be read" in result.output


@pytest.mark.usefixtures("unsaved")
def test_later_evaluations_can_be_omitted(tables: Path) -> None:
    words = tables, "-o", tables / "x.png", "--until"
    assert "| Walker2d-v5 | td3 | 0, 1, 2 | 2,000 | 5.5 ± 0.5 |" in _plot(*words, 2000).output
    assert "these runs have no evaluations up to step 999" in _plot(*words, 999).output


@pytest.mark.usefixtures("unsaved")
def test_the_score_is_the_mean_of_any_number_of_final_evaluations(tables: Path) -> None:
    words = tables, "-o", tables / "x.png", "--baseline", "sb3-td3", "--score-last"
    last, last_two = _plot(*words, 1).output, _plot(*words, 2).output
    assert "| Walker2d-v5 | td3 | 0, 1, 2 | 4,000 | 31 ± 1 |" in last
    assert "| Walker2d-v5 | td3 | 0, 1, 2 | 4,000 | 26 ± 1 |" in last_two
    assert last.split("Comparison")[1] != last_two.split("Comparison")[1]
    with pytest.raises(ValueError, match="score_last must be at least 1; got 0"):
        Selection(score_last=0)


@pytest.mark.usefixtures("unsaved")
def test_labels_can_be_renamed(tables: Path) -> None:
    words = tables, "-o", tables / "x.svg", "--rename"
    result = _plot(*words, "sb3-td3", "Stable-Baselines3", "--baseline", "sb3-td3")
    assert "| Walker2d-v5 | Stable-Baselines3 | 0, 1, 2 |" in result.output
    assert "Comparison with Stable-Baselines3 (" in result.output
    assert "different labels must have different names" in _plot(*words, "td3", "sb3-td3").output
    assert "the label to rename must be one of ['sb3-td3'," in _plot(*words, "x", "y").output
    one_name = _plot(*words, "td3-8-environments", "td3").output  # in another environment
    assert "| Ant-v5 | td3 | 0 |" in one_name
    assert "| Walker2d-v5 | td3 | 0, 1, 2 |" in one_name


def test_time_is_an_axis_if_it_was_recorded(tables: Path) -> None:
    result = _plot(*tables.glob("*Walker*.csv"), "--x", "time", "-o", tables / "time.png")
    assert result.exit_code == 0, result.output
    result = _plot(*tables.glob("*Ant*.csv"), "--x", "time", "-o", tables / "ant.png")
    assert result.exit_code == 1
    assert "td3-8-environments, Ant-v5, seed 0: no times recorded" in result.output
    late = _table(tables, "td3-Walker2d-v5-9", [])
    late.write_text("steps,return_mean,seconds\n1000,1.0,900\n2000,1.0,1800\n")
    result = _plot(*tables.glob("td3-Walker*.csv"), "--x", "time", "-o", tables / "time.png")
    assert result.exit_code == 1
    assert "first evaluated after 900 s, another ended after 240 s" in result.output


def test_paths_without_runs_and_invalid_options_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="contains neither a run nor an evaluation table"):
        read_groups([tmp_path])
    with pytest.raises(
        RunError, match=r"a table must be named label-Environment-v0-seed\.csv; got"
    ):
        read_groups([_table(tmp_path, "mine", [1.0])])
    table = _table(tmp_path, "td3-Ant-v5-0", [1.0])
    result = _plot(table, "-o", tmp_path / "x.jpg")
    assert "--output must end in .png, .svg, .pdf; got" in result.output
    result = _plot(table, "-o", tmp_path / "x.png", "--baseline", "sb3")
    assert "baseline must be one of td3; got 'sb3'" in result.output
    result = _plot(table, "-o", tmp_path / "x.png", "--baseline", "td3")
    assert result.exit_code == 1
    assert "no runs to compare with td3: no other label has runs in ['Ant-v5']" in result.output


@pytest.mark.parametrize(
    "rows", ["2000,1\n1000,1", "1000,1\n1000,1", "1000,nan", "1000,inf", "x,1"]
)
def test_a_damaged_table_is_reported(tmp_path: Path, rows: str) -> None:
    table = tmp_path / "td3-Ant-v5-0.csv"
    table.write_text(f"steps,return_mean\n{rows}\n")
    result = _plot(table, "-o", tmp_path / "x.png")
    assert result.exit_code == 1
    assert f"{table} is damaged" in result.output


def test_an_empty_table_has_no_evaluations(tmp_path: Path) -> None:
    table = tmp_path / "td3-Ant-v5-0.csv"
    table.write_text("steps,return_mean,seconds\n")
    result = _plot(tmp_path, "-o", tmp_path / "x.png", "--x", "time")
    assert f"{table} is skipped: it has no evaluations yet" in result.output
    assert "these runs have no evaluations yet" in result.output


@pytest.mark.usefixtures("unsaved")
def test_intervals_over_few_runs_are_called_too_narrow(tmp_path: Path) -> None:
    for seed in range(5):
        _table(tmp_path, f"td3-Ant-v5-{seed}", [1.0])
        told = (
            "intervals over fewer than 5 runs are too narrow"
            in _plot(tmp_path, "-o", tmp_path / "x.png").output
        )
        assert told == (1 <= seed <= 3)  # a single run has no interval


def test_runs_are_grouped_by_the_settings_that_differ(tmp_path: Path) -> None:
    for number, (seed, tau) in enumerate([(0, 0.005), (1, 0.005), (0, 0.1)]):
        threads = {"intra_op_threads": 2 - seed, "mode": "xla" if seed else "graph"}
        _run(tmp_path / "runs" / str(number), [1.0, 2.0], seed=seed, tau=tau, **threads)
    groups = {group.label: group for group in read_groups([tmp_path / "runs"], times=True)}
    assert set(groups) == {"td3, tau 0.005", "td3, tau 0.1"}
    assert [curve.seed for curve in groups["td3, tau 0.005"].curves] == [0, 1]
    seconds = groups["td3, tau 0.1"].curves[0].seconds
    assert 0.0 <= seconds[0] < seconds[1]
    result = _plot(tmp_path / "runs" / "2", "-o", tmp_path / "runs.svg", "--x", "time")
    assert result.exit_code == 0, result.output


def test_trials_are_not_mixed_with_the_finalists_of_their_study(tmp_path: Path) -> None:
    study = tmp_path / "study"
    _run(study / "trials/0000/seed-0", [9.0], seed=0)
    (study / "study.json").touch()
    assert [len(group.curves) for group in read_groups([tmp_path])] == [1]
    _run(study / "final/trial-0000/seed-1", [1.0], seed=1)
    skipped: list[Path] = []
    (group,) = read_groups([tmp_path], skip=lambda path, reason: skipped.append(path))
    assert ([curve.seed for curve in group.curves], skipped) == ([1], [study / "trials"])
    (group,) = read_groups([study / "trials"])
    assert [curve.seed for curve in group.curves] == [0]


def test_runs_saved_before_a_setting_existed_have_its_default(tmp_path: Path) -> None:
    _run(tmp_path / "old", [1.0], seed=0)
    _run(tmp_path / "new", [1.0], seed=1, layer_norm=False)
    assert [len(group.curves) for group in read_groups([tmp_path])] == [2]
    _run(tmp_path / "other", [1.0], seed=1, layer_norm=True)
    labels = {group.label for group in read_groups([tmp_path], filter={"layer_norm": "true"})}
    assert labels == {"td3"}
    assert {group.label for group in read_groups([tmp_path])} == {
        "td3, layer_norm",
        "td3, no layer_norm",
    }
    (group,) = read_groups([tmp_path / "old"], filter={"layer_norm": False, "seed": "0"})
    assert group.label == "td3"


@pytest.mark.usefixtures("unsaved")
def test_filters_import_no_custom_agents(tmp_path: Path) -> None:
    for agent in ("missing:Agent", "td3", "ddpg"):
        _run(tmp_path / agent, [1.0], agent=agent)
    for words in (["policy_delay=2"], ["agent=TD3", "policy_delay=2"]):
        command = [word for each in words for word in ("--filter", each)]
        result = _plot(tmp_path, "-o", tmp_path / "x.png", *command)
        assert result.stdout.splitlines()[2:] == ["| Ant-v5 | td3 | 0 | 1,000 | 1 | 1 |"]
    result = _plot(tmp_path, "-o", tmp_path / "x.png", "--filter", "policy_dealy=2")
    assert "no run has the setting 'policy_dealy'" in result.output
    assert "Did you mean policy_delay?" in result.output
    result = _plot(tmp_path, "-o", tmp_path / "x.png", "--filter", "tau=0.005")
    assert "| Ant-v5 | missing:Agent | 0 |" in result.output
    _run(tmp_path / "newer", [1.0], agent="missing:Agent", seed=1, mine=2)
    with pytest.raises(RunError, match=r"agent missing:Agent of .* cannot be imported"):
        read_groups([tmp_path])  # the default of `mine` is unknown


@pytest.mark.usefixtures("unsaved")
def test_environments_and_runs_can_be_selected(tmp_path: Path) -> None:
    _table(tmp_path, "sb3-Ant-v5-0", [1.0])
    for seed in range(2):
        for env, tau in (("Ant-v5", 0.005), ("Ant-v5", 0.1), ("Hopper-v5", 0.1)):
            _run(tmp_path / f"{env}-{tau}-{seed}", [1.0], env=env, tau=tau, seed=seed)
    words = (tmp_path, "-o", tmp_path / "x.png")
    result = _plot(*words, "--env", "Ant-v5", "--filter", "tau=0.1", "--filter", "seed=1")
    assert result.stdout.splitlines()[2:] == ["| Ant-v5 | td3 | 1 | 1,000 | 1 | 1 |"]
    assert "sb3-Ant-v5-0.csv is skipped: a table contains no settings" in result.output
    result = _plot(*words, "--env", "Hopper-v5", "--env", "Ant-v5", "--filter", "seed=0,1")
    assert "a filter on seed requires a number; got '0,1'" in result.output
    result = _plot(*words, "--env", "Walker2d-v5")
    assert "env must be one of Ant-v5, Hopper-v5; got Walker2d-v5" in result.output
    result = _plot(*words, "--filter", "tau")
    assert "--filter must be SETTING=VALUE, such as tau=0.005; got tau" in result.output


@pytest.mark.usefixtures("unsaved")
def test_any_scalar_can_be_plotted(tmp_path: Path) -> None:
    _run(tmp_path / "runs" / "a", [1.0, 2.0, 3.0, 4.0])
    _run(tmp_path / "runs" / "b", [1.0], tag="losses/actor", agent="ddpg")
    (lost,) = _run(tmp_path / "runs" / "c", [1.0], seed=1).glob("events*")
    lost.unlink()
    table, words = tmp_path / "x.csv", (tmp_path / "runs", "-o", tmp_path / "x.png", "--metric")
    result = _plot(*words, "losses/critic", "--csv", table)
    assert "| Ant-v5 | td3 | 0 | 4,000 | 30 | 30 |" in result.output
    for name in ("b", "c"):
        why = "is skipped: it has no points of losses/critic"
        assert f"{tmp_path / 'runs' / name} {why}" in result.output
    assert table.read_text().splitlines()[1:3] == [
        "td3,Ant-v5,1000,10.0,,,1",
        "td3,Ant-v5,2000,20.0,,,1",
    ]
    result = _plot(*words, "loss")
    assert result.exit_code == 2
    assert (
        "metric must be return, success, or a scalar of the runs: evaluation/return_mean, "
        "losses/actor, losses/critic; got loss"
    ) in result.output
    # Normalized scores are known for returns only.
    result = _plot(*words, "evaluation/return_mean", "--baseline", "td3")
    assert "Normalized scores are omitted" in result.output


def test_success_rates_are_drawn_and_not_normalized(tmp_path: Path) -> None:
    # The random return of this environment is known, and lower than any success rate.
    for label, rates in (("td3", [0.0, 0.2, 0.1]), ("td3-hindsight", [0.5, 0.75, 1.0])):
        rows = [f"{n},{-n},{rate}" for n, rate in enumerate(rates, start=1)]
        text = "\n".join(["steps,return_mean,success_rate", *rows])
        (tmp_path / f"{label}-Reacher-v5-0.csv").write_text(text)
    command = (tmp_path, "--output", tmp_path / "picture.png", "--baseline", "td3")
    result = _plot(*command, "--metric", "success")
    assert result.exit_code == 0, result.output
    assert "| td3-hindsight | 0 | 3 | 0.75 |" in result.stdout
    assert "| td3-hindsight | 3 | 0.65 |  | 1 |" in result.stdout
    (tmp_path / "td3-Reacher-v5-0.csv").write_text("steps,return_mean\n1,1")
    result = _plot(*command, "--metric", "success")
    assert (result.exit_code, "has no success_rate at step 1" in result.output) == (2, True)
