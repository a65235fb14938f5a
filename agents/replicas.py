"""Data-parallel updates: several devices, each with an equal part of every batch.

Every replica has its own networks, targets and optimizers, equal to those of the others. Replicas
are traced in lock-step into one program: at each `Module.minimize`, their gradients are summed in a
fixed order, weighted by their numbers of valid rows, and each replica applies the sum. The result
is that of one device within rounding, and the same bits in every run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from functools import cached_property, partial
from itertools import chain
from typing import Any

import tensorflow as tf

from eagerly.agents.inputs import Batch
from eagerly.agents.metrics import MAXIMA
from eagerly.agents.results import Tensors, two_dictionaries
from eagerly.agents.schedule import Phase
from eagerly.agents.update_random import UpdateRandom


class Replicas:
    """Runs each update of an agent on several devices.

    Args:
        agent: The `Agent` that is the first replica, which acts, is logged and saved.
        another: Creates another one, with separate modules.
        normalizing: Layers whose variables only change between calls.

    Raises:
        ValueError: If the settings or the algorithm do not allow it, or devices are missing.
    """

    def __init__(
        self, agent: Any, another: Callable[[], Any], normalizing: Iterable[Any] = ()
    ) -> None:
        _check(agent, {id(v.value) for layer in normalizing for v in layer.variables})
        self._devices, self._first = _devices(agent.config.replicas), agent
        self._another, self._copy = another, tf.function(self._copied, autograph=False)

    @cached_property
    def _agents(self) -> list[Any]:
        """All replicas. They are created when first needed, after the agent is complete."""
        # Eagerly even while a program is traced. In `tf.init_scope`, tapes would record nothing.
        with ThreadPoolExecutor(1) as eager:
            return [self._first, *eager.map(self._created, self._devices[1:])]

    def _created(self, device: str) -> Any:
        with tf.device(device):
            return self._another()

    def copy_first(self) -> None:
        """Sets the variables of all replicas to those of the first, which may have been changed."""
        self._copy()

    def _copied(self) -> None:
        first, *others = ([*each.modules.groups().values()] for each in self._agents)
        for source, *targets in zip(chain(*first), *(chain(*each) for each in others), strict=True):
            for target in targets:
                target.assign(source.value)

    def update(self, batch: Batch, random: UpdateRandom, phase: Phase) -> tuple[Tensors, Tensors]:
        """Runs one update, as `Agent.update` does."""
        parts = _divided(batch, len(self._agents))
        shares = _shares([part.mask for part in parts], batch.reward.dtype)
        updates: list[Any] = [agent.update for agent in self._agents]
        if not tf.executing_eagerly():  # threads do not inherit the conversion by autograph
            autograph = tf.__internal__.autograph
            convert = partial(autograph.tf_convert, ctx=autograph.control_status_ctx())
            updates = [convert(update) for update in updates]
        mean = partial(_weighted_sum, shares=shares)
        lockstep = _Lockstep(self._devices, mean)
        with ExitStack() as opened:
            for agent in self._agents[1:]:
                opened.enter_context(agent.clock.during(phase.update))
            for index, agent in enumerate(self._agents):
                for module in agent.modules.values():
                    module.exchange = partial(lockstep.exchange, index)
                    opened.callback(setattr, module, "exchange", None)
            found = lockstep.run(
                partial(update, part, random.part(index), phase)
                for index, (update, part) in enumerate(zip(updates, parts, strict=True))
            )
        metrics, per_row = zip(*map(two_dictionaries, found), strict=True)
        joined = {
            name: (tf.reduce_max if name in MAXIMA else mean)(
                [tf.cast(each[name], batch.reward.dtype) for each in metrics]
            )
            for name in metrics[0]
        }
        return joined, {name: tf.concat([each[name] for each in per_row], 0) for name in per_row[0]}


def _check(agent: Any, known: set[int]) -> None:
    """Validates that an agent's update can be divided among devices.

    Updates must not change variables other than trainable ones, except those with ids in `known`.
    """
    config, kind = agent.config, type(agent)
    if not vars(kind).get("REPLICABLE", False):
        raise ValueError(
            f"replicas must be 1 for {kind.__name__}, because its updates are not declared to use "
            "a batch only through means over its rows (REPLICABLE = True in the class)"
        )
    if agent.inputs.samples_per_update % config.replicas:
        size = "sequences_per_update" if config.remembers else "batch_size"
        raise ValueError(
            f"replicas must divide {size}, {agent.inputs.samples_per_update}; got {config.replicas}"
        )
    for name, network in agent.modules.networks().items():
        trained = known | {id(variable.value) for variable in network.trainable_variables}
        for variable in network.variables:
            if id(variable.value) not in trained:
                raise ValueError(
                    f"replicas must be 1, because {name} has the variable {variable.path}, which "
                    "is not trained: it may depend on the batch, but a replica only sees a part"
                )


def _devices(count: int) -> list[str]:
    found = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(found) < count:
        raise ValueError(
            f"replicas {count} requires {count} devices; TensorFlow has {len(found)} of type "
            f"{found[0].device_type}: use replicas=1, or create more logical devices before "
            'TensorFlow is used (see "Scaling" in the documentation)'
        )
    return [device.name for device in found[:count]]


def _divided(batch: Batch, count: int) -> list[Batch]:
    """Returns equal parts of a batch. Windows, whose steps are consecutive rows, remain whole."""
    leaves = tf.nest.flatten(batch)
    split = [[None] * count if leaf is None else tf.split(leaf, count) for leaf in leaves]
    return [tf.nest.pack_sequence_as(batch, part) for part in zip(*split, strict=True)]


def _shares(masks: Sequence[tf.Tensor | None], dtype: tf.DType) -> list[tf.Tensor]:
    """Returns the fraction of the valid rows that each replica has."""
    if masks[0] is None:
        return [tf.constant(1.0 / len(masks), dtype)] * len(masks)
    counts = [tf.reduce_sum(tf.cast(mask, dtype)) for mask in masks]
    total = tf.maximum(tf.add_n(counts), 1.0)
    return [count / total for count in counts]


def _weighted_sum(values: Sequence[tf.Tensor], shares: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns Σ share · value, added in this order, because rounding depends on the order."""
    total = tf.cast(shares[0], values[0].dtype) * values[0]
    for share, value in zip(shares[1:], values[1:], strict=True):
        total += tf.cast(share, value.dtype) * value
    return total


