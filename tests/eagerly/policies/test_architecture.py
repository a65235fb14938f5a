"""The shapes of an architecture's weights, and unsupported combinations."""

from __future__ import annotations

import dataclasses

import pytest

from eagerly.policies.architecture import MemoryCore, StateEmbedding
from eagerly.policies.heads import ActionHead
from tests.eagerly.export.drawn import EMBEDDING, actor, quantised


def test_an_embedding_ignores_the_mask_and_is_concatenated_with_features() -> None:
    head = ActionHead(1, (2,), masked=2)
    architecture = actor((4,), observation_size=7, head=head, encoder=EMBEDDING).architecture
    kernels = {k: v for k, v in architecture.shapes().items() if k.endswith("kernel")}
    assert kernels == {
        "embedding_0/kernel": (5, 16),
        "embedding_1/kernel": (16, 12),
        "embedding_2/kernel": (12, 6),
        "features/kernel": (5, 10),
        "hidden_0/kernel": (16, 4),
        "action/kernel": (4, 3),
    }
    assert architecture.features == 10 + 6
    biases = 16 + 12 + 6 + 10 + 4 + 3
    assert architecture.count_parameters() == 80 + 192 + 72 + 50 + 64 + 12 + biases


@pytest.mark.parametrize("encoder", [EMBEDDING, MemoryCore(kind="gru", units=4)])
def test_a_quantized_actor_cannot_have_an_encoder(encoder: StateEmbedding | MemoryCore) -> None:
    message = f"must be an MLP without an encoder; got {type(encoder).__name__}"
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(quantised(actor()).architecture, encoder=encoder)
