"""Evaluation: whole episodes with the deterministic policy, in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from threadpoolctl import threadpool_limits

from eagerly.buffers import Stream, seed_word
from eagerly.networks.spaces import ActionBounds


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths `[E]` of E whole episodes."""

    returns: np.ndarray
    lengths: np.ndarray

    def summary(self) -> dict[str, float]:
        """Returns mean, standard deviation (over episodes), least and greatest return, length."""
        return {
            "return_mean": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "return_min": float(self.returns.min()),
            "return_max": float(self.returns.max()),
            "length_mean": float(self.lengths.mean()),
        }


def evaluation_seeds(seed: int, episodes: int) -> list[int]:
    """Derives the reset seeds of evaluation episodes; more episodes keep the first ones' seeds."""
    return [seed_word(seed, Stream.EVALUATION, episode) for episode in range(episodes)]


def single_blas_thread() -> threadpool_limits:
    """Holds NumPy's products to one thread while entered.

    Acting is too small to be shared, and with a fixed count a policy gives the same bits
    wherever it is run.
    """
    return threadpool_limits(1, user_api="blas")


def evaluate(
    policy: Callable[[np.ndarray], np.ndarray],
    env: gymnasium.Env[Any, Any],
    seeds: list[int],
) -> Evaluation:
    """Runs one episode per seed, one after the other.

    Args:
        policy: Maps observations `[1, O]` to actions `[1, A]` in [-1, 1].
        env: An environment that nothing else steps.
        seeds: Reset seeds.

    Raises:
        FloatingPointError: If an observation or reward is NaN or infinite.
    """
    bounds = ActionBounds(env.action_space)
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    with single_blas_thread():
        for episode, seed in enumerate(seeds):
            returns[episode], lengths[episode] = _episode(policy, env, bounds, seed)
            if not np.isfinite(returns[episode]):
                raise FloatingPointError(
                    f"the return of evaluation episode {episode} became {returns[episode]}"
                )
    return Evaluation(returns, lengths)


def _episode(
    policy: Callable[[np.ndarray], np.ndarray],
    env: gymnasium.Env[Any, Any],
    bounds: ActionBounds,
    seed: int,
) -> tuple[float, int]:
    observation, _ = env.reset(seed=seed)
    total, length, ended = 0.0, 0, False
    while not ended:
        row = np.asarray(observation, np.float32)[np.newaxis]
        if not np.isfinite(row).all():
            raise FloatingPointError(
                f"observation must be finite in float32; step {length} of an evaluation episode "
                f"gave {observation}"
            )
        action = bounds.to_environment(policy(row))[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        length += 1
        ended = terminated or truncated
    return total, length
