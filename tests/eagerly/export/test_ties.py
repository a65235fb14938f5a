"""With adjusted scales, all runtimes round every possible sum alike."""

from __future__ import annotations

import numpy as np

from eagerly.export.integers import IntegerLayer, plan
from eagerly.export.ties import count_ties, without_ties
from eagerly.policies.heads import ActionHead
from eagerly.policies.integer_grids import MOST, column_scales, grid
from eagerly.policies.network import ActorNetwork
from tests.eagerly.export.drawn import actor, quantised


def disagreeing(network: ActorNetwork) -> int:
    """Counts units for which integers and floats round at least one possible sum differently."""
    made, count = plan(network), network.architecture.head.continuous
    names = [f"hidden_{index}" for index in range(len(made.hidden))]
    layers = dict(zip(names, made.hidden, strict=True))
    found, grids = 0, [grid(*each) for each in network.ranges]
    for index, name in enumerate(names):
        scales = _scales(network, name, grids[index][0])
        found += _disagreeing(layers[name], grids[index][0], scales, grids[index + 1][0])
    scales = _scales(network, "action", grids[len(names)][0])
    for layer, columns, after in (
        (made.actions, slice(count), grids[-2]),
        (made.logits, slice(count, None), grids[-1]),
    ):
        if layer is not None:
            found += _disagreeing(layer, grids[len(names)][0], scales[columns], after[0])
    return found


def _scales(network: ActorNetwork, name: str, before: np.float32) -> np.ndarray:
    kernel, bias = (network.weights[f"{name}/{part}"] for part in ("kernel", "bias"))
    return column_scales(kernel, bias, before)


def _disagreeing(
    layer: IntegerLayer, before: np.float32, scales: np.ndarray, after: np.float32
) -> int:
    found = 0
    for unit, scale in enumerate(scales):
        kernel = layer.kernel[:, unit].astype(np.int64)
        ends = np.array([-128, 127])[:, np.newaxis] - layer.input_zero_point
        low, high = (pick(ends * kernel, axis=0).sum() for pick in (np.min, np.max))
        sums = np.arange(low, high + 1) + layer.bias[unit]
        shift = int(layer.shifts[unit])
        exact = (sums * int(layer.multipliers[unit]) + (1 << (shift - 1))) >> shift
        single = np.rint(sums.astype(np.float32) * (before * scale / after))
        double = np.rint(sums * (float(before) * float(scale) / float(after)))
        exact, single, double = (
            np.clip(steps + layer.output_zero_point, layer.least, MOST)
            for steps in (exact, single, double)
        )
        found += bool((exact != single).any() or (exact != double).any())
    return found


def test_without_ties_all_sums_are_rounded_alike() -> None:
    network = quantised(actor((32, 24), observation_size=17, head=ActionHead(2, (3,))))
    before = disagreeing(network)
    assert before == count_ties(network) > 5
    after = without_ties(network)
    assert disagreeing(after) == count_ties(after) == 0


def test_weights_change_only_in_their_last_digits_and_only_once() -> None:
    network = quantised(actor((256, 256), observation_size=17, head=ActionHead(6)))
    after = without_ties(network)
    assert count_ties(network) > 100
    for name, values in network.weights.items():
        np.testing.assert_allclose(after.weights[name], values, rtol=1e-5, atol=0)
        if not name.endswith("kernel"):
            assert after.weights[name] is values
    again = without_ties(after)
    assert all(again.weights[name] is values for name, values in after.weights.items())


def test_ranges_that_do_not_start_at_zero_are_adjusted() -> None:
    ranges = [(-3.0, 3.0), (-1.0, 3.0), (-0.5, 3.0), (-3.0, 4.0), (-1.0, 1.0)]
    network = quantised(actor((16, 12)), ranges)
    assert disagreeing(network) == count_ties(network) > 0
    assert disagreeing(without_ties(network)) == 0


def test_a_unit_without_weights_is_unchanged() -> None:
    network = actor((3, 2))
    network.weights["hidden_0/kernel"][:, 1] = 0.0
    after = without_ties(quantised(network))
    assert not after.weights["hidden_0/kernel"][:, 1].any()


def test_a_unit_whose_bias_determines_its_scale_is_unchanged() -> None:
    network = actor((3, 2))
    network.weights["hidden_0/kernel"][:, 1] *= np.float32(1e-9)
    after = without_ties(quantised(network)).weights["hidden_0/kernel"][:, 1]
    np.testing.assert_array_equal(after, network.weights["hidden_0/kernel"][:, 1])
