"""What updates return: metrics, and values for each row of their batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Tensors = dict[str, tf.Tensor]
_STATEFUL_DRAWS = {
    *("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"),
    *("RandomGamma", "RandomPoisson", "RandomPoissonV2", "RandomShuffle", "Multinomial"),
    *("ParameterizedTruncatedNormal",),
}


def checked(results: Any, rows: int, dtype: tf.DType) -> tuple[Tensors, Tensors]:
    """Returns the results of an update in one dtype.

    Args:
        results: Metrics, scalars by name; and values for each row, `[B]` by name.
        rows: B.
        dtype: The dtype.

    Raises:
        TypeError: If they are not two dictionaries.
        ValueError: If a value has another shape.
    """
    if not (isinstance(results, tuple) and [type(each) for each in results] == [dict, dict]):
        raise TypeError(
            "an update must return two dictionaries, metrics and values for each row; got "
            f"{type(results).__name__}: return metrics, {{}} where there is nothing for each row"
        )
    metrics, per_row = ({n: tf.cast(v, dtype) for n, v in each.items()} for each in results)
    for name, value in metrics.items():
        if value.shape.rank != 0:
            raise ValueError(f"metric {name} must be a scalar; got shape {value.shape}")
    for name, value in per_row.items():
        if value.shape != (rows,):
            raise ValueError(
                f"{name} must have shape [{rows}], a value for each row; got shape {value.shape}"
            )
    return metrics, per_row


def check_draws(graph: tf.Graph) -> None:
    """Refuses random numbers of TensorFlow's own generator, whose state no checkpoint keeps.

    Raises:
        ValueError: Naming the operation.
    """
    nodes = [
        node for function in graph.as_graph_def().library.function for node in function.node_def
    ]
    names = [node.op for node in nodes] + [operation.type for operation in graph.get_operations()]
    for name in names:
        if name in _STATEFUL_DRAWS:
            raise ValueError(
                f"an update draws from TensorFlow's own generator ({name}), whose state no "
                "checkpoint keeps: draw from `random`"
            )


def check_names(expected: Iterable[str], metrics: Tensors) -> None:
    """Refuses metrics that come and go.

    Raises:
        ValueError: If they are not those that an update of the same phase returned before.
    """
    if set(expected) != metrics.keys():
        raise ValueError(
            "metrics must be the same in all updates of a phase; got "
            f"{', '.join(expected)}, then {', '.join(metrics)}"
        )


def wanted_of(per_row: Tensors, name: str) -> tf.Tensor:
    """Returns what a sampler wants of each row.

    Raises:
        ValueError: If the update did not return it.
    """
    if name not in per_row:
        raise ValueError(
            f"the sampler wants {name} of each row; this algorithm returns "
            f"{', '.join(per_row) or 'nothing'}"
        )
    return per_row[name]


def named_metrics(
    names: Sequence[str], history: np.ndarray, numbers: Sequence[int], returned: Iterable[Any]
) -> dict[str, np.ndarray]:
    """Splits what the updates of a call returned by name, and refuses what is not finite.

    XLA drops assertions silently, so the check is made here.

    Args:
        names: M names.
        history: `[K, M]`, anything where an update did not return a metric.
        numbers: The numbers of the updates.
        returned: The names that each of them returned.

    Raises:
        FloatingPointError: Naming the first update in which a metric was not finite.
    """
    there = np.array([[name in found for name in names] for found in returned], bool)
    for k, column in np.argwhere(there & ~np.isfinite(history))[:1]:
        raise FloatingPointError(
            f"{names[column]} became {history[k, column]} in update {numbers[k]}: lower the "
            "learning rates, or scale the rewards"
        )
    return {name: history[there[:, place], place] for place, name in enumerate(names)}
