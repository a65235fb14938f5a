"""The runner of an export returns the policy's actions, without importing the package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from eagerly.export import c, litert, onnx, runner
from eagerly.export.calibration import calibrated
from eagerly.export.examples import Steps, example_arrays
from eagerly.export.interface import computed, described, inputs, outputs
from eagerly.export.policy_document import description_of, write_document
from eagerly.export.runner import document
from eagerly.export.runner.runtimes import RUNTIMES, to_integers, to_numbers
from eagerly.policies.integer_grids import TANH_SCALE, grid, integers, quantized_tanh
from eagerly.policies.network import ActorNetwork
from eagerly.policies.numpy_actor import numpy_actor
from eagerly.policies.operations import NumpyOperations
from eagerly.policies.policy import Policy
from eagerly.spaces import Actions, Observations
from tests.eagerly.export.drawn import EMBEDDING
from tests.eagerly.export.networks import ACTIONS, BOX, NESTED, UNEVEN, made, masks
from tests.eagerly.export.random_spaces import (
    left_out,
    misfit,
    random_actions,
    random_observations,
    vectorized,
)
from tests.eagerly.export.test_c import needs_compiler
from tests.eagerly.export.test_litert import needs_litert
from tests.eagerly.export.test_onnx import needs_onnx

CACHES = shutil.ignore_patterns("__pycache__")
NORMALIZED: dict[str, Any] = {"normalize_observations": True}
CASES: list[tuple[gymnasium.Space, gymnasium.Space, dict[str, Any]]] = [
    (BOX, UNEVEN, {}),
    (spaces.Box(-1e6, 1e6, (3,)), UNEVEN, NORMALIZED),
    (spaces.Box(-1, 1, (2, 2)), UNEVEN, NORMALIZED),
    (BOX, spaces.Box(-1, 1, (2, 1), np.float64), NORMALIZED | {"layer_norm": True}),
    (BOX, spaces.Discrete(4, start=2), {}),
    (spaces.Discrete(5), spaces.MultiDiscrete([3, 2]), {"action_masks": False}),
    (BOX, spaces.MultiDiscrete([3, 2]), NORMALIZED),
    (NESTED, ACTIONS, NORMALIZED),
    (NESTED, spaces.MultiBinary((2, 2)), {"ignore_entries": "arm/1,flags"}),
    (NESTED, ACTIONS, {"ignore_entries": "arm/1", "critic_entries": "flags"}),
    (BOX, UNEVEN, {"encoder": EMBEDDING}),
    (spaces.Dict(a=BOX, b=spaces.Box(-9, 9, (2, 2))), UNEVEN, NORMALIZED | {"encoder": EMBEDDING}),
    (spaces.Dict(a=spaces.Box(0, 255, (2, 7, 8, 3), np.uint8), b=BOX), UNEVEN, NORMALIZED),
    (spaces.Box(0, 255, (7, 8), np.uint8), spaces.Discrete(4), {}),
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
    """Writes `policy.json` and returns the runner's policy, with the NumPy network as its model."""

    def load(_: Path, model: dict[str, Any]) -> Any:
        return lambda given: computed(network, NumpyOperations(), given)

    monkeypatch.setitem(RUNTIMES, "numpy", load)
    sides = (described(part(network.architecture)) for part in (inputs, outputs))
    model = {"format": "numpy", "precision": "float32", "files": []}
    model |= dict(zip(("inputs", "outputs"), sides, strict=True))
    about = description_of(network, layout, model)
    about |= {"tolerance": {"largest": 1e-5, "other_choices": 0.0, "margin": 1e-4}}
    write_document(folder, about)
    return runner.Policy(folder)