class _Lockstep:
    """Runs one function per device, each in a thread, from one call of `exchange` to the next.

    Only one thread runs at a time, in turn, so that operations are created in the same order.

    Args:
        devices: The devices.
        join: Joins one value from each function.
    """

    def __init__(self, devices: Sequence[str], join: Callable[[Sequence[Any]], Any]) -> None:
        self._devices, self._join = devices, join
        self._graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        self._turns = [threading.Semaphore(0) for _ in devices]
        self._running = list(range(len(devices)))
        self._given: list[list[Any]] = [[] for _ in devices]  # per function and call
        self._results: list[Any] = [None] * len(devices)
        self._joined: list[Any] = []
        self._error: BaseException | None = None

    def run(self, functions: Iterable[Callable[[], Any]]) -> list[Any]:
        """Returns the results of all functions, or raises the first error."""
        threads = [
            threading.Thread(target=self._run, args=each, daemon=True)
            for each in enumerate(functions)
        ]
        for thread in threads:
            thread.start()
        self._turns[0].release()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        return self._results

    def exchange(self, index: int, values: Sequence[Any]) -> list[Any]:
        """Waits until all functions have passed their values, and returns the joined ones."""
        if self._graph is not None and tf.compat.v1.get_default_graph() is not self._graph:
            raise ValueError(
                "with several replicas, `minimize` must be called directly in `update`, not in a "
                "`tf.function`, loop or branch"
            )
        self._given[index].append([tf.convert_to_tensor(value) for value in values])
        self._pass_on(index)
        self._turns[index].acquire()
        if self._error is not None:
            raise RuntimeError("another replica failed")
        if min(map(len, self._given)) < len(self._given[index]):
            raise ValueError("all replicas must call `minimize` equally often")
        if index == 0:
            newest = zip(*(calls[-1] for calls in self._given), strict=True)
            self._joined = [self._join(each) for each in newest]
        return self._joined

    def _run(self, index: int, function: Callable[[], Any]) -> None:
        self._turns[index].acquire()
        graph = self._graph.as_default() if self._graph else nullcontext()
        try:
            if self._error is None:
                with graph, tf.device(self._devices[index]):
                    self._results[index] = function()
        except BaseException as error:
            self._error = self._error or error
        self._running.remove(index)
        self._pass_on(index)

    def _pass_on(self, index: int) -> None:
        """Lets the next function run that has not ended, if any."""
        later = [each for each in self._running if each > index] or self._running
        for following in later[:1]:
            self._turns[following].release()
