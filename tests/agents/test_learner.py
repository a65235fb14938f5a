"""Several updates per call: metrics, sampler feedback, target copies and compiled programs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.inputs import Batch, Inputs
from eagerly.agents.learner import Learner
from eagerly.agents.results import two_dictionaries
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import ReplayBuffer, Transition, UniformSampler

pytestmark = pytest.mark.usefixtures("unoptimized")

MODES = pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
Update = Callable[[Batch, UpdateRandom, Phase], Any]
ROWS = 3  # rows per batch


class InOrder(UniformSampler):
    """Samples consecutive positions with the weight position + 100, and records its feedback."""

    def __init__(self, *per_row: str) -> None:
        super().__init__()
        self.per_row, self.told, self._next = per_row, [], 0

    def draw(self, count: int, shape: tuple[int, ...]) -> np.ndarray:
        places = self._next + np.arange(np.prod(shape)).reshape(shape)
        self._next += places.size
        return places % count

    def weights(self, places: np.ndarray) -> np.ndarray:
        return (places + 100).astype(np.float32)

    def feedback(self, places: np.ndarray, per_row: Any) -> None:
        self.told.append((places.copy(), dict(per_row)))


def buffer_of(sampler: Any = None) -> ReplayBuffer:
    """Returns a buffer of seven rows. The reward of each row is its index."""
    numbers, zeros = np.arange(7.0), np.zeros((7, 1))
    buffer = ReplayBuffer(7, 1, 1, sampler=sampler)
    buffer.add(Transition(zeros, zeros, numbers, np.ones(7), zeros))
    return buffer


def learner_of(
    update: Update,
    mode: str = "eager",
    *,
    seed: int = 0,
    intervals: tuple[int, ...] = (),
    copied: Sequence[Any] = (),
) -> Learner:
    inputs = Inputs(buffer_of().layout, ROWS, tf.float32)
    return Learner(
        update,
        inputs,
        seed=seed,
        counter=tf.Variable(0, dtype=tf.int64),
        mode=mode,
        intervals=intervals,
        copied=copied,
        published=lambda: (),
        autograph=False,  # test_own_models.py tests code that needs AutoGraph
    )


def every(updates: int, copy: Callable[[], object] = list) -> Any:
    """Returns a module whose target is copied every `updates` updates."""
    return SimpleNamespace(copy_every=updates, copy_to_target=copy)


def number_of(phase: Phase) -> tf.Tensor:
    return tf.cast(phase.update, tf.float32)


def nothing(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
    return {"update": number_of(phase)}, {}


# --- metrics ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "calls"),
    [
        *((mode, calls) for mode in ("eager", "graph") for calls in ((12,), (1, 4, 7))),
        # XLA compiles a separate program for each number of updates per call.
        ("xla", (12,)),
    ],
)
def test_metrics_may_differ_between_phases(mode: str, calls: tuple[int, ...]) -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        number = number_of(phase)
        metrics = {"mine/number": number}
        if phase.is_multiple_of(2):
            metrics["second"] = 10 * number
        if phase.is_multiple_of(3):
            metrics = {"third": tf.cast(phase.update, tf.int32), **metrics}
        return metrics, {}

    learner, buffer = learner_of(update, mode, intervals=(2, 3)), buffer_of()
    found: dict[str, list[float]] = {}
    for updates in calls:
        for name, values in learner.learn(buffer, updates)[0].items():
            found.setdefault(name, []).extend(values)
    assert found == {
        "mine/number": list(range(1, 13)),
        "second": [20, 40, 60, 80, 100, 120],
        "third": [3, 6, 9, 12],
    }
    assert learner.updates == int(learner._counter.numpy()) == 12


@MODES
def test_an_update_may_return_nothing(mode: str) -> None:
    learner = learner_of(lambda batch, random, phase: ({}, {}), mode)
    assert learner.learn(buffer_of(), 2) == ({}, [])
    assert learner.updates == 2


@MODES
def test_a_rare_non_finite_metric_is_named_with_its_update(mode: str) -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        number = number_of(phase)
        rare = {"rare": 1.0 / (4.0 - number)} if phase.is_multiple_of(2) else {}
        return {"update": number} | rare, {}

    learner = learner_of(update, mode, intervals=(2,))
    with pytest.raises(FloatingPointError, match="rare became inf in update 4: if it diverged"):
        learner.learn(buffer_of(), 6)


SHAPES: list[Any] = [
    (lambda b: ({"m": b.reward}, {}), ValueError, r"metric m must be a scalar; got shape \(3,\)"),
    (
        lambda b: ({}, {"error": b.reward[:, tf.newaxis]}),
        ValueError,
        r"error must have shape \[3\], one value per row; got shape \(3, 1\)",
    ),
    (
        lambda b: ({}, {"error": tf.reduce_mean(b.reward)}),
        ValueError,
        r"error must have shape \[3\], one value per row; got shape \(\)",
    ),
    (
        lambda b: {"m": tf.reduce_mean(b.reward)},
        TypeError,
        "must return two dictionaries.*; got dict: return metrics, {}",
    ),
    (lambda b: None, TypeError, "two dictionaries, .*; got NoneType"),
]


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(("returned", "error", "message"), SHAPES)
def test_invalid_results_of_an_update_are_rejected(
    mode: str, returned: Any, error: type[Exception], message: str
) -> None:
    learner = learner_of(lambda batch, *_: two_dictionaries(returned(batch)), mode)
    with pytest.raises(error, match=message):
        learner.learn(buffer_of(), 2)


def test_metrics_that_change_within_a_phase_are_rejected() -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        number = number_of(phase)
        return {"a": number} | ({"b": number} if number > 1 else {}), {}

    with pytest.raises(
        ValueError, match="the same names in all updates with equal due intervals; got a, then a, b"
    ):
        learner_of(update).learn(buffer_of(), 2)


# --- samplers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "updates"), [("eager", 1), ("eager", 9), ("graph", 1), ("graph", 9), ("xla", 9)]
)
def test_a_sampler_receives_the_requested_values_in_sampling_order(mode: str, updates: int) -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        marked = batch.reward + 1000 * number_of(phase)
        weighed = tf.reduce_sum(batch.weight)
        return {"weights": weighed}, {"other": -marked, "marked": marked, "weight": batch.weight}

    sampler = InOrder("marked", "weight")
    learner, buffer = learner_of(update, mode, intervals=(4,)), buffer_of(sampler)
    for call in range(2):
        metrics, _ = learner.learn(buffer, updates)
        places, per_row = sampler.told[call]
        assert list(per_row) == ["marked", "weight"]
        numbers = np.arange(call * updates + 1, (call + 1) * updates + 1)
        expected = np.arange(call * updates * ROWS, (call + 1) * updates * ROWS) % 7
        np.testing.assert_array_equal(places, expected.reshape(updates, ROWS))
        np.testing.assert_array_equal(per_row["marked"], places + 1000 * numbers[:, np.newaxis])
        np.testing.assert_array_equal(per_row["weight"], places + 100)
        np.testing.assert_array_equal(metrics["weights"], (places + 100).sum(axis=1))


def test_a_batch_has_weights_only_if_the_sampler_returns_them() -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        assert batch.weight is None
        return {}, {}

    learner_of(update).learn(buffer_of(), 1)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(
    ("names", "there"), [(("one", "two"), "one, two"), ((), "nothing")], ids=["others", "nothing"]
)
def test_missing_values_for_a_sampler_are_named(
    mode: str, names: tuple[str, ...], there: str
) -> None:
    learner = learner_of(lambda batch, *_: ({}, dict.fromkeys(names, batch.reward)), mode)
    with pytest.raises(ValueError, match=f"requires per-row values td_error; .* returns {there}"):
        learner.learn(buffer_of(InOrder("td_error")), 1)


# --- between calls ------------------------------------------------------------------------------


@MODES
def test_targets_are_copied_between_calls_in_order(mode: str) -> None:
    happened: list[tuple[str, int]] = []

    copied = [
        every(4, lambda: happened.append(("first", learner.updates))),
        every(8, lambda: happened.append(("second", learner.updates))),
    ]
    learner, buffer = learner_of(nothing, mode, copied=copied), buffer_of()
    for updates in (2, 2, 4, 1, 1, 2):
        learner.learn(buffer, updates)
    assert happened == [("first", 4), ("first", 8), ("second", 8), ("first", 12)]


def test_a_copy_between_calls_discards_published_values() -> None:
    learner = learner_of(nothing, copied=[every(2)])
    learner._published = lambda: (tf.constant([3.0]),)
    buffer = buffer_of()
    assert [value.tolist() for value in learner.learn(buffer, 1)[1]] == [[3.0]]
    assert learner.learn(buffer, 1)[1] == []


@pytest.mark.parametrize(("updates", "fits"), [(3, 2), (5, 3), (12, 6)])
def test_updates_per_call_must_divide_the_copy_interval(updates: int, fits: int) -> None:
    learner, buffer = learner_of(nothing, copied=[every(6), every(4)]), buffer_of(InOrder())
    with pytest.raises(ValueError, match=rf"must divide [46], .*; got {updates}: use {fits}"):
        learner.learn(buffer, updates)
    assert learner.updates == 0
    assert buffer.sampler._next == 0  # nothing was sampled


def test_a_call_across_a_copy_is_rejected() -> None:
    learner, buffer = learner_of(nothing, copied=[every(4)]), buffer_of()
    learner.learn(buffer, 2)
    with pytest.raises(
        ValueError, match=r"must divide 4, .*, and 2, the updates so far; got 4: use 2"
    ):
        learner.learn(buffer, 4)
    learner.learn(buffer, 2)
    learner.learn(buffer, 4)


# --- calls and programs -------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("intervals", [(), (2, 7)])
def test_update_numbers_do_not_depend_on_the_division_into_calls(
    mode: str, intervals: tuple[int, ...]
) -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        number = number_of(phase)
        due = sum((every * phase.is_multiple_of(every) for every in intervals), start=0)
        return {"number": number, "due": due * tf.ones(()), "first": batch.reward[0]}, {}

    expected = {
        "number": list(range(1, 17)),
        "due": [sum(every for every in intervals if n % every == 0) for n in range(1, 17)],
        "first": [ROWS * n % 7 for n in range(16)],
    }
    cuts = {
        "eager": [(16,), (1, 8, 7), (1,) * 16],
        "graph": [(16,), (1, 8, 7), (5, 5, 6)],
        "xla": [(16,), (1, 8, 7)],
    }[mode]
    for calls in cuts:
        learner, buffer = learner_of(update, mode, intervals=intervals), buffer_of(InOrder())
        parts = [learner.learn(buffer, updates)[0] for updates in calls]
        for name, values in expected.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), values)


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_an_update_is_traced_once_per_phase(mode: str) -> None:
    traced: list[bool] = []

    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        traced.append(phase.is_multiple_of(3))
        return {"number": number_of(phase)}, {}

    learner, buffer = learner_of(update, mode, intervals=(3,)), buffer_of()
    for updates in (2, 5, 1, 4):
        learner.learn(buffer, updates)
    assert sorted(traced) == [False, True]
    # A sampler with weights requires a new trace.
    learner.learn(buffer_of(InOrder()), 3)
    assert sorted(traced) == [False, False, True, True]


@pytest.mark.parametrize("intervals", [(0,), (2, -1)])
def test_intervals_below_1_are_rejected(intervals: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="intervals must be at least 1; got"):
        learner_of(nothing, intervals=intervals)


def test_eager_updates_receive_eager_tensors_and_have_no_graph() -> None:
    seen = []

    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        seen.append((int(phase.update.numpy()), batch.reward.numpy().tolist()))
        return {}, {}

    learner = learner_of(update)
    learner.learn(buffer_of(InOrder()), 2)
    assert seen == [(1, [0, 1, 2]), (2, [3, 4, 5])]
    assert learner.graph() is None


@pytest.mark.usefixtures("with_graph")
def test_the_graph_shows_an_update_in_which_all_intervals_are_due() -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        if phase.is_multiple_of(2) and phase.is_multiple_of(6):
            tf.identity(batch.reward, name="everything")
        return {"update": number_of(phase)}, {}

    learner = learner_of(update, "graph", intervals=(2, 6))
    graph = learner.graph()
    assert graph is not None
    assert "everything" in {operation.name for operation in graph.get_operations()}
    learner.learn(buffer_of(), 12)
    assert learner.graph() is graph


@pytest.mark.parametrize(
    "draw",
    [
        lambda: tf.random.uniform(()),
        lambda: tf.random.normal((2,)),
        lambda: tf.random.shuffle([1.0, 2.0]),
        lambda: tf.map_fn(lambda x: x + tf.random.uniform(()), tf.zeros(2)),
    ],
)
def test_draws_from_tensorflows_global_generator_are_rejected(draw: Any) -> None:
    learner = learner_of(lambda *given: ({"drawn": tf.reduce_sum(draw())}, {}), "graph")
    with pytest.raises(ValueError, match=r"global generator \(Random.*draw from `random`"):
        learner.learn(buffer_of(), 2)


def test_a_failed_eager_call_does_not_count_its_updates() -> None:
    numbers: list[int] = []

    def failing(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        numbers.append(int(phase.update))
        if len(numbers) == 2:
            raise KeyError("a slip")
        return {}, {}

    learner = learner_of(failing)
    with pytest.raises(KeyError, match="a slip"):
        learner.learn(buffer_of(), 3)
    learner.learn(buffer_of(), 3)
    assert numbers == [1, 2, 1, 2, 3]
    assert learner.updates == int(learner._counter.numpy()) == 3


def test_tensorflow_counts_traces_per_learner() -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    tf.get_logger().addHandler(handler)
    try:
        for _ in range(6):  # TensorFlow warns at the fifth trace in a row
            learner_of(nothing, "graph").learn(buffer_of(), 1)
        assert said == []
        function = tf.function(lambda number: number)
        for number in range(6):
            function(number)
        assert "triggered tf.function retracing" in said[0]
    finally:
        tf.get_logger().removeHandler(handler)
