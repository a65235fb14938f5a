"""C policies, compiled with the system's compiler, match the NumPy actors."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.export import c, c_source
from eagerly.export.integers import plan, run
from eagerly.policies.architecture import DENSE, EntryEncoders, MemoryCore
from eagerly.policies.heads import ActionHead
from eagerly.policies.integer_grids import integers
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import normalized
from eagerly.policies.operations import ACTIVATIONS
from eagerly.spaces import Actions, Entry
from tests.eagerly.export.drawn import EMBEDDING, acting, actor, int8_rows, quantised
from tests.helpers import ROOT

LOW, HIGH = np.array([-2.0, 1.0]), np.array([0.5, 1.5])
STRICT = (*c.FLAGS, "-pedantic", "-Wconversion", "-Wdouble-promotion")
ARM = Entry("robot/arm", "vector", (3,), np.dtype(np.float32), (), (), 0, 3)
EMPTY = Entry("empty", "vector", (0,), np.dtype(np.float32), (), (), 3, 3)
GOAL = Entry("goal", "vector", (2,), np.dtype(np.float32), (), (), 3, 5)
CAMERA = Entry("", "image", (8, 16), np.dtype(np.uint8), (), (), 0, 128)
needs_compiler = pytest.mark.skipif(
    shutil.which(c.compiler()[0]) is None, reason="needs a C compiler"
)


def library(
    network: ActorNetwork, precision: str, folder: Path, low: Any = LOW, high: Any = HIGH
) -> ctypes.CDLL:
    """Converts a network to C, compiles it, and loads the library."""
    c.convert(network, precision, folder, low=low, high=high, banner="a test")
    found = ctypes.CDLL(str(c.compiled(folder, folder / "policy.so", flags=STRICT)))
    kind = np.ctypeslib.ndpointer(np.int8 if precision == "int8" else np.float32)
    found.policy_network.argtypes = [kind, kind]
    found.policy_act.argtypes = [np.ctypeslib.ndpointer(np.float32)] * 2
    found.policy_network.restype = found.policy_act.restype = None
    return found


def answers(function: Any, rows: np.ndarray, size: int = 2) -> np.ndarray:
    """Returns the results of a library function for each row."""
    found = np.empty((len(rows), size), rows.dtype)
    for row, answer in zip(np.ascontiguousarray(rows), found, strict=True):
        function(row, answer)
    return found


def observed(count: int = 300, size: int = 5) -> np.ndarray:
    return (3.0 * np.random.default_rng(4).normal(size=(count, size))).astype(np.float32)


def in_units(actions: np.ndarray, low: np.ndarray = LOW, high: np.ndarray = HIGH) -> np.ndarray:
    space = gymnasium.spaces.Box(low, high, dtype=np.float64)
    return Actions(space).to_environment(actions)


FLOATS: list[dict[str, Any]] = [
    *({"activation": name} for name in ACTIVATIONS),
    {"normalized": True},
    {"layer_norm": True, "activation": "silu"},
    {"layer_norm": True, "normalized": True, "dtype": "float64"},
    {"sizes": ()},
    {"encoder": EMBEDDING, "normalized": True},
    {"encoder": replace(EMBEDDING, hidden_sizes=()), "sizes": ()},
    {"encoder": EntryEncoders(entries=(ARM, GOAL), units=4), "normalized": True},
    {
        "encoder": EntryEncoders(entries=(ARM, EMPTY, GOAL), units=4),
        "sizes": (),
        "activation": "tanh",
    },
]


@needs_compiler
@pytest.mark.parametrize("settings", FLOATS, ids=str)
def test_float32_matches_numpy(settings: dict[str, Any], tmp_path: Path) -> None:
    network = actor(**settings)
    found, rows = library(network, "float32", tmp_path), observed()
    expected = in_units(acting(network)(rows).astype(np.float64))
    differences = np.abs(answers(found.policy_act, rows) - expected) / (HIGH - LOW)
    assert differences.max() < 1e-6
    if not network.architecture.normalized:
        np.testing.assert_allclose(
            answers(found.policy_network, rows), acting(network)(rows), rtol=0, atol=2e-6
        )


@needs_compiler
def test_four_partial_sums_are_more_accurate_than_a_single_sum(tmp_path: Path) -> None:
    network = actor((), observation_size=1203, head=ActionHead(6))
    network.weights["action/kernel"] *= 0.1  # prevents a saturated tanh, which would hide errors
    rows, ends = observed(100, 1203), -np.ones(6)
    found = library(network, "float32", tmp_path, ends, -ends)
    kernel, bias = (network.weights[f"action/{part}"] for part in ("kernel", "bias"))
    exact = np.tanh(rows.astype(np.float64) @ kernel.astype(np.float64) + bias)
    single = np.cumsum(rows[:, :, np.newaxis] * kernel, axis=1)[:, -1] + bias
    assert single.dtype == np.float32
    error = np.abs(answers(found.policy_network, rows, 6) - exact).mean()
    assert error < 0.7 * np.abs(np.tanh(single) - exact).mean()


@needs_compiler
@pytest.mark.parametrize("sizes", [(64, 64), (256, 256), (7,), ()], ids=str)
def test_int8_code_equals_the_integer_reference_bit_for_bit(
    sizes: tuple[int, ...], tmp_path: Path
) -> None:
    network = quantised(actor(sizes, observation_size=17, head=ActionHead(6)))
    found = library(network, "int8", tmp_path, -np.ones(6), np.ones(6))
    rows = int8_rows(4000, 17)
    expected = run(plan(network), rows)
    np.testing.assert_array_equal(answers(found.policy_network, rows, 6), expected)
    assert len(np.unique(expected)) > 100


@needs_compiler
@pytest.mark.parametrize(
    "ranges",
    [
        [(-3.0, 3.0), (-1.0, 3.0), (-0.5, 3.0), (-3.0, 4.0), (-1.0, 1.0)],
        [(0.0, 9.0), (0.0, 1e-4), (0.0, 1e4), (-4.0, 0.5), (-1.0, 1.0)],
        [(-9.0, 0.0), (0.0, 1e-12), (0.0, 1.0), (-1e-9, 1e-9), (-1.0, 1.0)],
    ],
    ids=["zero points", "large and small", "too large a multiplier"],
)
def test_int8_code_equals_the_integer_reference_for_unusual_ranges(
    ranges: list[tuple[float, float]], tmp_path: Path
) -> None:
    network, rows = quantised(actor(), ranges), int8_rows(500, 5)
    answered = answers(library(network, "int8", tmp_path).policy_network, rows)
    np.testing.assert_array_equal(answered, run(plan(network), rows))


@needs_compiler
@pytest.mark.parametrize("normalizes", [False, True])
def test_int8_code_rounds_observations_and_returns_environment_units(
    normalizes: bool, tmp_path: Path
) -> None:
    # The input grid has steps of 1/2, so odd multiples of 1/4 are rounding ties.
    ranges = [(-64.0, 63.5), (0.0, 9.0), (0.0, 9.0), (-4.0, 4.0), (-1.0, 1.0)]
    network = quantised(actor(normalized=normalizes), ranges)
    rows = np.arange(-400, 400, dtype=np.float32).reshape(-1, 5) / 4.0
    rows = np.concatenate([rows, observed(), np.float32([[np.inf, -np.inf, 1e30, -1e30, 0.0]])])
    scaled = rows
    if normalizes:
        names = [f"observation_normalization/{part}" for part in ("mean", "scale")]
        scaled = normalized(rows, *(network.weights[name] for name in names))
    found = run(plan(network), integers(scaled, *ranges[0]).astype(np.int8)) / 128.0
    acted = answers(library(network, "int8", tmp_path).policy_act, rows)
    np.testing.assert_allclose(acted, in_units(found), rtol=0, atol=1e-6)


@needs_compiler
def test_actions_respect_bounds_that_float32_cannot_represent(tmp_path: Path) -> None:
    low, high = np.array([0.1, -0.7]), np.array([0.2, -0.1])
    network = actor()
    network.weights["action/kernel"] *= 100.0  # saturates the tanh
    acted = answers(library(network, "float32", tmp_path, low, high).policy_act, observed())
    assert (low <= acted.astype(np.float64)).all()
    assert (acted.astype(np.float64) <= high).all()
    np.testing.assert_allclose(acted.min(axis=0), low, rtol=0, atol=1e-6)
    np.testing.assert_allclose(acted.max(axis=0), high, rtol=0, atol=1e-6)


@needs_compiler
def test_a_nan_propagates_to_the_actions(tmp_path: Path) -> None:
    row = np.float32([[0.0, np.nan, 0.0, 0.0, 0.0]])
    for settings in FLOATS:
        (folder := tmp_path / str(len(list(tmp_path.iterdir())))).mkdir()
        found = library(actor(**settings), "float32", folder)
        assert np.isnan(answers(found.policy_act, row)).all()


@needs_compiler
def test_all_zero_features_are_not_divided_by_zero(tmp_path: Path) -> None:
    network = actor(encoder=EMBEDDING)
    for part in DENSE:
        network.weights[f"features/{part}"][:] = 0.0
    found = answers(library(network, "float32", tmp_path).policy_network, observed(20))
    np.testing.assert_allclose(found, acting(network)(observed(20)), rtol=0, atol=2e-6)


@needs_compiler
def test_numbers_in_c_source_round_trip_exactly(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 3000, dtype=np.uint32)
    numbers = bits.view(np.float32)
    numbers = np.append(numbers[np.isfinite(numbers)], np.float32([0.0, -0.0, 1e-45, 3.4028235e38]))
    text = c_source.array("float", "numbers", numbers).removeprefix("static const ")
    (tmp_path / "policy.c").write_text(text)
    found = ctypes.CDLL(str(c.compiled(tmp_path, tmp_path / "numbers.so", flags=STRICT)))
    array = (ctypes.c_float * len(numbers)).in_dll(found, "numbers")
    np.testing.assert_array_equal(np.array(array).view(np.uint32), numbers.view(np.uint32))


def undefined(folder: Path, *flags: str) -> set[str]:
    """Compiles an object file and returns its undefined symbols."""
    command = [*c.compiler(), "-std=c99", *flags, "-c", "policy.c", "-o", "policy.o"]
    subprocess.run(command, cwd=folder, check=True)
    listed = subprocess.run(["nm", "-u", "policy.o"], cwd=folder, stdout=-1, text=True, check=True)
    return {line.split()[-1] for line in listed.stdout.splitlines() if line}


needs_nm = pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")


@needs_compiler
@needs_nm
@pytest.mark.parametrize("flag", ["-O0", "-Os", "-O2", "-O3"])
def test_float32_code_needs_only_libm_and_int8_code_no_library(flag: str, tmp_path: Path) -> None:
    bounds = {"low": LOW, "high": HIGH}
    c.convert(quantised(actor((32, 16), normalized=True)), "int8", tmp_path, **bounds)
    assert undefined(tmp_path, flag) == set()
    c.convert(actor(layer_norm=True, activation="silu"), "float32", tmp_path, **bounds)
    assert undefined(tmp_path, flag) - {"_GLOBAL_OFFSET_TABLE_"} == {"tanhf", "expf", "sqrtf"}
    c.convert(actor(encoder=EMBEDDING), "float32", tmp_path, **bounds)
    assert undefined(tmp_path, flag) - {"_GLOBAL_OFFSET_TABLE_"} == {"tanhf", "expm1f"}
    c.convert(actor(encoder=MemoryCore(kind="gru", units=40)), "float32", tmp_path, **bounds)
    # Compilers replace loops that copy or clear arrays.
    usual = {"_GLOBAL_OFFSET_TABLE_", "memcpy", "memmove", "memset"}
    assert undefined(tmp_path, flag) - usual == {"tanhf", "expf"}


@needs_compiler
@needs_nm
def test_a_policy_with_64_and_64_units_takes_8_kib_in_int8(tmp_path: Path) -> None:
    network = actor((64, 64), observation_size=17, head=ActionHead(6), normalized=True)
    c.convert(quantised(network), "int8", tmp_path, low=-np.ones(6), high=np.ones(6))
    # Compile without tables for stack unwinding, which microcontrollers do not need.
    undefined(tmp_path, "-Os", "-fno-asynchronous-unwind-tables")
    sizes = subprocess.run(["size", "policy.o"], cwd=tmp_path, stdout=-1, text=True, check=True)
    text, data, bss = map(int, sizes.stdout.splitlines()[1].split()[:3])
    assert text + data <= 8192
    assert bss == 0


def test_convert_describes_its_files_inputs_and_outputs(tmp_path: Path) -> None:
    made = c.convert(actor(), "float32", tmp_path, low=LOW, high=HIGH)
    assert made["files"] == ["policy.h", "policy.c"]
    assert all((tmp_path / name).is_file() for name in made["files"])
    assert made["inputs"] == [{"name": "observation", "shape": [1, 5], "dtype": "float32"}]
    assert made["outputs"] == [{"name": "action", "shape": [1, 2], "dtype": "float32"}]
    network = quantised(actor())
    made = c.convert(network, "int8", tmp_path, low=LOW, high=HIGH)
    of = plan(network)
    given = {"scale": float(of.input_scale), "zero_point": of.input_zero_point}
    assert made["inputs"] == [{"name": "observation", "shape": [1, 5], "dtype": "int8"} | given]
    made_of = {"scale": 1 / 128, "zero_point": 0}
    assert made["outputs"] == [{"name": "action", "shape": [1, 2], "dtype": "int8"} | made_of]


@needs_compiler
def test_the_header_names_the_index_of_each_entry(tmp_path: Path) -> None:
    odd = Entry("a*/ ü", "vector", (1,), np.dtype(np.float32), (), (), 5, 6)
    upper = Entry("GOAL", "vector", (1,), np.dtype(np.float32), (), (), 6, 7)
    tool = Entry("tool", "choice", (2,), np.dtype(np.int64), (3, 2), (1, 0), 7, 12)
    entries = (ARM, GOAL, odd, upper, tool)
    network = actor(observation_size=12)
    c.convert(network, "float32", tmp_path, low=LOW, high=HIGH, entries=entries)
    lines = (tmp_path / "policy.h").read_text().splitlines()
    assert [line for line in lines if "POLICY_ENTRY" in line] == [
        "#define POLICY_ENTRY_ROBOT_ARM 0 /* robot/arm: 3 numbers */",
        "#define POLICY_ENTRY_GOAL 3 /* goal: 2 numbers */",
        "#define POLICY_ENTRY_A____ 5 /* a?/ ?: 1 numbers */",
        "#define POLICY_ENTRY_GOAL_ 6 /* GOAL: 1 numbers */",
        "#define POLICY_ENTRY_TOOL 7 /* tool: one-hot, 1 to 3, 0 to 1 */",
    ]
    c.compiled(tmp_path, tmp_path / "policy.so", flags=STRICT)


@needs_compiler
def test_the_documented_program_with_a_recurrent_policy_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "microcontrollers.md").read_text()
    program = re.search(r"```c title=main.c\n(.*?)```", text, re.S)
    assert program is not None
    (tmp_path / "main.c").write_text(program[1])
    memory = MemoryCore(kind="gru", units=8)
    network = actor(observation_size=2, head=ActionHead(1), encoder=memory)
    c.convert(network, "float32", tmp_path, low=LOW[:1], high=-LOW[:1])
    made = c.compiled(tmp_path, tmp_path / "main", "main.c", flags=STRICT)
    done = subprocess.run([made], stdout=-1, text=True, check=True)
    assert re.fullmatch(r"return -\d+\.\d\n", done.stdout)


@needs_compiler
def test_any_banner_text_becomes_a_comment(tmp_path: Path) -> None:
    banner = "runs/a*/b/*c\n??/ trigraphs, \\\nlines and ±\n"
    c.convert(actor(), "float32", tmp_path, low=LOW, high=HIGH, banner=banner)
    c.compiled(tmp_path, tmp_path / "policy.so", flags=STRICT)
    assert (tmp_path / "policy.h").read_text().startswith("/*\n * runs/a* /b/ *c\n")


@needs_compiler
@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("memory", [None, MemoryCore(kind="lstm", units=4)])
def test_the_header_compiles_as_c_plus_plus(memory: MemoryCore | None, tmp_path: Path) -> None:
    network, precision = quantised(actor()), "int8"
    if memory is not None:
        network, precision = actor(encoder=memory), "float32"
    c.convert(network, precision, tmp_path, low=LOW, high=HIGH)
    text = (
        '#include "policy.h"\n#include "policy.h"\nint main() { return POLICY_ACTION_SIZE - 2; }\n'
    )
    (tmp_path / "main.cpp").write_text(text)
    subprocess.run(["c++", "-Wall", "-Werror", "main.cpp", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "main"]).returncode == 0


@pytest.mark.parametrize(
    ("settings", "precision", "message"),
    [
        ({}, "float16", "c does not support float16, only float32 or int8"),
        (
            {"encoder": EntryEncoders(entries=(ARM, GOAL), units=4)},
            "int8",
            "an actor with encoders or a recurrent core cannot be quantized",
        ),
        (
            {"encoder": EntryEncoders(entries=(CAMERA,), units=4), "observation_size": 128},
            "float32",
            "C supports only numeric and discrete observations; this actor has images$",
        ),
        (
            {"encoder": MemoryCore(kind="attention", units=4)},
            "int8",
            "an actor with encoders or a recurrent core cannot be quantized",
        ),
        (
            {"head": ActionHead(0, (3, 2))},
            "int8",
            "C supports discrete actions only in float32$",
        ),
        ({"layer_norm": True}, "int8", "an actor with layer normalization cannot be quantized"),
        ({"encoder": EMBEDDING}, "int8", "an actor with a state embedding cannot be quantized"),
        ({"activation": "elu"}, "int8", "an actor with elu activations cannot be quantized"),
        ({"quantized": True}, "float32", "is quantized, and C rounds differently"),
    ],
)
def test_the_reason_names_what_c_does_not_support(
    settings: dict[str, Any], precision: str, message: str
) -> None:
    quantizes = settings.pop("quantized", False)
    network = quantised(actor(**settings)) if quantizes else actor(**settings)
    assert re.search(message, c.refusal(network.architecture, precision) or "")


def test_a_float_actor_may_be_calibrated_for_int8() -> None:
    assert c.refusal(actor().architecture, "int8") is None


def test_non_finite_weights_and_bounds_raise_errors(tmp_path: Path) -> None:
    network = actor()
    network.weights["hidden_1/bias"][3] = np.nan
    with pytest.raises(ValueError, match="must be finite in float32; got nan"):
        c.convert(network, "float32", tmp_path, low=LOW, high=HIGH)
    with pytest.raises(ValueError, match="must be finite in float32; got 1e\\+200"):
        c.convert(actor(), "float32", tmp_path, low=LOW, high=HIGH + 2e200)
    far = actor(head=ActionHead(1, (3,)))
    with pytest.raises(ValueError, match="must be between -2\\^24 and 2\\^24 in C; got 16777218"):
        c.convert(
            far, "float32", tmp_path, low=np.array([-1, 2**24]), high=np.array([1, 2**24 + 2])
        )
    assert not list(tmp_path.iterdir())
