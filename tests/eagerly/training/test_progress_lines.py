"""Lines of text report the progress of runs that are never evaluated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from eagerly.environments.group import FinishedEpisode
from eagerly.scripts import train as command
from eagerly.training import progress_lines
from eagerly.training.progress_lines import ProgressLines
from tests import toys

toys.register()


def test_a_line_per_minute_contains_the_speed_and_the_mean_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds, said = 1000.0, list[str]()
    clock = SimpleNamespace(monotonic=lambda: seconds, strftime=lambda form: "03:12")
    monkeypatch.setattr(progress_lines, "time", clock)
    lines = ProgressLines(said.append)
    lines.on_begin(SimpleNamespace(steps=500))  # type: ignore[arg-type]
    rounds = [(30.0, 1500, [10.0]), (59.0, 3000, []), (61.0, 3050, [20.0, 60.0]), (121.0, 3650, [])]
    for after, steps, returns in rounds:
        seconds = 1000.0 + after
        episodes = [FinishedEpisode(0, each, 100) for each in returns]
        lines.on_rollout(None, SimpleNamespace(episodes=episodes))  # type: ignore[arg-type]
        lines.on_round(SimpleNamespace(steps=steps))  # type: ignore[arg-type]
    assert said == [
        "step 3050 at 03:12: 41.8 steps per second, episodes: 3, mean return: 30",
        "step 3650 at 03:12: 10.0 steps per second",
    ]


def test_lines_are_printed_without_a_terminal_and_without_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def every_round(say: Callable[[str], object]) -> ProgressLines:
        return ProgressLines(say, 0.0)

    monkeypatch.setattr(progress_lines, "ProgressLines", every_round)
    words = ["td3", "--env", "Long-v0", "--steps", "80", "--run-dir", str(tmp_path / "run")]
    words += ["--rollout-steps", "20", "--warmup-steps", "80", "--evaluations", "none"]
    words += ["--no-check-env", "--mode", "eager", "--hidden-sizes", "8"]
    output = CliRunner().invoke(command.main, words).output
    lines = [line for line in output.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in lines] == ["20", "40", "60", "80"]
    assert lines[1].endswith(", episodes: 1, mean return: 40")
