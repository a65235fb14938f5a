"""Replays recorded examples and measures the differences from the recorded actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from .policy import Policy
from .spaces import below, inner_spaces


def replay(policy: Policy, examples: Any) -> np.ndarray:
    """Runs the policy on the observations in `examples.npz`, by episode if it is recurrent.

    Args:
        policy: The policy.
        examples: The arrays of `examples.npz` by name.

    Returns:
        Rows of actions `[N, C + k]` in the environment's units.

    Raises:
        ValueError: If the preprocessing of a raw observation differs from the recorded one.
    """
    prefix, named = "observation", {}
    for name in examples:
        if name == prefix or name.startswith(f"{prefix}/"):
            named[name[len(prefix) + 1 :]] = examples[name]
    masks, raw = examples.get("action_mask"), examples.get("raw_observation")
    layout, found, state = policy._observations, [], list[np.ndarray]()
    before = np.zeros(policy.action_size, np.float32)
    for index in range(len(examples["action"])):
        parts = {path: values[index] for path, values in named.items()}
        rows, _ = layout.rows(_put_together(layout.space, parts, ""), None)
        row = rows[0]
        if raw is not None:
            if examples["begins"][index]:
                episode = policy.start_episode()
            made, _ = layout.rows(episode.preprocess(raw[index]), None)
            if not np.array_equal(made, rows):
                raise ValueError(f"the preprocessing of example {index} differs from the recorded")
        if masks is not None:
            row[layout.visible :] = masks[index]
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
    inner = inner_spaces(space)
    if inner is None:
        return values.get(path)
    parts = {key: _put_together(part, values, below(path, key)) for key, part in inner}
    if "Tuple" in space:
        return tuple(parts.values())
    return {key: part for key, part in parts.items() if part is not None}


def step_of(dtype: np.dtype, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Returns the difference that rounding to the dtype of actions can cause, `[C]`, float64.

    For float16, or if bounds are far from 0, it may exceed the tolerance.
    """
    kind = np.float16 if dtype == np.float16 else np.float32
    return np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(kind)).astype(np.float64)


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
        apart = np.abs(found[:, :count].astype(np.float64) - expected[:, :count])
        apart = np.where(apart <= step_of(found.dtype, low, high), 0.0, apart) / (high - low)
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
