"""Runs in hardware: defaults, one instance, compilation before the first reset, no stale state."""

from __future__ import annotations

import gc
import os
import platform
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly import RunError, compile_programs, open_run
from eagerly.agents.agent import Agent
from eagerly.agents.td3 import TD3
from eagerly.buffers import Transition
from eagerly.environments.factory import environment_maker
from eagerly.environments.watchdog import Watchdog
from eagerly.errors import InterruptedRolloutError
from eagerly.policies.behavior import BehaviorPolicy
from eagerly.storage.digests import digests
from eagerly.storage.manifest import published
from eagerly.training import assembly
from eagerly.training.callbacks import Callback
from eagerly.training.real_time import _constant_buffer, responsive
from eagerly.workers import rollout_queue
from eagerly.workers.environment_groups import Environments
from tests.eagerly.training import test_algorithm
from tests.small_runs import TrainRun, scalars

# The settings that `hardware` implies, apart from those of the rounds.
ALONE = {
    "check_env": False,
    "restore_episodes": "no",
    "evaluations": "none",
    "policy_checkpoints": False,
}
ROUNDS = {"policy_lag": 1, "rollout_steps": 100, "updates_per_call": 50}


def settings_of(tmp_path: Path, agent: str = "td3", **given: Any) -> dict[str, Any]:
    run = open_run(tmp_path / "run", agent, {"env": "Pendulum-v1", "hardware": True} | given)
    return run.settings()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ALONE | ROUNDS),
        ({"agent": "td7"}, ALONE | ROUNDS),
        ({"rollout_steps": 20}, ALONE | ROUNDS | {"rollout_steps": 20, "updates_per_call": 20}),
        ({"updates_per_call": 10}, ALONE | ROUNDS | {"updates_per_call": 10}),
        (
            {"policy_lag": 0},
            ALONE | {"policy_lag": 0, "rollout_steps": 1, "updates_per_call": 1},
        ),
        (
            {"evaluations": "shared"},
            ALONE | {"evaluations": "shared", "policy_lag": 0, "updates_per_call": 1},
        ),
    ],
)
def test_hardware_changes_the_defaults_of_a_new_run(
    tmp_path: Path, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    found = settings_of(tmp_path, **given)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_envs", 2, "num_envs must be 1 with hardware"),
        ("collectors", "processes", "collectors must be here with hardware"),
        ("check_env", True, "check_env must be False with hardware"),
        ("restore_episodes", "yes", "restore_episodes must be no with hardware"),
        ("evaluations", "separate", "evaluations must be none or shared with hardware"),
        ("video_every_steps", 100, "with hardware, only one exists: omit video_every_steps$"),
        ("rollout_steps", "many", "rollout_steps must be of type int"),
    ],
)
def test_settings_that_conflict_with_hardware_are_errors(
    tmp_path: Path, name: str, value: Any, expected: str
) -> None:
    with pytest.raises(RunError, match=expected):
        settings_of(tmp_path, **{name: value})


