"""Actor architectures as plain data: with the weights, enough to run an actor anywhere."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eagerly.policies.heads import ActionHead
from eagerly.policies.images import FILTERS, convolutions, sides_after
from eagerly.policies.integer_grids import quantized_tanh
from eagerly.spaces import Entry
from eagerly.spaces.observations import IMAGE

# Weights of a dense layer and of a normalization layer, in order.
DENSE, NORM = ("kernel", "bias"), ("gamma", "beta")
# The dense layers of the attention core.
PROJECTIONS = ("memory_query", "memory_key", "memory_value", "memory_out")


@dataclass(frozen=True, kw_only=True)
class EntryEncoders:
    """One dense layer or convolutional encoder per observation entry; outputs are concatenated.

    Attributes:
        entries: The entries.
        units: Features per entry.
    """

    entries: tuple[Entry, ...]
    units: int


@dataclass(frozen=True, kw_only=True)
class MemoryCore:
    """A recurrent core. Its input layer reads observation, previous action and reward.

    Attributes:
        kind: "lstm", "gru" or "attention".
        units: H, the number of output features.
        heads: Number of attention heads.
        length: T, the attention window in steps.
    """

    kind: str
    units: int
    heads: int = 1
    length: int = 1

    def state_shapes(self) -> list[tuple[int, ...]]:
        """Returns the shapes of the parts of the recurrent state, without N.

        For attention: keys, values, and the number of steps seen.
        """
        if self.kind == "attention":
            return [(self.length, self.units), (self.length, self.units), ()]
        return [(self.units,)] * (2 if self.kind == "lstm" else 1)


@dataclass(frozen=True, kw_only=True)
class StateEmbedding:
    """A learned state embedding, concatenated with linear features of the state.

    Both are divided by the mean of their absolute values. Fujimoto et al. 2023, "For SALE:
    State-Action Representation Learning for Deep Reinforcement Learning".

    Attributes:
        units: Size of the embedding.
        hidden_sizes: Units of the hidden layers of the embedding MLP.
        activation: Activation of these layers, one of `operations.ACTIVATIONS`.
        features: Number of linear features.
    """

    units: int
    hidden_sizes: tuple[int, ...]
    activation: str
    features: int


@dataclass(frozen=True, kw_only=True)
class ActorArchitecture:
    """A built-in actor: an MLP, optionally preceded by an encoder.

    Attributes:
        observation_size: O, the length of an observation row, including its action mask.
        head: Converts outputs of the last layer into scores.
        hidden_sizes: Units of the hidden layers.
        activation: Activation of the hidden layers, one of `operations.ACTIVATIONS`.
        layer_norm: Whether hidden layers are normalized before their activation.
        normalized: Whether observations are first scaled by their mean and standard deviation.
        encoder: Entry encoders, recurrent core or state embedding before the MLP, if any.
        quantized: Whether it computes on 8-bit integer grids, see `policies.integer_grids`.

    Raises:
        ValueError: If it is quantized and has an encoder.
    """

    observation_size: int
    head: ActionHead
    hidden_sizes: tuple[int, ...]
    activation: str
    layer_norm: bool = False
    normalized: bool = False
    encoder: EntryEncoders | MemoryCore | StateEmbedding | None = None
    quantized: bool = False

    def __post_init__(self) -> None:
        if self.quantized and self.encoder is not None:
            raise ValueError(
                f"a quantized actor must be an MLP without an encoder; got {self.encoder}"
            )

    @property
    def visible(self) -> int:
        """V, the number of columns of a row without its mask."""
        return self.observation_size - self.head.masked

    @property
    def features(self) -> int:
        """F, the number of inputs of the MLP."""
        if isinstance(self.encoder, EntryEncoders):
            return self.encoder.units * len(self.encoder.entries)
        if isinstance(self.encoder, StateEmbedding):
            return self.encoder.features + self.encoder.units
        return self.visible + (0 if self.encoder is None else self.encoder.units)

    @property
    def pixels(self) -> np.ndarray:
        """The columns of a row that contain pixels, `[O]` bool."""
        columns = np.zeros(self.observation_size, bool)
        if isinstance(self.encoder, EntryEncoders):
            for entry in self.encoder.entries:
                columns[entry.start : entry.stop] = entry.kind == IMAGE
        return columns

    def scores(self, outputs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Converts last-layer outputs into scores `[N, A]`; rows `[N, O]` contain the mask."""
        return self.head.scores(outputs, rows, quantized_tanh if self.quantized else np.tanh)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each weight by name, `layer/weight`."""
        found: dict[str, tuple[int, ...]] = {}

        def dense(layer: str, inputs: int, units: int) -> None:
            found[f"{layer}/kernel"], found[f"{layer}/bias"] = (inputs, units), (units,)

        def norm(layer: str, units: int) -> None:
            found.update({f"{layer}/{part}": (units,) for part in NORM})

        if self.normalized:
            rows = (self.observation_size,)
            found |= {f"observation_normalization/{part}": rows for part in ("mean", "scale")}
        if isinstance(self.encoder, EntryEncoders):
            for index, entry in enumerate(self.encoder.entries):
                inputs = entry.stop - entry.start
                if entry.kind == IMAGE:
                    *sides, channels = entry.image_shape
                    height, width = sides
                    for place, (window, strides) in enumerate(convolutions(height, width)):
                        layer = f"entry_{index}_convolution_{place}"
                        found[f"{layer}/kernel"] = (*window, channels, FILTERS)
                        found[f"{layer}/bias"] = (FILTERS,)
                        height, width = sides_after((height, width), window, strides)
                        channels = FILTERS
                    inputs = height * width * channels
                    norm(f"entry_{index}_norm", self.encoder.units)
                dense(f"entry_{index}_linear", inputs, self.encoder.units)
        elif isinstance(self.encoder, StateEmbedding):
            widths = self.visible, *self.encoder.hidden_sizes, self.encoder.units
            for index, (inputs, units) in enumerate(itertools.pairwise(widths)):
                dense(f"embedding_{index}", inputs, units)
            dense("features", self.visible, self.encoder.features)
        elif self.encoder is not None:
            found |= self._memory_shapes(self.encoder)
        sizes = [self.features, *self.hidden_sizes, self.head.size]
        for index, units in enumerate(self.hidden_sizes):
            dense(f"hidden_{index}", sizes[index], units)
            if self.layer_norm:
                norm(f"norm_{index}", units)
        dense("action", sizes[-2], sizes[-1])
        if self.quantized:
            ranges = (len(self.hidden_sizes) + 3,)
            found |= {f"quantization/{part}": ranges for part in ("low", "high")}
        return found

    def _memory_shapes(self, core: MemoryCore) -> dict[str, tuple[int, ...]]:
        units = core.units
        found: dict[str, tuple[int, ...]] = {
            "encoder_inputs/kernel": (self.visible + self.head.size + 1, units),
            "encoder_inputs/bias": (units,),
        }
        if core.kind == "attention":
            found["memory/distances"] = (core.heads, core.length)
            found |= {f"memory_norm/{part}": (units,) for part in NORM}
            for layer in PROJECTIONS:
                found |= {f"{layer}/kernel": (units, units), f"{layer}/bias": (units,)}
            return found
        gates = units * (4 if core.kind == "lstm" else 3)
        found |= {f"memory/{part}": (units, gates) for part in ("kernel", "recurrent_kernel")}
        found["memory/bias"] = (gates,)
        if core.kind == "gru":
            found["memory/recurrent_bias"] = (gates,)
        return found

    def count_parameters(self) -> int:
        """Returns the number of parameters."""
        return sum(map(math.prod, self.shapes().values()))


def named(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Renames weights from their variable paths in a model to `layer/weight`.

    Raises:
        ValueError: If two weights would have the same name.
    """
    found = {"/".join(path.split("/")[-2:]): values for path, values in weights.items()}
    if len(found) < len(weights):
        raise ValueError(f"weights must have unique names; got {sorted(weights)}")
    return found