def assert_same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Asserts equal structures, types and dtypes, and equal numbers up to a tolerance."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, tolerance)
        return
    assert (np.shape(found), found.dtype) == (np.shape(expected), expected.dtype)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_actions_match_the_policy(
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
    assert_same(found.start_episode()(shown[0], None), policy(shown[0]))


@pytest.mark.parametrize("case", range(len(MEMORIES)))
def test_recurrent_actions_match_the_policy(
    case: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observation, action, settings = MEMORIES[case]
    policy, network, layout = made(observation, action, **settings)
    found = exported(tmp_path, policy, network, layout, monkeypatch)
    observation.seed(3)
    random, reward = np.random.default_rng(4), None
    mine, others = found.start_episode(), policy.start_episode()
    state, before = found.initial_state(), np.zeros(found.action_size, np.float32)
    for step in range(12):
        each, executed = observation.sample(), None
        if step % 3 == 2:  # a safety layer executes another action
            executed = action.sample()
            before = layout[1].from_environment(executed)
        given = masks(action, random) if layout[0].masked else None
        expected = others(each, reward, action_mask=given, executed_action=executed)
        assert_same(mine(each, reward, given, executed), expected)
        stepped, scores, *state = found.step(each, before, reward or 0.0, *state, action_mask=given)
        assert_same(stepped, expected)
        before, reward = found.decide(scores), float(random.normal())
    with pytest.raises(ValueError, match="executed_action must be an action: "):
        mine(each, reward, None, np.zeros(9))


def result(refusals: tuple[type[Exception], ...], call: Callable[..., Any], *given: Any) -> Any:
    """Returns the result of a call, or None if it raises one of `refusals`."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(*given)
        except refusals:
            return None


@pytest.mark.filterwarnings(
    "ignore:.*Casting input x to numpy array"
)  # scalars in a Box of shape () cause this warning
@pytest.mark.parametrize("seed", range(40))
def test_inputs_and_outputs_match_the_policy_in_random_spaces(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(seed)
    observation, action = random_observations(random), random_actions(random)
    settings: dict[str, Any] = {"normalize_observations": bool(random.integers(2))}
    if ignored := left_out(observation, random):
        settings["ignore_entries"] = ignored
    settings["action_masks"] = bool(random.random() < 0.8)
    if seed % 3 == 0:
        settings |= {"memory": ("gru", "lstm", "attention")[seed % 9 // 3], "sequence_length": 3}
    policy, network, layout = made(observation, action, seed=seed, **settings)
    found = exported(tmp_path, policy, network, layout, monkeypatch)
    observations, actions = layout
    observation.seed(seed)
    shown = [observation.sample() for _ in range(4)]
    given = [masks(action, random) for _ in shown]

    def check_rows(observation: Any, mask: Any) -> None:
        refusals = (ValueError, TypeError, OverflowError)
        expected = result(refusals, policy._rows, observation, mask)
        mine = result((ValueError,), found._observations.rows, observation, mask)
        assert (mine is None) == (expected is None), (observation, mask)
        if expected is not None:
            assert mine is not None
            assert mine[1] == expected[1]
            assert_same(mine[0], expected[0], 0.0)

    # Compare rows and masks: single and batched, valid and invalid.
    batch = concatenate(observation, shown, create_empty_array(observation, len(shown)))
    for each, mask in zip(shown, given, strict=True):
        assert found._observations.rows(each, mask)[0].shape == (1, observations.size)
        for part in (each, observations.kept(each)):
            check_rows(part, mask)
        for _ in range(8):
            check_rows(misfit(each, random), mask)
            check_rows(each, misfit(mask, random))
            check_rows(misfit(batch, random), None)
    together = [given, vectorized(given), given[0], given[:3], []]
    if isinstance(action, spaces.MultiBinary | spaces.Discrete) and given[0] is not None:
        together.append(np.stack(given))
    for mask in (None, *together):
        check_rows(batch, mask)
        check_rows(batch, misfit(mask, random))

    # Compare the decisions and actions that are computed from scores.
    scores = random.uniform(-1.0, 1.0, (5, actions.size)).astype(np.float32)
    decisions = actions.decided(scores)
    assert_same(found.decide(scores), decisions, 0.0)
    assert_same(found.decide(scores[0]), decisions[0], 0.0)
    rows = actions.to_environment(decisions)
    assert_same(found.to_environment(decisions), rows, 0.0)
    assert_same(found._actions.unflatten(decisions, False), actions.unflatten(rows), 0.0)
    assert_same(found._actions.unflatten(decisions[:1], True), actions.unflatten(rows[0]), 0.0)

    # Compare the whole policy, and replay examples as an export writes them.
    masked = given if observations.masked else [None] * len(shown)
    flat = np.concatenate([policy._rows(*each)[0] for each in zip(shown, masked, strict=True)])
    steps = Steps(flat, random.normal(size=4).astype(np.float32), np.arange(4) % 3 == 0)
    if policy.remembers:
        scores = []
        rewards = [
            None if began else float(r)
            for r, began in zip(steps.rewards, steps.begins, strict=True)
        ]
        for each, mask, reward in zip(shown, masked, rewards, strict=True):
            if reward is None:
                mine, others = found.start_episode(), policy.start_episode()
                state, before = found.initial_state(), np.zeros(found.action_size, np.float32)
            expected = others(each, reward, action_mask=mask)
            assert_same(mine(each, reward, mask), expected)
            action_of_step, of_step, *state = found.step(
                each, before, reward or 0.0, *state, action_mask=mask
            )
            assert_same(action_of_step, expected)
            before = found.decide(of_step)
            scores.append(of_step)
        steps.rewards[steps.begins] = 0.0
    else:
        scores = policy.actor(flat)
        for each, mask in zip(shown, masked, strict=True):
            assert_same(found(each, mask), policy(each, mask))
            assert action.contains(found(each, mask))
        mask = masked if observations.masked else None
        assert_same(found(batch, mask), policy(batch, mask))
        np.testing.assert_allclose(found.scores(batch, mask), scores, rtol=1e-5, atol=1e-5)
    memory = {"previous_action": np.zeros((4, actions.size))} if policy.remembers else {}
    examples = example_arrays(steps, np.stack(scores), memory, observations, actions)
    np.testing.assert_allclose(runner.replay(found, examples), examples["action"], atol=1e-4)


def test_invalid_inputs_raise_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flat = exported(tmp_path, *made(BOX, spaces.Discrete(3), action_masks=False), monkeypatch)
    with pytest.raises(ValueError, match=r"shape \[3\] or \[N, 3\]; got \(2,\)"):
        flat(np.zeros(2))
    with pytest.raises(FloatingPointError, match="observation must be finite"):
        flat(np.full(3, np.nan))
    with pytest.raises(ValueError, match=r"is not recurrent: call policy\(observation\)"):
        flat.step(np.zeros(3), np.zeros(3), 0.0)
    sees = exported(
        tmp_path, *made(spaces.Box(0, 255, (7, 8), np.uint8), spaces.Discrete(3)), monkeypatch
    )
    with pytest.raises(ValueError, match="observation must have dtype uint8; got uint16"):
        sees(np.zeros((7, 8), np.uint16))
    nested = exported(tmp_path, *made(NESTED, ACTIONS), monkeypatch)
    shown = NESTED.sample()
    for wrong, message in (
        (shown | {"flags": np.zeros(2, np.int8)}, r"'flags' must have shape \(2, 2\); got \(2,\)"),
        (shown | {"number": np.float32(1)}, "'number' must have dtype int32; got float32"),
        (shown | {"tool": np.array([2, 0])}, r"'tool' must be in its space, with \[2, 3\] values"),
        ({"arm": shown["arm"]}, "must be a dictionary with keys"),
        (shown | {"arm": shown["arm"][:1]}, "'arm' must be a tuple of length 2"),
    ):
        with pytest.raises(ValueError, match=message):
            nested(wrong)
    none = {"bits": None, "force": None, "pair": None}
    for wrong, message in (
        (none | {"bits": [0, 3]}, "must contain only 0, 1 and 2"),
        (none | {"pair": (np.zeros(3), None)}, "leaves no valid action"),
        (none | {"force": [1]}, "must be None for a Box"),
        ({"bits": None}, "must have the entries"),
    ):
        with pytest.raises(ValueError, match=message):
            nested(shown, wrong)
    remembers = exported(tmp_path, *made(BOX, UNEVEN, memory="gru"), monkeypatch)
    with pytest.raises(ValueError, match=r"start an episode with act = policy\.start_episode"):
        remembers(np.zeros(3))
    act = remembers.start_episode()
    with pytest.raises(ValueError, match="reward must be None for the first observation"):
        act(np.zeros(3), 1.0)
    with pytest.raises(ValueError, match="and so must executed_action"):
        act(np.zeros(3), executed_action=np.zeros(2))
    act(np.zeros(3))
    with pytest.raises(ValueError, match="reward is missing"):
        act(np.zeros(3))
    for wrong in (np.zeros(3), [9.0, 9.0], ["up", "down"]):
        with pytest.raises(ValueError, match="executed_action must be an action: "):
            act(np.zeros(3), 1.0, executed_action=wrong)
    with pytest.raises(ValueError, match="previous_action must have shape"):
        remembers.step(np.zeros(3), np.zeros(3), 0.0, *remembers.initial_state())
    with pytest.raises(ValueError, match="state must have parts"):
        remembers.step(np.zeros(3), np.zeros(2), 0.0)


def test_errors_describe_values_that_are_not_numeric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrongs = [
        (None, r"None \(NoneType\)"),
        ("text", r"'text' \(str\)"),
        (["a", "b", "c"], r"\(3,\) of <U1"),
        ({"x": 1.0}, r"\{'x': 1.0\} \(dict\)"),
        ([[1.0], [2.0, 3.0]], r"\[\[1.0\], \[2.0, 3.0\]\] \(list\)"),
        (np.array([1.0, None, ()], object), r"array\(\[1.0, .*dtype=object\)"),
        (np.zeros((1, 2, 3)), r"\(1, 2, 3\)"),
        (10**400, r"1000+.*0 \(int\)"),
    ]
    flat = exported(tmp_path, *made(BOX, UNEVEN), monkeypatch)
    assert flat._quick is not None
    entries = exported(tmp_path, *made(NESTED, UNEVEN), monkeypatch)
    nested = NESTED.sample()
    for wrong, got in wrongs:
        with pytest.raises(ValueError, match=rf"have shape \[3\] or \[N, 3\]; got {got}"):
            flat(wrong)
        with pytest.raises(ValueError, match=rf"'flags' must have shape \(2, 2\); got {got}"):
            entries(nested | {"flags": wrong})
        with pytest.raises(ValueError, match=rf"scores must have shape \[..., 2\]; got {got}"):
            flat.decide(wrong)
    choices = exported(tmp_path, *made(BOX, spaces.MultiDiscrete([4, 2])), monkeypatch)
    for wrong, got in wrongs:
        given = (wrong, np.ones(2))
        if wrong is not None:
            with pytest.raises(ValueError, match=rf"mask\[0\] must have shape.*; got {got}"):
                choices(np.zeros(3), given)
    one = (np.ones(4), np.ones(2))
    for wrong in ([], np.array(one, object)[:0], np.array(None), [one, [one, one]]):
        with pytest.raises(ValueError, match="or a list with one mask per observation; got"):
            choices(np.zeros((2, 3)), wrong)
    with pytest.raises(ValueError, match=r"action_mask must have shape \(2, 6\); got \(3, 6\)"):
        choices(np.zeros((2, 3)), [one] * 3)
    with pytest.raises(ValueError, match=r"a tuple of 2 masks; got .*\(a list is a batch"):
        choices(np.zeros(3), one[:1])


def test_a_step_with_the_state_of_another_policy_raises_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstm = exported(tmp_path, *made(BOX, UNEVEN, memory="lstm"), monkeypatch)
    attention = exported(tmp_path, *made(BOX, UNEVEN, memory="attention"), monkeypatch)
    row, before, state = np.zeros(3), np.zeros(2), lstm.initial_state()
    for wrong in (
        [],
        state[:1],
        [*state, state[0]],
        attention.initial_state(),
        [part[0] for part in state],
        [None, None],
        ["a", {}],
    ):
        with pytest.raises(
            ValueError, match=r"parts of shapes \[.*as returned by .* previous step; got"
        ):
            lstm.step(row, before, 0.0, *wrong)
    for wrong in (None, "left", np.zeros(3), [None, {}]):
        with pytest.raises(
            ValueError, match=r"previous_action must have shape \(2,\), as returned"
        ):
            lstm.step(row, wrong, 0.0, *state)
    act = lstm.start_episode()
    act(row)
    for wrong in ("much", [1.0, 2.0], {}):
        with pytest.raises(ValueError, match="reward must be a number; got"):
            lstm.step(row, before, wrong, *state)
        with pytest.raises(ValueError, match="reward must be a number; got"):
            act(row, wrong)
    with pytest.raises(ValueError, match="observation must not be a batch; got 2 observations"):
        lstm.step(np.zeros((2, 3)), before, 0.0, *state)
    nan = [np.full_like(part, np.nan) for part in state]
    for name, given in (
        ("observation", (np.full(3, np.nan), before, 0.0, *state)),
        ("previous_action", (row, np.full(2, np.nan), 0.0, *state)),
        ("previous_reward", (row, before, np.nan, *state)),
        ("state_1", (row, before, 0.0, state[0], nan[1])),
    ):
        with pytest.raises(FloatingPointError, match=f"^{name} must be finite; got"):
            lstm.step(*given)
    with pytest.raises(FloatingPointError, match="previous_reward must be finite; got nan"):
        act(row, np.nan)
    # The failed calls did not change the state. A reward may be an array of one number.
    other = lstm.start_episode()
    other(row)
    np.testing.assert_array_equal(act(row, 1.0), other(row, np.ones(1)))


def test_a_policy_is_bound_to_the_first_thread_that_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = np.zeros(3)
    cases = (made(BOX, UNEVEN), made(BOX, spaces.Discrete(3)), made(BOX, UNEVEN, memory="gru"))
    with ThreadPoolExecutor(1) as worker:
        for case in cases:
            mine, its = (exported(tmp_path, *case, monkeypatch) for _ in range(2))
            begun = mine.start_episode()
            expected = begun(row)  # binds the policy to this thread
            assert_same(worker.submit(lambda its=its: its.start_episode()(row)).result(), expected)
            for call in (mine.start_episode(), *(() if mine.remembers else (mine, mine.scores))):
                with pytest.raises(
                    RuntimeError, match=r"first thread that called it.*create another"
                ):
                    worker.submit(call, row).result()
            with pytest.raises(RuntimeError, match="is bound to the first thread"):
                its.start_episode()(row)
            assert_same(mine.start_episode()(row), expected)


def test_a_folder_that_is_not_an_export_raises_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "policy.json"
    for folder in (tmp_path / "none", tmp_path, path):
        with pytest.raises(FileNotFoundError, match=r"policy\.json not found: pass the folder"):
            runner.Policy(folder)
    exported(tmp_path, *made(BOX, UNEVEN), monkeypatch)
    content = path.read_bytes()
    for wrong, message in (
        (b"", "is not JSON"),
        (content[: len(content) // 2], "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"{}", "has format None; this runner reads 1"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=rf"policy\.json {message}"):
            runner.Policy(tmp_path)

    def check(change: Callable[[dict[str, Any]], Any], message: str) -> None:
        about = json.loads(content)
        del about["sha256"], about["files"]
        change(about)
        write_document(tmp_path, about)
        with pytest.raises(ValueError, match=message):
            runner.Policy(tmp_path)

    for name, keys in document._KEYS.items():
        if name != "files":
            check(lambda about, name=name: about.pop(name), f"lacks {name}: export again")
        for key in keys if json.loads(content)[name] else ():
            check(lambda about, name=name, key=key: about[name].pop(key), f"lacks {name}.{key}:")
    check(lambda about: about.update(model=None), "lacks model: export again")
    check(lambda about: about.update(memory=[]), "lacks memory: export again")
    message = "has a model of format 'tflite'; this runner supports saved-model, litert, onnx, c"
    check(lambda about: about["model"].update(format="tflite"), message)


@pytest.mark.parametrize(
    ("kind", "package", "message"),
    [
        ("litert", "ai_edge_litert.interpreter", "needs LiteRT: pip install ai-edge-litert"),
        ("onnx", "onnxruntime", "needs ONNX Runtime: pip install onnxruntime"),
        ("saved-model", "tensorflow", "needs TensorFlow: pip install tensorflow"),
        ("c", "none", "needs a C compiler, and no-such-compiler was not found: install one"),
    ],
)
def test_a_missing_runtime_raises_an_error_that_names_it(
    kind: str, package: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, network, layout = made(BOX, UNEVEN)
    sides = (described(part(network.architecture)) for part in (inputs, outputs))
    model = {"format": kind, "precision": "float32", "files": []}
    write_document(
        tmp_path,
        description_of(
            network, layout, model | dict(zip(("inputs", "outputs"), sides, strict=True))
        ),
    )
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ImportError, match=f"this policy {message}"):
        runner.Policy(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "convert"),
    [
        pytest.param("litert", litert.convert, marks=needs_litert),
        pytest.param("onnx", onnx.convert, marks=needs_onnx),
    ],
)
def test_a_folder_with_a_non_ascii_name_is_read_in_any_locale(
    kind: str, convert: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "políticas"
    folder.mkdir()
    policy, network, layout = made(BOX, UNEVEN)
    model = {"format": kind, "precision": "float32"} | convert(network, "float32", folder)
    write_document(folder, description_of(network, layout, model))
    shutil.copytree(Path(runner.__file__).parent, folder / "runner", ignore=CACHES)
    code = "from runner import Policy; print(Policy()([0.5, -0.5, 1.0]).tolist())"
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=folder,
        env=os.environ | plain,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = policy(np.array([0.5, -0.5, 1.0]))
    np.testing.assert_allclose(json.loads(done.stdout), expected, atol=1e-5)


@needs_compiler
def test_replaying_works_from_any_directory_and_with_closed_streams(tmp_path: Path) -> None:
    policy, network, layout = made(BOX, UNEVEN)
    folder = tmp_path / "exports" / "robot"
    folder.mkdir(parents=True)
    bounds = {"low": UNEVEN.low.astype(np.float64), "high": UNEVEN.high.astype(np.float64)}
    model = {"format": "c", "precision": "float32"}
    model |= c.convert(network, "float32", folder, **bounds)
    rows = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    scores = policy.actor(rows)
    np.savez(folder / "examples.npz", observation=rows, action=policy(rows), scores=scores)
    shutil.copytree(Path(runner.__file__).parent, folder / "runner", ignore=CACHES)
    about = description_of(network, layout, model) | {"tolerance": {"largest": 1e-5}}
    write_document(folder, about)
    command = [sys.executable, "-B", "exports/robot/runner"]

    def replayed(**streams: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, text=True, **streams)

    done = replayed(capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("replayed 20 examples, differences: largest ")
    reader, writer = os.pipe()
    os.close(reader)
    done = replayed(stdout=writer, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closed, cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    write_document(folder, about | {"tolerance": {"largest": -1.0}})
    done = replayed(stdout=writer, stderr=writer)
    os.close(writer)
    assert done.returncode == 1


@needs_compiler
@pytest.mark.parametrize(
    ("action", "settings"),
    [(UNEVEN, {"memory": "gru"}), (ACTIONS, {"memory": "attention"}), (ACTIONS, NORMALIZED)],
)
def test_episodes_of_a_c_policy_match_the_policy(
    action: gymnasium.Space, settings: dict[str, Any], tmp_path: Path
) -> None:
    policy, network, layout = made(NESTED, action, **settings)
    ends = {"low": layout[1].low, "high": layout[1].high}
    bounds = {name: end.astype(np.float64) for name, end in ends.items()}
    model = {"format": "c", "precision": "float32"}
    model |= c.convert(network, "float32", tmp_path, **bounds)
    assert [spec["name"] for spec in model["inputs"]] == list(inputs(network.architecture))
    write_document(tmp_path, description_of(network, layout, model))
    found = runner.Policy(tmp_path)
    NESTED.seed(5)
    for _ in range(2):
        act, expected = found.start_episode(), policy.start_episode()
        first = NESTED.sample()
        assert_same(act(first), expected(first))
        for step in range(30):
            observation = NESTED.sample()
            assert_same(act(observation, step / 9), expected(observation, step / 9))


def test_changed_or_missing_files_raise_errors(
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
    with pytest.raises(ValueError, match="model has changed since the export"):
        runner.Policy(tmp_path)
    (tmp_path / "model").unlink()
    with pytest.raises(ValueError, match="model is missing"):
        runner.Policy(tmp_path)
    text = (tmp_path / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(text.replace("0.5", "0.6"))
    with pytest.raises(ValueError, match=r"policy\.json has changed since the export"):
        runner.Policy(tmp_path)
    for name in ("../model", "/etc/passwd", "saved_model/../../model"):
        with pytest.raises(ValueError, match="which is outside its folder"):
            runner.check_files(tmp_path, about, [name])
    (tmp_path / "policy.json").write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(ValueError, match="has format 2; this runner reads 1"):
        runner.Policy(tmp_path)


def test_int8_actions_match_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, floats, layout = made(BOX, UNEVEN, **NORMALIZED)
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    network = calibrated(floats, rows)
    policy = Policy(numpy_actor(network.architecture, network.weights), *layout, 7)

    def load(_: Path, model: dict[str, Any]) -> Any:
        def run(given: list[np.ndarray]) -> list[np.ndarray]:
            x = to_numbers(given[0], model["inputs"][0])
            found = quantized_tanh(network.outputs(NumpyOperations(), x))
            return [np.rint(found / TANH_SCALE).astype(np.int8)]

        return run

    scale, zero_point = grid(*network.ranges[0])
    model = {"format": "integers", "precision": "int8", "files": []}
    of_input = {"scale": float(scale), "zero_point": zero_point}
    model["inputs"] = [{"name": "observation", "shape": [1, 3], "dtype": "int8", **of_input}]
    of_output = {"scale": TANH_SCALE, "zero_point": 0}
    model["outputs"] = [{"name": "action", "shape": [1, 2], "dtype": "int8", **of_output}]
    monkeypatch.setitem(RUNTIMES, "integers", load)
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
def test_c_accepts_a_dict_of_vectors_for_a_state_embedding(tmp_path: Path) -> None:
    observation = spaces.Dict(near=BOX, far=spaces.Box(-9, 9, (2, 2)))
    policy, network, layout = made(observation, UNEVEN, encoder=EMBEDDING, **NORMALIZED)
    bounds = {"low": UNEVEN.low.astype(np.float64), "high": UNEVEN.high.astype(np.float64)}
    model = {"format": "c", "precision": "float32"}
    model |= c.convert(network, "float32", tmp_path, **bounds)
    write_document(tmp_path, description_of(network, layout, model))
    found = runner.Policy(tmp_path)
    observation.seed(0)
    for _ in range(20):
        each = observation.sample()
        assert_same(found(each), policy(each))


@needs_compiler
def test_int8_does_not_hide_a_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, floats, layout = made(BOX, UNEVEN, **NORMALIZED)
    rows = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    network = calibrated(floats, rows)
    bounds = {"low": UNEVEN.low.astype(np.float64), "high": UNEVEN.high.astype(np.float64)}
    model = {"format": "c", "precision": "int8"} | c.convert(network, "int8", tmp_path, **bounds)
    model["files"] = []
    write_document(tmp_path, description_of(network, layout, model))
    found = runner.Policy(tmp_path)
    rows[7, 1] = np.nan
    for act in (found, found.scores, found.start_episode()):
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


def test_inputs_are_quantized_to_the_grid() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=1000).astype(np.float32) * 3
    scale, zero_point = grid(-2.5, 4.0)
    spec = {"scale": float(scale), "zero_point": zero_point}
    found = to_integers(x, spec)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, integers(x, -2.5, 4.0))
    assert to_numbers(np.int8([zero_point, zero_point + 1]), spec).tolist() == [
        0.0,
        float(scale),
    ]


def test_differences_are_fractions_of_the_span_and_ignore_near_ties() -> None:
    about = {
        "action": {"continuous": 1, "choices": [2], "low": [-1, 0], "high": [3, 1]},
        "tolerance": {"largest": 0.2, "other_choices": 0.0, "margin": 0.1},
    }
    expected = np.array([[0.0, 0], [0.0, 1]])
    scores = np.array([[0.0, -0.65, -0.7], [0.0, -3.0, -0.1]])
    found = np.array([[1.0, 1], [0.0, 1]])
    measured = runner.differences(about, found, expected, scores)
    assert measured["largest"] == 0.25  # a difference of 1 in a span of 4
    assert measured["mean"] == 0.125
    assert measured["other_choices"] == 0.0
    assert runner.violations(measured, about["tolerance"]) == ["largest is 0.25 (limit 0.2)"]
    found[1, 1] = 0
    assert runner.differences(about, found, expected, scores)["other_choices"] == 0.5
    found[0, 0] = np.nan
    measured = runner.differences(about, found, expected, scores)
    assert len(runner.violations(measured, about["tolerance"])) == 2  # NaN exceeds every limit
    assert runner.violations({"mean": 0.1, "other": 9.0}, {"mean": 0.1, "largest": 0.0}) == []


def test_one_float32_step_is_no_difference_if_bounds_are_far_from_0() -> None:
    about = {
        "action": {"continuous": 1, "choices": [], "low": [1000.0], "high": [1001.0]},
        "tolerance": {"largest": 1e-5},
    }
    expected = np.array([[1000.5]], np.float32)
    beside, beyond = np.nextafter(expected, np.float32(2e3)), expected + np.float32(2e-4)
    assert runner.differences(about, beside, expected, expected)["largest"] == 0.0
    assert runner.differences(about, beyond, expected, expected)["largest"] > 1e-4
    half = np.array([[1000.5]], np.float16)  # float16 has steps of 0.5 there
    assert runner.differences(about, half + np.float16(0.5), half, half)["largest"] == 0.0
    assert runner.differences(about, half + np.float16(1.0), half, half)["largest"] == 1.0
