"""Environments: seeds of episodes, final observations, and episodes restored by replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.environments.factory import environment_maker
from eagerly.environments.group import FinishedEpisode
from eagerly.workers.environment_groups import Environments
from tests import toys

toys.register()


def actions(count: int) -> np.ndarray:
    return np.tile(np.array([[0.5, 1.0]], np.float32), (count, 1))


class Clears(toys.Counting):
    """Adds its actions to the observation and sets each action to 0 after the step."""

    def step(self, action: np.ndarray) -> Any:
        observation, *rest = super().step(action)
        self.start += float(action.sum())
        action[:] = 0.0
        return observation, *rest


def test_an_environment_that_modifies_its_actions_is_restored() -> None:
    both = [Environments(lambda index: Clears(length=9), 2, 5) for _ in range(2)]
    both[0].start()
    for _ in range(4):
        both[0].step(np.ones((2, 2), np.float32))
    state = both[0].state()
    assert [actions.tolist() for actions in state["actions"]] == [[[1.0, 1.0]] * 4] * 2
    both[1].restore(state)
    assert not both[1].lost.any()


def test_the_final_observation_is_returned_and_the_next_episode_begins() -> None:
    environments = Environments(environment_maker("Terminating-v0"), 1, seed=0)
    environments.start()
    first = environments.observations[0, 0]
    steps = [environments.step(actions(1)) for _ in range(3)]
    assert [float(step.next_observations[0, 0, 1]) for step in steps] == [1, 2, 3]
    assert [bool(step.terminated[0, 0]) for step in steps] == [False, False, True]
    assert not any(step.truncated[0, 0] for step in steps)
    assert steps[2].next_observations[0, 0, 0] == first
    assert environments.observations[0, 1] == 0
    assert environments.observations[0, 0] != first


def test_a_time_limit_truncates_and_does_not_terminate() -> None:
    environments = Environments(environment_maker("Truncated-v0"), 1, seed=0)
    environments.start()
    steps = [environments.step(actions(1)) for _ in range(3)]
    assert [bool(step.truncated[0, 0]) for step in steps] == [False, False, True]
    assert not any(step.terminated[0, 0] for step in steps)
    assert steps[2].next_observations[0, 0, 1] == 3


def test_every_episode_of_every_environment_has_its_own_seed() -> None:
    def starts(seed: int) -> list[float]:
        environments = Environments(environment_maker("Terminating-v0"), 4, seed=seed)
        environments.start()
        found = []
        for _ in range(5):
            found += environments.observations[:, 0].tolist()
            for _ in range(3):
                environments.step(actions(4))
        return found

    assert starts(0) == starts(0)
    assert starts(0) != starts(1)
    assert len(set(starts(0))) > 15  # 20 draws from 1,000 numbers rarely coincide


def test_observations_of_a_step_are_not_overwritten_by_the_next() -> None:
    environments = Environments(environment_maker("Long-v0"), 2, seed=0)
    environments.start()
    kept = environments.step(actions(2))
    copies = kept.observations.copy(), kept.terminated.copy()
    for _ in range(39):
        environments.step(actions(2))
    np.testing.assert_array_equal(kept.observations, copies[0])
    np.testing.assert_array_equal(kept.terminated, copies[1])


@pytest.mark.parametrize("env", ["Long-v0", "Pendulum-v1", "Hopper-v5"])
def test_an_episode_in_progress_is_restored_exactly(env: str) -> None:
    random = np.random.default_rng(0)
    environments = Environments(environment_maker(env), 3, seed=4)
    environments.start()
    low, high = environments.action_space.low, environments.action_space.high
    draws = random.uniform(low, high, (130, 3, *low.shape)).astype(np.float32)
    for draw in draws[:90]:
        environments.step(draw)
    state = environments.state()
    expected = [environments.step(draw) for draw in draws[90:]]

    restored = Environments(environment_maker(env), 3, seed=4)
    restored.restore(state)
    assert not restored.lost.any()
    for draw, step in zip(draws[90:], expected, strict=True):
        again = restored.step(draw)
        np.testing.assert_array_equal(again.observations, step.observations)
        np.testing.assert_array_equal(again.rewards, step.rewards)


def test_an_irreproducible_environment_begins_a_fresh_episode() -> None:
    environments = Environments(environment_maker("Noisy-v0"), 2, seed=0)
    environments.start()
    for _ in range(5):
        environments.step(actions(2))
    restored = Environments(environment_maker("Noisy-v0"), 2, seed=0)
    restored.restore(environments.state())
    assert restored.lost.tolist() == [True, True]
    assert abs(restored.observations[0, 1]) < 4.9  # the step count is 0, plus noise
    assert restored.state()["episodes"] == [1, 1]
    for _ in range(50):  # the return and length count from the start of the fresh episode
        step = restored.step(actions(2))
    assert step.episodes == [FinishedEpisode(0, 50.0, 50), FinishedEpisode(1, 50.0, 50)]


def test_a_different_number_of_environments_begins_fresh_episodes() -> None:
    environments = Environments(environment_maker("Long-v0"), 2, seed=0)
    environments.start()
    environments.step(actions(2))
    more = Environments(environment_maker("Long-v0"), 3, seed=0)
    more.restore(environments.state())
    assert more.lost.tolist() == [True, True, True]
    assert more.state()["episodes"] == [1, 1, 1]
    assert more.observations[:, 1].tolist() == [0, 0, 0]


class Ramp(toys.Counting):
    """Lasts 2 to 4 steps, depending on its seed; step t has the reward t."""

    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        self.length = 2 + int(self.start) % 3
        return observation, info

    def step(self, action: np.ndarray) -> Any:
        observation, _, *rest = super().step(action)
        return observation, float(self.count), *rest


def test_finished_episodes_have_a_total_reward_and_a_length() -> None:
    environments = Environments(environment_maker(Ramp), 3, seed=0)
    environments.start()
    found: list[FinishedEpisode] = []
    for _ in range(20):
        step = environments.step(actions(3))
        ended = np.flatnonzero(step.ended[0])
        expected = [(index, step.next_observations[0, index, 1]) for index in ended]
        assert [(episode.environment, episode.length) for episode in step.episodes] == expected
        found += step.episodes
    assert {episode.length for episode in found} == {2, 3, 4}
    assert all(each.total_reward == each.length * (each.length + 1) / 2 for each in found)


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_restored_episode_is_counted_from_its_start(steps: int) -> None:
    both = [Environments(environment_maker(Ramp), 3, seed=0) for _ in range(2)]
    both[0].start()
    for _ in range(steps):
        both[0].step(actions(3))
    both[1].restore(both[0].state())
    for _ in range(6):
        one, other = (environments.step(actions(3)) for environments in both)
        assert one.episodes == other.episodes


@pytest.mark.parametrize("kept", [True, False])
def test_episodes_that_are_not_replayed_are_counted_from_their_fresh_start(kept: bool) -> None:
    before = Environments(environment_maker("Long-v0"), 2, seed=0, restorable=kept)
    before.start()
    for _ in range(30):
        before.step(actions(2))
    after = Environments(environment_maker("Long-v0"), 2, seed=0, restorable=not kept)
    after.restore(before.state())
    assert after.lost.all()
    steps = [after.step(actions(2)) for _ in range(40)]
    assert all(step.episodes == [] for step in steps[:-1])
    assert steps[-1].episodes == [FinishedEpisode(0, 40.0, 40), FinishedEpisode(1, 40.0, 40)]


def test_numbers_in_the_final_info_of_an_episode_are_returned() -> None:
    environments = Environments(environment_maker("Success-v0"), 2, seed=0)
    environments.start()
    steps = [environments.step(actions(2)) for _ in range(3)]
    assert [step.infos for step in steps[:2]] == [[], []]
    assert steps[2].infos == [{"is_success": 1.0, "distance": 3.0, "count": 3.0}] * 2


def test_infos_of_several_environments_may_differ_in_kind_and_shape() -> None:
    environments = Environments(environment_maker("Mixed-v0"), 3, seed=2)
    environments.start()
    for _ in range(3):
        step = environments.step(actions(3))
    starts = step.next_observations[0, :, 0]
    expected = [float(start) / 7 if start % 2 else int(start) for start in starts]
    assert len({type(value) for value in expected}) == 2
    assert [info["distance"] for info in step.infos] == expected
    assert {key for info in step.infos for key in info} == {"distance"}


class Fickle(toys.Counting):
    """Returns values that depend on the number of its resets, or unseeded random rewards.

    Args:
        shows: "observation" or "reward" shows the number of resets, "nowhere" hides it, and "draws"
            adds random rewards.
    """

    def __init__(self, shows: str) -> None:
        super().__init__(length=10)
        self.shows, self.resets = shows, 0

    def reset(self, **kwargs: Any) -> Any:
        observation, info = super().reset(**kwargs)
        self.resets += 1
        return self._seen(observation), info

    def step(self, action: np.ndarray) -> Any:
        observation, reward, *rest = super().step(action)
        reward += {"reward": self.resets, "draws": self.hidden.normal()}.get(self.shows, 0.0)
        return self._seen(observation), reward, *rest

    def _seen(self, observation: np.ndarray) -> np.ndarray:
        return observation + np.array([0, self.resets * (self.shows == "observation")])


@pytest.mark.parametrize(
    ("shows", "lost"), [("observation", [0]), ("reward", [0]), ("draws", [0]), ("nowhere", [])]
)
def test_an_inexactly_restored_episode_is_detected_if_the_difference_is_visible(
    shows: str, lost: list[int]
) -> None:
    make = environment_maker(Fickle, {"shows": shows})
    environments = Environments(make, 1, seed=0)
    environments.start()
    for _ in range(23):  # stops in the third episode
        environments.step(actions(1))
    restored = Environments(make, 1, seed=0)
    restored.restore(environments.state())
    assert restored.lost.nonzero()[0].tolist() == lost


def test_an_episode_whose_replay_fails_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    class Strict(toys.Counting):
        limit = 9

        def step(self, action: np.ndarray) -> Any:
            assert self.count < self.limit, "joint limit exceeded"
            return super().step(action)

    make = environment_maker(Strict, {"length": 9})
    environments = Environments(make, 1, seed=0)
    environments.start()
    for _ in range(3):
        environments.step(actions(1))
    Strict.limit = 2
    restored = Environments(make, 1, seed=0)
    restored.restore(environments.state())
    assert restored.lost.tolist() == [True]
    assert restored.observations[0, 1] == 0
    assert "while replaying an episode: environment 0, step 3" in caplog.text
    assert "joint limit exceeded" in caplog.text


@pytest.mark.parametrize("group_size", [0, 1])
def test_a_restored_environment_is_not_reset_again_when_another_one_is_lost(
    group_size: int,
) -> None:
    make = environment_maker(Fickle, {"shows": "observation"})
    environments = Environments(make, 2, seed=0, group_size=group_size)
    environments.start()
    environments.step(actions(2))
    state = environments.state()
    expected = state["observations"][1].copy()
    state["observations"] = state["observations"] + np.array([[1, 0], [0, 0]], np.float32)
    restored = Environments(make, 2, seed=0, group_size=group_size)
    restored.restore(state)
    assert restored.lost.tolist() == [True, False]
    np.testing.assert_array_equal(restored.observations[1], expected)
    assert [len(log) for log in restored.state()["actions"]] == [0, 1]
    environments.step(actions(2))
    restored.step(actions(2))
    np.testing.assert_array_equal(restored.observations[1], environments.observations[1])


@pytest.mark.parametrize("kept", [True, False])
def test_known_irreproducibility_is_saved_and_restored(kept: bool) -> None:
    make = environment_maker(Fickle, {"shows": "nowhere"})
    environments = Environments(make, 1, seed=0, repeats=False)
    environments.start()
    environments.step(actions(1))
    state = environments.state()
    restored = Environments(make, 1, seed=0, restorable=kept)
    restored.restore(state)
    assert restored.lost.any() != kept
    assert restored.repeats is False  # as saved, even if the episode was restored
    assert restored.state()["repeats"] is False
    del state["repeats"]  # simulates a state saved before this was known
    restored = Environments(make, 1, seed=0, restorable=kept)
    restored.restore(state)
    assert restored.repeats is (True if kept else None)
    assert restored.state().keys() == state.keys()


class Sized(toys.Counting):
    """Observes its difficulty. The space has another size for the difficulty 9."""

    opened = 0  # now, in this process

    def __init__(self, difficulty: int = 0) -> None:
        super().__init__()
        assert Sized.opened < 2
        Sized.opened += 1
        self.difficulty = difficulty
        if difficulty == 9:
            self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (5,))

    def _observation(self) -> np.ndarray:
        return np.array([self.difficulty, self.count])

    def close(self) -> None:
        Sized.opened -= 1


@pytest.fixture
def sized() -> Iterator[Callable[[], Environments]]:
    """Returns a function that creates two environments; only two may be open at a time."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(
            closing(Environments(environment_maker(Sized, {"difficulty": 1}), 2, 0, group_size=1))
        )
    assert Sized.opened == 0


