"""Selection of the best policy, and the final evaluation of a run that has none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eagerly import Callback, RunError, Trainer, load_policy, open_run
from eagerly.storage.checkpoint_reader import required_checkpoint
from eagerly.storage.digests import digests
from eagerly.storage.evaluations import EvaluationTable, read_results
from eagerly.storage.files import RunFiles
from eagerly.storage.listing import summary
from eagerly.storage.manifest import finished_by
from eagerly.training.best_policy import BestPolicyTracker
from eagerly.training.evaluator import Evaluator
from eagerly.training.summaries import BEST
from tests.eagerly.training.test_callbacks import Diary, trained
from tests.eagerly.training.test_trainer import _same
from tests.helpers import equal_weights, small_agent
from tests.small_runs import SMALL, TrainRun, scalars

# With the other settings in `SMALL`, the first 50 steps are random, and the first update is made
# at step 150.
SHORT: dict[str, Any] = {"evaluate_every_steps": 1000, "steps": 200, "hidden_sizes": (8,)}


def test_an_evaluation_before_the_first_update_is_never_the_best() -> None:
    policy = SimpleNamespace(snapshot=lambda: None)
    agent: Any = SimpleNamespace(updates=0, policy_weights=dict, policy=policy)
    policies = BestPolicyTracker(agent)
    assert not policies.compare(100, 5.0)
    assert policies.state()["best"] is None
    agent.updates = 1
    assert policies.compare(200, -3.0)
    assert not policies.compare(300, -3.0)
    assert (policies.best_step, policies.best_return) == (200, -3.0)


def test_the_weights_of_the_best_policy_are_restored() -> None:
    agent = small_agent("td3")
    agent.learner.updates = 1
    policies = BestPolicyTracker(agent)
    policies.compare(100, 5.0)
    expected = policies.state()
    for variable in agent.acting.trainable_variables:
        variable.assign(variable.numpy() + 1.0)
    policies = BestPolicyTracker(agent)
    policies.restore(expected)
    found = policies.state()["best"]
    assert (found["step"], found["return"]) == (100, 5.0)
    assert equal_weights(found["weights"], expected["latest"])
    assert not equal_weights(found["weights"], policies.state()["latest"])


def test_tables_curves_and_early_stopping_agree_on_which_evaluations_count(
    train: TrainRun, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # Every return reaches `stop_at_return`, but evaluations count only after the first update. The
    # warm-up has 120 steps.
    trainer = train(
        warmup_steps=120, replay_ratio=0.02, evaluate_every_steps=50, stop_at_return=-1e9
    )
    assert (trainer.steps, trainer.policies.best_step, trainer.finished) == (200, 200, True)
    results = read_results(run / "evaluations.csv")
    assert results.steps.tolist() == [50, 100, 150, 200]
    assert results.counted.tolist() == [False, False, False, True]
    assert {step for tag, step in scalars(run) if tag == BEST} == {200}
    assert summary(run).best == results.return_mean[3] == trainer.best_return
    assert trainer.score == trainer.best_return == summary(run).score
    assert str(results).endswith("at step 200")
    assert trainer.stop_reason == "stop_at_return"
    with Trainer(open_run(run, None, {})) as again:
        assert (again.stop_reason, again.score) == ("stop_at_return", trainer.score)
    assert train(stop_at_return=None, steps=210).stop_reason == "steps"


class Stop(Callback):
    """Stops a run at the end of its first round."""

    def on_round(self, training: Any) -> None:
        training.stop("enough")


def test_without_a_best_policy_the_latest_is_loaded_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    trainer = trained(run, Stop(), **SHORT)
    assert (trainer.steps, trainer.finished, summary(run).state) == (1, False, "stopped")
    assert not (run / "evaluations.csv").exists()
    policy = load_policy(run)
    assert (policy.which, policy.steps) == ("latest", 1)
    why = "has no best policy yet, because no policy has been evaluated since the first update"
    assert caplog.messages[-1] == f"{run} {why}: using the latest policy, from step 1"
    with pytest.raises(RunError, match=r"no best policy yet.* select the latest one"):
        load_policy(run, "best")


def test_a_run_without_an_evaluation_is_evaluated_once_at_its_end(tmp_path: Path) -> None:
    run, diary = tmp_path / "run", Diary()
    trainer = trained(run, diary, **SHORT)
    assert diary.heard[-3:] == [("checkpoint", 200), ("evaluation", 200), ("end", 200)]
    table = (run / "evaluations.csv").read_bytes()
    results = read_results(run / "evaluations.csv")
    assert results.steps.tolist() == [200]
    assert (trainer.finished, summary(run).state) == (True, "finished")
    assert summary(run).best == results.return_mean[0] == trainer.best_return
    policy = load_policy(run)  # only the latest policy was evaluated, so it is the best
    assert (policy.which, policy.steps) == ("best", 200)
    assert required_checkpoint(run).manifest.state["policies"]["best"] is None

    before = scalars(run)
    again = Diary()
    continued = trained(run, again)
    assert (continued.best_return, continued.finished) == (trainer.best_return, True)
    assert "evaluation" not in dict(again.heard)
    assert (run / "evaluations.csv").read_bytes() == table
    assert scalars(run) == before


@pytest.mark.parametrize(
    "every",
    [pytest.param(100, marks=pytest.mark.long), 1000],
    ids=["after an untrained one", "alone"],
)
def test_the_final_evaluation_leaves_no_trace_in_an_extended_run(
    train: TrainRun, tmp_path: Path, every: int
) -> None:
    for steps in (160, 300):
        parts = train("parts", evaluate_every_steps=every, steps=steps)
        steps_evaluated = read_results(parts.run.evaluations_path).steps.tolist()
        assert steps_evaluated == sorted({*range(every, steps + 1, every), steps})
    straight = train("straight", evaluate_every_steps=every, steps=300)
    _same(parts, straight)
    assert digests(tmp_path / "parts") == digests(tmp_path / "straight")
    assert scalars(tmp_path / "parts") == scalars(tmp_path / "straight")
    for name in ("networks.data-00000-of-00001", "policies.npz", "collector.npz"):
        (one,), (other,) = (
            (tmp_path / run).glob(f"checkpoints/*300-*/{name}") for run in ("parts", "straight")
        )
        assert one.read_bytes() == other.read_bytes()


def _dies(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_run_killed_in_its_final_evaluation_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, method in ((Evaluator, "evaluate"), (EvaluationTable, "add")):
        with monkeypatch.context() as patched:
            patched.setattr(kind, method, _dies)
            with pytest.raises(KeyboardInterrupt):
                trained(tmp_path / "run", **SHORT)
        assert required_checkpoint(tmp_path / "run").manifest.steps == 200
        assert summary(tmp_path / "run").state == "stopped"
    assert trained(tmp_path / "run").finished
    trained(tmp_path / "straight", **SHORT)
    assert digests(tmp_path / "run") == digests(tmp_path / "straight")


def test_a_partially_written_last_row_is_ignored(tmp_path: Path) -> None:
    run = tmp_path / "run"
    finished = trained(run, **SHORT)
    content = finished.run.evaluations_path.read_bytes()
    header, row = content.splitlines(keepends=True)
    names = header.decode().split(",")
    after_returns = len(b",".join(row.split(b",")[: names.index("return_mean") + 1]))
    tears = [1, after_returns - 2, after_returns, after_returns + 2, len(row) - 3, len(row) - 1]
    assert len(set(tears)) == 6
    for tear in tears:
        finished.run.evaluations_path.write_bytes(header + row[:tear])
        assert read_results(finished.run.evaluations_path).steps.size == 0, tear
        assert summary(run).state == "stopped", tear
    for lost in (b"", b"\0" * 7 + b"\n"):  # the end of the file was not written to the disk
        finished.run.evaluations_path.write_bytes(header + row[:after_returns] + lost)
        assert not finished_by(run, required_checkpoint(run).manifest, finished.config, -1)
    for tear in (after_returns - 2, len(row) - 1):
        finished.run.evaluations_path.write_bytes(header + row[:tear])
        assert trained(run).finished
        assert finished.run.evaluations_path.read_bytes() == content


def test_the_final_evaluation_is_durable_when_train_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    sync = RunFiles.sync

    def noted(files: RunFiles, name: str) -> None:
        sync(files, name)
        synced.append((name, files.size(name)))

    monkeypatch.setattr(RunFiles, "sync", noted)
    run = trained(tmp_path / "run", **SHORT).run
    assert synced[-1] == ("evaluations.csv", run.evaluations_path.stat().st_size)


def test_no_checkpoint_includes_the_final_evaluation(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Trainer(open_run(run, "td3", SMALL | SHORT)) as trainer:
        trainer.train()
        trainer.train()
        trainer.checkpoint()
    assert required_checkpoint(run).manifest.state["policies"]["best"] is None
    extended = trained(run, steps=400)
    straight = trained(tmp_path / "straight", **SHORT | {"steps": 400})
    tables = [each.run.evaluations_path.read_bytes() for each in (extended, straight)]
    assert tables[0] == tables[1]
    assert digests(run) == digests(tmp_path / "straight")


def test_a_failing_final_evaluation_is_reported_after_everything_else_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RunError("the environment is gone")

    monkeypatch.setattr("eagerly.training.evaluator.run_episodes", fails)
    with pytest.raises(RunError, match=r"is gone\. Only the final evaluation is missing"):
        trained(tmp_path / "run", **SHORT)
    assert required_checkpoint(tmp_path / "run").manifest.steps == 200
