"""One update of recurrent TD3 in NumPy, written as loops over sequences and steps.

Forward passes loop over single steps, and gradients are central differences of the losses. The code
is independent of `agents/` and `networks/`, but assumes their order of the weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Weights = list[np.ndarray]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


class _Encoder:
    """Encodes one sequence, step by step."""

    def __init__(self, memory: str, weights: Weights) -> None:
        self.memory = memory
        self.kernel, self.bias = weights[:2]
        self.core = weights[2:]
        units = self.kernel.shape[1]
        self.output, self.cell = np.zeros(units), np.zeros(units)

    def step(self, observation: np.ndarray, action: np.ndarray, reward: float) -> np.ndarray:
        x = np.concatenate([observation, action, [reward]])
        x = np.tanh(x @ self.kernel + self.bias)
        kernel, recurrent, bias = self.core[:3]
        if self.memory == "lstm":
            gates = x @ kernel + bias + self.output @ recurrent
            enter, keep, candidate, show = np.split(gates, 4)
            self.cell = _sigmoid(keep) * self.cell + _sigmoid(enter) * np.tanh(candidate)
            self.output = _sigmoid(show) * np.tanh(self.cell)
        else:
            of_x = np.split(x @ kernel + bias, 3)
            of_h = np.split(self.output @ recurrent + self.core[3], 3)
            keep, reset = _sigmoid(of_x[0] + of_h[0]), _sigmoid(of_x[1] + of_h[1])
            new = np.tanh(of_x[2] + reset * of_h[2])
            self.output = keep * self.output + (1 - keep) * new
        return np.concatenate([self.output, observation])


class ReferenceUpdate:
    """Performs an agent's first update on copies of the agent's weights."""

    def __init__(self, agent: Any, memory: str) -> None:
        self.memory, self.config = memory, agent.config
        self.encoder_parts = 5 if memory == "lstm" else 6
        self.actor = [v.numpy().copy() for v in agent.actor.network.variables]
        self.critic = [v.numpy().copy() for v in agent.critic.network.variables]
        self.actor_target = [w.copy() for w in self.actor]
        self.critic_target = [w.copy() for w in self.critic]

    def weights(self) -> dict[str, Weights]:
        return {
            name: getattr(self, name)
            for name in ("actor", "critic", "actor_target", "critic_target")
        }

    def _encoder(self, weights: Weights) -> _Encoder:
        return _Encoder(self.memory, weights[: self.encoder_parts])

    def _act(self, weights: Weights, features: np.ndarray) -> np.ndarray:
        hidden, hidden_bias, last, last_bias = weights[self.encoder_parts :]
        return np.tanh(np.tanh(features @ hidden + hidden_bias) @ last + last_bias)

    def _value(
        self, weights: Weights, member: int, features: np.ndarray, action: np.ndarray
    ) -> float:
        hidden, hidden_bias, last, last_bias = (w[member] for w in weights[self.encoder_parts :])
        x = np.tanh(np.concatenate([features, action]) @ hidden + hidden_bias)
        return float((x @ last + last_bias)[0])

    def _features(self, weights: Weights, window: Any, row: int) -> list[np.ndarray]:
        """Returns the features of the observations before each step and after the last step."""
        encoder = self._encoder(weights)
        count = int((window.role[row] > 0).sum())
        return [
            encoder.step(
                window.observation[row, t],
                window.previous_action[row, t],
                window.previous_reward[row, t],
            )
            for t in range(count + 1)
        ]

    def _learned(self, window: Any) -> list[tuple[int, int]]:
        return [
            (row, t)
            for row in range(len(window.role))
            for t in range(window.role.shape[1])
            if window.role[row, t] == 2
        ]

    def _targets(self, window: Any) -> dict[tuple[int, int], float]:
        found = {}
        rows = range(len(window.role))
        of_actor = [self._features(self.actor_target, window, row) for row in rows]
        of_critic = [self._features(self.critic_target, window, row) for row in rows]
        for row, t in self._learned(window):
            action = self._act(self.actor_target, of_actor[row][t + 1])
            values = [
                self._value(self.critic_target, member, of_critic[row][t + 1], action)
                for member in range(2)
            ]
            found[row, t] = window.reward[row, t] + window.discount[row, t] * min(values)
        return found

    def _critic_loss(self, weights: Weights, window: Any, targets: dict) -> float:
        features = [self._features(weights, window, row) for row in range(len(window.role))]
        errors = [
            (self._value(weights, member, features[row][t], window.action[row, t]) - y) ** 2
            for (row, t), y in targets.items()
            for member in range(2)
        ]
        return sum(errors) / len(targets)

    def _actor_loss(self, weights: Weights, window: Any) -> float:
        learned = self._learned(window)
        rows = range(len(window.role))
        own = [self._features(weights, window, row) for row in rows]
        critics = [self._features(self.critic, window, row) for row in rows]
        values = [
            self._value(self.critic, 0, critics[row][t], self._act(weights, own[row][t]))
            for row, t in learned
        ]
        return -sum(values) / len(learned)

    def update(self, window: Any) -> None:
        targets = self._targets(window)
        self._step(
            self.critic,
            lambda weights: self._critic_loss(weights, window, targets),
            self.config.critic_learning_rate,
        )
        self._step(
            self.actor,
            lambda weights: self._actor_loss(weights, window),
            self.config.actor_learning_rate,
        )
        tau = self.config.tau
        for target, source in (
            (self.actor_target, self.actor),
            (self.critic_target, self.critic),
        ):
            for old, new in zip(target, source, strict=True):
                old[...] = tau * new + (1 - tau) * old

    def _step(self, weights: Weights, loss: Any, rate: float) -> None:
        """Updates weights by Adam's first step, with gradients from central differences."""
        gradients = []
        for part in weights:
            gradient = np.zeros_like(part)
            for place in np.ndindex(part.shape):
                kept = part[place]
                sides = []
                for sign in (1, -1):
                    part[place] = kept + sign * 1e-6
                    sides.append(loss(weights))
                part[place] = kept
                gradient[place] = (sides[0] - sides[1]) / 2e-6
            gradients.append(gradient)
        for part, gradient in zip(weights, gradients, strict=True):
            # In Adam's first step, m / (1 - β₁) is the gradient, and v / (1 - β₂) is its square.
            # Keras adds epsilon before the bias correction, so epsilon is divided by √(1 - β₂).
            epsilon = self.config.adam_epsilon / np.sqrt(1 - 0.999)
            part -= rate * gradient / (np.abs(gradient) + epsilon)
