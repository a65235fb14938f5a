"""Runs that train in processes of their own, each with a log of what it prints."""

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

# Exit codes of a run that saved itself because it was asked to end, or that was asked before it
# could listen and had nothing to save.
STOPPED = frozenset(
    code
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for code in (128 + number, -number)
)


def train_command(agent: str, given: Mapping[str, Any], *words: str) -> list[str]:
    """Writes the command that trains a run in a process of its own.

    Args:
        agent: Name of the agent.
        given: Settings by name, as they would be typed.
        words: Further words.
    """
    # -P: otherwise Python looks for every module in the working directory first.
    program = [sys.executable, "-P", "-m", "eagerly.scripts.train"]
    return [*program, agent, *flag_words(given), *words]


class TrainingProcess(subprocess.Popen[bytes]):
    """A process that trains, in a session of its own: Ctrl-C reaches only the process above it.

    Args:
        command: What it runs.
        log: The file to which everything that it prints is appended. A link is not followed.
        env: Its environment variables; None for those of this process.
        pass_fds: File descriptors that it inherits.

    Raises:
        OSError: If the log cannot be written or the process cannot be started.
        ValueError: If something other than a file stands in the place of the log.
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
        """Returns what this process has printed so far."""
        with self._files.open(self._name) as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")

    def stop(self, patience: float) -> int:
        """Asks it to save and end; kills it if that takes too long.

        Args:
            patience: Seconds to wait before it is killed.

        Returns:
            Its exit code.
        """
        self.terminate()
        try:
            return self.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.wait()
