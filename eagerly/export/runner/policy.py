"""The exported policy: pre- and postprocessing around the model, as `policy.json` specifies."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, get_ident
from typing import Any

import numpy as np

from .actions import Actions
from .document import check_files, read_document
from .observations import Observations
from .preprocessing import Preprocessing
from .quick import quick_path
from .runtimes import RUNTIMES, to_integers, to_numbers
from .spaces import described, entry_columns, floats

_NOTHING: np.ndarray = np.zeros((), np.float32)


class Policy:
    """A deterministic policy of the observation or, if recurrent, of the episode so far.

    A runtime serves one thread, so a policy belongs to the first thread that calls it. Create one
    policy per thread.

    Args:
        folder: The folder that contains `policy.json`; by default the one that contains `runner`.

    Attributes:
        about: The contents of `policy.json`.
        action_size: A, the number of scores.
        remembers: Whether the policy is recurrent. If so, it acts in episodes (see
            `start_episode`).

    Raises:
        FileNotFoundError: If the folder has no `policy.json`.
        ValueError: If a file was modified, is missing, or has another format.
        ImportError: If the runtime is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(__file__).resolve().parent.parent if folder is None else Path(folder)
        self.about = read_document(self.folder)
        model = self.about["model"]
        check_files(self.folder, self.about, model["files"])
        self.remembers = self.about["memory"] is not None
        self._raw = self.about["preprocessing"]
        self._observations, self._actions = Observations(self.about), Actions(self.about["action"])
        self._size, self.action_size = self._observations.size, self._actions.size
        self._thread: int | None = None
        self._binding = Lock()
        self._inputs, self._outputs = model["inputs"], model["outputs"]
        self._on_integers = "scale" in self._inputs[0]
        self._runs = RUNTIMES[model["format"]](self.folder, model)
        self._quick = None
        if not self._raw:
            parts = self._observations, self._actions, model, self._runs
            self._quick = quick_path(*parts, self._check_finite)

    # --- acting -------------------------------------------------------------------------------

    def __call__(self, observation: Any, action_mask: Any = None) -> Any:
        """Returns an action, or one action per row of a batch.

        Args:
            observation: One observation as the environment returns it, or a batch of N, with a
                leading axis N in each part. The model runs once per row.
            action_mask: The valid discrete actions, in the format of `info["action_mask"]`, one
                mask per row of a batch. None allows all actions.

        Returns:
            The action in the environment's units, within its bounds. For a batch, N actions with a
            leading axis N in each part.

        Raises:
            ValueError: If the observation or the mask does not match its space, or the policy is
                recurrent.
            RuntimeError: If another thread has called this policy before.
            FloatingPointError: If the observation contains NaN, or a score is not finite.
        """
        if self._quick is not None:
            try:
                row = np.asarray(observation, np.float32)
            except (TypeError, ValueError, OverflowError):
                row = _NOTHING  # `_rows` raises a clear error
            if row.shape == (self._size,):
                if get_ident() != self._thread:
                    self._bind_thread()
                return self._quick(row)
        self._check_no_preprocessing()
        return self._act(observation, action_mask)

    def _act(self, observation: Any, action_mask: Any) -> Any:
        rows, single = self._observations.rows(observation, action_mask)
        return self._actions.unflatten(self.decide(self._scores(rows)), single)

    def _check_no_preprocessing(self) -> None:
        if self._raw:
            raise ValueError(
                "this policy preprocesses the observations of an episode: start one with act = "
                "policy.start_episode(), then call act(observation)"
            )

    def scores(self, observation: Any, action_mask: Any = None) -> np.ndarray:
        """Returns scores `[A]` or `[N, A]`: actions in [-1, 1], then log-probabilities of choices.

        The probabilities of the valid values of a choice sum to 1. Invalid values have the score
        `INVALID`. Arguments and errors are the same as for calling the policy.
        """
        self._check_no_preprocessing()
        rows, single = self._observations.rows(observation, action_mask)
        scores = self._scores(rows)
        return scores[0] if single else scores

    def start_episode(self) -> Episode:
        """Starts an episode and returns a function that acts in it step by step.

        If the policy is neither recurrent nor has preprocessing, that function is equivalent to
        the policy itself.
        """
        return Episode(self)

    def initial_state(self) -> list[np.ndarray]:
        """Returns the initial recurrent state: zeros, or an empty list if not recurrent."""
        memory = self.about["memory"]
        return [np.zeros((1, *shape), np.float32) for shape in memory["states"]] if memory else []

    def step(
        self,
        observation: Any,
        previous_action: Any,
        previous_reward: float,
        *state: np.ndarray,
        action_mask: Any = None,
    ) -> tuple[Any, ...]:
        """Returns the next action of a recurrent policy; the caller keeps the state.

        Args:
            observation: One observation as the environment returns it.
            previous_action: `[A]`, `decide(scores)` of the previous step; zeros at the first step.
            previous_reward: The reward of the previous step; 0 at the first step.
            state: The state returned by `initial_state` or by the previous step.
            action_mask: The valid discrete actions, in the format of `info["action_mask"]`.

        Returns:
            The action, its scores `[A]`, and each part of the next state.

        Raises:
            ValueError: If an input has the wrong shape, or the policy is not recurrent.
            RuntimeError: If another thread has called this policy before.
            FloatingPointError: If an input contains NaN, or a score is not finite.
        """
        if not self.remembers:
            raise ValueError("this policy is not recurrent: call policy(observation)")
        self._check_no_preprocessing()
        rows, single = self._observations.rows(observation, action_mask)
        if not single:
            raise ValueError(f"observation must not be a batch; got {len(rows)} observations")
        shapes = [part.shape for part in self.initial_state()]
        parts = [floats(part) for part in state]
        if [part is not None and part.shape for part in parts] != shapes:
            raise ValueError(
                f"state must have parts of shapes {shapes}, as returned by initial_state() or the "
                f"previous step; got {', '.join(map(described, state)) or 'none'}"
            )
        before = floats(previous_action)
        if before is None or before.shape != (self.action_size,):
            raise ValueError(
                f"previous_action must have shape ({self.action_size},), as returned by "
                f"policy.decide(scores); got {described(previous_action)}"
            )
        scores, after = self._remembered(rows[0], before, previous_reward, parts)
        action = self._actions.unflatten(self.decide(scores[np.newaxis]), single)
        return (action, scores, *after)

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """Selects the most likely value of each choice, one-hot, and keeps continuous scores.

        Args:
            scores: `[..., A]`, as returned by `scores` or `step`.

        Returns:
            `[..., A]`, float32: the action that `step` takes as `previous_action`.

        Raises:
            ValueError: If the scores have the wrong shape.
        """
        return self._actions.decide(scores)

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Rescales actions `[..., A]`, as returned by `decide`, to the environment's units.

        Returns:
            `[..., C + k]`: continuous values, then the value of each choice.
        """
        return self._actions.to_environment(actions)

    # --- running the model --------------------------------------------------------------------

    def _scores(self, rows: np.ndarray) -> np.ndarray:
        if self.remembers:
            raise ValueError(
                "this policy is recurrent: start an episode with act = policy.start_episode(), "
                "then call act(observation), and act(observation, reward) after each step"
            )
        if len(rows) == 1:
            return self._scored(rows[0], self._run([self._input(rows[0])]))[np.newaxis]
        found = [self._scored(row, self._run([self._input(row)])) for row in rows]
        return np.stack(found) if found else np.zeros((0, self.action_size), np.float32)

    def _remembered(
        self, row: np.ndarray, before: np.ndarray, reward: Any, state: Any
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        rewards = floats(reward)
        if rewards is None or rewards.shape not in ((), (1,)):
            raise ValueError(f"reward must be a number; got {described(reward)}")
        given = [self._input(row), before[np.newaxis], rewards.reshape(1), *state]
        outputs, count = self._run(given), len(state)
        return self._scored(row, outputs[:-count], given[1:]), outputs[-count:]

    def _input(self, row: np.ndarray) -> np.ndarray:
        given = self._observations.scaled(row)
        if self._on_integers and np.isnan(given).any():  # int8 cannot represent NaN
            raise FloatingPointError(f"observation must be finite; got {row}")
        return given

    def _bind_thread(self) -> None:
        """Binds this policy to the first thread that calls it; raises an error in others."""
        with self._binding:
            if self._thread is None:
                self._thread = get_ident()
        if self._thread != get_ident():
            raise RuntimeError(
                "this policy is bound to the first thread that called it, because a runtime serves "
                f"one thread: create another Policy({str(self.folder)!r}) in this thread"
            )

    def _run(self, given: list[np.ndarray]) -> list[np.ndarray]:
        """Runs the model on float32 inputs, quantizing and dequantizing for int8 models."""
        if get_ident() != self._thread:
            self._bind_thread()
        if self._on_integers:
            given = [to_integers(x, spec) for x, spec in zip(given, self._inputs)]  # noqa: B905
            found = self._runs(given)
            return [to_numbers(q, spec) for q, spec in zip(found, self._outputs)]  # noqa: B905
        return self._runs(given)

    def _scored(
        self, row: np.ndarray, outputs: list[np.ndarray], remembered: Sequence[np.ndarray] = ()
    ) -> np.ndarray:
        """Computes scores `[A]` from the model outputs and the mask in the row `[O]`."""
        scores = self._actions.scores(outputs, self._observations.mask_of(row))
        if not math.isfinite(scores.sum()):
            self._check_finite(row, scores, remembered)
        return scores

    def _check_finite(
        self, row: np.ndarray, scores: np.ndarray, remembered: Sequence[np.ndarray] = ()
    ) -> None:
        """Raises an error that names the non-finite input, or else the scores."""
        if not np.isfinite(row).all():
            raise FloatingPointError(f"observation must be finite; got {row}")
        for spec, part in zip(self._inputs[1:], remembered):  # noqa: B905
            if not np.isfinite(part).all():
                raise FloatingPointError(f"{spec['name']} must be finite; got {part[0]}")
        raise FloatingPointError(
            f"scores must be finite; got {scores.tolist()} for observation {row}"
        )


class Episode:
    """Acts in one episode and keeps its recurrent state; created by `Policy.start_episode`."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._state = policy, policy.initial_state()
        self._done: np.ndarray | None = None
        self._preprocessing = Preprocessing(policy._raw["steps"]) if policy._raw else None

    def __call__(
        self,
        observation: Any,
        reward: float | None = None,
        action_mask: Any = None,
        executed_action: Any = None,
    ) -> Any:
        """Returns the next action. If an error is raised, the episode is unchanged.

        Args:
            observation: One observation as the environment returns it, without the wrappers of
                `preprocessing` in `policy.json`.
            reward: The reward of the previous action; None for the first observation. Ignored if
                the policy is not recurrent.
            action_mask: The valid discrete actions, in the format of `info["action_mask"]`.
            executed_action: The action that was executed instead of the previous one, for example
                by a safety layer, in the environment's units. Ignored if the policy is not
                recurrent.

        Returns:
            The action in the environment's units, within its bounds.

        Raises:
            ValueError: If an input has the wrong shape, `executed_action` is not an action, or a
                recurrent policy gets a reward with the first observation or none with a later one.
            RuntimeError: If another thread has called this policy before.
            FloatingPointError: If an input contains NaN, or a score is not finite.
        """
        if self._policy.remembers:
            if self._done is None and not (reward is None and executed_action is None):
                raise ValueError(
                    "reward must be None for the first observation of an episode, and so must "
                    "executed_action"
                )
            if self._done is not None and reward is None:
                raise ValueError(
                    "reward is missing: call act(observation, reward) with the previous reward"
                )
        before = copy.copy(self._preprocessing)
        try:
            return self._act(self.preprocess(observation), reward, action_mask, executed_action)
        except Exception:
            self._preprocessing = before
            raise

    def _act(
        self, observation: Any, reward: float | None, action_mask: Any, executed_action: Any
    ) -> Any:
        policy = self._policy
        if not policy.remembers:
            act = policy._act if policy._raw else policy
            return act(observation, action_mask)
        rows, single = policy._observations.rows(observation, action_mask)
        if not single:
            raise ValueError(f"observation must not be a batch; got {len(rows)} observations")
        before = np.zeros(policy.action_size, np.float32) if self._done is None else self._done
        if executed_action is not None:
            before = policy._actions.from_environment(executed_action)
        scores, self._state = policy._remembered(
            rows[0], before, 0.0 if reward is None else reward, self._state
        )
        self._done = policy.decide(scores)
        return policy._actions.unflatten(self._done[np.newaxis], single)

    def preprocess(self, observation: Any) -> Any:
        """Returns the next observation as the policy reads it; `act` calls this method.

        Raises:
            ValueError: If the observation has the wrong shape or dtype.
        """
        raw, preprocessing = self._policy._raw, self._preprocessing
        if preprocessing is None:
            return observation
        kind = "image" if raw["dtype"] == "uint8" and len(raw["shape"]) > 1 else "vector"
        entry = {"path": "", "kind": kind, "start": 0, "stop": math.prod(raw["shape"]), **raw}
        columns = entry_columns(entry, observation)
        if columns.ndim > 1:
            raise ValueError(f"observation must not be a batch; got {len(columns)} observations")
        return preprocessing(columns.reshape(raw["shape"]).astype(raw["dtype"]))
