"""The runner repeats the preprocessing of a run's wrappers, and receives raw observations."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation

from eagerly import TD3, TD3Config
from eagerly.environments.factory import environment_maker
from eagerly.environments.preprocessing import Preprocessing
from eagerly.export.examples import MAX_STEPS
from eagerly.export.exporting import export_policy
from eagerly.export.played_episodes import EpisodeRecorder
from eagerly.export.raw_observations import RawObservations, repeated
from eagerly.export.verification import runner_of
from eagerly.wrappers import Resize
from tests import toys
from tests.eagerly.export.here import work_here
from tests.small_runs import train_in

toys.register()
BOX = gymnasium.spaces.Box(-1.0, 1.0, (2, 3))
STACK = "gymnasium.wrappers:FrameStackObservation(stack_size=3)"
GRAY = "gymnasium.wrappers:GrayscaleObservation"
RESIZE = "eagerly.wrappers:Resize(height=6, width=5)"
LIMIT = "eagerly.wrappers:RateLimit(change=1)"
DELAY = "gymnasium.wrappers:DelayObservation(delay=2)"
ACTIONS = "eagerly.wrappers:PreviousActions()"


@pytest.mark.parametrize(
    ("wrappers", "space", "indices"),
    [
        ([GRAY, RESIZE, STACK], BOX, (0, 1, 2)),
        ([ACTIONS, LIMIT, STACK, LIMIT], BOX, (2,)),
        ([RESIZE, LIMIT, GRAY], BOX, (0, 2)),
        ([STACK, ACTIONS], BOX, ()),
        ([GRAY, DELAY, STACK, LIMIT], BOX, (2,)),
        ([STACK, DELAY], BOX, ()),
        ([STACK, "factory tests.toys:Wrap"], BOX, ()),
        ([STACK[:-1] + ", padding_type=(0,))"], BOX, ()),
        ([STACK[:-1] + ", padding_type='zero')"], BOX, (0,)),
        ([STACK[:-1] + ", padding_type='zero')"], gymnasium.spaces.Box(1.0, 2.0, (3, 2)), ()),
        ([STACK], gymnasium.spaces.Dict(a=BOX), ()),
        ([], BOX, ()),
    ],
)
def test_preprocessing_is_repeated_up_to_another_change_of_observations(
    wrappers: list[str], space: gymnasium.Space, indices: tuple[int, ...]
) -> None:
    assert repeated(wrappers, space).indices == indices


def test_raw_observations_are_inside_the_repeated_wrappers() -> None:
    wrappers = [ACTIONS, LIMIT, STACK, LIMIT]
    make = environment_maker("Pendulum-v1", wrappers=wrappers)
    found = repeated(wrappers, BOX)
    env = found.recorded(make)()
    env.reset(seed=0)
    seen = env.step(np.array([0.5], np.float32))[0]
    layer = RawObservations.of(env)
    assert layer is not None
    assert layer.last.tolist() == seen[-1].tolist()
    names = [each.name for each in found.raw(make).wrappers]
    assert names == [ACTIONS, LIMIT, LIMIT]
    assert repeated([], BOX).recorded(make) is make


class Photo(toys.Counting):
    """Observes an RGB image of noise."""

    observation_space = gymnasium.spaces.Box(0, 255, (9, 8, 3), np.uint8)

    def _observation(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (9, 8, 3), np.uint8)


@pytest.mark.parametrize("padding", ["reset", "zero"])
@pytest.mark.parametrize("keep_dim", [False, True])
def test_preprocessing_equals_the_wrappers(padding: str, keep_dim: bool) -> None:
    env: gymnasium.Env = Resize(Photo(length=5), 6, 5)
    env = FrameStackObservation(GrayscaleObservation(env, keep_dim), 3, padding_type=padding)
    raw = Photo(length=5)
    steps: list[dict[str, Any]] = [
        {"kind": "resize", "height": 6, "width": 5},
        {"kind": "grayscale", "keep_dim": keep_dim},
        {"kind": "stack", "size": 3, "padding": padding},
    ]
    for seed in range(2):
        preprocess = Preprocessing(steps)
        expected, found = env.reset(seed=seed)[0], preprocess(raw.reset(seed=seed)[0])
        for _ in range(5):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
            action = env.action_space.sample()
            expected, found = env.step(action)[0], preprocess(raw.step(action)[0])


def test_an_export_receives_raw_observations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_here(monkeypatch)
    wrapper = [LIMIT, STACK]
    make = environment_maker("Long-v0", wrappers=wrapper)
    agent = TD3(make(), mode="eager", hidden_sizes=(4,))
    exported = export_policy(
        agent, env="Long-v0", wrapper=wrapper, format="c", out=tmp_path / "x", episodes=1
    )
    about = json.loads((exported.path / "policy.json").read_text())
    assert about["run"]["wrappers"] == wrapper
    assert about["preprocessing"] == {
        "shape": [2],
        "dtype": "float64",
        "steps": [{"kind": "stack", "size": 3, "padding": "reset"}],
    }
    assert exported.measured["examples"] >= 300
    returns = exported.measured["returns"]
    assert returns["exported"] == returns["policy"]
    card = (exported.path / "MODEL_CARD.md").read_text()
    assert "receives: shape (2,), float64. The runner preprocesses them: stack (size 3, " in card
    assert (
        f"the innermost first: `{LIMIT}`, `{STACK}`. The export contains no other effects" in card
    )
    assert "act = policy.start_episode()  # for each episode\n" in card
    runner = runner_of(exported.path)
    policy, original = runner.Policy(exported.path), agent.as_policy()
    act, raw = policy.start_episode(), np.array([[5.0, 1.0], [6.0, 2.0]])
    for stacked in (raw[[0, 0, 0]], raw[[0, 0, 1]]):
        np.testing.assert_allclose(act(stacked[-1]), original(stacked), rtol=1e-5)
    for call in (policy, policy.scores):
        with pytest.raises(
            ValueError, match=r"preprocesses .*: start one with act = policy.start_episode\(\)"
        ):
            call(raw[0])
    with pytest.raises(ValueError, match=r"observation must have shape \(2,\); got \(3,\)"):
        act([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="observation must not be a batch; got 2 observations"):
        act(raw)
    with pytest.raises(FloatingPointError, match="observation must be finite"):
        act([np.nan, 1.0])
    # The rejected observation is not in the stack.
    np.testing.assert_allclose(act(raw[1]), original(raw[[0, 1, 1]]), rtol=1e-5)
    with np.load(exported.path / "examples.npz") as file:
        examples = dict(file)
    examples["raw_observation"][7] += 1.0
    with pytest.raises(ValueError, match="the preprocessing of example 7 differs"):
        runner.replay(policy, examples)


def test_large_raw_observations_yield_fewer_examples() -> None:
    space = gymnasium.spaces.Box(0, 255, (1000, 1000, 3), np.uint8)
    large = RawObservations(
        gymnasium.wrappers.TransformObservation(
            gymnasium.make("Long-v0"), lambda _: np.zeros(space.shape, np.uint8), space
        )
    )
    policy = SimpleNamespace(parts=None)
    layout = TD3Config().spaces(space, large.action_space)
    assert EpisodeRecorder(policy, *layout, large).most == 11
    assert EpisodeRecorder(policy, *layout, RawObservations(toys.Counting())).most == MAX_STEPS
    assert EpisodeRecorder(policy, *layout).most == 1000


@pytest.mark.long
def test_a_run_with_local_wrappers_is_exported_by_child_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_rewards.py").write_text(
        "import gymnasium\n"
        "def more(env, by):\n"
        "    return gymnasium.wrappers.TransformReward(env, lambda reward: reward + by)\n"
    )
    monkeypatch.chdir(tmp_path)
    wrapper = ["my_rewards:more(by=1)", LIMIT, STACK]
    train_in(tmp_path / "run", env="Pendulum-v1", wrapper=wrapper)
    exported = export_policy(tmp_path / "run", format="c", out=tmp_path / "x", episodes=2)
    returns = exported.measured["returns"]
    assert returns["exported"]["returns"] == pytest.approx(returns["policy"]["returns"], rel=0.01)
    assert json.loads((exported.path / "policy.json").read_text())["preprocessing"]["shape"] == [3]
