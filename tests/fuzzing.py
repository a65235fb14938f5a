"""Damages run directories at random and checks how they are handled.

`make fuzz` runs `python -m tests.fuzzing --cases 10000`. Of every eight cases, one is from
`tests.unlucky`, three are hostile (`tests.strangers`), and four are accidents. For an accident, a
small run is copied, one file of the copy is damaged, and the copy is opened in the same way as by
`train.py` and `load_policy`. The outcome must be one of these:

- The run resumes from the newest checkpoint or the one before it. All variables, transitions,
  counters and random states match that checkpoint, and damage to curves is logged.
- A `RunError` is raised, and the directory stays unchanged.

In every 50th case, the run also continues training and is compared with an undamaged run. Cases are
reproducible: a case number always damages the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from tests.strangers import Stranger
from tests.unlucky import UnluckyRuns

STEPS = (150, 200)  # the steps at which the two checkpoints are saved
TRAINED_TO = 240
ONE_IN = 50  # training continues in every 50th case
LIMIT_SECONDS = 60
CHUNK = 250  # cases per process
SETTINGS: dict[str, Any] = {
    "env": "Pendulum-v1",
    "steps": STEPS[-1],
    "warmup_steps": 100,
    "replay_ratio": 0.1,
    "updates_per_call": 1,
    "evaluate_every_steps": 60,
    "evaluation_episodes": 1,
    "summarize_every_steps": 20,
    "checkpoint_every_steps": 50,
    "replay_capacity": 130,
    "n_step": 3,
    "sampling": "prioritized",
    "num_envs": 2,
    "exploration": "ornstein_uhlenbeck",
    "hidden_sizes": (8,),
    "batch_size": 16,
    "mode": "eager",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case: the damaged file, the damage, a verdict and the messages."""

    case: int
    file: str
    damage: str
    word: str
    said: str

    @property
    def is_bad(self) -> bool:
        return self.word.startswith("BAD")


