"""The runner of an export does what the policy does, without anything of the package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from eagerly.export import c, runner
from eagerly.export.calibration import calibrated
from eagerly.export.description import description_of, write_document
from eagerly.export.interface import computed, described, inputs, outputs
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import numpy_actor
from eagerly.policies.operations import NumpyOperations
from eagerly.policies.policy import Policy
from eagerly.policies.quantization import TANH_SCALE, grid, integers, quantized_tanh
from eagerly.spaces import Actions, Observations
from tests.export.networks import ACTIONS, BOX, NESTED, UNEVEN, made, masks
from tests.export.test_c import needs_compiler

NORMALIZED: dict[str, Any] = {"normalize_observations": True}
CASES: list[tuple[gymnasium.Space, gymnasium.Space, dict[str, Any]]] = [
    (BOX, UNEVEN, {}),
    (spaces.Box(-1, 1, (2, 2)), UNEVEN, NORMALIZED),
    (BOX, spaces.Box(-1, 1, (2, 1), np.float64), NORMALIZED | {"layer_norm": True}),
    (BOX, spaces.Discrete(4, start=2), {}),
    (spaces.Discrete(5), spaces.MultiDiscrete([3, 2]), {"action_masks": False}),
    (BOX, spaces.MultiDiscrete([3, 2]), NORMALIZED),
    (NESTED, ACTIONS, NORMALIZED),
    (NESTED, spaces.MultiBinary((2, 2)), {"ignore_entries": "arm/1,flags"}),
]
MEMORIES: list[tuple[gymnasium.Space, gymnasium.Space, dict[str, Any]]] = [
    (BOX, UNEVEN, {"memory": "gru"}),
    (BOX, spaces.MultiDiscrete([3, 2]), NORMALIZED | {"memory": "lstm"}),
    (NESTED, ACTIONS, {"memory": "attention", "sequence_length": 5}),
]


def exported(
    folder: Path,
    policy: Policy,
    network: ActorNetwork,
    layout: tuple[Observations, Actions],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """A policy of the runner, whose model is the network in NumPy."""

    def load(_: Path, model: dict[str, Any]) -> Any:
        return lambda given: computed(network, NumpyOperations(), given)

    monkeypatch.setitem(runner._RUNTIMES, "numpy", load)
    sides = (described(part(network.architecture)) for part in (inputs, outputs))
    model = {"format": "numpy", "precision": "float32", "files": []}
    model |= dict(zip(("inputs", "outputs"), sides, strict=True))
    about = description_of(network, layout, model)
    about |= {"tolerance": {"largest": 1e-5, "other_choices": 0.0, "margin": 1e-4}}
    write_document(folder, about)
    return runner.Policy(folder)


def assert_same(found: Any, expected: Any) -> None:
    """The same structure, dtypes and choices; the last bits of numbers may differ."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
        return
    assert (np.shape(found), found.dtype) == (np.shape(expected), expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_it_acts_as_the_policy_does(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation, action, settings = CASES[case]
    policy, network, layout = made(observation, action, **settings)
    found = exported(tmp_path, policy, network, layout, monkeypatch)
    observation.seed(3)
    random = np.random.default_rng(4)
    shown = [observation.sample() for _ in range(20)]
    for each in shown:
        given = masks(action, random) if layout[0].masked else None
        assert_same(found(each, given), policy(each, given))
        assert_same(found(each), policy(each))
        assert action.contains(found(each))
    rows = np.stack([layout[0].flatten(each) for each in shown])
    batch = layout[0].unflatten(rows)
    given = [masks(action, random) for _ in shown] if layout[0].masked else None
    if isinstance(action, spaces.MultiBinary) and given:
        given = np.stack(given)
    assert_same(found(batch, given), policy(batch, given))
    np.testing.assert_allclose(
        found.scores(batch), np.asarray(policy.actor(rows)), rtol=1e-5, atol=1e-5
    )
    assert_same(found.begin_episode()(shown[0], None), policy(shown[0]))


@pytest.mark.parametrize("case", range(len(MEMORIES)))
def test_it_remembers_as_the_policy_does(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation, action, settings = MEMORIES[case]
    policy, network, layout = made(observation, action, **settings)
    found = exported(tmp_path, policy, network, layout, monkeypatch)
    observation.seed(3)
    random, reward = np.random.default_rng(4), None
    mine, others = found.begin_episode(), policy.begin_episodes()
    state, before = found.initial_state(), np.zeros(found.action_size, np.float32)
    for _ in range(12):
        each = observation.sample()
        given = masks(action, random) if layout[0].masked else None
        expected = others(each, reward, action_mask=given)
        assert_same(mine(each, reward, given), expected)
        stepped, scores, *state = found.step(each, before, reward or 0.0, *state, action_mask=given)
        assert_same(stepped, expected)
        before, reward = found.decide(scores), float(random.normal())


def test_what_it_is_told_wrongly_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flat = exported(tmp_path, *made(BOX, spaces.Discrete(3), action_masks=False), monkeypatch)
    with pytest.raises(ValueError, match=r"shape \[3\] or \[N, 3\]; got \(2,\)"):
        flat(np.zeros(2))
    with pytest.raises(FloatingPointError, match="observation must be finite"):
        flat(np.full(3, np.nan))
    with pytest.raises(ValueError, match=r"has no memory: call policy\(observation\)"):
        flat.step(np.zeros(3), np.zeros(3), 0.0)
    nested = exported(tmp_path, *made(NESTED, ACTIONS), monkeypatch)
    shown = NESTED.sample()
    for wrong, message in (
        (shown | {"flags": np.zeros(2, np.int8)}, r"'flags' must have shape \(2, 2\); got \(2,\)"),
        (shown | {"number": np.float32(1)}, "'number' must be of dtype int32; got float32"),
        (shown | {"tool": np.array([2, 0])}, r"'tool' must be in its space, of \[2, 3\] values"),
        ({"arm": shown["arm"]}, "must be a dictionary of"),
        (shown | {"arm": shown["arm"][:1]}, "'arm' must be a tuple of 2"),
    ):
        with pytest.raises(ValueError, match=message):
            nested(wrong)
    none = {"bits": None, "force": None, "pair": None}
    for wrong, message in (
        (none | {"bits": [0, 3]}, "must hold 0, 1 and 2 alone"),
        (none | {"pair": (np.zeros(3), None)}, "leaves no valid action"),
        (none | {"force": [1]}, "a Box has no choices"),
        ({"bits": None}, "must have the entries"),
    ):
        with pytest.raises(ValueError, match=message):
            nested(shown, wrong)
    remembers = exported(tmp_path, *made(BOX, UNEVEN, memory="gru"), monkeypatch)
    with pytest.raises(ValueError, match=r"begin an episode with act = policy\.begin_episode"):
        remembers(np.zeros(3))
    act = remembers.begin_episode()
    with pytest.raises(ValueError, match="reward belongs to observations after the first"):
        act(np.zeros(3), 1.0)
    act(np.zeros(3))
    with pytest.raises(ValueError, match="reward is missing"):
        act(np.zeros(3))
    with pytest.raises(ValueError, match="previous_action must have shape"):
        remembers.step(np.zeros(3), np.zeros(3), 0.0, *remembers.initial_state())
    with pytest.raises(ValueError, match="state must have parts"):
        remembers.step(np.zeros(3), np.zeros(2), 0.0)


def test_files_that_are_not_as_they_were_exported_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").write_bytes(b"abc")
    policy, network, layout = made(BOX, UNEVEN)
    exported(tmp_path, policy, network, layout, monkeypatch)
    about = json.loads((tmp_path / "policy.json").read_text())
    about["model"]["files"] = ["model"]
    del about["sha256"]
    write_document(tmp_path, about)
    runner.Policy(tmp_path)
    (tmp_path / "model").write_bytes(b"abd")
    with pytest.raises(ValueError, match="model is not as it was exported"):
        runner.Policy(tmp_path)
    (tmp_path / "model").unlink()
    with pytest.raises(ValueError, match="model is missing"):
        runner.Policy(tmp_path)
    text = (tmp_path / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(text.replace("0.5", "0.6"))
    with pytest.raises(ValueError, match=r"policy\.json is not as it was exported"):
        runner.Policy(tmp_path)
    for name in ("../model", "/etc/passwd", "saved_model/../../model"):
        with pytest.raises(ValueError, match="which is outside of its folder"):
            runner.check_files(tmp_path, about, [name])
    (tmp_path / "policy.json").write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(ValueError, match="has format 2; this runner reads 1"):
        runner.Policy(tmp_path)


def test_it_acts_on_integers_as_the_policy_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, floats, layout = made(BOX, UNEVEN, **NORMALIZED)
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    network = calibrated(floats, rows)
    policy = Policy(numpy_actor(network.architecture, network.weights), *layout, 7)

    def load(_: Path, model: dict[str, Any]) -> Any:
        def run(given: list[np.ndarray]) -> list[np.ndarray]:
            x = runner._numbers_of(given[0], model["inputs"][0])
            found = quantized_tanh(network.outputs(NumpyOperations(), x))
            return [np.rint(found / TANH_SCALE).astype(np.int8)]

        return run

    scale, zero_point = grid(*network.ranges[0])
    model = {"format": "integers", "precision": "int8", "files": []}
    of_input = {"scale": float(scale), "zero_point": zero_point}
    model["inputs"] = [{"name": "observation", "shape": [1, 3], "dtype": "int8", **of_input}]
    of_output = {"scale": TANH_SCALE, "zero_point": 0}
    model["outputs"] = [{"name": "action", "shape": [1, 2], "dtype": "int8", **of_output}]
    monkeypatch.setitem(runner._RUNTIMES, "integers", load)
    about = description_of(network, layout, model)
    write_document(tmp_path, about)
    found = runner.Policy(tmp_path)
    assert found._quick is not None
    one_by_one, batch = np.stack([found(row) for row in 2 * rows]), found(2 * rows)
    np.testing.assert_array_equal(one_by_one, batch)
    assert one_by_one.dtype == np.float32
    assert (np.abs(batch - policy(2 * rows)) > 1e-6).mean() < 0.01
    with pytest.raises(FloatingPointError, match="observation must be finite"):
        found(np.full(3, np.nan))


@needs_compiler
def test_a_nan_is_not_hidden_by_integers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, floats, layout = made(BOX, UNEVEN, **NORMALIZED)
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    network = calibrated(floats, rows)
    bounds = {"low": UNEVEN.low.astype(np.float64), "high": UNEVEN.high.astype(np.float64)}
    model = {"format": "c", "precision": "int8"} | c.convert(network, "int8", tmp_path, **bounds)
    model["files"] = []
    write_document(tmp_path, description_of(network, layout, model))
    found = runner.Policy(tmp_path)
    rows[7, 1] = np.nan
    for act in (found, found.scores, found.begin_episode()):
        assert np.isfinite(act(rows[6])).all()
        for given in (rows[7], rows):
            with pytest.raises(FloatingPointError, match=r"observation must be finite; got \["):
                act(given)
    choices = exported(tmp_path, *made(BOX, spaces.Discrete(3), action_masks=False), monkeypatch)
    choices._on_integers, on_grid = True, {"scale": 0.1, "zero_point": 0}
    for part in (*choices._inputs, *choices._outputs):
        part |= on_grid
    choices(rows[6])
    with pytest.raises(FloatingPointError, match="observation must be finite"):
        choices(rows[7])


def test_integers_are_those_of_the_grid() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=1000).astype(np.float32) * 3
    scale, zero_point = grid(-2.5, 4.0)
    spec = {"scale": float(scale), "zero_point": zero_point}
    found = runner._integers(x, spec)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, integers(x, -2.5, 4.0))
    assert runner._numbers_of(np.int8([zero_point, zero_point + 1]), spec).tolist() == [
        0.0,
        float(scale),
    ]


def test_differences_are_parts_of_the_span_and_near_ties_do_not_count() -> None:
    about = {
        "action": {"continuous": 1, "choices": [2], "low": [-1, 0], "high": [3, 1]},
        "tolerance": {"largest": 0.2, "other_choices": 0.0, "margin": 0.1},
    }
    expected = np.array([[0.0, 0], [0.0, 1]])
    scores = np.array([[0.0, -0.65, -0.7], [0.0, -3.0, -0.1]])
    found = np.array([[1.0, 1], [0.0, 1]])
    measured = runner.differences(about, found, expected, scores)
    assert measured["largest"] == 0.25  # 1 of a span of 4
    assert measured["mean"] == 0.125
    assert measured["other_choices"] == 0.0
    assert runner.violations(measured, about["tolerance"]) == [
        "largest is 0.25, at most 0.2 is allowed"
    ]
    found[1, 1] = 0
    assert runner.differences(about, found, expected, scores)["other_choices"] == 0.5
    found[0, 0] = np.nan
    measured = runner.differences(about, found, expected, scores)
    assert len(runner.violations(measured, about["tolerance"])) == 2  # NaN is beyond every limit
    assert runner.violations({"mean": 0.1, "other": 9.0}, {"mean": 0.1, "largest": 0.0}) == []


def test_a_step_of_float32_is_no_difference_between_bounds_far_from_0() -> None:
    about = {
        "action": {"continuous": 1, "choices": [], "low": [1000.0], "high": [1001.0]},
        "tolerance": {"largest": 1e-5},
    }
    expected = np.array([[1000.5]], np.float32)
    beside, beyond = np.nextafter(expected, np.float32(2e3)), expected + np.float32(2e-4)
    assert runner.differences(about, beside, expected, expected)["largest"] == 0.0
    assert runner.differences(about, beyond, expected, expected)["largest"] > 1e-4
