"""Custom algorithms: update budgets, samplers, accumulators and policy checkpoints."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly import TD3, Callback, RunError, Trainer, load_policy, open_run
from eagerly.agents.actor_critic import actor_critic
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.modules import Module, Modules
from eagerly.environments.group import Rollout
from eagerly.storage.evaluations import EvaluationTable
from eagerly.training.evaluation import Evaluation
from eagerly.training.update_budget import UpdateBudget
from tests.buffers.test_accumulators import TwoSteps
from tests.buffers.test_samplers import ByPriority
from tests.eagerly.training.test_callbacks import Diary, StopsAt
from tests.eagerly.training.test_trainer import _same
from tests.helpers import random_transitions, spaces
from tests.small_runs import SMALL, scalars


class CollectedSinceTheLastEnd(UpdateBudget):
    """Defers the updates for all steps until an episode ends."""

    _saved = (*UpdateBudget._saved, "waiting")

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.waiting = 0
        self.heard: list[tuple[int, ...]] = []
        self.totals: list[float] = []

    def record_rollout(self, rollout: Rollout, steps: int) -> None:
        self.waiting += steps
        if rollout.episodes:
            for episode in rollout.episodes:
                self.heard.append((self.waiting, episode.environment, episode.length))
                self.totals.append(episode.total_reward)
            super().record_rollout(rollout, self.waiting)
            self.waiting = 0

    def scalars(self) -> dict[str, float]:
        return {"schedule/waiting": float(self.waiting)}


class AtEnds(TD3):
    """TD3 that makes updates only when episodes end."""

    Budget = CollectedSinceTheLastEnd


# Two environments have episodes of 10 steps, so both end an episode at steps 20 and 40.
SETTINGS = {"env": "Regulator-v0", "num_envs": 2, "warmup_steps": 10, "steps": 46}
SETTINGS |= {"updates_per_call": 2, "replay_ratio": 0.4, "hidden_sizes": (4,), "batch_size": 4}
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
    """An uninterrupted run, and the callback that recorded its events."""
    diary = Diary()
    return trained(tmp_path_factory.mktemp("straight") / "run", diary), diary


def test_updates_are_made_when_episodes_end_for_all_collected_steps(
    straight: tuple[Any, Diary],
) -> None:
    trainer, diary = straight
    steps, made = 0, []
    for event, number in diary.heard:
        steps = number if event == "rollout" else steps
        made += [(steps, number)] * (event == "update")
    # 5 steps require 2 updates. The 10 steps after the warm-up require 4, and the next 20 steps 8.
    assert made == [(20, 2), (20, 4), (40, 6), (40, 8), (40, 10), (40, 12)]
    assert trainer.budget.state() == {"waiting": 6, "owed": "0"}
    points = scalars(trainer.run.path)
    assert [points["schedule/waiting", step] for step in (10, 20, 30, 40)] == [[0], [0], [10], [0]]


def test_the_budget_is_notified_of_finished_episodes_before_updates_are_made(
    straight: tuple[Any, Diary],
) -> None:
    budget = straight[0].budget
    # Each entry is (waiting steps, environment, episode length).
    assert budget.heard == [(10, 0, 10), (10, 1, 10), (20, 0, 10), (20, 1, 10)]
    assert len(set(budget.totals)) == 4
    assert max(budget.totals) < 0


@pytest.mark.parametrize(
    ("at", "event", "made", "owed"),
    [(20, "on_rollout", 0, 4), (36, "on_rollout", 4, 0), (40, "on_update", 6, 6)],
)
def test_a_resumed_run_makes_pending_updates_before_acting(
    straight: tuple[Any, Diary], tmp_path: Path, at: int, event: str, made: int, owed: int
) -> None:
    stopped = trained(tmp_path / "run", StopsAt(at, event))
    assert (stopped.steps, stopped.updates, stopped.in_round) == (at, made, at != 36)
    diary = Diary()
    again = trained(tmp_path / "run", diary)
    acted = [name for name, _ in diary.heard].index("rollout")
    first = [number for name, number in diary.heard[:acted] if name == "update"]
    assert first == list(range(made + 2, made + owed + 1, 2))
    _same(again, straight[0])
    assert stopped.budget.heard + again.budget.heard == straight[0].budget.heard


@pytest.mark.parametrize("name", ["a/b", "", "info", "return,mean"])
def test_invalid_column_names_are_rejected(name: str) -> None:
    one = Evaluation(np.zeros(1), np.ones(1))
    with pytest.raises(ValueError, match=r"identifier other than 'info'; got "):
        Evaluation(np.zeros(1), np.ones(1), others={name: one})


def test_a_custom_budget_is_incompatible_with_policy_checkpoints(tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"AtEnds has its own update schedule.* omit --policy-checkpoints"
    ):
        trained(tmp_path / "run", policy_checkpoints=True)


class Prioritized(TD3):
    """TD3 with two-step transitions and a sampler that receives TD errors."""

    def sampler(self, seed: np.random.SeedSequence) -> ByPriority:
        sampler = ByPriority(capacity=1000)
        sampler.per_row = ("td_error",)
        return sampler

    def accumulator(self) -> TwoSteps:
        return TwoSteps()


def test_a_custom_sampler_and_accumulator_resume_exactly(
    tmp_path: Path,
) -> None:
    settings = {"env": "Long-v0", "num_envs": 1, "warmup_steps": 0, "steps": 14}
    settings |= {"updates_per_call": 1, "replay_ratio": 1.0, "replay_capacity": 1000}
    straight = trained(tmp_path / "straight", kind="Prioritized", **settings)
    # The first step yields no transition, so its update is made after the second step.
    assert (straight.updates, len(straight.buffer)) == (14, 13)
    places = [heard[0] for heard in straight.buffer.sampler.heard]
    assert len(places) == 14
    stopped = trained(tmp_path / "run", StopsAt(7, "on_rollout"), kind="Prioritized", **settings)
    assert (stopped.steps, stopped.updates) == (7, 6)
    again = trained(tmp_path / "run", kind="Prioritized")
    _same(again, straight)
    assert [h[0] for t in (stopped, again) for h in t.buffer.sampler.heard] == places


def test_replay_buffer_uses_the_algorithms_sampler() -> None:
    agent = Prioritized(*spaces(), TD3.Config(hidden_sizes=(4,), batch_size=4, mode="eager"))
    buffer = agent.replay_buffer(100)
    buffer.add(random_transitions(20))
    agent.train(buffer, 2)
    assert len(buffer.sampler.heard) == 1
    agent.sampler = lambda seed: None  # type: ignore[method-assign]
    with pytest.raises(TypeError, match=r"Prioritized\.sampler must return a sampler; got None"):
        agent.replay_buffer(100)


class Filled(TD3):
    """TD3 whose new replay buffers already contain rows."""

    def replay_buffer(self, capacity: int, **more: Any) -> Any:
        buffer = super().replay_buffer(capacity, **more)
        buffer.add(random_transitions(20, (1, 1)))
        return buffer


class Fills(Callback):
    """Adds 20 rows at the start of a new run."""

    def on_begin(self, training: Any) -> None:
        if training.steps == 0:
            training.buffer.add(random_transitions(20, (1, 1)))


def test_a_callback_can_add_initial_rows(tmp_path: Path) -> None:
    with pytest.raises(
        RunError, match=r"Filled\.replay_buffer must return an empty .* got 20 rows"
    ):
        trained(tmp_path / "refused", kind="Filled")
    straight = trained(tmp_path / "straight", Fills(), steps=24)
    trained(tmp_path / "parts", Fills(), steps=14)
    again = trained(tmp_path / "parts", Fills(), steps=24)
    assert again.buffer.added == 20 + 24
    _same(again, straight)


class ActsByTarget(TD3):
    """Acts with the target actor, whose variable names differ from those of a loaded policy."""

    def build(self, builder: ModelBuilder) -> Modules:
        modules = actor_critic(builder)
        return Modules(*modules.values(), Module("policy", modules["actor"].target))


def test_an_acting_model_that_cannot_be_loaded_is_rejected_immediately() -> None:
    with pytest.raises(
        ValueError, match=r"Builder\.policy_actor must build a model with the variables"
    ):
        ActsByTarget(*spaces(), TD3.Config(hidden_sizes=(4,)))


def test_a_continued_table_must_keep_its_columns(tmp_path: Path) -> None:
    EvaluationTable(tmp_path / "evaluations.csv").add({"steps": 1, "return_mean": 2.0})
    with pytest.raises(RunError, match="must have the columns steps, return_mean; got steps, x"):
        EvaluationTable(tmp_path / "evaluations.csv").add({"steps": 2, "x": 2.0})


class AfterAnEpisode(UpdateBudget):
    """The default budget, with a warm-up that continues until an episode ends."""

    warmup_ends_with_episode = True


class WholeEpisodes(TD3):
    """TD3 whose warm-up continues until an episode ends."""

    Budget = AfterAnEpisode


@pytest.mark.parametrize(("num_envs", "end"), [(1, 20), (3, 30)])
def test_a_warm_up_that_ends_with_an_episode_resumes_exactly(
    tmp_path: Path, num_envs: int, end: int
) -> None:
    settings = {
        "num_envs": num_envs,
        "warmup_steps": 12,
        "replay_ratio": 0.25,
        "updates_per_call": 1,
    }
    diary = Diary()
    straight = trained(tmp_path / "straight", diary, kind="WholeEpisodes", **settings)
    steps = [number for event, number in diary.heard if event == "rollout"]
    assert straight.updates == (steps[-1] - end) // 4
    # Each update requires 4 steps. With 3 environments, a round has 3 steps, so it takes 2 rounds.
    paid = end + (4 if num_envs == 1 else 6)
    assert diary.heard.index(("update", 1)) == diary.heard.index(("rollout", paid)) + 1
    stopped = trained(tmp_path / "run", StopsAt(15, "on_rollout"), kind="WholeEpisodes", **settings)
    assert (stopped.steps, stopped.updates) == (15, 0)
    _same(trained(tmp_path / "run", kind="WholeEpisodes"), straight)


ROW = np.array([[0.5]], np.float32)
FEW = {"replay_ratio": 0.25, "updates_per_call": 1, "policy_checkpoints": True}


def acted(trainer: Any) -> list[np.ndarray]:
    """Returns the actions of two policies: the one that the budget keeps, and the current one."""
    return [trainer.budget.policy(ROW), trainer.agent.act(ROW)]


def test_the_policy_kept_by_td3_is_evaluated_saved_and_restored(tmp_path: Path) -> None:
    straight = trained(tmp_path / "straight", kind="Plain", **FEW)
    with straight.run.evaluations_path.open() as file:
        rows = list(csv.DictReader(file))
    # At step 46, no episode has ended since step 40, so the kept policy lacks the last updates.
    assert rows[-1]["return_mean"] != rows[-1]["current_return_mean"]
    stopped = trained(tmp_path / "run", StopsAt(30, "on_round"), kind="Plain", **FEW)
    with Trainer(open_run(tmp_path / "run", None, {})) as continued:
        np.testing.assert_array_equal(acted(continued), acted(stopped))
    again = trained(tmp_path / "run", kind="Plain")
    _same(again, straight)
    assert not np.array_equal(*acted(again))
    policy, actions = load_policy(tmp_path / "run", "latest"), again.agent.actions
    np.testing.assert_allclose(
        policy(ROW[0]), actions.to_environment(acted(again)[0])[0], 1e-5, 1e-6
    )


class Plain(TD3):
    """TD3 without changes."""


def test_a_run_initialized_with_a_policy_keeps_it(tmp_path: Path) -> None:
    first = trained(tmp_path / "first", kind="Plain", **FEW)
    policy = load_policy(tmp_path / "first")
    given = SMALL | SETTINGS | FEW | {"init_from": str(tmp_path / "first"), "seed": 1}
    with Trainer(open_run(tmp_path / "second", f"{__name__}:Plain", given)) as trainer:
        agent = trainer.agent
        for act in (agent.act, trainer.budget.policy, agent.actor, agent.actor.target):
            found = agent.actions.to_environment(np.array(act(ROW)))
            np.testing.assert_allclose(found[0], policy(ROW[0]), 1e-5, 1e-6)
    assert first.agent.updates > 0
