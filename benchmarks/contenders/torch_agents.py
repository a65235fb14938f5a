"""DDPG and TD3 in plain PyTorch, written from the papers: the baselines of the benchmark.

Each algorithm has two styles. `article` is how a reader of the papers would write it, as in the
article of 2018 (see docs/speed.md): default Adam, a Python loop over the target weights, and one
tensor per field of a batch. `best` is as fast as PyTorch gets without compilation: fused Adam, one
call for all target weights, critics frozen during the actor's update, and all fields of a batch in
one tensor.

DDPG: Lillicrap et al. 2016, "Continuous control with deep reinforcement learning", Algorithm 1 and
section 7. TD3: Fujimoto et al. 2018, "Addressing Function Approximation Error in Actor-Critic
Methods", Algorithm 1.

Run with the Python of a virtual environment in which torch, gymnasium and mujoco are installed:
`torch_agents.py ddpg|td3 article|best ENV FROM TO` prints the time of the steps from FROM to TO as
one line of JSON. With `--evaluations FILE`, it also evaluates every 5000 steps and writes the
returns to FILE, for learning curves. `--seed N` and `--warmup STEPS` change the defaults 0 and
1000.
"""

from __future__ import annotations

import argparse
import copy
import csv
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch
from torch import nn
from torch.nn import functional

DISCOUNT, TAU = 0.99, 0.005
EXPLORATION, TARGET_NOISE, TARGET_CLIP = 0.1, 0.2, 0.5
EVALUATE_EVERY, EPISODES = 5000, 10


class TorchActor(nn.Module):
    """A policy: observation -> action in ± `bound`."""

    def __init__(self, observation: int, action: int, bound: float, sizes: tuple[int, int]) -> None:
        super().__init__()
        self.one = nn.Linear(observation, sizes[0])
        self.two = nn.Linear(sizes[0], sizes[1])
        self.three = nn.Linear(sizes[1], action)
        self.bound = bound

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        hidden = functional.relu(self.one(observation))
        hidden = functional.relu(self.two(hidden))
        return self.bound * torch.tanh(self.three(hidden))


class TorchCritic(nn.Module):
    """An action value. The action enters at the first layer, or at the second if `joins_late`."""

    def __init__(
        self, observation: int, action: int, sizes: tuple[int, int], joins_late: bool
    ) -> None:
        super().__init__()
        self.joins_late = joins_late
        self.one = nn.Linear(observation + (0 if joins_late else action), sizes[0])
        self.two = nn.Linear(sizes[0] + (action if joins_late else 0), sizes[1])
        self.three = nn.Linear(sizes[1], 1)

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        if self.joins_late:
            hidden = functional.relu(self.one(observation))
            hidden = torch.cat([hidden, action], 1)
        else:
            hidden = functional.relu(self.one(torch.cat([observation, action], 1)))
        hidden = functional.relu(self.two(hidden))
        return self.three(hidden)


class TorchReplay:
    """Transitions in one array per field or, if `packed`, in the rows of one array."""

    def __init__(
        self, observation: int, action: int, capacity: int, packed: bool, seed: int
    ) -> None:
        self.widths = (observation, action, 1, 1, observation)
        self.ends = np.cumsum(self.widths).tolist()
        self.rows = np.zeros((capacity, sum(self.widths)), np.float32)
        self.parts = [np.zeros((capacity, width), np.float32) for width in self.widths]
        self.packed, self.count = packed, 0
        self.random = np.random.default_rng(seed)

    def add(self, *parts: Any) -> None:
        index = self.count % len(self.rows)
        if self.packed:
            self.rows[index] = np.concatenate([np.atleast_1d(part) for part in parts])
        else:
            for array, part in zip(self.parts, parts, strict=True):
                array[index] = part
        self.count += 1

    def sample(self, batch: int) -> list[torch.Tensor]:
        indices = self.random.integers(min(self.count, len(self.rows)), size=batch)
        if self.packed:
            rows = torch.from_numpy(self.rows[indices])
            return [
                rows[:, end - width : end]
                for end, width in zip(self.ends, self.widths, strict=True)
            ]
        return [torch.FloatTensor(part[indices]) for part in self.parts]