class Single(gymnasium.Env[np.ndarray, np.ndarray]):
    """A machine of which only one instance can exist; episodes have 40 steps."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    events: list[str]  # of all instances, in order

    def __init__(self) -> None:
        self.events.append("created")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.events.append("reset")
        self.count = 0
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        self.count += 1
        return 0.5 * action, float(action[0]), False, self.count == 40, {}

    def close(self) -> None:
        self.events.append("closed")


@pytest.mark.parametrize(
    ("agent", "most_ahead"),
    [
        ("td3", 1),  # waits for updates
        pytest.param(f"{test_algorithm.__name__}:WholeEpisodes", 10, marks=pytest.mark.long),
    ],
)
def test_a_run_in_hardware_equals_the_same_run_without_and_uses_one_instance(
    agent: str,
    most_ahead: int,
    train: TrainRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Single, "events", [], raising=False)
    monkeypatch.setattr(rollout_queue, "_MOST_AHEAD", most_ahead)
    compiled = assembly.compile_programs
    monkeypatch.setattr(
        assembly, "compile_programs", lambda *a: (Single.events.append("compiled"), compiled(*a))
    )
    settings: dict[str, Any] = {"env": Single, "steps": 160, "replay_ratio": 0.02}
    settings |= {"policy_lag": 1, "rollout_steps": 20, "updates_per_call": 1, "agent": agent}
    real = train("real", **settings, hardware=True, evaluations="none")
    assert Single.events == ["created", "compiled", *["reset"] * 5, "closed"]
    other = train("other", **settings, evaluations="none", check_env=False, restore_episodes="no")
    assert digests(tmp_path / "real") == digests(tmp_path / "other")
    assert real.updates == other.updates > 0
    assert (real.config.hardware, other.config.hardware) == (True, False)
    assert other.summaries.timing is None
    found = re.search(r"of (\d+) in this session", str(real.summaries.timing))
    assert found is not None
    assert 160 <= int(found[1]) <= 180  # with the round in flight
    assert {t for t, _ in scalars(tmp_path / "real")} == {t for t, _ in scalars(tmp_path / "other")}


def variables(agent: Agent) -> dict[str, bytes]:
    groups = agent.checkpoint.groups.items()
    found = {f"{g}/{path}": v.numpy().tobytes() for g, own in groups for path, v in own.items()}
    return found | {"reward_scale": agent.rewards.scale.numpy().tobytes()}


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "eager", "normalize_observations": True, "normalize_rewards": True},
        pytest.param({"mode": "xla", "sampling": "prioritized"}, marks=pytest.mark.long),
        pytest.param({"mode": "graph", "memory": "gru"}, marks=pytest.mark.long),
        pytest.param({"mode": "graph", "policy_delay": 3}, marks=pytest.mark.long),
    ],
)
def test_compiling_programs_changes_nothing_and_leaves_nothing_to_compile(
    settings: dict[str, Any],
) -> None:
    spaces = Single.observation_space, Single.action_space
    more = {"hidden_sizes": (8,), "policy_delay": 1} | settings
    if "memory" not in settings:
        more["batch_size"] = 8
    agent = TD3(*spaces, **more)
    before, state = variables(agent), str(agent.state())
    compile_programs(agent, 2, updates=4)
    assert (variables(agent), str(agent.state()), agent.updates) == (before, state, 0)
    programs, other = traces(agent), TD3(*spaces, **more)
    for each in (agent, other):
        buffer = filled(each)
        for _ in range(3):
            each.train(buffer, 2)
    assert variables(agent) == variables(other)
    assert traces(agent) == programs


def traces(agent: Agent) -> dict[Any, int]:
    """The number of traces of each program; 1 in eager mode."""
    calls = agent.learner._calls.items()
    return {
        what: getattr(call, "experimental_get_tracing_count", lambda: 1)() for what, call in calls
    }


def filled(agent: Agent) -> Any:
    """A buffer with two episodes of 30 random actions."""
    buffer, behavior, observation = agent.replay_buffer(100), agent.behavior(), np.float32([[0.3]])
    for number in range(60):
        reward, ended = np.array([number / 10]), np.array([number % 30 == 29])
        action = behavior.act(observation, uniform=True)
        behavior.observe(reward, ended)
        following = np.float32(0.5) * action
        buffer.add(Transition(observation, action, reward, np.array([0.9]), following), ended)
        observation = following
    return buffer


def test_the_interpreter_switches_threads_often_only_within_the_context() -> None:
    before, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    with responsive():
        assert sys.getswitchinterval() < before
        assert gc.get_freeze_count() > frozen
    assert (sys.getswitchinterval(), gc.get_freeze_count()) == (before, 0)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_memory_that_was_freed_before_is_returned_at_once() -> None:
    # The objects that stay are between the others, so that freeing does not shrink the heap.
    blocks = [bytes(20_000) for _ in range(4000)]
    del blocks[::2], blocks[1::2]
    before = resident_bytes()
    with responsive():
        assert resident_bytes() < before - 10_000_000
    assert len(blocks) == 1000


class Fallen(Single):
    """After the first episode, `reset` waits until the environment is closed."""

    closing: threading.Event
    waiting: threading.Event

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if "reset" in self.events:
            self.waiting.set()
            self.closing.wait()
            raise RuntimeError("closed while a person should have reset it")
        return super().reset(seed=seed, options=options)

    def close(self) -> None:
        self.closing.set()


def test_a_stop_while_the_environment_waits_for_its_reset_saves_the_last_round(
    train: TrainRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("closing", "waiting"):
        monkeypatch.setattr(Fallen, name, threading.Event(), raising=False)
    monkeypatch.setattr(Single, "events", [], raising=False)

    class Stopping(Callback):
        """Requests a stop as soon as the environment waits."""

        def on_begin(self, trainer: Any) -> None:
            def stop() -> None:
                Fallen.waiting.wait()
                trainer.stop("a person has left")

            threading.Thread(target=stop, daemon=True).start()

    settings: dict[str, Any] = {"env": Fallen, "replay_ratio": 0.05, "rollout_steps": 16}
    settings |= {"evaluations": "none"}
    stopped = train("run", **settings, hardware=True, steps=160, callbacks=[Stopping()])
    # The episode of 40 steps ends in the third round of 16 steps.
    assert (stopped.steps, stopped.stop_reason) == (32, "a person has left")
    assert published(tmp_path / "run")[-1].steps == 32


class Falling(Fallen):
    """Every step ends an episode, after `go` is set."""

    stepping: threading.Event
    go: threading.Event

    def step(self, action: np.ndarray) -> Any:
        self.stepping.set()
        self.go.wait()
        return 0.5 * action, 0.0, True, False, {}


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> Iterator[Environments]:
    """Returns environments that have been started."""
    for name in ("closing", "waiting", "stepping", "go"):
        monkeypatch.setattr(Falling, name, threading.Event(), raising=False)
    monkeypatch.setattr(Single, "events", [], raising=False)
    with closing(Watchdog(0.0, str, limits_resets=False)) as watchdog:
        environments = Environments(environment_maker(Falling), 1, 0, watchdog=watchdog)
        spaces = environments.observation_space, environments.action_space
        agent = TD3(*spaces, hidden_sizes=(8,), mode="eager")
        layouts = agent.observations, agent.actions
        environments.set_policies([BehaviorPolicy(None, agent.exploration(0), *layouts)])
        environments.start()
        yield environments
        environments.close()


def test_closing_ends_a_reset_that_begins_meanwhile(
    falling: Environments, monkeypatch: pytest.MonkeyPatch
) -> None:
    falling.begin_rollout(None, 2, 2)
    Falling.stepping.wait()
    workers, interrupt = falling._collectors, falling._collectors.interrupt
    monkeypatch.setattr(workers, "interrupt", lambda: (interrupt(), Falling.go.set())[0])
    falling.close()
    assert Falling.waiting.is_set()


def test_a_stop_before_a_rollout_begins_ends_the_wait_for_its_reset(falling: Environments) -> None:
    falling.expect_stop()
    falling.begin_rollout(None, 2, 2)
    Falling.go.set()
    with pytest.raises(InterruptedRolloutError):
        falling.finish_rollout()


def test_the_steps_for_compiling_fit_into_the_buffer_with_many_frames() -> None:
    pictures = gymnasium.spaces.Box(0, 255, (20, 7, 8), np.uint8)
    agent = TD3(pictures, Single.action_space, hidden_sizes=(8,), mode="eager")
    actions = np.zeros((1, agent.actions.size), np.float32)
    assert len(_constant_buffer(agent, actions)) > 1


def test_a_call_that_does_not_fit_the_agent_is_reported() -> None:
    spaces = Single.observation_space, Single.action_space
    agent = TD3(*spaces, hidden_sizes=(8,), mode="eager")
    agent.learner._copied = [SimpleNamespace(copy_every=250)]  # as in TD7
    with pytest.raises(
        RunError,
        match=r"--updates-per-call: .* must divide 250.*use 10 .*is --rollout-steps, at most",
    ):
        compile_programs(agent, 20)
