"""Recurrent TD3 updates in plain PyTorch, written from the papers: the baseline of table F.

The architecture equals that of this package. The actor has one encoder, and the twin critics share
another. In an encoder, observation, previous action and previous reward pass through one linear
layer and an `nn.LSTM` or `nn.GRU`. The encoder's output, concatenated with the observation, enters
an MLP with two hidden layers. Adam is fused, all targets are updated in one call, and the critics
are frozen during the actor's update. One indexing operation samples a batch from an array of steps.

Run with the Python of a virtual environment in which torch and numpy are installed:
`torch_recurrent.py SIZES` prints one line of JSON. SIZES is one JSON object with the keys `memory`
("lstm" or "gru"), `observation`, `action`, `units`, `hidden` (a list of two sizes), `length` (steps
per sequence) and `sequences` (per update).
"""

from __future__ import annotations

import copy
import json
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SECONDS, UPDATES = 1.0, 50
TAU, NOISE, CLIP = 0.005, 0.2, 0.5


class RecurrentTorchEncoder(nn.Module):
    """Maps histories `[B, S, ...]` to features `[B, S, units + observation]`."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        super().__init__()
        units = sizes["units"]
        self.inputs = nn.Linear(sizes["observation"] + sizes["action"] + 1, units)
        kind = {"lstm": nn.LSTM, "gru": nn.GRU}[sizes["memory"]]
        self.memory = kind(units, units, batch_first=True)

    def forward(self, observation: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Encodes observations, each with the action and the reward that preceded it."""
        inputs = functional.relu(self.inputs(torch.cat([observation, before], -1)))
        return torch.cat([self.memory(inputs)[0], observation], -1)


def network(inputs: int, hidden: list[int], outputs: int) -> nn.Module:
    """Builds the MLP that follows an encoder."""
    one, two = hidden
    layers = nn.Linear(inputs, one), nn.ReLU(), nn.Linear(one, two), nn.ReLU()
    return nn.Sequential(*layers, nn.Linear(two, outputs))


class RecurrentTorchAgent:
    """A recurrent TD3."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        self.action, hidden = sizes["action"], sizes["hidden"]
        features = sizes["units"] + sizes["observation"]
        self.actor = nn.ModuleList(
            [RecurrentTorchEncoder(sizes), network(features, hidden, self.action)]
        )
        twins = [network(features + self.action, hidden, 1) for _ in range(2)]
        self.critic = nn.ModuleList([RecurrentTorchEncoder(sizes), *twins])
        self.actor_target, self.critic_target = (
            copy.deepcopy(self.actor),
            copy.deepcopy(self.critic),
        )
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), 3e-4, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), 3e-4, fused=True)
        self.sources = [*self.actor.parameters(), *self.critic.parameters()]
        self.targets = [*self.actor_target.parameters(), *self.critic_target.parameters()]
        self.updates = 0

    def train(self, rows: torch.Tensor) -> None:
        """Updates on windows `[B, T + 1, A + 2 + O]`: action, reward, discount and observation."""
        self.updates += 1
        size = self.action
        before, observation = rows[..., : size + 1], rows[..., size + 2 :]
        action, reward, discount = rows[:, 1:, :size], rows[:, 1:, size], rows[:, 1:, size + 1]
        with torch.no_grad():
            encoder, head = self.actor_target
            known = encoder(observation, before)[:, 1:]
            noise = (NOISE * torch.randn_like(action)).clamp(-CLIP, CLIP)
            next_action = (torch.tanh(head(known)) + noise).clamp(-1.0, 1.0)
            encoder, *twins = self.critic_target
            joined = torch.cat([encoder(observation, before)[:, 1:], next_action], -1)
            target = reward + discount * torch.min(*(twin(joined)[..., 0] for twin in twins))
        encoder, *twins = self.critic
        joined = torch.cat([encoder(observation[:, :-1], before[:, :-1]), action], -1)
        loss = sum(functional.mse_loss(twin(joined)[..., 0], target) for twin in twins)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if self.updates % 2:
            return
        self.critic.requires_grad_(False)
        encoder, head = self.actor
        chosen = torch.tanh(head(encoder(observation[:, :-1], before[:, :-1])))
        encoder, twin, _ = self.critic
        known = encoder(observation[:, :-1], before[:, :-1])
        loss = -twin(torch.cat([known, chosen], -1)).mean()
        self.actor_optimizer.zero_grad()
        loss.backward()
        self.actor_optimizer.step()
        self.critic.requires_grad_(True)
        with torch.no_grad():
            torch._foreach_lerp_(self.targets, self.sources, TAU)


def main(sizes: dict[str, Any]) -> None:
    """Times updates, including sampling."""
    agent, random = RecurrentTorchAgent(sizes), np.random.default_rng(0)
    width, length = sizes["action"] + 2 + sizes["observation"], sizes["length"]
    rows = random.normal(size=(10_000, width)).astype(np.float32)
    steps = np.arange(length + 1)

    def update() -> None:
        starts = random.integers(len(rows) - length, size=(sizes["sequences"], 1))
        agent.train(torch.from_numpy(rows[starts + steps]))

    for _ in range(6):
        update()
    times: list[float] = []
    ends = time.perf_counter() + SECONDS
    while time.perf_counter() < ends or len(times) < 3:
        began = time.perf_counter()
        for _ in range(UPDATES):
            update()
        times.append((time.perf_counter() - began) / UPDATES)
    found = {
        "seconds_per_update": float(np.median(times)),
        "sequences": sizes["sequences"],
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
