"""An algorithm that decides when it is updated, hears which episodes ended, and names policies."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np
import pytest

from eagerly import TD3, Callback, RunError, Trainer, load_policy, open_run
from eagerly.agents.actor_critic import actor_critic
from eagerly.agents.algorithm import Budget, FinishedEpisode
from eagerly.agents.builder import ModelBuilder
from eagerly.agents.modules import Module, Modules
from eagerly.networks.models import copy_variables
from eagerly.storage.evaluations import AT_LIMIT, EvaluationTable
from eagerly.training.evaluation import Evaluation, evaluate, evaluation_seeds
from tests.buffers.test_accumulators import TwoSteps
from tests.buffers.test_samplers import ByPriority
from tests.eagerly.training.test_callbacks import Diary, StopsAt
from tests.eagerly.training.test_trainer import _same
from tests.helpers import filled_buffer, random_transitions, spaces
from tests.small_runs import SMALL, scalars


class CollectedSinceTheLastEnd:
    """A budget that owes nothing until an episode ends, then what the run's owes for the steps."""

    def __init__(self, run: Budget) -> None:
        self.run, self.collected = run, 0

    @property
    def is_call_due(self) -> bool:
        return self.run.is_call_due

    def stepped(self, new: int) -> None:
        self.collected += new

    def paid(self) -> None:
        self.run.paid()

    def episode_ended(self) -> None:
        self.run.stepped(self.collected)
        self.collected = 0

    def state(self) -> dict[str, Any]:
        return {"collected": self.collected, "run": self.run.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.collected = state["collected"]
        self.run.restore(state["run"])


class AtEnds(TD3):
    """TD3 that is updated where episodes end."""

    def update_budget(self, run: Budget) -> CollectedSinceTheLastEnd:
        self.heard: list[tuple[int, ...]] = []
        self.budget = CollectedSinceTheLastEnd(run)
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
    """A run that nothing stopped, and what was heard of it."""
    diary = Diary()
    return trained(tmp_path_factory.mktemp("straight") / "run", diary), diary


def test_updates_are_made_where_episodes_end_as_many_as_the_steps_collected_owe(
    straight: tuple[Any, Diary],
) -> None:
    trainer, diary = straight
    steps, made = 0, []
    for event, number in diary.heard:
        steps = number if event == "rollout" else steps
        made += [(steps, number)] * (event == "update")
    # Two for every five of 10 steps after the warm-up, and of 20 more.
    assert made == [(20, 2), (20, 4), (40, 6), (40, 8), (40, 10), (40, 12)]
    assert trainer.agent.budget.state() == {"collected": 6, "run": {"owed": "0"}}


def test_the_algorithm_hears_of_the_episodes_of_a_step_before_its_updates(
    straight: tuple[Any, Diary],
) -> None:
    agent = straight[0].agent
    # Steps that the budget has counted, updates so far, environment, length.
    assert agent.heard == [(10, 0, 0, 10), (10, 0, 1, 10), (20, 4, 0, 10), (20, 4, 1, 10)]
    assert len(set(agent.totals)) == 2
    assert max(agent.totals) < 0


@pytest.mark.parametrize(
    ("at", "event", "made", "owed"),
    [(20, "on_rollout", 0, 4), (36, "on_rollout", 4, 0), (40, "on_update", 6, 6)],
)
def test_a_run_that_was_stopped_makes_the_updates_owed_before_it_acts_again(
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
    assert stopped.agent.heard + again.agent.heard == straight[0].agent.heard


FIGURES = ["return_mean", "return_std", "return_min", "return_max", "length_mean"]


def test_policies_that_are_named_are_evaluated_beside_the_acting_one(
    straight: tuple[Any, Diary],
) -> None:
    trainer, _ = straight
    with trainer.run.evaluations_path.open() as file:
        rows = list(csv.DictReader(file))
    names = ["", "linear_", "same_"]
    figures = [*FIGURES, AT_LIMIT]
    columns = ["steps", "updates", "episodes", *(name + f for name in names for f in figures)]
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
    stopped = trained(tmp_path / "run", StopsAt(7, "on_rollout"), kind="Prioritized", **settings)
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


class Filled(TD3):
    """Begins with rows of its own."""

    def replay_buffer(self, capacity: int, **more: Any) -> Any:
        buffer = super().replay_buffer(capacity, **more)
        buffer.add(random_transitions(20, (1, 1)))
        return buffer


class Fills(Callback):
    """Adds the same rows when a run begins."""

    def on_begin(self, training: Any) -> None:
        if training.steps == 0:
            training.buffer.add(random_transitions(20, (1, 1)))


def test_rows_that_a_run_begins_with_are_added_by_a_callback(tmp_path: Path) -> None:
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


class WholeEpisodes(TD3):
    """TD3 whose warm-up ends with an episode."""

    warmup_ends_with_episode = True


@pytest.mark.parametrize(("num_envs", "end"), [(1, 20), (3, 30)])
def test_a_warm_up_that_ends_with_an_episode_goes_on_where_it_was_stopped(
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
    paid = end + (4 if num_envs == 1 else 6)  # a quarter of an update for each step
    assert diary.heard.index(("update", 1)) == diary.heard.index(("rollout", paid)) + 1
    stopped = trained(tmp_path / "run", StopsAt(15, "on_rollout"), kind="WholeEpisodes", **settings)
    assert (stopped.steps, stopped.updates) == (15, 0)
    _same(trained(tmp_path / "run", kind="WholeEpisodes"), straight)


class Keeps(TD3):
    """TD3 that collects with the actor, and is evaluated and saved as a copy of it.

    The copy is taken when an episode ends.
    """

    def build(self, builder: ModelBuilder) -> Modules:
        return Modules(*actor_critic(builder).values(), Module("kept", builder.policy_actor()))

    def acting_model(self) -> Any:
        return self.modules["kept"].network

    def collecting_model(self) -> Any:
        return self.actor.network

    def episodes_ended(self, episodes: Sequence[FinishedEpisode]) -> None:
        copy_variables(self.actor.network, self.acting)
        self.policy.refresh()

    def evaluated_policies(self) -> Mapping[str, Any]:
        return {"current": self.collecting}


FEW = {"replay_ratio": 0.25, "updates_per_call": 1}
OBSERVATIONS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def collected(agent: Any) -> np.ndarray:
    return agent.behavior().act(OBSERVATIONS, explore=False)


@pytest.mark.parametrize("mode", ["eager", pytest.param("graph", marks=pytest.mark.long)])
def test_what_collects_may_differ_from_what_is_evaluated_and_saved(mode: str) -> None:
    settings = TD3.Config(hidden_sizes=(8,), batch_size=4, mode=mode)
    agent, other = (Keeps(*spaces(), settings, seed=seed) for seed in (0, 1))
    begun, behavior = agent.act(OBSERVATIONS), agent.behavior()
    np.testing.assert_array_equal(collected(agent), begun)
    agent.train(filled_buffer(), 4)
    np.testing.assert_array_equal(agent.act(OBSERVATIONS), begun)
    moved = behavior.act(OBSERVATIONS, explore=False)
    np.testing.assert_allclose(moved, agent.actor(OBSERVATIONS), 1e-5, 1e-6)
    assert np.abs(moved - begun).max() > 1e-4
    other.set_weights(agent.get_weights())
    np.testing.assert_array_equal(other.act(OBSERVATIONS), begun)
    np.testing.assert_array_equal(collected(other), moved)
    agent.episodes_ended([])
    np.testing.assert_array_equal(agent.act(OBSERVATIONS), moved)
    for path, values in agent.policy_weights().items():
        assert path in {variable.path for variable in agent.actor.network.variables}
        np.testing.assert_array_equal(agent.get_weights()[f"kept/{path}"], values)


def test_both_policies_of_a_run_come_back_from_a_checkpoint(tmp_path: Path) -> None:
    straight = trained(tmp_path / "straight", kind="Keeps", **FEW)
    with straight.run.evaluations_path.open() as file:
        rows = list(csv.DictReader(file))
    # At the end episodes are 6 steps old, and what was learned since is not in the copy.
    assert rows[-1]["return_mean"] != rows[-1]["current_return_mean"]
    stopped = trained(tmp_path / "run", StopsAt(30, "on_round"), kind="Keeps", **FEW)
    acted = [stopped.agent.act(ROW), stopped.agent.collecting(ROW)]
    assert not np.array_equal(*acted)
    with Trainer(open_run(tmp_path / "run", None, {})) as continued:
        again = [continued.agent.act(ROW), continued.agent.collecting(ROW)]
    np.testing.assert_array_equal(again, acted)
    again = trained(tmp_path / "run", kind="Keeps")
    _same(again, straight)
    policy, actions = load_policy(tmp_path / "run", "latest"), again.agent.actions
    np.testing.assert_allclose(
        policy(ROW[0]), actions.to_environment(again.agent.act(ROW))[0], 1e-5, 1e-6
    )


ROW = np.array([[0.5]], np.float32)


def test_a_run_that_begins_with_a_policy_collects_with_it_too(tmp_path: Path) -> None:
    first = trained(tmp_path / "first", kind="Keeps", **FEW)
    policy = load_policy(tmp_path / "first")
    settings = {"init_from": str(tmp_path / "first"), "seed": 1}
    with Trainer(
        open_run(tmp_path / "second", f"{__name__}:Keeps", SMALL | SETTINGS | settings)
    ) as t:
        for act in (t.agent.act, t.agent.collecting, t.agent.actor, t.agent.actor.target):
            acted = t.agent.actions.to_environment(np.array(act(ROW)))
            np.testing.assert_allclose(acted[0], policy(ROW[0]), 1e-5, 1e-6)
    with pytest.raises(
        RunError, match=r"CollectsOtherwise collects with big, which has other vari"
    ):
        trained(tmp_path / "third", kind="CollectsOtherwise", **settings)
    assert first.agent.updates > 0


class CollectsOtherwise(Keeps):
    """Collects with a larger network."""

    def build(self, builder: ModelBuilder) -> Modules:
        big = keras.Sequential(
            [
                keras.Input((builder.observations.size,)),
                keras.layers.Dense(9),
                keras.layers.Dense(1),
            ],
            name="big",
        )
        return Modules(*super().build(builder).values(), Module("big", big))

    def collecting_model(self) -> Any:
        return self.modules["big"].network


class Forgets(Keeps):
    """Leaves out of its modules what it collects with."""

    def collecting_model(self) -> Any:
        return self.Builder(self.config, *spaces(), seed=0).actor("free")


def test_a_model_that_would_not_be_saved_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kernel of free, which acts, belongs to no module"):
        Forgets(*spaces(), TD3.Config(hidden_sizes=(4,)))
