"""TD3 in plain NumPy, written from Algorithm 1 of the paper, with gradients derived by hand.

It is slow and shares no code with `eagerly.agents`. Networks are lists of (kernel, bias); hidden
layers are ReLU, the actor ends in tanh.
"""

from __future__ import annotations

import numpy as np

Network = list[tuple[np.ndarray, np.ndarray]]
Gradient = list[tuple[np.ndarray, np.ndarray]]


def forward(network: Network, inputs: np.ndarray) -> list[np.ndarray]:
    """Returns the input of every layer, and the linear output of the last."""
    trail = [inputs]
    for depth, (kernel, bias) in enumerate(network):
        outputs = trail[-1] @ kernel + bias
        trail.append(np.maximum(outputs, 0.0) if depth < len(network) - 1 else outputs)
    return trail


def backward(
    network: Network, trail: list[np.ndarray], gradient: np.ndarray
) -> tuple[Gradient, np.ndarray]:
    """Returns the gradients of all weights, and of the input, from that of the last output."""
    gradients: Gradient = []
    for depth in reversed(range(len(network))):
        if depth < len(network) - 1:
            gradient = gradient * (trail[depth + 1] > 0.0)
        gradients.append((trail[depth].T @ gradient, gradient.sum(axis=0)))
        gradient = gradient @ network[depth][0].T
    return gradients[::-1], gradient


class Adam:
    """Kingma and Ba 2015, with epsilon added to sqrt(v) before the bias correction.

    Keras rounds the betas of the bias correction (not those of the averages) to float32, in
    every precision; in float64 that is seen in the tenth digit of a weight, so it is done here.
    """

    def __init__(self, network: Network, learning_rate: float, epsilon: float) -> None:
        self.rate, self.epsilon, self.count = learning_rate, epsilon, 0
        self.first = [[np.zeros_like(w) for w in layer] for layer in network]
        self.second = [[np.zeros_like(w) for w in layer] for layer in network]

    def step(self, network: Network, gradients: Gradient) -> Network:
        self.count += 1
        first_power, second_power = (float(np.float32(b)) ** self.count for b in (0.9, 0.999))
        rate = self.rate * np.sqrt(1 - second_power) / (1 - first_power)
        moved = []
        for depth, layer in enumerate(network):
            weights = []
            for part, weight in enumerate(layer):
                g = gradients[depth][part]
                m = 0.9 * self.first[depth][part] + 0.1 * g
                v = 0.999 * self.second[depth][part] + 0.001 * g * g
                self.first[depth][part], self.second[depth][part] = m, v
                weights.append(weight - rate * m / (np.sqrt(v) + self.epsilon))
            moved.append((weights[0], weights[1]))
        return moved


class ReferenceTD3:
    """The agent of Algorithm 1, from given networks."""

    def __init__(
        self,
        actor: Network,
        critics: list[Network],
        *,
        actor_rate: float,
        critic_rate: float,
        epsilon: float,
        tau: float,
        delay: int,
        clip: float,
    ) -> None:
        self.actor, self.actor_target = actor, actor
        self.critics, self.critic_targets = critics, critics
        self.actor_adam = Adam(actor, actor_rate, epsilon)
        self.critic_adams = [Adam(critic, critic_rate, epsilon) for critic in critics]
        self.tau, self.delay, self.clip, self.count = tau, delay, clip, 0

    def update(
        self,
        observation: np.ndarray,
        action: np.ndarray,
        reward: np.ndarray,
        discount: np.ndarray,
        next_observation: np.ndarray,
        noise: np.ndarray,
    ) -> None:
        self.count += 1
        next_action = np.tanh(forward(self.actor_target, next_observation)[-1])
        next_action = np.clip(next_action + np.clip(noise, -self.clip, self.clip), -1, 1)
        next_inputs = np.concatenate([next_observation, next_action], axis=1)
        next_values = [forward(critic, next_inputs)[-1][:, 0] for critic in self.critic_targets]
        target = reward + discount * np.min(next_values, axis=0)
        inputs = np.concatenate([observation, action], axis=1)
        for index, critic in enumerate(self.critics):
            self.critics = [*self.critics]
            gradients = critic_gradients(critic, inputs, target)
            self.critics[index] = self.critic_adams[index].step(critic, gradients)
        if self.count % self.delay:
            return
        gradients = actor_gradients(self.actor, self.critics[0], observation)
        self.actor = self.actor_adam.step(self.actor, gradients)
        self.critic_targets = [
            self._follow(t, c) for t, c in zip(self.critic_targets, self.critics, strict=True)
        ]
        self.actor_target = self._follow(self.actor_target, self.actor)

    def _follow(self, target: Network, source: Network) -> Network:
        return [
            (
                self.tau * kernel + (1 - self.tau) * old_kernel,
                self.tau * bias + (1 - self.tau) * old_bias,
            )
            for (old_kernel, old_bias), (kernel, bias) in zip(target, source, strict=True)
        ]


def critic_loss(critic: Network, inputs: np.ndarray, target: np.ndarray) -> float:
    return float(np.mean((forward(critic, inputs)[-1][:, 0] - target) ** 2))


def critic_gradients(critic: Network, inputs: np.ndarray, target: np.ndarray) -> Gradient:
    trail = forward(critic, inputs)
    error = 2 * (trail[-1][:, 0] - target) / len(target)
    return backward(critic, trail, error[:, np.newaxis])[0]


def actor_loss(actor: Network, critic: Network, observation: np.ndarray) -> float:
    action = np.tanh(forward(actor, observation)[-1])
    inputs = np.concatenate([observation, action], axis=1)
    return float(-np.mean(forward(critic, inputs)[-1]))


def actor_gradients(actor: Network, critic: Network, observation: np.ndarray) -> Gradient:
    trail = forward(actor, observation)
    action = np.tanh(trail[-1])
    inputs = np.concatenate([observation, action], axis=1)
    values = forward(critic, inputs)
    outward = np.full_like(values[-1], -1 / len(observation))
    _, of_inputs = backward(critic, values, outward)
    of_action = of_inputs[:, observation.shape[1] :]
    return backward(actor, trail, of_action * (1 - action**2))[0]
