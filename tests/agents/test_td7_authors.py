"""Compares TD7 with the code of its authors, in the directory given by `--td7-authors`.

The code is github.com/sfujim/TD7 at commit c1c280d, which requires PyTorch. Run
`pytest tests/agents/test_td7_authors.py --td7-authors path/to/TD7`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.update_random import UpdateRandom
from tests.td7_references import EPSILON, RATE, linears, reference

SIZES, ROWS, UPDATES, COPIES, PER_CALL, SEED = (17, 6), 2000, 300, 50, 10, 3
WIDTH = 64


@pytest.fixture
def authors(request: pytest.FixtureRequest) -> Any:
    """Imports the authors' module `TD7`, and removes it from `sys.modules` after the test."""
    folder = request.config.getoption("--td7-authors")
    if folder is None:
        pytest.skip("requires --td7-authors, the directory of the authors' code")
    pytest.importorskip("torch")
    modules = {}
    for name in ("buffer", "TD7"):
        spec = importlib.util.spec_from_file_location(name, Path(folder) / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        modules[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[name])
    yield modules["TD7"]
    for name in modules:
        del sys.modules[name]


@pytest.mark.parametrize("mode", ["graph", "xla"])
def test_300_updates_equal_those_of_the_authors(authors: Any, mode: str) -> None:
    import torch

    agent, rows, places, sampler, buffer = reference(
        SIZES,
        WIDTH,
        rows=ROWS,
        updates=UPDATES,
        batch=256,
        copies=COPIES,
        per_call=PER_CALL,
        seed=SEED,
        mode=mode,
    )
    torch.set_default_dtype(torch.float64)
    try:
        theirs = authors.Agent(
            *SIZES,
            1.0,
            hp=authors.Hyperparameters(
                target_update_rate=COPIES,
                buffer_size=ROWS,
                zs_dim=WIDTH,
                enc_hdim=WIDTH,
                critic_hdim=WIDTH,
                actor_hdim=WIDTH,
                discount=float(np.float32(0.99)),  # rounded, as in the replay buffer
            ),
        )
        for name, layers in linears(agent).items():
            net = getattr(theirs, name)
            for layer, (kernel, bias) in layers.items():
                getattr(net, layer).weight.data = torch.tensor(kernel)
                getattr(net, layer).bias.data = torch.tensor(bias)
        for name in ("encoder", "actor", "critic"):
            optimizer = torch.optim.Adam(getattr(theirs, name).parameters(), RATE, eps=EPSILON)
            setattr(theirs, f"{name}_optimizer", optimizer)
        memory = theirs.replay_buffer
        memory.size, memory.priority = ROWS, torch.ones(ROWS)

        def sample() -> Any:
            memory.ind = places[theirs.training_steps - 1]
            given = (rows.observation, rows.action, rows.next_observation)
            ones = (rows.reward, (rows.discount > 0).astype(np.float64))
            return (
                *(torch.tensor(part[memory.ind]) for part in given),
                *(torch.tensor(part[memory.ind][:, None]) for part in ones),
            )

        def noise(like: Any) -> Any:
            number = tf.constant(theirs.training_steps, tf.int64)
            return torch.tensor(UpdateRandom(SEED, number, tf.float64).normal(like.shape).numpy())

        memory.sample = sample
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "randn_like", noise)
            for _ in range(UPDATES):
                theirs.train()
    finally:
        torch.set_default_dtype(torch.float32)
    for _ in range(UPDATES // PER_CALL):
        agent.train(buffer, PER_CALL)

    far = {}
    for name, layers in linears(agent).items():
        for layer, (kernel, bias) in layers.items():
            other = getattr(getattr(theirs, name), layer)
            for part, mine in (("weight", kernel), ("bias", bias)):
                far[f"{name}.{layer}.{part}"] = np.abs(
                    getattr(other, part).detach().numpy() - mine
                ).max()
    assert max(far.values()) < 1e-12
    # The tolerance is larger here, because priorities are stored as float32.
    limits = agent.modules["value_range"].target
    far["low"] = abs(theirs.min_target - float(limits.low.numpy()))
    far["high"] = abs(theirs.max_target - float(limits.high.numpy()))
    far["priorities"] = np.abs(memory.priority.numpy() - sampler.priorities()).max()
    far["highest"] = abs(memory.max_priority - sampler.highest)
    assert theirs.max_target > 1.0 > -1.0 > theirs.min_target  # some targets are outside ±1
    assert max(far.values()) < 1e-6
