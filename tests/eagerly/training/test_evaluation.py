"""Evaluation: fixed episodes, deterministic policy, clear errors."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.environments.factory import environment_maker
from eagerly.policies.policy import Policy
from eagerly.scripts.evaluate import _print
from eagerly.spaces import Actions, Observations
from eagerly.storage.evaluations import format_return
from eagerly.training.callbacks import _described
from eagerly.training.evaluation import Evaluation, evaluation_seeds, run_episodes
from tests import toys

toys.register()


def still(observation: np.ndarray) -> np.ndarray:
    return np.zeros(2, np.float32)


def test_returns_and_lengths_are_those_of_whole_episodes() -> None:
    evaluation = run_episodes(still, environment_maker("Terminating-v0")(), evaluation_seeds(0, 4))
    assert evaluation.returns.tolist() == [3, 3, 3, 3]
    assert evaluation.lengths.tolist() == [3, 3, 3, 3]
    summary = evaluation.summary()
    assert (summary["return_mean"], summary["return_std"], summary["length_mean"]) == (3, 0, 3)


def test_evaluation_episodes_are_reproducible_and_more_episodes_keep_the_first_seeds() -> None:
    assert evaluation_seeds(0, 3) == evaluation_seeds(0, 5)[:3]
    assert len({*evaluation_seeds(0, 5), *evaluation_seeds(1, 5)}) == 10

    def one(observation: np.ndarray) -> np.ndarray:
        return np.zeros(1, np.float32)

    env = environment_maker("Pendulum-v1")()
    first = run_episodes(one, env, evaluation_seeds(0, 3)).returns
    env.step(np.zeros(1, np.float32))  # a step in between must have no effect
    np.testing.assert_array_equal(run_episodes(one, env, evaluation_seeds(0, 3)).returns, first)


def test_the_policy_receives_observations_in_the_environments_units() -> None:
    seen = []

    def policy(observation: np.ndarray) -> np.ndarray:
        seen.append((observation.shape, observation.dtype))
        return np.array([-1.0, 4.0], np.float32)

    run_episodes(policy, environment_maker("Terminating-v0")(), [0])
    assert set(seen) == {((2,), np.dtype(np.float64))}


def test_final_infos_are_averaged_over_the_episodes_that_report_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evaluation = run_episodes(still, environment_maker("Success-v0")(), [0, 1])
    assert evaluation.infos == [{"is_success": 1.0, "distance": 3.0, "count": 3.0}] * 2
    evaluation.infos[1].pop("count")
    evaluation.infos[1]["distance"] = 5.0
    assert evaluation.info_means() == {"is_success": 1.0, "distance": 4.0, "count": 3.0}
    _print(evaluation, 5, {"which": "best", "run_dir": "x", "env": "Success-v0"})
    printed = capsys.readouterr().out
    assert "mean count at episode end: 3, in 1 of 2 episodes\n" in printed
    assert "mean distance at episode end: 4\n" in printed


def test_returns_are_formatted_with_significant_digits() -> None:
    shown = [format_return(value) for value in (6872.3115, -152.85, 99.9, -0.3874, 0.0, 12345678.9)]
    assert shown == ["6872.3", "-152.8", "99.9", "-0.3874", "0", "12345678.9"]


def test_a_recurrent_policy_receives_the_action_that_a_safety_layer_executed() -> None:
    class Safe(toys.Counting):
        def step(self, action: np.ndarray) -> Any:
            return *super().step(action)[:4], {"executed_action": np.full(2, 0.25, np.float32)}

    class Memory:
        action_size = 2

        def initial_state(self, count: int) -> list[np.ndarray]:
            return []

        def step(self, rows: np.ndarray, actions: np.ndarray, *_: Any) -> Any:
            seen.append(actions[0].tolist())
            return np.ones((1, 2), np.float32), []

    seen: list[Any] = []
    env = Safe(length=3)
    layout = Observations(env.observation_space), Actions(env.action_space)
    run_episodes(Policy(Memory(), *layout, steps=0), env, [0])
    executed = layout[1].from_environment(np.full(2, 0.25, np.float32)).tolist()
    assert seen == [[0.0, 0.0], executed, executed]


def test_watch_is_called_after_every_reset_and_step() -> None:
    count = []
    run_episodes(
        still, environment_maker("Terminating-v0")(), [0, 1], watch=lambda: count.append(1)
    )
    assert len(count) == 2 * (1 + 3)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("NanReward-v0", "return of evaluation episode 14 must be finite; got nan"),
        ("InfObservation-v0", r"finite in float32; got inf at index \d in step \d+ of an eval"),
    ],
)
def test_values_that_are_not_finite_are_named(env: str, message: str) -> None:
    with pytest.raises(FloatingPointError, match=message):
        run_episodes(still, environment_maker(env)(), list(range(30)))


def test_an_observation_may_be_a_list_if_its_space_is_a_tuple() -> None:
    class Listing(gymnasium.Env):
        observation_space = gymnasium.spaces.Tuple(
            [gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(3)]
        )
        action_space = gymnasium.spaces.Box(-1, 1, (1,))

        def reset(self, **_: Any) -> Any:
            return [np.zeros(2, np.float32), 1], {}

        def step(self, action: Any) -> Any:
            return [np.zeros(2, np.float32), 1], 1.0, True, False, {}

    assert run_episodes(still, Listing(), [0, 1]).returns.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("infos", "rate"),
    [
        ([{"is_success": 1.0}, {"is_success": 0.0}], 0.5),
        ([{"success": 1.0, "is_success": 0.0}, {"success": 1.0, "is_success": 0.0}], 0.0),
        ([{"success": 1.0, "is_success": 0.0}, {"success": 1.0}], 1.0),
        ([{"is_success": 1.0}, {}], None),  # the second episode reports no success
        ([{}, {}], None),
    ],
)
def test_the_success_rate_requires_every_episode_to_report_it(
    infos: list[dict[str, float]], rate: float | None
) -> None:
    evaluation = Evaluation(np.zeros(2), np.ones(2, np.int64), infos)
    assert evaluation.summary().get("success_rate") == rate


def test_the_success_rate_is_printed_next_to_the_return() -> None:
    evaluation = Evaluation(np.zeros(4), np.ones(4, np.int64), [{"is_success": 1.0}] * 4)
    assert _described(evaluation, False, 1) == "evaluation 0 ± 0, success 100%"
    assert _described(evaluation, False, 0).endswith("100% (before the first update)")
