"""Policy checkpoints: which policy is kept, and when updates are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from eagerly.environments.group import FinishedEpisode, Rollout
from eagerly.errors import RunStoppedError
from eagerly.storage.config import RunConfig
from eagerly.training.best_policy import BestPolicyTracker
from eagerly.training.policy_checkpoints import LONGEST_EPISODE, PolicyCheckpoints
from tests.helpers import small_agent

PER_CALL = 10


def checkpoints_of(agent: Any = None, **settings: Any) -> PolicyCheckpoints:
    given = {"updates_per_call": PER_CALL, "policy_checkpoints": True} | settings
    return PolicyCheckpoints(agent or small_agent("td3"), RunConfig(env="Pendulum-v1", **given))


def rollout(ended: Sequence[tuple[int, int, float]], steps: int, count: int) -> Rollout:
    """Creates a rollout. `ended` lists the step, environment and return of each finished episode.

    All other fields are placeholders.
    """
    empty, terminated = np.zeros((steps, count, 1), np.float32), np.zeros((steps, count), bool)
    episodes = []
    for step, environment, total in ended:
        terminated[step, environment] = True
        episodes.append(FinishedEpisode(environment, total, 1))
    rest = np.zeros((0, 1), np.float32), [{} for _ in episodes], None
    return Rollout(
        empty, empty, empty, empty[..., 0], terminated, np.zeros_like(terminated), *rest, episodes
    )


class Play:
    """Simulates episodes for policy checkpoints. Updates are counted but not computed.

    Args:
        checkpoints: The policy checkpoints. The constructor ends their warm-up and starts an
            episode in each environment.
        environments: Number of environments.
    """

    def __init__(self, checkpoints: PolicyCheckpoints, environments: int = 1) -> None:
        self.checkpoints, self.agent, self.count = checkpoints, checkpoints._agent, environments
        self.steps([(0, each, 1e9) for each in range(environments)], 1, 0)

    def steps(self, ended: Sequence[tuple[int, int, float]], steps: int, owing: int) -> int:
        """Collects a round; `owing` of its steps require updates. Returns the number of updates."""
        self.checkpoints.record_rollout(rollout(ended, steps, self.count), owing)
        before = self.agent.updates
        while self.checkpoints.is_call_due:
            self.checkpoints.record_updates()
            self.agent.learner.updates += PER_CALL
        return int(self.agent.updates - before)

    def __call__(self, total: float, *, steps: int = 10, environment: int = 0) -> tuple[Any, ...]:
        """Ends an episode after `steps` steps that require updates.

        Returns:
            The number of policies kept so far, the best return, and the number of updates made.
        """
        made = self.steps([(0, environment, total)], 1, steps)
        return self.checkpoints.kept, self.checkpoints.best, made


def test_a_policy_is_kept_if_it_is_no_worse_and_training_continues_in_any_case() -> None:
    play = Play(checkpoints_of())
    assert play(-30.0) == (0, None, 10)  # the untrained policy is not assessed
    assert play(-50.0) == (1, -50.0, 10)
    assert play(-40.0) == (2, -40.0, 10)
    assert play(-41.0) == (2, -40.0, 10)
    assert play(-40.0) == (3, -40.0, 10)  # an equal return suffices to keep it
    assert play.checkpoints.scalars() == {"checkpoints/kept": 3.0, "checkpoints/worst_return": -40}


@pytest.mark.parametrize("name", ["td3", "ddpg", "td7"])
def test_the_kept_policy_is_the_one_that_collected(name: str) -> None:
    agent = small_agent(name, normalize_observations=True)
    checkpoints = checkpoints_of(agent)
    play, observation = Play(checkpoints), np.ones((1, agent.observations.size), np.float32)
    np.testing.assert_array_equal(checkpoints.policy(observation), agent.act(observation))
    play(0.0)
    for step in range(3):
        for variable in agent.acting.trainable_variables:
            variable.assign(variable.numpy() + 0.1)
        agent.policy.refresh()
        acted, kept = agent.act(observation), checkpoints.policy(observation)
        assert not np.array_equal(acted, kept)
        play(float(-step))  # the first policy is kept, the later ones are worse
        expected = acted if step == 0 else kept
        np.testing.assert_array_equal(checkpoints.policy(observation), expected)


def test_the_untrained_policy_can_be_assessed_but_does_not_count_as_trained() -> None:
    play = Play(checkpoints_of(checkpoint_untrained=True))
    policies = BestPolicyTracker(play.agent, play.checkpoints)
    assert play(-30.0) == (1, -30.0, 10)
    assert play(-50.0) == (1, -30.0, 10)
    assert (play.agent.updates, policies.updates) == (20, 0)
    assert not policies.compare(100, 5.0)
    assert play(-20.0) == (2, -20.0, 10)
    assert policies.updates == 30


def test_the_policy_of_another_run_is_assessed_before_the_first_update() -> None:
    checkpoints = checkpoints_of()
    policies = BestPolicyTracker(checkpoints._agent, checkpoints)
    policies.begin_with_given()
    play = Play(checkpoints)
    assert play(100.0) == (1, 100.0, 10)
    assert play(50.0) == (1, 100.0, 10)
    assert policies.updates == 0


def test_later_policies_need_more_episodes_and_the_best_return_is_rescaled_once() -> None:
    settings = {
        "checkpoint_episodes": 3, "checkpoint_episodes_after": 20, "checkpoint_reset": 0.5
    }  # fmt: skip
    play = Play(checkpoints_of(**settings))
    assert play(0.0) == (0, None, 10)
    assert play(100.0) == (1, 100.0, 10)
    # Up to 20 updates, one episode suffices, and the best return is not rescaled.
    assert play(120.0) == (2, 120.0, 10)
    assert play(61.0) == (2, 60.0, 0)
    other = Play(checkpoints_of(**settings))
    other.checkpoints.restore(play.checkpoints.state())
    other.agent.learner.updates = play.agent.updates
    for each in (play, other):
        assert each(90.0) == (2, 60.0, 0)
        assert each(80.0) == (3, 61.0, 30)
        assert each(60.0) == (3, 61.0, 10)  # one episode suffices to reject a worse policy


@pytest.mark.parametrize(
    ("returns", "kept", "best"), [((9.0, 8.0, 7.0, 6.0), 2, 6.0), ((9.0, 8.0, 4.0, 9.0), 1, 5.0)]
)
def test_a_policy_is_assessed_further_until_a_whole_call_is_due(
    returns: tuple[float, ...], kept: int, best: float
) -> None:
    play = Play(checkpoints_of())
    play(0.0)
    assert play(5.0) == (1, 5.0, 10)
    for total in returns[:3]:
        assert play(total, steps=3) == (1, 5.0, 0)
    # A policy is assessed by its worst episode.
    assert play(returns[3], steps=3) == (kept, best, 10)


def test_remaining_updates_are_carried_over() -> None:
    play = Play(checkpoints_of())
    assert play(0.0, steps=25)[2] == 20
    assert play(0.0, steps=4)[2] == 0
    assert play(0.0, steps=1)[2] == 10


def test_only_episodes_played_entirely_by_the_current_policy_are_assessed() -> None:
    play = Play(checkpoints_of(), environments=3)
    assert play(0.0, environment=0) == (0, None, 10)
    assert play(7.0, environment=1) == (0, None, 0)  # this episode started before the updates above
    assert play(3.0, environment=0) == (1, 3.0, 20)
    assert play(-9.0, environment=2) == (1, 3.0, 0)  # so did this one, before the last updates
    assert play(4.0, environment=2) == (2, 4.0, 20)
    assert play(-9.0, environment=1) == (2, 4.0, 0)


def test_episodes_that_started_in_the_warm_up_are_not_assessed() -> None:
    checkpoints = checkpoints_of(checkpoint_untrained=True)
    play = Play(checkpoints, environments=2)
    assert play.steps([(0, 1, -9.0)], 1, 0) == 0  # environment 0's episode began randomly
    assert play.steps([(0, 0, 1.0), (0, 1, 2.0)], 1, 20) == 20
    assert (checkpoints.kept, checkpoints.best) == (1, 2.0)


def test_episodes_in_progress_at_the_end_of_a_round_are_not_assessed() -> None:
    play = Play(checkpoints_of(checkpoint_untrained=True), environments=2)
    assert play.steps([(0, 0, 1.0), (3, 1, 1.0)], 4, 10) == 10
    assert play.checkpoints.best == 1.0
    # In environment 0, the first episode started in the previous round, the second one did not.
    assert play.steps([(0, 0, -9.0), (1, 1, 5.0), (2, 0, 4.0)], 4, 10) == 10
    assert play.checkpoints.best == 4.0


def test_the_assessment_resumes_exactly() -> None:
    play = Play(checkpoints_of(), environments=2)
    play(0.0)
    for variable in play.agent.acting.trainable_variables:
        variable.assign(variable.numpy() + 0.1)
    play.agent.policy.refresh()
    play(4.0)
    play(9.0, steps=3)
    other = Play(checkpoints_of(), environments=2)
    other.agent.learner.updates = play.agent.updates
    other.checkpoints.restore(play.checkpoints.state())
    observation = np.ones((1, play.agent.observations.size), np.float32)
    np.testing.assert_array_equal(*(p.checkpoints.policy(observation) for p in (play, other)))
    for each in (play, other):
        # The episode of environment 1 started before the latest updates, so it is not assessed.
        assert each(2.0, steps=7, environment=1) == (2, 9.0, 10)
        assert each(5.0, environment=1) == (2, 9.0, 10)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("worst", float("nan")),
        ("best", float("inf")),
        ("kept", -1),
        ("stale", [1]),
        ("weights", {}),
        ("waiting", 1.5),
    ],
)
def test_an_impossible_state_is_rejected(name: str, value: Any) -> None:
    play = Play(checkpoints_of())
    play(1.0)
    state: Mapping[str, Any] = play.checkpoints.state()
    with pytest.raises(ValueError, match=rf"{name} of PolicyCheckpoints must be"):
        checkpoints_of().restore({**state, name: value})


def test_an_endless_episode_stops_the_run_and_names_the_option() -> None:
    play, half = Play(checkpoints_of(), environments=2), LONGEST_EPISODE // 2
    play.steps([], half, 0)
    play.steps([(0, 0, 1.0)], 1, 0)
    play.steps([], half, 0)
    play.steps([], half, 0)
    with pytest.raises(RunStoppedError, match=r"per environment.* a new run with --no-pol"):
        play.steps([], 1, 0)
