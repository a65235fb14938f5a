"""Videos in a report: the newest one of a run per group, embedded if it is small enough."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from eagerly.curves.groups import RunGroup
from eagerly.storage.files import RunFiles

LARGEST = 4 * 2**20  # bytes of a video
LARGEST_TOTAL = 24 * 2**20  # bytes of all videos of a report
_NAME = re.compile(r"videos/step-(\d{12})\.mp4")


@dataclass(frozen=True)
class Video:
    """A video in a run directory.

    Attributes:
        run: The run directory.
        name: The file, relative to the run directory.
        step: Environment steps of the recorded policy.
        size: Size in bytes.
        content: The file, if it is embedded.
        problem: Why the video is not embedded, or "".
    """

    run: Path
    name: str
    step: int
    size: int
    content: bytes = b""
    problem: str = ""

    @property
    def uri(self) -> str:
        """The content as a data URI."""
        return f"data:video/mp4;base64,{base64.b64encode(self.content).decode()}"


def videos_of(run: Path) -> list[Video]:
    """Lists the videos that a run recorded, oldest first. Links are ignored."""
    files, found = RunFiles(run), []
    with suppress(OSError):
        for name in files.names("videos"):
            if (match := _NAME.fullmatch(name)) and files.is_file(name):
                found.append(Video(run, name, int(match[1]), files.size(name)))
    return found


def selected_videos(groups: Sequence[RunGroup]) -> list[tuple[RunGroup, list[Video]]]:
    """Lists the videos of the best run with videos of each group, newest first.

    The content of the newest one is read, unless it is larger than `LARGEST`, or all videos would
    together be larger than `LARGEST_TOTAL`.
    """
    selected, left = [], LARGEST_TOTAL
    for group in groups:
        order = np.argsort(-np.nan_to_num(group.scores, nan=-np.inf), kind="stable")
        runs = (videos_of(group.curves[index].path) for index in order)
        if videos := next(filter(None, runs), None):
            newest, *others = reversed(videos)
            newest = _read(newest, left)
            left -= len(newest.content)
            selected.append((group, [newest, *others]))
    return selected


def _read(video: Video, left: int) -> Video:
    """Returns a video with its content, or with the reason why that is not embedded."""
    if video.size > LARGEST:
        return replace(video, problem=f"larger than {LARGEST / 2**20:.0f} MiB")
    if video.size > left:
        return replace(video, problem=f"all videos may have {LARGEST_TOTAL / 2**20:.0f} MiB")
    try:
        with RunFiles(video.run).open(video.name) as file:
            content = file.read(video.size)
    except (OSError, ValueError) as error:
        return replace(video, problem=f"it cannot be read: {error}")
    if content[4:8] != b"ftyp":
        return replace(video, problem="not an MP4 file")
    return replace(video, content=content)
