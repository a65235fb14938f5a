"""Measures the divergence between eager, graph and XLA training, in float64 and float32."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from eagerly.agents import agent_names
from eagerly.agents.agent import Agent
from eagerly.benchmarks.workload import cheetah_agent, random_buffer

TABLE = Path(__file__).with_suffix(".md")
MODES = ("eager", "graph", "xla")
NETWORKS = ("actor", "critic", "actor_target", "critic_target")


def trained(name: str, mode: str, precision: str, seed: int, updates: int) -> Agent:
    """Returns an agent trained on random transitions with HalfCheetah's dimensions."""
    agent = cheetah_agent(name, seed, mode=mode, precision=precision)
    buffer = random_buffer(2000, 2000, seed)
    agent.train(buffer, updates)
    return agent


def variables(agent: Agent) -> np.ndarray:
    """Returns all weights and optimizer variables in one flat array."""
    owners: list[Any] = list(agent.modules.networks().values())
    owners += [module.optimizer for module in agent.modules.values()]
    return np.concatenate([v.numpy().ravel() for owner in owners for v in owner.variables])


def norm_of_difference(one: Agent, other: Agent, name: str) -> float:
    """Returns the norm of the difference between two networks, relative to the first's norm."""
    flat = [
        np.concatenate([v.numpy().ravel() for v in agent.modules.networks()[name].variables])
        for agent in (one, other)
    ]
    return float(np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[0]))


def main() -> None:
    """Measures and writes the table."""
    lines = [
        "# Agreement of eager, graph and XLA training",
        "",
        "In each mode, equal agents train on the same random transitions. They have 17 observation "
        "values, 6 action values and default settings (hidden layers 256-256, batch size 256). "
        "*Outside* counts the elements of all weights and Adam slots with |difference| > 1e-7 + "
        "1e-5 |value|. *Relative norms* are norms of the difference between two networks, divided "
        "by the norm of the eager one: the smallest and the largest among actor, critic and their "
        "target networks.",
        "",
        "| agent | precision | updates | seed | mode | compared with eager |",
        "|---|---|---|---|---|---|",
    ]
    for name, seed in itertools.product(agent_names(), range(3)):
        for precision, updates in (("float64", 100), ("float32", 1), ("float32", 100)):
            agents = {mode: trained(name, mode, precision, seed, updates) for mode in MODES}
            expected = variables(agents["eager"])
            for mode in MODES[1:]:
                difference = np.abs(variables(agents[mode]) - expected)
                if precision == "float64":
                    relative = difference[expected != 0] / np.abs(expected[expected != 0])
                    found = f"largest relative difference {relative.max():.1e}"
                elif updates == 1:
                    outside = difference > 1e-7 + 1e-5 * np.abs(expected)
                    found = f"{outside.sum()} of {outside.size} outside"
                else:
                    norms = [norm_of_difference(agents["eager"], agents[mode], n) for n in NETWORKS]
                    found = f"relative norms {min(norms):.1e} to {max(norms):.1e}"
                row = name, precision, updates, seed, mode, found
                lines.append("| " + " | ".join(map(str, row)) + " |")
                sys.stdout.write(lines[-1] + "\n")
                sys.stdout.flush()
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
