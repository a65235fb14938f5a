"""C99 export for microcontrollers: a policy as constants and functions, without allocation.

A recurrent policy keeps its state in a struct of the caller.

`policy.h` and `policy.c` need only a compiler and, in float32, libm. In int8 they need no library:
the network uses only integers (see `export.integers`), and observations are rounded without library
calls. `export.c_examples` writes the program that checks both functions.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eagerly.errors import UsageError
from eagerly.export import c_source as source
from eagerly.export import calibration
from eagerly.export.c_functions import act, header, integer_network
from eagerly.export.c_network import float_network
from eagerly.export.integers import plan
from eagerly.export.interface import described, inputs, outputs, precision_refusal
from eagerly.policies.architecture import ActorArchitecture
from eagerly.policies.integer_grids import TANH_SCALE
from eagerly.policies.network import ActorNetwork
from eagerly.spaces import Entry

PRECISIONS = ("float32", "int8")
FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror")


def refusal(architecture: ActorArchitecture, precision: str) -> str | None:
    """Returns why an actor cannot be exported to C, or None if it can."""
    if reason := precision_refusal("c", PRECISIONS, precision):
        return reason
    if architecture.pixels.any():
        return "C supports only numeric and discrete observations; this actor has images"
    if architecture.head.choices and precision == "int8":
        return "C supports discrete actions only in float32"
    if precision == "int8":
        return calibration.refusal(architecture)
    if architecture.quantized:
        return "this actor is quantized, and C rounds differently in float32"
    return None


def convert(
    network: ActorNetwork,
    precision: str,
    folder: Path,
    *,
    low: np.ndarray,
    high: np.ndarray,
    banner: str = "",
    entries: Sequence[Entry] = (),
    **more: Any,
) -> dict[str, Any]:
    """Writes `policy.h` and `policy.c`.

    Args:
        network: A network that C supports (see `refusal`), quantized for int8.
        precision: "float32" or "int8".
        folder: The directory to write to.
        low: `[C + k]`, float64, lower bounds of the actions in the environment's units, and the
            first value of each choice.
        high: `[C + k]`, float64, upper bounds.
        banner: Comment at the top of both files, such as the run and version.
        entries: The entries of an observation; `policy.h` names their indices.
        more: Ignored; used by other formats.

    Returns:
        The file names, and the inputs and outputs of `policy_network`.

    Raises:
        ValueError: If a number is not finite, or a choice has a value of more than 2^24, because
            `policy_act` returns values as float.
    """
    architecture = network.architecture
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    values = np.abs([low, high])[:, architecture.head.continuous :]
    if (values > 2**24).any():
        raise ValueError(
            f"the values of choices must be between -2^24 and 2^24 in C; got {int(values.max())}"
        )
    integers = plan(network) if precision == "int8" else None
    parts = float_network(network) if integers is None else integer_network(integers)
    top = source.comment(banner) if banner else ""
    includes = ["#include <math.h>\n"] if integers is None else []
    text = "\n".join([*includes, *parts, *act(network, integers, low, high)])
    (folder / "policy.h").write_text(top + header(architecture, integers, entries), "utf-8")
    (folder / "policy.c").write_text(f'{top}#include "policy.h"\n\n{text}', "utf-8")
    given, made = (described(part(architecture)) for part in (inputs, outputs))
    if integers is not None:
        scale, zero_point = float(integers.input_scale), integers.input_zero_point
        given[0] |= {"dtype": "int8", "scale": scale, "zero_point": zero_point}
        made[0] |= {"dtype": "int8", "scale": TANH_SCALE, "zero_point": 0}
    return {"files": ["policy.h", "policy.c"], "inputs": given, "outputs": made}


def compiler() -> list[str]:
    """Returns the C compiler command as a list of words: `$CC`, or `cc` by default.

    Raises:
        UsageError: If `$CC` has an unbalanced quote.
    """
    try:
        return shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise UsageError(f"CC must be a command; got {os.environ['CC']}: {error}") from error


def compiled(folder: Path, into: Path, *sources: str, flags: tuple[str, ...] = FLAGS) -> Path:
    """Compiles a policy into a library for `ctypes` or, with `examples.c`, into a program.

    The compiler must exist, see `Format.check_installed`.

    Args:
        folder: The directory that contains `policy.c`.
        into: The output file.
        sources: Additional source files. Without any, the result is a shared library.
        flags: Compiler flags.

    Returns:
        `into`.

    Raises:
        RuntimeError: If compilation fails (with the compiler's messages).
    """
    kind = () if sources else ("-shared", "-fPIC")
    files = [str(folder / name) for name in ("policy.c", *sources)]
    command = [*compiler(), *flags, *kind, *files, "-o", str(into), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)} failed:\n{done.stderr.strip()}")
    return into
