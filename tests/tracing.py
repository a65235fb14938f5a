"""Pauses a child process after each system call that changes a file (Linux `ptrace`)."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.ptrace.restype = ctypes.c_long
_LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_SYSCALL, _SEIZE, _GET_SYSCALL_INFO = 24, 0x4206, 0x420E
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000  # TRACESYSGOOD, TRACE(V)FORK, TRACECLONE, EXITKILL
_WALL = 0x40000000
_ENTRY, _EXIT = 1, 2

# System call numbers by name.
_NUMBERS = {
    "x86_64": {
        "open": 2, "openat": 257, "creat": 85, "write": 1, "pwrite64": 18, "writev": 20,
        "pwritev": 296, "fsync": 74, "fdatasync": 75, "rename": 82, "renameat": 264,
        "renameat2": 316, "unlink": 87, "unlinkat": 263, "mkdir": 83, "mkdirat": 258,
        "rmdir": 84, "ftruncate": 77, "truncate": 76, "fallocate": 285, "sendfile": 40,
        "copy_file_range": 326, "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266,
        "access": 21, "faccessat": 269, "faccessat2": 439,
    },
    "aarch64": {
        "openat": 56, "write": 64, "pwrite64": 68, "writev": 66, "pwritev": 70, "fsync": 82,
        "fdatasync": 83, "renameat": 38, "renameat2": 276, "unlinkat": 35, "mkdirat": 34,
        "ftruncate": 46, "truncate": 45, "fallocate": 47, "sendfile": 71,
        "copy_file_range": 285, "linkat": 37, "symlinkat": 36, "faccessat": 48,
        "faccessat2": 439,
    },
}.get(platform.machine(), {})  # fmt: skip
_NAMES = {number: name for name, number in _NUMBERS.items()}
_BY_DESCRIPTOR = {
    "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "ftruncate", "fallocate",
    "sendfile",
}  # fmt: skip
_MARKS = {"access", "faccessat", "faccessat2"}
_OPEN = "/proc/self/fd/"  # in paths, the descriptor of an open folder follows
_MARK = "/mark-of-a-traced-process"


class _Info(ctypes.Structure):
    _fields_ = [
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("pointers", ctypes.c_uint64 * 2),
        ("values", ctypes.c_uint64 * 7),  # on entry: number, 6 arguments; on exit: result
    ]


@dataclass(frozen=True)
class Operation:
    """The name of a system call that changed a file, and the file's path."""

    name: str
    path: str


def can_trace() -> bool:
    """Returns whether processes may trace children, and `_NUMBERS` includes this machine."""
    if not _NAMES:
        return False
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    possible = _LIBC.ptrace(_SEIZE, child, None, _OPTIONS) == 0
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return possible


def traced(run: Callable[[], None], folder: Path) -> Iterator[Operation]:
    """Runs a function in a forked child and yields each of its file operations in a folder.

    Only operations between calls of `begin` and `end` are yielded. At each yield, the child is
    paused: the calling thread right after the operation, and the other threads before their next
    system call. The files therefore equal those of a process that was killed at this point.

    Args:
        run: The function.
        folder: The folder. Operations on files elsewhere are ignored.
    """
    child = os.fork()
    if child == 0:
        try:
            run()
            os._exit(0)
        finally:
            os._exit(1)
    yield from _operations(child, str(folder.resolve()))


def begin() -> None:
    """Starts tracing: stops the process until the tracer resumes it."""
    os.kill(os.getpid(), signal.SIGSTOP)


def end() -> None:
    """Ends tracing."""
    os.access(_MARK, os.F_OK)


def _operations(child: int, folder: str) -> Iterator[Operation]:
    status = os.waitpid(child, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        raise RuntimeError(f"the process ended with {status} before it began to be traced")
    for thread in os.listdir(f"/proc/{child}/task"):
        if _LIBC.ptrace(_SEIZE, int(thread), None, _OPTIONS):
            raise OSError(ctypes.get_errno(), f"thread {thread} cannot be traced")
    os.kill(child, signal.SIGCONT)
    counting, begun = True, {}
    info = _Info()
    while True:
        thread, status = os.waitpid(-1, _WALL)
        if not os.WIFSTOPPED(status):
            if thread != child:
                continue
            if os.WIFEXITED(status) and os.WEXITSTATUS(status):
                raise RuntimeError(f"the traced process ended with {os.WEXITSTATUS(status)}")
            return
        stop, deliver = os.WSTOPSIG(status), 0
        if stop == signal.SIGTRAP | 0x80:
            size = ctypes.sizeof(info)
            _LIBC.ptrace(_GET_SYSCALL_INFO, thread, size, ctypes.addressof(info))
            if info.op == _ENTRY:
                name = _NAMES.get(info.values[0])
                if name and (counting or name in _MARKS):
                    begun[thread] = (name, _path(thread, name, list(info.values[1:7])))
            elif info.op == _EXIT and thread in begun:
                name, path = begun.pop(thread)
                if name in _MARKS:
                    counting = counting and path != _MARK
                elif ctypes.c_int64(info.values[0]).value >= 0 and path.startswith(folder):
                    yield Operation(name, path[len(folder) + 1 :])
        elif stop == signal.SIGSTOP:
            counting = counting or thread == child
        elif stop not in (signal.SIGTRAP, signal.SIGCONT):
            deliver = stop
        _LIBC.ptrace(_SYSCALL, thread, None, deliver)


def _path(thread: int, name: str, arguments: list[int]) -> str:
    """Returns the file that a system call changes, or "" if it only opens a file to read."""
    if name in _BY_DESCRIPTOR or name == "copy_file_range":
        descriptor = arguments[2] if name == "copy_file_range" else arguments[0]
        return _of_descriptor(thread, descriptor)
    at = name.endswith(("at", "at2"))
    pointer = arguments[1] if at else arguments[0]
    if name in ("open", "openat"):
        flags = arguments[2] if at else arguments[1]
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
            return ""
    if name.startswith("symlink"):
        pointer = arguments[2] if at else arguments[1]
    text = _text(thread, pointer)
    if text.startswith(_OPEN):
        number, _, inside = text.removeprefix(_OPEN).partition("/")
        return f"{_of_descriptor(thread, int(number))}/{inside}"
    if text.startswith("/"):
        return text
    descriptor = ctypes.c_int32(arguments[0]).value if at else -100
    base = os.readlink(f"/proc/{thread}/cwd") if descriptor == -100 else ""
    return os.path.normpath(f"{base or _of_descriptor(thread, descriptor)}/{text}")


def _of_descriptor(thread: int, descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/{thread}/fd/{ctypes.c_int32(descriptor).value}")
    except OSError:
        return ""


def _text(thread: int, pointer: int) -> str:
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        memory.seek(pointer)
        content = b""
        while b"\0" not in content and len(content) < 4096:
            content += memory.read(64)
    return content.partition(b"\0")[0].decode(errors="replace")
