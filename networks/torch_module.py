"""A PyTorch module as an actor or critic: its own forward and backward pass, our optimiser.

The only module that needs PyTorch, which is an extra: `pip install eagerly[torch]`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import torch

# TensorFlow may call from several threads; a module's mode and the generator are the process's.
_ALONE = threading.Lock()
_UNSEEDED = -1  # in place of a seed: PyTorch's generator goes on from where it is


class TorchModule(tf.Module):
    """Calls a `torch.nn.Module` from TensorFlow, in eager and graph mode.

    Its parameters become TensorFlow variables, under the names that PyTorch gives them, and so do
    its buffers; what two modules share is one variable, of both. Forward and backward pass are
    PyTorch's, on the CPU: each call goes from TensorFlow through NumPy to PyTorch and back, and the
    backward pass repeats the forward pass. XLA cannot compile that.

    What layers such as dropout draw while the module is trained follows from its variable `seed`,
    which counts on in every such call: the backward pass sees the numbers of the forward pass, and
    a run continues bit for bit. A module that draws when it is not trained, too, then draws from
    PyTorch's own generator, which no checkpoint holds.

    Args:
        module: The module. It is called with one tensor for each input, `[B, ...]`; what its
            parameters hold is copied, and not changed any more.
    """

    compiles = False  # not with XLA

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(name=type(module).__name__)
        self._module = module
        self._learned = [_variable(name, value) for name, value in module.named_parameters()]
        self._kept = [_variable(name, value) for name, value in module.named_buffers()]
        self._names = [name for name, _ in module.named_parameters()]
        self._kept_names = [name for name, _ in module.named_buffers()]
        with torch.random.fork_rng(devices=[]):
            seed = int(torch.randint(2**62, ()))
        self._seed = tf.Variable(seed, name="seed", trainable=False, dtype=tf.int64)

    def __call__(self, *inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Maps inputs `[B, ...]` to what the module returns, a single tensor."""
        inputs = tuple(tf.convert_to_tensor(part) for part in inputs)
        count, kept = len(inputs), [variable.read_value() for variable in self._kept]
        shape = self._shape(inputs)
        seed = self._seed.read_value() if training else tf.constant(_UNSEEDED, tf.int64)

        @tf.custom_gradient
        def called(*tensors: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Any]:
            def forward(seed: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
                return self._forward(arrays, count, training, int(seed))

            kinds = [tensors[0].dtype, *(variable.dtype for variable in self._kept), tf.uint8]
            output, *buffers, state = tf.numpy_function(forward, [seed, *tensors, *kept], kinds)
            output.set_shape(shape)

            def gradient(upstream: tf.Tensor, *_: tf.Tensor) -> list[tf.Tensor]:
                def backward(state: np.ndarray, *arrays: np.ndarray) -> list[np.ndarray]:
                    return self._backward(arrays, count, training, state)

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
        """Names parameters that what is returned does not depend on."""
        given, parameters, buffers = self._own(
            [part.numpy() for part in (*inputs, *self._learned, *self._kept)], len(inputs)
        )
        with torch.enable_grad():
            total = self._run(given, parameters, buffers, training=False)[0].sum()
            learned = {n: p for n, p in parameters.items() if p.requires_grad}
            found = torch.autograd.grad(total, list(learned.values()), allow_unused=True)
        return [name for name, gradient in zip(learned, found, strict=True) if gradient is None]

    def _shape(self, inputs: Sequence[tf.Tensor]) -> list[int | None]:
        """Finds the shape of what is returned; where the batch is open it is tried with two."""
        rows = inputs[0].shape[0]
        shapes = [
            self._shape_for([np.zeros((count, *part.shape[1:]), np.float64) for part in inputs])
            for count in ((2, 3) if rows is None else (rows,))
        ]
        if len({len(shape) for shape in shapes}) > 1:
            raise ValueError(f"what is returned changes its rank with the batch: {shapes}")
        return [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes, strict=True)]

    def _shape_for(self, arrays: list[np.ndarray]) -> tuple[int, ...]:
        variables = (*self._learned, *self._kept)
        dtype = next((v.dtype for v in variables if v.dtype.is_floating), tf.float32)
        zeros = [np.zeros(v.shape, v.dtype.as_numpy_dtype) for v in variables]
        inputs = [array.astype(dtype.as_numpy_dtype) for array in arrays]
        given, parameters, buffers = self._own([*inputs, *zeros], len(inputs))
        with torch.no_grad():
            found, _ = self._run(given, parameters, buffers, training=False)
        if not isinstance(found, torch.Tensor):
            raise ValueError(f"a PyTorch module must return one tensor; it returned {type(found)}")
        return tuple(found.shape)

    def _own(
        self, arrays: Sequence[np.ndarray], count: int
    ) -> tuple[list[torch.Tensor], dict[str, torch.Tensor], list[torch.Tensor]]:
        """Splits arrays into inputs, parameters by name, and buffers; all are copies."""
        tensors = [torch.from_numpy(np.array(array)) for array in arrays]
        inputs, rest = tensors[:count], tensors[count:]
        parameters = dict(zip(self._names, rest, strict=False))
        for tensor in (*inputs, *parameters.values()):
            tensor.requires_grad_(tensor.is_floating_point())
        return inputs, parameters, rest[len(self._names) :]

    def _forward(
        self, arrays: Sequence[np.ndarray], count: int, training: bool, seed: int
    ) -> list[np.ndarray]:
        """Returns what the module returns, its buffers, and where its generator began."""
        inputs, parameters, buffers = self._own(arrays, count)
        forked = torch.random.fork_rng(devices=[], enabled=seed != _UNSEEDED)
        with torch.no_grad(), _ALONE, forked:
            if seed != _UNSEEDED:
                torch.manual_seed(seed)
            state = torch.get_rng_state()
            output, buffers = self._run(inputs, parameters, buffers, training)
        return [output.numpy(), *(buffer.numpy() for buffer in buffers), state.numpy()]

    def _backward(
        self, arrays: Sequence[np.ndarray], count: int, training: bool, state: np.ndarray
    ) -> list[np.ndarray]:
        upstream, *rest = arrays
        inputs, parameters, buffers = self._own(rest, count)
        with torch.enable_grad(), _ALONE, torch.random.fork_rng(devices=[]):
            torch.set_rng_state(torch.from_numpy(np.array(state)))
            output, _ = self._run(inputs, parameters, buffers, training)
            sources = [*inputs, *parameters.values()]
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
        self,
        inputs: Sequence[torch.Tensor],
        parameters: dict[str, torch.Tensor],
        buffers: Sequence[torch.Tensor],
        training: bool,
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Returns what the module returns, and its buffers, which it may have put others for."""
        own = parameters | dict(zip(self._kept_names, buffers, strict=True))
        self._module.train(training)
        output: torch.Tensor = torch.func.functional_call(self._module, own, tuple(inputs))
        return output, [own[name] for name in self._kept_names]


def _variable(name: str, value: torch.Tensor) -> tf.Variable:
    """Returns the variable of a parameter or buffer; a copy, as for targets, has none."""
    found: tf.Variable | None = getattr(value, "_eagerly_variable", None)
    if found is None:
        array = value.detach().cpu().numpy()
        found = tf.Variable(array, name=name, trainable=value.requires_grad)
        value._eagerly_variable = found
    return found
