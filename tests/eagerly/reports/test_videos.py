"""The selection of videos for a report."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from eagerly.curves.groups import Curve, RunGroup
from eagerly.reports import videos
from eagerly.reports.videos import selected_videos, videos_of

VIDEO = b"\0\0\0\x18ftypisom" + bytes(80)


def _video(run: Path, step: int, content: bytes = VIDEO) -> Path:
    (run / "videos").mkdir(parents=True, exist_ok=True)
    path = run / "videos" / f"step-{step:012d}.mp4"
    path.write_bytes(content)
    return path


def _group(*runs: Path) -> RunGroup:
    """Returns a group in which later runs are better."""
    points = np.array([1000]), np.array([60.0]), np.array([True])
    return RunGroup(
        "td3",
        "Ant-v5",
        tuple(
            Curve("td3", "Ant-v5", n, points[0], np.array([float(n)]), *points[1:], path=run)
            for n, run in enumerate(runs)
        ),
    )


def test_the_newest_video_of_the_best_run_with_videos_is_embedded(tmp_path: Path) -> None:
    worst, middle, best = (tmp_path / name for name in "abc")
    _video(worst, 1000)
    for step in (1000, 3000, 2000):
        _video(middle, step, VIDEO + bytes([step // 1000]))
    best.mkdir()
    ((_, found),) = selected_videos([_group(worst, middle, best)])
    assert [video.step for video in found] == [3000, 2000, 1000]
    assert {video.run for video in found} == {middle}
    assert found[0].content == VIDEO + b"\3"
    assert found[0].uri.startswith("data:video/mp4;base64,AAAAGGZ0eXBpc29t")
    assert not any(video.content for video in found[1:])
    assert selected_videos([_group(best)]) == []


def test_links_pipes_and_other_files_are_not_videos(tmp_path: Path) -> None:
    secret = _video(tmp_path / "other", 1)
    run = tmp_path / "run"
    _video(run, 1).unlink()
    (run / "videos" / "step-000000000001.mp4").symlink_to(secret)
    os.mkfifo(run / "videos" / "step-000000000002.mp4")
    (run / "videos" / "step-000000000003<b>.mp4").write_bytes(VIDEO)
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "videos").symlink_to(tmp_path / "other" / "videos")
    assert videos_of(run) == videos_of(linked) == []


def test_large_and_damaged_videos_are_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(videos, "LARGEST", 2**20)
    monkeypatch.setattr(videos, "LARGEST_TOTAL", 2**20)
    runs = [tmp_path / name for name in "abcd"]
    contents = (b"<script>", VIDEO + bytes(2**20), VIDEO + bytes(2**19), VIDEO + bytes(2**19))
    for run, content in zip(runs, contents, strict=True):
        _video(run, 1000, content)
    found = [video for _, (video,) in selected_videos([_group(run) for run in runs])]
    assert [video.problem for video in found] == [
        "not an MP4 file",
        "larger than 1 MiB",
        "",
        "all videos may have 1 MiB",
    ]
    assert [bool(video.content) for video in found] == [False, False, True, False]
