"""Runs code of the README and docs in notebooks, whose cells must print only their own output."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
PROGRAM, PARTS = (
    re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)[index]
    for page, index in (("README.md", 0), ("docs/own-loop.md", -1))
)
BAR = """
from pathlib import Path
import gymnasium as gym
import numpy as np
from eagerly import ProgressBar, Trainer, load_policy, open_run
settings = {"env": "Pendulum-v1", "steps": 1500, "hidden_sizes": [8, 8]}
trainer = Trainer(open_run(Path("runs/more"), "td3", settings), callbacks=[ProgressBar()])
trainer.train()
"""
SWEEP = """
short = {"env": "Pendulum-v1", "steps": 24, "warmup_steps": 20, "hidden_sizes": [8, 8]}
for seed in range(6):
    with Trainer(open_run(Path(f"runs/sweep-{seed}"), "td3", short | {"seed": seed})) as one:
        one.train()
async_settings = {"num_envs": 2, "collectors": "processes", "mode": "eager"}
with Trainer(open_run(Path("runs/async"), "td3", short | async_settings)) as one:
    one.train()
"""
EVALUATION = """
from eagerly import evaluate
policy = load_policy("runs/more", which="latest")
evaluate(policy, gym.make("Pendulum-v1"), episodes=1).returns.shape
"""
PLOT = """
import matplotlib.pyplot as plt
table = np.genfromtxt("runs/own/evaluations.csv", delimiter=",", names=True)
plt.plot(table["steps"], table["return_mean"]);
"""


def _shown(output: Any) -> str:
    """Returns a cell's output: the stream and its text, a displayed value, or a traceback."""
    if output.output_type == "stream":
        return f"{output.name}: {output.text}"
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return output.data.get("text/plain", "")


def _each_line(shown: list[str]) -> str:
    """Returns the printed lines with the prefix "stdout: ", also those that one output combines."""
    return re.sub(r"\n(?=\d)", r"\nstdout: ", "".join(shown))


def _kinds(outputs: list[Any]) -> set[str]:
    """Returns the kinds of a cell's outputs: names of streams, formats, or "error"."""
    return {
        kind
        for output in outputs
        for kind in output.get("data", [output.get("name", output["output_type"])])
    }


def _execute(notebook: Any, tmp_path: Path) -> list[Any]:
    """Executes a notebook in an empty folder and returns its code cells."""
    import nbclient

    (tmp_path / "work").mkdir()
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    environment |= {"PYTHONPATH": str(ROOT), "IPYTHONDIR": str(tmp_path / "ipython")}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    resources = {"metadata": {"path": str(tmp_path / "work")}}
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources=resources, allow_errors=True
    )
    client.execute(env=environment)
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_of_the_docs_was_executed_in_order_without_errors() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    kinds = [_kinds(cell["outputs"]) for cell in code]
    assert all(kinds), kinds  # each cell prints or shows a result
    assert "error" not in set.union(*kinds)


@pytest.mark.long
def test_the_notebook_of_the_docs_runs_in_an_empty_folder(tmp_path: Path) -> None:
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    committed = [_kinds(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]
    cells = _execute(notebook, tmp_path)
    shown = [_shown(output) for cell in cells for output in cell.outputs]
    assert [_kinds(cell.outputs) for cell in cells] == committed, shown


@pytest.mark.long
def test_notebook_cells_print_only_their_results(tmp_path: Path) -> None:
    import nbformat

    cells = [PROGRAM, "import sys; sys.executable", BAR, SWEEP, PARTS, EVALUATION, PLOT]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    program, executable, bar, sweep, parts, evaluation, plot = (
        [_shown(output) for output in cell.outputs] for cell in _execute(notebook, tmp_path)
    )
    number = r"-?\d+\.?\d*(e-?\d+)?"
    assert all(each.startswith("stdout: ") for each in program), program
    text = "".join(each.removeprefix("stdout: ") for each in program)
    assert re.fullmatch(rf"1500 {number} steps\n\[ ?{number}\]\n{number}\n", text), program
    assert executable == [repr(sys.executable)]
    pieces = re.split(r"[\r\n]", "".join(text.removeprefix("stderr: ") for text in bar))
    assert [p for p in pieces if not re.fullmatch(r"\s*(\d+%\|.*\d+/1500 \[.*)?", p)] == []
    assert sweep == []
    assert re.fullmatch(rf"(stdout: \d+ critic loss {number}\n){{10}}", _each_line(parts)), parts
    assert evaluation == ["(1,)"]
    assert len(plot) == 1, plot
    assert plot[0].startswith("<Figure size")
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["pendulum-agent", "runs"]
