"""The timing protocol: fresh processes in turns, ratios within rounds, and 90 % intervals.

Machines are noisy, and noise that lasts minutes distorts whichever contender is running. Therefore,
every contender runs once per round, and ratios compare contenders of the same round.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from scipy.stats import quantile_test

from eagerly.storage.files import RunFiles

CONTENDERS = Path(__file__).parent / "contenders"
# All contenders use the same versions of Gymnasium and MuJoCo.
PEERS = (
    "torch==2.13.0",
    "stable-baselines3==2.9.2",
    "sbx-rl==0.28.0",
    f"gymnasium[mujoco]=={importlib.metadata.version('gymnasium')}",
    f"mujoco=={importlib.metadata.version('mujoco')}",
)
QUIET = 0.2  # cores that other processes may use
START = 2000  # untimed steps: 1000 random ones, then 1000 with updates, to compile and fill caches
_PACKAGES = ("tensorflow", "keras", "numpy", "gymnasium", "mujoco")
_PEER_PACKAGES = ("torch", "stable_baselines3", "sbx", "jax")
BFLOAT16 = "bfloat16"
# Linux's names of vector instructions for matrix products, and their common names.
_VECTORS = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": BFLOAT16, "amx_tile": "AMX"}


class LoadedMachineError(Exception):
    """Another process is using the machine."""


@dataclass(frozen=True)
class Contender:
    """A program that measures itself and prints a line of JSON.

    Attributes:
        name: Name in the tables.
        command: Command line.
    """

    name: str
    command: tuple[str, ...]


def ours(name: str, module: str, *arguments: Any) -> Contender:
    """Returns a contender that runs a module of `eagerly.benchmarks.contenders`."""
    words = [a if isinstance(a, str) else json.dumps(a) for a in arguments]
    return Contender(
        name, (sys.executable, "-m", f"eagerly.benchmarks.contenders.{module}", *words)
    )


def peer(python: Path, name: str, script: str, *arguments: Any) -> Contender:
    """Returns a contender that runs a script in `contenders` with another Python interpreter."""
    return Contender(name, (str(python), str(CONTENDERS / script), *map(str, arguments)))


def peers_python(folder: Path, say: Callable[[str], None]) -> Path:
    """Returns the Python of the peers' virtual environment; installs `PEERS` there if necessary.

    Raises:
        RuntimeError: If the installation fails.
    """
    python, done = folder / "bin" / "python", folder / "installed.txt"
    wanted = "\n".join(PEERS)
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        say(f"installing {', '.join(PEERS)} into {folder}")
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet"]
            subprocess.run([*install, *PEERS], check=True)
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"the peers' environment could not be created: {error}") from error
        done.write_text(wanted, encoding="utf-8")
    return python


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Writes a JSON file; a kill leaves the old or the new one."""
    RunFiles(path.parent).write(path.name, [f"{json.dumps(document, indent=1)}\n".encode()])


def load_of_others(seconds: float = 1.0) -> float:
    """Returns the number of busy cores; call it while no contender is running."""
    return psutil.cpu_percent(seconds) / 100 * (psutil.cpu_count() or 1)


def check_quiet(insist: bool, say: Callable[[str], None]) -> float:
    """Measures the load of other processes and warns if it exceeds `QUIET`.

    Returns:
        The number of cores that other processes use.

    Raises:
        LoadedMachineError: If the load exceeds `QUIET` and `insist` is set.
    """
    load = load_of_others()
    if load > QUIET:
        text = (
            f"THIS MACHINE IS NOT IDLE: other processes use {load:.1f} cores. Under load, "
            "contenders slow down by different factors (PyTorch by five or more)"
        )
        if insist:
            raise LoadedMachineError(f"{text}. Stop them, or measure anyway with --loaded.")
        say(text)
    return load


def run(contender: Contender) -> dict[str, Any]:
    """Runs a contender and returns the last line of its output, parsed as JSON.

    Raises:
        RuntimeError: If the contender fails; the message contains the end of its stderr.
    """
    return dict(json.loads(output_of(contender).splitlines()[-1]))


