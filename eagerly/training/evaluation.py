"""Evaluates policies on complete episodes, in a separate environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from threadpoolctl import threadpool_limits

from eagerly.environments.values import EXECUTED, numeric_items
from eagerly.seeding import Stream, seed_word
from eagerly.spaces import first_not_finite
from eagerly.storage.evaluations import AT_LIMIT, SUCCESS


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of E evaluation episodes.

    Attributes:
        returns: Undiscounted episode returns, `[E]`.
        lengths: Episode lengths in steps, `[E]`.
        infos: The numbers in `info` at the end of each episode, such as `is_success`.
        others: Evaluations of the agent's other policies with the same seeds, by name.
        at_limit: How many episodes were cut off at the step limit.

    Raises:
        ValueError: If a name is not an identifier, or is "info", which the curves already use.
    """

    returns: np.ndarray
    lengths: np.ndarray
    infos: list[dict[str, float]] = field(default_factory=list)
    others: Mapping[str, Evaluation] = field(default_factory=dict)
    at_limit: int = 0

    def __post_init__(self) -> None:
        for name in self.others:
            if not name.isidentifier() or name == "info":
                raise ValueError(
                    "the name of an evaluated policy must be an identifier other than 'info'; "
                    f"got {name!r}"
                )

    def summary(self) -> dict[str, float]:
        """Returns the mean, standard deviation, minimum and maximum return, and the mean length.

        Statistics are over episodes. The success rate is included if `info` reports success.
        """
        return {
            "return_mean": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "return_min": float(self.returns.min()),
            "return_max": float(self.returns.max()),
            "length_mean": float(self.lengths.mean()),
        } | ({} if self.success_rate is None else {SUCCESS: self.success_rate})

    @property
    def success_rate(self) -> float | None:
        """The fraction of successful episodes; None if `info` does not report success.

        It is read from `is_success` (gymnasium_robotics' arms) or `success` (its mazes).
        """
        for name in ("is_success", "success"):
            found = [info[name] for info in self.infos if name in info]
            if found and len(found) == len(self.returns):
                return float(np.mean(np.array(found) > 0))
        return None

    def columns(self) -> dict[str, float]:
        """Returns `summary` and `at_limit`, and those of `others` with their name as a prefix."""
        return {**self.summary(), AT_LIMIT: self.at_limit} | {
            f"{name}_{figure}": value
            for name, other in self.others.items()
            for figure, value in other.columns().items()
        }

    def row(self, steps: int, updates: int) -> dict[str, float]:
        """Returns the row of this evaluation in `evaluations.csv`.

        Args:
            steps: Environment steps at the time of the evaluation.
            updates: Updates at that time; 0 if the evaluated policy has had none.
        """
        counts = {"steps": steps, "updates": updates, "episodes": len(self.returns)}
        return counts | self.columns()

    def info_means(self) -> dict[str, float]:
        """Returns the mean of each number in `infos`, over the episodes that report it."""
        names = sorted({name for info in self.infos for name in info})
        return {n: float(np.mean([info[n] for info in self.infos if n in info])) for n in names}


def evaluation_seeds(seed: int, episodes: int) -> list[int]:
    """Returns the reset seeds of evaluation episodes; each depends only on `seed` and its index."""
    return [seed_word(seed, Stream.EVALUATION, episode) for episode in range(episodes)]


def episodes_at_limit(evaluation: Evaluation, steps_limit: int) -> str:
    """Returns the warning about episodes that were cut off at the step limit."""
    return (
        f"{evaluation.at_limit} of {len(evaluation.returns)} evaluation episodes were cut off "
        f"after {steps_limit} steps: give the environment a time limit, or raise the step limit "
        "(--evaluation-steps-limit, or --steps-limit of evaluate)"
    )


def single_blas_thread() -> threadpool_limits:
    """Returns a context that limits NumPy's matrix products to one thread.

    The matrix products of a policy are too small to benefit from more threads. With a fixed thread
    count, a policy's actions are the same, bit for bit, in every process.
    """
    return threadpool_limits(1, user_api="blas")


