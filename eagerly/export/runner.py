"""Runs an exported policy from its folder, with NumPy and one runtime.

    from runner import Policy

    policy = Policy("path/to/the/export")  # the folder that contains policy.json
    action = policy(observation)

This module does the pre- and postprocessing around the model, as specified by `policy.json`. It
lays observations out as rows, scales them in float64, applies masks, selects the most likely value
of each choice, and rescales actions to the environment's units.

`python runner.py` replays `examples.npz`, prints the differences from the recorded actions, and
exits with 1 if they exceed the tolerances in `policy.json`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import reprlib
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, get_ident
from typing import Any, TextIO

import numpy as np

FORMAT = 1
INVALID = -1e9  # the score of a masked choice
_NOTHING: np.ndarray = np.zeros((), np.float32)


class Policy:
    """A deterministic policy: a function of the observation or, if recurrent, of the episode.

    A runtime serves one thread, so a policy belongs to the first thread that calls it. Create one
    policy per thread.

    Args:
        folder: The folder that contains `policy.json`; by default the folder of this file.

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
        self.folder = Path(__file__).resolve().parent if folder is None else Path(folder)
        self.about = _document(self.folder)
        model, observation, action = (self.about[n] for n in ("model", "observation", "action"))
        check_files(self.folder, self.about, model["files"])
        self.remembers = self.about["memory"] is not None
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
        self._runs = _RUNTIMES[model["format"]](self.folder, model)
        self._quick = self._quick_path()

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
        rows, single = self._rows(observation, action_mask)
        return self._unflatten(self.decide(self._scores(rows)), single)

    def scores(self, observation: Any, action_mask: Any = None) -> np.ndarray:
        """Returns scores `[A]` or `[N, A]`: actions in [-1, 1], then log-probabilities of choices.

        The probabilities of the valid values of a choice sum to 1. Invalid values have the score
        `INVALID`. Arguments and errors are the same as for calling the policy.
        """
        rows, single = self._rows(observation, action_mask)
        scores = self._scores(rows)
        return scores[0] if single else scores

    def begin_episode(self) -> Episode:
        """Starts an episode and returns a function that acts in it step by step.

        If the policy is not recurrent, that function is equivalent to the policy itself.
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
        rows, single = self._rows(observation, action_mask)
        if not single:
            raise ValueError(f"observation must not be a batch; got {len(rows)} observations")
        shapes = [part.shape for part in self.initial_state()]
        parts = [_floats(part) for part in state]
        if [part is not None and part.shape for part in parts] != shapes:
            raise ValueError(
                f"state must have parts of shapes {shapes}, as returned by initial_state() or the "
                f"previous step; got {', '.join(map(_described, state)) or 'none'}"
            )
        before = _floats(previous_action)
        if before is None or before.shape != (self.action_size,):
            raise ValueError(
                f"previous_action must have shape ({self.action_size},), as returned by "
                f"policy.decide(scores); got {_described(previous_action)}"
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
        given = _floats(scores)
        if given is None or given.shape[-1:] != (self.action_size,):
            raise ValueError(
                f"scores must have shape [..., {self.action_size}]; got {_described(scores)}"
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
            given = _floats(observation)
            if given is None or given.ndim not in (1, 2) or given.shape[-1] != self._size:
                raise ValueError(
                    f"observation must have shape [{self._size}] or [N, {self._size}]; got "
                    f"{_described(observation)}"
                )
            return (given[np.newaxis], True) if given.ndim == 1 else (given, False)
        values = list(_values(self._space, observation, "", self._ignored))
        parts = [_numbers(entry, value) for entry, value in zip(self._entries, values)]  # noqa: B905
        lead = parts[0].shape[:-1]
        rows = np.ones((*lead, self._size), np.float32)
        with np.errstate(over="ignore"):
            for entry, part in zip(self._entries, parts):  # noqa: B905
                if part.shape[:-1] != lead:
                    raise ValueError(
                        f"observation{_at(entry['path'])} must have the batch shape of the first "
                        f"entry, {lead}; got {part.shape[:-1]}"
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
        parts = list(_masks(self._action_space, given, "action_mask"))
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
                f"{_described(masks)}"
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
        rewards = _floats(reward)
        if rewards is None or rewards.shape not in ((), (1,)):
            raise ValueError(f"reward must be a number; got {_described(reward)}")
        given = [self._scaled(row), before[np.newaxis], rewards.reshape(1), *state]
        outputs, count = self._run(given), len(state)
        return self._scored(row, outputs[:-count], given[1:]), outputs[-count:]

    def _scaled(self, row: np.ndarray) -> np.ndarray:
        """Returns the model input `[1, V]` of a row `[O]`: scaled, without the mask."""
        visible = row[: self._visible]
        if self._moments:
            mean, scale = self._moments
            scaled = (visible - mean) * scale  # in float64, like the moments
            np.maximum(scaled, -self._clip, out=scaled)
            np.minimum(scaled, self._clip, out=scaled)
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
            given = [_integers(x, spec) for x, spec in zip(given, self._inputs)]  # noqa: B905
            found = self._runs(given)
            return [_numbers_of(q, spec) for q, spec in zip(found, self._outputs)]  # noqa: B905
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
        # Arrays, because ufuncs spend more time converting a Python number than using it.
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
        numbers = _numbers_of(np.arange(-128, 128), self._outputs[0])
        actions = self.to_environment(np.repeat(numbers[:, np.newaxis], self._continuous, axis=1)).T
        is_shared = bool((actions == actions[0]).all())  # all dimensions have equal bounds
        table = actions[0] if is_shared else actions.ravel()
        first = 128 if is_shared else np.arange(self._continuous) * 256 + 128
        # Negative indices count from the end, so a table that begins at 0 needs no offset.
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
            shape, dtype, _ = _leaf(space)
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

    def __call__(
        self, observation: Any, reward: float | None = None, action_mask: Any = None
    ) -> Any:
        """Returns the next action.

        Args:
            observation: One observation as the environment returns it.
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
        if not policy.remembers:
            return policy(observation, action_mask)
        if (self._done is None) != (reward is None):
            raise ValueError(
                "reward must be None for the first observation of an episode"
                if self._done is None
                else "reward is missing: call act(observation, reward) with the previous reward"
            )
        rows, single = policy._rows(observation, action_mask)
        if not single:
            raise ValueError(f"observation must not be a batch; got {len(rows)} observations")
        before = np.zeros(policy.action_size, np.float32) if self._done is None else self._done
        scores, self._state = policy._remembered(
            rows[0], before, 0.0 if reward is None else reward, self._state
        )
        self._done = policy.decide(scores)
        return policy._unflatten(self._done[np.newaxis], single)