def output_of(contender: Contender) -> str:
    """Runs a contender and returns its standard output.

    Raises:
        RuntimeError: If the contender fails; the message contains the end of its stderr.
    """
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(contender.command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{contender.name} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def in_turns(
    contenders: Sequence[Contender], rounds: int, say: Callable[[str], None]
) -> dict[str, list[dict[str, Any]]]:
    """Runs every contender once per round, in reverse order in every second round."""
    found: dict[str, list[dict[str, Any]]] = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        for contender in contenders[:: -1 if number % 2 else 1]:
            load = check_quiet(False, say)
            result = run(contender) | {"load_of_others": round(load, 2)}
            found[contender.name].append(result)
            say(f"round {number + 1} of {rounds}: {contender.name}: {_short(result)}")
    return found


def _short(result: dict[str, Any]) -> str:
    if {"seconds", "steps"} <= result.keys():
        return f"{result['steps'] / result['seconds']:.0f} steps/s"
    return ", ".join(f"{k} {v:.3g}" for k, v in result.items() if isinstance(v, int | float))[:120]


@dataclass(frozen=True)
class Spread:
    """A median and its 90 % interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} [{self.low:.3g}, {self.high:.3g}]"


def spread(values: Sequence[float]) -> Spread:
    """Returns the median and its distribution-free 90 % interval from order statistics.

    With fewer than 5 values, the interval spans the minimum and the maximum instead.
    """
    interval = quantile_test(values, p=0.5).confidence_interval(0.90)
    low, high = (
        float(end) if end == end else extreme(values)  # NaN if there are too few values
        for end, extreme in ((interval.low, min), (interval.high, max))
    )
    return Spread(statistics.median(values), low, high)


def ratios(numerators: Sequence[float], denominators: Sequence[float]) -> Spread:
    """Returns the spread of the ratios between values of the same round."""
    return spread([n / d for n, d in zip(numerators, denominators, strict=True)])


def machine() -> dict[str, Any]:
    """Returns a description of this machine and its package versions."""
    cpuinfo = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    of = {key.strip(): value.strip() for key, _, value in lines}
    flags = set(of.get("flags", "").split())
    return {
        "processor": of.get("model name", platform.processor() or platform.machine()),
        "family": f"{of['cpu family']}/{of['model']}" if "cpu family" in of else "",
        "vectors": [name for flag, name in _VECTORS.items() if flag in flags],
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "versions": {package: importlib.metadata.version(package) for package in _PACKAGES},
    }


def machine_text(host: dict[str, Any], peers: dict[str, str]) -> str:
    """Returns a result of `machine` and the versions of the peers' packages as a line of text."""
    # On cloud machines, the model name may contain only the vendor of the CPU.
    about = "; ".join(
        filter(
            None,
            (
                host.get("family") and f"family/model {host['family']}",
                ", ".join(host.get("vectors", ())),
            ),
        )
    )
    versions = ", ".join(
        f"{name} {version}" for name, version in (host["versions"] | peers).items()
    )
    return (
        f"{host['processor']}{f' ({about})' if about else ''}, {host['cores']} cores, "
        f"{host['memory_gib']} GiB. Python {host['python']}, {versions}."
    )


def conditions(found: dict[str, Any]) -> list[str]:
    """Returns the machine, versions and protocol of a table as Markdown."""
    parts = [part for part in (found, *found.values()) if isinstance(part, dict) and "runs" in part]
    results = [result for part in parts for runs in part["runs"].values() for result in runs]
    peers = {key: str(r[key]) for r in results for key in _PEER_PACKAGES if key in r}
    threads = sorted({str(r["threads"]) for r in results if "threads" in r})
    loud = sum(r["load_of_others"] > QUIET for r in results)
    text = [
        f"{found['date']}, {machine_text(found['machine'], peers)} "
        "TensorFlow has 2 intra-op and 2 inter-op threads unless stated otherwise"
        + (f"; PyTorch threads: {', '.join(threads)}." if threads else "."),
        "",
        f"Rounds: {found['rounds']}. In each round, every program runs once, in a fresh process. "
        "Values are medians, with 90 % intervals (from order statistics) in brackets. Ratios "
        "compare runs of the same round.",
    ]
    if loud:
        text += [
            "",
            f"**{loud} of {len(results)} measurements started while other processes used the "
            "machine.**",
        ]
    return text
