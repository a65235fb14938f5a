"""Available memory, and the memory that a run requires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import psutil
import pytest

from eagerly import RunError, open_run
from eagerly.agents.td3_config import TD3Config
from eagerly.buffers import RowLayout
from eagerly.storage.config import RunConfig
from eagerly.training import memory_requirements


def group(path: Path, limit: str, used: int, files: int, *, version: int = 2) -> None:
    """Writes the memory files of a Linux control group."""
    folder = path if version == 2 else path / "memory"
    folder.mkdir(exist_ok=True)
    names = {
        2: ("memory.max", "memory.current", "inactive_file"),
        1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    }[version]
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 7\n{names[2]} {files}\nslab 3\n")


@pytest.mark.parametrize("version", [1, 2])
def test_available_memory_respects_the_container_limit_and_excludes_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(memory_requirements, "_CGROUP", tmp_path)
    group(tmp_path, "1000000", 900_000, 600_000, version=version)
    assert memory_requirements.available_memory() == 700_000
    memory_requirements.check_memory(700_000, "the buffer", "take less")
    message = "the buffer needs 1.00 GiB of memory, 0.00 GiB available: take less"
    with pytest.raises(RunError, match=message):
        memory_requirements.check_memory(2**30, "the buffer", "take less")


def test_without_a_container_limit_the_machines_memory_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_requirements, "_CGROUP", tmp_path)
    for limit in (None, "max"):
        if limit:
            group(tmp_path, limit, 5, 5)
        found = memory_requirements.available_memory()
        assert found == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_networks_need_memory_for_targets_and_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(None, "td3", {"env": "Pendulum-v1", "hidden_sizes": (64, 32)})
    env = gymnasium.make("Pendulum-v1")
    given = run, (env.observation_space, env.action_space)
    # An actor and two critics, each with a target and two moments, in float32.
    needed = 3 * 4 * 4 * 64 * 32
    monkeypatch.setattr(memory_requirements, "available_memory", lambda: needed)
    memory_requirements.check_networks_and_processes(*given)
    monkeypatch.setattr(memory_requirements, "available_memory", lambda: needed - 1)
    with pytest.raises(RunError, match="reduce them"):
        memory_requirements.check_networks_and_processes(*given)


@pytest.mark.parametrize(
    ("settings", "capacity", "needed"),
    [
        # A row has 2 * 6 + 2 + 2 float32 values, or 64 bytes. A priority tree needs 16 bytes per
        # leaf, and the number of leaves is a power of two.
        ({}, 10_000, 2001 * 64),
        ({"hindsight": "final"}, 10_000, 2 * 2001 * 64),
        ({"hindsight": "future", "hindsight_goals": 3}, 10_000, 4 * 2001 * 64),
        ({"hindsight": "future"}, 1025, 1025 * 64),
        ({"hindsight": "future", "sampling": "lap"}, 1025, 1025 * 64 + 16 * 2048),
    ],
)
def test_required_memory_includes_priorities_and_relabeled_steps(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], capacity: int, needed: int
) -> None:
    config = RunConfig(env="Reach-v0", steps=2000, replay_capacity=capacity)
    given = config, TD3Config(**settings), RowLayout(6, 2)
    monkeypatch.setattr(memory_requirements, "available_memory", lambda: needed)
    memory_requirements.check_buffer(*given)
    monkeypatch.setattr(memory_requirements, "available_memory", lambda: needed - 1)
    with pytest.raises(RunError, match=r"a replay buffer of .*: reduce --replay-capacity"):
        memory_requirements.check_buffer(*given)