def check_weights(
    architecture: ActorArchitecture, weights: Mapping[str, Any], dtype: str | None = None
) -> None:
    """Validates that weights match an architecture.

    Args:
        architecture: The architecture.
        weights: Weights by `layer/weight`.
        dtype: Required dtype of all weights. If given, the values are also validated: weights must
            be finite, and quantization ranges must contain 0 and have a width above 0. None
            validates only names and shapes, which is cheap.

    Raises:
        ValueError: If the weights do not match. The message names the difference.
    """
    expected = architecture.shapes()
    given = {name: tuple(np.shape(values)) for name, values in weights.items()}
    if expected != given:
        unequal = sorted(
            name for name in expected.keys() | given.keys() if expected.get(name) != given.get(name)
        )
        name = unequal[0]
        raise ValueError(
            f"weights must match the settings: {name} is {given.get(name, 'missing')}, "
            f"expected {expected.get(name, 'no such weight')}"
        )
    if dtype is not None:
        _check_numbers(weights, dtype)


def _check_numbers(weights: Mapping[str, Any], dtype: str) -> None:
    for name, values in weights.items():
        if values.dtype != dtype:
            raise ValueError(f"weights must be {dtype}; {name} is {values.dtype}")
        if not np.isfinite(values).all():
            raise ValueError(f"weights must be finite; {name} has NaN or infinity")
    if "quantization/low" in weights:
        low, high = (weights[f"quantization/{part}"] for part in ("low", "high"))
        for name, wrong in (("low", low > 0.0), ("high", high < 0.0), ("high", low == high)):
            if wrong.any():
                ranges = list(zip(low.tolist(), high.tolist(), strict=True))
                raise ValueError(
                    "ranges must contain 0 and be wider than 0; "
                    f"quantization/{name} is wrong in {ranges}"
                )
