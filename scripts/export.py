"""Exports the policy of a run: `export.py runs/cheetah --format litert --out cheetah`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from eagerly.export.formats import FORMATS, PRECISIONS
from eagerly.scripts.commands import WHICH, Command
from eagerly.scripts.output import TRUST_HELP, echo, log_to_terminal, stdout_to_stderr
from eagerly.storage.config import MOST_EPISODES
from eagerly.storage.evaluations import format_return


@click.command(cls=Command)
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option("--format", type=click.Choice(list(FORMATS)), required=True, help="Model format.")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="float32",
    help="Numeric precision of the model; int8 uses integer arithmetic only.",
)
@WHICH
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Directory to create; it must not exist.",
)
@click.option(
    "--episodes",
    type=click.IntRange(min=0, max=MOST_EPISODES),
    help="Episodes run with the policy and with the exported model to compare returns; 0: none. "
    "[default: 5 for float32, otherwise 20; 0 for a run with --hardware, whose machine they move]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--trust", is_flag=True, help=TRUST_HELP)
def main(
    run_dir: Path,
    format: str,
    precision: str,
    which: str | None,
    out: Path,
    episodes: int | None,
    as_json: bool,
    trust: bool,
) -> None:
    """Export the policy of the run in RUN_DIR to files that need neither eagerly nor TensorFlow.

    The output directory contains the model, policy.json, examples, a model card, and the Python
    package `runner`, which runs the model with NumPy and one runtime. The directory is created only
    if all checks pass.
    """
    log_to_terminal()
    from eagerly.export.exporting import export_policy

    with stdout_to_stderr() if as_json else nullcontext():
        exported = export_policy(
            run_dir,
            format=format,
            precision=precision,
            which=which,
            out=out,
            episodes=episodes,
            trust=trust,
        )
    if as_json:
        found = vars(exported) | {"path": str(exported.path), "run_dir": str(run_dir)}
        click.echo(json.dumps(found))
        return
    echo(
        f"{exported.which} policy of {run_dir} (step {exported.steps}) exported to {out}: "
        f"{format}, {precision}, {sum(exported.files.values()):,} bytes"
    )
    _print_measured(exported.measured)


def _print_measured(measured: Mapping[str, Any]) -> None:
    for name, words in (
        ("differences", "differences from the network"),
        ("differences_to_policy", "differences from the policy"),
    ):
        if values := measured[name]:
            listed = (f"{what.replace('_', ' ')} {value:.2g}" for what, value in values.items())
            echo(f"  {words}: {', '.join(listed)}")
    if measured["returns"]:
        exported, before = (
            format_return(measured["returns"][name]["mean"]) for name in ("exported", "policy")
        )
        count = len(measured["returns"]["policy"]["returns"])
        echo(f"  mean return over {count} episodes: {exported} (original policy: {before})")


if __name__ == "__main__":
    main()
