"""Drawing without a display."""

from __future__ import annotations

import os
import sys


def choose_renderer() -> None:
    """Lets MuJoCo and Pygame draw without a display; must come before they are imported.

    Where there is no display, sets MUJOCO_GL to "egl" and SDL_VIDEODRIVER to "dummy", unless the
    user has set them.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
