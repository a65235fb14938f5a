"""Curves, histograms, the hparams dashboard and the profiler's trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2

from eagerly import Trainer, open_run
from eagerly.training.summaries import Summaries
from tests.small_runs import SMALL, TrainRun, scalars


def hparams(path: Path) -> tuple[Any, Any]:
    """Returns the two inputs of the hparams dashboard: the experiment and the run's settings."""
    events = EventAccumulator(str(path)).Reload()
    found = {}
    for tag in ("experiment", "session_start_info"):
        content = events.SummaryMetadata(f"_hparams_/{tag}").plugin_data.content
        found[tag] = plugin_data_pb2.HParamsPluginData.FromString(content)
    return found["experiment"].experiment, found["session_start_info"].session_start_info


def test_the_hparams_dashboard_relates_settings_to_the_best_return(
    train: TrainRun, tmp_path: Path
) -> None:
    for agent in ("td3", "ddpg"):
        train(agent, agent=agent, steps=300, tau=0.25, hidden_sizes=(8, 8))
    for agent in ("td3", "ddpg"):
        experiment, session = hparams(tmp_path / agent)
        values = {n: v.WhichOneof("kind") and v for n, v in session.hparams.items()}
        assert values["agent"].string_value == agent
        assert values["tau"].number_value == 0.25
        assert values["hidden_sizes"].string_value == "8,8"
        assert values["layer_norm"].bool_value is False
        assert session.group_name == agent
        columns = [info.name for info in experiment.hparam_infos]
        assert {"agent", "env", "tau"} <= set(columns)
        assert set(values) == set(columns)
        assert not {"checkpoint_every_steps", "collectors"} & set(columns)
        idle = {"memory_units", "gumbel_temperature", "random_shift", "encoder_units"}
        assert not (idle | {"ou_theta", "shared_gradient"}) & set(columns)
        assert {"critic_l2": agent == "ddpg", "policy_delay": agent == "td3"} == {
            name: name in values for name in ("critic_l2", "policy_delay")
        }
        metrics = {info.name.tag for info in experiment.metric_infos}
        assert metrics == {"evaluation/return_best", "evaluation/return_mean"}
        assert {(tag, 150) for tag in metrics} <= set(scalars(tmp_path / agent))


def test_the_dashboard_lists_only_active_settings(train: TrainRun, tmp_path: Path) -> None:
    train(env="Gears-v0", steps=20, warmup_steps=10, layer_norm=True)
    experiment, session = hparams(tmp_path / "run")
    columns = {info.name for info in experiment.hparam_infos}
    acting = {"gumbel_temperature", "encoder_units", "ignore_entries", "shared_gradient"}
    assert acting <= set(session.hparams) <= columns
    assert not {"memory_units", "random_shift"} & columns


def test_points_are_means_of_all_values() -> None:
    summaries, nothing = Summaries(open_run(None, "td3", SMALL).config), cast(Any, None)
    for values in ([1.0, 3.0], [6.0]):
        summaries.on_update(nothing, {"loss": np.array(values)})
    assert summaries.state() == {"sums": {"loss": [10.0, 3]}}


def test_the_best_return_never_falls(train: TrainRun, tmp_path: Path) -> None:
    train(evaluate_every_steps=50, actor_learning_rate=0.03)
    found = scalars(tmp_path / "run")
    means = [found["evaluation/return_mean", step][0] for step in range(150, 401, 50)]
    best = [found["evaluation/return_best", step][0] for step in range(150, 401, 50)]
    assert best == np.maximum.accumulate(means).tolist()
    assert best != means


def test_histograms_show_every_weight_of_actor_and_critics(train: TrainRun, tmp_path: Path) -> None:
    train(steps=150, histograms=True, hidden_sizes=(8, 8))
    events = EventAccumulator(str(tmp_path / "run"), size_guidance={"tensors": 0}).Reload()
    tags = {tag for tag in events.Tags()["tensors"] if tag.startswith(("actor/", "critic/"))}
    layers = [*("hidden_0", "hidden_1")]
    expected = {
        f"{model}/{layer}/{part}"
        for model, last in (("actor", "action"), ("critic", "value"))
        for layer in [*layers, last]
        for part in ("kernel", "bias")
    }
    assert tags == expected
    assert [event.step for event in events.Tensors("critic/value/kernel")] == [50, 100, 150]


@pytest.mark.usefixtures("with_graph")
def test_the_graph_of_one_update_is_written_once(train: TrainRun, tmp_path: Path) -> None:
    for steps in (100, 150):
        train(steps=steps, mode="graph")
    graphs = [
        event.graph_def
        for path in (tmp_path / "run").glob("events*")
        for event in EventFileLoader(str(path)).Load()
        if event.HasField("graph_def")
    ]
    assert len(graphs) == 1
    names = {node.name for node in GraphDef.FromString(graphs[0]).node}
    assert any(name.startswith("actor_loss/") for name in names)


# With this ratio, 150 steps require five updates.
FIVE = {"replay_ratio": 0.05}


def test_a_trace_is_written_on_request_and_nothing_else_changes(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", "td3", SMALL | FIVE | {"steps": 150})
    trainer = Trainer(run, profile_calls=2)
    trainer.train()
    trainer.close()
    (trace,) = tmp_path.glob("run/plugins/profile/*/*.xplane.pb")
    assert trace.stat().st_size > 1000
    assert trainer.updates == 5
    short = Trainer(
        open_run(tmp_path / "short", "td3", SMALL | FIVE | {"steps": 125}), profile_calls=9
    )
    short.train()
    short.close()
    assert list(tmp_path.glob("short/plugins/profile/*/*.xplane.pb"))


def test_the_layout_names_only_existing_curves(train: TrainRun, tmp_path: Path) -> None:
    train(steps=300)
    events = EventAccumulator(str(tmp_path / "run"), size_guidance={"tensors": 0}).Reload()
    (event,) = events.Tensors("custom_scalars__config__")
    layout = layout_pb2.Layout.FromString(event.tensor_proto.string_val[0])
    tags = {
        tag
        for category in layout.category
        for chart in category.chart
        for tag in [
            *chart.multiline.tag,
            *(name for one in chart.margin.series for name in (one.value, one.lower, one.upper)),
        ]
    }
    assert len(tags) >= 10
    assert tags <= set(events.Tags()["tensors"])
