"""Finding packages that a setting names, unless a run directory brought them along.

This module never imports TensorFlow: what runs inside an environment's process stays light.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path


def find_package(name: str, run_dir: Path | None) -> None:
    """Looks for a package or module without running anything of it.

    Args:
        name: Its name, with dots.
        run_dir: The run directory whose settings name it, if one does: what lies in there is
            somebody's data, and no code.

    Raises:
        ImportError: If there is none, or it lies in the run directory.
        ValueError: If the name is none.
    """
    # Looking for the top package runs nothing; looking for an inner one would run the outer.
    top, *inner = name.split(".")
    found = importlib.util.find_spec(top)
    if found is None:
        raise ModuleNotFoundError(f"no module named {top!r}")
    if run_dir is None:
        return
    inside, places = run_dir.resolve(), [Path(found.origin)] if found.origin else []
    for location in found.submodule_search_locations or []:
        places += [Path(location, *inner[:depth]) for depth in range(len(inner) + 1)]
    if any(place.resolve().is_relative_to(inside) for place in places):
        raise ImportError("it lies in the run directory")
