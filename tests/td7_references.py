"""A float64 TD7 agent that trains on predetermined rows, for comparisons with PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np

from eagerly.agents.td7 import TD7
from eagerly.agents.td7_config import TD7Config
from eagerly.buffers import Buffer, LAPSampler, Transition, replay_buffer

EPSILON = 1e-30  # negligible, because Keras and PyTorch add epsilon at different places
RATE = float(np.float32(3e-4))  # Keras stores learning rates as float32


class Given(LAPSampler):
    """A sampler of predetermined rows `[updates, B]`. Each call returns the next `per_call`."""

    def __init__(self, places: np.ndarray, *, copies: int, per_call: int) -> None:
        super().__init__(highest_every=copies)
        self._calls = iter(places.reshape(-1, per_call, places.shape[-1]))

    def draw(self, count: int, shape: tuple[int, int]) -> np.ndarray:
        return next(self._calls)


class Reference(NamedTuple):
    """An agent, its training data, and the rows drawn in each update."""

    agent: TD7
    rows: Transition
    places: np.ndarray
    sampler: Given
    buffer: Buffer


def reference(
    sizes: tuple[int, int],
    width: int,
    *,
    rows: int,
    updates: int,
    batch: int,
    copies: int,
    per_call: int,
    seed: int,
    mode: str = "xla",
) -> Reference:
    """Creates an agent, and random transitions whose values are exact in float32."""
    random = np.random.default_rng(0)
    drawn = Transition(
        observation=random.standard_normal((rows, sizes[0])),
        action=random.uniform(-1, 1, (rows, sizes[1])),
        reward=random.standard_normal(rows) * 3,
        discount=np.where(random.random(rows) < 0.05, 0.0, 0.99),
        next_observation=random.standard_normal((rows, sizes[0])),
    )
    drawn = Transition(*(part.astype(np.float32).astype(np.float64) for part in drawn))
    places = random.integers(0, rows, (updates, batch))
    spaces = [
        gymnasium.spaces.Box(-end, end, (size,))
        for end, size in zip((np.inf, 1.0), sizes, strict=True)
    ]
    config = TD7Config(
        mode=mode,
        precision="float64",
        adam_epsilon=EPSILON,
        copy_every=copies,
        hidden_sizes=(width, width),
        encoder_hidden_sizes=(width, width),
        embedding_size=width,
    )
    agent = TD7(*spaces, config, seed=seed)
    sampler = Given(places, copies=copies, per_call=per_call)
    buffer = replay_buffer(agent.layout, rows, sampler=sampler)
    buffer.add(drawn, np.zeros(rows, bool))
    return Reference(agent, drawn, places, sampler, buffer)


def linears(agent: TD7) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Returns all linear layers under the authors' names, with kernels transposed for PyTorch."""
    nets = agent.modules.networks()

    def plain(layer: Any) -> tuple[np.ndarray, np.ndarray]:
        return layer.kernel.numpy().T, layer.bias.numpy()

    def encoder(name: str) -> dict[str, Any]:
        found = {}
        for part, layers in (("zs", nets[name].states), ("zsa", nets[name].pairs)):
            found |= {f"{part}{n}": plain(each) for n, each in enumerate(layers._linear, 1)}
        return found

    def actor(name: str) -> dict[str, Any]:
        net = nets[name]
        return {f"l{n}": plain(each) for n, each in enumerate([net._features, *net._linear])}

    def critic(name: str) -> dict[str, Any]:
        net, found = nets[name], {}
        for member in range(2):
            joined, first = net._joined, 3 * member + 1
            units = joined.kernel.shape[-1]
            shared = joined.shared_kernel.numpy()[:, member * units : (member + 1) * units]
            kernel = np.concatenate([joined.kernel.numpy()[member], shared])
            found[f"q0{member + 1}"] = of_member(net._features, member)
            found[f"q{first}"] = kernel.T, joined.bias.numpy()[member]
            for number, layer in enumerate(net._linear, first + 1):
                found[f"q{number}"] = of_member(layer, member)
        return found

    def of_member(layer: Any, member: int) -> tuple[np.ndarray, np.ndarray]:
        return layer.kernel.numpy()[member].T, layer.bias.numpy()[member]

    return {
        "encoder": encoder("encoder"),
        "fixed_encoder": encoder("fixed_encoder"),
        "fixed_encoder_target": encoder("fixed_encoder_target"),
        "actor": actor("actor"),
        "actor_target": actor("actor_target"),
        "critic": critic("critic"),
        "critic_target": critic("critic_target"),
    }
