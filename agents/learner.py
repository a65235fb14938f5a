"""K updates in one compiled call: sampling in Python, everything else in one program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.agents.execution import check_finite, compiled
from eagerly.agents.inputs import Batch, Inputs
from eagerly.agents.random import UpdateRandom
from eagerly.agents.schedule import Phase, Schedule
from eagerly.buffers import Buffer
from eagerly.seeding import Stream, seed_word

Tensors = dict[str, tf.Tensor]
Due = frozenset[int]
# Updates that are written out one after the other in a program; more of them become a loop.
_UNROLLED = 4


class Learner:
    """Samples from a replay buffer and makes updates, many in one call.

    What an update does is up to the algorithm. How updates are cut into calls changes no bit.

    Args:
        update: Makes one update of a batch; returns scalars, and what it has for each row `[B]`.
        inputs: Makes batches of a buffer's rows.
        seed: Seed of the random numbers of updates.
        mode: "eager", "graph" or "xla".
        schedule: What happens in some updates only.
        between: What to do after every so many updates, outside the program.
        published: Reads tensors at the end of a call, inside the program: what is asked of
            TensorFlow after it, when its code has left the processor's caches, is expensive.

    Attributes:
        counter: int64 variable, the number of the newest update.
        updates: The same as a Python number.
    """

    def __init__(
        self,
        update: Callable[[Batch, UpdateRandom, Phase], tuple[Tensors, Tensors]],
        inputs: Inputs,
        *,
        seed: int,
        mode: str,
        schedule: Schedule,
        between: Sequence[tuple[int, Callable[[], object]]],
        published: Callable[[], tuple[tf.Tensor, ...]],
    ) -> None:
        self._update, self._inputs, self._seed, self._schedule = update, inputs, seed, schedule
        self._between, self._published = between, published
        self.counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="updates")
        self.updates = 0
        self._metrics: dict[Due, tuple[str, ...]] = {}  # what updates return
        self._programs: dict[Any, Any] = {}  # of single updates
        self._is_eager = mode == "eager"
        self._call = compiled(self._one_by_one if self._is_eager else self._body, mode)

    def check_call(self, updates: int) -> None:
        """Refuses calls that what happens between calls cannot wait for.

        Raises:
            ValueError: If something happens every n updates, and `updates` does not divide n.
        """
        for every, _ in self._between:
            if every % updates:
                raise ValueError(
                    f"updates per call must divide {every}, as something happens between calls "
                    f"after every {every} updates; got {updates}"
                )

    def learn(self, buffer: Buffer, updates: int) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Makes `updates` updates in one call.

        Returns:
            For each metric its values in the updates that returned it; and what was published,
            or nothing where something has happened since.

        Raises:
            ValueError: If the buffer's sampler wants what updates do not return for each row.
            FloatingPointError: If a metric is NaN or infinite, naming it and the update.
        """
        self.check_call(updates)
        rows, weights = buffer.draw(updates, self._inputs.samples_per_update)
        weights = None if weights is None else tf.constant(weights, self._inputs.dtype)
        position, wanted = self.updates % self._schedule.period, buffer.sampler.per_row
        given = self._inputs.transferred(rows), weights, position, wanted
        history, per_row, published = self._call(*given)
        numbers = range(self.updates + 1, self.updates + updates + 1)
        self.updates += updates
        metrics = self._named(history.numpy(), numbers)
        if wanted:
            buffer.feedback({name: values.numpy() for name, values in per_row.items()})
        happening = [what for every, what in self._between if self.updates % every == 0]
        for what in happening:
            what()
        return metrics, [] if happening else [tensor.numpy() for tensor in published]

    def _named(self, history: np.ndarray, numbers: range) -> dict[str, np.ndarray]:
        """Splits what was returned `[K, M]` by name, and refuses what is not finite."""
        due = [self._schedule.due(number) for number in numbers]
        columns = zip(self._names(due), history.T, strict=True)
        there = {due: self._metrics[due] for due in due}
        metrics, made = {}, {}
        for name, column in columns:
            returned = np.array([name in there[each] for each in due])
            metrics[name], made[name] = column[returned], np.array(numbers)[returned]
        check_finite(metrics, made)
        return metrics

    def _names(self, due: Iterable[Due]) -> list[str]:
        """Lists the metrics of a call, in eager mode only those of updates that were made."""
        phases = self._schedule.phases()
        if self._is_eager:
            phases = [phase for phase in phases if phase in set(due)]
        return list(dict.fromkeys(name for phase in phases for name in self._metrics[phase]))

    def _one(
        self, due: Due, rows: tf.Tensor, weights: tf.Tensor | None, number: tf.Tensor
    ) -> tuple[Tensors, Tensors]:
        """Makes the update of that number."""
        dtype = self._inputs.dtype
        shifts = UpdateRandom(seed_word(self._seed, Stream.AUGMENTATION), number, dtype)
        batch = self._inputs.batch(rows, shifts)._replace(weight=weights)
        random = UpdateRandom(self._seed, number, dtype)
        results = self._update(batch, random, self._schedule.phase(due, number))
        if not (isinstance(results, tuple) and len(results) == 2):
            raise TypeError(
                "an update must return metrics and values per row, two dictionaries; got "
                f"{type(results).__name__}: return metrics, {{}} where it has nothing per row"
            )
        metrics, per_row = ({n: tf.cast(v, dtype) for n, v in each.items()} for each in results)
        for name, value in metrics.items():
            if value.shape.rank != 0:
                raise ValueError(f"metric {name} must be a scalar; got shape {value.shape}")
        for name, value in per_row.items():
            if value.shape != batch.reward.shape:
                raise ValueError(
                    f"{name} must have a value for each row, {batch.reward.shape}; got shape "
                    f"{value.shape}"
                )
        self._metrics[due] = tuple(metrics)
        return metrics, per_row

    def _one_by_one(
        self, rows: tf.Tensor, weights: Any, position: int, wanted: tuple[str, ...]
    ) -> tuple[tf.Tensor, Tensors, tuple[tf.Tensor, ...]]:
        """Makes K updates as `_body` does, in eager mode."""
        numbers = range(position + 1, position + 1 + len(rows))
        due, results = [self._schedule.due(number) for number in numbers], []
        for k, each in enumerate(due):
            self.counter.assign_add(1)
            weight = None if weights is None else weights[k]
            results.append(self._one(each, rows[k], weight, self.counter.value()))
        names, none = self._names(due), tf.zeros((), self._inputs.dtype)
        history = tf.stack([[metrics.get(n, none) for n in names] for metrics, _ in results])
        kept = {n: tf.stack([_of(per_row, n) for _, per_row in results]) for n in wanted}
        return history, kept, self._published()

    def _body(
        self, rows: tf.Tensor, weights: Any, position: int, wanted: tuple[str, ...]
    ) -> tuple[tf.Tensor, Tensors, tuple[tf.Tensor, ...]]:
        """Makes K updates in one program.

        A branch in it would copy every variable that it could change, so what happens in which
        update is settled while this is traced.

        Args:
            rows: `[K, ...]`, samples of a buffer.
            weights: `[K, B]`, or None.
            position: Updates since the last one that completed a period of the schedule; a Python
                number, and each one is another program.
            wanted: What to return for each row.

        Returns:
            Metrics `[K, M]`, what is wanted `[K, B]`, and what is published.
        """
        updates, period = rows.shape[0], self._schedule.period
        first = self.counter.value() + 1
        self.counter.assign_add(updates)
        for due in self._schedule.phases():
            self._program(due, rows, weights)
        arrays = tuple(tf.TensorArray(self._inputs.dtype, size=updates) for _ in ("", *wanted))
        given = rows, weights, first, wanted
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
        rows, weights, first, wanted = given
        number, weight = first + tf.cast(k, tf.int64), () if weights is None else (weights[k],)
        metrics, per_row = self._program(due, rows, weights)(rows[k], number, *weight)
        none = tf.zeros((), self._inputs.dtype)
        scalars = tf.stack([metrics.get(name, none) for name in self._names(())])
        values = scalars, *(_of(per_row, name) for name in wanted)
        return tuple(array.write(k, value) for array, value in zip(arrays, values, strict=True))

    def _program(self, due: Due, rows: tf.Tensor, weights: tf.Tensor | None) -> Any:
        """Traces an update once, as a function of its rows, their weights if any, and its number.

        Args:
            due: What is due in it.
            rows: Those of a whole call.
            weights: Theirs, or None.
        """
        key = due, rows.shape[1:], weights is None
        if key not in self._programs:

            def one(rows: tf.Tensor, number: tf.Tensor, weights: Any = None) -> Any:
                return self._one(due, rows, weights, number)

            given = [tf.TensorSpec(rows.shape[1:], rows.dtype), tf.TensorSpec((), tf.int64)]
            if weights is not None:
                given.append(tf.TensorSpec(weights.shape[1:], weights.dtype))
            self._programs[key] = tf.function(one).get_concrete_function(*given)
        return self._programs[key]

    def graph(self) -> tf.Graph | None:
        """Traces an update in which everything happens, for looking at; names as in the code.

        In eager mode, where a breakpoint must meet real tensors only, nothing is traced.
        """
        if self._is_eager:
            return None
        rows = tf.TensorSpec((1, *self._inputs.sample_shape), self._inputs.row_dtype)
        return self._program(frozenset(self._schedule.rhythms), rows, None).graph


def _of(per_row: Tensors, name: str) -> tf.Tensor:
    """Returns what a sampler wants of each row."""
    if name not in per_row:
        raise ValueError(
            f"the sampler wants {name} of each row; this algorithm returns "
            f"{', '.join(per_row) or 'nothing'}"
        )
    return per_row[name]
