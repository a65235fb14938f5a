"""Post-training quantisation: an actor on grids of 8 bits, made of observations that it saw.

All in NumPy, in three steps. The first two leave what the actor computes as it is, and waste fewer
steps of the grids:

1. Each column of the observation is shifted and scaled to fill [-1, 1]. That goes into the
   normalisation, which a quantised file leaves to its caller; an actor that had none gets one.
2. Hidden units are balanced (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization
   and Bias Correction", §4.1): a relu commutes with a positive factor, which the next kernel takes
   back. As there a factor balances a unit with its weights in the next layer; unlike there with
   what it gives and not with its own weights, because kernels have a scale for each column.
3. Ranges are taken, and kernels rounded to their grids, see `export.rounding`.

Errors of the actions, as parts of their span on average and as 99th percentile, of a normalised
HalfCheetah-v5 after 200 000 steps, on rows of its replay buffer and on greedy episodes:

| | replay | greedy |
|---|---|---|
| 3 alone, rounded to the nearest | 0.84 %, 7.8 % | 0.58 %, 5.0 % |
| 1 and 2, then rounded to the nearest | 0.64 %, 5.8 % | 0.45 %, 3.7 % |
| 1 and 2, then rounded as `export.rounding` says | 0.52 %, 4.5 % | 0.38 %, 3.1 % |

Ranges hold all that was seen. To cut off the largest of 100 000 numbers gains a twentieth, that of
2 000 costs half as much again.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from eagerly.export.rounding import rounded
from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.network import ActorNetwork
from eagerly.policies.quantization import LEAST_WEIGHT
from eagerly.policies.ranges import Recorder, measured_ranges


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
    network, rows = rescaled(network, rows)
    low, high = measured_ranges(network, rows)
    architecture = dataclasses.replace(network.architecture, quantized=True)
    weights = network.weights | {"quantization/low": low, "quantization/high": high}
    return rounded(ActorNetwork(architecture, weights), rows)


def rescaled(network: ActorNetwork, rows: np.ndarray) -> tuple[ActorNetwork, np.ndarray]:
    """Makes a network that computes the same and is easier to quantise.

    Args:
        network: The network.
        rows: Scaled observations `[N, V]`, as it takes them.

    Returns:
        The network, of float32 and with a normalisation of its own, and the rows as it takes them.
    """
    network, rows = _filling(network, rows)
    return _balanced(network, rows), rows


def _filling(network: ActorNetwork, rows: np.ndarray) -> tuple[ActorNetwork, np.ndarray]:
    """Scales columns to fill [-1, 1]; returns a network that takes them, and the rows."""
    architecture, weights = network.architecture, _in_double(network)
    low, high = rows.min(axis=0).astype(np.float64), rows.max(axis=0).astype(np.float64)
    middle, half = (low + high) / 2.0, (high - low) / 2.0
    half = np.where(half < LEAST_WEIGHT, 1.0, half)  # a column that never changed
    mean, scale = _moments(network)
    old = tuple(part[: architecture.visible].copy() for part in (mean, scale))
    mean[: architecture.visible] += middle / old[1]
    scale[: architecture.visible] /= half
    # What float32 makes of the new moments is what the network makes up for.
    mean, scale = (part.astype(np.float32).astype(np.float64) for part in (mean, scale))
    middle = (mean[: architecture.visible] - old[0]) * old[1]
    half = old[1] / scale[: architecture.visible]
    first = "hidden_0" if architecture.hidden_sizes else "action"
    kernel, bias = (weights[f"{first}/{part}"] for part in ("kernel", "bias"))
    weights[f"{first}/bias"] = bias + middle @ kernel
    weights[f"{first}/kernel"] = half[:, np.newaxis] * kernel
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


def _balanced(network: ActorNetwork, rows: np.ndarray) -> ActorNetwork:
    """Rescales hidden units, so that their ranges and their weights in the next layer balance."""
    recorder, weights = Recorder(), _in_double(network)
    network.outputs(recorder, rows)
    layers = [f"hidden_{index}" for index in range(len(recorder.hidden))]
    following = [*layers, "action"][1:]
    for layer, after, hidden in zip(layers, following, recorder.hidden, strict=True):
        most = _positive(hidden.max(axis=0))
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
