"""K updates in one call: sampling in Python, everything else in compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from eagerly.agents.inputs import Batch, Inputs
from eagerly.agents.modules import Module
from eagerly.agents.results import Tensors, check_draws, check_finite, check_names, checked, joined
from eagerly.agents.schedule import MOST_RUNS, Intervals, Phase, Runs, due_in, parts_of
from eagerly.agents.update_random import UpdateRandom
from eagerly.buffers import Buffer
from eagerly.networks.tracing import traced

_UNROLLED = 4  # consecutive updates that a program unrolls; more become a loop
_concat = partial(tf.concat, axis=0)


class Learner:
    """Samples from a replay buffer and runs many updates in one call.

    One program runs whole periods of the intervals. Updates before and after them run in programs
    of one update, one program for each phase. The division of updates into calls changes no random
    number, and no bit of the results of TD3 and DDPG unless the sampler uses feedback.

    Args:
        update: Runs one update on a batch. Returns metrics and per-row values.
        inputs: Converts buffer rows to batches.
        seed: Seed of the random numbers in updates.
        counter: int64 variable, the number of updates made.
        mode: "eager" (Python, for debugging), "graph" or "xla".
        intervals: Update intervals, such as `policy_delay`; see `Phase.is_multiple_of`.
        copied: Modules whose targets are copied between calls, in this order.
        published: Returns tensors that the program outputs at its end, because reading them after
            the call takes longer.
        autograph: Whether `update` may branch on tensors in Python.

    Attributes:
        updates: Number of updates made.

    Raises:
        ValueError: If an interval is below 1.
    """

    def __init__(
        self,
        update: Callable[[Batch, UpdateRandom, Phase], tuple[Tensors, Tensors]],
        inputs: Inputs,
        *,
        seed: int,
        counter: tf.Variable,
        mode: str,
        intervals: tuple[int, ...],
        copied: Sequence[Module],
        published: Callable[[], tuple[tf.Tensor, ...]],
        autograph: bool = True,
    ) -> None:
        if any(every < 1 for every in intervals):
            raise ValueError(f"intervals must be at least 1; got {intervals}")
        self._update, self._inputs, self._seed, self._intervals = update, inputs, seed, intervals
        self._copied, self._published, self._autograph = copied, published, autograph
        self._counter, self.updates, self._is_eager = counter, 0, mode == "eager"
        self._returned: dict[Intervals, tuple[str, ...]] = {}  # metric names by due intervals
        self._programs: dict[Any, Any] = {}  # single updates
        self._calls: dict[Any, Callable[..., Any]] = {}  # parts of calls
        compiled = partial(tf.function, jit_compile=mode == "xla", autograph=False)
        self._compiled: Any = (lambda body: body) if self._is_eager else compiled

    def check_call(self, updates: int) -> None:
        """Validates that no target has to be copied in the middle of a call.

        Raises:
            ValueError: Unless `updates` divides both the copy interval and the number of updates so
                far.
        """
        for module in self._copied:
            if module.copy_every % updates or self.updates % updates:
                raise ValueError(
                    f"updates per call must divide {module.copy_every}, the updates between two "
                    f"copies of targets, and {self.updates}, the updates so far; got {updates}"
                )

    def learn(self, buffer: Buffer, updates: int) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Runs K = `updates` updates.

        Returns:
            Each metric's values, and the published arrays. The arrays are omitted if targets were
            copied after the program ran, because the copies may have changed them.

        Raises:
            ValueError: As in `check_call`, or if `update` does not return a value that the sampler
                needs.
            FloatingPointError: If a metric is NaN or infinite, naming it and the update.
        """
        self.check_call(updates)
        rows, weights = buffer.draw(updates, self._inputs.samples_per_update)
        samples = [self._inputs.transferred(rows)]
        if weights is not None:
            samples.append(tf.constant(weights, self._inputs.dtype))
        wanted, results, before = buffer.sampler.per_row, [], 0
        most_runs = 0 if self._is_eager else MOST_RUNS
        for runs, length, times in parts_of(self.updates, updates, self._intervals, most_runs):
            start = tf.constant((self.updates + before, before), tf.int64)
            results.append(self._call((runs, length, times, wanted), samples, start))
            before += length * times
        metrics, per_row = joined(results, np.concatenate)
        numbers = range(self.updates + 1, self.updates + updates + 1)
        self.updates += updates
        check_finite(metrics, numbers, lambda n: self._returned[due_in(n, self._intervals)])
        if wanted:
            buffer.feedback(per_row)
        published = [tensor.numpy() for tensor in results[-1][2]]
        for module in self._copied:
            if self.updates % module.copy_every == 0:
                module.copy_to_target()
                published = []
        return metrics, published

    def _call(self, what: Any, *given: Any) -> Any:
        """Runs `_body`, compiled once for each `what`."""
        if what not in self._calls:
            self._calls[what] = self._compiled(partial(self._body, *what))
        return self._calls[what](*given)

    def _body(
        self,
        runs: Runs,
        length: int,
        times: int,
        wanted: tuple[str, ...],
        samples: list[tf.Tensor],
        start: tf.Tensor,
    ) -> tuple[Tensors, Tensors, tuple[tf.Tensor, ...]]:
        """Runs n updates in one program.

        Due intervals are fixed while tracing. A branch in the program would copy every variable
        that it could change.

        Args:
            runs: The intervals due in the updates of one repetition.
            length: Number of updates in one repetition.
            times: Number of repetitions.
            wanted: Names of the per-row values to return.
            samples: Rows `[K, ...]` of a buffer, followed by their weights `[K, B]` if they have
                any.
            start: `[2]` int64, the number of updates made before these, in total and in this call.

        Returns:
            Each metric's values in the updates that return it; `[n, B]` for each name in `wanted`;
            the published tensors.
        """
        made, first = tf.unstack(start)
        self._counter.assign(made + length * times)

        def update(due: Intervals, before: Any, k: Any) -> tuple[Tensors, Tensors]:
            program, k = self._program(due, samples, wanted), before + k
            # Not `part[first + k]`: XLA would compile a separate program for each `first`.
            return program(made + 1 + k, *(tf.gather(part, first + k) for part in samples))

        def repetition(number: Any) -> tuple[Tensors, Tensors]:
            before, parts = number * length, []
            for due, count in runs:
                parts.append(_repeated(partial(update, due, before), count, _UNROLLED))
                before += count
            return joined(parts, _concat)

        return *_repeated(repetition, times), self._published()

    def _program(self, due: Intervals, samples: list[tf.Tensor], wanted: tuple[str, ...]) -> Any:
        """Returns a function that runs one update, traced once unless in eager mode."""
        one = partial(self._one, due, wanted)
        if self._is_eager:
            return one
        key = due, len(samples), wanted
        if key not in self._programs:
            specs = [tf.TensorSpec(part.shape[1:], part.dtype) for part in samples]
            number = tf.TensorSpec((), tf.int64)
            self._programs[key] = traced(one, number, *specs, autograph=self._autograph)
            check_draws(self._programs[key].graph)
        return self._programs[key]

    def _one(
        self, due: Intervals, wanted: Sequence[str], number: tf.Tensor, *sample: tf.Tensor
    ) -> tuple[Tensors, Tensors]:
        """Runs the update `number`. Returns metrics `[1]` and wanted values `[1, B]`."""
        batch, dtype = self._inputs.batch(sample[0], number, *sample[1:]), self._inputs.dtype
        phase = Phase(number, due, self._intervals)
        results = self._update(batch, UpdateRandom(self._seed, number, dtype), phase)
        metrics, per_row = checked(results, self._inputs.rows_per_update, dtype, wanted)
        check_names(metrics, self._returned.setdefault(due, tuple(metrics)))
        return metrics, per_row

    def graph(self) -> tf.Graph | None:
        """Returns the graph of an update in which every interval is due, or None in eager mode."""
        rows = tf.TensorSpec((1, *self._inputs.sample_shape), self._inputs.row_dtype)
        return None if self._is_eager else self._program(self._intervals, [rows], ()).graph


def _repeated(function: Callable[[Any], Any], times: int, unrolled: int = 1) -> Any:
    """Returns the joined results of `function(0)` to `function(times - 1)`.

    More than `unrolled` calls become a loop.
    """
    if times <= unrolled:
        return joined([function(k) for k in range(times)], _concat)
    # Also returns the number: `map_fn` needs an output, and updates may return nothing.
    number = tf.TensorSpec((), tf.int64)
    program = traced(lambda k: (*function(k), k[tf.newaxis]), number, autograph=False)
    outputs = tf.nest.map_structure(tf.TensorSpec.from_tensor, program.structured_outputs)
    stacked = tf.map_fn(program, tf.range(times, dtype=tf.int64), fn_output_signature=outputs)
    return tf.nest.map_structure(lambda part: tf.reshape(part, (-1, *part.shape[2:])), stacked)[:2]
