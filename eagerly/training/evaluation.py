"""Evaluation: whole episodes with the deterministic policy, in an environment of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from threadpoolctl import threadpool_limits

from eagerly.environments.values import numeric_items
from eagerly.errors import RunError
from eagerly.seeding import Stream, seed_word
from eagerly.storage.evaluations import AT_LIMIT, SUCCESS


class InterruptedEvaluationError(Exception):
    """Raised by `watch` to end an evaluation or a video between two steps."""


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of E evaluation episodes.

    Attributes:
        returns: `[E]`.
        lengths: `[E]`.
        infos: The numbers in `info` at the end of each episode, such as `is_success`.
        others: Evaluations of the agent's other policies, by name, from the same seeds.
        at_limit: How many episodes were ended at the limit of steps.

    Raises:
        ValueError: If a name is no identifier, or "info", which curves have.
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
        """Returns mean, standard deviation (over episodes), least and greatest return, length.

        And the rate of success, if `info` says it.
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
        """The share of episodes that ended with success; None if `info` does not say it.

        `is_success` says it, as in gymnasium_robotics' arms, or `success`, as in its mazes.
        """
        for name in ("is_success", "success"):
            found = [info[name] for info in self.infos if name in info]
            if found and len(found) == len(self.returns):
                return float(np.mean(np.array(found) > 0))
        return None

    def columns(self) -> dict[str, float]:
        """Returns `summary` and `at_limit`; those of `others` have their name and "_" in front."""
        return {**self.summary(), AT_LIMIT: self.at_limit} | {
            f"{name}_{figure}": value
            for name, other in self.others.items()
            for figure, value in other.columns().items()
        }

    def row(self, steps: int, updates: int) -> dict[str, float]:
        """Returns what `evaluations.csv` keeps of it.

        Args:
            steps: Environment steps at which it was made.
            updates: Updates at which it was made, 0 while the policy has had none.
        """
        counts = {"steps": steps, "updates": updates, "episodes": len(self.returns)}
        return counts | self.columns()

    def info_means(self) -> dict[str, float]:
        """Returns the mean of each number in `infos`, over the episodes that have it."""
        names = sorted({name for info in self.infos for name in info})
        return {n: float(np.mean([info[n] for info in self.infos if n in info])) for n in names}


def evaluation_seeds(seed: int, episodes: int) -> list[int]:
    """Derives the reset seeds of evaluation episodes; more episodes keep the first ones' seeds."""
    return [seed_word(seed, Stream.EVALUATION, episode) for episode in range(episodes)]


def episodes_at_limit(evaluation: Evaluation, steps_limit: int) -> str:
    """Returns the warning about episodes that were ended at the limit of steps."""
    return (
        f"{evaluation.at_limit} of {len(evaluation.returns)} evaluation episodes did not end "
        f"within {steps_limit} steps and were ended there: give the environment a time limit, or "
        "raise the limit of steps (--evaluation-steps-limit, or --steps-limit of evaluate)"
    )


def single_blas_thread() -> threadpool_limits:
    """Holds NumPy's products to one thread while entered.

    Acting is too small to be shared, and with a fixed count a policy gives the same bits
    wherever it is run.
    """
    return threadpool_limits(1, user_api="blas")


Act = Callable[..., Any]


@runtime_checkable
class PlaysEpisodes(Protocol):
    """A policy that may remember: it is told where an episode begins, and of rewards."""

    def start_episode(self) -> Act:
        """Returns what acts in one episode.

        It is called with an observation and the reward that came with it, None at first; where
        `info` holds an "action_mask", with that as a keyword, too.
        """


@runtime_checkable
class ReadsParts(Protocol):
    """A policy that says what it reads of an observation, such as `Policy`."""

    def parts(self, observation: Any) -> list[Any]:
        """Returns the parts of an observation that it reads."""


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
    """Runs one episode per seed, one after the other.

    Args:
        policy: Maps an observation `[O]` to an action `[A]` in the environment's units, or begins
            an episode that does, such as `Policy`.
        env: An environment that nothing else steps. All numbers in its observations must be finite;
            those in entries that a `Policy` ignores need not be.
        seeds: Reset seeds.
        steps_limit: Steps at which an episode that has not ended is ended; None: no limit.
        watch: Called after every reset and step.
        begin: Called before every episode with its number, from 0 on.

    Raises:
        ValueError: If the policy refuses an observation or a mask.
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
                    f"the return of evaluation episode {episode} became {returns[episode]}"
                )
    return Evaluation(returns, lengths, infos, at_limit=at_limit)


def evaluate_all(
    policies: Mapping[str, PolicyLike],
    env: gymnasium.Env[Any, Any],
    seeds: list[int],
    **more: Any,
) -> Evaluation:
    """Evaluates policies one after the other, from the same seeds.

    Args:
        policies: The first one's evaluation is returned, with the `others` by name.
        env: As `evaluate` takes it.
        seeds: As well.
        **more: As well.

    Raises:
        RunError: If a policy refuses what the environment gave, or its name is none.
        FloatingPointError: As `evaluate` does.
    """
    try:
        first, *others = (
            (name, run_episodes(each, env, seeds, **more)) for name, each in policies.items()
        )
        return dataclasses.replace(first[1], others=dict(others))
    except ValueError as error:
        raise RunError(str(error)) from error


def _episode(
    policy: PolicyLike,
    env: gymnasium.Env[Any, Any],
    seed: int,
    steps_limit: int | None,
    watch: Callable[[], object] | None,
) -> tuple[float, int, dict[str, float], bool]:
    """Plays an episode; returns its return, length and last numbers, and whether it ended."""
    # What it does not read may be anything.
    act, parts = _acting(policy), policy.parts if isinstance(policy, ReadsParts) else _whole
    observation, info = env.reset(seed=seed)
    total, length, ended = 0.0, 0, False
    reward: Any = None
    while not ended and length != steps_limit:
        if watch:
            watch()
        masked = {"action_mask": info["action_mask"]} if "action_mask" in info else {}
        try:
            if not _is_finite(parts(observation)):
                raise FloatingPointError(
                    f"observation must be finite in float32; step {length} of an evaluation "
                    f"episode gave {observation}"
                )
            action = act(observation, reward, **masked)
        except ValueError as error:
            raise ValueError(f"step {length} of an evaluation episode: {error}") from error
        observation, reward, terminated, truncated, info = env.step(action)
        total += float(reward)
        length += 1
        ended = terminated or truncated
    if watch:
        watch()
    return total, length, numeric_items(info), bool(ended)


def _is_finite(observation: Any) -> bool:
    if isinstance(observation, Mapping):
        return all(map(_is_finite, observation.values()))
    if isinstance(observation, tuple | list):
        return all(map(_is_finite, observation))
    array = np.asarray(observation)
    if array.dtype.kind in "US":  # a text, of which a function of the user may make something
        return True
    return bool(np.isfinite(np.asarray(array, np.float32)).all())


def _whole(observation: Any) -> Any:
    return observation


def _acting(policy: PolicyLike) -> Act:
    if isinstance(policy, PlaysEpisodes):
        return policy.start_episode()
    return lambda observation, reward, **masked: policy(observation)
