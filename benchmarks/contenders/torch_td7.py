"""TD7 updates in plain PyTorch, written from the paper: the baseline of table H.

Fujimoto et al. 2023, "For SALE: State-Action Representation Learning for Deep Reinforcement
Learning": section 4, Algorithm 1, and the sizes in the appendix. There are two styles, as in
`torch_agents.py`. `article` is how a reader of the paper would write TD7: one network per critic,
default Adam, one tensor per field of a batch, and gradients of every weight that a loss depends on.
`best` is as fast as PyTorch gets without compilation: fused Adam, one batched product per layer for
both critics, which are frozen during the actor's update, all fields of a batch in one tensor, and
no conversion of tensors to Python numbers.

Run with the Python of a virtual environment in which torch and numpy are installed:
`torch_td7.py article|best SIZES` prints one line of JSON. SIZES is one JSON object with the keys
`observation`, `action`, `rows` (in the replay buffer), `updates` (per turn) and `turns`.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import sys
import time
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

BATCH, WIDTH, THREADS = 256, 256, 2
RATE, DELAY, COPY_EVERY = 3e-4, 2, 250
NOISE, CLIP = 0.2, 0.5
EXPONENT, LEAST_PRIORITY = 0.4, 1.0


class Rows(NamedTuple):
    """A batch: (next) observations `[B, S]`, actions `[B, A]`, rewards and discounts `[B, 1]`."""

    observation: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    discount: torch.Tensor
    after: torch.Tensor


def normalized(x: torch.Tensor) -> torch.Tensor:
    """Divides by the mean absolute value over the last axis."""
    return x / x.abs().mean(-1, keepdim=True).clamp_min(1e-8)


def of_units(*sizes: int) -> nn.ModuleList:
    """Returns linear layers that map each size to the next."""
    return nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(sizes))


class TorchTD7Encoder(nn.Module):
    """Embeddings zs of states and zsa of state-action pairs."""

    def __init__(self, observation: int, action: int, width: int) -> None:
        super().__init__()
        self.of_state = of_units(observation, width, width, width)
        self.of_pair = of_units(width + action, width, width, width)

    def zs(self, observation: torch.Tensor) -> torch.Tensor:
        one, two, three = self.of_state
        return normalized(three(functional.elu(two(functional.elu(one(observation))))))

    def zsa(self, zs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        one, two, three = self.of_pair
        hidden = functional.elu(one(torch.cat([zs, action], -1)))
        return three(functional.elu(two(hidden)))


class TorchTD7Actor(nn.Module):
    """A policy that maps states and their embeddings zs to actions."""

    def __init__(self, observation: int, action: int, width: int) -> None:
        super().__init__()
        self.features = nn.Linear(observation, width)
        self.layers = of_units(2 * width, width, width, action)

    def forward(self, observation: torch.Tensor, zs: torch.Tensor) -> torch.Tensor:
        one, two, three = self.layers
        hidden = torch.cat([normalized(self.features(observation)), zs], -1)
        hidden = functional.relu(two(functional.relu(one(hidden))))
        return torch.tanh(three(hidden))


class TorchTD7Critic(nn.Module):
    """An action value `[B, 1]` of states and actions, from them and their embeddings."""

    def __init__(self, observation: int, action: int, width: int) -> None:
        super().__init__()
        self.features = nn.Linear(observation + action, width)
        self.layers = of_units(3 * width, width, width, 1)

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        observation, action, zsa, zs = given
        one, two, three = self.layers
        features = normalized(self.features(torch.cat([observation, action], -1)))
        hidden = functional.elu(one(torch.cat([features, zsa, zs], -1)))
        return three(functional.elu(two(hidden)))


class Pair(nn.Module):
    """Two critics called one after the other: values `[B, 2]`."""

    def __init__(self, observation: int, action: int, width: int) -> None:
        super().__init__()
        self.critics = nn.ModuleList(TorchTD7Critic(observation, action, width) for _ in range(2))

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return torch.cat([critic(*given) for critic in self.critics], -1)


class Batched(nn.Module):
    """Two critics with one batched product per layer: values `[B, 2]`."""

    def __init__(self, observation: int, action: int, width: int) -> None:
        super().__init__()
        sizes = (observation + action, width), (3 * width, width), (width, width), (width, 1)
        limits = [1 / math.sqrt(inputs) for inputs, _ in sizes]
        self.kernels = nn.ParameterList(
            torch.empty(2, *size).uniform_(-limit, limit)
            for size, limit in zip(sizes, limits, strict=True)
        )
        self.biases = nn.ParameterList(
            torch.empty(2, 1, units).uniform_(-limit, limit)
            for (_, units), limit in zip(sizes, limits, strict=True)
        )

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        observation, action, zsa, zs = given
        kernels, biases = list(self.kernels), list(self.biases)
        pair = torch.cat([observation, action], -1).expand(2, -1, -1)
        features = normalized(torch.baddbmm(biases[0], pair, kernels[0]))
        embedded = torch.cat([zsa, zs], -1).expand(2, -1, -1)
        hidden = torch.cat([features, embedded], -1)
        for bias, kernel in zip(biases[1:], kernels[1:], strict=True):
            hidden = torch.baddbmm(bias, hidden, kernel)
            if kernel is not kernels[-1]:
                hidden = functional.elu(hidden)
        return hidden[..., 0].T


class TorchTD7Replay:
    """Transitions with priorities, in one array per field or, if `packed`, in one tensor."""

    def __init__(self, parts: list[np.ndarray], packed: bool, seed: int) -> None:
        self.parts, self.packed = parts, packed
        self.ends = np.cumsum([part.shape[1] for part in parts])[:-1].tolist()
        self.rows = torch.from_numpy(np.concatenate(parts, 1))
        self.priorities = torch.ones(len(self.rows))
        self.highest = torch.ones(())
        self.random = torch.Generator().manual_seed(seed)
        self.drawn = torch.zeros(0, dtype=torch.int64)

    def sample(self) -> Rows:
        sums = torch.cumsum(self.priorities, 0)
        places = torch.rand(BATCH, generator=self.random) * sums[-1]
        self.drawn = torch.searchsorted(sums, places).clamp_max(len(sums) - 1)
        if self.packed:
            return Rows(*torch.tensor_split(self.rows[self.drawn], self.ends, dim=1))
        indices = self.drawn.numpy()
        return Rows(*(torch.FloatTensor(part[indices]) for part in self.parts))

    def feedback(self, error: torch.Tensor) -> None:
        priority = error.clamp_min(LEAST_PRIORITY) ** EXPONENT
        self.priorities[self.drawn] = priority
        self.highest = torch.maximum(self.highest, priority.max())

    def lower_highest(self) -> None:
        self.highest = self.priorities.max()


class TorchTD7Agent:
    """TD7's networks and update, without policy checkpoints."""

    def __init__(
        self, style: str, observation: int, action: int, width: int = WIDTH, seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        self.best = style == "best"
        sizes = observation, action, width
        self.encoder, self.actor = TorchTD7Encoder(*sizes), TorchTD7Actor(*sizes)
        self.critic: nn.Module = (Batched if self.best else Pair)(*sizes)
        self.fixed, self.fixed_target = copy.deepcopy(self.encoder), copy.deepcopy(self.encoder)
        self.actor_target = copy.deepcopy(self.actor)
        self.critic_target = copy.deepcopy(self.critic)
        if self.best:
            for network in (self.fixed, self.fixed_target, self.actor_target, self.critic_target):
                network.requires_grad_(False)
        fused: dict[str, Any] = {"fused": True} if self.best else {}
        self.encoder_optimizer, self.actor_optimizer, self.critic_optimizer = (
            torch.optim.Adam(network.parameters(), RATE, **fused)
            for network in (self.encoder, self.actor, self.critic)
        )
        self.low, self.high = torch.zeros(()), torch.zeros(())
        self.least, self.greatest = torch.tensor(1e8), torch.tensor(-1e8)
        self.updates = 0

    def train(self, rows: Rows, noise: torch.Tensor) -> torch.Tensor:
        """Performs an update and returns the larger of the two critics' absolute errors `[B]`."""
        self.updates += 1
        self.encode(rows)
        with torch.no_grad():
            target = self.target(rows, noise)
            zs = self.fixed.zs(rows.observation)
            zsa = self.fixed.zsa(zs, rows.action)
        values = self.critic(rows.observation, rows.action, zsa, zs)
        huber = functional.huber_loss(values, target.expand(-1, 2), reduction="sum")
        moved(self.critic_optimizer, huber / len(target))
        if self.updates % DELAY == 0:
            self.act(rows.observation, zs)
        if self.updates % COPY_EVERY == 0:
            self.copy()
        return (values.detach() - target).abs().amax(1)

    def encode(self, rows: Rows) -> None:
        """Updates the encoder."""
        with torch.no_grad():
            following = self.encoder.zs(rows.after)
        predicted = self.encoder.zsa(self.encoder.zs(rows.observation), rows.action)
        moved(self.encoder_optimizer, functional.mse_loss(predicted, following))

    def target(self, rows: Rows, noise: torch.Tensor) -> torch.Tensor:
        """Returns the critics' target `[B, 1]` and extends the range of targets seen so far."""
        zs = self.fixed_target.zs(rows.after)
        next_action = self.actor_target(rows.after, zs) + (NOISE * noise).clamp(-CLIP, CLIP)
        next_action = next_action.clamp(-1.0, 1.0)
        zsa = self.fixed_target.zsa(zs, next_action)
        values = self.critic_target(rows.after, next_action, zsa, zs).amin(1, keepdim=True)
        target = rows.reward + rows.discount * values.clamp(self.low, self.high)
        if self.best:
            self.least = torch.minimum(self.least, target.min())
            self.greatest = torch.maximum(self.greatest, target.max())
        else:
            self.least = torch.tensor(min(float(self.least), float(target.min())))
            self.greatest = torch.tensor(max(float(self.greatest), float(target.max())))
        return target

    def act(self, observation: torch.Tensor, zs: torch.Tensor) -> None:
        """Updates the actor."""
        if self.best:
            self.critic.requires_grad_(False)
        action = self.actor(observation, zs)
        values = self.critic(observation, action, self.fixed.zsa(zs, action), zs)
        moved(self.actor_optimizer, -values.mean())
        if self.best:
            self.critic.requires_grad_(True)

    def copy(self) -> None:
        """Copies weights to targets and fixed encoders; the range seen so far now clips values."""
        pairs = (
            (self.actor_target, self.actor),
            (self.critic_target, self.critic),
            (self.fixed_target, self.fixed),
            (self.fixed, self.encoder),
        )
        for target, source in pairs:
            target.load_state_dict(source.state_dict())
        self.low, self.high = self.least, self.greatest


def moved(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    """Performs an optimizer step on a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def random_parts(sizes: dict[str, int]) -> list[np.ndarray]:
    """Returns the fields of random transitions."""
    random, rows, ones = np.random.default_rng(0), sizes["rows"], (sizes["rows"], 1)
    parts = [
        random.normal(size=(rows, sizes["observation"])),
        random.uniform(-1, 1, (rows, sizes["action"])),
        random.normal(size=ones),
        np.full(ones, 0.99),
        random.normal(size=(rows, sizes["observation"])),
    ]
    return [part.astype(np.float32) for part in parts]


def main(style: str, sizes: dict[str, int]) -> None:
    """Times updates, including sampling."""
    torch.set_num_threads(THREADS)
    agent = TorchTD7Agent(style, sizes["observation"], sizes["action"])
    replay = TorchTD7Replay(random_parts(sizes), agent.best, seed=0)

    def update() -> None:
        rows = replay.sample()
        replay.feedback(agent.train(rows, torch.randn_like(rows.action)))
        if agent.updates % COPY_EVERY == 0:
            replay.lower_highest()

    for _ in range(20):
        update()
    times, used = [], []
    for _ in range(sizes["turns"]):
        began, work = time.perf_counter(), time.process_time()
        for _ in range(sizes["updates"]):
            update()
        times.append((time.perf_counter() - began) / sizes["updates"])
        used.append((time.process_time() - work) / sizes["updates"])
    found = {
        "seconds_per_update": float(np.median(times)),
        "processor_seconds_per_update": float(np.median(used)),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
