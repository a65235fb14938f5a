"""Networks and Adam in plain NumPy with hand-derived gradients, for the reference agents.

The code is slow and independent of `eagerly.agents`. A network is a list of (kernel, bias), one
pair per layer. Hidden layers use ReLU, and the actor ends in tanh. A critic concatenates the action
to the input of layer `join`.
"""

from __future__ import annotations

import numpy as np

Network = list[tuple[np.ndarray, np.ndarray]]
Gradient = list[tuple[np.ndarray, np.ndarray]]


def forward(
    network: Network, inputs: np.ndarray, action: np.ndarray | None = None, join: int = 0
) -> list[np.ndarray]:
    """Returns the inputs of all layers, followed by the linear output of the last layer."""
    trail = []
    hidden = inputs
    for depth, (kernel, bias) in enumerate(network):
        if action is not None and depth == join:
            hidden = np.concatenate([hidden, action], axis=1)
        trail.append(hidden)
        outputs = hidden @ kernel + bias
        hidden = np.maximum(outputs, 0.0) if depth < len(network) - 1 else outputs
    return [*trail, hidden]


def backward(
    network: Network, trail: list[np.ndarray], gradient: np.ndarray, actions: int = 0, join: int = 0
) -> tuple[Gradient, np.ndarray]:
    """Returns the gradients with respect to weights and action, given the output gradient."""
    gradients: Gradient = []
    of_action = np.zeros((len(gradient), 0))
    for depth in reversed(range(len(network))):
        gradients.append((trail[depth].T @ gradient, gradient.sum(axis=0)))
        gradient = gradient @ network[depth][0].T
        own = gradient.shape[1] - (actions if depth == join else 0)
        if depth == join:
            of_action = gradient[:, own:]
        gradient = gradient[:, :own] * (trail[depth][:, :own] > 0.0)
    return gradients[::-1], of_action


class Adam:
    """Adam (Kingma and Ba 2015), with epsilon added to sqrt(v) before the bias correction."""

    def __init__(self, network: Network, learning_rate: float, epsilon: float) -> None:
        self.rate, self.epsilon, self.count = learning_rate, epsilon, 0
        self.first = [[np.zeros_like(w) for w in layer] for layer in network]
        self.second = [[np.zeros_like(w) for w in layer] for layer in network]

    def step(self, network: Network, gradients: Gradient) -> Network:
        self.count += 1
        first_power, second_power = (beta**self.count for beta in (0.9, 0.999))
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


def followed(tau: float, target: Network, source: Network) -> Network:
    return [
        (tau * kernel + (1 - tau) * old_kernel, tau * bias + (1 - tau) * old_bias)
        for (old_kernel, old_bias), (kernel, bias) in zip(target, source, strict=True)
    ]


def critic_values(
    critic: Network, observation: np.ndarray, action: np.ndarray, join: int = 0
) -> np.ndarray:
    return forward(critic, observation, action, join)[-1][:, 0]


def critic_loss(
    critic: Network,
    observation: np.ndarray,
    action: np.ndarray,
    target: np.ndarray,
    join: int = 0,
    l2: float = 0.0,
) -> float:
    error = critic_values(critic, observation, action, join) - target
    penalty = l2 / 2 * sum((part**2).sum() for layer in critic for part in layer)
    return float(np.mean(error**2) + penalty)


def critic_gradients(
    critic: Network,
    observation: np.ndarray,
    action: np.ndarray,
    target: np.ndarray,
    join: int = 0,
    l2: float = 0.0,
) -> Gradient:
    trail = forward(critic, observation, action, join)
    error = 2 * (trail[-1][:, 0] - target) / len(target)
    gradients, _ = backward(critic, trail, error[:, np.newaxis], action.shape[1], join)
    return [
        (of_kernel + l2 * kernel, of_bias + l2 * bias)
        for (of_kernel, of_bias), (kernel, bias) in zip(gradients, critic, strict=True)
    ]


def actor_loss(actor: Network, critic: Network, observation: np.ndarray, join: int = 0) -> float:
    action = np.tanh(forward(actor, observation)[-1])
    return float(-np.mean(critic_values(critic, observation, action, join)))


def actor_gradients(
    actor: Network, critic: Network, observation: np.ndarray, join: int = 0
) -> Gradient:
    trail = forward(actor, observation)
    action = np.tanh(trail[-1])
    values = forward(critic, observation, action, join)
    outward = np.full_like(values[-1], -1 / len(observation))
    _, of_action = backward(critic, values, outward, action.shape[1], join)
    return backward(actor, trail, of_action * (1 - action**2))[0]


def network_of(variables: list, member: int | None = None) -> Network:
    """Copies the weights of an `eagerly` model, or those of one critic if `member` is given."""
    arrays = [v.numpy() if member is None else v.numpy()[member] for v in variables]
    return list(zip(arrays[::2], arrays[1::2], strict=True))


def difference(pairs: dict[str, tuple[Network, Network]]) -> str | None:
    """Returns the name of the first kernel or bias that differs within a pair, or None."""
    for name, (ours, theirs) in pairs.items():
        for depth, (layer, other) in enumerate(zip(ours, theirs, strict=True)):
            for part in (0, 1):
                if not np.allclose(layer[part], other[part], rtol=1e-8, atol=1e-12):
                    return f"{name}, layer {depth}, {('kernel', 'bias')[part]}"
    return None