# --- files -------------------------------------------------------------------------------------


# The keys of `policy.json` that are needed to act. Optional ones may be null.
_OPTIONAL = ("normalization", "memory")
_KEYS: dict[str, tuple[str, ...]] = {
    "model": ("format", "files", "inputs", "outputs"),
    "observation": ("space", "ignored", "size", "masked", "entries"),
    "normalization": ("mean", "scale", "clip"),
    "memory": ("states",),
    "action": ("space", "continuous", "choices", "firsts", "low", "high", "dtype"),
    "files": (),
}


def _document(folder: Path) -> dict[str, Any]:
    path = folder / "policy.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} not found: pass the folder of an export, which contains policy.json"
        )
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): copy it again, or export again") from error
    if not isinstance(document, dict):
        raise ValueError(f"{path} is not a JSON object: copy it again, or export again")
    if document.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {document.get('format')!r}; this runner reads {FORMAT}: use the "
            "runner.py in the same folder"
        )
    seal = document.pop("sha256", None)
    if seal != hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest():
        raise ValueError(f"{path} has changed since the export: export again")
    if missing := _missing(document):
        raise ValueError(f"{path} lacks {', '.join(missing)}: export again")
    if document["model"]["format"] not in _RUNTIMES:
        raise ValueError(
            f"{path} has a model of format {document['model']['format']!r}; this runner supports "
            f"{', '.join(_RUNTIMES)}: use the runner.py in the same folder"
        )
    return document


def _missing(document: dict[str, Any]) -> list[str]:
    """Returns the names of required keys that `policy.json` lacks."""
    found = []
    for name, keys in _KEYS.items():
        part = document.get(name)
        if isinstance(part, dict):
            found += [f"{name}.{key}" for key in keys if key not in part]
        elif part is not None or name not in _OPTIONAL or name not in document:
            found.append(name)
    return found


