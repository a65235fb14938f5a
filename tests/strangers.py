"""Random hostile run directories and command lines.

The cases are part of `make fuzz`, like the accidents of `tests.fuzzing`. Each case copies a small
run into a directory that also contains modules, which leave a trace when imported, and other files,
which must not change. The case attacks through the run in one of the ways in `KINDS`, and opens the
run in every way available to users.

A case fails if:

- one of these modules runs, or a file outside the run changes;
- a setting with effects outside the process is applied without consent;
- an exception other than `RunError` occurs;
- a rejected run is changed;
- a control character is printed;
- too much memory is used, or the process hangs.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import shutil
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

STEPS = 12  # additional steps of cases that continue training
ONE_IN = 4  # one case in four continues training
MOST_MEMORY = 2**18  # the most KiB by which the process may grow in a case

_EVIL = "from pathlib import Path\nPath({trace!r}).write_text('it ran')\nraise SystemExit(3)\n"
_DEEP: Any = []
for _ in range(900):
    _DEEP = {"a": _DEEP}
_ODD: list[Any] = [
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**15, 10**400, -(10**30), 0.5, 1e308, 1e-320,
    float("nan"), float("inf"), "", "x", "0", "1/0", "9" * 15, "\ud800", "\x1b[2J\x07", "../../x",
    "/etc/passwd", "a" * 5000, [], [1], [[]], [None] * 3, [16384] * 12, {}, {"a": 1},
    {"a": {"b": []}}, _DEEP, "$\\foo{$", "a\n| forged |", "E" * 10**5,
    "td3", "ddpg", "evil:X", "run.evil:X", "factory run.evil:X", "os:abort",
    "evil:Evil-v0",
]  # fmt: skip
_MODULES = ("evil", "run.evil", "other.evil", "factory run.evil", "os", "json", "antigravity")


class Stranger:
    """Runs hostile cases against copies of one run.

    Args:
        folder: The folder for the copies.
        base: The directory of the run.
    """

    def __init__(self, folder: Path, base: Path) -> None:
        self._folder, self._base = folder, base
        self.files = sorted(p.relative_to(base).as_posix() for p in base.rglob("*") if p.is_file())
        self.places = sorted(p.relative_to(base).as_posix() for p in base.rglob("*"))

    def run(self, case: int) -> tuple[str, str, str, str]:
        """Runs one case; returns its kind, the change, the outcome and the messages."""
        draw = random.Random(case)
        kind = draw.choice(sorted(KINDS))
        stage = self._folder / f"stranger-{case}"
        shutil.copytree(self._base, stage / "run")
        shutil.copytree(self._base, stage / "outside" / "other")
        (stage / "outside" / "thesis.tmp").write_text("precious")
        trace = stage / "trace"
        for name in ("evil", "run/evil", "other/evil", "factory run/evil", "run/jax", "run/torch"):
            path = stage / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(_EVIL.format(trace=str(trace)))
        done = KINDS[kind](self, stage, draw)
        before, memory = _contents(stage / "outside"), _peak()
        with _standing_in(stage):
            word, said = _cautiously(lambda: self._opened(stage, kind, done, draw))
        if trace.exists():
            word = "BAD: a module ran"
        if _contents(stage / "outside") != before:
            word = "BAD: changed what lies outside"
        if (grown := _peak() - memory) > MOST_MEMORY:
            word = f"BAD: took {grown >> 10} MiB of memory"
        for folder in (stage / "run").rglob("*"):  # a case may have removed permissions
            with suppress(OSError):
                folder.chmod(0o700)
        shutil.rmtree(stage, ignore_errors=True)
        return kind, str(done), word, said

    def _opened(self, stage: Path, kind: str, done: Any, draw: random.Random) -> tuple[str, str]:
        if kind == "command line":
            return _invoked(done)
        said = _read(stage)
        before = _contents(stage / "run")
        from eagerly.errors import RunError

        try:
            goes_on = draw.randrange(ONE_IN) == 0
            lines = _trained(stage / "run", goes_on)
        except RunError as error:
            said.append(str(error))
            changed = {n for n, c in _contents(stage / "run").items() if before.get(n) != c}
            begun = "after step" in str(error)  # training had begun
            if not begun and (changed - {"lock"} or len(_contents(stage / "run")) < len(before)):
                return "BAD: refused, but changed the directory", f"{changed}: {said}"
            return "refused", " / ".join(said)
        if kind == "outside":
            return "BAD: no consent was asked for", " / ".join(said)
        return ("trained on" if goes_on else "opened"), " / ".join(said + lines)

    # --- kinds of attacks ---------------------------------------------------------------------

    def name(self, stage: Path, draw: random.Random) -> str:
        """Sets a field of the run's documents to a module name, and renews the documents' seals."""
        section = draw.choice(["", "settings"])
        key = draw.choice(["agent", "env", "actor", "critic", "models", "env_kwargs", "preset"])
        value: Any = (
            f"{draw.choice(_MODULES)}:{draw.choice(['X', 'X.Y', '__call__', 'Evil-v0', ''])}"
        )
        if key == "env_kwargs":
            value = draw.choice([{"file": value}, value, [value]])
        self._edit(stage, lambda d: (d[section] if section else d).update({key: value}))
        return f"{section}.{key} = {value}"

    def reach(self, stage: Path, draw: random.Random) -> str:
        """Changes settings with effects outside the process, such as addresses and processes."""
        count = draw.choice([1, 3, 64])
        several = {"num_envs": 64, "group_size": 1, "num_collectors": count}
        change = draw.choice(
            [
                {"collectors": draw.choice(["processes", "ray", "ray:127.0.0.1:9"])},
                {"collectors": draw.choice(["processes", "ray:[::1]:9"]), **several},
                {"env_kwargs": draw.choice([{"evil": 1}, {"g": {"/etc/passwd": [1]}}, {"g": 2.0}])},
                {"env_kwargs": {"g": [{"evil:X": {}}]}, "collectors": "ray"},
            ]
        )
        self._edit(stage, lambda document: document["settings"].update(change))
        return str(change)

    def array(self, stage: Path, draw: random.Random) -> str:
        """Replaces an array in a checkpoint with one of another shape, dtype or size."""
        import numpy as np

        from eagerly.storage.arrays import npz_chunks, read_npz
        from eagerly.storage.files import RunFiles

        path = draw.choice(sorted((stage / "run").glob("checkpoints/*/*.npz")))
        with path.open("rb") as file:
            arrays = read_npz(file, path.name)
        name = draw.choice(sorted(arrays))
        old = arrays.pop(name)
        shape: tuple[int, ...] = old.shape
        dtype = draw.choice(
            ["f8", "f4", "i8", "i1", "?", "c16", "S3", "U2", "m8[s]", old.dtype.str]
        )
        change = draw.choice(["empty", "empty", "flat", "deep", "longer", "shorter", "dtype"])
        if change == "empty":
            shape = draw.choice([(10**9, 0), (1, 10**9, 0), (0, 10**9), (0,), (4096, 0)])
        elif change == "flat":
            shape = (old.size,)
        elif change == "deep":
            shape = (1, *shape)
        elif change in ("longer", "shorter") and shape:
            shape = (shape[0] + 1 if change == "longer" else max(shape[0] - 1, 0), *shape[1:])
        content = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            content, {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        )
        size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        content.write(old.astype(dtype, casting="unsafe").tobytes().ljust(size, b"\0")[:size])
        path.write_bytes(b"".join(npz_chunks(arrays)))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"{name}.npy", content.getvalue())
        part = path.relative_to(stage / "run").as_posix()
        described = RunFiles(stage / "run").described(part)
        _edit_sealed(
            path.with_name("manifest.json"),
            lambda document: document["parts"].update({part: described}),
        )
        return f"{path.name}: {name} is {dtype} {shape}"

    def table(self, stage: Path, draw: random.Random) -> str:
        """Writes an oversized or malformed evaluation table."""
        what = draw.choice(["rows", "wide", "header", "quotes", "one line", "numbers"])
        header = "steps,updates,return_mean\n"
        text = {
            "rows": lambda: header + "".join(f"{n},1,2\n" for n in range(2**21)),
            "wide": lambda: header + "1," * 2**23 + "\n",
            "header": lambda: "steps," * 2**22 + "\n1\n",
            "quotes": lambda: header + '"\n",' * 2**22 + "\n",
            "one line": lambda: "1" * 2**24,
            "numbers": lambda: header + f"{'9' * 5000},1,{'9' * 400}\n" * 9,
        }[what]()
        (stage / "run" / "evaluations.csv").write_text(text)
        return what

    def reseal(self, stage: Path, draw: random.Random) -> str:
        """Replaces or deletes a random value in the settings or a manifest, and renews the seal."""
        odd = draw.choice(_ODD)
        paths = [
            stage / "run" / "config.json",
            *(stage / "run").glob("checkpoints/*/manifest.json"),
        ]
        path = draw.choice(paths)
        where: list[Any] = []

        def put(document: Any) -> None:
            while True:
                keys = list(document) if isinstance(document, dict) else range(len(document))
                if not keys:
                    return
                where.append(draw.choice(list(keys)))
                inner = document[where[-1]]
                if not (isinstance(inner, dict | list) and inner) or draw.randrange(4) == 0:
                    break
                document = inner
            if draw.randrange(6) == 0 and isinstance(document, dict):
                del document[where[-1]]
            else:
                document[where[-1]] = odd

        _edit_sealed(path, put)
        return f"{path.parent.name}/{path.name} {where} = {str(odd)[:40]}"

    def link(self, stage: Path, draw: random.Random) -> str:
        """Replaces a file or folder by a symbolic link, or adds a link next to it."""
        outside = stage / "outside"
        target = draw.choice(
            [outside, *sorted(outside.rglob("*")), stage / "nothing", stage / "run"]
        )
        place = draw.choice([*self.places, *(f"{p}.tmp" for p in self.places), *_NEW])
        path = stage / "run" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        _removed(path)
        path.symlink_to(os.path.relpath(target, path.parent) if draw.random() < 0.5 else target)
        return f"{place} -> {target.relative_to(stage)}"

    def hard_link(self, stage: Path, draw: random.Random) -> str:
        """Creates hard links: outside the run to its files, or in the run to a file outside."""
        if draw.random() < 0.3:  # links all files, as `cp -al` does
            shutil.copytree(stage / "run", stage / "outside" / "copy", copy_function=os.link)
            return "all"
        place = draw.choice([*self.files, *(f"{f}.tmp" for f in self.files), "lock", *_NEW])
        path, other = stage / "run" / place, stage / "outside" / "thesis.tmp"
        if path.is_file() and draw.random() < 0.5:
            os.link(path, stage / "outside" / "hard")
            return f"{place} is also outside"
        path.parent.mkdir(parents=True, exist_ok=True)
        _removed(path)
        os.link(other, path)
        return f"thesis is also {place}"

    def stand_in(self, stage: Path, draw: random.Random) -> str:
        """Replaces a file or folder by a pipe, another folder or nothing."""
        place = draw.choice([*self.places, *_NEW])
        path = stage / "run" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        _removed(path)
        what = draw.choice(["pipe", "folder", "full folder", "nothing"])
        if what == "pipe":
            os.mkfifo(path)
        elif what != "nothing":
            path.mkdir()
            if what == "full folder":
                (path / "manifest.json").write_text("{}")
        return f"{place} is a {what}"

    def record(self, stage: Path, draw: random.Random) -> str:
        """Writes event file records with valid header checksums, of any length and content."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

        content = draw.choice(
            [
                draw.randbytes(draw.choice([0, 1, 30])),
                Event(wall_time=draw.choice([0.0, -1e300, float("nan"), 1e308]), step=1)
                .SerializeToString(),
            ]
        )  # fmt: skip
        claimed = draw.choice([len(content), 2**40, 2**63, 2**64 - 1, 2**31, len(content) + 1])
        if draw.randrange(4) == 0:  # many 2-byte values, each of which takes 100 bytes decoded
            content = b"\x2a\x80\x80\x80\x08" + b"\x0a\x00" * 2**23
            claimed = len(content)
        length = struct.pack("<Q", claimed)
        record = length + struct.pack("<I", masked_crc32c(length)) + content
        record += struct.pack("<I", masked_crc32c(content[:100]))  # this checksum need not be valid
        (events, *_) = (stage / "run").glob("events.out.tfevents.*")
        if draw.random() < 0.5:
            with events.open("ab") as file:
                file.write(record * draw.choice([1, 3]))
        else:
            (
                stage / "run" / f"events.out.tfevents.{draw.choice(['0', '9' * 12, 'x'])}"
            ).write_bytes(record)
        return f"{claimed} bytes claimed, {len(content)} there"

    def command_line(self, stage: Path, draw: random.Random) -> list[str]:
        """Returns a command line that gives unusual values to existing options."""
        from eagerly.agents.td3_config import TD3Config
        from eagerly.scripts.flags import options_of, resumable_options
        from eagerly.storage.config import RunConfig

        command = draw.choice(["train", "train", "resume", "evaluate", "plot", "runs"])
        odd = [str(value) for value in _ODD if not isinstance(value, dict | list)]
        # In command-line arguments, Python represents undecodable bytes by \udc80 to \udcff.
        odd = [value.replace("\ud800", "\udcff") for value in odd]
        odd = [value for value in odd if "evil" not in value]  # if users name a module, it may run
        odd += ['{"a": 1}', '{"a": Infinity}', "[", ":", "a:b", "-", "--", "nan", "1,2", "1,", ","]
        words = [command]
        if command in ("train", "resume"):
            options = [*options_of(RunConfig, {}), *options_of(TD3Config, {})]
            if command == "train":
                words += ["td3", "--env", "Pendulum-v1", "--run-dir", "new", "--hidden-sizes", "4"]
                words += ["--steps", "20", "--warmup-steps", "15", "--mode", "eager"]
            else:
                words += ["run"]
                options = resumable_options()
            for option in draw.sample(options, 2):
                flag = draw.choice([*option.opts, *option.secondary_opts])
                words += [flag] if option.is_flag or "/" in flag else [flag, draw.choice(odd)]
        elif command == "evaluate":
            words += ["run", "--episodes", draw.choice(["1", "0", *odd])]
            words += draw.choice([[], ["--which", draw.choice(odd)], ["--seed", draw.choice(odd)]])
        else:
            words += [draw.choice([".", "run", "outside", *odd])]
            if command == "plot":
                words += ["-o", draw.choice(["x.svg", "no/such/x.png", *odd])]
                words += draw.choice([[], ["--x", "time"], ["--until", draw.choice(odd)]])
            else:
                words += draw.choice([[], ["--sort", draw.choice(odd)]])
        return words

    def _edit(self, stage: Path, change: Callable[[dict[str, Any]], Any]) -> None:
        _edit_sealed(stage / "run" / "config.json", change)
        for manifest in (stage / "run").glob("checkpoints/*/manifest.json"):
            _edit_sealed(manifest, lambda document: change(document["config"]))


