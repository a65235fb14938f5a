"""Quantization of an actor's activations and weights, with ranges that track training batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from eagerly.networks.initializers import initial_values
from eagerly.networks.layers import product
from eagerly.networks.quantization import fake_quantized, grid, quantized_tanh, quantized_weights
from eagerly.policies.integer_grids import SATURATED
from eagerly.policies.numpy_actor import CLIP

# Prefix of the names of ranges among the weights of an actor.
RANGES = "quantization/"
# Fraction by which a range moves toward the minimum and maximum of a batch.
STEP = 0.01
# Minimum width of a range, so that a constant 0 still has a grid.
WIDTH = 2.0**-10


class Quantization(keras.layers.Layer):
    """Quantizes an actor's activations, with ranges that track its training batches.

    Each update moves a range toward the minimum and maximum of the batch by the fraction `STEP`.
    A range always contains 0. The first batch sets all ranges directly. Until then, they have
    initial values that are wide enough for acting: ±10 for inputs (the limits of normalized
    observations), [0, 10] for hidden layers, ±4 before the tanh, and ±10 for logits.

    Args:
        hidden: L, the number of hidden layers.
        freeze_steps: Number of updates after which ranges are frozen; 0: never. The first batch
            sets the ranges in any case.
        passed: Returns the number of updates so far.

    Attributes:
        low: `[L + 3]`, the minima of the inputs, of each hidden layer after its activation, of
            continuous dimensions before their tanh, and of logits.
        high: `[L + 3]`, the maxima.
    """

    def __init__(
        self, hidden: int, *, freeze_steps: int = 0, passed: Callable[[], Any] = lambda: 0
    ) -> None:
        super().__init__(name=RANGES.rstrip("/"), dtype="float32", autocast=False)
        # The initial ranges extend one float beyond `ends`, so that `is_first` recognizes them: no
        # batch sets such a range for normalized observations or inputs of a tanh, which are clipped
        # to `ends`. In an actor with neither, raw observations and logits would both have to reach
        # exactly the initial values, at both ends.
        ends = np.array([CLIP] * (hidden + 1) + [SATURATED, CLIP], np.float32)
        high = np.nextafter(ends, np.float32(np.inf))
        low = np.where([False] + [True] * hidden + [False] * 2, np.float32(0.0), -high)
        self._first = low, high
        self._freeze_steps, self._passed = freeze_steps, passed
        self.low, self.high = (
            self.add_weight(name=name, trainable=False, **initial_values(values))
            for name, values in (("low", low), ("high", high))
        )
        self.built = True

    def outputs(
        self, inputs: tf.Tensor, linear: Sequence[Any], continuous: int, *, training: bool
    ) -> tf.Tensor:
        """Maps inputs `[B, V]` to the outputs `[B, A]` that the actor's head expects.

        Args:
            inputs: Normalized observations, without their mask.
            linear: The linear layers; a ReLU follows all but the last.
            continuous: C, the number of outputs that go through a tanh, which is applied here.
            training: Whether the ranges track this batch.
        """
        ranges = _Ranges(self, training)
        place = ranges.grid(0, inputs)
        hidden = fake_quantized(inputs, *place)
        for index, layer in enumerate(linear[:-1], start=1):
            hidden = tf.nn.relu(_linear(layer, hidden, place[0]))
            place = ranges.grid(index, hidden)
            hidden = fake_quantized(hidden, *place)
        outputs, parts = _linear(linear[-1], hidden, place[0]), []
        if continuous:
            actions = outputs[:, :continuous]
            parts.append(quantized_tanh(actions, *ranges.grid(-2, actions, SATURATED)))
        if continuous < outputs.shape[1]:
            logits = outputs[:, continuous:]
            parts.append(fake_quantized(logits, *ranges.grid(-1, logits)))
        ranges.keep()
        return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)

    def ends(self) -> dict[str, float]:
        """Returns the lower and upper end of each range, as metrics."""
        hidden = [f"hidden_{number}" for number in range(1, self.low.shape[0] - 2)]
        return {
            f"ranges/{name}_{end}": float(value)
            for end, values in (("low", self.low.numpy()), ("high", self.high.numpy()))
            for name, value in zip(["input", *hidden, "action", "logits"], values, strict=True)
        }

    def is_first(self) -> tf.Tensor:
        """Returns whether the ranges have their initial values, which no batch can produce."""
        pairs = zip((self.low, self.high), self._first, strict=True)
        same = [tf.reduce_all(tf.equal(variable.value, begun)) for variable, begun in pairs]
        return tf.logical_and(*same)

    def is_frozen(self) -> tf.Tensor:
        """Returns whether enough updates were made to freeze the ranges."""
        if not self._freeze_steps:
            return tf.constant(False)
        return tf.cast(self._passed(), tf.int64) >= self._freeze_steps


class _Ranges:
    """The ranges during one call of an actor; `keep` stores them at the end of the call."""

    def __init__(self, of: Quantization, training: bool) -> None:
        self._quantization, self._training = of, training
        self._low, self._high = (tf.unstack(tf.convert_to_tensor(v)) for v in (of.low, of.high))
        if training:
            self._first = of.is_first()
            self._frozen = tf.logical_and(of.is_frozen(), tf.logical_not(self._first))

    def grid(self, index: int, x: tf.Tensor, most: float = np.inf) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns a range's grid. In training, the range moves toward x, within ±`most`."""
        if self._training:
            x = tf.stop_gradient(x)
            low = tf.clip_by_value(tf.reduce_min(x), -most, 0.0)
            high = tf.clip_by_value(tf.reduce_max(x), tf.maximum(low + WIDTH, 0.0), most)
            self._low[index] = self._moved(self._low[index], low)
            self._high[index] = self._moved(self._high[index], high)
        return grid(self._low[index], self._high[index])

    def _moved(self, end: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
        moved = tf.where(self._first, found, end + STEP * (found - end))
        return tf.where(self._frozen, end, moved)

    def keep(self) -> None:
        """Writes the ranges back to the variables."""
        if self._training:
            self._quantization.low.assign(tf.stack(self._low))
            self._quantization.high.assign(tf.stack(self._high))


def _linear(layer: Any, inputs: tf.Tensor, input_scale: tf.Tensor) -> tf.Tensor:
    """Applies a linear layer with quantized weights."""
    if not layer.built:
        layer.build(inputs.shape)
    kernel, bias = (tf.convert_to_tensor(each) for each in (layer.kernel, layer.bias))
    kernel, bias = quantized_weights(kernel, bias, input_scale)
    return product(inputs, kernel) + bias