def check_files(folder: Path, about: dict[str, Any], names: Any = None) -> None:
    """Checks that no file is missing or was modified since the export.

    Args:
        folder: The folder of the export.
        about: The contents of `policy.json`.
        names: Names of the files to check; None for all.

    Raises:
        ValueError: If a file is missing, modified, or outside the folder. The message names it.
    """
    for name in about["files"] if names is None else names:
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(f"policy.json lists {name!r}, which is outside its folder")
        if not path.is_file():
            raise ValueError(
                f"{path} is missing but listed in policy.json: copy the whole folder again"
            )
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != about["files"].get(name, {}).get("sha256"):
            raise ValueError(
                f"{path} has changed since the export (its checksum differs from that in "
                "policy.json): export again"
            )


# --- spaces ------------------------------------------------------------------------------------


def _inner(space: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]] | None:
    """Returns the subspaces of a `Dict` or `Tuple` by key or index, or None for other spaces."""
    if "Dict" in space:
        return [(key, inner) for key, inner in space["Dict"]]
    return list(enumerate(space["Tuple"])) if "Tuple" in space else None


def _leaf(space: dict[str, Any]) -> tuple[tuple[int, ...], np.dtype[Any], tuple[int, ...]]:
    """Returns the shape and dtype of a space, and the number of values of each choice."""
    ((kind, about),) = space.items()
    if kind == "Box":
        return tuple(about[0]), np.dtype(about[1]), ()
    if kind == "MultiBinary":
        shape = tuple(np.atleast_1d(about).tolist())
        return shape, np.dtype(np.int8), (2,) * math.prod(shape)
    dtype = np.dtype(about[2] if len(about) > 2 else np.int64)
    return np.shape(about[0]), dtype, tuple(np.ravel(about[0]).tolist())


def _floats(value: Any) -> np.ndarray | None:
    """Converts a value to float32; returns None if it is not numeric."""
    try:
        return np.asarray(value, np.float32)
    except (TypeError, ValueError, OverflowError):
        return None


def _described(value: Any) -> str:
    """Describes an invalid value: the shape of an array, else the value itself."""
    array = _array(value)
    if array.dtype == object or not array.ndim:
        return f"{reprlib.repr(value)} ({type(value).__name__})"
    return f"{array.shape}" if array.dtype.kind in "biuf" else f"{array.shape} of {array.dtype}"


