"""The build backend: setuptools, whose editable install gets one more file.

Setuptools has the modules of an editable install found last, even after folders without an
`__init__.py`. A program beside a clone named `eagerly` would therefore import the clone's own
folder, as an empty namespace package. An `eagerly/__init__.py` in site-packages takes precedence
over such folders, and still comes after PYTHONPATH. The one added here runs that of the clone.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

_ADDED = "eagerly/__init__.py"
_CODE = '''\
"""Runs the `eagerly` of the clone that this editable install belongs to."""

import importlib.machinery
import os
import sys

__file__ = {file!r}
if not os.path.isfile(__file__):
    raise ModuleNotFoundError(
        f"eagerly is an editable install of a clone that has moved: there is no {{__file__}}. "
        f"In the clone, run: {{sys.executable}} -m pip install --editable .",
        name=__name__,
    )
__path__[:] = [os.path.dirname(__file__)]
__loader__ = importlib.machinery.SourceFileLoader(__name__, __file__)
__spec__.loader, __spec__.origin = __loader__, __file__
__loader__.exec_module(sys.modules[__name__])
'''


def build_editable(
    wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None
) -> str:
    """Builds the editable wheel of setuptools with the added file and returns the wheel's name."""
    code = _CODE.format(file=str(Path(__file__).resolve().parents[1] / _ADDED)).encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(code).digest()).decode().rstrip("=")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # Setuptools warns of folders with the package's name; the added file makes them harmless.
        warnings.filterwarnings("ignore", message="Editable installation")
        name = build_meta.build_editable(folder, config_settings, metadata_directory)
        with (
            zipfile.ZipFile(Path(folder, name)) as built,
            zipfile.ZipFile(Path(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel,
        ):
            wheel.writestr(_ADDED, code)
            for entry in built.infolist():
                content = built.read(entry)
                if entry.filename.endswith(".dist-info/RECORD"):
                    content += f"{_ADDED},sha256={digest},{len(code)}\n".encode()
                wheel.writestr(entry, content)
    return name
