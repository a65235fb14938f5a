"""A quantized actor that uses only integers, as on microcontrollers and in LiteRT.

A layer sums integer products in 32 bits, in units of input scale · kernel scale. A multiplier per
column, m · 2^-shift with a 31-bit m, converts sums to steps of the layer's output (Jacob et al.
2018, Eq. 5 and 6). The product has 64 bits and is rounded once, half up. LiteRT multiplies in
float64 or float32 and also rounds once. It differs only if a product is so close to a rounding
boundary (k + 1/2) that the precision matters, which `export.ties` rules out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from eagerly.policies.integer_grids import (
    LEAST,
    MOST,
    TANH_SCALE,
    grid,
    layer_integers,
    quantized_tanh,
)
from eagerly.policies.network import ActorNetwork

# Exponent range of multipliers in LiteRT; smaller multipliers become 0.
SMALLEST, LARGEST = -31, 30


@dataclass(frozen=True, kw_only=True)
class IntegerLayer:
    """A dense layer of integers, including the relu that follows it, if any.

    Attributes:
        kernel: `[I, units]`, int8.
        bias: `[units]`, int32, in the units of the sums.
        multipliers: `[units]`, int32, at least 0.
        shifts: `[units]`, int32, in [1, 62]: a sum is multiplied by multiplier · 2^-shift.
        input_zero_point: The integer that represents 0 in the inputs.
        output_zero_point: The integer that represents 0 in the outputs.
        least: Lower limit of the outputs: -128, or the zero point if a relu follows. The upper
            limit is 127.
    """

    kernel: np.ndarray
    bias: np.ndarray
    multipliers: np.ndarray
    shifts: np.ndarray
    input_zero_point: int
    output_zero_point: int
    least: int = LEAST

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Maps int8 `[N, I]` to int8 `[N, units]`."""
        # Float64 products are faster than integer products, and exact: no sum reaches 2^53.
        centered = inputs.astype(np.float64) - self.input_zero_point
        sums = (centered @ self.kernel.astype(np.float64)).astype(np.int64) + self.bias
        half = np.int64(1) << (self.shifts - 1).astype(np.int64)
        steps = (sums * self.multipliers + half) >> self.shifts
        return np.clip(steps + self.output_zero_point, self.least, MOST).astype(np.int8)


@dataclass(frozen=True, kw_only=True)
class IntegerPlan:
    """A quantized MLP in integers.

    Attributes:
        input_scale: Scale of the inputs.
        input_zero_point: The integer that represents 0 in the inputs.
        hidden: The hidden layers.
        actions: The layer of continuous actions, before tanh; None without continuous actions.
        table: `[256]`, int8, the tanh of the outputs -128 to 127 of `actions`, in steps of 1/128;
            None without `actions`.
        logits: The layer of logits; None without discrete actions.
    """

    input_scale: np.float32
    input_zero_point: int
    hidden: tuple[IntegerLayer, ...]
    actions: IntegerLayer | None
    table: np.ndarray | None
    logits: IntegerLayer | None


def multipliers(scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Decomposes positive numbers into m · 2^-shift.

    Args:
        scales: `[units]`, float64.

    Returns:
        m, `[units]` int32 with 31 bits, rounded half up, and the shifts, `[units]` int32. Numbers
        below 2^-32 become 0. Numbers of at least 2^30 become the largest possible value, just below
        2^30.
    """
    parts, exponents = np.frexp(scales)
    steps = np.floor(parts * 2.0**31 + 0.5).astype(np.int64)
    whole = steps == 2**31  # mantissas rounded up to 1
    steps, exponents = np.where(whole, 2**30, steps), exponents + whole
    steps = np.where(exponents < SMALLEST, 0, np.where(exponents > LARGEST, 2**31 - 1, steps))
    return steps.astype(np.int32), (31 - np.clip(exponents, SMALLEST, LARGEST)).astype(np.int32)


def plan(network: ActorNetwork) -> IntegerPlan:
    """Converts a quantized actor to integers.

    Args:
        network: A quantized MLP.
    """
    architecture = network.architecture
    *ranges, of_actions, of_logits = network.ranges
    grids, count = [grid(*each) for each in ranges], architecture.head.continuous
    names = [f"hidden_{index}" for index in range(len(architecture.hidden_sizes))]
    hidden = [
        _layer(network, name, slice(None), before, after, relu=True)
        for name, before, after in zip(names, grids, grids[1:], strict=False)
    ]
    actions = logits = table = None
    if count:
        scale, zero_point = after = grid(*of_actions)
        actions = _layer(network, "action", slice(count), grids[-1], after)
        steps = np.arange(LEAST, MOST + 1).astype(np.float32) - np.float32(zero_point)
        table = np.rint(quantized_tanh(steps * scale) / TANH_SCALE).astype(np.int8)
    if count < architecture.head.size:
        logits = _layer(network, "action", slice(count, None), grids[-1], grid(*of_logits))
    return IntegerPlan(
        input_scale=grids[0][0],
        input_zero_point=grids[0][1],
        hidden=tuple(hidden),
        actions=actions,
        table=table,
        logits=logits,
    )


def run(plan: IntegerPlan, inputs: np.ndarray) -> np.ndarray:
    """Runs the integer network.

    The result is bit-identical to that of C, and to that of LiteRT if the network has no ties (see
    `export.ties`).

    Args:
        plan: The plan.
        inputs: `[N, V]`, int8, scaled observations on the input grid.

    Returns:
        `[N, A]`, int8: actions in steps of 1/128, then logits.
    """
    for layer in plan.hidden:
        inputs = layer(inputs)
    parts = []
    if plan.actions is not None and plan.table is not None:
        parts.append(plan.table[plan.actions(inputs).astype(np.int64) - LEAST])
    if plan.logits is not None:
        parts.append(plan.logits(inputs))
    return np.concatenate(parts, axis=1)


def _layer(
    network: ActorNetwork,
    name: str,
    columns: slice,
    before: tuple[np.float32, int],
    after: tuple[np.float32, int],
    *,
    relu: bool = False,
) -> IntegerLayer:
    weights: dict[str, Any] = network.weights
    kernel, bias = weights[f"{name}/kernel"][:, columns], weights[f"{name}/bias"][columns]
    kernel, bias, scales = layer_integers(kernel, bias, before[0])
    # Sums must fit into 32 bits. A bias has at most 2^30 steps, so it is clipped only if more than
    # 33,000 inputs have a weight of 127.
    most = 2**31 - 1 - (MOST - LEAST) * np.abs(kernel.astype(np.int64)).sum(axis=0)
    steps, shifts = multipliers(before[0].astype(np.float64) * scales / after[0].astype(np.float64))
    return IntegerLayer(
        kernel=kernel,
        bias=np.clip(bias, -most, most).astype(np.int32),
        multipliers=steps,
        shifts=shifts,
        input_zero_point=before[1],
        output_zero_point=after[1],
        least=max(after[1], LEAST) if relu else LEAST,
    )