def test_changed_arguments_take_effect_at_the_next_reset(
    sized: Callable[[], Environments],
) -> None:
    environments = sized()
    environments.start()
    environments.step(actions(2))
    assert "kwargs" not in environments.state()
    environments.kwargs = '{"difficulty": 2}'
    found = [environments.step(actions(2)) for _ in range(2)]
    assert [part.observations[1, :, 0].tolist() for part in found] == [[1, 1], [2, 2]]
    assert found[1].last[:, 0].tolist() == [1, 1]
    assert found[1].recreated == [(n, '{"difficulty": 2}', "") for n in range(2)]
    environments.kwargs = '{"difficulty": 3}'
    environments.step(actions(2))
    state = environments.state()
    assert state["kwargs"] == ['{"difficulty": 2}'] * 2 + ['{"difficulty": 3}'] * 2
    environments.close()

    restored = sized()
    restored.restore(state)
    assert not restored.lost.any()
    assert restored.observations.tolist() == [[2, 1]] * 2
    after = [restored.step(actions(2)) for _ in range(2)][-1]
    assert after.observations[1].tolist() == [[3, 0]] * 2


def test_environments_that_cannot_be_created_keep_their_arguments(
    sized: Callable[[], Environments],
) -> None:
    environments = sized()
    environments.start()
    for kwargs, told in [
        ('{"difficulty": 9}', "with {'difficulty': 9}, spaces must stay"),
        ('{"speed": 1}', "cannot be created with {'difficulty': 1, 'speed': 1}: TypeError"),
    ]:
        environments.kwargs = kwargs
        after = [environments.step(actions(2)) for _ in range(3)][-1]
        assert [found[:2] for found in after.recreated] == [(0, "{}"), (1, "{}")]
        assert all(told in found[2] for found in after.recreated)
        assert after.observations[1].tolist() == [[1, 0]] * 2
        assert environments.kwargs == "{}"
    assert "kwargs" not in environments.state()


