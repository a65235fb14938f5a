"""K updates in one compiled call: sampling in Python, everything else in one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.agents.inputs import Batch, Inputs
from eagerly.agents.random import UpdateRandom
from eagerly.agents.results import (
    Tensors,
    check_draws,
    check_names,
    checked,
    named_metrics,
    wanted_of,
)
from eagerly.agents.schedule import Due, Phase, Schedule
from eagerly.buffers import Buffer
from eagerly.networks.tracing import traced

_UNROLLED = 4  # updates that a program writes out one by one; more of them become a loop


class Learner:
    """Samples from a replay buffer and makes updates, many in one call.

    What an update does is up to the algorithm. How updates are cut into calls changes none of their
    random numbers, and no bit of TD3 and DDPG unless the buffer's sampler takes values back.

    Args:
        update: Makes one update of a batch; returns metrics, and values for each row.
        inputs: Makes batches of a buffer's rows.
        seed: Seed of the random numbers of updates.
        counter: int64 variable, the number of the newest update that was begun.
        mode: "eager" runs updates as Python, for a debugger; "graph" K as a graph; "xla" compiled.
        schedule: What happens in some updates only.
        between: What to do after every so many updates, outside the program.
        published: Reads tensors inside the program, at the end of a call; later it takes longer.
        autograph: Whether `update` may branch on tensors in Python.

    Attributes:
        updates: How many updates were made.
    """

    def __init__(
        self,
        update: Callable[[Batch, UpdateRandom, Phase], tuple[Tensors, Tensors]],
        inputs: Inputs,
        *,
        seed: int,
        counter: tf.Variable,
        mode: str,
        schedule: Schedule,
        between: Sequence[tuple[int, Callable[[], object]]],
        published: Callable[[], tuple[tf.Tensor, ...]],
        autograph: bool = True,
    ) -> None:
        self._update, self._inputs, self._seed, self._schedule = update, inputs, seed, schedule
        self._between, self._published, self._autograph = between, published, autograph
        self._counter, self.updates, self._is_eager = counter, 0, mode == "eager"
        self._returned: dict[Due, tuple[str, ...]] = {}  # the metrics of updates
        self._programs: dict[Any, Any] = {}  # of single updates
        self._call: Callable[..., Any] = self._one_by_one
        if not self._is_eager:
            # A partial: TensorFlow counts the traces of a method over all learners together.
            self._call = tf.function(partial(self._body), jit_compile=mode == "xla")

    def check_call(self, updates: int) -> None:
        """Refuses calls that would go past what happens between calls.

        Raises:
            ValueError: If something happens every n updates and `updates` does not divide n.
        """
        for every, _ in self._between:
            left = every - self.updates % every
            if every % updates or updates > left:
                after = "" if left == every else f", next after {left}: it must be at most {left}"
                what = f"targets or the like are copied after every {every} updates{after}"
                raise ValueError(f"updates per call must divide {every}: {what}; got {updates}")

    def learn(self, buffer: Buffer, updates: int) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Makes `updates` updates in one call.

        Returns:
            Each metric's values, and what was published unless something has happened since.

        Raises:
            ValueError: As `check_call`, and if the buffer's sampler wants what is not returned.
            FloatingPointError: If a metric is NaN or infinite, naming it and the update.
        """
        self.check_call(updates)
        rows, weights = buffer.draw(updates, self._inputs.samples_per_update)
        samples = [self._inputs.transferred(rows)]
        if weights is not None:
            samples.append(tf.constant(weights, self._inputs.dtype))
        position, wanted = self.updates % self._schedule.period, buffer.sampler.per_row
        history, per_row, published = self._call(samples, position, wanted)
        numbers = range(self.updates + 1, self.updates + updates + 1)
        self.updates += updates
        due = [self._schedule.due(number) for number in numbers]
        returned = [self._returned[each] for each in due]
        metrics = named_metrics(self._names(due), history.numpy(), numbers, returned)
        if wanted:
            buffer.feedback({name: values.numpy() for name, values in per_row.items()})
        happening = [what for every, what in self._between if self.updates % every == 0]
        for what in happening:
            what()
        return metrics, [] if happening else [tensor.numpy() for tensor in published]

    def _names(self, made: Iterable[Due] = ()) -> list[str]:
        """Lists the metrics of a call; in eager mode only those of the updates that were made."""
        phases = [p for p in self._schedule.phases if not self._is_eager or p in made]
        return list(dict.fromkeys(name for phase in phases for name in self._returned[phase]))

    def _one(
        self, due: Due, number: tf.Tensor, rows: tf.Tensor, weight: tf.Tensor | None = None
    ) -> tuple[Tensors, Tensors]:
        """Makes the update of that number."""
        batch, dtype = self._inputs.batch(rows, number, weight), self._inputs.dtype
        random = UpdateRandom(self._seed, number, dtype)
        results = self._update(batch, random, self._schedule.phase(due, number))
        metrics, per_row = checked(results, self._inputs.rows_per_update, dtype)
        check_names(self._returned.setdefault(due, tuple(metrics)), metrics)
        return metrics, per_row

    def _one_by_one(
        self, samples: list[tf.Tensor], position: int, wanted: tuple[str, ...]
    ) -> tuple[tf.Tensor, Tensors, tuple[tf.Tensor, ...]]:
        """Makes K updates as `_body` does, in eager mode."""
        made, results, none = [], [], tf.zeros((), self._inputs.dtype)
        for k, sample in enumerate(zip(*samples, strict=True)):
            made.append(self._schedule.due(position + 1 + k))
            number = self._counter.assign(self.updates + 1 + k).value()
            results.append(self._one(made[-1], number, *sample))
        names = self._names(made)
        found = [[metrics.get(n, none) for n in names] for metrics, _ in results]
        history = tf.convert_to_tensor(found, none.dtype)
        kept = {n: tf.stack([wanted_of(per_row, n) for _, per_row in results]) for n in wanted}
        return history, kept, self._published()

    def _body(
        self, samples: list[tf.Tensor], position: int, wanted: tuple[str, ...]
    ) -> tuple[tf.Tensor, Tensors, tuple[tf.Tensor, ...]]:
        """Makes K updates in one program.

        Phases are settled while tracing: a branch would copy every variable that it could change.

        Args:
            samples: Rows `[K, ...]` of a buffer; their weights `[K, B]` too, if they have any.
            position: Updates since the last one that completed a period of the schedule; a Python
                number, and each one is another program.
            wanted: What to return for each row.

        Returns:
            Metrics `[K, M]`, what is wanted `[K, B]`, and what is published.
        """
        updates, period = samples[0].shape[0], self._schedule.period
        first = self._counter.value() + 1
        self._counter.assign_add(updates)
        for due in self._schedule.phases:
            self._program(due, samples)  # traced here, so that all metrics are known
        arrays = tuple(tf.TensorArray(self._inputs.dtype, size=updates) for _ in ("", *wanted))
        given = samples, first, wanted
        head = min(-position % period, updates)  # completes the period that is under way
        rounds, tail = divmod(updates - head, period)
        if head:
            arrays = self._updates(arrays, given, 0, range(position + 1, position + head + 1))
        if rounds:
            for number in tf.range(rounds):
                start = head + number * period
                arrays = self._updates(arrays, given, start, range(1, period + 1))
        if tail:
            arrays = self._updates(arrays, given, updates - tail, range(1, tail + 1))
        history, *kept = (array.stack() for array in arrays)
        return history, dict(zip(wanted, kept, strict=True)), self._published()

    def _updates(
        self, arrays: tuple[tf.TensorArray, ...], given: Any, start: Any, places: range
    ) -> tuple[tf.TensorArray, ...]:
        """Makes the updates that have these places in a period, from `start` on in the call."""
        for due, count in self._schedule.runs(places):
            for k in range(count) if count <= _UNROLLED else tf.range(count):
                arrays = self._written(arrays, given, start + k, due)
            start += count
        return arrays

    def _written(
        self, arrays: tuple[tf.TensorArray, ...], given: Any, k: Any, due: Due
    ) -> tuple[tf.TensorArray, ...]:
        """Makes update k of a call, and writes what it returned."""
        samples, first, wanted = given
        update, none = self._program(due, samples), tf.zeros((), self._inputs.dtype)
        metrics, per_row = update(first + tf.cast(k, tf.int64), *(part[k] for part in samples))
        history = tf.convert_to_tensor([metrics.get(n, none) for n in self._names()], none.dtype)
        values = history, *(wanted_of(per_row, name) for name in wanted)
        return tuple(array.write(k, value) for array, value in zip(arrays, values, strict=True))

    def _program(self, due: Due, samples: list[tf.Tensor]) -> Any:
        """Traces an update once, as a function of its number and its part of the samples."""
        key = due, len(samples)
        if key not in self._programs:
            given = [tf.TensorSpec((), tf.int64)]
            given += [tf.TensorSpec(part.shape[1:], part.dtype) for part in samples]
            self._programs[key] = traced(partial(self._one, due), *given, autograph=self._autograph)
            check_draws(self._programs[key].graph)
        return self._programs[key]

    def graph(self) -> tf.Graph | None:
        """Traces an update in which everything happens; in eager mode nothing is traced."""
        if self._is_eager:
            return None
        rows = tf.TensorSpec((1, *self._inputs.sample_shape), self._inputs.row_dtype)
        return self._program(frozenset(self._schedule.rhythms), [rows]).graph
