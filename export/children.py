"""Doing something in a process of its own: what aborts there ends nothing here."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import cloudpickle

from eagerly.errors import RunError

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from eagerly.export.children import serve; serve(int(sys.argv[2]))"
)
_LINES = 15  # of what a process printed before it died


def on_processor() -> dict[str, str]:
    """Returns variables for a process without a GPU: there TensorFlow rounds products to TF32."""
    return os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}


def in_child(what: str, task: Callable[..., Any], *args: Any, processor_alone: bool = False) -> Any:
    """Calls a function in a process of its own.

    What it prints is shown only if it fails. The process is killed if this one is interrupted
    meanwhile, and is out of reach of Ctrl-C.

    Args:
        what: What it does, in words, for messages: "the conversion".
        task: A function of a module.
        args: Its arguments; they and the result are pickled, between these two processes alone.
        processor_alone: Whether it finds no GPU.

    Raises:
        RunError: If it raises something, or the process dies.
    """
    result, into = os.pipe()
    paths = json.dumps([str(path) for path in sys.path])
    with tempfile.TemporaryFile() as printed, os.fdopen(result, "rb") as answers:
        try:
            process = subprocess.Popen(
                [sys.executable, "-B", "-P", "-c", _BOOT, paths, str(into)],
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=printed,
                pass_fds=(into,),
                start_new_session=True,
                env=on_processor() if processor_alone else None,
            )
        finally:
            os.close(into)
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(cloudpickle.dumps((task, args)))
            answer = answers.read()
            code = process.wait()
        finally:
            with suppress(OSError):
                process.kill()
            process.wait()
        if answer:
            succeeded, value = pickle.loads(answer)
            if succeeded:
                return value
            raise RunError(f"{what} failed: {value}")
        printed.seek(0)
        lines = printed.read().decode("utf-8", "replace").splitlines()[-_LINES:]
    raise RunError("\n".join([f"{what} failed: its process {_death(code)}", *lines]))


def _death(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def serve(into: int) -> None:
    """Does what `in_child` sent to this process, and writes the result to a file descriptor."""
    os.set_inheritable(into, False)
    task, args = pickle.loads(sys.stdin.buffer.read())
    try:
        answer = True, task(*args)
    except RunError as error:
        answer = False, str(error)
    except Exception as error:  # whatever a converter or an environment raises
        traceback.print_exc()
        answer = False, f"{type(error).__name__}: {error}"
    with os.fdopen(into, "wb") as file:
        file.write(pickle.dumps(answer))
