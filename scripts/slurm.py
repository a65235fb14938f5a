"""Writes the runs of a batch as a job array for the cluster manager Slurm."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from eagerly.errors import RunError, UsageError
from eagerly.scripts.batch import Batch, check_folder, open_jobs
from eagerly.scripts.output import tell
from eagerly.storage.files import RunFiles

# The batch shell receives SIGTERM 120 s before the time limit, forwards it to the training process
# and waits until that has saved. Exit code 143 means that the run was saved because of SIGTERM.
_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=1-{count}%{jobs}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:TERM@120
#SBATCH --output={logs}
# Add the options of your cluster here, such as --partition, --time, --cpus-per-task and --gres.

cd {here} || exit 1
command=$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" {commands})
[ -n "$command" ] || {{ echo "task $SLURM_ARRAY_TASK_ID has no line in commands.txt"; exit 1; }}
stop() {{ kill -TERM "$process" 2> /dev/null; }}
trap stop TERM
eval "exec $command" &
process=$!
wait "$process"
code=$?
while kill -0 "$process" 2> /dev/null; do  # a signal ended only `wait`
    wait "$process"
    code=$?
done
if [ "$code" -eq 143 ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
fi
exit "$code"
"""


_DEFAULT_MOST = 1000  # highest task number with Slurm's default MaxArraySize


def write_array(batch: Batch) -> None:
    """Writes `array.sh` and `commands.txt`, and prints the command that submits them.

    Line n of `commands.txt` trains or resumes the run of task n. The settings of all runs are
    validated.

    Raises:
        RunError: If a run cannot be opened with its settings, a value contains a line break, the
            folder has the commands of another array or an edited script, or the files cannot be
            written.
    """
    check_folder(batch.folder)
    # Each task has the default number of threads, because tasks do not share cores.
    lines = [shlex.join(job.command) for job in open_jobs(batch, {})]
    if any("\n" in line for line in lines):
        raise UsageError("commands.txt has one line per run: remove line breaks from all values")
    script = _SCRIPT.format(
        name=shlex.quote(batch.folder.name),
        count=len(lines),
        jobs=batch.at_a_time,
        logs=shlex.quote(f"{batch.folder.absolute()}/".replace("%", "%%") + "slurm-%A_%a.log"),
        here=shlex.quote(os.getcwd()),
        commands=shlex.quote(str(batch.folder.absolute() / "commands.txt")),
    )
    commands = "\n".join(lines) + "\n"
    submit = shlex.join(["sbatch", str(batch.folder / "array.sh")])
    _check_same(
        batch.folder / "commands.txt",
        commands,
        "contains the commands of another job array, whose waiting tasks still read it: remove it "
        "after these tasks have ended",
    )
    _check_same(
        batch.folder / "array.sh",
        script,
        f"was edited, or written for other options: submit it with {submit}, remove it",
    )
    try:
        for each in batch.runs:  # the logs are next to the run directories
            each.path.parent.mkdir(parents=True, exist_ok=True)
        files = RunFiles(batch.folder)
        files.write("commands.txt", [commands.encode()])
        files.write("array.sh", [script.encode()])
    except OSError as error:
        raise RunError(f"{batch.folder} cannot be written: {error}") from error
    tell(f"{'tasks':<10}{len(lines)}, one per line of {batch.folder / 'commands.txt'}")
    if len(lines) > _DEFAULT_MOST:
        tell(f"{'limit':<10}MaxArraySize of the cluster must be at least {len(lines) + 1}")
    tell(f"{'submit':<10}{submit}")


def _check_same(path: Path, text: str, why: str) -> None:
    """Raises a `RunError` with the reason `why` if a file exists and has other text."""
    try:
        is_same = path.read_text(encoding="utf-8") == text
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if not is_same:
        raise UsageError(f"{path} {why}, or choose another --run-dir")
