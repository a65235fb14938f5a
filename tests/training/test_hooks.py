"""An algorithm that decides when it is updated, and hears which episodes ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from eagerly import TD3, Callback, Trainer, open_run
from eagerly.agents.hooks import FinishedEpisode
from tests.small_runs import SMALL
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


# Episodes of 10 steps, side by side: both end at 20 and 40 steps.
SETTINGS = {"env": "Regulator-v0", "num_envs": 2, "warmup_steps": 10, "steps": 46}
SETTINGS |= {"updates_per_call": 4, "replay_ratio": 100.0, "hidden_sizes": (4,), "batch_size": 4}
SETTINGS |= {"evaluate_every_steps": 15, "evaluation_episodes": 2, "summarize_every_steps": 10}


def trained(run: Path, *callbacks: Callback, **settings: Any) -> Any:
    is_new = not (run / "config.json").exists()
    agent = f"{__name__}:AtEnds"
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