_NEW = (
    "events.out.tfevents.9.evil", "checkpoints/any", "checkpoints/000000009999-000000000001",
    "plugins", "plugins/profile", "videos", "videos/x.tmp", "replay/x.tmp", "lock.tmp",
    "evaluations.csv.tmp", "config.json.tmp",
)  # fmt: skip
KINDS: dict[str, Callable[[Stranger, Path, random.Random], Any]] = {
    "array": Stranger.array,
    "command line": Stranger.command_line,
    "hard link": Stranger.hard_link,
    "link": Stranger.link,
    "name": Stranger.name,
    "outside": Stranger.reach,
    "record": Stranger.record,
    "resealed": Stranger.reseal,
    "stands in": Stranger.stand_in,
    "table": Stranger.table,
}


def _read(stage: Path) -> list[str]:
    """Reads the run in every way except training, and returns the error messages."""
    from eagerly import load_policy
    from eagerly.curves.tables import read_groups
    from eagerly.errors import RunError
    from eagerly.storage.event_log import seconds_at_evaluations
    from eagerly.storage.listing import runs_below

    before, said = _contents(stage / "run"), []
    assert [run.path.name for run in runs_below(stage)].count("other") == 1
    for read in (
        lambda: load_policy(stage / "run"),
        lambda: read_groups([stage], times=True),
        lambda: read_groups([stage], metric="losses/critic"),
        lambda: seconds_at_evaluations(stage / "run"),
    ):
        try:
            read()
        except RunError as error:
            said.append(str(error))
    assert _contents(stage / "run") == before, "reading changed the directory"
    return said


