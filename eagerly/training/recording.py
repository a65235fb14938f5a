"""Records episodes of a policy, with Gaussian noise, as logged data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from eagerly.datasets.minari import MinariWriter
from eagerly.environments.values import EXECUTED
from eagerly.errors import RunError, UsageError
from eagerly.policies.policy import Policy
from eagerly.seeding import Stream, seed_sequence, seed_word
from eagerly.spaces import Actions, Observations
from eagerly.training.evaluation import Evaluation, run_episodes

_NOISE = 2  # first key of this noise in `Stream.EXPLORATION`; the keys of `Exploration` are longer


class NoisyPolicy:
    """A policy whose actions are disturbed, in the same way for the same seed and episode.

    Continuous dimensions become clip(a + σ n, -1, 1), with n ~ N(0, 1) and the action a in units of
    [-1, 1]. Discrete choices stay those of the policy.

    Args:
        policy: The policy.
        actions: Layout of the actions.
        noise: σ; with 0, the actions are those of the policy, bit for bit.
        seed: Seed of the noise.

    Raises:
        UsageError: If there is noise, but no continuous action.
    """

    def __init__(self, policy: Policy, actions: Actions, noise: float, seed: int) -> None:
        if noise and not actions.continuous:
            raise UsageError("--noise requires continuous actions; these are discrete: omit it")
        self._policy, self._actions, self._noise, self._seed = policy, actions, noise, seed
        self._episode = 0
        self.parts = policy.parts

    def start_episode(self) -> Callable[..., Any]:
        """Starts the next episode and returns a function that acts in it."""
        played, actions = self._policy.start_episode(), self._actions
        seeds = seed_sequence(self._seed, Stream.EXPLORATION, _NOISE, self._episode)
        generator = np.random.Generator(np.random.PCG64(seeds))
        self._episode += 1

        def act(observation: Any, reward: Any = None, **more: Any) -> Any:
            action = played(observation, reward, **more)
            if not self._noise:
                return action
            disturbed = actions.from_environment(action)
            box = disturbed[: actions.continuous]
            box += np.float32(self._noise) * generator.standard_normal(len(box), np.float32)
            np.clip(box, -1.0, 1.0, out=box)
            played.executed(disturbed[np.newaxis])
            return actions.unflatten(actions.to_environment(disturbed))

        return act


class RecordingEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps the steps of the current episode.

    Args:
        env: The environment.
        observations: Layout of the observations, whose ignored entries are not kept.
        actions: Layout of the actions.

    Attributes:
        observations, actions, rewards: The values of the episode, with one observation more.
            Actions are those that a safety layer reports in `info["executed_action"]`, if any.
        terminated, truncated: Those of the last step.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], observations: Observations, actions: Actions
    ) -> None:
        super().__init__(env)
        self._layout, self._of_actions = observations, actions
        self.observations: list[Any] = []
        self.actions: list[Any] = []
        self.rewards: list[float] = []
        self.terminated = self.truncated = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Resets the environment and forgets the previous episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        # Copied, because an environment may reuse the arrays of its observations.
        self.observations = [copy.deepcopy(self._layout.kept(observation))]
        self.actions, self.rewards = [], []
        return observation, info

    def step(self, action: Any) -> Any:
        """Steps the environment.

        Raises:
            RunError: If `info["executed_action"]` is not an action.
        """
        self.actions.append(copy.deepcopy(action))
        observation, reward, terminated, truncated, info = self.env.step(action)
        if EXECUTED in info:
            layout = self._of_actions
            try:
                row = layout.from_environment(info[EXECUTED])
            except (TypeError, ValueError) as error:
                raise RunError(f"info['executed_action'] must be an action: {error}") from error
            self.actions[-1] = layout.unflatten(layout.to_environment(row))
        self.observations.append(copy.deepcopy(self._layout.kept(observation)))
        self.rewards.append(float(reward))
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        return observation, reward, terminated, truncated, info


def record_episodes(
    policy: NoisyPolicy,
    env: RecordingEnvironment,
    writer: MinariWriter,
    *,
    episodes: int,
    seed: int,
    steps_limit: int,
    watch: Callable[[], object] | None = None,
) -> Evaluation:
    """Plays episodes and writes each one when it is complete.

    Args:
        policy: The policy.
        env: The environment.
        writer: Receives the episodes.
        episodes: Number of episodes.
        seed: The resets depend only on this seed and the episode, and differ from those of training
            and evaluation.
        steps_limit: Maximum steps per episode. An episode that reaches it is recorded as truncated.
        watch: Called after every reset and step.

    Returns:
        The returns and lengths of the episodes.
    """
    played = []
    for episode in range(episodes):
        reset_seed = seed_word(seed, Stream.EPISODES, episode)
        played.append(run_episodes(policy, env, [reset_seed], steps_limit=steps_limit, watch=watch))
        at_limit = bool(played[-1].at_limit)
        writer.write(
            env.observations,
            env.actions,
            env.rewards,
            terminated=env.terminated,
            truncated=env.truncated or at_limit,
            seed=reset_seed,
        )
    return Evaluation(
        np.concatenate([one.returns for one in played]),
        np.concatenate([one.lengths for one in played]),
        at_limit=sum(one.at_limit for one in played),
    )