def _array(value: Any) -> np.ndarray:
    """Converts a value to an array; ragged lists become a 0-d array of dtype object."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty((), object)


def _below(path: str, key: Any) -> str:
    return f"{path}/{key}".lstrip("/")


def _at(path: str) -> str:
    return f" {path!r}" if path else ""


def _values(space: dict[str, Any], observation: Any, path: str, ignored: Any) -> Any:
    """Yields the parts of an observation that belong to entries, in order."""
    inner = _inner(space)
    if inner is None:
        yield observation
        return
    names = [key for key, _ in inner]
    kept = {key: _below(path, key) for key in names if _below(path, key) not in ignored}
    if "Dict" in space:
        keys = set(observation) if hasattr(observation, "keys") else None
        if keys is None or not kept.keys() <= keys <= set(names):
            got = type(observation) if keys is None else list(observation)
            raise ValueError(
                f"observation{_at(path)} must be a dictionary with keys {names}; got {got}"
            )
    elif not isinstance(observation, (tuple, list)) or len(observation) != len(names):
        raise ValueError(
            f"observation{_at(path)} must be a tuple of length {len(names)}; got "
            f"{type(observation)}"
        )
    for key, part in inner:
        if key in kept:
            yield from _values(part, observation[key], kept[key], ignored)


def _numbers(entry: dict[str, Any], value: Any) -> np.ndarray:
    """Validates one part of an observation and returns its columns `[..., n]`."""
    shape, dtype, at = tuple(entry["shape"]), np.dtype(entry["dtype"]), _at(entry["path"])
    array = _array(value)
    lead = array.shape[: array.ndim - len(shape)]
    if array.shape != (*lead, *shape) or len(lead) > 1:
        raise ValueError(f"observation{at} must have shape {shape}; got {_described(value)}")
    if array.dtype != dtype and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise ValueError(f"observation{at} must have dtype {dtype}; got {array.dtype}")
    if entry["kind"] != "choice":
        return array.reshape((*lead, entry["stop"] - entry["start"]))
    sizes, firsts = np.array(entry["sizes"]), np.array(entry["firsts"])
    indices = array.reshape((*lead, len(sizes))).astype(np.int64) - firsts
    if ((indices < 0) | (indices >= sizes)).any():
        raise ValueError(
            f"observation{at} must be in its space, with {sizes.tolist()} values starting at "
            f"{firsts.tolist()}; got {array.tolist()}"
        )
    hot = np.zeros((*lead, int(sizes.sum())), np.float32)
    np.put_along_axis(hot, indices + np.cumsum([0, *sizes[:-1]]), 1.0, axis=-1)
    return hot


def _masks(space: dict[str, Any], given: Any, path: str) -> Any:
    """Yields the name and the mask `[..., n]` of each choice."""
    inner = _inner(space)
    if inner is not None:
        names = {key for key, _ in inner}
        if given is not None:
            if not hasattr(given, "keys") and not isinstance(given, tuple):
                raise ValueError(f"{path} must have the entries {sorted(names)}; got {type(given)}")
            keys = set(given) if hasattr(given, "keys") else set(range(len(given)))
            keys -= {f"_{key}" for key in keys} - names  # added by Gymnasium's vector environments
            if keys != names:
                raise ValueError(f"{path} must have the entries {sorted(names)}; got {keys}")
        for key, part in inner:
            yield from _masks(part, None if given is None else given[key], f"{path}[{key!r}]")
        return
    if isinstance(given, np.ndarray) and given.size and all(part is None for part in given.ravel()):
        given = None
    if "Box" in space:
        if given is not None:
            raise ValueError(f"{path} must be None for a Box, which has no choices; got {given}")
        return
    shape, _, sizes = _leaf(space)
    if given is None:
        yield from ((path, np.ones(size, bool)) for size in sizes)
        return
    if "Discrete" in space:
        given = (given,)
    elif "MultiBinary" in space:
        # 0 and 1 force that value, 2 allows both.
        asked = _array(given)
        lead = asked.shape[: asked.ndim - len(shape)]
        if asked.shape != (*lead, *shape) or len(lead) > 1:
            raise ValueError(f"{path} must have shape {shape}; got {_described(given)}")
        if not np.isin(asked, (0, 1, 2)).all():
            raise ValueError(f"{path} must contain only 0, 1 and 2; got {asked.tolist()}")
        bits = np.moveaxis(asked.reshape((*lead, -1)), -1, 0)
        given = tuple(np.stack([part != 1, part != 0], axis=-1) for part in bits)
    elif len(shape) != 1:
        raise ValueError(
            f"{path}: only a MultiDiscrete with one axis can be masked; got shape {shape}"
        )
    if not isinstance(given, tuple) or len(given) != len(sizes):
        raise ValueError(
            f"{path} must be a tuple of {len(sizes)} masks; got {_described(given)} (a list is "
            "a batch, with one mask per observation)"
        )
    for index, (part, size) in enumerate(zip(given, sizes)):  # noqa: B905
        at = path if "Discrete" in space else f"{path}[{index}]"
        array = np.ones(size, bool) if part is None else _array(part)
        if array.ndim not in (1, 2) or array.shape[-1] != size:
            raise ValueError(f"{at} must have shape ({size},); got {_described(part)}")
        if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
            raise ValueError(f"{at} must contain only 0 and 1; got {array.tolist()}")
        yield at, array == 1


# --- runtimes: functions from model inputs to outputs, in the order of policy.json -------------


def _integers(x: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    q = np.rint(x / np.float32(spec["scale"])) + np.float32(spec["zero_point"])
    return np.minimum(np.maximum(q, -128), 127).astype(np.int8)


def _numbers_of(q: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    steps = q.astype(np.float32) - np.float32(spec["zero_point"])
    return steps * np.float32(spec["scale"])


def _needs(runtime: str, package: str, error: ImportError) -> ImportError:
    """Returns an error with the command that installs a runtime."""
    return ImportError(f"this policy needs {runtime}: pip install {package} ({error})")


class _SavedModel:
    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        try:
            import tensorflow as tf
        except ImportError as error:
            raise _needs("TensorFlow", "tensorflow", error) from error
        self._loaded = tf.saved_model.load(str(folder / "saved_model"))  # owns the function
        self._call, self._constant = self._loaded.signatures["serving_default"], tf.constant
        self._inputs = [spec["name"] for spec in model["inputs"]]
        self._outputs = [spec["name"] for spec in model["outputs"]]

    def __call__(self, given: list[np.ndarray]) -> list[np.ndarray]:
        named = {name: self._constant(x) for name, x in zip(self._inputs, given)}  # noqa: B905
        found = self._call(**named)
        return [found[name].numpy() for name in self._outputs]


class _LiteRT:
    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError as error:
            raise _needs("LiteRT", "ai-edge-litert", error) from error
        # Not by path: in some locales, LiteRT cannot read non-ASCII paths.
        content = (folder / model["files"][0]).read_bytes()
        self._interpreter = Interpreter(model_content=content, num_threads=1)
        self._interpreter.allocate_tensors()
        self._inputs = [spec["index"] for spec in model["inputs"]]
        self._outputs = [spec["index"] for spec in model["outputs"]]
        self.run = self._one_to_one()

    def _one_to_one(self) -> Any:
        """Returns a function from the first input to the first output, without lookups per call."""
        write, invoke, read = (
            getattr(self._interpreter, name) for name in ("set_tensor", "invoke", "get_tensor")
        )
        source, target = self._inputs[0], self._outputs[0]

        def run(given: np.ndarray) -> np.ndarray:
            write(source, given)
            invoke()
            return read(target)

        return run

    def __call__(self, given: list[np.ndarray]) -> list[np.ndarray]:
        interpreter = self._interpreter
        for index, x in zip(self._inputs, given):  # noqa: B905
            interpreter.set_tensor(index, x)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in self._outputs]


class _ONNX:
    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise _needs("ONNX Runtime", "onnxruntime", error) from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        # Not by path: in some locales, ONNX Runtime cannot read non-ASCII paths.
        content = (folder / model["files"][0]).read_bytes()
        self._session = onnxruntime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        self._inputs = [spec["name"] for spec in model["inputs"]]
        self._outputs = [spec["name"] for spec in model["outputs"]]

    def __call__(self, given: list[np.ndarray]) -> list[np.ndarray]:
        return list(self._session.run(self._outputs, dict(zip(self._inputs, given))))  # noqa: B905


class _C:
    """Compiles `policy.c` on this machine and calls it. `$CC` selects another compiler."""

    def __init__(self, folder: Path, model: dict[str, Any]) -> None:
        import ctypes  # not at the top, to save memory in other formats
        import shlex
        import subprocess
        import tempfile

        words = shlex.split(os.environ.get("CC", "")) or ["cc"]
        with tempfile.TemporaryDirectory(prefix="eagerly-") as private:
            library = Path(private, "policy.so")
            flags = ["-std=c99", "-O2", "-shared", "-fPIC"]
            command = [*words, *flags, str(folder / "policy.c"), "-o", str(library), "-lm"]
            try:
                done = subprocess.run(command, capture_output=True, text=True)
            except FileNotFoundError as error:
                raise ImportError(
                    f"this policy needs a C compiler, and {words[0]} was not found: install one, "
                    "or set CC to its name"
                ) from error
            if done.returncode:
                raise ValueError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
            self._call = ctypes.CDLL(str(library)).policy_network
        self._call.argtypes, self._call.restype = [ctypes.c_void_p] * 2, None
        ((given,), (made,)) = model["inputs"], model["outputs"]
        self._dtype, self._shape = np.dtype(given["dtype"]), tuple(made["shape"])

    def __call__(self, given: list[np.ndarray]) -> list[np.ndarray]:
        row, output = np.ascontiguousarray(given[0]), np.empty(self._shape, self._dtype)
        self._call(row.ctypes.data, output.ctypes.data)
        return [output]


_RUNTIMES: dict[str, Any] = {
    "saved-model": _SavedModel,
    "litert": _LiteRT,
    "onnx": _ONNX,
    "c": _C,
}


# --- examples ----------------------------------------------------------------------------------


def replay(policy: Policy, examples: Any) -> np.ndarray:
    """Runs the policy on the observations in `examples.npz`, by episode if it is recurrent.

    Args:
        policy: The policy.
        examples: The arrays of `examples.npz` by name.

    Returns:
        Rows of actions `[N, C + k]` in the environment's units.
    """
    prefix, named = "observation", {}
    for name in examples:
        if name == prefix or name.startswith(f"{prefix}/"):
            named[name[len(prefix) + 1 :]] = examples[name]
    masks = examples.get("action_mask")
    found, state = [], list[np.ndarray]()
    before = np.zeros(policy.action_size, np.float32)
    for index in range(len(examples["action"])):
        parts = {path: values[index] for path, values in named.items()}
        rows, _ = policy._rows(_put_together(policy._space, parts, ""), None)
        row = rows[0]
        if masks is not None:
            row[policy._visible :] = masks[index]
        if policy._quick is not None:
            found.append(policy._quick(row))
            continue
        if not policy.remembers:
            found.append(policy.to_environment(policy.decide(policy._scores(rows)))[0])
            continue
        if examples["begins"][index]:
            state, before = policy.initial_state(), np.zeros_like(before)
        scores, state = policy._remembered(row, before, examples["reward"][index], state)
        before = policy.decide(scores)
        found.append(policy.to_environment(before))
    return np.stack(found)


def _put_together(space: dict[str, Any], values: dict[str, Any], path: str) -> Any:
    """Builds an observation from its entries' values; ignored tuple elements are None."""
    inner = _inner(space)
    if inner is None:
        return values.get(path)
    parts = {key: _put_together(part, values, _below(path, key)) for key, part in inner}
    if "Tuple" in space:
        return tuple(parts.values())
    return {key: part for key, part in parts.items() if part is not None}


