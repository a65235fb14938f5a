"""Rendering of environments without a display, and logging of MuJoCo's warnings."""

from __future__ import annotations

import ctypes.util
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import gymnasium
import numpy as np

from eagerly.errors import summary
from eagerly.importing import around_import

_log = logging.getLogger(__name__)


def choose_renderer() -> None:
    """Configures MuJoCo and Pygame for rendering without a display.

    Must be called before MuJoCo or Pygame is imported. On Linux without a display, sets MUJOCO_GL
    to "egl" and SDL_VIDEODRIVER to "offscreen", unless the user has set these variables. With the
    driver "dummy", highway-env draws nothing.
    """
    if not has_display():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "offscreen")


def has_display() -> bool:
    """Returns whether the environment variables name a display."""
    return sys.platform != "linux" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def missing_library() -> str | None:
    """Returns a message if the library that MuJoCo needs to render without a display is missing."""
    if os.environ.get("MUJOCO_GL") != "egl" or ctypes.util.find_library("EGL"):
        return None
    return (
        "libEGL is missing, which MuJoCo needs to render without a display: install it (on Debian "
        "and Ubuntu: `apt install libegl1`)"
    )


def rendering_problem(error: Exception) -> str | None:
    """Returns a message with the fix if a known problem prevented the creation for rendering."""
    if "unexpected keyword argument 'render_mode'" in str(error):
        return (
            "its constructor or factory must accept render_mode, and its `render` must return an "
            "RGB image if render_mode is 'rgb_array'"
        )
    return missing_library()


class RenderedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that can report why rendering fails."""

    def image(self) -> np.ndarray | str:
        """Returns an image `[height, width, channels]` uint8, or the reason why rendering fails."""
        try:
            frame: Any = self.env.render()
        except Exception as error:  # renderers raise different exceptions
            return missing_library() or f"{summary(error)}; videos require render mode rgb_array"
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            modes = self.env.metadata.get("render_modes")
            return f"`render` returned no image in render mode rgb_array; declared modes: {modes}"
        if frame.shape[2] not in (1, 3, 4) or frame.dtype != np.uint8:
            return (
                "an image must have shape [height, width, 3] and dtype uint8; got "
                f"{list(frame.shape)} and {frame.dtype}: return such an array from `render`"
            )
        return frame


def select_track_camera(env: gymnasium.Env[Any, Any]) -> None:
    """Selects a MuJoCo model's "track" camera, if any, so that moving robots stay in view.

    By default, Gymnasium finds this camera but then renders with the free camera, so that the
    camera settings of its environments take effect.
    """
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None:
        return
    import mujoco

    camera = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")
    if camera != -1:
        renderer.camera_id = camera


def report_mujoco_warnings() -> None:
    """Logs MuJoCo's warnings as soon as MuJoCo is imported.

    By default, MuJoCo appends them to MUJOCO_LOG.TXT in the working directory, even if that file is
    a link to another one. A warning handler that is already set is kept.
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
