"""`examples.c` fails if the actions of the exported code differ from the policy's."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly.export import c
from eagerly.export.c_examples import write_examples, write_examples_of
from eagerly.export.examples import Steps, score_steps
from eagerly.policies.architecture import MemoryCore
from eagerly.spaces import Actions
from tests.eagerly.export.drawn import MUTATIONS, acting, actor, mutated, quantised
from tests.eagerly.export.networks import ACTIONS, BOX, NESTED, made, masks
from tests.eagerly.export.test_c import (
    HIGH,
    LOW,
    STRICT,
    answers,
    in_units,
    library,
    needs_compiler,
    observed,
)

# Any access outside an array and any undefined operation ends the program with an error.
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def alone(rows: np.ndarray) -> Steps:
    """Returns steps that belong to no episode."""
    return Steps(rows, np.zeros(len(rows), np.float32), np.zeros(len(rows), bool))


def played(folder: Path, flags: tuple[str, ...] = STRICT) -> subprocess.CompletedProcess[str]:
    program = c.compiled(folder, folder / "examples", "examples.c", flags=flags)
    return subprocess.run([program], stdout=-1, text=True)


@needs_compiler
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_examples_pass_and_fail_when_a_weight_or_a_bound_changes(
    precision: str, tmp_path: Path
) -> None:
    network = actor() if precision == "float32" else quantised(actor())
    acted = answers(library(network, precision, tmp_path).policy_act, observed())
    write_examples(tmp_path, observed(), acted, 1e-5)
    done = played(tmp_path)
    assert done.stdout.startswith("0 of 300 rows differ, largest difference 0")
    assert done.returncode == 0
    text = (tmp_path / "policy.c").read_text()
    first = re.compile(r"(hidden_0_kernel\[\d+\] = \{\s+)([-\d.]+)")
    changed = first.sub(lambda found: f"{found[1]}{-100 if precision == 'int8' else -2.0}", text)
    assert changed != text
    (tmp_path / "policy.c").write_text(changed)
    assert played(tmp_path).returncode == 1
    c.convert(network, precision, tmp_path, low=LOW, high=np.array([0.5, 1.51]))
    done = played(tmp_path)
    assert done.returncode == 1
    assert re.match(r"[1-9]\d+ of 300 rows differ, largest difference 0.00", done.stdout)


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("gru", {"normalized": True, "layer_norm": True}),
        ("lstm", {"sizes": (), "dtype": "float64"}),
        ("attention", {"activation": "silu"}),
    ],
)
def test_a_recurrent_policy_equals_numpy_over_1000_steps(
    kind: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    memory = MemoryCore(kind=kind, units=6, heads=2, length=9)
    network = actor(encoder=memory, **settings)
    c.convert(network, "float32", tmp_path, low=LOW, high=HIGH)
    begins = np.isin(np.arange(1000), (0, 600, 601))
    rewards = np.where(begins, 0, np.random.default_rng(1).normal(size=1000)).astype(np.float32)
    steps = Steps(observed(1000), rewards, begins)
    scores, _ = score_steps(
        network, Actions(gymnasium.spaces.Box(LOW, HIGH, dtype=np.float64)), steps
    )
    write_examples(tmp_path, steps.rows, in_units(scores), 1e-5 * (HIGH - LOW), episodes=steps)
    done = played(tmp_path, (*STRICT, *SANITIZERS))
    assert done.stdout.startswith("0 of 1000 rows differ, largest difference ")
    assert done.returncode == 0
    text = (tmp_path / "policy.c").read_text()
    part = "count" if kind == "attention" else "hidden"
    forgetful = text.replace(f"state->{part}[i] = 0.0f", f"state->{part}[i] += 0.0f")
    (tmp_path / "policy.c").write_text(forgetful)
    assert played(tmp_path, ("-std=c99",)).returncode == 1


@needs_compiler
@pytest.mark.parametrize(
    ("observation", "action", "settings"),
    [
        (NESTED, ACTIONS, {"memory": "gru", "normalize_observations": True}),
        (BOX, gymnasium.spaces.Discrete(4, start=2), {"normalize_observations": True}),
        (BOX, gymnasium.spaces.MultiDiscrete([3, 2]), {"action_masks": False}),
    ],
)
def test_choices_equal_those_of_numpy(
    observation: gymnasium.Space, action: gymnasium.Space, settings: Any, tmp_path: Path
) -> None:
    _, network, (observations, actions) = made(observation, action, **settings)
    low, high = (end.astype(np.float64) for end in (actions.low, actions.high))
    c.convert(network, "float32", tmp_path, low=low, high=high)
    random = np.random.default_rng(0)
    observation.seed(1)
    rows = []
    for _ in range(200):
        mask = actions.mask(masks(action, random)) if observations.masked else None
        rows.append(observations.flatten(observation.sample(), mask))
    steps = alone(np.stack(rows))
    steps.begins[::100] = "memory" in settings
    scores, _ = score_steps(network, actions, steps)
    expected = actions.to_environment(actions.decided(scores))
    write_examples_of(network, tmp_path, steps, expected, scores, low, high)
    done = played(tmp_path)
    assert re.match(r"0 of [12]00 rows differ", done.stdout)
    expected[:, -1] = low[-1] + high[-1] - expected[:, -1]  # other values of the last choice
    write_examples_of(network, tmp_path, steps, expected, scores, low, high)
    assert re.match(r"[1-9]\d* of [12]00 rows differ", played(tmp_path, ("-std=c99",)).stdout)


@needs_compiler
@pytest.mark.parametrize(
    "space",
    [
        gymnasium.spaces.Box(1e6 + 0.0625, 1e6 + 500, (2,)),
        gymnasium.spaces.Box(-1, 1, (2,), np.float16),
    ],
    ids=["far from 0", "float16"],
)
def test_one_step_of_the_dtype_is_no_difference(
    tmp_path: Path, space: gymnasium.spaces.Box
) -> None:
    network, actions = actor(), Actions(space)
    low, high = (end.astype(np.float64) for end in (actions.low, actions.high))
    c.convert(network, "float32", tmp_path, low=low, high=high)
    scores, _ = score_steps(network, actions, alone(observed()))
    expected = actions.to_environment(actions.decided(scores))
    write_examples_of(network, tmp_path, alone(observed()), expected, scores, low, high)
    assert played(tmp_path).returncode == 0
    write_examples_of(network, tmp_path, alone(observed()), expected + 0.2, scores, low, high)
    assert played(tmp_path).returncode == 1


@needs_compiler
def test_tolerances_apply_per_dimension_and_a_nan_fails(tmp_path: Path) -> None:
    acted = answers(library(actor(), "float32", tmp_path).policy_act, observed(10))
    moved = acted + np.float32([0.5, 0.0])
    write_examples(tmp_path, observed(10), moved, np.array([0.6, 1e-6]))
    assert played(tmp_path).returncode == 0
    write_examples(tmp_path, observed(10), moved, np.array([0.4, 1e-6]))
    assert played(tmp_path).returncode == 1
    write_examples(tmp_path, observed(10), acted, 1e-6)
    text = (tmp_path / "policy.c").read_text()
    text = re.sub(r"(action_center\[2\] = \{\s+)([-\d.]+f)", r"\g<1>(0.0f / 0.0f)", text)
    (tmp_path / "policy.c").write_text(text)
    assert played(tmp_path).stdout.startswith("10 of 10 rows differ")


@needs_compiler
def test_examples_with_other_sizes_do_not_compile(tmp_path: Path) -> None:
    c.convert(actor(), "float32", tmp_path, low=LOW, high=HIGH)
    write_examples(tmp_path, observed(3, 4), np.zeros((3, 2)), 1e-5)
    with pytest.raises(
        RuntimeError, match=r"examples\.c was generated for a policy with different sizes"
    ):
        played(tmp_path)


@needs_compiler
@pytest.mark.parametrize("normalizes", [False, True])
def test_integer_examples_fail_when_one_relevant_weight_is_zero(
    normalizes: bool, tmp_path: Path
) -> None:
    network, rows = quantised(actor(normalized=normalizes)), observed()
    c.convert(network, "int8", tmp_path, low=LOW, high=HIGH)
    actions = in_units(acting(network)(rows).astype(np.float64))
    write_examples_of(network, tmp_path, alone(rows), actions, actions, LOW, HIGH)
    done = played(tmp_path)
    assert done.returncode == 0
    said = r"0 of 100 rows differ, largest difference \S+\n0 of 100 integer rows differ\n"
    assert re.fullmatch(said, done.stdout)
    text = (tmp_path / "policy.c").read_text()
    kernel = network.weights["hidden_0/kernel"]
    unit = int(np.abs(kernel).max(axis=0).argmin())  # the unit with the smallest weights
    place = unit * len(kernel) + int(np.abs(kernel[:, unit]).argmax())
    head, numbers = re.search(r"(hidden_0_kernel\[\d+\] = \{)([^}]+)", text).groups()  # type: ignore[union-attr]
    changed = numbers.split(",")
    assert abs(int(changed[place])) == 127
    changed[place] = "0"
    (tmp_path / "policy.c").write_text(text.replace(head + numbers, head + ",".join(changed)))
    done = played(tmp_path)
    assert done.returncode == 1
    assert re.search(r"\n[1-9]\d* of 100 integer rows differ", done.stdout)


@needs_compiler
@pytest.mark.parametrize("what", MUTATIONS)
def test_integer_examples_fail_when_one_number_is_slightly_wrong(what: str, tmp_path: Path) -> None:
    network, rows = quantised(actor()), observed(1000)
    actions = in_units(acting(network)(rows).astype(np.float64))
    for seed in range(2):
        c.convert(mutated(network, what, seed), "int8", tmp_path, low=LOW, high=HIGH)
        write_examples_of(network, tmp_path, alone(rows), actions, actions, LOW, HIGH)
        done = played(tmp_path, flags=("-std=c99",))
        assert re.search(r"\n[1-9]\d* of 100 integer rows differ", done.stdout)
        assert done.returncode == 1


@needs_compiler
def test_rows_at_rounding_ties_are_used_only_as_integer_examples(tmp_path: Path) -> None:
    # The input grid has steps of 1/2, so odd multiples of 1/4 are rounding ties.
    ranges = [(-64.0, 63.5), (0.0, 9.0), (0.0, 9.0), (-4.0, 4.0), (-1.0, 1.0)]
    network, rows = quantised(actor(), ranges), np.full((7, 5), 0.25, np.float32)
    c.convert(network, "int8", tmp_path, low=LOW, high=HIGH)
    rows[:, 0] += np.arange(7, dtype=np.float32) / 2
    write_examples_of(network, tmp_path, alone(rows), np.zeros((7, 2)), np.zeros((7, 2)), LOW, HIGH)
    assert played(tmp_path).stdout == "0 of 7 integer rows differ\n"
    rows[5] += np.float32(0.01)
    actions = in_units(acting(network)(rows).astype(np.float64))
    write_examples_of(network, tmp_path, alone(rows), actions, actions, LOW, HIGH)
    assert played(tmp_path).stdout.startswith("0 of 1 rows differ")
