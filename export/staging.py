"""Stages an export beside its destination, replays it, and renames it into place."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from eagerly.errors import RunError
from eagerly.export.c import compiled
from eagerly.export.children import on_processor

TIMEOUT_SECONDS = 600  # for 1000 examples


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Gives a folder beside the one that is to be made, which is removed if anything fails.

    It is removed under its final name, too, if `publish` had given it that.
    """
    missing = [path for path in out.absolute().parents if not path.exists()]
    folder = made = None
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
        made = folder.stat()
        yield folder
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            if made is not None and os.path.samestat(made, out.lstat()):
                shutil.rmtree(out, ignore_errors=True)
        for path in missing:
            with suppress(OSError):
                path.rmdir()
        raise


def replay(folder: Path) -> None:
    """Replays the examples as its user will, with the files as they stay.

    Raises:
        RunError: If that fails or takes too long.
    """
    command = [sys.executable, "-B", "-P", "runner.py"]
    done = _finished("replaying the export", command, cwd=folder, env=on_processor())
    if done.returncode:
        raise RunError(f"the export cannot be replayed: {done.stderr.strip()[-2000:]}")


def run_examples(folder: Path) -> None:
    """Compiles and runs `examples.c`.

    Raises:
        RunError: If that fails or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="eagerly-") as private:
        try:
            program = compiled(folder, Path(private, "examples"), "examples.c")
        except RuntimeError as error:
            raise RunError(str(error)) from error
        done = _finished("examples.c", [str(program)])
    if done.returncode:
        raise RunError(f"examples.c fails: {done.stdout.strip()}")


def _finished(what: str, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS, **more
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{what} did not end within {TIMEOUT_SECONDS} seconds") from None


def publish(folder: Path, out: Path) -> None:
    """Flushes the folder to disk and renames it to its final name.

    Raises:
        RunError: If there is something of that name meanwhile, even an empty directory.
        OSError: If it cannot be written. `staged` then removes what has that name.
    """
    _make_durable(folder)
    if os.path.lexists(out):
        raise _taken(out)
    try:
        out.mkdir()  # fails where there is something, which a rename of directories does not
        folder.rename(out)
        _sync(out.absolute().parent)
    except FileExistsError:
        raise _taken(out) from None
    except BaseException:
        with suppress(OSError):  # if it is empty still
            out.rmdir()
        raise


def _taken(out: Path) -> RunError:
    return RunError(f"{out} was made by somebody else meanwhile")


def _make_durable(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        _sync(path)
    mask = os.umask(0)
    os.umask(mask)
    folder.chmod(0o777 & ~mask)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