class Fuzzer:
    """Runs cases against copies of one run.

    Args:
        folder: The folder for the run and its copies.
    """

    def __init__(self, folder: Path) -> None:
        from tests.small_runs import train_in

        self._folder = folder
        self._base = folder / "base"
        train_in(self._base, **SETTINGS | {"steps": STEPS[0]})
        train_in(self._base, steps=STEPS[-1])
        (self._base / "videos").mkdir()
        (self._base / "videos" / "step-000000000200.mp4").write_bytes(bytes(range(256)) * 4)
        self._files = sorted(
            p.relative_to(self._base) for p in self._base.rglob("*") if p.is_file()
        )
        self._states = self._expected_states()
        straight = train_in(self._copy("straight"), steps=TRAINED_TO)
        self._trained = _digest_of(straight)
        self._stranger = Stranger(folder, self._base)
        self._unlucky = UnluckyRuns(folder)

    def _expected_states(self) -> dict[int, tuple[str, str]]:
        """Returns digests of state and best policy, keyed by the steps of their checkpoint."""
        states = {}
        for steps in reversed(STEPS):
            copy = self._copy(f"expected-{steps}")
            for folder in (copy / "checkpoints").iterdir():
                if int(folder.name[:12]) > steps:
                    shutil.rmtree(folder)
            policy = _policy_digest(copy)
            with closing(_opened(copy)) as trainer:
                assert trainer.steps == steps
                states[steps] = (_digest_of(trainer), policy)
        return states

    def _copy(self, name: str) -> Path:
        return Path(shutil.copytree(self._base, self._folder / name))

    def run(self, case: int) -> Outcome:
        """Runs one case."""
        if case % 8 == 7:
            kind, done, word, said = self._unlucky.run(case)
            return Outcome(case, f"stranger's environment: {kind}", done, word, said)
        if case % 2:
            kind, done, word, said = self._stranger.run(case)
            return Outcome(case, f"stranger: {kind}", done, word, said)
        draw = random.Random(case)
        copy = self._copy(f"case-{case}")
        file = draw.choice(self._files)
        damage = _damage(copy / file, draw)
        before = _contents(copy)
        try:
            word, said = self._opened_as_users_do(copy, before, train_on=case % ONE_IN == 0)
        except Exception as error:  # any other exception is a bug
            word, said = f"BAD: {type(error).__name__}", str(error)
        shutil.rmtree(copy)
        return Outcome(case, _kind(file.as_posix()), damage, word, said)

    def _opened_as_users_do(
        self, copy: Path, before: dict[str, bytes], *, train_on: bool
    ) -> tuple[str, str]:
        from eagerly.errors import RunError
        from eagerly.storage.evaluations import read_results

        for read in (
            lambda: self._check_policy(copy),
            lambda: read_results(copy / "evaluations.csv"),
        ):
            with suppress(RunError):
                read()
        if _contents(copy) != before:
            return "BAD: reading changed the directory", ""
        try:
            trainer = _opened(copy)
        except RunError as error:
            changed = {n for n, c in _contents(copy).items() if before.get(n) != c} - {"lock"}
            if changed or len(_contents(copy)) < len(before):
                return "BAD: refused, but changed the directory", f"{sorted(changed)}: {error}"
            return "refused", str(error)
        with closing(trainer):
            lines = trainer.lines
            said = " / ".join(lines)
            expected = self._states.get(trainer.steps, ("", ""))[0]
            if _digest_of(trainer) != expected:
                return "BAD: another state", said
            curves_said = any("evaluations.csv" in x or "events.out" in x for x in lines)
            harmed = [name for name in _grown(copy) if not _is_prefix(name, copy, self._base)]
            if harmed and not curves_said:
                return "BAD: damaged curves went unsaid", f"{harmed} {said}"
        if train_on:
            from tests.small_runs import train_in

            again = train_in(copy, steps=TRAINED_TO)
            if _digest_of(again) != self._trained:
                return "BAD: trained to another state", said
        where = "the newest" if trainer.steps == STEPS[-1] else "the one before"
        return f"continued from {where}" + (", said what is damaged" if said else ""), said

    def _check_policy(self, copy: Path) -> None:
        if _policy_digest(copy) not in {policy for _, policy in self._states.values()}:
            raise AssertionError("load_policy gave another policy")


def _opened(path: Path) -> Any:
    """Returns a trainer that could resume a run. Its attribute `lines` has the logged lines."""
    from eagerly import Trainer, open_run
    from tests.small_runs import logged

    with logged() as lines:
        trainer = Trainer(open_run(path, None, {}))
    trainer.lines = lines  # type: ignore[attr-defined]
    return trainer


def _policy_digest(path: Path) -> str:
    import numpy as np

    from eagerly import load_policy

    observations = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(4, 3)
    return hashlib.sha256(load_policy(path)(observations).tobytes()).hexdigest()


def _digest_of(trainer: Any) -> str:
    """Returns a digest of the complete state in memory, which determines all further training."""
    from eagerly.state import flatten_state
    from tests.helpers import weights_of

    digest = hashlib.sha256()
    for name, values in sorted(weights_of(trainer.agent).items()):
        digest.update(name.encode() + values.tobytes())
    buffer = trainer.buffer
    digest.update(buffer.rows(buffer.added - len(buffer), buffer.added).tobytes())
    components = trainer.checkpoints._contents.components
    state, arrays = flatten_state({name: part.state() for name, part in components.items()})
    for name, array in sorted(arrays.items()):
        digest.update(name.encode() + array.tobytes())
    state = [state, trainer.updates, trainer.run.settings() | {"steps": 0}]
    digest.update(json.dumps(state, sort_keys=True).encode())
    return digest.hexdigest()


def _damage(path: Path, draw: random.Random) -> str:
    content = bytearray(path.read_bytes())
    kind = draw.choice(["truncate", "flip", "flip", "overwrite", "zero", "append", "delete"])
    start = draw.randrange(len(content) + 1)
    if kind == "delete":
        path.unlink()
        return kind
    if kind == "truncate":
        del content[start:]
    elif kind == "append":
        content += draw.randbytes(draw.choice([1, 8, 500]))
    elif kind == "flip":
        for _ in range(draw.choice([1, 1, 1, 2, 8])):
            if content:
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    else:
        length = min(draw.choice([1, 4, 64, 512]), len(content) - start)
        content[start : start + length] = (
            draw.randbytes(length) if kind == "overwrite" else bytes(length)
        )
    path.write_bytes(content)
    return kind


