"""Runs a task in a child process, so that a crash does not end this one."""

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
_HEAD = 8  # bytes before an answer, which hold its length


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
    paths = json.dumps([str(path) for path in sys.path])
    # Files, not pipes: what the process started may outlive it, and keep the end of a pipe.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as answered:
        process = subprocess.Popen(
            [sys.executable, "-B", "-P", "-c", _BOOT, paths, str(answered.fileno())],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=printed,
            pass_fds=(answered.fileno(),),
            start_new_session=True,
            env=on_processor() if processor_alone else None,
        )
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin as pipe:
                pipe.write(cloudpickle.dumps((task, args)))
            code = process.wait()
        finally:
            with suppress(OSError):  # a simulator that it started is in its session
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answered.seek(0)
        answer = answered.read()
        # Something may have written a part of the answer and died, or ended early with code 0.
        if code == 0 and answer[:_HEAD] == len(answer[_HEAD:]).to_bytes(_HEAD):
            succeeded, value = pickle.loads(answer[_HEAD:])
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
    """Runs the task from stdin and sends the pickled result back."""
    os.set_inheritable(into, False)
    task, args = pickle.loads(sys.stdin.buffer.read())
    try:
        answer = True, task(*args)
    except RunError as error:
        answer = False, str(error)
    except Exception as error:  # whatever a converter or an environment raises
        traceback.print_exc()
        answer = False, f"{type(error).__name__}: {error}"
    written = pickle.dumps(answer)
    with os.fdopen(into, "wb") as file:
        file.write(len(written).to_bytes(_HEAD) + written)
