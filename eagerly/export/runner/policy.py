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

from .document import check_files, read_document
from .preprocessing import Preprocessing
from .runtimes import RUNTIMES, to_integers, to_numbers
from .spaces import choice_masks, described, entry_columns, entry_values, floats, leaf, quoted

INVALID = -1e9  # the score of a masked choice
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
            `begin_episode`).

    Raises:
        FileNotFoundError: If the folder has no `policy.json`.
        ValueError: If a file was modified, is missing, or has another format.
        ImportError: If the runtime is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(__file__).resolve().parent.parent if folder is None else Path(folder)
        self.about = read_document(self.folder)
        model, observation, action = (self.about[n] for n in ("model", "observation", "action"))
        check_files(self.folder, self.about, model["files"])
        self.remembers = self.about["memory"] is not None
        self._raw = self.about["preprocessing"]
        self._size, self._masked = int(observation["size"]), int(observation["masked"])
        self._visible = self._size - self._masked
        self._space, self._entries = observation["space"], observation["entries"]
        self._ignored = frozenset(observation["ignored"])
        self._is_row = "Box" in self._space and not self._masked
        self._is_row = self._is_row and len(self._space["Box"][0]) == 1
        self._moments: tuple[np.ndarray, ...] = ()
        if (scaling := self.about["normalization"]) is not None:
            moments = (np.array(scaling[name], np.float64) for name in ("mean", "scale"))
            self._moments = tuple(part[: self._visible] for part in moments)
            self._clip = float(scaling["clip"])
            self._limits = np.full(self._visible, self._clip)
            for entry in self._entries:
                if entry["kind"] == "image":  # pixels, 0 to 255, are not scaled
                    self._limits[entry["start"] : entry["stop"]] = math.inf
        self._action_space = action["space"]
        self._continuous, self._choices = int(action["continuous"]), tuple(action["choices"])
        self._firsts = np.array(action["firsts"], np.int64)
        self.action_size = self._continuous + sum(self._choices)
        self._dtype = np.dtype(action["dtype"])
        self._low, self._high = (np.array(action[n], np.float64) for n in ("low", "high"))
        low, high = (end[: self._continuous] for end in (self._low, self._high))
        self._center, self._half = (high + low) / 2, (high - low) / 2
        self._low, self._high = self._low.astype(self._dtype), self._high.astype(self._dtype)
        self._segments, start = [], self._continuous
        for count in self._choices:
            self._segments.append(slice(start, start + count))
            start += count
        self._thread: int | None = None
        self._binding = Lock()
        self._inputs, self._outputs = model["inputs"], model["outputs"]
        self._on_integers = "scale" in self._inputs[0]
        self._runs = RUNTIMES[model["format"]](self.folder, model)
        self._quick = None if self._raw else self._quick_path()

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
        rows, single = self._rows(observation, action_mask)
        return self._unflatten(self.decide(self._scores(rows)), single)

    def _check_no_preprocessing(self) -> None:
        if self._raw:
            raise ValueError(
                "this policy preprocesses the observations of an episode: start one with act = "
                "policy.begin_episode(), then call act(observation)"
            )

    def scores(self, observation: Any, action_mask: Any = None) -> np.ndarray:
        """Returns scores `[A]` or `[N, A]`: actions in [-1, 1], then log-probabilities of choices.

        The probabilities of the valid values of a choice sum to 1. Invalid values have the score
        `INVALID`. Arguments and errors are the same as for calling the policy.
        """
        self._check_no_preprocessing()
        rows, single = self._rows(observation, action_mask)
        scores = self._scores(rows)
        return scores[0] if single else scores

    def begin_episode(self) -> Episode:
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
        rows, single = self._rows(observation, action_mask)
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
        action = self._unflatten(self.decide(scores[np.newaxis]), single)
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
        given = floats(scores)
        if given is None or given.shape[-1:] != (self.action_size,):
            raise ValueError(
                f"scores must have shape [..., {self.action_size}]; got {described(scores)}"
            )
        if not self._choices:
            return given
        scores = given
        done = np.zeros(scores.shape, np.float32)
        done[..., : self._continuous] = scores[..., : self._continuous]
        for columns in self._segments:
            best = scores[..., columns].argmax(axis=-1)
            np.put_along_axis(done[..., columns], best[..., np.newaxis], 1.0, axis=-1)
        return done

    # --- from observations to scores ----------------------------------------------------------

    def _rows(self, observation: Any, action_mask: Any) -> tuple[np.ndarray, bool]:
        """Returns observations as rows `[N, O]`, and whether it was a single observation."""
        if self._is_row:
            given = floats(observation)
            if given is None or given.ndim not in (1, 2) or given.shape[-1] != self._size:
                raise ValueError(
                    f"observation must have shape [{self._size}] or [N, {self._size}]; got "
                    f"{described(observation)}"
                )
            return (given[np.newaxis], True) if given.ndim == 1 else (given, False)
        values = list(entry_values(self._space, observation, "", self._ignored))
        parts = [entry_columns(entry, part) for entry, part in zip(self._entries, values)]  # noqa: B905
        lead = parts[0].shape[:-1]
        rows = np.ones((*lead, self._size), np.float32)
        with np.errstate(over="ignore"):
            for entry, part in zip(self._entries, parts):  # noqa: B905
                if part.shape[:-1] != lead:
                    raise ValueError(
                        f"observation{quoted(entry['path'])} must have the batch shape of the "
                        f"first entry, {lead}; got {part.shape[:-1]}"
                    )
                rows[..., entry["start"] : entry["stop"]] = part
        if self._masked and action_mask is not None:
            mask = self._mask(action_mask)
            if mask.shape not in ((self._masked,), (*lead, self._masked)):
                raise ValueError(
                    f"action_mask must have shape {(*lead, self._masked)}; got {mask.shape}"
                )
            rows[..., self._visible :] = mask
        return (rows, False) if lead else (rows[np.newaxis], True)

    def _mask(self, given: Any) -> np.ndarray:
        """Flattens masks in the format of `gymnasium.Space.sample` to `[M]` or `[N, M]`."""
        is_array = self._action_space.keys() & {"Discrete", "MultiBinary"}
        if given is not None and (
            (isinstance(given, np.ndarray) and given.dtype == object)
            or (isinstance(given, list) and not is_array)
        ):
            return self._stacked(given)
        parts = list(choice_masks(self._action_space, given, "action_mask"))
        lead = max((part.shape[:-1] for _, part in parts), key=len)
        for path, part in parts:
            if part.shape[:-1] not in ((), lead):
                raise ValueError(f"{path} must have the batch shape of the other masks, {lead}")
            if not part.any(axis=-1).all():
                raise ValueError(f"{path} leaves no valid action: {part.astype(int).tolist()}")
        columns = [np.broadcast_to(part, (*lead, part.shape[-1])) for _, part in parts]
        return np.concatenate(columns, axis=-1).astype(np.float32)

    def _stacked(self, masks: Any) -> np.ndarray:
        """Flattens a list or object array of N masks to `[N, M]`."""
        alone = isinstance(masks, np.ndarray) and not masks.ndim
        rows = [] if alone else [self._mask(one) for one in masks]
        if not rows or any(row.shape != rows[0].shape for row in rows):
            raise ValueError(
                "action_mask must be one mask, or a list with one mask per observation; got "
                f"{described(masks)}"
            )
        return np.stack(rows)

    def _scores(self, rows: np.ndarray) -> np.ndarray:
        if self.remembers:
            raise ValueError(
                "this policy is recurrent: start an episode with act = policy.begin_episode(), "
                "then call act(observation), and act(observation, reward) after each step"
            )
        if len(rows) == 1:
            return self._scored(rows[0], self._run([self._scaled(rows[0])]))[np.newaxis]
        found = [self._scored(row, self._run([self._scaled(row)])) for row in rows]
        return np.stack(found) if found else np.zeros((0, self.action_size), np.float32)

    def _remembered(
        self, row: np.ndarray, before: np.ndarray, reward: Any, state: Any
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        rewards = floats(reward)
        if rewards is None or rewards.shape not in ((), (1,)):
            raise ValueError(f"reward must be a number; got {described(reward)}")
        given = [self._scaled(row), before[np.newaxis], rewards.reshape(1), *state]
        outputs, count = self._run(given), len(state)
        return self._scored(row, outputs[:-count], given[1:]), outputs[-count:]

    def _scaled(self, row: np.ndarray) -> np.ndarray:
        """Returns the model input `[1, V]` of a row `[O]`: scaled, without the mask."""
        visible = row[: self._visible]
        if self._moments:
            mean, scale = self._moments
            scaled = (visible - mean) * scale  # in float64, like the moments
            np.maximum(scaled, -self._limits, out=scaled)
            np.minimum(scaled, self._limits, out=scaled)
            visible = scaled.astype(np.float32)
        if self._on_integers and np.isnan(visible).any():  # int8 cannot represent NaN
            raise FloatingPointError(f"observation must be finite; got {row}")
        return visible[np.newaxis]

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
        scores = outputs[0][0] if not self._choices else np.empty(self.action_size, np.float32)
        if self._choices:
            if self._continuous:
                scores[: self._continuous] = outputs[0][0]
            logits = outputs[-1][0].astype(np.float64)
            for columns in self._segments:
                places = slice(columns.start - self._continuous, columns.stop - self._continuous)
                of_choice, valid = logits[places], np.ones(columns.stop - columns.start, bool)
                if self._masked:
                    valid = row[self._visible :][places] > 0.5
                highest = np.max(of_choice[valid], initial=-np.inf)
                rest = np.where(valid, of_choice - highest, 0.0)
                total = max(float((np.exp(rest) * valid).sum()), 0.5)
                scores[columns] = np.where(valid, rest - math.log(total), INVALID)
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

    # --- from scores to actions ---------------------------------------------------------------

    def _quick_path(self) -> Any:
        """Returns a fast function of one flat observation `[O]`, or None if not applicable.

        It is equivalent to the methods above but requires flat actions and no recurrence.
        """
        flat = "Box" in self._action_space and len(self._action_space["Box"][0]) == 1
        if not self._is_row or not flat or self.remembers:
            return None
        mean, scale, most = np.zeros(self._size), np.ones(self._size), math.inf
        if self._moments:
            (mean, scale), most = self._moments, self._clip
        if self._on_integers:
            return self._quick_on_integers(mean, scale, most)
        run, scaled = self._run_one(), np.empty(self._size)
        given, zeros = np.empty((1, self._size), np.float32), np.zeros(self._continuous, np.float32)
        center, half, low, high = self._center, self._half, self._low, self._high
        place, dtype = given[0], self._dtype
        # These bounds are arrays because ufuncs spend more time converting a Python number than
        # comparing with it.
        least, highest = np.full(self._size, -most), np.full(self._size, most)
        maximum, minimum, finite = np.maximum, np.minimum, math.isfinite

        def act(row: np.ndarray) -> np.ndarray:
            np.subtract(row, mean, scaled)
            np.multiply(scaled, scale, scaled)
            maximum(scaled, least, out=scaled)
            minimum(scaled, highest, out=scaled)
            place[...] = scaled
            scores = run(given)[0]
            if not finite(scores.dot(zeros)):
                self._check_finite(row, scores)
            found = half * scores
            found += center
            action = found.astype(dtype)
            maximum(action, low, out=action)
            return minimum(action, high, out=action)

        return act

    def _quick_on_integers(self, mean: np.ndarray, scale: np.ndarray, clip: float) -> Any:
        spec = self._inputs[0]
        step, zero = spec["scale"], spec["zero_point"]
        if (-128 - zero) * step < -clip or (127 - zero) * step > clip:
            return None  # the grid extends beyond the clipping range
        # Fold the grid's scale and zero point into the observation's moments.
        mean, scale = mean - zero * step / scale, scale / step
        numbers = to_numbers(np.arange(-128, 128), self._outputs[0])
        actions = self.to_environment(np.repeat(numbers[:, np.newaxis], self._continuous, axis=1)).T
        is_shared = bool((actions == actions[0]).all())  # all dimensions have equal bounds
        table = actions[0] if is_shared else actions.ravel()
        first = 128 if is_shared else np.arange(self._continuous) * 256 + 128
        # Move the action of output 0 to index 0. Negative outputs then index from the end, so that
        # no offset is needed.
        table = np.roll(table, -128) if is_shared else table
        take, index = table.take, np.empty(self._continuous, np.int64)
        scaled, zeros = np.empty(self._size), np.zeros(self._size)
        least, most = np.full(self._size, -128.0), np.full(self._size, 127.0)
        run, total = self._run_one(), scaled.dot
        given = np.empty((1, self._size), np.int8)
        place, maximum, minimum, finite = given[0], np.maximum, np.minimum, math.isfinite
        subtract, multiply, rint = np.subtract, np.multiply, np.rint

        def act(row: np.ndarray) -> np.ndarray:
            subtract(row, mean, scaled)
            multiply(scaled, scale, scaled)
            rint(scaled, scaled)
            maximum(scaled, least, out=scaled)
            minimum(scaled, most, out=scaled)
            if not finite(total(zeros)):
                raise FloatingPointError(f"observation must be finite; got {row}")
            place[...] = scaled
            index[...] = run(given)[0]
            return take(index if is_shared else index + first)

        return act

    def _run_one(self) -> Any:
        runs = self._runs
        return getattr(runs, "run", None) or (lambda given: runs([given])[0])

    def to_environment(self, actions: np.ndarray) -> np.ndarray:
        """Rescales actions `[..., A]`, as returned by `decide`, to the environment's units.

        Returns:
            `[..., C + k]`: continuous values, then the value of each choice.
        """
        box = actions[..., : self._continuous] if self._choices else actions
        rows = (self._center + self._half * box).astype(self._dtype)
        if self._choices:
            chosen = [actions[..., columns].argmax(axis=-1) for columns in self._segments]
            values = (np.stack(chosen, axis=-1) + self._firsts).astype(self._dtype)
            rows = np.concatenate([rows, values], axis=-1)
        np.maximum(rows, self._low, out=rows)
        return np.minimum(rows, self._high, out=rows)

    def _unflatten(self, actions: np.ndarray, single: bool) -> Any:
        """Converts actions `[N, A]` to values of the environment's action space."""
        rows = self.to_environment(actions[0] if single else actions)
        space = self._action_space
        if "Box" in space and len(space["Box"][0]) == 1:
            return rows
        boxes, choices = [0], [self._continuous]

        def made(space: dict[str, Any]) -> Any:
            if "Dict" in space:
                return {key: made(inner) for key, inner in space["Dict"]}
            if "Tuple" in space:
                return tuple(made(inner) for inner in space["Tuple"])
            shape, dtype, _ = leaf(space)
            place = boxes if "Box" in space else choices
            start, count = place[0], math.prod(shape)
            place[0] += count
            values = rows[..., start : start + count].reshape((*rows.shape[:-1], *shape))
            return dtype.type(values) if values.ndim == 0 else values.astype(dtype)

        return made(space)


class Episode:
    """Acts in one episode and keeps its recurrent state; created by `Policy.begin_episode`."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._state = policy, policy.initial_state()
        self._done: np.ndarray | None = None
        self._preprocessing = Preprocessing(policy._raw["steps"]) if policy._raw else None

    def __call__(
        self, observation: Any, reward: float | None = None, action_mask: Any = None
    ) -> Any:
        """Returns the next action. If an error is raised, the episode is unchanged.

        Args:
            observation: One observation as the environment returns it, without the wrappers of
                `preprocessing` in `policy.json`.
            reward: The reward of the previous action; None for the first observation. Ignored if
                the policy is not recurrent.
            action_mask: The valid discrete actions, in the format of `info["action_mask"]`.

        Returns:
            The action in the environment's units, within its bounds.

        Raises:
            ValueError: If an input has the wrong shape, or a recurrent policy gets a reward with
                the first observation or none with a later one.
            RuntimeError: If another thread has called this policy before.
            FloatingPointError: If an input contains NaN, or a score is not finite.
        """
        policy = self._policy
        if (self._done is None) != (reward is None) and policy.remembers:
            raise ValueError(
                "reward must be None for the first observation of an episode"
                if self._done is None
                else "reward is missing: call act(observation, reward) with the previous reward"
            )
        before = copy.copy(self._preprocessing)
        try:
            return self._act(self.preprocess(observation), reward, action_mask)
        except Exception:
            self._preprocessing = before
            raise

    def _act(self, observation: Any, reward: float | None, action_mask: Any) -> Any:
        policy = self._policy
        if not policy.remembers:
            act = policy._act if policy._raw else policy
            return act(observation, action_mask)
        rows, single = policy._rows(observation, action_mask)
        if not single:
            raise ValueError(f"observation must not be a batch; got {len(rows)} observations")
        before = np.zeros(policy.action_size, np.float32) if self._done is None else self._done
        scores, self._state = policy._remembered(
            rows[0], before, 0.0 if reward is None else reward, self._state
        )
        self._done = policy.decide(scores)
        return policy._unflatten(self._done[np.newaxis], single)

    def preprocess(self, observation: Any) -> Any:
        """Returns the next observation as the policy reads it; `act` calls this method.

        Raises:
            ValueError: If the observation has the wrong shape or dtype.
        """
        raw, preprocessing = self._policy._raw, self._preprocessing
        if preprocessing is None:
            return observation
        entry = {"path": "", "kind": "", "start": 0, "stop": math.prod(raw["shape"]), **raw}
        columns = entry_columns(entry, observation)
        if columns.ndim > 1:
            raise ValueError(f"observation must not be a batch; got {len(columns)} observations")
        return preprocessing(columns.reshape(raw["shape"]).astype(raw["dtype"]))
