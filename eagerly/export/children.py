"""Runs a task in a child process, so that a crash there does not end this process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

import cloudpickle

from eagerly.errors import RunError

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from eagerly.export.children import serve; serve(int(sys.argv[2]))"
)
_LINES = 15  # of the output of a process that died, shown in the error
_HEAD = 8  # bytes before a task or an answer, which hold its length


def on_processor() -> dict[str, str]:
    """Returns environment variables that hide GPUs, on which TensorFlow rounds to TF32."""
    return os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}


def in_child(what: str, task: Callable[..., Any], *args: Any, processor_alone: bool = False) -> Any:
    """Calls a function in a process of its own and returns its result.

    Its output is shown only if the process dies. Ctrl-C does not reach the process; it is killed,
    with all that it started, when this process is interrupted or dies, SIGKILL included.

    Args:
        what: What the function does, for messages: "the conversion".
        task: A function of a module.
        args: Its arguments; they and the result are pickled, between these two processes alone.
        processor_alone: Whether GPUs are hidden from it.

    Raises:
        RunError: If the function raises an exception, or the process dies.
    """
    paths = json.dumps([str(path) for path in sys.path])
    # Files, not pipes: a process that the child started may outlive it and hold a pipe open.
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
        pipe = process.stdin
        assert pipe is not None
        try:
            # The pipe stays open: the child ends when it closes, at the latest with this process.
            with suppress(BrokenPipeError):
                pipe.write(_framed(cloudpickle.dumps((task, args))))
                pipe.flush()
            code = process.wait()
        finally:
            with suppress(OSError):  # simulators that it started are in its process group
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            with suppress(BrokenPipeError):
                pipe.close()
        answered.seek(0)
        answer = answered.read()
        # The child may have died while it wrote the answer, or have ended early with exit code 0.
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


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(_HEAD) + content


def serve(into: int) -> None:
    """Runs the task from stdin and writes the pickled result to a file descriptor."""
    os.set_inheritable(into, False)
    parent = os.fdopen(os.dup(0), "rb")  # not inherited by what the task starts
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    content = parent.read(int.from_bytes(parent.read(_HEAD)))
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    task, args = pickle.loads(content)
    try:
        answer = True, task(*args)
    except RunError as error:
        answer = False, str(error)
    except Exception as error:  # whatever a converter or an environment raises
        traceback.print_exc()
        answer = False, f"{type(error).__name__}: {error}"
    written = _framed(pickle.dumps(answer))
    with os.fdopen(into, "wb") as file:
        file.write(written)


def _end_with_parent(parent: IO[bytes]) -> None:
    """Waits for the end of the parent, whose end of the pipe closes with it, then kills the group.

    As in workers of environments this is a thread and no signal that the kernel sends: that would
    spare the processes that the task started, and exists on Linux alone.
    """
    parent.read()
    os.killpg(0, signal.SIGKILL)
