"""Public functions: train and resume runs, and evaluate policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium

from eagerly.agents.agent import Agent
from eagerly.environments.factory import environment_maker
from eagerly.policies.policy import Policy
from eagerly.storage.checkpoint_reader import resumable_checkpoint
from eagerly.storage.loading import policy_of
from eagerly.storage.run import Run, open_run
from eagerly.training.callbacks import Callback
from eagerly.training.evaluation import Evaluation, PolicyLike, evaluation_seeds, run_episodes
from eagerly.training.trainer import Trainer

Environment = str | Callable[..., gymnasium.Env[Any, Any]]


@dataclass(frozen=True)
class Result:
    """The state of a run at the end of `train` or `resume`.

    Attributes:
        run: The run; `run.path` is its directory.
        steps: Environment steps, summed over all environments.
        updates: Gradient updates.
        best_return: Mean return of the best evaluation since the first update and the last
            override; None if there is no such evaluation.
        score: Mean return of the last 3 of these evaluations; None if there are none.
        reason: Why training ended: "steps", "stop_at_return", or the reason that a callback gave.
    """

    run: Run
    steps: int
    updates: int
    best_return: float | None
    score: float | None
    reason: str

    @cached_property
    def policy(self) -> Policy:
        """The best policy, or the latest one with a warning if there is no best one yet.

        Raises:
            RunError: If the run has no checkpoint.
        """
        return policy_of(self.run, None)


def train(
    agent: str | type[Agent],
    env: Environment,
    *,
    run_dir: str | Path | None = None,
    callbacks: Iterable[Callback] = (),
    override: bool = False,
    trust: bool = False,
    **settings: Any,
) -> Result:
    """Trains an agent, or resumes the run in the directory.

    On SIGINT, SIGTERM or SIGHUP, the run is saved before the signal is raised again. Calling
    `train` with the same arguments then resumes the run.

    Args:
        agent: "td3", "td3_bc", "td7", "ddpg", or a custom algorithm as "module:Class" or its class.
        env: A Gymnasium id, "package:id", or a class or function that returns a new environment on
            every call. Instances are not accepted, because a run creates several environments, some
            in other processes or when it is resumed.
        run_dir: The run directory; None creates one under `runs/`.
        callbacks: Called during training, for example `ProgressBar()`.
        override: Whether a resumed run accepts settings that differ from the saved ones.
        trust: Whether to apply all settings saved in the directory, such as names of modules to
            import, even if another user created it.
        **settings: Settings by name, such as `steps=200_000` or `n_step=3`, and `preset`.

    Raises:
        RunError: If a setting is unknown or invalid, the directory holds no matching run, or
            training fails. Everything up to the newest checkpoint is kept.
        KeyboardInterrupt: After SIGINT, and as its subclass `Terminated` after SIGTERM or SIGHUP.
    """
    given = {"env": env, **settings}
    return _trained(open_run(run_dir, agent, given, override=override, trust=trust), callbacks)


def resume(
    run_dir: str | Path,
    *,
    callbacks: Iterable[Callback] = (),
    override: bool = False,
    trust: bool = False,
    **settings: Any,
) -> Result:
    """Resumes a run with its saved settings. A finished run is returned unchanged.

    Args:
        run_dir: The run directory.
        callbacks: As in `train`.
        override: As in `train`.
        trust: As in `train`.
        **settings: Settings to change, such as a larger `steps`. Settings that can affect the
            result need `override`.

    Raises:
        RunError: As in `train`.
        KeyboardInterrupt: As in `train`.
    """
    return _trained(open_run(run_dir, None, settings, override=override, trust=trust), callbacks)


def _trained(run: Run, callbacks: Iterable[Callback]) -> Result:
    try:
        newest, reached = resumable_checkpoint(run)
        if newest and reached:
            steps, updates, reason = newest.manifest.steps, newest.manifest.updates, reached[0]
        else:
            with Trainer(run, callbacks, newest=newest) as trainer:
                trainer.train()
                steps, updates, reason = trainer.steps, trainer.updates, trainer.stop_reason
    finally:
        run.unlock()
    results = run.results()
    return Result(run, steps, updates, results.best_return, results.score, reason)


def evaluate(
    policy: PolicyLike | Agent,
    env: Environment | gymnasium.Env[Any, Any],
    episodes: int = 10,
    seed: int = 0,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    wrapper: Sequence[str | Callable[..., gymnasium.Env[Any, Any]]] = (),
    steps_limit: int | None = None,
) -> Evaluation:
    """Runs whole episodes with a policy, without exploration noise.

    The environment is reset with seeds derived from `seed`. The evaluations of a run whose
    `evaluation_seed` has the same value use the same seeds.

    Args:
        policy: A `Policy`, an agent, or a function from an observation `[O]` to an action `[A]` in
            the environment's units.
        env: A Gymnasium id, "package:id", a class or function that returns an environment, or an
            environment instance, which is left open.
        episodes: Number of episodes, at least 1.
        seed: Seed of the episodes, at least 0.
        env_kwargs: Keyword arguments for creating the environment; not allowed with an instance.
        wrapper: Wrappers of the environment, as in the setting `wrapper`; not allowed with an
            instance.
        steps_limit: Maximum number of steps per episode, at least 1; None for no limit.

    Raises:
        RunError: If the environment does not exist.
        TypeError: If the policy is not callable.
        ValueError: If an argument is out of range, or the policy does not fit the environment.
        FloatingPointError: If an observation, an action or a return is NaN or infinite.
    """
    if episodes < 1 or seed < 0:
        raise ValueError(f"episodes must be at least 1 and seed at least 0; got {episodes}, {seed}")
    if steps_limit is not None and steps_limit < 1:
        raise ValueError(f"steps_limit must be at least 1 or None; got {steps_limit}")
    if isinstance(policy, Agent):
        policy = policy.as_policy()
    if not callable(policy):
        raise TypeError(
            "policy must be a Policy, an agent or a function from observations to actions; got "
            f"{policy!r}: load the policy of a run with eagerly.load_policy(run_dir)"
        )
    seeds = evaluation_seeds(seed, episodes)
    if isinstance(env, gymnasium.Env):
        if env_kwargs or wrapper:
            name = "env_kwargs" if env_kwargs else "wrapper"
            raise ValueError(f"{name} requires an id or a factory as env; got an instance")
        return run_episodes(policy, env, seeds, steps_limit=steps_limit)
    make = environment_maker(env, env_kwargs, wrappers=wrapper, is_evaluation=True)
    with closing(make()) as made:
        return run_episodes(policy, made, seeds, steps_limit=steps_limit)
