"""Times updates of TD7 (with their matrix products) or TD3, or acting with both.

Run as `python -m eagerly.benchmarks.contenders.td7_loops updates AGENT K` or `... acting`: prints
one line of JSON. AGENT is td7 or td3, and K is the number of updates per call.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from eagerly.benchmarks.contenders.limit import SECONDS_OF_SPINNING, product_rate
from eagerly.benchmarks.workload import (
    ACTION_SIZE,
    OBSERVATION_SIZE,
    cheetah_agent,
    random_transitions,
)

ROWS, PART = 200_000, 10_000  # transitions in the replay buffer, and transitions added at once
TURNS, UPDATES = 3, 250  # turns; updates per turn (TD7 copies its targets once per turn)
BATCH, WIDTH = 256, 256  # batch size, and units of all hidden layers and embeddings
CRITICS, DELAY = 2, 2
WARM = 2
WRITTEN_OUT = 4 * DELAY  # updates whose products form one program, see `products_alone`
LEFT_FACTORS = 16  # distinct left factors per product shape
CALLS = 2000  # policy calls per turn


@dataclass(frozen=True)
class Product:
    """A matrix product, batched over the members of an ensemble.

    Attributes:
        members: Size of the ensemble.
        left: Shape of the left factor before transposition.
        right: Shape of the right factor before transposition.
        transposed: The transposed factor, "left" or "right", or "" for none.
    """

    members: int
    left: tuple[int, int]
    right: tuple[int, int]
    transposed: str = ""

    @property
    def flops(self) -> int:
        """Number of multiplications and additions."""
        rows, inner = self.left[::-1] if self.transposed == "left" else self.left
        columns = self.right[self.transposed != "right"]
        return 2 * self.members * rows * inner * columns


@dataclass(frozen=True)
class Layer:
    """A linear layer of an ensemble.

    Attributes:
        inputs: Number of inputs.
        units: Number of outputs.
        members: Size of the ensemble.
    """

    inputs: int
    units: int
    members: int = 1

    def forward(self, batch: int) -> Product:
        """Returns the forward product: inputs x kernel."""
        return Product(self.members, (batch, self.inputs), (self.inputs, self.units))

    def of_kernel(self, batch: int) -> Product:
        """Returns the product for the kernel gradient: inputs' x gradient."""
        return Product(self.members, (batch, self.inputs), (batch, self.units), "left")

    def of_inputs(self, batch: int, inputs: int | None = None) -> Product:
        """Returns the product for the gradient of all or of `inputs` inputs: gradient x kernel'."""
        kernel = self.inputs if inputs is None else inputs, self.units
        return Product(self.members, (batch, self.units), kernel, "right")


def products(
    batch: int = BATCH,
    width: int = WIDTH,
    observation: int = OBSERVATION_SIZE,
    action: int = ACTION_SIZE,
    *,
    moves_actor: bool,
) -> list[Product]:
    """Returns the matrix products that a TD7 update requires.

    The list omits gradients of observations, of embeddings that train no network, and of weights
    that a loss does not update.
    """
    states = [Layer(observation, width), Layer(width, width), Layer(width, width)]
    pairs = [Layer(width + action, width), Layer(width, width), Layer(width, width)]
    actor = [
        Layer(observation, width),
        Layer(2 * width, width),
        Layer(width, width),
        Layer(width, action),
    ]
    features, *deep = [Layer(n, width, CRITICS) for n in (observation + action, width, width)]
    embedded, value = Layer(2 * width, CRITICS * width), Layer(width, 1, CRITICS)
    critic = [features, *deep, embedded, value]

    def forward(*networks: Sequence[Layer]) -> list[Product]:
        return [layer.forward(batch) for layers in networks for layer in layers]

    def of_kernels(*networks: Sequence[Layer]) -> list[Product]:
        return [layer.of_kernel(batch) for layers in networks for layer in layers]

    def of_inputs(*networks: Sequence[Layer]) -> list[Product]:
        return [layer.of_inputs(batch) for layers in networks for layer in layers]

    found = [
        # The encoder's update: zs(s'), then zsa(zs(s), a) and the gradients of its loss.
        *forward(states, states, pairs),
        *of_kernels(states, pairs),
        *of_inputs(states[1:], pairs[1:]),
        pairs[0].of_inputs(batch, width),
        # The target values of the critics.
        *forward(states, actor, pairs, critic),
        # The critics' update.
        *forward(states, pairs, critic),
        *of_kernels(critic),
        *of_inputs(deep, [value]),
    ]
    if moves_actor:
        found += [
            *forward(actor, pairs, critic),
            *of_inputs(deep, [value], pairs[1:]),
            embedded.of_inputs(batch, width),  # the gradient of zsa
            *(layer.of_inputs(batch, action) for layer in (features, pairs[0])),
            *of_kernels(actor),
            *of_inputs(actor[2:]),
            actor[1].of_inputs(batch, width),
        ]
    return found


