"""Actors and critics of every supported kind of model, identical except for the framework.

`make reproduce PARTS=own` trains them on Pendulum. Each is an MLP with two hidden layers of 64
units. TD3 has two critics, so a function that builds a single critic is called twice.
"""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import keras
import tensorflow as tf

from eagerly.spaces import Actions, Observations

_UNITS = 64
Space = gymnasium.Space[Any]


def _sizes(observation_space: Space, action_space: Space) -> tuple[int, int]:
    return Observations(observation_space).size, Actions(action_space).size


# --- Keras ------------------------------------------------------------------------------------


def sequential_actor(observation_space: Space, action_space: Space) -> keras.Model:
    """Builds a `keras.Sequential`."""
    size, actions = _sizes(observation_space, action_space)
    hidden = [keras.layers.Dense(_UNITS, "relu") for _ in range(2)]
    return keras.Sequential([keras.Input((size,)), *hidden, keras.layers.Dense(actions, "tanh")])


def sequential_critic(observation_space: Space, action_space: Space) -> keras.Model:
    """Builds a `keras.Sequential` that takes the concatenated observation and action."""
    size, actions = _sizes(observation_space, action_space)
    hidden = [keras.layers.Dense(_UNITS, "relu") for _ in range(2)]
    return keras.Sequential([keras.Input((size + actions,)), *hidden, keras.layers.Dense(1)])


def functional_actor(observation_space: Space, action_space: Space) -> keras.Model:
    """Builds a functional model."""
    size, actions = _sizes(observation_space, action_space)
    observation = hidden = keras.Input((size,))
    for _ in range(2):
        hidden = keras.layers.Dense(_UNITS, "relu")(hidden)
    return keras.Model(observation, keras.layers.Dense(actions, "tanh")(hidden))


def functional_critic(observation_space: Space, action_space: Space) -> keras.Model:
    """Builds a functional model with two inputs."""
    size, actions = _sizes(observation_space, action_space)
    observation, action = keras.Input((size,)), keras.Input((actions,))
    hidden = keras.layers.Concatenate()([observation, action])
    for _ in range(2):
        hidden = keras.layers.Dense(_UNITS, "relu")(hidden)
    return keras.Model([observation, action], keras.layers.Dense(1)(hidden))


class Subclassed(keras.Model):
    """A model that creates its variables in its first call.

    Args:
        outputs: Number of outputs.
        activation: Activation of the outputs.
    """

    def __init__(self, outputs: int, activation: str | None) -> None:
        super().__init__()
        self.hidden = [keras.layers.Dense(_UNITS, "relu") for _ in range(2)]
        self.last = keras.layers.Dense(outputs, activation)

    def call(self, observation: tf.Tensor, action: tf.Tensor | None = None) -> tf.Tensor:
        """Maps `[B, O]` (critics: also `[B, A]`) to `[B, outputs]`."""
        hidden = observation if action is None else tf.concat([observation, action], axis=-1)
        for layer in self.hidden:
            hidden = layer(hidden)
        return self.last(hidden)


def subclassed_actor(observation_space: Space, action_space: Space) -> keras.Model:
    """Builds a `Subclassed` actor."""
    return Subclassed(_sizes(observation_space, action_space)[1], "tanh")


def subclassed_critic(observation_space: Space, action_space: Space) -> keras.Model:
    """Builds a `Subclassed` critic."""
    return Subclassed(1, None)


# --- others -----------------------------------------------------------------------------------


class SequentialModule(tf.Module):
    """An MLP that stores each kernel and bias as a plain `tf.Variable`.

    Args:
        inputs: Number of inputs.
        outputs: Number of outputs.
        bounded: Whether a tanh is applied to the outputs.
    """

    def __init__(self, inputs: int, outputs: int, *, bounded: bool) -> None:
        super().__init__()
        sizes = (inputs, _UNITS, _UNITS, outputs)
        self.bounded, self.layers = bounded, []
        for before, after in itertools.pairwise(sizes):
            limit = (6.0 / (before + after)) ** 0.5
            kernel = tf.Variable(tf.random.uniform((before, after), -limit, limit), name="kernel")
            self.layers.append((kernel, tf.Variable(tf.zeros(after), name="bias")))

    def __call__(self, *inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[B, O]` to `[B, A]`, or for critics `[B, O]` and `[B, A]` to `[outputs, B]`."""
        hidden = tf.concat(inputs, axis=-1)
        for kernel, bias in self.layers[:-1]:
            hidden = tf.nn.relu(hidden @ kernel + bias)
        kernel, bias = self.layers[-1]
        found = hidden @ kernel + bias
        return tf.tanh(found) if self.bounded else tf.transpose(found)


def module_actor(observation_space: Space, action_space: Space) -> SequentialModule:
    """Builds a `SequentialModule` actor."""
    return SequentialModule(*_sizes(observation_space, action_space), bounded=True)


def module_critic(observation_space: Space, action_space: Space) -> SequentialModule:
    """Builds a `SequentialModule` with a single critic."""
    return SequentialModule(sum(_sizes(observation_space, action_space)), 1, bounded=False)


def sonnet_actor(observation_space: Space, action_space: Space) -> Any:
    """Builds a Sonnet module."""
    import sonnet

    actions = _sizes(observation_space, action_space)[1]
    return sonnet.Sequential([sonnet.nets.MLP([_UNITS, _UNITS, actions]), tf.tanh])


def sonnet_critic(observation_space: Space, action_space: Space) -> Any:
    """Builds a Sonnet module with two inputs."""
    import sonnet

    class SonnetCritic(sonnet.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = sonnet.nets.MLP([_UNITS, _UNITS, 1])

        def __call__(self, observation: tf.Tensor, action: tf.Tensor) -> tf.Tensor:
            return self.network(tf.concat([observation, action], axis=-1))

    return SonnetCritic()


def torch_actor(observation_space: Space, action_space: Space) -> Any:
    """Builds a PyTorch module."""
    size, actions = _sizes(observation_space, action_space)
    return _of_torch(size, actions, bounded=True)


def torch_critic(observation_space: Space, action_space: Space) -> Any:
    """Builds a PyTorch module with two inputs."""
    return _of_torch(sum(_sizes(observation_space, action_space)), 1, bounded=False)


def _of_torch(inputs: int, outputs: int, *, bounded: bool) -> Any:
    import torch

    from eagerly.networks.torch_module import TorchModule

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = (inputs, _UNITS), (_UNITS, _UNITS)
            hidden = [part for s in sizes for part in (torch.nn.Linear(*s), torch.nn.ReLU())]
            last = torch.nn.Tanh() if bounded else torch.nn.Identity()
            self.layers = torch.nn.Sequential(*hidden, torch.nn.Linear(_UNITS, outputs), last)

        def forward(self, *inputs: Any) -> Any:
            return self.layers(torch.cat(inputs, dim=-1))

    return TorchModule(Network())
