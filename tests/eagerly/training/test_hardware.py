"""Devices and precision: selection, errors and warnings."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from eagerly import RunError, Trainer, open_run
from eagerly.training import hardware
from tests.small_runs import SMALL, TrainRun, logged

ROOT = Path(__file__).parents[3]
GPUS = tf.config.list_physical_devices("GPU")
needs_gpu = pytest.mark.skipif(not GPUS, reason="TensorFlow finds no GPU on this machine")
without_gpu = pytest.mark.skipif(bool(GPUS), reason="this machine has a GPU")


@without_gpu
def test_a_missing_gpu_is_reported_with_instructions(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", "td3", SMALL | {"device": "gpu"})
    with pytest.raises(RunError, match=r"found no GPU.*eagerly\[gpu\].*TF_CPP_MIN_LOG_LEVEL=0"):
        Trainer(run)


@without_gpu
def test_without_a_gpu_auto_and_cpu_use_the_cpu(train: TrainRun) -> None:
    train("auto", steps=120)
    train("cpu", steps=120, device="cpu")
    assert hardware.device_name().startswith("CPU")
    assert continues(repeats=True).startswith("bit for bit")


def continues(*, restores: bool = True, repeats: bool | None = None) -> str:
    return hardware.continuation_note(restores=restores, repeats=repeats)


@pytest.mark.parametrize("repeats", [True, False, None])
def test_bit_exact_resuming_is_promised_only_if_episodes_are_restored(
    repeats: bool | None,
) -> None:
    seen = {True: "as the check found", None: "not checked in this", False: "not bit for bit"}
    assert seen[repeats] in continues(repeats=repeats)
    assert "not bit for bit" in continues(restores=False, repeats=repeats)
    assert "--restore-episodes no" in continues(restores=False, repeats=repeats)


def test_the_note_for_gpus_states_that_it_was_never_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["a GPU"])
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["a GPU"])
    config = tf.config.experimental
    monkeypatch.setattr(config, "set_memory_growth", lambda *given: called.append("grows"))
    monkeypatch.setattr(config, "enable_op_determinism", lambda: called.append("deterministic"))
    hardware.set_device("auto")
    assert called == ["grows", "deterministic"]
    assert "never measured" in continues(repeats=True)
    assert "not bit for bit" in continues(repeats=False)


@needs_gpu
def test_a_gpu_run_trains_and_resumes(train: TrainRun) -> None:
    trainer = train("run", steps=200, mode="xla", device="gpu")
    assert "GPU" in trainer.agent.actor.network.variables[0].value.device
    assert train("run", steps=400).steps == 400


def test_networks_and_algorithms_name_no_device() -> None:
    for folder in ("agents", "networks", "buffers"):
        for path in {*(ROOT / folder).glob("*.py")} - {ROOT / "agents/replicas.py"}:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = node.attr if isinstance(node, ast.Attribute) else ""
                assert name not in ("device", "set_visible_devices"), f"{path.name}:{node.lineno}"


def _with_flags(path: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
    path.write_text(f"processor\t: 0\nflags\t\t: fpu {' '.join(flags)}\n")
    monkeypatch.setattr(hardware, "_CPU_FLAGS", path)


BFLOAT16: dict[str, Any] = {"precision": "mixed_bfloat16", "steps": 120}


@without_gpu
def test_bfloat16_requires_a_cpu_with_bfloat16_instructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_flags(tmp_path / "cpuinfo", monkeypatch, "avx512f")
    run = open_run(tmp_path / "run", "td3", SMALL | BFLOAT16)
    with pytest.raises(RunError, match=r"no bfloat16 instructions.*--precision float32"):
        Trainer(run)


@without_gpu
@pytest.mark.parametrize(
    ("mode", "flags", "said"),
    [
        ("graph", "avx512_bf16", None),
        ("graph", "amx_bf16", None),
        ("xla", "avx512_bf16", "--mode graph"),
        ("graph", None, "cannot determine"),
    ],
)
def test_a_precision_that_may_be_slow_is_reported(
    mode: str, flags: str | None, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if flags:
        _with_flags(tmp_path / "cpuinfo", monkeypatch, flags)
    else:
        monkeypatch.setattr(hardware, "_CPU_FLAGS", tmp_path / "nothing")
    with logged() as lines:
        hardware.check_precision("mixed_bfloat16", mode)
    assert len(lines) == (said is not None)
    assert not said or said in lines[0]


def test_other_precisions_cause_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_CPU_FLAGS", Path("nowhere"))
    with logged() as lines:
        hardware.check_precision("float32", "xla")
    assert not lines


def test_a_run_in_bfloat16_keeps_float32_weights_and_resumes(
    train: TrainRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_flags(tmp_path / "cpuinfo", monkeypatch, "avx512_bf16")
    trainer = train("run", precision="mixed_bfloat16", steps=200)
    assert {v.dtype for v in trainer.agent.critic.network.variables} == {"float32"}
    assert train("run", steps=400).updates == 3