def flops_per_update() -> float:
    """Returns the mean multiplications and additions in the matrix products of an update."""
    every, more = (sum(p.flops for p in products(moves_actor=moves)) for moves in (False, True))
    return every + (more - every) / DELAY


def products_alone() -> Callable[[], Any]:
    """Compiles a program of only the matrix products of `WRITTEN_OUT` updates.

    Products of equal shapes use distinct pairs of factors, because XLA would merge equal products.
    The program adds up one number of each result, because XLA would drop an unused product.
    """
    random = np.random.default_rng(0)
    factors: dict[tuple[str, int, tuple[int, ...]], tf.Tensor] = {}
    places = []
    seen: Counter[Product] = Counter()
    for number in range(1, WRITTEN_OUT + 1):
        for product in products(moves_actor=number % DELAY == 0):
            right, left = divmod(seen[product], LEFT_FACTORS)
            seen[product] += 1
            members = (product.members,) if product.members > 1 else ()
            keys = (
                ("left", left, (*members, *product.left)),
                ("right", right, (*members, *product.right)),
            )
            for key in keys:
                if key not in factors:
                    factors[key] = tf.constant(random.normal(size=key[-1]), tf.float32)
            places.append((*keys, product.transposed))

    def program(factors: Any) -> tf.Tensor:
        total = tf.zeros(())
        for left, right, transposed in places:
            result = tf.matmul(
                factors[left],
                factors[right],
                transpose_a=transposed == "left",
                transpose_b=transposed == "right",
            )
            total += tf.reduce_sum(result[..., 0, 0])
        return total

    compiled = tf.function(program, jit_compile=True)
    return lambda: compiled(factors).numpy()


def updates(name: str, per_call: int) -> dict[str, float]:
    """Times updates, including sampling, and for TD7 alternately their matrix products.

    Returns:
        Medians over the turns: wall and CPU seconds per update. For TD7 also the seconds of its
        matrix products, their share of the update, the highest rate of matrix products in
        FLOP/s, and the share of this rate that the update reaches.
    """
    agent, random = cheetah_agent(name), np.random.default_rng(0)
    buffer = agent.replay_buffer(ROWS)
    for _ in range(ROWS // PART):
        buffer.add(random_transitions(PART, random), np.zeros(PART, bool))
    with_products = name == "td7"
    alone = products_alone() if with_products else None
    for _ in range(WARM):  # compiles every program that is used below
        agent.train(buffer, per_call)
    found: dict[str, list[float]] = {"seconds_per_update": [], "processor_seconds_per_update": []}
    for _ in range(TURNS):
        rate = product_rate() if with_products else 0.0
        time.sleep(SECONDS_OF_SPINNING)
        took, used = timed(lambda: agent.train(buffer, per_call), UPDATES // per_call)
        found["seconds_per_update"].append(took / per_call)
        found["processor_seconds_per_update"].append(used / per_call)
        if alone:
            alone()  # reloads the factors into the caches
            products = timed(alone, UPDATES // WRITTEN_OUT)[0] / WRITTEN_OUT
            more = {
                "seconds_of_products": products,
                "share": flops_per_update() / (rate * took / per_call),
                "share_of_products": products / (took / per_call),
            }
            for key, value in more.items():
                found.setdefault(key, []).append(value)
    return {key: float(np.median(values)) for key, values in found.items()}


def timed(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Returns the mean wall and CPU seconds of a call."""
    began, used = time.perf_counter(), time.process_time()
    for _ in range(times):
        call()
    return (time.perf_counter() - began) / times, (time.process_time() - used) / times


def acting() -> dict[str, float]:
    """Returns the median CPU seconds of a NumPy policy for one observation, by agent."""
    observation = np.random.default_rng(0).normal(size=(1, OBSERVATION_SIZE)).astype(np.float32)
    policies = {name: cheetah_agent(name).policy for name in ("td7", "td3")}
    found: dict[str, list[float]] = {name: [] for name in policies}
    for _ in range(TURNS):
        for name, policy in policies.items():
            policy(observation)
            found[name].append(timed(partial(policy, observation), CALLS)[1])
    return {name: float(np.median(values)) for name, values in found.items()}


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    results = acting() if what == "acting" else updates(given[0], int(given[1]))
    sys.stdout.write(json.dumps(results) + "\n")
