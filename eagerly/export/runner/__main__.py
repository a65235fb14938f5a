"""`python -m runner`, or `python path/to/runner`: replays the examples of the export."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, TextIO

import numpy as np

if not __package__:  # started as `python path/to/runner`
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
runner: Any = importlib.import_module(__package__ or "runner")


def main() -> int:
    """Replays the examples of this export and returns the exit code."""
    folder = Path(__file__).resolve().parent.parent
    try:
        policy = runner.Policy(folder)
        runner.check_files(folder, policy.about)
        with np.load(folder / "examples.npz", allow_pickle=False) as file:
            examples = {name: file[name] for name in file.files}
        found = runner.replay(policy, examples)
    except (ImportError, ValueError, OSError, FloatingPointError) as error:
        _write(sys.stderr, f"Error: {error}")
        return 1
    measured = runner.differences(policy.about, found, examples["action"], examples["scores"])
    wrong = runner.violations(measured, policy.about["tolerance"])
    said = ", ".join(f"{name} {value:.3g}" for name, value in measured.items())
    _write(sys.stdout, f"replayed {len(found)} examples, differences: {said}")
    for line in wrong:
        _write(sys.stderr, f"Error: {line}")
    return 1 if wrong else 0


def _write(stream: TextIO | None, line: str) -> None:
    """Writes a line, ignoring a closed stream so that the exit code still reports the result."""
    if stream is None:  # the stream was already closed when Python started
        return
    try:
        stream.write(f"{line}\n")
        stream.flush()
    except BrokenPipeError:
        # Discard the rest of the buffer, which Python would otherwise fail to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    sys.exit(main())
