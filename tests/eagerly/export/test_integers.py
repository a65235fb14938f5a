"""Integer inference of quantized actors matches hand calculations, NumPy actors and LiteRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eagerly.export.integers import IntegerLayer, multipliers, plan, run
from eagerly.export.ties import without_ties
from eagerly.policies.heads import ActionHead
from eagerly.policies.integer_grids import grid, integers, quantized_tanh
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import NumpyOperations
from tests.eagerly.export.drawn import actor, int8_rows, quantised


def layer(sums_to: float, **more: Any) -> IntegerLayer:
    """Returns a layer with one unit, which multiplies its only input by `sums_to`."""
    steps, shifts = multipliers(np.array([sums_to]))
    fields = {"kernel": np.array([[1]], np.int8), "bias": np.array([0], np.int32)}
    fields |= {"input_zero_point": 0, "output_zero_point": 0} | more
    return IntegerLayer(multipliers=steps, shifts=shifts, **fields)


def column(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int8)[:, np.newaxis]


def test_multipliers_consist_of_a_31_bit_integer_and_a_shift() -> None:
    steps, shifts = multipliers(np.array([0.5, 1.0, 0.75, 3.0, 2.0**-31]))
    np.testing.assert_array_equal(steps, [2**30, 2**30, 3 * 2**29, 3 * 2**29, 2**30])
    np.testing.assert_array_equal(shifts, [31, 30, 31, 29, 61])
    assert (steps.dtype, shifts.dtype) == (np.int32, np.int32)


def test_a_multiplier_can_be_rounded_up_to_a_power_of_two() -> None:
    steps, shifts = multipliers(np.array([1.0 - 2.0**-40]))
    assert (steps[0], shifts[0]) == (2**30, 30)


def test_multipliers_out_of_range_become_zero_or_the_largest_multiplier() -> None:
    steps, shifts = multipliers(np.array([2.0**-40, 2.0**40]))
    np.testing.assert_array_equal(steps, [0, 2**31 - 1])
    assert shifts.min() >= 1
    assert shifts.max() <= 62


def test_products_are_rounded_once_and_half_up() -> None:
    found = layer(0.5)(column(3, 2, 1, 0, -1, -2, -3))
    np.testing.assert_array_equal(found[:, 0], [2, 1, 1, 0, 0, -1, -1])


def test_zero_points_shift_inputs_and_outputs_and_outputs_are_clipped() -> None:
    moved = layer(1.0, input_zero_point=10, output_zero_point=-100, bias=np.array([5], np.int32))
    np.testing.assert_array_equal(moved(column(10, 20, -128, 127))[:, 0], [-95, -85, -128, 22])
    rectified = layer(1.0, output_zero_point=-100, least=-100)
    np.testing.assert_array_equal(rectified(column(-3, 3))[:, 0], [-100, -97])


def test_an_actor_with_one_layer_matches_a_hand_calculation() -> None:
    # The scales are 1/2 for the inputs, 1 and 2 for the kernel columns, 1/2 and 1 for the sums,
    # and 1/32 for the outputs.
    network = actor((), observation_size=2)
    kernel, bias = [[127.0, 254.0], [3.0, -8.0]], [4.0, -1.0]
    network.weights.update(
        {"action/kernel": np.float32(kernel), "action/bias": np.float32(bias)},
    )
    ranges = [(-64.0, 63.5), (-4.0, 4.0 - 1 / 32), (-1.0, 1.0)]
    made = plan(quantised(network, ranges))
    assert made.actions is not None
    assert (made.input_scale, made.input_zero_point) == (0.5, 0)
    np.testing.assert_array_equal(made.actions.kernel, [[127, 127], [3, -4]])
    np.testing.assert_array_equal(made.actions.bias, [8, -1])
    np.testing.assert_array_equal(made.actions.multipliers / 2.0**made.actions.shifts, [16, 32])
    # Unit 1: the sum is 8 - 3 · 3 = -1. In steps of 1/2, that is -1/2, or -16 steps of 1/32.
    # Unit 2: the sum is -1 + 4 · 3 = 11. In steps of 1, that is 11, which exceeds the output range.
    expected = np.round(128 * np.tanh([-16 / 32, 127 / 32]))
    np.testing.assert_array_equal(run(made, np.array([[0, -3]], np.int8))[0], [expected[0], 127])


@pytest.mark.parametrize("sizes", [(16, 12), (64, 64)])
def test_integers_match_the_quantized_actor(sizes: tuple[int, ...]) -> None:
    network = quantised(actor(sizes, head=ActionHead(3, (4, 2))))
    made, rows = plan(network), int8_rows(2000, 5)
    low, high = network.ranges[0]
    scale, zero_point = grid(low, high)
    observations = (rows.astype(np.float32) - zero_point) * scale
    np.testing.assert_array_equal(integers(observations, low, high), rows)
    outputs = network.outputs(NumpyOperations(), observations)
    of_logits = grid(*network.ranges[-1])
    found = run(made, rows)
    assert (found.dtype, found.shape) == (np.int8, (2000, 9))
    actions = quantized_tanh(outputs[:, :3]) * 128
    logits = outputs[:, 3:] / of_logits[0] + of_logits[1]
    # float32 rounds a few of the sums near rounding ties differently.
    for mine, its in ((found[:, :3], actions), (found[:, 3:], logits)):
        assert np.mean(np.abs(mine - its) > 0.01) < 2e-3


def test_purely_discrete_actions_have_no_tanh_table() -> None:
    made = plan(quantised(actor(head=ActionHead(0, (4,)))))
    assert made.actions is None
    assert made.table is None
    assert run(made, int8_rows(10, 5)).shape == (10, 4)


def test_a_relu_with_a_negative_range_is_clipped_at_zero() -> None:
    ranges = [(-3.0, 3.0), (-1.0, 3.0), (-0.5, 3.0), (-4.0, 4.0), (-1.0, 1.0)]
    for made, (low, high) in zip(plan(quantised(actor(), ranges)).hidden, ranges[1:3], strict=True):
        assert made.least == made.output_zero_point == grid(low, high)[1] > -128


def test_units_without_weights_return_their_bias() -> None:
    network = actor((3,))
    network.weights["hidden_0/kernel"][:, 1] = 0.0
    network.weights["hidden_0/bias"][:] = [0.0, 1.0, 1.0]
    found = quantised(network, [(-3.0, 3.0), (0.0, 2.55), (-4.0, 4.0), (-1.0, 1.0)])
    np.testing.assert_array_equal(plan(found).hidden[0](int8_rows(10, 5))[:, 1], 100 - 128)


def test_all_sums_fit_into_32_bits() -> None:
    network = actor((3,))
    network.weights["hidden_0/kernel"][:] *= 1e-20
    network.weights["hidden_0/bias"][:] = [1.0, -1e9, 0.0]
    hidden = plan(quantised(network, [(-3, 3), (0, 1), (-4, 4), (-1, 1)])).hidden[0]
    most = np.abs(hidden.bias.astype(np.int64)) + 255 * np.abs(hidden.kernel.astype(int)).sum(0)
    np.testing.assert_allclose(most[:2], [2**30, 2**30], rtol=1e-6)


@pytest.mark.parametrize("smaller", [1e-5, 1e-9, 1e-20, 1e-40])
def test_a_bias_is_preserved_for_weights_of_any_size(smaller: float) -> None:
    network = actor((3,))
    network.weights["hidden_0/kernel"][:, 1] *= np.float32(smaller)
    network.weights["hidden_0/bias"][1] = 1.0
    found = quantised(network, [(-3.0, 3.0), (0.0, 2.55), (-4.0, 4.0), (-1.0, 1.0)])
    np.testing.assert_array_equal(plan(found).hidden[0](int8_rows(10, 5))[:, 1], 100 - 128)


@pytest.mark.parametrize(
    ("low", "high", "zero_point"),
    [(-4.0, 4.0, 0), (-10.0, 10.0, 0), (-3.0, 3.0, 0), (-1.0, 101.0, -125), (-3.0, 99.0, -120)],
)
def test_zero_points_between_two_integers_are_rounded_as_by_the_converter(
    low: float, high: float, zero_point: int
) -> None:
    assert grid(low, high) == (np.float32((high - low) / 255), zero_point)


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(64, 64), (256, 256)])
def test_integers_match_litert(sizes: tuple[int, ...], tmp_path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    litert = pytest.importorskip("eagerly.export.litert")
    kernels, rows = interpreter.OpResolverType, int8_rows(4000, 17)
    network = quantised(actor(sizes, observation_size=17, head=ActionHead(6)))
    for made, differing in ((network, 4), (without_ties(network), 0)):
        litert.convert(made, "int8", tmp_path)
        expected = run(plan(made), rows)
        for which in (kernels.AUTO, kernels.BUILTIN_REF):  # run XNNPACK, then the reference kernels
            answered = _answers(interpreter, tmp_path, which, rows)
            assert (answered != expected).sum() <= differing


def _answers(interpreter: Any, folder: Path, kernels: Any, rows: np.ndarray) -> np.ndarray:
    path = str(folder / "model.tflite")
    model = interpreter.Interpreter(path, experimental_op_resolver_type=kernels, num_threads=1)
    model.allocate_tensors()
    (given,), (made,) = model.get_input_details(), model.get_output_details()
    answers = []
    for row in rows:
        model.set_tensor(given["index"], row[np.newaxis])
        model.invoke()
        answers.append(model.get_tensor(made["index"])[0])
    return np.stack(answers)


def test_float64_weights_give_the_same_integers_as_float32_weights() -> None:
    network = quantised(actor())
    wide = {name: values.astype(np.float64) for name, values in network.weights.items()}
    rows = int8_rows(100, 5)
    other = ActorNetwork(network.architecture, wide)
    np.testing.assert_array_equal(run(plan(other), rows), run(plan(network), rows))
