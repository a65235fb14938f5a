"""PyTorch modules as actors or critics.

PyTorch computes the gradients, and the agent's Keras optimizer applies them.

Only this module needs PyTorch, an optional dependency: `pip install eagerly[torch]`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
import torch

# Held while PyTorch runs: TensorFlow may call from several threads, but the mode of a module and
# PyTorch's generator are global.
_LOCK = threading.Lock()
_UNSEEDED = -1  # instead of a seed: continue from the current state of PyTorch's generator


class TorchModule(tf.Module):
    """Calls a `torch.nn.Module` from TensorFlow, in eager and graph mode.

    Parameters and buffers become TensorFlow variables with their PyTorch names. A parameter or
    buffer shared by two modules becomes one shared variable. Forward and backward pass run in
    PyTorch, on the CPU. Each call goes from TensorFlow through NumPy to PyTorch and back, and the
    backward pass repeats the forward pass. XLA cannot compile this.

    In training, the random numbers of layers such as dropout follow from the variable `seed`, which
    every training call increments. The backward pass therefore uses the random numbers of the
    forward pass, and a resumed run is bitwise identical. If a module also draws random numbers
    outside training, these come from PyTorch's own generator, which is not part of a checkpoint.

    Args:
        module: The module, called with one tensor `[B, ...]` per input. Its parameter values are
            copied; the originals are never changed.
    """

    compiles = False  # XLA cannot compile it

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(name=type(module).__name__)
        self._module = module
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        self._learned = [_variable(name, value) for name, value in parameters.items()]
        self._kept = [_variable(name, value) for name, value in buffers.items()]
        self._names, self._kept_names = [*parameters, *buffers], [*buffers]
        with torch.random.fork_rng(devices=[]):
            seed = int(torch.randint(2**62, ()))
        self._seed = tf.Variable(seed, name="seed", trainable=False, dtype=tf.int64)

    def __call__(self, *inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps inputs `[B, ...]` to the module's output, a single tensor."""
        inputs = tuple(tf.convert_to_tensor(part) for part in inputs)
        count, kept = len(inputs), [variable.read_value() for variable in self._kept]
        shape = self._shape(inputs)
        seed = self._seed.read_value() if training else tf.constant(_UNSEEDED, tf.int64)

        @tf.custom_gradient
        def called(*tensors: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Any]:
            kinds = [tensors[0].dtype, *(variable.dtype for variable in self._kept), tf.uint8]
            forward = partial(self._forward, count, training)
            output, *buffers, state = tf.numpy_function(forward, [seed, *tensors, *kept], kinds)
            output.set_shape(shape)

            def gradient(upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
                backward = partial(self._backward, count, training)
                given = [state, upstream, *tensors, *kept]
                found = tf.numpy_function(backward, given, [part.dtype for part in tensors])
                for part, tensor in zip(found, tensors, strict=True):
                    part.set_shape(tensor.shape)
                return list(found)

            return (output, *buffers), gradient

        output, *buffers = called(*inputs, *(v.value() for v in self._learned))
        if training:
            for variable, value in zip(self._kept, buffers, strict=True):
                variable.assign(tf.reshape(value, variable.shape))
            self._seed.assign_add(1)
        return output

    def without_gradient(self, *inputs: tf.Tensor) -> list[str]:
        """Returns the names of trainable parameters that the output does not depend on."""
        arrays = [part.numpy() for part in (*inputs, *self._learned, *self._kept)]
        with torch.enable_grad(), _LOCK:
            output, sources, _ = self._run(arrays, len(inputs), training=False)
            pairs = zip(self._names, sources[len(inputs) :], strict=False)
            learned = {name: tensor for name, tensor in pairs if tensor.requires_grad}
            found = torch.autograd.grad(output.sum(), list(learned.values()), allow_unused=True)
        return [name for name, gradient in zip(learned, found, strict=True) if gradient is None]

    def _shape(self, inputs: Sequence[tf.Tensor]) -> list[int | None]:
        """Returns the output shape. If the batch size is unknown, two batch sizes are tried."""
        variables, rows, shapes = (*self._learned, *self._kept), inputs[0].shape[0], []
        dtype = next((v.dtype for v in variables if v.dtype.is_floating), tf.float32)
        zeros = [np.zeros(v.shape, v.dtype.as_numpy_dtype) for v in variables]
        for count in (2, 3) if rows is None else (rows,):
            given = [np.zeros((count, *part.shape[1:]), dtype.as_numpy_dtype) for part in inputs]
            with torch.no_grad(), _LOCK:
                found, *_ = self._run([*given, *zeros], len(inputs), training=False)
            if not isinstance(found, torch.Tensor):
                raise ValueError(
                    f"a PyTorch module must return one tensor; it returned {type(found)}"
                )
            shapes.append(tuple(found.shape))
        if len({len(shape) for shape in shapes}) > 1:
            raise ValueError(f"the output rank must not depend on the batch size; got {shapes}")
        return [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]

    def _forward(
        self, count: int, training: bool, seed: np.ndarray, *arrays: np.ndarray
    ) -> list[np.ndarray]:
        """Returns the output, the buffers, and the generator state before the call."""
        forked = torch.random.fork_rng(devices=[], enabled=bool(seed != _UNSEEDED))
        with torch.no_grad(), _LOCK, forked:
            if seed != _UNSEEDED:
                torch.manual_seed(int(seed))
            state = torch.get_rng_state()
            output, _, buffers = self._run(arrays, count, training)
        return [output.numpy(), *(buffer.numpy() for buffer in buffers), state.numpy()]

    def _backward(
        self, count: int, training: bool, state: np.ndarray, upstream: np.ndarray, *arrays: Any
    ) -> list[np.ndarray]:
        with torch.enable_grad(), _LOCK, torch.random.fork_rng(devices=[]):
            torch.set_rng_state(torch.from_numpy(np.array(state)))
            output, sources, _ = self._run(arrays, count, training)
            found = torch.autograd.grad(
                output, sources, torch.from_numpy(np.array(upstream)), allow_unused=True
            )
        return [
            np.zeros(tuple(source.shape), source.detach().numpy().dtype)
            if gradient is None
            else gradient.numpy()
            for source, gradient in zip(sources, found, strict=True)
        ]

    def _run(
        self, arrays: Sequence[np.ndarray], count: int, training: bool
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Calls the module with copies of `count` inputs, its parameters and its buffers.

        Returns:
            The output, the list of inputs and parameters, and the buffers after the call.
        """
        tensors = [torch.from_numpy(np.array(array)) for array in arrays]
        sources = tensors[: count + len(self._learned)]
        for tensor in sources:
            tensor.requires_grad_(tensor.is_floating_point())
        named = dict(zip(self._names, tensors[count:], strict=True))
        self._module.train(training)
        output = torch.func.functional_call(self._module, named, tuple(tensors[:count]))
        return output, sources, [named[name] for name in self._kept_names]


def _variable(name: str, value: torch.Tensor) -> tf.Variable:
    """Returns the variable of a parameter or buffer. Copies of a module get separate variables."""
    found: tf.Variable | None = getattr(value, "_eagerly_variable", None)
    if found is None:
        array = value.detach().cpu().numpy()
        found = tf.Variable(array, name=name, trainable=value.requires_grad)
        value._eagerly_variable = found
    return found
