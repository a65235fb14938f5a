"""What libraries of environments do to their surroundings: displays, log files."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any


def choose_renderer() -> None:
    """Lets MuJoCo and Pygame draw without a display; must come before they are imported.

    Where there is no display, sets MUJOCO_GL to "egl" and SDL_VIDEODRIVER to "dummy", unless the
    user has set them.
    """
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def report_mujoco_warnings(source: Any) -> None:
    """Lets MuJoCo's warnings be Python's.

    By itself it appends them to a file MUJOCO_LOG.TXT in the working directory, whatever stands
    there, a link to another file for example. A handler that somebody has set stays.

    Args:
        source: What makes the environment; MuJoCo is imported if that is one of Gymnasium's with
            it, and otherwise only looked at if it is imported already.
    """
    entry = getattr(source, "entry_point", "")
    if "mujoco" not in sys.modules and not str(entry).startswith("gymnasium.envs.mujoco."):
        return
    try:
        import mujoco
    except ImportError:  # which is said when the environment is made
        return
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_warn)


def _warn(text: str) -> None:
    # What is deprecated concerns who writes a model: Python shows such warnings to developers.
    kind = DeprecationWarning if "deprecated" in text else UserWarning
    warnings.warn(f"MuJoCo: {text}", kind, stacklevel=2)