def differences(
    about: dict[str, Any], found: np.ndarray, expected: np.ndarray, scores: np.ndarray
) -> dict[str, float]:
    """Measures the differences between rows of actions `[N, C + k]`.

    Args:
        about: The contents of `policy.json`.
        found: The actions of the model.
        expected: The expected actions.
        scores: `[N, A]`, the scores of the expected actions.

    Returns:
        For continuous actions, the `largest`, `mean` and `percentile_99` difference, as a fraction
        of the span between their bounds, and for int8 models the fraction that is `unequal`. For
        choices, the fraction of `other_choices`, excluding near ties, where the two best scores
        differ by no more than the margin.
    """
    action, given = about["action"], about["tolerance"]
    count = int(action["continuous"])
    measured: dict[str, float] = {}
    if count:
        low, high = (np.array(action[end], np.float64)[:count] for end in ("low", "high"))
        # If bounds are far from 0, the spacing of float32 may exceed the tolerance.
        steps = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32))
        apart = np.abs(found[:, :count].astype(np.float64) - expected[:, :count])
        apart = np.where(apart <= steps, 0.0, apart) / (high - low)
        measured["largest"] = float(apart.max())
        measured["mean"] = float(apart.mean())
        measured["percentile_99"] = float(np.percentile(apart, 99))
        if "unequal" in given:
            measured["unequal"] = float((apart > 1e-6).mean())
    if action["choices"]:
        start, clear = count, []
        for size in action["choices"]:
            best = np.sort(scores[:, start : start + size].astype(np.float64), axis=1)
            # A choice with a single value has no second score.
            best = np.pad(best, ((0, 0), (1, 0)), constant_values=-np.inf)
            clear.append(best[:, -1] - best[:, -2] > given["margin"])
            start += size
        others = found[:, count:] != expected[:, count:]
        measured["other_choices"] = float((others & np.stack(clear, axis=1)).mean())
    return measured


