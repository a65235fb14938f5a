"""Post-training quantisation: the ranges of an actor's 8-bit grids, of observations that it saw.

All in NumPy. Before ranges are taken, two rescalings change the actor's weights and not what it
computes, so that fewer steps of the grids are wasted:

- Each column of the observation is shifted and scaled to fill [-1, 1]. It goes into the
  normalisation, which a quantised file leaves to its caller; an actor that had none gets one.
- Hidden units are equalised (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization
  and Bias Correction", §4.1): a relu commutes with a positive factor, which is divided out of the
  next kernel. As there the factor balances a unit's range with its weights in the next layer;
  unlike there the range is that of its activations, because kernels have a scale for each column.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.network import ActorNetwork
from eagerly.policies.operations import NumpyOperations
from eagerly.policies.quantization import SATURATED

# Of what a hidden layer gives, the few largest of a hundred thousand are cut off at the end of its
# range, and units are balanced without their largest of a thousand. Errors in the actions of a
# normalised HalfCheetah-v5, of the span on average and as 99th percentile, on replay and on greedy
# observations: 0.55 % and 4.7 %, 0.40 % and 3.2 %. With the largest of all they are 0.64 % and
# 5.8 %, 0.45 % and 3.7 %; cutting one off in two thousand gives 0.62 % and 6.0 % on replay. Columns
# lose nothing: cutting them changes little on average, and the largest error doubles.
RANGE, BALANCE = 0.99999, 0.999


def refusal(architecture: ActorArchitecture) -> str | None:
    """Says in a sentence why an actor cannot be quantised to int8, or returns None."""
    if architecture.encoder is not None:
        found = "encoders or a memory"
    elif architecture.layer_norm:
        found = "layer normalisation"
    elif architecture.activation != "relu":
        found = f"{architecture.activation} as its activation"
    else:
        return None
    return f"an actor with {found} cannot be quantised to int8: an MLP of relu layers alone can"


class _Recorder(NumpyOperations):
    """Keeps what each hidden layer gave."""

    def __init__(self) -> None:
        self.hidden: list[np.ndarray] = []

    def activation(self, name: str, x: np.ndarray) -> np.ndarray:
        """Applies an activation, and keeps its result."""
        self.hidden.append(super().activation(name, x))
        return self.hidden[-1]


def calibrated(network: ActorNetwork, rows: np.ndarray) -> ActorNetwork:
    """Quantises a trained network after its training.

    Args:
        network: The network, of floats.
        rows: Observations `[N, V]` of its replay buffer, scaled and without their mask, as
            `network` takes them. Those of greedy episodes alone are too few: where they end the
            ranges end, and what is just outside becomes something else.

    Returns:
        The quantised network, of float32. It takes rows that are scaled by moments of its own: it
        is normalised, whatever `network` was.

    Raises:
        ValueError: If the network cannot be quantised, or there are no rows, or not all are finite.
    """
    if reason := refusal(network.architecture):
        raise ValueError(reason)
    rows = np.asarray(rows, np.float32)
    if rows.ndim != 2 or not len(rows) or rows.shape[1] != network.architecture.visible:
        expected = f"[N, {network.architecture.visible}]"
        raise ValueError(f"rows must have shape {expected}, at least one; got {rows.shape}")
    if not np.isfinite(rows).all():
        raise ValueError(
            "rows must be finite; got NaN or infinity: calibrate on other observations"
        )
    network, rows = _filling(network, rows)
    network = _equalized(network, rows)
    recorder = _Recorder()
    outputs = network.outputs(recorder, rows)
    count = network.architecture.head.continuous
    ranges = [
        _ends(rows),
        *(_ends(np.quantile(hidden, (1.0 - RANGE, RANGE))) for hidden in recorder.hidden),
        _ends(np.clip(outputs[:, :count], -SATURATED, SATURATED)),
        _ends(outputs[:, count:]),
    ]
    low, high = np.array(ranges, np.float32).T
    architecture = dataclasses.replace(network.architecture, quantized=True)
    weights = network.weights | {"quantization/low": low, "quantization/high": high}
    return ActorNetwork(architecture, weights)


def _ends(x: np.ndarray) -> tuple[float, float]:
    """Returns the least and the greatest number; of nothing, or zeros alone, any."""
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    return (low, high) if min(low, 0.0) < max(high, 0.0) else (-1.0, 1.0)


def _filling(network: ActorNetwork, rows: np.ndarray) -> tuple[ActorNetwork, np.ndarray]:
    """Scales columns to fill [-1, 1]; returns a network that takes them, and the rows."""
    architecture, weights = network.architecture, _in_double(network)
    low, high = rows.min(axis=0).astype(np.float64), rows.max(axis=0).astype(np.float64)
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    half = np.where(half > 0.0, half, 1.0)  # a column that never changed
    # scaled = ((x - mean) scale - middle) / half
    columns, (mean, scale) = slice(0, architecture.visible), _moments(network)
    mean[columns] += middle / scale[columns]
    scale[columns] /= half
    kernel, bias = (weights[f"hidden_0/{part}"] for part in ("kernel", "bias"))
    weights["hidden_0/bias"] = bias + middle @ kernel
    weights["hidden_0/kernel"] = half[:, np.newaxis] * kernel
    weights["observation_normalization/mean"] = mean
    weights["observation_normalization/scale"] = scale
    architecture = dataclasses.replace(architecture, normalized=True)
    return _in_single(architecture, weights), ((rows - middle) / half).astype(np.float32)


def _moments(network: ActorNetwork) -> tuple[np.ndarray, np.ndarray]:
    size = network.architecture.observation_size
    if not network.architecture.normalized:
        return np.zeros(size), np.ones(size)
    names = ("observation_normalization/mean", "observation_normalization/scale")
    mean, scale = (network.weights[name].astype(np.float64) for name in names)
    return mean, scale


def _equalized(network: ActorNetwork, rows: np.ndarray) -> ActorNetwork:
    """Rescales hidden units, so that their ranges and their weights in the next layer balance."""
    recorder, weights = _Recorder(), _in_double(network)
    network.outputs(recorder, rows)
    layers = [f"hidden_{index}" for index in range(len(recorder.hidden))]
    for layer, after, hidden in zip(layers, [*layers[1:], "action"], recorder.hidden, strict=True):
        most = _positive(np.quantile(hidden, BALANCE, axis=0))
        factor = np.sqrt(most / _positive(np.abs(weights[f"{after}/kernel"]).max(axis=1)))
        for part in ("kernel", "bias"):
            weights[f"{layer}/{part}"] = weights[f"{layer}/{part}"] / factor
        weights[f"{after}/kernel"] = weights[f"{after}/kernel"] * factor[:, np.newaxis]
    return _in_single(network.architecture, weights)


def _positive(x: np.ndarray) -> np.ndarray:
    """Returns numbers without zeros, of units that were never on or are never read."""
    x = x.astype(np.float64)
    return np.where(x > 0.0, x, np.median(x[x > 0.0]) if (x > 0.0).any() else 1.0)


def _in_double(network: ActorNetwork) -> dict[str, np.ndarray]:
    return {name: values.astype(np.float64) for name, values in network.weights.items()}


def _in_single(architecture: ActorArchitecture, weights: dict[str, np.ndarray]) -> ActorNetwork:
    return ActorNetwork(
        architecture, {name: values.astype(np.float32) for name, values in weights.items()}
    )