def _contents(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def _grown(path: Path) -> list[str]:
    return [p.name for p in path.glob("events.out.tfevents.*")] + ["evaluations.csv"]


def _is_prefix(name: str, copy: Path, base: Path) -> bool:
    """Returns whether a file's content is a prefix of the original file, or has no original."""
    if not (base / name).exists():
        return True
    return (copy / name).exists() and (base / name).read_bytes().startswith(
        (copy / name).read_bytes()
    )


def _kind(name: str) -> str:
    """Returns the kind of a file, as named in the table."""
    if name.startswith("checkpoints"):
        newest = "newest" if name.split("/")[1].startswith(f"{STEPS[-1]:012d}") else "one before"
        return f"{newest}: {name.split('/')[2].split('-0')[0]}"
    return name.split("/")[0] if "/" in name else name.split(".tf")[0]


# --- many cases, in processes that may crash -------------------------------------------------


def run_cases(first: int, last: int) -> Iterator[Outcome]:
    """Runs cases in this process."""
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        for case in range(first, last):
            yield fuzzer.run(case)


def _chunk(first: int, last: int) -> list[Outcome]:
    """Runs cases in a child process.

    If it crashes or hangs, that is a bad outcome, and a new process runs the remaining cases.
    """
    outcomes: list[Outcome] = []
    while (begin := first + len(outcomes)) < last:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzzing", "--range", str(begin), str(last)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        for line in process.stdout:
            outcomes.append(Outcome(**json.loads(line)))
        if process.wait() != 0:
            word = f"BAD: the process ended with {process.returncode}"
            outcomes.append(Outcome(first + len(outcomes), "?", "?", word, ""))
    return outcomes


def table(outcomes: list[Outcome]) -> str:
    """Returns a Markdown table that counts the outcomes of each kind of damaged file."""
    words = sorted({outcome.word for outcome in outcomes})
    lines = [f"| damaged | {' | '.join(words)} | cases |", "|---|" + "---|" * (len(words) + 1)]
    for file in [*sorted({outcome.file for outcome in outcomes}), "all"]:
        counts = Counter(o.word for o in outcomes if file in (o.file, "all"))
        cells = " | ".join(str(counts[word] or "") for word in words)
        lines.append(f"| {file} | {cells} | {counts.total()} |")
    return "\n".join(lines)


@click.command()
@click.option("--cases", default=10_000, show_default=True)
@click.option("--jobs", default=2, show_default=True)
@click.option("--range", "range_", type=(int, int), help="Run only these cases, and print JSON.")
def main(cases: int, jobs: int, range_: tuple[int, int] | None) -> None:
    """Fuzzes the loaders and prints two tables; fails if any outcome is bad."""
    if range_:
        signal.alarm(3 * LIMIT_SECONDS)  # kills the process if it hangs, even in C code
        for outcome in run_cases(*range_):
            signal.alarm(LIMIT_SECONDS)
            click.echo(json.dumps(asdict(outcome)))
        return
    began = time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        starts = range(0, cases, CHUNK)
        chunks = pool.map(lambda first: _chunk(first, min(first + CHUNK, cases)), starts)
        outcomes: list[Outcome] = []
        for chunk in chunks:
            outcomes += chunk
            for outcome in chunk:
                if outcome.is_bad:
                    click.echo(outcome, err=True)
    strangers = [outcome for outcome in outcomes if outcome.file.startswith("stranger")]
    click.echo(table([outcome for outcome in outcomes if outcome not in strangers]))
    click.echo(f"\n{table(strangers)}")
    bad = [outcome for outcome in outcomes if outcome.is_bad]
    click.echo(f"\n{len(outcomes)} cases in {time.monotonic() - began:.0f} s, {len(bad)} bad.")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