Act = Callable[..., Any]


@runtime_checkable
class PlaysEpisodes(Protocol):
    """A policy that may be recurrent: it needs episode starts and rewards."""

    def start_episode(self) -> Act:
        """Returns a function that acts in one episode.

        Its arguments are an observation and the reward that accompanied it, None at the start. If
        `info` holds an "action_mask" or, after a step, an "executed_action", these are passed as
        keyword arguments.
        """


@runtime_checkable
class ReadsParts(Protocol):
    """A policy that reads only certain parts of an observation, such as `Policy`."""

    def parts(self, observation: Any) -> Mapping[str, Any]:
        """Returns the parts of an observation that the policy reads, by path."""


PolicyLike = Callable[[np.ndarray], np.ndarray] | PlaysEpisodes


def run_episodes(
    policy: PolicyLike,
    env: gymnasium.Env[Any, Any],
    seeds: list[int],
    *,
    steps_limit: int | None = None,
    watch: Callable[[], object] | None = None,
    begin: Callable[[int], object] | None = None,
) -> Evaluation:
    """Runs one episode per seed, sequentially.

    Args:
        policy: Maps an observation `[O]` to an action `[A]` in the environment's units, or has
            `start_episode`, which returns such a function, as in `Policy`.
        env: The environment, which nothing else may step. All numbers in its observations must be
            finite, except in entries that a `Policy` ignores.
        seeds: Reset seeds.
        steps_limit: Maximum steps per episode; None: no limit.
        watch: Called after every reset and step.
        begin: Called before every episode with its index, starting at 0.

    Raises:
        ValueError: If the policy rejects an observation or a mask.
        FloatingPointError: If an observation or reward is NaN or infinite.
    """
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    infos, at_limit = [], 0
    with single_blas_thread():
        for episode, seed in enumerate(seeds):
            if begin:
                begin(episode)
            returns[episode], lengths[episode], info, ended = _episode(
                policy, env, seed, steps_limit, watch
            )
            infos.append(info)
            at_limit += not ended
            if not np.isfinite(returns[episode]):
                raise FloatingPointError(
                    f"the return of evaluation episode {episode} must be finite; got "
                    f"{returns[episode]}"
                )
    return Evaluation(returns, lengths, infos, at_limit=at_limit)


def _episode(
    policy: PolicyLike,
    env: gymnasium.Env[Any, Any],
    seed: int,
    steps_limit: int | None,
    watch: Callable[[], object] | None,
) -> tuple[float, int, dict[str, float], bool]:
    """Runs an episode; returns its return, length, last `info` numbers, and whether it ended."""
    # Parts that the policy does not read are not validated.
    act, parts = _acting(policy), policy.parts if isinstance(policy, ReadsParts) else _whole
    observation, info = env.reset(seed=seed)
    total, length, ended = 0.0, 0, False
    reward: Any = None
    told = _entries(info, "action_mask")
    while not ended and length != steps_limit:
        if watch:
            watch()
        try:
            if found := first_not_finite(parts(observation)):
                raise FloatingPointError(
                    f"observation must be finite in float32; got {found} in step {length} of an "
                    "evaluation episode"
                )
            action = act(observation, reward, **told)
        except ValueError as error:
            raise ValueError(f"step {length} of an evaluation episode: {error}") from error
        observation, reward, terminated, truncated, info = env.step(action)
        told = _entries(info, "action_mask", EXECUTED)
        total += float(reward)
        length += 1
        ended = terminated or truncated
    if watch:
        watch()
    return total, length, numeric_items(info), bool(ended)


def _entries(info: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: info[name] for name in names if name in info}


def _whole(observation: Any) -> Any:
    return observation


def _acting(policy: PolicyLike) -> Act:
    if isinstance(policy, PlaysEpisodes):
        return policy.start_episode()
    return lambda observation, reward, **more: policy(observation)
