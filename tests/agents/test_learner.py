"""K updates in a call: what they return, what a sampler hears, and what happens between calls."""

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
ROWS = 3  # of a batch


class InOrder(UniformSampler):
    """Draws one place after the other, weighs it by its number, and keeps what it is told."""

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
    """Seven rows whose reward is their number."""
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
        autograph=False,  # tests/agents/test_own_models.py has code that needs it
    )


def every(updates: int, copy: Callable[[], object] = list) -> Any:
    """A module whose target is copied every so many updates."""
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
        ("xla", (12,)),  # which compiles each number of updates anew
    ],
)
def test_metrics_are_whatever_an_update_returns_also_others_in_other_phases(
    mode: str, calls: tuple[int, ...]
) -> None:
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
def test_what_is_not_finite_is_named_with_its_update_also_where_it_is_seldom(mode: str) -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        number = number_of(phase)
        rare = {"rare": 1.0 / (4.0 - number)} if phase.is_multiple_of(2) else {}
        return {"update": number} | rare, {}

    learner = learner_of(update, mode, intervals=(2,))
    with pytest.raises(FloatingPointError, match="rare became inf in update 4"):
        learner.learn(buffer_of(), 6)


SHAPES: list[Any] = [
    (lambda b: ({"m": b.reward}, {}), ValueError, r"metric m must be a scalar; got shape \(3,\)"),
    (
        lambda b: ({}, {"error": b.reward[:, tf.newaxis]}),
        ValueError,
        r"error must have shape \[3\], a value for each row; got shape \(3, 1\)",
    ),
    (
        lambda b: ({}, {"error": tf.reduce_mean(b.reward)}),
        ValueError,
        r"error must have shape \[3\], a value for each row; got shape \(\)",
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
def test_what_does_not_fit_is_refused_with_a_sentence(
    mode: str, returned: Any, error: type[Exception], message: str
) -> None:
    learner = learner_of(lambda batch, *_: two_dictionaries(returned(batch)), mode)
    with pytest.raises(error, match=message):
        learner.learn(buffer_of(), 2)


def test_metrics_that_come_and_go_are_refused() -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        number = number_of(phase)
        return {"a": number} | ({"b": number} if number > 1 else {}), {}

    with pytest.raises(ValueError, match="the same in all updates of a phase; got a, then a, b"):
        learner_of(update).learn(buffer_of(), 2)


# --- samplers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "updates"), [("eager", 1), ("eager", 9), ("graph", 1), ("graph", 9), ("xla", 9)]
)
def test_a_sampler_hears_what_it_wants_of_the_rows_that_it_drew_in_their_order(
    mode: str, updates: int
) -> None:
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


def test_without_weights_all_rows_count_alike() -> None:
    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        assert batch.weight is None
        return {}, {}

    learner_of(update).learn(buffer_of(), 1)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize(
    ("names", "there"), [(("one", "two"), "one, two"), ((), "nothing")], ids=["others", "nothing"]
)
def test_a_sampler_that_wants_what_is_not_returned_is_refused_naming_both(
    mode: str, names: tuple[str, ...], there: str
) -> None:
    learner = learner_of(lambda batch, *_: ({}, dict.fromkeys(names, batch.reward)), mode)
    with pytest.raises(ValueError, match=f"wants td_error of each row; .* returns {there}"):
        learner.learn(buffer_of(InOrder("td_error")), 1)


# --- between calls ------------------------------------------------------------------------------


@MODES
def test_targets_are_copied_between_calls_after_every_so_many_updates_in_order(mode: str) -> None:
    happened: list[tuple[str, int]] = []

    copied = [
        every(4, lambda: happened.append(("first", learner.updates))),
        every(8, lambda: happened.append(("second", learner.updates))),
    ]
    learner, buffer = learner_of(nothing, mode, copied=copied), buffer_of()
    for updates in (2, 2, 4, 1, 1, 2):
        learner.learn(buffer, updates)
    assert happened == [("first", 4), ("first", 8), ("second", 8), ("first", 12)]


def test_a_copy_between_calls_makes_what_was_published_old() -> None:
    learner = learner_of(nothing, copied=[every(2)])
    learner._published = lambda: (tf.constant([3.0]),)
    buffer = buffer_of()
    assert [value.tolist() for value in learner.learn(buffer, 1)[1]] == [[3.0]]
    assert learner.learn(buffer, 1)[1] == []


@pytest.mark.parametrize("updates", [3, 5, 12])
def test_a_call_that_does_not_divide_the_updates_between_copies_is_refused(updates: int) -> None:
    learner, buffer = learner_of(nothing, copied=[every(6), every(4)]), buffer_of(InOrder())
    with pytest.raises(ValueError, match=rf"must divide [46], .*; got {updates}"):
        learner.learn(buffer, updates)
    assert learner.updates == 0
    assert buffer.sampler._next == 0  # nothing was drawn


def test_a_call_that_would_step_over_a_copy_is_refused() -> None:
    learner, buffer = learner_of(nothing, copied=[every(4)]), buffer_of()
    learner.learn(buffer, 2)
    with pytest.raises(ValueError, match=r"must divide 4, .*, and 2, the updates so far; got 4"):
        learner.learn(buffer, 4)
    learner.learn(buffer, 2)
    learner.learn(buffer, 4)


# --- calls and programs -------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("intervals", [(), (7,), (2, 4)])
def test_every_update_knows_its_number_however_updates_are_cut_into_calls(
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
def test_an_update_is_traced_once_for_each_phase_whatever_the_calls(mode: str) -> None:
    traced: list[bool] = []

    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        traced.append(phase.is_multiple_of(3))
        return {"number": number_of(phase)}, {}

    learner, buffer = learner_of(update, mode, intervals=(3,)), buffer_of()
    for updates in (2, 5, 1, 4):
        learner.learn(buffer, updates)
    assert sorted(traced) == [False, True]
    # With weights the batch is another one.
    learner.learn(buffer_of(InOrder()), 3)
    assert sorted(traced) == [False, False, True, True]


@pytest.mark.parametrize("intervals", [(0,), (2, -1)])
def test_rhythms_below_1_are_refused(intervals: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="intervals must be at least 1; got"):
        learner_of(nothing, intervals=intervals)


def test_in_eager_mode_updates_meet_real_tensors_and_have_no_graph() -> None:
    seen = []

    def update(batch: Batch, random: UpdateRandom, phase: Phase) -> Any:
        seen.append((int(phase.update.numpy()), batch.reward.numpy().tolist()))
        return {}, {}

    learner = learner_of(update)
    learner.learn(buffer_of(InOrder()), 2)
    assert seen == [(1, [0, 1, 2]), (2, [3, 4, 5])]
    assert learner.graph() is None


@pytest.mark.usefixtures("with_graph")
def test_the_graph_is_that_of_an_update_in_which_everything_happens() -> None:
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
def test_draws_of_tensorflows_own_generator_are_refused(draw: Any) -> None:
    learner = learner_of(lambda *given: ({"drawn": tf.reduce_sum(draw())}, {}), "graph")
    with pytest.raises(ValueError, match=r"own generator \(Random.*draw from `random`"):
        learner.learn(buffer_of(), 2)


def test_an_eager_call_that_fails_leaves_the_numbers_of_updates_as_they_were() -> None:
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


def test_tensorflow_counts_the_traces_of_each_learner_for_itself() -> None:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    tf.get_logger().addHandler(handler)
    try:
        for _ in range(6):  # it warns of the fifth trace in a row
            learner_of(nothing, "graph").learn(buffer_of(), 1)
        assert said == []
        function = tf.function(lambda number: number)
        for number in range(6):
            function(number)
        assert "triggered tf.function retracing" in said[0]
    finally:
        tf.get_logger().removeHandler(handler)
