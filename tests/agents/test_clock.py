"""The update counter shared by all modules."""

from __future__ import annotations

import tensorflow as tf

from eagerly.agents.clock import Clock


def test_the_clock_excludes_the_update_in_progress() -> None:
    clock, counter = Clock(), tf.Variable(7, dtype=tf.int64)
    assert clock.passed() == 0
    clock.count_with(counter)
    assert int(clock.passed()) == 7
    with clock.during(tf.constant(8, tf.int64)):
        # A call adds all of its updates to the counter when it starts.
        counter.assign(50)
        assert int(clock.passed()) == 7
    assert int(clock.passed()) == 50


def test_one_traced_program_serves_all_updates() -> None:
    clock = Clock()

    @tf.function
    def passed(update: tf.Tensor) -> tf.Tensor:
        with clock.during(update):
            return clock.passed()

    found = [int(passed(tf.constant(update, tf.int64))) for update in (1, 2, 9)]
    assert found == [0, 1, 8]
    assert passed.experimental_get_tracing_count() == 1
