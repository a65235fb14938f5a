"""A custom loop that is restored from its checkpoints continues exactly."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from eagerly import TD3, LoopCheckpoints, RunError, Transition
from eagerly.errors import UsageError
from eagerly.replay import Saved
from eagerly.storage import checkpoint_writer
from eagerly.storage.event_log import EventLog
from eagerly.storage.lock import RunLock
from tests.helpers import equal_weights, random_transitions, shared_agent, weights_of

COUNT = 2


class Plants(Saved):
    """Two environments whose observations are their last actions and a counter."""

    _saved = ("_rows", "_time")

    def __init__(self) -> None:
        self._rows, self._time = np.zeros((COUNT, 4), np.float32), 0

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        self._time += 1
        before = self._rows
        self._rows = np.full((COUNT, 4), self._time % 5, np.float32)
        self._rows[:, :2] += actions[:, :2]
        ended = np.array([self._time % 4 == 0, self._time % 7 == 0])
        return before, self._rows, ended


class Loop:
    """A custom training loop, with its components and checkpoints."""

    def __init__(self, path: Path, name: str = "td3", keep: int = 2, **settings: Any) -> None:
        self.agent = shared_agent(name, **settings)
        self.buffer = self.agent.replay_buffer(30, seed=1)
        self.behavior, self.accumulator = self.agent.behavior(), self.agent.accumulator()
        self.plants, self.steps = Plants(), 0
        parts = {"behavior": self.behavior, "accumulator": self.accumulator, "plants": self.plants}
        self.checkpoints = LoopCheckpoints(path, self.agent, self.buffer, keep=keep, **parts)

    def restored(self, *began: bool) -> Loop:
        mask = np.array(began) if began else np.zeros(COUNT, bool)
        self.steps = self.checkpoints.restore(mask)
        return self

    def run(self, until: int) -> Loop:
        while self.steps < until:
            actions = self.behavior.act(self.plants._rows)
            before, after, ended = self.plants.step(actions)
            rewards, discounts = before.sum(axis=1), np.full(COUNT, 0.9)
            self.behavior.observe(rewards, ended)
            step = Transition(before, actions, rewards, discounts, after)
            transitions, ends = self.accumulator.accumulate(step, ended)
            if len(ends):
                self.buffer.add(transitions, ends)
            self.steps += COUNT
            if self.steps % 20 == 0:
                self.agent.train(self.buffer, 1)
        return self

    def saved(self) -> Loop:
        self.checkpoints.save(self.steps)
        return self

    def close(self) -> None:
        self.checkpoints.close()


def rows_of(loop: Loop) -> bytes:
    return loop.buffer.rows(loop.buffer.oldest, loop.buffer.added).tobytes()


LOOPS = {
    "n-step returns, correlated noise, normalization": {
        "n_step": 3,
        "exploration": "ornstein_uhlenbeck",
        "normalize_observations": True,
        "normalize_rewards": True,
    },
    "prioritized replay": {"sampling": "prioritized"},
    "memory": {"memory": "gru", "memory_units": 4, "sequence_length": 3},
}


@pytest.mark.parametrize("settings", LOOPS.values(), ids=list(LOOPS))
def test_a_restored_loop_continues_exactly(settings: Mapping[str, Any], tmp_path: Path) -> None:
    uninterrupted = Loop(tmp_path / "other", **settings).run(80)
    weights = weights_of(uninterrupted.agent)
    loop = Loop(tmp_path, **settings).restored().run(26).saved().run(50).saved().run(60)
    loop.close()
    loop = Loop(tmp_path, **settings).restored()
    assert loop.steps == 50
    loop.run(80)
    assert equal_weights(weights, weights_of(loop.agent))
    assert rows_of(uninterrupted) == rows_of(loop)
    assert np.array_equal(uninterrupted.plants._rows, loop.plants._rows)


def test_only_new_rows_are_written(tmp_path: Path) -> None:
    loop = Loop(tmp_path, keep=1).run(20).saved().run(26).saved().saved()  # the last one is empty
    files = sorted(path.name for path in (tmp_path / "replay").iterdir())
    assert files == ["000000000000-000000000020.npy", "000000000020-000000000026.npy"]
    loop.close()
    assert Loop(tmp_path).restored().saved().steps == 26


def test_episodes_that_begin_again_keep_nothing_pending(tmp_path: Path) -> None:
    settings = {"n_step": 3, "exploration": "ornstein_uhlenbeck"}
    loop = Loop(tmp_path, **settings).run(10).saved()
    assert loop.accumulator.state()["ages"].any()
    assert loop.behavior.state()["exploration"]["process"].any()
    loop.close()
    loop = Loop(tmp_path, **settings).restored(True, True)
    assert loop.accumulator.state() == {}
    assert not loop.behavior.state()["exploration"]["process"].any()
    assert loop.behavior.exploration.step == 5


def test_rows_of_episodes_that_begin_again_are_not_continued(tmp_path: Path) -> None:
    Loop(tmp_path, **LOOPS["memory"]).run(10).saved().close()
    loop = Loop(tmp_path, **LOOPS["memory"]).restored(False, True)
    first, second = loop.buffer.state()["last"].tolist()
    assert first >= 0 > second


def test_without_a_checkpoint_no_points_are_removed(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.add(5)
    log.sync()
    (path,) = tmp_path.glob("events*")
    before = path.read_bytes()
    assert Loop(tmp_path).restored().steps == 0
    assert path.read_bytes() == before


def test_a_save_waits_for_a_training_call_and_checks_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(tmp_path).run(10)
    with loop.agent.lock:
        thread = threading.Thread(target=loop.saved)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        assert not list(tmp_path.glob("checkpoints/*"))
    thread.join()
    assert len(list(tmp_path.glob("checkpoints/*"))) == 1

    def taken(_: RunLock) -> None:
        raise OSError("another process is now training in this run directory")

    monkeypatch.setattr(RunLock, "check", taken)
    with pytest.raises(OSError, match="another process"):
        loop.run(20).saved()
    assert len(list(tmp_path.glob("checkpoints/*"))) == 1


def test_an_episode_saved_between_act_and_observe_cannot_continue(tmp_path: Path) -> None:
    loop = Loop(tmp_path).run(10)
    loop.behavior.act(loop.plants._rows)
    loop.saved().close()
    loop = Loop(tmp_path)
    with pytest.raises(UsageError, match="saved between act and observe"):
        loop.restored(True, False)
    assert loop.restored(True, True).steps == 10


def test_a_damaged_checkpoint_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop(tmp_path).run(10).saved().run(20).saved()
    loop.close()
    newest = max((tmp_path / "checkpoints").iterdir())
    (newest / "networks.index").write_bytes(b"")
    assert Loop(tmp_path).restored().steps == 10
    assert "is damaged" in caplog.text
    assert not newest.exists()


def test_rows_added_by_another_thread_during_a_save_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(tmp_path).run(10).saved().run(20)
    flattened = checkpoint_writer.flatten_state

    def meanwhile(state: Any) -> Any:
        thread = threading.Thread(target=loop.buffer.add, args=(random_transitions(1),))
        thread.start()
        thread.join()
        return flattened(state)

    monkeypatch.setattr(checkpoint_writer, "flatten_state", meanwhile)
    with pytest.raises(RunError, match="another thread added rows"):
        loop.saved()
    loop.close()
    assert Loop(tmp_path).restored().steps == 10


def _another_save(path: Path) -> object:
    return Loop(path).checkpoints.save(10)


def _fewer_steps(path: Path) -> object:
    return Loop(path).restored().checkpoints.save(9)


def _equal_steps(path: Path) -> object:
    loop = Loop(path).restored()
    loop.buffer.add(random_transitions(1))
    return loop.saved()


def _other_spaces(path: Path) -> object:
    loop = Loop(path)
    box = gymnasium.spaces.Box(-1.0, 1.0, (7,))
    loop.checkpoints._agent = TD3(box, box, loop.agent.config)
    return loop.restored()


def _another_seed(path: Path) -> object:
    return Loop(path, seed=1).restored()


def _filled_buffer(path: Path) -> object:
    return Loop(path).run(2).restored()


def _without_accumulator(path: Path) -> object:
    agent = shared_agent("td3")
    return LoopCheckpoints(path, agent, agent.replay_buffer(30)).restore(np.ones(COUNT, bool))


MISTAKES: dict[str, tuple[Callable[[Path], object], str]] = {
    "save without restore": (_another_save, "contains checkpoints: call restore first"),
    "fewer steps": (_fewer_steps, "steps must increase from save to save; got 9 after 10"),
    "equal steps": (_equal_steps, "steps must increase from save to save; got 10 after 10"),
    "other spaces": (_other_spaces, r"contains the agent .*TD3 with the spaces .*; got .*TD3 with"),
    "another seed": (_another_seed, "was saved with other settings; got seed 1 instead of 0"),
    "filled buffer": (_filled_buffer, "the buffer must be empty"),
    "missing components": (_without_accumulator, r"behavior, accumulator, plants .*; got none"),
    "another setting": (
        lambda path: Loop(path, tau=0.5).restored(),
        r"was saved with other settings; got tau 0\.5 instead of 0\.005",
    ),
    "another agent": (lambda path: Loop(path, "ddpg").restored(), r"contains the agent .*TD3"),
    "invalid name": (
        lambda path: LoopCheckpoints(path, *[None] * 2, Env=None),  # type: ignore[arg-type]
        "names of components must match",
    ),
    "no array": (
        lambda path: Loop(path).checkpoints.restore(True),  # type: ignore[arg-type]
        r"began must have shape \[N\], .* got True",
    ),
    "another number of environments": (
        lambda path: Loop(path).restored(True, True, True),
        r"began must have shape \[2\], one value per environment; got \[ True  True  True\]",
    ),
    "no checkpoints": (lambda path: Loop(path, keep=0), "keep must be at least 1; got 0"),
}


@pytest.mark.parametrize(("mistake", "message"), MISTAKES.values(), ids=list(MISTAKES))
def test_mistakes_raise_clear_errors(
    mistake: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    Loop(tmp_path).run(10).saved().close()
    with pytest.raises(UsageError, match=message):
        mistake(tmp_path)


def test_settings_can_be_overridden(tmp_path: Path) -> None:
    Loop(tmp_path).run(10).saved().close()
    loop = Loop(tmp_path, tau=0.5)
    assert loop.checkpoints.restore(np.ones(COUNT, bool), override=True) == 10


def test_a_directory_is_used_once(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    with pytest.raises(RunError, match="in this process"):
        Loop(tmp_path)
    loop.close()
    (tmp_path / "config.json").touch()
    with pytest.raises(UsageError, match=r"continue it with eagerly\.resume"):
        Loop(tmp_path)


def test_components_need_state_and_restore(tmp_path: Path) -> None:
    agent = shared_agent("td3")
    with pytest.raises(TypeError, match=r"robot must have .*state and restore; got object"):
        LoopCheckpoints(tmp_path, agent, agent.replay_buffer(9), robot=object())  # type: ignore[arg-type]
