"""Compares TensorFlow's summary writer with this package's event log on a full disk.

`python -m eagerly.benchmarks.full_disk` writes points with both, makes all writes fail for a while,
as on a full disk, and writes more points. Then it reads the files as TensorBoard does.
"""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from eagerly.storage.event_log import EventLog

# Scalars per point, and the numbers of points before, while and after all writes fail.
_TAGS, _BEFORE, _MEANWHILE, _AFTER = 20, 5, 30, 5


def tensorflow_writer(folder: Path) -> tuple[Callable[[int], None], Callable[[], None]]:
    """Returns functions that write a point with `tf.summary`'s writer and close it."""
    writer: Any = tf.summary.create_file_writer(str(folder))

    def write(step: int) -> None:
        with writer.as_default(step=step):
            for number in range(_TAGS):
                tf.summary.scalar(f"tag_{number}", float(step))

    return write, writer.close


def run_writer(folder: Path) -> tuple[Callable[[int], None], Callable[[], None]]:
    """Returns functions that write a point with the package's event log and close it."""
    log = EventLog(folder)

    def write(step: int) -> None:
        summary = Summary()
        for number in range(_TAGS):
            # Serialized, because `scalar_pb` returns an object of another Summary class.
            summary.MergeFromString(scalar_pb(f"tag_{number}", float(step)).SerializeToString())
        log.add(step, summary=summary)

    return write, log.close


def readable_steps(folder: Path) -> set[int]:
    """Returns the steps for which TensorBoard shows all scalars."""
    found: dict[int, int] = {}
    for path in folder.glob("events.out.tfevents.*"):
        with suppress(tf.errors.DataLossError):  # TensorBoard stops at a damaged record
            for event in LegacyEventFileLoader(str(path)).Load():
                found[event.step] = found.get(event.step, 0) + len(event.summary.value)
    return {step for step, scalars in found.items() if scalars == _TAGS}


def after_a_full_disk(make: Callable[[Path], Any], folder: Path) -> set[int]:
    """Returns the steps that are readable after a writer ran into a full disk."""
    write, close = make(folder)
    steps = iter(range(1, 1 + _BEFORE + _MEANWHILE + _AFTER))

    def attempt(count: int) -> None:
        for _ in range(count):
            with suppress(OSError, tf.errors.OpError):
                write(next(steps))

    attempt(_BEFORE)
    size = max(path.stat().st_size for path in folder.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # All writes beyond this size fail.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, limits[1]))
    try:
        attempt(_MEANWHILE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    attempt(_AFTER)
    with suppress(OSError, tf.errors.OpError):
        close()
    return readable_steps(folder)


@click.command(help=__doc__)
def main() -> None:
    """Prints the number of readable points per writer."""
    written = _BEFORE + _MEANWHILE + _AFTER
    for name, make in {
        "tf.summary.create_file_writer": tensorflow_writer,
        "eagerly.storage.event_log.EventLog": run_writer,
    }.items():
        with tempfile.TemporaryDirectory() as folder:
            found = after_a_full_disk(make, Path(folder))
        click.echo(
            f"{name}: {len(found)} of {written} points are readable, the last at step {max(found)}"
        )


if __name__ == "__main__":
    main()
