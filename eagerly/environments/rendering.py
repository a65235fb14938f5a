"""Configures side effects of simulators: displays and log files."""

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
    """Configures MuJoCo and Pygame for rendering without a display.

    Must be called before they are imported. On Linux without a display, sets MUJOCO_GL to "egl" and
    SDL_VIDEODRIVER to "dummy", unless the user has set them.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def report_mujoco_warnings() -> None:
    """Logs MuJoCo's warnings as soon as MuJoCo is imported.

    By default, MuJoCo appends them to MUJOCO_LOG.TXT in the working directory, even if that is a
    link to another file. A handler that is already set is kept.
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
    # Deprecations concern authors of models, not users who train on them.
    _log.log(logging.DEBUG if "deprecated" in text else logging.WARNING, f"MuJoCo: {text.strip()}")