def _trained(run: Path, goes_on: bool) -> list[str]:
    from eagerly import Trainer, open_run
    from tests.small_runs import logged

    with logged() as lines:
        opened = open_run(run, None, {})
        if goes_on:
            newest = max((int(p.name[:12]) for p in run.glob("checkpoints/*-*")), default=0)
            opened = open_run(run, None, {"steps": max(newest, 0) + STEPS})
        with Trainer(opened) as trainer:
            if goes_on and trainer.config.steps - trainer.steps <= 2 * STEPS:
                trainer.train()
    return lines


def _invoked(words: list[str]) -> tuple[str, str]:
    from click.testing import CliRunner

    from eagerly.scripts.main import main

    result = CliRunner().invoke(main, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"BAD: {type(result.exception).__name__}", f"{words}: {result.exception}"
    if set("\x1b\x07\ud800") & set(result.output):
        return "BAD: a control character was printed", str(words)
    return f"ended with {result.exit_code}", result.output[-300:]


def _cautiously(call: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    try:
        return call()
    except Exception as error:  # any other exception is a bug
        return f"BAD: {type(error).__name__}", str(error)


@contextmanager
def _standing_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        for name in [n for n in sys.modules if n.partition(".")[0] in ("evil", "run", "other")]:
            del sys.modules[name]


def _edit_sealed(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Edits a document and renews its seal, without validation."""
    from eagerly.state import sealed

    document = json.loads(path.read_text())
    document.pop("sha256", None)
    with suppress(KeyError, TypeError, AttributeError):
        change(document)
    path.write_bytes(sealed(document))


def _peak() -> int:
    """Returns the peak memory usage of this process in KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _removed(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _contents(path: Path) -> dict[str, bytes | str]:
    """Returns the content of each file below a folder, and the kind of each other entry."""
    found: dict[str, bytes | str] = {}
    for entry in sorted(path.rglob("*")):
        name = str(entry.relative_to(path))
        if entry.is_symlink():
            found[name] = f"link to {os.readlink(entry)}"
        elif entry.is_file():
            found[name] = entry.read_bytes()
        else:
            found[name] = "folder" if entry.is_dir() else "pipe"
    return found
