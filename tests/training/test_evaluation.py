"""Evaluation: fixed episodes, deterministic policy, clear errors."""

from __future__ import annotations

import numpy as np
import pytest

from eagerly.training.environments import make_environment
from eagerly.training.evaluation import evaluate, evaluation_seeds


def still(observations: np.ndarray) -> np.ndarray:
    return np.zeros((len(observations), 2), np.float32)


def test_returns_and_lengths_are_those_of_whole_episodes() -> None:
    evaluation = evaluate(still, make_environment("Terminating-v0"), evaluation_seeds(0, 4))
    assert evaluation.returns.tolist() == [3, 3, 3, 3]
    assert evaluation.lengths.tolist() == [3, 3, 3, 3]
    summary = evaluation.summary()
    assert (summary["return_mean"], summary["return_std"], summary["length_mean"]) == (3, 0, 3)


def test_the_episodes_are_the_same_each_time_and_more_keep_the_first() -> None:
    assert evaluation_seeds(0, 3) == evaluation_seeds(0, 5)[:3]
    assert len({*evaluation_seeds(0, 5), *evaluation_seeds(1, 5)}) == 10

    def one(observations: np.ndarray) -> np.ndarray:
        return np.zeros((1, 1), np.float32)

    env = make_environment("Pendulum-v1")
    first = evaluate(one, env, evaluation_seeds(0, 3)).returns
    env.step(np.zeros(1, np.float32))  # whatever was done in between
    np.testing.assert_array_equal(evaluate(one, env, evaluation_seeds(0, 3)).returns, first)


def test_the_policy_sees_float32_rows_and_speaks_normalised_actions() -> None:
    seen = []

    def policy(observations: np.ndarray) -> np.ndarray:
        seen.append((observations.shape, observations.dtype))
        return np.array([[-1.0, 1.0]], np.float32)  # (-1, 4) in the environment's units

    evaluate(policy, make_environment("Terminating-v0"), [0])
    assert set(seen) == {((1, 2), np.dtype(np.float32))}


@pytest.mark.parametrize(
    ("env", "message"),
    [("NanReward-v0", "return of evaluation episode 14 became nan"), ("InfObservation-v0", "gave")],
)
def test_what_is_not_finite_is_named(env: str, message: str) -> None:
    with pytest.raises(FloatingPointError, match=message):
        evaluate(still, make_environment(env), list(range(30)))
