"""Trains the trials of a study, several runs at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eagerly.errors import NonFiniteError, RunError, UsageError
from eagerly.scripts.batch import Batch, Planned, open_jobs
from eagerly.scripts.job import Job, wait_until_free
from eagerly.scripts.jobs import Jobs
from eagerly.storage.evaluations import format_return
from eagerly.storage.run import open_run
from eagerly.studies.study import Study, failure_of, record_failure
from eagerly.studies.trials import COMPLETE, FAILED, PRUNED, RUNNING, Trial, described
from eagerly.training.signals import StopSignals

# Exit codes of failures that the settings of a trial cause. They are the same at each attempt.
_CAUSED_BY_SETTINGS = (UsageError.exit_code, NonFiniteError.exit_code)
_FAILURES = 3  # a study ends if its first trials fail, this many of them


class Trials(Jobs):
    """Trains the trials of a study. A trial starts once the results that it depends on exist.

    Args:
        study: The study.
        given: Settings that all trials share, by name.
        count: Number of trials.
        threads: Thread counts of new runs, by setting.
        again: The command that continues the study.
        signals: Stop requests.
        progress: Whether to show a progress bar in a terminal.
    """

    def __init__(
        self,
        study: Study,
        given: Mapping[str, Any],
        count: int,
        threads: Mapping[str, int],
        again: str,
        signals: StopSignals,
        *,
        progress: bool,
    ) -> None:
        self.trials: list[Trial] = []
        self._study, self._given, self._count = study, given, count
        self._threads, self._again = threads, again
        self._open: dict[int, list[Job]] = {}  # jobs of the trials that have not ended
        super().__init__([], study.jobs, signals, progress=progress)

    def more(self) -> Sequence[Job]:
        """Returns the jobs of all trials that depend only on trials that have ended."""
        found: list[Job] = []
        while (number := len(self.trials)) < self._count and not self._study.waits(
            number, self.trials
        ):
            found += self._next()
        return found

    def _next(self) -> list[Job]:
        """Proposes the next trial and returns its unfinished jobs."""
        study, number = self._study, len(self.trials)
        self.trials.append(study.propose(number, self.trials))
        drawn = study.given(self.trials[number].drawn)
        self._say(f"trial {number}: {described(drawn)}")
        given, paths = {**self._given, **drawn}, study.runs(number)
        runs = planned(f"trial {number}", study.agent, paths, study.seeds, given)
        for run in runs:
            wait_until_free(run.path)
        if self._end(number):
            return []
        try:
            open_run(None, study.agent, dict(runs[0].given))
        except UsageError as error:  # the values are incompatible with each other
            record_failure(paths[0], str(error))
            self._say(f"trial {number}: {error}")
            self._end(number)
            return []
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        jobs = open_jobs(Batch(runs, study.path, "", "", study.jobs), self._threads)
        for job in jobs:
            if failure_of(job.run.path).is_file():
                job.state = "failed"
        self._open[number] = jobs
        return jobs

    def changed(self, job: Job) -> None:
        """Ends the trial of a job if its result is known, and then stops its other runs."""
        number = next(number for number, jobs in self._open.items() if job in jobs)
        if job.state == "failed" and job.exit_code in _CAUSED_BY_SETTINGS:
            record_failure(job.run.path, job.failure())
        jobs = self._open[number]
        state = self._study.judged(self.trials[number], self.trials).state
        if state != RUNNING:
            for each in jobs:
                if each.state == "running" and state != COMPLETE:
                    each.process.terminate()
                elif each.state == "waiting":
                    each.state = "stopped"
            self._waiting = [each for each in self._waiting if each.state == "waiting"]
            if not any(each.state == "running" for each in jobs):
                del self._open[number]
                self._end(number)
        elif job.state in ("failed", "stopped") and not (
            failure_of(job.run.path).is_file() or self._signals.received
        ):
            why = job.failure() if job.state == "failed" else "stopped by another process"
            raise RunError(
                f"{job.name}: {why}\nThe study is stopped, because its settings may not be the "
                f"cause. To repeat the run: {self._again}\nTo count the trial as failed, first "
                f"create {failure_of(job.run.path)}"
            )

    def _end(self, number: int) -> bool:
        """Judges a trial, and returns whether it has ended.

        Raises:
            RunError: If the first trials have all failed.
        """
        trial = self._study.judged(self.trials[number], self.trials)
        if trial.state == RUNNING:
            return False
        self.trials[number] = trial
        at = f" at step {max(trial.values)}" if trial.state == PRUNED else ""
        score = "" if trial.score is None else f", score {format_return(trial.score)}"
        self._say(f"trial {number}: {trial.state}{at}{score}")
        first = self.trials[:_FAILURES]
        if len(first) == _FAILURES and all(each.state == FAILED for each in first):
            raise RunError(
                f"the first {_FAILURES} trials failed; see the messages above. Correct the space "
                "or the options, and start a new study"
            )
        return True


def planned(
    name: str, agent: str, paths: Sequence[Path], seeds: Sequence[int], given: Mapping[str, Any]
) -> list[Planned]:
    """Returns runs that differ only in the seed.

    Args:
        name: The runs in messages.
        agent: Name of the agent.
        paths: The run directories.
        seeds: The seed of each run.
        given: Settings of all runs.
    """
    return [
        Planned(f"{name}, seed {seed}", path, agent, {**given, "seed": seed})
        for path, seed in zip(paths, seeds, strict=True)
    ]
