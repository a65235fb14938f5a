"""Policies as a user calls them: from an observation to an action in the environment's units."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import keras
import numpy as np

from eagerly.agents import agent_class
from eagerly.networks import (
    ActionBounds,
    Episodes,
    MemoryPolicy,
    acting_policy,
    observation_size,
)
from eagerly.training.errors import RunError
from eagerly.training.run_directory import Run, open_run
from eagerly.training.saved import Saved, newest_intact

WHICH = ("best", "latest")
_LARGEST = 2**24  # numbers in an observation that a file may ask for


class Policy:
    """A deterministic policy: a function of the observation, or with a memory of the episode.

    Args:
        act: Maps observations `[N, O]` to actions `[N, A]` in [-1, 1], or steps through episodes.
        observation_size: O.
        bounds: Converts actions to the environment's units.
        steps: Environment steps that it was trained for.

    Attributes:
        observation_size: O.
        action_size: A.
        steps: Environment steps that it was trained for.
        remembers: Whether it has a memory: then it acts in episodes, see `begin_episodes`.
    """

    def __init__(
        self,
        act: Callable[[np.ndarray], np.ndarray] | MemoryPolicy,
        observation_size: int,
        bounds: ActionBounds,
        steps: int,
    ) -> None:
        self._act, self._bounds = act, bounds
        self.observation_size, self.action_size, self.steps = observation_size, bounds.size, steps
        self.remembers = isinstance(act, MemoryPolicy)

    def __call__(self, observation: np.ndarray) -> np.ndarray:
        """Chooses an action, or one for each row of a batch.

        The last bits of a row's action can depend on whether it came alone or in a batch.

        Args:
            observation: `[O]` or `[N, O]`, in the environment's units.

        Returns:
            `[A]` or `[N, A]`, in the environment's units, within its bounds, of its dtype.

        Raises:
            ValueError: If the observation has another shape, or the policy remembers.
            FloatingPointError: If the action would be NaN, because the observation is.
        """
        act = self._act
        if isinstance(act, MemoryPolicy):
            raise ValueError(
                "this policy has a memory: begin an episode with act = policy.begin_episodes(), "
                "then call act(observation), and act(observation, reward) after each step"
            )
        rows, single = self._rows(observation)
        actions = self._bounds.to_environment(self._finite(act(rows), rows))
        return actions[0] if single else actions

    def begin_episodes(self, count: int | None = None) -> PlayedEpisodes:
        """Begins an episode, or N side by side; what is returned acts in them, step by step.

        Without a memory it does what the policy itself does.

        Args:
            count: N; None for one episode, whose observations are `[O]`.
        """
        return PlayedEpisodes(self, count)

    def _rows(self, observation: np.ndarray) -> tuple[np.ndarray, bool]:
        rows = np.asarray(observation, np.float32)
        if rows.ndim not in (1, 2) or rows.shape[-1] != self.observation_size:
            size = self.observation_size
            raise ValueError(
                f"observation must have shape [{size}] or [N, {size}]; got {rows.shape}"
            )
        single = rows.ndim == 1
        return rows[np.newaxis] if single else rows, single

    def _finite(self, actions: np.ndarray, rows: np.ndarray) -> np.ndarray:
        actions = actions.astype(np.float32, copy=False)
        if not math.isfinite(actions.sum()):
            if not np.isfinite(rows).all():
                raise FloatingPointError(f"observation must be finite; got {rows}")
            raise FloatingPointError(f"action became {actions.tolist()} for {rows}")
        return actions

    def __repr__(self) -> str:
        sizes = f"observation_size={self.observation_size}, action_size={self.action_size}"
        return f"Policy({sizes}, steps={self.steps})"


class PlayedEpisodes:
    """Acts in one episode, or in N side by side, from what it has seen of them.

    `Policy.begin_episodes` makes it.

    Args:
        policy: The policy.
        count: N; None for one episode, whose observations are `[O]`.
    """

    def __init__(self, policy: Policy, count: int | None) -> None:
        self._policy, self._count = policy, count
        act = policy._act
        self._episodes = Episodes(act, count or 1) if isinstance(act, MemoryPolicy) else None
        self._acted: np.ndarray | None = None

    def __call__(
        self,
        observation: np.ndarray,
        reward: float | np.ndarray | None = None,
        ended: np.ndarray | None = None,
    ) -> np.ndarray:
        """Chooses the next action.

        Args:
            observation: `[O]`, or `[N, O]` where N episodes were begun.
            reward: What came with it, of the action before; `[N]` for N episodes. Not at the first
                observation; without a memory it makes no difference.
            ended: Which of N episodes ended before this observation, `[N]` bool: it is the first
                of another one there. One episode that ends is begun anew by `begin_episodes`.

        Returns:
            `[A]`, or `[N, A]`, in the environment's units.

        Raises:
            ValueError: If a shape is wrong, or a memory lacks the reward.
            FloatingPointError: If the action would be NaN.
        """
        policy, episodes = self._policy, self._episodes
        if episodes is None:
            return policy(observation)
        rows, single = policy._rows(observation)
        if single != (self._count is None) or len(rows) != len(episodes):
            size = policy.observation_size
            expected = f"[{size}]" if self._count is None else f"[{self._count}, {size}]"
            raise ValueError(f"observation must have shape {expected}; got {np.shape(observation)}")
        if self._acted is not None:
            if reward is None:
                raise ValueError(
                    "reward is missing: a policy with a memory is told what came of its last action"
                )
            rewards = np.broadcast_to(np.asarray(reward, np.float32), (len(rows),))
            none = np.zeros(len(rows), bool)
            episodes.acted(self._acted, rewards, none if ended is None else np.asarray(ended, bool))
        elif reward is not None or ended is not None:
            raise ValueError("reward and ended belong to observations after the first one")
        self._acted = policy._finite(episodes.act(rows), rows)
        actions = policy._bounds.to_environment(self._acted)
        return actions[0] if single else actions


def load_policy(
    run_dir: str | Path,
    which: str = "best",
    *,
    settings: Mapping[str, Any] | None = None,
    say: Callable[[str], None] | None = None,
) -> Policy:
    """Loads the policy of a run as its newest checkpoint has it.

    Nothing of the run but the weights of its actor is read; no environment is made.

    Args:
        run_dir: The run directory.
        which: "best", the policy with the best evaluation so far, or "latest".
        settings: The factory of its models where that is not `module:factory` but from a Python
            program, as `{"actor": factory}` or `{"models": factory}`.
        say: Takes a line about a damaged checkpoint that is passed over; None ignores it.

    Raises:
        RunError: If the directory is not a run, there is no checkpoint, or no best policy, or its
            weights do not fit the settings.
    """
    if which not in WHICH:
        raise RunError(f"which must be one of {', '.join(WHICH)}; got {which!r}")
    tell = say or (lambda line: None)
    run = open_run(Path(run_dir), None, settings or {})
    for note in run.notes:
        tell(note)
    saved = newest_intact(run.path, tell, with_replay=False)
    if saved is None:
        raise RunError(f"{run.path} has no checkpoint yet: train it first")
    manifest = saved.manifest
    if "spaces" not in manifest.state:
        raise RunError(
            f"{run.path} was saved before policies knew their action bounds: continue it once, "
            "with train.py resume and more --steps"
        )
    if which == "best" and manifest.best is None:
        raise RunError(
            f"{run.path} has no evaluation yet: ask for the latest policy, --which latest "
            'or which="latest"'
        )
    try:
        return _policy(run, saved, which)
    except RunError:
        raise
    except Exception as error:  # whatever is in a directory that somebody handed over
        raise RunError(
            f"the policy of {run.path} does not fit its settings: {type(error).__name__}: {error}"
        ) from error


def _policy(run: Run, saved: Saved, which: str) -> Policy:
    manifest = saved.manifest
    if which == "best":
        weights, steps = saved.best_policy(), int(manifest.state["best"][0])
    else:
        weights, steps = saved.arrays("policy"), manifest.steps
    spaces = _restored_spaces(manifest.state["spaces"])
    kind, config, seed = agent_class(run.agent), run.agent_config, run.config.seed
    if config.models:
        actor, _ = kind.build_models(config, *spaces, seed=seed)
    else:
        actor = kind.build_actor(config, *spaces, seed=seed)
    assign_weights(actor, weights)
    bounds = ActionBounds(spaces[1])
    return Policy(acting_policy(actor, bounds.size), observation_size(spaces[0]), bounds, steps)


def recorded_spaces(
    observation_space: gymnasium.Space, bounds: ActionBounds, *, whole: bool
) -> dict[str, object]:
    """Writes what a policy must know of the environment, as JSON.

    Args:
        observation_space: The observations.
        bounds: The actions.
        whole: Whether the bounds of observations matter, too: to factories of models they do.
    """
    document: dict[str, object] = {
        "observation_size": observation_size(observation_space),
        "action_low": bounds.low.tolist(),
        "action_high": bounds.high.tolist(),
        "action_dtype": bounds.dtype.name,
    }
    if whole and isinstance(observation_space, gymnasium.spaces.Box):
        ends = {"low": observation_space.low, "high": observation_space.high}
        document["observation_dtype"] = np.dtype(observation_space.dtype).name
        document |= {f"observation_{name}": list(map(str, end)) for name, end in ends.items()}
    return document


def _restored_spaces(spaces: Mapping[str, Any]) -> tuple[gymnasium.Space, gymnasium.Space]:
    dtype = np.dtype(str(spaces["action_dtype"]))
    low, high = (np.array(spaces[name], dtype) for name in ("action_low", "action_high"))
    actions = gymnasium.spaces.Box(low, high, dtype=dtype.type)
    size = int(spaces["observation_size"])
    if size > _LARGEST:
        raise ValueError(f"observations of {size} numbers")
    dtype = np.dtype(str(spaces.get("observation_dtype", "float32")))
    low, high = (
        np.array([float(number) for number in spaces.get(f"observation_{name}", [end] * size)])
        for name, end in (("low", "-inf"), ("high", "inf"))
    )
    kind: Any = dtype.type
    return gymnasium.spaces.Box(low.astype(kind), high.astype(kind), dtype=kind), actions


def assign_weights(model: keras.Model, weights: Mapping[str, np.ndarray]) -> None:
    """Gives a model the weights that were saved by path.

    Raises:
        ValueError: If a name or a shape differs; the model is unchanged then.
    """
    shapes = {variable.path: tuple(variable.shape) for variable in model.variables}
    given = {path: values.shape for path, values in weights.items()}
    if shapes != given:
        raise ValueError(f"expected weights {shapes}, got {given}")
    for variable in model.variables:
        variable.assign(weights[variable.path])
