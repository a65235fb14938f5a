"""The built-in actors, defined once for NumPy and for exported graphs.

In training, `networks.Actor` and related classes compute the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from eagerly.policies.architecture import (
    DENSE,
    NORM,
    PROJECTIONS,
    ActorArchitecture,
    EntryEncoders,
    MemoryCore,
    StateEmbedding,
)
from eagerly.policies.images import image_features
from eagerly.policies.integer_grids import grid, quantized_layer
from eagerly.policies.operations import Operations
from eagerly.spaces.observations import IMAGE


class ActorNetwork:
    """A built-in actor with its weights, from scaled observations to last-layer outputs.

    The caller scales observations and validates that the weights match the architecture, see
    `check_weights`. `ActionHead` applies masks and squashes the outputs.

    Args:
        architecture: The structure of the actor.
        weights: Weights by `layer/weight`; they are not copied.

    Attributes:
        architecture: As given.
        weights: Weights by name.
        hidden: Kernel and bias of each hidden layer.
        norms: Gamma and beta of each hidden layer; `()` without layer normalization.
        last: Kernel and bias of the last layer.
        ranges: For a quantized actor, the ranges of inputs, of each hidden layer, of continuous
            outputs before their tanh, and of logits; otherwise empty.
    """

    def __init__(self, architecture: ActorArchitecture, weights: Mapping[str, np.ndarray]) -> None:
        self.architecture, self.weights = architecture, dict(weights)
        hidden = range(len(architecture.hidden_sizes))
        self.hidden = [self._of(f"hidden_{index}", DENSE) for index in hidden]
        self.norms = [
            self._of(f"norm_{index}", NORM) if architecture.layer_norm else () for index in hidden
        ]
        self.last = self._of("action", DENSE)
        if isinstance(encoder := architecture.encoder, StateEmbedding):
            layers = range(len(encoder.hidden_sizes) + 1)
            self._embedding = [self._of(f"embedding_{index}", DENSE) for index in layers]
            self._features = self._of("features", DENSE)
        self.ranges: list[tuple[float, float]] = []
        if architecture.quantized:
            low, high = (weights[f"quantization/{part}"].tolist() for part in ("low", "high"))
            self.ranges = list(zip(low, high, strict=True))
            self._round_to_grids()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the weights, which is also used for computations."""
        return self.weights["action/kernel"].dtype

    @property
    def moments(self) -> tuple[np.ndarray, ...]:
        """The mean and the scale of observations, `[O]` each; empty without normalization."""
        names = ("mean", "scale") if self.architecture.normalized else ()
        return self._of("observation_normalization", names)

    def outputs(self, ops: Operations, rows: Any) -> Any:
        """Maps scaled rows `[N, V]`, without their mask, to last-layer outputs `[N, A]`."""
        return self._mlp(ops, self.features(ops, rows))

    def features(self, ops: Operations, rows: Any) -> Any:
        """Maps scaled rows `[N, V]` to the inputs of the first hidden layer."""
        encoder = self.architecture.encoder
        if isinstance(encoder, EntryEncoders):
            return self._encoded(ops, encoder, rows)
        if isinstance(encoder, StateEmbedding):
            return self._embedded(ops, encoder, rows)
        return rows

    def step(
        self,
        ops: Operations,
        rows: Any,
        previous_actions: Any,
        previous_rewards: Any,
        state: list[Any],
    ) -> tuple[Any, list[Any]]:
        """Computes one step of a recurrent actor: its outputs and its next state.

        Args:
            ops: The operations to compute with.
            rows: `[N, V]`, scaled, without their mask.
            previous_actions: `[N, A]` in [-1, 1].
            previous_rewards: `[N]`.
            state: The parts listed by `MemoryCore.state_shapes`, `[N, ...]` each.
        """
        core = self.architecture.encoder
        assert isinstance(core, MemoryCore)
        rewards = ops.reshape(previous_rewards, (-1, 1))
        joined = ops.concat([rows, previous_actions, rewards])
        inputs = ops.linear(joined, *self._of("encoder_inputs", DENSE))
        inputs = ops.activation(self.architecture.activation, inputs)
        remember = {"lstm": self._lstm, "gru": self._gru, "attention": self._attention}[core.kind]
        known, state = remember(ops, core, inputs, state)
        return self._mlp(ops, ops.concat([known, rows])), state

    def _of(self, layer: str, parts: tuple[str, ...]) -> tuple[np.ndarray, ...]:
        return tuple(map(self.weights.__getitem__, map(f"{layer}/{{}}".format, parts)))

    def _mlp(self, ops: Operations, hidden: Any) -> Any:
        if self.architecture.quantized:
            parts = self.quantized_parts(ops, hidden)
            return parts[0] if len(parts) == 1 else ops.concat(parts)
        for layer, norm in zip(self.hidden, self.norms, strict=True):
            hidden = ops.linear(hidden, *layer)
            if norm:
                hidden = ops.layer_norm(hidden, *norm)
            hidden = ops.activation(self.architecture.activation, hidden)
        return ops.linear(hidden, *self.last)

    def quantized_parts(self, ops: Operations, hidden: Any) -> list[Any]:
        """Maps scaled rows `[N, V]` to quantized outputs: actions before their tanh, and logits.

        Either part is missing if the actor has no such dimensions. The parts are computed by
        separate layers, because their grids differ.
        """
        *ranges, of_actions, of_logits = self.ranges
        hidden = ops.quantized(hidden, *ranges[0])
        for layer, (low, high) in zip(self.hidden, ranges[1:], strict=True):
            hidden = ops.activation(self.architecture.activation, ops.linear(hidden, *layer))
            hidden = ops.quantized(hidden, low, high)
        kernel, bias = self.last
        count, size, parts = self.architecture.head.continuous, len(bias), []
        for columns, limits in ((slice(0, count), of_actions), (slice(count, size), of_logits)):
            if columns.start < columns.stop:
                outputs = ops.linear(hidden, kernel[:, columns], bias[columns])
                parts.append(ops.quantized(outputs, *limits))
        return parts

    def _round_to_grids(self) -> None:
        scales = [grid(*each)[0] for each in self.ranges]
        layers = [
            quantized_layer(kernel, bias, scale)
            for (kernel, bias), scale in zip((*self.hidden, self.last), scales, strict=False)
        ]
        self.hidden, self.last = list(layers[:-1]), layers[-1]

    def _encoded(self, ops: Operations, encoder: EntryEncoders, rows: Any) -> Any:
        features = []
        for index, entry in enumerate(encoder.entries):
            columns = ops.part(rows, entry.start, entry.stop)
            if entry.kind == IMAGE:
                layer = f"entry_{index}"
                features.append(image_features(ops, entry, layer, self.weights, columns))
                continue
            hidden = ops.linear(columns, *self._of(f"entry_{index}_linear", DENSE))
            features.append(ops.activation(self.architecture.activation, hidden))
        return ops.concat(features)

    def _embedded(self, ops: Operations, encoder: StateEmbedding, rows: Any) -> Any:
        *hidden, last = self._embedding
        embedding = rows
        for layer in hidden:
            embedding = ops.activation(encoder.activation, ops.linear(embedding, *layer))
        parts = ops.linear(rows, *self._features), ops.linear(embedding, *last)
        return ops.concat([ops.average_l1_norm(part) for part in parts])

    def _lstm(
        self, ops: Operations, core: MemoryCore, inputs: Any, state: list[Any]
    ) -> tuple[Any, list[Any]]:
        kernel, bias, recurrent = self._of("memory", (*DENSE, "recurrent_kernel"))
        gates = ops.linear(inputs, kernel, bias) + ops.matmul(state[0], recurrent)
        enter, keep, candidate, show = _split(ops, gates, core.units, 4)
        cell = ops.sigmoid(keep) * state[1] + ops.sigmoid(enter) * ops.tanh(candidate)
        output = ops.sigmoid(show) * ops.tanh(cell)
        return output, [output, cell]

    def _gru(
        self, ops: Operations, core: MemoryCore, inputs: Any, state: list[Any]
    ) -> tuple[Any, list[Any]]:
        kernel, bias, recurrent, recurrent_bias = self._of(
            "memory", (*DENSE, "recurrent_kernel", "recurrent_bias")
        )
        update, reset, candidate = _split(ops, ops.linear(inputs, kernel, bias), core.units, 3)
        of_state = ops.linear(state[0], recurrent, recurrent_bias)
        update_, reset_, candidate_ = _split(ops, of_state, core.units, 3)
        keep = ops.sigmoid(update + update_)
        new = ops.tanh(candidate + ops.sigmoid(reset + reset_) * candidate_)
        output = keep * state[0] + (1.0 - keep) * new
        return output, [output]

    def _attention(
        self, ops: Operations, core: MemoryCore, inputs: Any, state: list[Any]
    ) -> tuple[Any, list[Any]]:
        length, heads, size = core.length, core.heads, core.units // core.heads
        normal = ops.layer_norm(inputs, *self._of("memory_norm", NORM))
        query, key, value = (
            ops.reshape(ops.linear(normal, *self._of(layer, DENSE)), (-1, 1, core.units))
            for layer in PROJECTIONS[:3]
        )
        keys, values = (
            ops.concat([ops.part(old, 1, length, 1), new], axis=1)
            for old, new in ((state[0], key), (state[1], value))
        )
        count = ops.minimum(state[2] + self.dtype.type(1.0), float(length))

        def apart(steps: int, features: Any, axes: tuple[int, ...]) -> Any:
            return ops.transpose(ops.reshape(features, (-1, steps, heads, size)), axes)

        scores = ops.matmul(
            apart(1, query, (0, 2, 1, 3)) * self.dtype.type(1.0 / math.sqrt(size)),
            apart(length, keys, (0, 2, 3, 1)),
        )
        # The newest step comes last, at distance 0.
        scores = scores + self.weights["memory/distances"][:, np.newaxis, ::-1]
        ago = np.arange(length, dtype=self.dtype)[::-1].reshape(1, 1, 1, length)
        seen = ops.less(ago, ops.reshape(count, (-1, 1, 1, 1)))
        looked = ops.matmul(
            ops.masked_softmax(scores, seen), apart(length, values, (0, 2, 1, 3))
        )  # [N, heads, 1, d]
        together = ops.reshape(ops.transpose(looked, (0, 2, 1, 3)), (-1, core.units))
        output = inputs + ops.linear(together, *self._of(PROJECTIONS[3], DENSE))
        return output, [keys, values, count]


def _split(ops: Operations, x: Any, units: int, count: int) -> list[Any]:
    return [ops.part(x, index * units, (index + 1) * units) for index in range(count)]
