"""Deterministic actor-critic agents for continuous control in TensorFlow 2 and Keras 3.

The public names are listed in `__init__.pyi` and imported on first use, so that `import eagerly`
does not load TensorFlow. When TensorFlow or Keras are imported later, TensorFlow's startup messages
are hidden and Keras uses the TensorFlow backend.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lazy_loader

# An editable install imports this file through a symlink. With the resolved path, debuggers and
# tracebacks show the real files.
__path__ = [str(Path(__file__).resolve().parent)]

from eagerly.importing import around_import
from eagerly.version import __version__ as __version__

_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


@contextmanager
def _importing_tensorflow() -> Iterator[None]:
    from eagerly.keras_backend import tensorflow_backend
    from eagerly.quiet import quiet

    with quiet(), tensorflow_backend():
        yield


@contextmanager
def _importing_keras() -> Iterator[None]:
    from eagerly.keras_backend import tensorflow_backend

    with tensorflow_backend():
        yield


around_import("tensorflow", _importing_tensorflow)
around_import("keras", _importing_keras)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        problem = f"module 'eagerly' has no attribute {name!r}"
        raise AttributeError(problem, name=name, obj=sys.modules[__name__])
    value = globals()[name] = _import(name)
    return value
