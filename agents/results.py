"""Results of updates: metrics, and values for each row of the batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Tensors = dict[str, tf.Tensor]
_STATEFUL_DRAWS = {
    *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"),
    *("RandomGamma", "RandomPoisson", "RandomPoissonV2", "RandomShuffle", "Multinomial"),
    *("ParameterizedTruncatedNormal",),
}


def two_dictionaries(results: Any) -> tuple[Tensors, Tensors]:
    """Returns the results of an update as metrics and per-row values.

    Raises:
        TypeError: If they are not two dictionaries.
    """
    if not (isinstance(results, tuple) and [type(each) for each in results] == [dict, dict]):
        raise TypeError(
            "an update must return two dictionaries, metrics and per-row values; got "
            f"{type(results).__name__}: return metrics, {{}} without per-row values"
        )
    metrics, per_row = results
    return metrics, per_row


def checked(
    results: tuple[Tensors, Tensors], rows: int, dtype: tf.DType, wanted: Sequence[str]
) -> tuple[Tensors, Tensors]:
    """Returns metrics as `[1]`, and the per-row values that the sampler needs as `[1, B]`.

    Raises:
        ValueError: If a value has another shape, or a wanted value is missing.
    """
    metrics, per_row = (
        {name: tf.cast(value, dtype)[tf.newaxis] for name, value in each.items()}
        for each in results
    )
    for name, value in metrics.items():
        if value.shape != (1,):
            raise ValueError(f"metric {name} must be a scalar; got shape {value.shape[1:]}")
    for name, value in per_row.items():
        if value.shape != (1, rows):
            raise ValueError(
                f"{name} must have shape [{rows}], one value per row; got shape {value.shape[1:]}"
            )
    if missing := [name for name in wanted if name not in per_row]:
        raise ValueError(
            f"the sampler requires per-row values {missing[0]}; this algorithm returns "
            f"{', '.join(per_row) or 'nothing'}"
        )
    return metrics, {name: per_row[name] for name in wanted}


def check_names(metrics: Tensors, names: Sequence[str]) -> None:
    """Validates that metrics have the same names in all updates with equal due intervals.

    Raises:
        ValueError: If the names differ. The message lists both sets.
    """
    if set(names) != metrics.keys():
        raise ValueError(
            "metrics must have the same names in all updates with equal due intervals; got "
            f"{', '.join(names)}, then {', '.join(metrics)}"
        )


def check_draws(graph: tf.Graph) -> None:
    """Validates that a graph draws no random numbers from TensorFlow's global generator.

    Checkpoints do not contain the state of that generator.

    Raises:
        ValueError: If the graph does. The message names the operation.
    """
    functions = graph.as_graph_def().library.function
    names = [node.op for function in functions for node in function.node_def]
    for name in (*names, *(operation.type for operation in graph.get_operations())):
        if name in _STATEFUL_DRAWS:
            raise ValueError(
                f"an update draws from TensorFlow's global generator ({name}), whose state is not "
                "in checkpoints: draw from `random`"
            )


def check_finite(
    metrics: Tensors, updates: range, names_of: Callable[[int], Sequence[str]]
) -> None:
    """Validates in Python that metrics are finite, because XLA silently drops assertions.

    Args:
        metrics: The values of each metric in the updates that return it.
        updates: The numbers of the updates.
        names_of: Returns the names of the metrics that an update returns.

    Raises:
        FloatingPointError: If a metric is not finite. The message names the first such update.
    """
    for values in metrics.values():
        if not np.isfinite(values).all():
            break
    else:
        return
    left = {name: iter(values) for name, values in metrics.items()}
    for update in updates:
        for name in names_of(update):
            if not np.isfinite(value := next(left[name])):
                raise FloatingPointError(
                    f"{name} became {value} in update {update}: if it diverged, lower the learning "
                    "rates or scale the rewards; otherwise, check how the algorithm computes it"
                )


def joined(parts: Iterable[Any], concat: Callable[[list[Any]], Any]) -> tuple[Tensors, Tensors]:
    """Joins the metrics and the per-row values of consecutive updates."""
    found: tuple[dict[str, Any], dict[str, Any]] = {}, {}
    for part in parts:
        for lists, values in zip(found, part, strict=False):
            for name, value in values.items():
                lists.setdefault(name, []).append(value)
    for lists in found:
        for name, values in lists.items():
            lists[name] = concat(values)
    return found
