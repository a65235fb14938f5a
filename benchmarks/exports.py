"""Measures the call time of exported policies relative to `load_policy`.

Run `exports.py` in an environment with the extra `export`. It trains one feed-forward and one
recurrent policy for a few steps, because the time of a call does not depend on learning. In each
round, every policy is called a hundred times, all in the same process. Ratios compare times of
the same round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # set before importing NumPy; the runtimes also get one thread

import numpy as np

from eagerly import load_policy
from eagerly.benchmarks.measuring import check_quiet, machine, ratios, spread
from eagerly.export import runner

TABLE = Path(__file__).parent / "results" / "exports.md"
ROUNDS, CALLS = 100, 100
TRAINING = ["--env", "HalfCheetah-v5", "--steps", "1200", "--warmup-steps", "1000"]
TRAINING += [
    "--normalize-observations",
    "--evaluate-every-steps",
    "1200",
    "--evaluation-episodes",
    "1",
]
MEMORY = ["--memory", "gru"]
EXPORTS = {
    "LiteRT, float32": ("plain", "litert", "float32"),
    "LiteRT, float16": ("plain", "litert", "float16"),
    "LiteRT, int8": ("plain", "litert", "int8"),
    "ONNX": ("plain", "onnx", "float32"),
    "C, float32": ("plain", "c", "float32"),
    "C, int8": ("plain", "c", "int8"),
    "GRU, LiteRT, float32": ("memory", "litert", "float32"),
    "GRU, ONNX": ("memory", "onnx", "float32"),
    "GRU, C, float32": ("memory", "c", "float32"),
}
Call = Callable[[], Any]


def _command(*words: str | Path) -> None:
    code = "from eagerly.scripts.main import main; main()"
    command = [sys.executable, "-c", code, *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def trained(folder: Path) -> dict[str, Path]:
    """Trains a run of each kind and returns the run directories."""
    runs = {}
    for kind, more in (("plain", []), ("memory", MEMORY)):
        runs[kind] = folder / kind
        _command("train", "td3", *TRAINING, *more, "--run-dir", runs[kind])
    return runs


def in_episode(policy: Any, begin: Callable[[], Any], observation: np.ndarray) -> Call:
    """Returns a function that calls a policy, within an episode if the policy is recurrent."""
    if not policy.remembers:
        return lambda: policy(observation)
    act = begin()
    act(observation)
    return lambda: act(observation, 1.0)


def model_alone(folder: Path) -> Call | None:
    """Returns a function that calls the runtime directly, or None if the export is a C program."""
    model = json.loads((folder / "policy.json").read_text(encoding="utf-8"))["model"]
    given = [np.zeros(spec["shape"], spec["dtype"]) for spec in model["inputs"]]
    if model["format"] == "litert":
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=str(folder / "model.tflite"), num_threads=1)
        interpreter.allocate_tensors()
        inputs, outputs = ([spec["index"] for spec in model[n]] for n in ("inputs", "outputs"))

        def act() -> list[np.ndarray]:
            for index, x in zip(inputs, given, strict=True):
                interpreter.set_tensor(index, x)
            interpreter.invoke()
            return [interpreter.get_tensor(index) for index in outputs]

        return act
    if model["format"] == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
        named = dict(zip((spec["name"] for spec in model["inputs"]), given, strict=True))
        return lambda: session.run(None, named)
    return None


def microseconds(call: Call) -> float:
    """Returns the median time of a call in microseconds."""
    times = []
    for _ in range(CALLS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times)) * 1e6


def measured(folder: Path) -> dict[str, dict[str, list[float]]]:
    """Times all policies, and the models without `runner`, in every round."""
    runs = trained(folder)
    observation = np.random.default_rng(0).normal(size=17).astype(np.float32)
    whole: dict[str, Call] = {}
    alone: dict[str, Call] = {}
    for kind, run in runs.items():
        policy = load_policy(run, "latest")
        whole[kind] = in_episode(policy, policy.start_episode, observation)
    for name, (kind, form, precision) in EXPORTS.items():
        out = folder / name
        _command(
            "export", runs[kind], "--format", form, "--precision", precision,
            "--which", "latest", "--episodes", "0", "--out", out,
        )  # fmt: skip
        exported = runner.Policy(out)
        whole[name] = in_episode(exported, exported.start_episode, observation)
        if (call := model_alone(out)) is not None:
            alone[name] = call
    times: dict[str, dict[str, list[float]]] = {
        "whole": {name: [] for name in whole},
        "alone": {name: [] for name in alone},
    }
    for each in (*whole.values(), *alone.values()):
        microseconds(each)  # warms up caches and lazily initialized runtimes
    for _ in range(ROUNDS):
        for what, calls in (("whole", whole), ("alone", alone)):
            for name, call in calls.items():
                times[what][name].append(microseconds(call))
    return times


def main() -> None:
    """Measures and writes the table."""
    load = check_quiet(False, lambda text: print(text, file=sys.stderr))  # noqa: T201
    with tempfile.TemporaryDirectory(prefix="eagerly-") as folder:
        times = measured(Path(folder))
    host = machine()
    lines = [
        "# Exported policies compared with `load_policy`",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {host['processor']}, {host['cores']} cores, NumPy "
        f"{host['versions']['numpy']}. Before the start, other processes used {load:.1f} cores. "
        "The policies are actors for HalfCheetah-v5: 17 normalized observation values, 6 action "
        "values, two hidden layers of 256 units and, in the rows with GRU, a GRU of the default "
        "size before them. Each call has one observation and uses one thread. "
        f"Times are medians over {ROUNDS} rounds of {CALLS} calls. Ratios are relative to "
        "`load_policy` with the same kind of actor, with 90 % intervals.",
        "",
        "`runner` maps an observation to an action in the environment's units, as `load_policy` "
        "does. *Model only* is the time of calling the runtime directly with tensors, which is "
        "approximately the cost of a call in a program in another language.",
        "",
        "| | with `runner` | ratio | model only | ratio |",
        "|---|---|---|---|---|",
    ]
    for kind, title in (("plain", "`load_policy`"), ("memory", "GRU, `load_policy`")):
        base = times["whole"][kind]
        lines.append(f"| {title} | {spread(base).median:.1f} µs | 1 | | |")
        for name in (name for name, export in EXPORTS.items() if export[0] == kind):
            cells = [name]
            for what in ("whole", "alone"):
                found = times[what].get(name)
                cells += ["", ""] if found is None else [
                    f"{spread(found).median:.1f} µs", str(ratios(found, base))
                ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    sys.stdout.write(TABLE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