class TorchAgent:
    """DDPG or TD3 with the settings of the benchmark, which come from the authors' code."""

    def __init__(self, algorithm: str, style: str, env: Any, seed: int) -> None:
        torch.manual_seed(seed)
        observation, action = env.observation_space.shape[0], env.action_space.shape[0]
        self.bound = float(env.action_space.high[0])
        self.td3, self.best = algorithm == "td3", style == "best"
        sizes = (256, 256) if self.td3 else (400, 300)
        self.batch = 256 if self.td3 else 100
        rates = (3e-4, 3e-4) if self.td3 else (1e-4, 1e-3)
        self.actor = TorchActor(observation, action, self.bound, sizes)
        self.critics = nn.ModuleList(
            TorchCritic(observation, action, sizes, joins_late=not self.td3)
            for _ in range(2 if self.td3 else 1)
        )
        self.actor_target = copy.deepcopy(self.actor)
        self.critics_target = copy.deepcopy(self.critics)
        fused = {"fused": True} if self.best else {}
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), rates[0], **fused)
        self.critic_optimizer = torch.optim.Adam(
            self.critics.parameters(), rates[1], weight_decay=0 if self.td3 else 1e-2, **fused
        )
        self.sources = [*self.actor.parameters(), *self.critics.parameters()]
        self.targets = [*self.actor_target.parameters(), *self.critics_target.parameters()]
        self.replay = TorchReplay(observation, action, 1_000_000, self.best, seed)
        self.updates = 0

    def act(self, observation: np.ndarray) -> np.ndarray:
        if self.best:
            with torch.inference_mode():
                return self.actor(torch.from_numpy(observation.astype(np.float32))).numpy()
        row = torch.FloatTensor(observation.reshape(1, -1))
        return self.actor(row).detach().numpy().flatten()

    def train(self) -> None:
        self.updates += 1
        observation, action, reward, discount, after = self.replay.sample(self.batch)
        with torch.no_grad():
            next_action = self.actor_target(after)
            if self.td3:
                noise = torch.randn_like(action) * TARGET_NOISE * self.bound
                noise = noise.clamp(-TARGET_CLIP * self.bound, TARGET_CLIP * self.bound)
                next_action = (next_action + noise).clamp(-self.bound, self.bound)
            values = [critic(after, next_action) for critic in self.critics_target]
            value = torch.min(*values) if self.td3 else values[0]
            target = reward + discount * value
        loss = sum(functional.mse_loss(c(observation, action), target) for c in self.critics)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if self.td3 and self.updates % 2:
            return
        if self.best:
            self.critics.requires_grad_(False)
        actor_loss = -self.critics[0](observation, self.actor(observation)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        if self.best:
            self.critics.requires_grad_(True)
            with torch.no_grad():
                torch._foreach_lerp_(self.targets, self.sources, TAU)
        else:
            for target_weight, weight in zip(self.targets, self.sources, strict=True):
                target_weight.data.copy_(TAU * weight.data + (1 - TAU) * target_weight.data)


def evaluate(agent: TorchAgent, env: Any) -> float:
    """Returns the mean return over episodes with fixed seeds."""
    total = 0.0
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=1000 + episode)
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(agent.act(observation))
            total += float(reward)
            ended = terminated or truncated
    return total / EPISODES


def main() -> None:
    """Trains and prints the measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithm", choices=("ddpg", "td3"))
    parser.add_argument("style", choices=("article", "best"))
    parser.add_argument("env")
    parser.add_argument("start", type=int)
    parser.add_argument("stop", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=1000)
    parser.add_argument("--evaluations", type=Path)
    given = parser.parse_args()
    mujoco.set_mju_user_warning(warnings.warn)  # by default, MuJoCo writes MUJOCO_LOG.TXT
    env: Any = gymnasium.make(given.env)
    random = np.random.default_rng(given.seed)
    evaluation_env = gymnasium.make(given.env) if given.evaluations else None
    agent = TorchAgent(given.algorithm, given.style, env, given.seed)
    low, high = env.action_space.low, env.action_space.high
    observation, _ = env.reset(seed=given.seed)
    rows, began = [], 0.0
    for step in range(1, given.stop + 1):
        if step <= given.warmup:
            action = random.uniform(low, high).astype(np.float32)
        else:
            noise = random.normal(0.0, EXPLORATION * agent.bound, size=low.shape)
            action = (agent.act(observation) + noise).clip(low, high).astype(np.float32)
        after, reward, terminated, truncated, _ = env.step(action)
        agent.replay.add(observation, action, reward, DISCOUNT * (not terminated), after)
        observation = env.reset()[0] if terminated or truncated else after
        if step > given.warmup:
            agent.train()
        if step == given.start:
            began = time.perf_counter()
        if evaluation_env and step % EVALUATE_EVERY == 0:
            rows.append({"steps": step, "return_mean": evaluate(agent, evaluation_env)})
            with given.evaluations.open("w", newline="") as file:
                writer = csv.DictWriter(file, ["steps", "return_mean"])
                writer.writeheader()
                writer.writerows(rows)
    found = {
        "steps": given.stop - given.start,
        "seconds": time.perf_counter() - began,
        "updates_in_all": agent.updates,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
