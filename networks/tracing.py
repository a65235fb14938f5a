"""Traces TensorFlow programs such that they can be freed once nothing refers to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import ops

_GRADIENT = "_gradient_op_type"  # attribute of operations with a custom gradient
_FUNCTION_PREFIX = "__"  # prefix of `tf.function` names, which loops and branches lack


def traced(
    function: Callable[..., Any],
    *specs: tf.TensorSpec,
    jit_compile: bool = False,
    autograph: bool = True,
) -> Any:
    """Traces a function whose gradient is only taken inside the function itself.

    TensorFlow registers each custom gradient that it traces under a new name, for the life of the
    process: those of this package, of `tf.nn.silu` and of every Keras optimizer. Each entry refers
    to its graph and variables, so no agent would ever be freed. Once a program is complete, its
    gradients are no longer needed, and their entries are removed. Entries of other `tf.function`s
    that it calls are kept, because other programs may call these, too.

    Args:
        function: Maps tensors to tensors.
        *specs: The shape and dtype of each argument.
        jit_compile: Whether XLA compiles it.
        autograph: Whether to convert Python branches and loops over tensors. Without it, the first
            trace of a process takes an eighth of the time.

    Returns:
        The concrete function. Taking the gradient of a call to it raises a `LookupError`.
    """
    compiled = tf.function(function, jit_compile=jit_compile, autograph=autograph)
    program = compiled.get_concrete_function(*specs)
    # This attribute is private. If it is missing, agents are not freed, but nothing else changes.
    registered = getattr(ops.gradient_registry, "_registry", {})
    for name in _custom_gradients(program.graph.as_graph_def()):
        registered.pop(name, None)
    return program


def _custom_gradients(definition: Any) -> Iterator[str]:
    """Yields the names of a graph's custom gradients, including those in loops and branches.

    The `tf.function`s that the graph calls are skipped, including their loops and branches.
    """
    functions = {each.signature.name: each.node_def for each in definition.library.function}
    waiting, seen = [definition.node], set[str]()
    while waiting:
        for node in waiting.pop():
            if _GRADIENT in node.attr:
                yield node.attr[_GRADIENT].s.decode()
            for attribute in node.attr.values():
                for called in (attribute.func.name, *(each.name for each in attribute.list.func)):
                    if called and called not in seen and not called.startswith(_FUNCTION_PREFIX):
                        seen.add(called)
                        waiting.append(functions.get(called, []))