def violations(measured: dict[str, float], limits: dict[str, float]) -> list[str]:
    """Returns a message for each difference that exceeds its limit or is NaN."""
    return [
        f"{name} is {measured[name]:.3g} (limit {limit:g})"
        for name, limit in limits.items()
        if name in measured and not measured[name] <= limit
    ]


def main() -> int:
    """Replays the examples in this folder and returns the exit code."""
    folder = Path(__file__).resolve().parent
    try:
        policy = Policy(folder)
        check_files(folder, policy.about)
        with np.load(folder / "examples.npz", allow_pickle=False) as file:
            examples = {name: file[name] for name in file.files}
        found = replay(policy, examples)
    except (ImportError, ValueError, OSError, FloatingPointError) as error:
        _write(sys.stderr, f"Error: {error}")
        return 1
    measured = differences(policy.about, found, examples["action"], examples["scores"])
    wrong = violations(measured, policy.about["tolerance"])
    said = ", ".join(f"{name} {value:.3g}" for name, value in measured.items())
    _write(sys.stdout, f"replayed {len(found)} examples, differences: {said}")
    for line in wrong:
        _write(sys.stderr, f"Error: {line}")
    return 1 if wrong else 0


def _write(stream: TextIO | None, line: str) -> None:
    """Writes a line, ignoring a closed stream so that the exit code still reports the result."""
    if stream is None:  # closed when Python started
        return
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except BrokenPipeError:
        # Discard the rest of the buffer, which Python would otherwise fail to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
