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
_LINES = 15  # last output lines of a dead process, shown in the error
_HEAD = 8  # bytes of the length prefix of a task or an answer


def cpu_environ() -> dict[str, str]:
    """Returns environment variables that hide GPUs, on which TensorFlow would round to TF32."""
    return os.environ | {"CUDA_VISIBLE_DEVICES": "-1"}


def in_child(what: str, task: Callable[..., Any], *args: Any, cpu_only: bool = False) -> Any:
    """Calls a function in a child process and returns its result.

    The child's output is shown only if it dies. Ctrl-C does not reach the child. The child and all
    processes it started are killed if this process is interrupted or dies, even by SIGKILL.

    Args:
        what: Name of the task in messages, such as "the conversion".
        task: A module-level function.
        args: Arguments of the task. They and the result are pickled, but exchanged only between
            these two processes.
        cpu_only: Whether to hide GPUs from the child.

    Raises:
        RunError: If the function raises an exception or the process dies.
    """
    paths = json.dumps([str(path) for path in sys.path])
    # Use files for output: a process started by the child may outlive it and hold a pipe open.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as answered:
        process = subprocess.Popen(
            [sys.executable, "-B", "-P", "-c", _BOOT, paths, str(answered.fileno())],
            stdin=subprocess.PIPE,
            stdout=printed,
            stderr=printed,
            pass_fds=(answered.fileno(),),
            start_new_session=True,
            env=cpu_environ() if cpu_only else None,
        )
        pipe = process.stdin
        assert pipe is not None
        try:
            # Keep the pipe open: the child exits when it closes, which also happens if this process
            # dies.
            with suppress(BrokenPipeError):
                pipe.write(_framed(cloudpickle.dumps((task, args))))
                pipe.flush()
            code = process.wait()
        finally:
            with suppress(OSError):  # also kills simulators that the child started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            with suppress(BrokenPipeError):
                pipe.close()
        answered.seek(0)
        answer = answered.read()
        # The child may have died while writing the answer, or exited early with code 0.
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
        return f"exited with code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def _framed(content: bytes) -> bytes:
    return len(content).to_bytes(_HEAD) + content


def serve(into: int) -> None:
    """Runs the task received on stdin and writes its pickled result to a file descriptor."""
    os.set_inheritable(into, False)
    parent = os.fdopen(os.dup(0), "rb")  # a copy that child processes of the task do not inherit
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    content = parent.read(int.from_bytes(parent.read(_HEAD)))
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    task, args = pickle.loads(content)
    try:
        answer = True, task(*args)
    except RunError as error:
        answer = False, str(error)
    except Exception as error:  # converters and environments may raise anything
        traceback.print_exc()
        answer = False, f"{type(error).__name__}: {error}"
    written = _framed(pickle.dumps(answer))
    with os.fdopen(into, "wb") as file:
        file.write(written)


def _end_with_parent(parent: IO[bytes]) -> None:
    """Waits until the parent exits, which closes the pipe, then kills this process group.

    A thread does this, as in environment workers. A signal from the kernel on the parent's death
    would miss the processes that the task started, and exists only on Linux.
    """
    parent.read()
    os.killpg(0, signal.SIGKILL)
