"""Runs K updates in one call: sampling in Python, everything else in compiled programs."""

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
from eagerly.buffers import Replay
from eagerly.networks.tracing import traced

_UNROLLED = 4  # programs unroll up to this many consecutive updates, and use a loop for more
_concat = partial(tf.concat, axis=0)


class Learner:
    """Samples from a replay buffer and runs many updates in one call.

    The pattern of due intervals repeats with a period, the least common multiple of the intervals.
    One program runs all whole periods of a call. Updates before and after them run one at a time,
    with a separate program for each combination of due intervals.

    Random numbers do not depend on how updates are divided into calls. Neither do the results of
    TD3 and DDPG, which are bitwise identical, unless the sampler uses feedback.

    Args:
        update: Runs one update on a batch. Returns metrics and per-row values.
        inputs: Converts buffer rows to batches.
        seed: Seed of the random numbers in updates.
        counter: int64 variable, the number of updates made.
        mode: "eager" (Python, for debugging), "graph" or "xla".
        intervals: Update intervals, such as `policy_delay`; see `Phase.is_multiple_of`.
        copied: Modules whose networks are copied to their targets between calls, in this order.
        published: Returns tensors to be included in the outputs of the program, because reading
            them after the call takes longer.
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
        self._programs: dict[Any, Any] = {}  # traced single updates
        self._calls: dict[Any, Callable[..., Any]] = {}  # compiled parts of calls
        compiled = partial(tf.function, jit_compile=mode == "xla", autograph=False)
        self._compiled: Any = (lambda body: body) if self._is_eager else compiled

    def check_call(self, updates: int) -> None:
        """Validates that no target has to be copied in the middle of a call.

        Raises:
            ValueError: Unless `updates` divides both the copy interval and the updates so far.
        """
        for module in self._copied:
            if (every := module.copy_every) % updates or self.updates % updates:
                fits = next(n for n in range(updates, 0, -1) if not (every % n or self.updates % n))
                raise ValueError(
                    f"updates per call must divide {every}, the updates between two copies of "
                    f"targets, and {self.updates}, the updates so far; got {updates}: use {fits}"
                )

    def learn(self, buffer: Replay, updates: int) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Runs K = `updates` updates.

        Returns:
            The values of each metric, and the published arrays. No arrays are returned if networks
            were copied to targets after the program ran, because that may have changed the arrays.

        Raises:
            ValueError: As in `check_call`, or if the sampler needs per-row values that are missing.
            FloatingPointError: If a metric is not finite. The message names it and the update.
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
        """Runs `_body`, compiled once for each value of its static arguments, `what`."""
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
        """Runs n = `length` · `times` updates in one program.

        Which intervals are due is decided while tracing, because a branch in the program would copy
        every variable that it could change.

        Args:
            runs: The due intervals of the updates in one repetition, grouped into runs.
            length: Number of updates in one repetition.
            times: Number of repetitions.
            wanted: Names of the per-row values to return.
            samples: Rows `[K, ...]` of a buffer, followed by their weights `[K, B]` if they have
                any.
            start: `[2]` int64, the number of updates made before these, in total and in this call.

        Returns:
            The values of each metric in the updates that return it; per-row values `[n, B]` for
            each name in `wanted`; the published tensors.
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

    More than `unrolled` calls run in a loop.
    """
    if times <= unrolled:
        return joined([function(k) for k in range(times)], _concat)
    # The program also returns k, because `map_fn` needs an output and updates may return nothing.
    number = tf.TensorSpec((), tf.int64)
    program = traced(lambda k: (*function(k), k[tf.newaxis]), number, autograph=False)
    outputs = tf.nest.map_structure(tf.TensorSpec.from_tensor, program.structured_outputs)
    stacked = tf.map_fn(program, tf.range(times, dtype=tf.int64), fn_output_signature=outputs)
    return tf.nest.map_structure(lambda part: tf.reshape(part, (-1, *part.shape[2:])), stacked)[:2]
