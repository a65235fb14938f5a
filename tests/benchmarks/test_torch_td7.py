"""The PyTorch TD7 of the benchmark performs the same updates as the agent of this package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from eagerly.agents.update_random import UpdateRandom
from tests.td7_references import EPSILON, RATE, linears, reference

torch = pytest.importorskip("torch", reason="PyTorch, an extra, is not installed")

from eagerly.benchmarks.contenders import torch_td7  # noqa: E402

SIZES, WIDTH, ROWS, UPDATES, COPIES, SEED = (5, 2), 16, 300, 6, 2, 3


def layers_of(theirs: Any) -> dict[str, list[tuple[Any, Any]]]:
    """Returns weights and biases in the order of `linears`, with critic kernels transposed."""

    def plain(*layers: Any) -> list[tuple[Any, Any]]:
        return [(layer.weight, layer.bias) for layer in layers]

    def encoder(net: Any) -> list[tuple[Any, Any]]:
        return plain(*net.of_state, *net.of_pair)

    def critic(net: Any) -> list[tuple[Any, Any]]:
        if isinstance(net, torch_td7.Pair):
            return [each for one in net.critics for each in plain(one.features, *one.layers)]
        return [
            (kernel[member].T, bias[member, 0])
            for member in range(2)
            for kernel, bias in zip(net.kernels, net.biases, strict=True)
        ]

    return {
        "encoder": encoder(theirs.encoder),
        "fixed_encoder": encoder(theirs.fixed),
        "fixed_encoder_target": encoder(theirs.fixed_target),
        "actor": plain(theirs.actor.features, *theirs.actor.layers),
        "actor_target": plain(theirs.actor_target.features, *theirs.actor_target.layers),
        "critic": critic(theirs.critic),
        "critic_target": critic(theirs.critic_target),
    }


@pytest.mark.long
@pytest.mark.parametrize("style", ["article", "best"])
def test_updates_match_the_agent(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_td7, "COPY_EVERY", COPIES)
    agent, rows, places, sampler, buffer = reference(
        SIZES,
        WIDTH,
        rows=ROWS,
        updates=UPDATES,
        batch=torch_td7.BATCH,
        copies=COPIES,
        per_call=COPIES,
        seed=SEED,
    )
    torch.set_default_dtype(torch.float64)
    try:
        theirs = torch_td7.TorchTD7Agent(style, *SIZES, WIDTH)
        given = linears(agent)
        with torch.no_grad():
            for name, layers in layers_of(theirs).items():
                for pair, own in zip(layers, given[name].values(), strict=True):
                    for part, values in zip(pair, own, strict=True):
                        part.copy_(torch.tensor(values))
        for optimizer in (
            theirs.encoder_optimizer,
            theirs.actor_optimizer,
            theirs.critic_optimizer,
        ):
            optimizer.param_groups[0]["eps"] = EPSILON
            optimizer.param_groups[0]["lr"] = RATE
        columns = [part.reshape(ROWS, -1) for part in rows]
        replay = torch_td7.TorchTD7Replay(columns, theirs.best, seed=0)
        for number, drawn in enumerate(places, 1):
            noise = UpdateRandom(SEED, tf.constant(number, tf.int64), tf.float64)
            replay.drawn = torch.tensor(drawn)
            batch = torch_td7.Rows(*(torch.tensor(part[drawn]) for part in columns))
            shape = (torch_td7.BATCH, SIZES[1])
            replay.feedback(theirs.train(batch, torch.tensor(noise.normal(shape).numpy())))
    finally:
        torch.set_default_dtype(torch.float32)
    for _ in range(UPDATES // COPIES):
        agent.train(buffer, COPIES)

    for name, layers in linears(agent).items():
        found = layers_of(theirs)[name]
        for pair, (layer, own) in zip(found, layers.items(), strict=True):
            for part, values in zip(pair, own, strict=True):
                np.testing.assert_allclose(
                    part.detach().numpy(), values, atol=1e-9, err_msg=f"{name}.{layer}"
                )
    values = agent.modules["value_range"].target
    assert float(theirs.low) == pytest.approx(float(values.low.numpy()))
    assert float(theirs.high) == pytest.approx(float(values.high.numpy()))
    assert theirs.high > 1.0 > -1.0 > theirs.low  # some targets are outside ±1
    np.testing.assert_allclose(replay.priorities.numpy(), sampler.priorities(), atol=1e-9)


def test_a_batch_contains_the_sampled_rows() -> None:
    parts = [np.arange(10, dtype=np.float32).reshape(-1, 1) for _ in range(5)]
    for packed in (False, True):
        replay = torch_td7.TorchTD7Replay(parts, packed, seed=0)
        replay.priorities[5:] = 0.0
        batch = replay.sample()
        assert set(batch.reward.flatten().tolist()) == set(range(5))
        for part in batch:
            np.testing.assert_array_equal(part[:, 0].numpy(), replay.drawn.numpy())
