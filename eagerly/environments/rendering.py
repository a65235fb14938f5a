"""What libraries of environments do to their surroundings: displays, log files."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from eagerly.importing import around_import

_log = logging.getLogger(__name__)


def choose_renderer() -> None:
    """Lets MuJoCo and Pygame draw without a display; must come before they are imported.

    Where there is no display, sets MUJOCO_GL to "egl" and SDL_VIDEODRIVER to "dummy", unless the
    user has set them.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def report_mujoco_warnings() -> None:
    """Logs MuJoCo's warnings, from when something imports it.

    By itself it appends them to a file MUJOCO_LOG.TXT in the working directory, whatever stands
    there, a link to another file for example. A handler that somebody has set stays.
    """
    if "mujoco" in sys.modules:
        _set_handler()
    else:
        _wait_for_mujoco()


@cache
def _wait_for_mujoco() -> None:
    around_import("mujoco", _then_handled)


@contextmanager
def _then_handled() -> Iterator[None]:
    yield
    _set_handler()


def _set_handler() -> None:
    import mujoco

    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_warn)


def _warn(text: str) -> None:
    # What is deprecated concerns who writes a model, and not who trains on it.
    _log.log(logging.DEBUG if "deprecated" in text else logging.WARNING, f"MuJoCo: {text.strip()}")
