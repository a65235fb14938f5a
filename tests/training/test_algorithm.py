"""An algorithm that decides when it is updated, hears which episodes ended, and names policies."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly import TD3, Callback, RunError, Trainer, open_run
from eagerly.agents.algorithm import FinishedEpisode
from eagerly.storage.evaluations import EvaluationTable
from eagerly.training.evaluation import Evaluation, evaluate, evaluation_seeds
from tests.buffers.test_accumulators import TwoSteps
from tests.buffers.test_samplers import ByPriority
from tests.helpers import random_transitions, spaces
from tests.small_runs import SMALL, scalars
from tests.training.test_callbacks import Diary, StopsAt
from tests.training.test_trainer import _same


class CollectedSinceTheLastEnd:
    """A budget that owes nothing until an episode ends, then an update for each step since."""

    def __init__(self, per_call: int) -> None:
        self.per_call, self.collected, self.owed = per_call, 0, 0

    @property
    def is_call_due(self) -> bool:
        return self.owed >= self.per_call

    def stepped(self, total: int, new: int) -> None:
        self.collected += new

    def paid(self) -> None:
        self.owed -= self.per_call

    def episode_ended(self) -> None:
        self.owed, self.collected = self.owed + self.collected, 0

    def state(self) -> dict[str, Any]:
        return {"collected": self.collected, "owed": self.owed}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.collected, self.owed = state["collected"], state["owed"]


class AtEnds(TD3):
    """TD3 that is updated where episodes end."""

    def update_budget(self, updates_per_call: int, warmup_steps: int) -> CollectedSinceTheLastEnd:
        self.given, self.heard = (updates_per_call, warmup_steps), []
        self.budget = CollectedSinceTheLastEnd(updates_per_call)
        return self.budget

    def episodes_ended(self, episodes: Sequence[FinishedEpisode]) -> None:
        steps = self.budget.collected
        self.heard += [(steps, self.updates, each.environment, each.length) for each in episodes]
        self.totals = [each.total_reward for each in episodes]
        self.budget.episode_ended()

    def evaluated_policies(self) -> Mapping[str, Any]:
        return {"linear": linear, "same": self.policy}


def linear(observations: np.ndarray) -> np.ndarray:
    """The policy u = -x, which is nearly the best; it returns u / 2, in [-1, 1]."""
    return np.clip(-observations / 2, -1, 1)


class Wavering(AtEnds):
    """Names another policy after its first updates."""

    def evaluated_policies(self) -> Mapping[str, Any]:
        return {"late" if self.updates else "early": linear}


# Episodes of 10 steps, side by side: both end at 20 and 40 steps.
SETTINGS = {"env": "Regulator-v0", "num_envs": 2, "warmup_steps": 10, "steps": 46}
SETTINGS |= {"updates_per_call": 4, "replay_ratio": 100.0, "hidden_sizes": (4,), "batch_size": 4}
SETTINGS |= {"evaluate_every_steps": 15, "evaluation_episodes": 2, "summarize_every_steps": 10}


def trained(run: Path, *callbacks: Callback, kind: str = "AtEnds", **settings: Any) -> Any:
    is_new = not (run / "config.json").exists()
    agent = f"{__name__}:{kind}"
    given = SMALL | SETTINGS | settings if is_new else settings
    with Trainer(open_run(run, agent, given), callbacks) as trainer:
        trainer.train()
    return trainer


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Diary]:
    """A run that nothing stopped, and what was heard of it."""
    diary = Diary()
    return trained(tmp_path_factory.mktemp("straight") / "run", diary), diary


def test_updates_are_made_where_episodes_end_as_many_as_steps_were_collected(
    straight: tuple[Any, Diary],
) -> None:
    trainer, diary = straight
    assert trainer.agent.given == (4, 10)
    steps, made = 0, []
    for event, number in diary.heard:
        steps = number if event == "step" else steps
        made += [(steps, number)] * (event == "update")
    assert made == [(20, 4 * k) for k in range(1, 6)] + [(40, 4 * k) for k in range(6, 11)]
    assert trainer.agent.budget.state() == {"collected": 6, "owed": 0}


def test_the_algorithm_hears_of_the_episodes_of_a_step_before_its_updates(
    straight: tuple[Any, Diary],
) -> None:
    agent = straight[0].agent
    # Steps that the budget has counted, updates so far, environment, length.
    assert agent.heard == [(20, 0, 0, 10), (20, 0, 1, 10), (20, 20, 0, 10), (20, 20, 1, 10)]
    assert len(set(agent.totals)) == 2
    assert max(agent.totals) < 0


@pytest.mark.parametrize(
    ("at", "event", "made"),
    [(20, "on_step", 0), (36, "on_step", 20), (40, "on_update", 24)],
)
def test_a_run_that_was_stopped_makes_the_updates_owed_before_it_acts_again(
    straight: tuple[Any, Diary], tmp_path: Path, at: int, event: str, made: int
) -> None:
    stopped = trained(tmp_path / "run", StopsAt(at, event))
    assert (stopped.steps, stopped.updates, stopped.in_round) == (at, made, at != 36)
    diary = Diary()
    again = trained(tmp_path / "run", diary)
    acted = [name for name, _ in diary.heard].index("step")
    first = [number for name, number in diary.heard[:acted] if name == "update"]
    assert first == ([] if at == 36 else list(range(made + 4, at + 1, 4)))
    _same(again, straight[0])
    assert stopped.agent.heard + again.agent.heard == straight[0].agent.heard


FIGURES = ["return_mean", "return_std", "return_min", "return_max", "length_mean"]


def test_policies_that_are_named_are_evaluated_beside_the_acting_one(
    straight: tuple[Any, Diary],
) -> None:
    trainer, _ = straight
    with trainer.run.evaluations_path.open() as file:
        rows = list(csv.DictReader(file))
    names = ["", "linear_", "same_"]
    columns = ["steps", "updates", "episodes", *(name + f for name in names for f in FIGURES)]
    assert list(rows[0]) == columns
    assert [row["steps"] for row in rows] == ["16", "30", "46"]
    seeds = evaluation_seeds(trainer.config.evaluation_seed, 2)
    env = gymnasium.make("Regulator-v0")
    expected = evaluate(lambda x: np.clip(-x, -2, 2), env, seeds).summary()
    points = scalars(trainer.run.path)
    for row in rows:
        for figure in FIGURES:
            assert np.isclose(float(row[f"linear_{figure}"]), expected[figure], rtol=1e-5)
            assert row[f"same_{figure}"] == row[figure]
            for name in names:
                tag = f"evaluation_{name}"[:-1] if name else "evaluation"
                np.testing.assert_allclose(
                    points[f"{tag}/{figure}", int(row["steps"])], [float(row[name + figure])], 1e-6
                )


def test_the_acting_policy_alone_decides_what_is_best(straight: tuple[Any, Diary]) -> None:
    trainer, _ = straight
    with trainer.run.evaluations_path.open() as file:
        rows = [row for row in csv.DictReader(file) if int(row["updates"])]
    best = max(rows, key=lambda row: float(row["return_mean"]))
    assert trainer.best_return == float(best["return_mean"]) < float(best["linear_return_mean"])
    assert trainer.policies.best_step == int(best["steps"])
    assert scalars(trainer.run.path)["evaluation/return_best", 46] == [
        pytest.approx(trainer.best_return)
    ]


def test_policies_must_have_the_same_names_in_the_whole_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"have the columns .*early_return_mean.*; got .*late_retu"):
        trained(tmp_path / "run", kind="Wavering")


@pytest.mark.parametrize("name", ["a/b", "", "info", "return,mean"])
def test_a_name_that_no_column_can_have_is_refused(name: str) -> None:
    one = Evaluation(np.zeros(1), np.ones(1))
    with pytest.raises(ValueError, match=r"identifier other than 'info'; got "):
        Evaluation(np.zeros(1), np.ones(1), others={name: one})


class Prioritized(TD3):
    """TD3 with a sampler that takes errors back, and transitions of two steps."""

    def sampler(self, seed: np.random.SeedSequence) -> ByPriority:
        sampler = ByPriority(capacity=1000)
        sampler.per_row = ("td_error",)
        return sampler

    def accumulator(self, discount: float) -> TwoSteps:
        return TwoSteps()


def test_a_sampler_and_an_accumulator_of_an_algorithm_go_on_where_they_were(
    tmp_path: Path,
) -> None:
    settings = {"env": "Long-v0", "num_envs": 1, "warmup_steps": 0, "steps": 14}
    settings |= {"updates_per_call": 1, "replay_ratio": 1.0, "replay_capacity": 1000}
    straight = trained(tmp_path / "straight", kind="Prioritized", **settings)
    # The first step gives no transition: the update that it owes waits for the second.
    assert (straight.updates, len(straight.buffer)) == (14, 13)
    places = [heard[0] for heard in straight.buffer.sampler.heard]
    assert len(places) == 14
    stopped = trained(tmp_path / "run", StopsAt(7, "on_step"), kind="Prioritized", **settings)
    assert (stopped.steps, stopped.updates) == (7, 6)
    again = trained(tmp_path / "run", kind="Prioritized")
    _same(again, straight)
    assert [h[0] for t in (stopped, again) for h in t.buffer.sampler.heard] == places


def test_a_buffer_in_a_loop_of_ones_own_has_the_algorithms_sampler() -> None:
    agent = Prioritized(*spaces(), TD3.Config(hidden_sizes=(4,), batch_size=4, mode="eager"))
    buffer = agent.replay_buffer(100)
    buffer.add(random_transitions(20))
    agent.train(buffer, 2)
    assert len(buffer.sampler.heard) == 1
    agent.sampler = lambda seed: None  # type: ignore[method-assign]
    with pytest.raises(TypeError, match=r"Prioritized\.sampler must return a sampler; got None"):
        agent.replay_buffer(100)


class ActsByTarget(TD3):
    """Acts with a model of other names than those that a policy is loaded into."""

    def acting_model(self) -> Any:
        return self.actor.target


def test_an_acting_model_that_could_not_be_loaded_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"loaded into what Builder\.policy_actor builds"):
        ActsByTarget(*spaces(), TD3.Config(hidden_sizes=(4,)))


def test_columns_are_the_same_in_a_table_that_is_continued(tmp_path: Path) -> None:
    EvaluationTable(tmp_path / "evaluations.csv").add({"steps": 1, "return_mean": 2.0})
    with pytest.raises(RunError, match="must have the columns steps, return_mean; got steps, x"):
        EvaluationTable(tmp_path / "evaluations.csv").add({"steps": 2, "x": 2.0})
