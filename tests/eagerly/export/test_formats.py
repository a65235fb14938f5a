"""Errors about unsupported actors list the formats that support them."""

from __future__ import annotations

import dataclasses
from importlib import metadata

import numpy as np
import pytest

from eagerly.errors import UsageError
from eagerly.export.formats import FORMATS, format_of
from eagerly.export.policy_document import versions_of
from eagerly.policies.architecture import EntryEncoders
from eagerly.policies.heads import ActionHead
from eagerly.spaces import Entry
from tests.eagerly.export.drawn import EMBEDDING, actor


def test_errors_list_the_formats_and_precisions_that_support_the_actor() -> None:
    floats = "saved-model (float32) or litert (float32, float16) or onnx (float32)"
    camera = Entry("", "image", (8, 16), np.dtype(np.uint8), (), (), 0, 128)
    sees = EntryEncoders(entries=(camera,), units=4)
    architecture = actor(encoder=sees, observation_size=128).architecture
    assert FORMATS["c"].refusal(architecture, "float32") == (
        "C supports only numeric and discrete observations; this actor has images; "
        f"this policy can be exported as {floats}"
    )
    chooses = actor(head=ActionHead(0, (3,))).architecture
    assert "or litert (float32, float16, int8) or" in (FORMATS["c"].refusal(chooses, "int8") or "")
    smooth = actor(activation="elu").architecture
    assert (FORMATS["litert"].refusal(smooth, "int8") or "").endswith(f"{floats} or c (float32)")
    embeds = actor(encoder=EMBEDDING).architecture
    assert (FORMATS["c"].refusal(embeds, "int8") or "").endswith(f"{floats} or c (float32)")
    quantised = dataclasses.replace(actor().architecture, quantized=True)
    assert (FORMATS["litert"].refusal(quantised, "float16") or "").endswith(
        "saved-model (float32) or litert (int8) or onnx (float32) or c (int8)"
    )
    assert FORMATS["litert"].refusal(quantised, "int8") is None


def test_a_module_of_another_package_has_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert versions_of(FORMATS["c"])["numpy"] == np.__version__


def test_a_missing_compiler_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m32")
    with pytest.raises(UsageError, match="'no-such-compiler' was not found: install gcc or clang"):
        FORMATS["c"].check_installed()
    monkeypatch.setenv("CC", "'gcc")
    with pytest.raises(UsageError, match="CC must be a command; got 'gcc: No closing quotation"):
        FORMATS["c"].check_installed()


def test_unknown_formats_and_precisions_raise_errors() -> None:
    assert format_of("c", "int8") is FORMATS["c"]
    with pytest.raises(UsageError, match=r"format must be one of saved-model, .*; got 'pickle'"):
        format_of("pickle", "int8")
    with pytest.raises(UsageError, match=r"precision must be one of float32, .*; got 'int4'"):
        format_of("c", "int4")
