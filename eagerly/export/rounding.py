"""Rounds kernels so that later rows compensate for the rounding errors of earlier ones.

Rounding to nearest is optimal for each weight in isolation, but not for the output of the layer. If
inputs are correlated, one weight can compensate for the error of another (Frantar et al. 2022,
"GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", §3, Eq. 2 and
3).
"""

from __future__ import annotations

import numpy as np

from eagerly.policies.integer_grids import MOST, column_scales, grid, quantized, quantized_layer
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import ACTIVATIONS

# Added to the diagonal of the covariance, as a fraction of its mean, because constant inputs or too
# few rows make the covariance singular. GPTQ uses the same value.
DAMPING = 0.01


def rounded(network: ActorNetwork, rows: np.ndarray) -> ActorNetwork:
    """Rounds the kernels of a quantized network, and corrects biases by the mean error.

    Args:
        network: The quantized network, with its ranges.
        rows: Scaled observations `[N, V]`.
    """
    architecture, weights = network.architecture, dict(network.weights)
    layers = [*(f"hidden_{index}" for index in range(len(architecture.hidden_sizes))), "action"]
    exact, rough = rows, quantized(rows, *network.ranges[0])
    for layer, before, after in zip(layers, network.ranges, network.ranges[1:], strict=False):
        kernel, bias = (weights[f"{layer}/{part}"] for part in ("kernel", "bias"))
        expected = exact @ kernel + bias
        input_scale = grid(*before)[0]
        kernel = compensated(kernel, rough, column_scales(kernel, bias, input_scale))
        bias = bias + (expected - (rough @ kernel + bias)).mean(axis=0)
        weights[f"{layer}/kernel"], weights[f"{layer}/bias"] = kernel, bias
        kernel, bias = quantized_layer(kernel, bias, input_scale)
        exact = ACTIVATIONS[architecture.activation](expected)
        rough = quantized(ACTIVATIONS[architecture.activation](rough @ kernel + bias), *after)
    return ActorNetwork(architecture, weights)


def compensated(kernel: np.ndarray, inputs: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Rounds a kernel to its grid, reducing the output error on the given inputs of the layer.

    Args:
        kernel: `[I, units]`.
        inputs: `[N, I]`.
        scales: `[units]`, the scales of the columns, which do not change.

    Returns:
        The rounded kernel, `[I, units]`.
    """
    inputs = inputs.astype(np.float64)
    covariance = np.atleast_2d(np.cov(inputs, rowvar=False, bias=True))
    damping = DAMPING * np.diag(covariance).mean()
    covariance += np.eye(len(covariance)) * (damping if damping > 0.0 else 1.0)
    order = np.argsort(-np.diag(covariance))  # highest variance first
    inverse = np.linalg.inv(covariance[np.ix_(order, order)])
    upper = np.linalg.cholesky(inverse).T
    given = kernel.astype(np.float64)[order]
    wanted, done = given.copy(), np.empty_like(given)
    scales = scales.astype(np.float64)
    # Keep the largest weight of a column, because it determines the scale, unless the bias does.
    largest = np.argmax(np.abs(given), axis=0)
    ends = np.rint(np.abs(given).max(axis=0) / scales) == MOST
    for row, factors in enumerate(upper):
        nearest = np.clip(np.rint(wanted[row] / scales), -MOST, MOST) * scales
        done[row] = np.where(ends & (largest == row), given[row], nearest)
        error = (wanted[row] - done[row]) / factors[row]
        wanted[row + 1 :] -= np.outer(factors[row + 1 :], error)
    result = np.empty_like(kernel)
    result[order] = done
    return result
