"""Stages an export next to its destination, replays it, and renames it into place."""

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
from eagerly.export.children import cpu_environ

TIMEOUT_SECONDS = 600  # for replaying 1,000 examples


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """Creates a temporary folder next to the final one, and removes it if anything fails.

    It is also removed if `publish` has already renamed it. Parent directories created for it are
    removed, too.
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


class _ProbeError(Exception):
    """Raised to make `staged` clean up."""


def check_writable(out: Path) -> None:
    """Checks that a folder can be created next to `out`, and removes it again.

    Raises:
        RunError: If a parent is not a directory.
        OSError: If the folder cannot be created.
    """
    for parent in out.absolute().parents:
        if os.path.lexists(parent):
            if not parent.is_dir():
                raise RunError(f"{out} cannot be written: {parent} is not a directory")
            break
    with suppress(_ProbeError), staged(out):
        raise _ProbeError


def replay(folder: Path) -> None:
    """Runs `python -m runner` on the final files, as a user of the export would.

    Raises:
        RunError: If it fails or takes too long.
    """
    command = [sys.executable, "-B", "-P", "runner"]
    done = _run("replaying the export", command, cwd=folder, env=cpu_environ())
    if done.returncode:
        raise RunError(f"replaying the export failed: {done.stderr.strip()[-2000:]}")


def run_examples(folder: Path) -> None:
    """Compiles and runs `examples.c`.

    Raises:
        RunError: If it fails or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="eagerly-") as private:
        try:
            program = compiled(folder, Path(private, "examples"), "examples.c")
        except RuntimeError as error:
            raise RunError(str(error)) from error
        done = _run("examples.c", [str(program)])
    if done.returncode:
        raise RunError(f"examples.c failed: {done.stdout.strip()}")


def _run(what: str, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS, **more
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"{what} did not finish within {TIMEOUT_SECONDS} seconds") from None


def publish(folder: Path, out: Path) -> None:
    """Flushes the folder to disk and renames it to its final name.

    Raises:
        RunError: If `out` was created in the meantime, even as an empty directory.
        OSError: If `out` cannot be written; `staged` then removes the renamed folder.
    """
    _make_durable(folder)
    try:
        out.mkdir()  # fails if `out` exists; a rename would replace an empty directory
        folder.rename(out)
        _sync(out.absolute().parent)
    except FileExistsError:
        raise RunError(
            f"{out} was created by another program in the meantime: choose another --out"
        ) from None
    except BaseException:
        with suppress(OSError):  # fails if another program has filled it
            out.rmdir()
        raise


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