def test_a_state_with_invalid_arguments_is_rejected(sized: Callable[[], Environments]) -> None:
    environments = sized()
    environments.start()
    with pytest.raises(ValueError, match=r"must be a JSON object; got \[1\]"):
        environments.restore(environments.state() | {"kwargs": ["[1]"] * 4})


def test_lost_episodes_begin_with_the_newest_arguments(
    sized: Callable[[], Environments],
) -> None:
    environments = sized()
    environments.start()
    environments.step(actions(2))
    environments.kwargs = '{"difficulty": 2}'
    environments.step(actions(2))
    state = environments.state()
    environments.close()
    restored = sized()
    restored.restore(state | {"observations": np.zeros((2, 2), np.float32)})
    assert restored.lost.all()
    assert restored.observations.tolist() == [[2, 0]] * 2


@pytest.mark.parametrize("replays", [True, False])
def test_lost_episodes_keep_their_arguments_if_the_newest_are_rejected(
    replays: bool, sized: Callable[[], Environments]
) -> None:
    environments = sized()
    environments.start()
    environments.kwargs = '{"difficulty": 9}'
    environments.step(actions(2))
    state = environments.state() | {"restorable": replays}
    environments.close()
    restored = sized()
    restored.restore(state | {"observations": np.zeros((2, 2), np.float32)})
    assert restored.lost.all()
    assert "set_env_kwargs are rejected: with {'difficulty': 9}, spaces" in restored.why_lost
    assert restored.observations.tolist() == [[1, 0]] * 2
    assert "kwargs" not in restored.state()


def test_all_environments_return_to_the_arguments_that_the_first_rejecting_one_keeps(
    sized: Callable[[], Environments],
) -> None:
    environments = sized()
    environments.start()
    state = environments.state() | {"kwargs": ['{"difficulty": 2}', "{}", "{}", "{}"]}
    environments.restore(state | {"observations": np.array([[2, 0], [1, 0]], np.float32)})
    assert not environments.lost.any()
    environments.kwargs = '{"difficulty": 9}'
    found = [environments.step(actions(2)) for _ in range(3)][-1]
    assert [kept for _, kept, _ in found.recreated] == ['{"difficulty": 2}', "{}"]
    assert environments.kwargs == '{"difficulty": 2}'  # as the error message says
