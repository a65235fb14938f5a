"""Counts TensorFlow operations and Python calls, to detect slowdowns on any machine."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import pywrap_tfe

from eagerly import Trainer, open_run
from tests.helpers import filled_buffer, small_agent
from tests.small_runs import SMALL

ROOT = Path(__file__).parents[3]
# Python requests every TensorFlow operation through one of these functions.
DOORS = ("TFE_Py_FastPathExecute", "TFE_Py_Execute", "TFE_Py_ExecuteCancelable")


class Calls:
    """Counts the operations that Python requests from TensorFlow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = Counter[str]()
        for door in DOORS:
            monkeypatch.setattr(pywrap_tfe, door, self._counted(door, getattr(pywrap_tfe, door)))

    def _counted(self, name: str, door: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.count[name] += 1
            return door(*args, **kwargs)

        return counted

    def of(self, call: Any) -> int:
        """Returns the number of operations in a call."""
        self.count.clear()
        call()
        return self.count.total()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(monkeypatch)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trainer]:
    """A run after two calls of its train body. All tests share it, so the body is compiled once."""
    settings = SMALL | {"mode": "xla", "steps": 10_000, "evaluate_every_steps": 10_000}
    settings |= {"warmup_steps": 100}
    settings |= {"updates_per_call": 10, "replay_ratio": 1.0, "hidden_sizes": (8,)}
    with Trainer(open_run(tmp_path_factory.mktemp("running") / "run", "td3", settings)) as trainer:
        for _ in range(100 + 2 * 10):
            trainer._collect()
            if trainer._is_call_due:
                trainer._learn()
        assert trainer.updates == 20
        yield trainer


@pytest.fixture
def trainer(running: Trainer) -> Trainer:
    """The shared run, right after a call of its train body. The next call follows in ten steps."""
    while not running._is_call_due:
        running._collect()
    running._learn()
    return running


def test_the_counter_sees_operations_and_compiled_calls(calls: Calls) -> None:
    one = tf.constant(1.0)
    assert calls.of(lambda: one + one) == 1
    compiled = tf.function(lambda: one + one)
    compiled()
    assert calls.of(compiled) == 1


def test_an_environment_step_runs_no_tensorflow_operation(trainer: Trainer, calls: Calls) -> None:
    assert calls.of(lambda: [trainer._collect() for _ in range(9)]) == 0


def test_a_train_body_call_is_a_single_operation(trainer: Trainer, calls: Calls) -> None:
    for _ in range(10):
        trainer._collect()
    assert trainer._is_call_due
    # The compiled call is the only operation: passing rows and reading results need none.
    updates = trainer.updates
    assert calls.of(trainer._learn) == 1
    assert trainer.updates == updates + 10
    # Acting with the new weights needs no operation either.
    assert calls.of(trainer._collect) == 0


@lru_cache
def traced(delay: int) -> tuple[Any, Any]:
    """Returns an agent after several calls in graph mode, and its buffer."""
    agent, buffer = small_agent("td3", mode="graph", policy_delay=delay), filled_buffer()
    for _ in range(12):
        agent.train(buffer, 10)
    return agent, buffer


@pytest.mark.parametrize(
    ("delay", "programs"),
    # With delay 3, ten updates consist of two or three whole periods and some single updates.
    [(1, 1), (2, 1), pytest.param(3, 4, marks=pytest.mark.long)],
)
def test_the_train_body_is_traced_once_for_whole_periods_and_once_for_each_phase(
    delay: int, programs: int
) -> None:
    agent, _ = traced(delay)
    calls = agent.learner._calls.values()
    assert sum(call.experimental_get_tracing_count() for call in calls) == programs


def test_many_updates_are_one_compiled_call(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = trainer.agent.learner._calls
    while not calls:
        trainer._round()
    ((key, call),) = calls.items()
    made = []

    def counted(*args: Any) -> Any:
        made.append(key[1] * key[2])
        return call(*args)

    monkeypatch.setitem(calls, key, counted)
    before = trainer.updates
    for _ in range(45):
        trainer._collect()
        while trainer._is_call_due:
            trainer._learn()
    assert made == [10] * ((trainer.updates - before) // 10)
    assert len(made) >= 4
    assert calls.keys() == {key}


def test_rows_are_gathered_into_one_array_that_tensorflow_reads_without_copying() -> None:
    agent, buffer = small_agent("td3", mode="graph"), filled_buffer()
    first = buffer.sample_rows(3, 8)
    again = buffer.sample_rows(3, 8)
    assert first.ctypes.data == again.ctypes.data
    assert again.ctypes.data % 64 == 0
    tensor = agent.inputs.transferred(again)
    assert np.asarray(memoryview(tensor)).ctypes.data == again.ctypes.data


def test_the_default_agents_compiled_body_has_no_branch() -> None:
    # A branch copies every variable that it could change.
    agent, buffer = traced(small_agent("td3").config.policy_delay)
    rows = tf.TensorSpec((10, agent.config.batch_size, buffer.layout.width), tf.float32)
    (call,) = agent.learner._calls.values()
    graph = call.get_concrete_function([rows], tf.TensorSpec((2,), tf.int64)).graph
    functions = graph.as_graph_def().library.function
    operations = {node.op for function in functions for node in function.node_def}
    operations |= {operation.type for operation in graph.get_operations()}
    assert not operations & {"If", "StatelessIf", "Case", "StatelessCase"}
    assert operations & {"While", "StatelessWhile"}


def _in_package(frame: FrameType) -> str:
    """Returns the file of a frame if it is part of the package, else ""."""
    path = Path(frame.f_code.co_filename).resolve()
    part = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return part if part.startswith(("agents/", "buffers/", "eagerly/", "networks/")) else ""


def _frames(function: Callable[[], object]) -> list[tuple[int, str, str]]:
    """Returns depth, name and file of each package call that a function makes, in order."""
    found: list[tuple[int, str, str]] = []

    def watch(frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not (path := _in_package(frame)):
            return
        depth, outer = 0, frame.f_back
        while outer is not None:
            depth += bool(_in_package(outer))
            outer = outer.f_back
        found.append((depth, frame.f_code.co_qualname, path))

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return [(depth - found[0][0], name, path) for depth, name, path in found]


def test_the_documentation_shows_every_call_of_an_environment_step(trainer: Trainer) -> None:
    # The measured round must neither complete an earlier round nor load new weights.
    for _ in range(2):
        trainer._round()
    frames = _frames(trainer._round)
    lines = [f"{'  ' * depth + name:52}{path}" for depth, name, path in frames]
    text = (ROOT / "docs" / "train-step.md").read_text(encoding="utf-8")
    assert lines == text[text.index("```\nTrainer._round") + 4 :].split("\n```")[0].splitlines()
    files = {path for _, _, path in frames}
    assert f"{len(frames)} calls in {len(files)} files" in text


def test_the_documentation_shows_the_way_to_a_gradient_step() -> None:
    agent, buffer = small_agent("td3", mode="eager", policy_delay=1), filled_buffer()
    made = iter([(name, path) for _, name, path in _frames(lambda: agent.train(buffer, 1))])
    text = (ROOT / "docs" / "train-step.md").read_text(encoding="utf-8")
    shown = text[text.index("```\nTrainer._learn") + 4 :].split("\n```")[0].splitlines()
    for name, path in (line.split() for line in shown[1:]):  # the calls are made in this order
        assert (name, path) in made, name
