"""The formats that policies are exported to, and what each of them needs."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shlex
import shutil
from dataclasses import dataclass
from types import ModuleType

from eagerly.errors import RunError

PRECISIONS = ("float32", "float16", "int8")


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        module: The module that converts: it has `convert` and `refusal`.
        title: What people call it.
        packages: What converts and runs it, by the names of what is imported and of what is
            installed.
        compiles: Whether a C compiler is needed.
        to_act: What is installed where it acts.
    """

    module: str
    title: str
    packages: dict[str, str]
    to_act: str
    compiles: bool = False

    def load(self) -> ModuleType:
        """Imports what converts; no runtime is imported."""
        return importlib.import_module(self.module)

    def check_installed(self) -> None:
        """Refuses to begin without a package that is needed.

        Raises:
            RunError: Saying what to install.
        """
        missing = [
            package
            for module, package in self.packages.items()
            if importlib.util.find_spec(module) is None
        ]
        if missing:
            raise RunError(
                f"an export to {self.title} needs {', '.join(missing)}: "
                "pip install 'eagerly[export]'"
            )
        compiler = (shlex.split(os.environ.get("CC", "")) or ["cc"])[0]
        if self.compiles and shutil.which(compiler) is None:
            raise RunError(
                f"an export to {self.title} is compiled to be checked, and there is no C compiler "
                f"{compiler!r}: install gcc or clang, or name one in CC"
            )


FORMATS: dict[str, Format] = {
    "saved-model": Format(
        "eagerly.export.saved_model", "SavedModel", {"tensorflow": "tensorflow"}, "tensorflow"
    ),
    "litert": Format(
        "eagerly.export.litert",
        "LiteRT",
        {"tensorflow": "tensorflow", "ai_edge_litert": "ai-edge-litert"},
        "ai-edge-litert",
    ),
    "onnx": Format(
        "eagerly.export.onnx",
        "ONNX",
        {"onnx": "onnx", "onnxruntime": "onnxruntime"},
        "onnxruntime",
    ),
    "c": Format("eagerly.export.c", "C", {}, "a C compiler", compiles=True),
}


def format_of(name: str, precision: str) -> Format:
    """Finds a format.

    Raises:
        RunError: If there is no such format, or no such precision.
    """
    for what, given, known in (("format", name, FORMATS), ("precision", precision, PRECISIONS)):
        if given not in known:
            raise RunError(f"{what} must be one of {', '.join(known)}; got {given!r}")
    return FORMATS[name]
