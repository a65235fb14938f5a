"""Adjusts the scales of kernels until every runtime rounds alike.

A sum of integers is multiplied by a scale and rounded. Our C and LiteRT for microcontrollers do
this in fixed point, LiteRT's reference kernels in float64, and XNNPACK in float32, where a product
has a relative error of up to 2^-22. Results differ only if a product is that close to a rounding
boundary (k + 1/2). Each column has 255 boundaries, and because the sums are integers, only a few of
them give a product near each boundary. This module checks all such sums. If the runtimes disagree
on one, the column's scale is changed by some units in the last place until they agree on all sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eagerly.export.integers import multipliers
from eagerly.policies.integer_grids import LEAST, MOST, column_scales, grid, layer_integers
from eagerly.policies.network import ActorNetwork

# Maximum change of a scale in units in the last place: a relative change of at most 1.2e-5.
FARTHEST = 100
# Sums to check around each rounding boundary, as offsets from the last sum before it.
AROUND = np.arange(-3, 5)


@dataclass(frozen=True)
class _TiedLayer:
    name: str
    input_scale: np.float32
    input_zero_point: int
    output_scales: np.ndarray  # [units]
    output_zero_points: np.ndarray  # [units]
    least: np.ndarray  # [units]


def without_ties(network: ActorNetwork) -> ActorNetwork:
    """Adjusts kernel scales so that C, XNNPACK and the reference kernels agree on all inputs.

    The relative change of a weight is at most 1.2e-5, and 0 if the runtimes already agree on its
    column.

    Args:
        network: A quantized MLP.

    Returns:
        The network to export. It may have ties (see `count_ties`) only in columns of zeros, columns
        whose scale is determined by the bias, and columns whose scale is so small that every
        change of the scale leaves a sum near a boundary.
    """
    weights = dict(network.weights)
    for layer in _layers(network):
        kernel, bias = (weights[f"{layer.name}/{part}"] for part in ("kernel", "bias"))
        weights[f"{layer.name}/kernel"] = _moved(layer, kernel, bias)
    return ActorNetwork(network.architecture, weights)


def count_ties(network: ActorNetwork) -> int:
    """Counts the units of a quantized MLP that have a sum on which the runtimes disagree."""
    count = 0
    for layer in _layers(network):
        kernel, bias = (network.weights[f"{layer.name}/{part}"] for part in ("kernel", "bias"))
        count += int(_disagreeing(layer, kernel, bias, np.arange(len(bias))).sum())
    return count


def _layers(network: ActorNetwork) -> Iterator[_TiedLayer]:
    architecture = network.architecture
    *ranges, of_actions, of_logits = network.ranges
    grids, sizes = [grid(*each) for each in ranges], architecture.hidden_sizes
    for index, units in enumerate(sizes):
        scale, zero_point = grids[index + 1]
        points = np.full(units, zero_point)
        yield _TiedLayer(
            f"hidden_{index}",
            *grids[index],
            np.full(units, scale),
            points,
            np.maximum(points, LEAST),
        )
    head = architecture.head
    ends = [grid(*of_actions)] * head.continuous
    ends += [grid(*of_logits)] * (head.size - head.continuous)
    scales, points = (np.array(part) for part in zip(*ends, strict=True))
    yield _TiedLayer("action", *grids[-1], scales, points, np.full(head.size, LEAST))


def _moved(layer: _TiedLayer, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Returns the kernel `[I, units]` after rescaling the columns on which runtimes disagree."""
    given = kernel.astype(np.float32)
    moved, largest = given.copy(), np.abs(given).max(axis=0)
    columns = np.flatnonzero(_disagreeing(layer, moved, bias, np.arange(len(bias))))
    # If the bias determines a scale, changing the kernel would not change the scale.
    scales = column_scales(given, np.zeros_like(bias), layer.input_scale)
    movable = (largest > 0.0) & (scales == column_scales(given, bias, layer.input_scale))
    columns = columns[movable[columns]]
    for step in range(1, FARTHEST + 1):
        for units in (step, -step):
            if not len(columns):
                return moved.astype(kernel.dtype) if (moved != given).any() else kernel
            wanted = (largest[columns].view(np.int32) + np.int32(units)).view(np.float32)
            factor = wanted.astype(np.float64) / largest[columns]
            tried = (given[:, columns] * factor).astype(np.float32)
            wrong = _disagreeing(layer, tried, bias[columns], columns)
            moved[:, columns[~wrong]] = tried[:, ~wrong]
            columns = columns[wrong]
    return moved.astype(kernel.dtype)


def _disagreeing(
    layer: _TiedLayer, kernel: np.ndarray, bias: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Returns a mask `[units]` of the columns with a sum that runtimes round differently.

    Args:
        layer: The layer.
        kernel: `[I, units]`, the columns to check.
        bias: `[units]`.
        columns: `[units]`, indices of the columns in the layer.
    """
    q, steps, scales = layer_integers(kernel, bias, layer.input_scale)
    ends = q.astype(np.int64) * (np.array([LEAST, MOST])[:, None, None] - layer.input_zero_point)
    steps = steps.astype(np.int64)
    low, high = steps + ends.min(axis=0).sum(axis=0), steps + ends.max(axis=0).sum(axis=0)
    output_scales, points = layer.output_scales[columns], layer.output_zero_points[columns]
    wide = layer.input_scale.astype(np.float64) * scales / output_scales.astype(np.float64)
    single = (layer.input_scale * scales) / output_scales
    halves = np.arange(LEAST, MOST)[:, np.newaxis] - points + 0.5  # [255, units]
    sums = np.floor(halves / wide).astype(np.int64) + AROUND[:, np.newaxis, np.newaxis]
    sums = np.clip(sums, low, high)
    m, shifts = (part.astype(np.int64) for part in multipliers(wide))
    products = sums * wide
    ways = [
        (sums * m + (np.int64(1) << (shifts - 1))) >> shifts,
        np.floor(products + 0.5),
        np.rint(products),
        np.rint(sums.astype(np.float32) * single),
    ]
    least = layer.least[columns]
    first, *others = (np.clip(way + points, least, MOST) for way in ways)
    return np.any([(first != other).any(axis=(0, 1)) for other in others], axis=0)
