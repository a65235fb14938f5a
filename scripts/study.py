"""Lists and draws a study: `eagerly study DIR`."""

from __future__ import annotations

import json
import warnings
from contextlib import chdir
from pathlib import Path
from typing import Any

import click
import numpy as np

from eagerly.errors import RunError, UsageError
from eagerly.sanitizing import sanitize
from eagerly.scripts.commands import FOLDER, Command
from eagerly.scripts.output import echo
from eagerly.storage.evaluations import format_return
from eagerly.studies.sampling import in_memory, require_optuna
from eagerly.studies.study import Study
from eagerly.studies.trials import COMPLETE, Trial, described


@click.command(cls=Command)
@click.argument("study", type=FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print the trials as one JSON array.")
@click.option(
    "--figures",
    type=FOLDER,
    help="Folder for history.png, importances.png (PED-ANOVA) and slices.png.",
)
@click.option(
    "--journal",
    type=click.Path(path_type=Path, dir_okay=False),
    help="New file with the trials for optuna-dashboard.",
)
def main(study: Path, as_json: bool, figures: Path | None, journal: Path | None) -> None:
    """List the trials in the directory STUDY, the best one first, and draw figures."""
    require_optuna()
    if journal and journal.exists():
        raise UsageError(f"{journal} exists: remove it, or choose another --journal")
    found = Study.read(study)
    trials = found.replayed()
    ranked = sorted(trials, key=_rank)
    if as_json:
        echo(json.dumps([_row(found, trial) for trial in ranked]))
    else:
        echo(f"{'trial':>5}  {'score':>8}  {'state':<8}  settings")
        for trial in ranked:
            score = "" if trial.score is None else format_return(trial.score)
            words = described(found.given(trial.drawn))
            line = f"{trial.number:>5}  {score:>8}  {trial.state:<8}  {words}"
            echo(sanitize(line, lines=False))
        echo(f"digest  {found.digest(trials)}")
    written = _draw(found, trials, figures) if figures else []
    if journal:
        _write_journal(found, trials, journal)
        written.append(f"journal   {journal}: show it with optuna-dashboard {journal}")
    for line in written:
        echo(line, err=as_json)


def _rank(trial: Trial) -> tuple[bool, bool, float]:
    """Returns a key that sorts complete trials first, and higher scores before lower ones."""
    return trial.state != COMPLETE, trial.score is None, -(trial.score or 0.0)


def _row(study: Study, trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": trial.state,
        "score": trial.score,
        "settings": study.given(trial.drawn),
        "values": [[step, value] for step, value in trial.values.items()],
    }


def _draw(study: Study, trials: list[Trial], folder: Path) -> list[str]:
    """Writes figures and returns lines that name them."""
    complete = [trial for trial in trials if trial.state == COMPLETE]
    if len(complete) < 2:
        raise RunError(f"figures need two complete trials; got {len(complete)}")
    with chdir("/"):  # matplotlib reads settings from the working directory on import
        import matplotlib as mpl

        mpl.use("Agg")
        import matplotlib.pyplot as plt
        from optuna.importance import PedAnovaImportanceEvaluator
        from optuna.visualization import matplotlib as figures

    shown = in_memory(trials, study.distributions)
    evaluator = PedAnovaImportanceEvaluator()
    with warnings.catch_warnings():  # about interfaces that may change
        warnings.simplefilter("ignore")
        axes: dict[str, Any] = {
            "history": figures.plot_optimization_history(shown),
            "importances": figures.plot_param_importances(shown, evaluator=evaluator),
            "slices": figures.plot_slice(shown),
        }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, found in axes.items():
            figure: Any = np.ravel(found)[0].figure
            figure.savefig(folder / f"{name}.png", dpi=150, bbox_inches="tight")
            plt.close(figure)
    except OSError as error:
        raise RunError(f"{folder} cannot be written: {error}") from error
    return [f"figure    {folder / f'{name}.png'}" for name in axes]


def _write_journal(study: Study, trials: list[Trial], path: Path) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        storage = JournalStorage(JournalFileBackend(str(path)))
        name = study.path.resolve().name
        written = optuna.create_study(storage=storage, study_name=name, direction="maximize")
        written.add_trials(in_memory(trials, study.distributions).trials)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}") from error


if __name__ == "__main__":
    main()
