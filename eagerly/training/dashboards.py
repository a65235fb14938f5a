"""Layout of TensorBoard's Custom Scalars tab, and a run's settings for its dashboards."""

from __future__ import annotations

from typing import Any

from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as layout_summary
from tensorboard.plugins.hparams import summary_v2 as hp  # `api` imports tf.keras
from tensorboard.plugins.text.summary_v2 import text_pb

from eagerly.agents.agent import Agent
from eagerly.storage.config import RESUMABLE
from eagerly.storage.run import Run
from eagerly.storage.run_settings import format_setting

BEST = "evaluation/return_best"
_MEAN = "evaluation/return_mean"
_METRICS = [
    hp.Metric(BEST, display_name="best return"),
    hp.Metric(_MEAN, display_name="last return"),
]
# Groups of TensorBoard's Custom Scalars tab: title, and the tags of each chart.
_LAYOUT = {
    "Returns": {
        "evaluation": [_MEAN, BEST],
        "evaluation and training": [_MEAN, "training/return_mean"],
        "episode lengths": ["evaluation/length_mean", "training/length_mean"],
    },
    "Values": {
        "critic values and their targets": ["values/mean", "values/target_mean", "values/max"]
    },
    "Losses": {"critics": ["losses/critic"], "actor": ["losses/actor"]},
    "Actions": {"fraction at the bounds": ["actions/saturation"]},
    "Speed": {"steps and updates": ["speed/steps_per_second", "speed/updates_per_second"]},
}


def layout() -> Any:
    """Returns the Custom Scalars layout, with the range of evaluation returns as a band."""
    categories = []
    for title, parts in _LAYOUT.items():
        charts = [
            layout_pb2.Chart(title=name, multiline=layout_pb2.MultilineChartContent(tag=tags))
            for name, tags in parts.items()
        ]
        categories.append(layout_pb2.Category(title=title, chart=charts))
    band = layout_pb2.MarginChartContent.Series(
        value=_MEAN, lower="evaluation/return_min", upper="evaluation/return_max"
    )
    margin = layout_pb2.MarginChartContent(series=[band])
    spread = layout_pb2.Chart(title="evaluation: mean, minimum and maximum", margin=margin)
    categories[0].chart.insert(0, spread)
    return layout_summary.pb(layout_pb2.Layout(category=categories))


def active_settings(run: Run, agent: Agent) -> dict[str, Any]:
    """Returns the settings that take effect and can change the result, and `steps`, by name.

    Values are numbers, booleans or text.
    """
    idle = agent.config.without_effect((agent.observations, agent.actions))
    idle |= run.config.without_effect()
    left_out = {*idle, *RESUMABLE} - {"steps"}
    return {"agent": run.agent} | {
        name: format_setting(value) if isinstance(value, dict | tuple) else value
        for name, value in run.settings().items()
        if name not in left_out
    }


def settings_summaries(run: Run, agent: Agent) -> list[Any]:
    """Returns all settings as a table, and the active ones for the HParams dashboard.

    In the dashboard, the run has the name of its directory.
    """
    rows = "".join(f"| {name} | {value} |\n" for name, value in run.settings().items())
    active = active_settings(run, agent)
    return [
        text_pb("settings", f"| setting | value |\n|---|---|\n{rows}"),
        hp.hparams_config_pb(hparams=[hp.HParam(name) for name in active], metrics=_METRICS),
        hp.hparams_pb(active, trial_id=run.path.name),
    ]
