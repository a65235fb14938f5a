"""Actor architectures as plain data. An architecture and weights suffice to run an actor."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from eagerly.policies.heads import ActionHead
from eagerly.policies.images import FILTERS, convolutions, sides_after
from eagerly.policies.integer_grids import quantized_tanh
from eagerly.spaces import Entry
from eagerly.spaces.observations import IMAGE

Shapes = dict[str, tuple[int, ...]]  # shapes of weights, by `layer/weight`
# Names of the weights of a dense layer and of a normalization layer, in order.
DENSE, NORM = ("kernel", "bias"), ("gamma", "beta")
# Names of the dense layers of the attention core.
PROJECTIONS = ("memory_query", "memory_key", "memory_value", "memory_out")


@dataclass(frozen=True, kw_only=True)
class EntryEncoders:
    """One dense layer or convolutional encoder per observation entry; outputs are concatenated.

    Attributes:
        entries: The entries.
        units: Number of output features per entry.
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
        """Returns the shape of each array in the recurrent state, without the batch axis N.

        The arrays of the attention core are keys, values, and the number of steps seen.
        """
        if self.kind == "attention":
            return [(self.length, self.units), (self.length, self.units), ()]
        return [(self.units,)] * (2 if self.kind == "lstm" else 1)


@dataclass(frozen=True, kw_only=True)
class StateEmbedding:
    """A learned state embedding, concatenated with linear features of the state.

    The embedding and the features are each divided by the mean of their absolute values. Source:
    Fujimoto et al. 2023, "For SALE: State-Action Representation Learning for Deep Reinforcement
    Learning".

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
        quantized: Whether the actor computes on 8-bit integer grids; see `policies.integer_grids`.

    Raises:
        ValueError: If a quantized actor has an encoder.
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
        """V, the number of columns of an observation row without its mask."""
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
        """Mask of the columns of an observation row that contain pixels, `[O]` bool."""
        columns = np.zeros(self.observation_size, bool)
        if isinstance(self.encoder, EntryEncoders):
            for entry in self.encoder.entries:
                columns[entry.start : entry.stop] = entry.kind == IMAGE
        return columns

    def scores(self, outputs: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Converts last-layer outputs into scores `[N, A]`; rows `[N, O]` contain the mask."""
        return self.head.scores(outputs, rows, quantized_tanh if self.quantized else np.tanh)

    def shapes(self) -> Shapes:
        """Returns the shape of each weight by name, `layer/weight`."""
        found: Shapes = {}
        if self.normalized:
            rows = (self.observation_size,)
            found |= {f"observation_normalization/{part}": rows for part in ("mean", "scale")}
        if isinstance(self.encoder, EntryEncoders):
            for index, entry in enumerate(self.encoder.entries):
                found |= _entry_shapes(entry, f"entry_{index}", self.encoder.units)
        elif isinstance(self.encoder, StateEmbedding):
            widths = self.visible, *self.encoder.hidden_sizes, self.encoder.units
            for index, sizes in enumerate(itertools.pairwise(widths)):
                found |= _linear_shapes(f"embedding_{index}", *sizes)
            found |= _linear_shapes("features", self.visible, self.encoder.features)
        elif self.encoder is not None:
            found |= _memory_shapes(self.encoder, self.visible + self.head.size + 1)
        *hidden, last = itertools.pairwise((self.features, *self.hidden_sizes, self.head.size))
        for index, sizes in enumerate(hidden):
            found |= _linear_shapes(f"hidden_{index}", *sizes)
            if self.layer_norm:
                found |= _norm_shapes(f"norm_{index}", sizes[1])
        found |= _linear_shapes("action", *last)
        if self.quantized:
            ranges = (len(self.hidden_sizes) + 3,)
            found |= {f"quantization/{part}": ranges for part in ("low", "high")}
        return found

    def count_parameters(self) -> int:
        """Returns the number of parameters."""
        return sum(map(math.prod, self.shapes().values()))


def _linear_shapes(layer: str, *kernel: int) -> Shapes:
    """Returns the shapes of the weights of a dense or convolutional layer."""
    return {f"{layer}/kernel": kernel, f"{layer}/bias": kernel[-1:]}


def _norm_shapes(layer: str, units: int) -> Shapes:
    return {f"{layer}/{part}": (units,) for part in NORM}


def _entry_shapes(entry: Entry, name: str, units: int) -> Shapes:
    if entry.kind != IMAGE:
        return _linear_shapes(f"{name}_linear", entry.stop - entry.start, units)
    found: Shapes = {}
    height, width, channels = entry.image_shape
    for index, (window, strides) in enumerate(convolutions(height, width)):
        found |= _linear_shapes(f"{name}_convolution_{index}", *window, channels, FILTERS)
        height, width = sides_after((height, width), window, strides)
        channels = FILTERS
    found |= _norm_shapes(f"{name}_norm", units)
    return found | _linear_shapes(f"{name}_linear", height * width * channels, units)


def _memory_shapes(core: MemoryCore, inputs: int) -> Shapes:
    units = core.units
    found = _linear_shapes("encoder_inputs", inputs, units)
    if core.kind == "attention":
        found["memory/distances"] = (core.heads, core.length)
        found |= _norm_shapes("memory_norm", units)
        for layer in PROJECTIONS:
            found |= _linear_shapes(layer, units, units)
        return found
    gates = units * (4 if core.kind == "lstm" else 3)
    found |= {f"memory/{part}": (units, gates) for part in ("kernel", "recurrent_kernel")}
    found["memory/bias"] = (gates,)
    if core.kind == "gru":
        found["memory/recurrent_bias"] = (gates,)
    return found
