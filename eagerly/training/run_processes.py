"""Trains runs in separate processes, each with a log of its output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagerly.storage.files import RunFiles
from eagerly.storage.run_settings import flag_words

# Exit codes of a run stopped by signal N: 128 + N after saving, or -N if the signal arrived before
# the handlers were installed, when there was nothing to save yet.
STOPPED = frozenset(
    code
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for code in (128 + number, -number)
)


def train_command(agent: str, given: Mapping[str, Any], *words: str) -> list[str]:
    """Returns the command that trains a run in a separate process.

    Args:
        agent: Name of the agent.
        given: Settings by name, passed as command-line options.
        words: Further arguments.
    """
    # Without -P, Python would search the working directory for modules first.
    program = [sys.executable, "-P", "-m", "eagerly.scripts.train"]
    return [*program, agent, *flag_words(given), *words]


class TrainingProcess(subprocess.Popen[bytes]):
    """A training process in a new session, so that Ctrl-C reaches only its parent.

    Args:
        command: The command.
        log: The file to which all output is appended. Links are not followed.
        env: Environment variables; None for those of this process.
        pass_fds: File descriptors to inherit.

    Raises:
        OSError: If the log cannot be written or the process cannot be started.
        ValueError: If the log's path exists and is not a regular file.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._files, self._name = RunFiles(log.parent), log.name
        self._log_start = self._files.size(log.name)
        with self._files.open_to_write(log.name, os.O_APPEND | os.O_CREAT) as file:
            super().__init__(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=env,
                pass_fds=pass_fds,
                start_new_session=True,
            )

    def printed(self) -> str:
        """Returns the output of this process so far."""
        with self._files.open(self._name) as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")

    def stop(self, patience: float) -> int:
        """Sends SIGTERM, on which the process saves and exits; kills it if that takes too long.

        Args:
            patience: Seconds to wait before killing it.

        Returns:
            The exit code.
        """
        self.terminate()
        try:
            return self.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.wait()
