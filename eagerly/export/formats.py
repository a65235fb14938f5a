"""The export formats and their requirements."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
from dataclasses import dataclass
from types import ModuleType

from eagerly.errors import UsageError
from eagerly.export.c import compiler
from eagerly.policies.architecture import ActorArchitecture

PRECISIONS = ("float32", "float16", "int8")


@dataclass(frozen=True)
class Format:
    """An export format.

    Attributes:
        module: Name of the converter module, which defines `convert` and `refusal`.
        title: Name of the format in prose.
        packages: Packages that convert and run it: import names mapped to install names.
        to_act: Package or tool required to run the export.
        compiles: Whether a C compiler is needed.
    """

    module: str
    title: str
    packages: dict[str, str]
    to_act: str
    compiles: bool = False

    def load(self) -> ModuleType:
        """Imports the converter module, but no runtime."""
        return importlib.import_module(self.module)

    def refusal(self, architecture: ActorArchitecture, precision: str) -> str | None:
        """Returns why an actor cannot be exported, naming possible formats, or None if it can."""
        reason: str | None = self.load().refusal(architecture, precision)
        if reason is None:
            return None
        able = []
        for name, kind in FORMATS.items():
            refusal = kind.load().refusal
            if found := [each for each in PRECISIONS if refusal(architecture, each) is None]:
                able.append(f"{name} ({', '.join(found)})")
        return f"{reason}; this policy can be exported as {' or '.join(able)}" if able else reason

    def check_installed(self) -> None:
        """Checks that the required packages and compiler are installed.

        Raises:
            UsageError: If one is missing. The message explains how to install it.
        """
        missing = [
            package
            for module, package in self.packages.items()
            if importlib.util.find_spec(module) is None
        ]
        if missing:
            raise UsageError(
                f"an export to {self.title} requires {', '.join(missing)}: "
                "pip install 'eagerly[export]'"
            )
        if self.compiles and shutil.which(compiler()[0]) is None:
            raise UsageError(
                f"an export to {self.title} requires a C compiler for its checks, and "
                f"{compiler()[0]!r} was not found: install gcc or clang, or set CC to a compiler"
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
    """Returns a format by name.

    Raises:
        UsageError: If there is no such format or precision.
    """
    for what, given, known in (("format", name, FORMATS), ("precision", precision, PRECISIONS)):
        if given not in known:
            raise UsageError(f"{what} must be one of {', '.join(known)}; got {given!r}")
    return FORMATS[name]
