"""Deterministic actor-critic agents for continuous control in TensorFlow 2 and Keras 3.

The public names are listed in `__init__.pyi` and imported on first use, so that `import eagerly`
has no side effects and does not load TensorFlow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lazy_loader

from eagerly.version import __version__ as __version__

# An editable install imports this file through a symlink. With the resolved path, debuggers and
# tracebacks show the real files.
__path__ = [str(Path(__file__).resolve().parent)]

_import, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'eagerly' has no attribute {name!r}")
    from eagerly.quiet import quiet_tensorflow

    with quiet_tensorflow():
        value = globals()[name] = _import(name)
    return value
