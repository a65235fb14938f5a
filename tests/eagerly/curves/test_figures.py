"""Figures and CSV tables of lines."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from eagerly.curves.figures import learning_curves, save
from eagerly.curves.groups import Curve, RunGroup
from eagerly.curves.lines import Line, lines_of, write_file, write_lines


def _group(label: str, env: str, *returns: list[float]) -> RunGroup:
    steps = 1000 * np.arange(1, len(returns[0]) + 1)
    curves = (
        Curve(label, env, seed, steps, np.array(values), steps / 10.0, steps > 0)
        for seed, values in enumerate(returns)
    )
    return RunGroup(label, env, tuple(curves))


def _lines(labels_in: dict[str, list[str]]) -> list[Line]:
    groups = [_group(label, env, [0.0]) for env, names in labels_in.items() for label in names]
    return lines_of(groups, "steps", "iqm")


def test_lines_of_one_panel_have_different_colors() -> None:
    names = [f"label {n}" for n in range(12)]
    figure = learning_curves(_lines({"A-v0": names[:6], "B-v0": [*names[:1], *names[6:12]]}))
    for panel in figure.axes[:2]:
        colors = [line.get_color() for line in panel.get_lines()]
        assert len(set(colors)) == len(colors)
    drawn = [line for panel in figure.axes for line in panel.get_lines()]
    looks = {(line.get_color(), line.get_linestyle()) for line in drawn}
    assert len(looks) == 12  # each of the 12 labels has a look


def test_intervals_are_bands_and_of_a_single_point_an_error_bar() -> None:
    groups = [_group("td3", "A-v0", [1.0], [2.0]), _group("ddpg", "A-v0", [1.0])]
    panel, other = learning_curves(
        lines_of([*groups, _group("td3", "B-v0", [1.0, 2.0], [2.0, 3.0])], "steps", "mean")
    ).axes[:2]
    (bar,) = panel.collections
    np.testing.assert_array_equal(bar.get_segments(), [[[1.0, 1.0], [1.0, 2.0]]])
    (band,) = other.collections
    np.testing.assert_array_equal(band.get_datalim(other.transData).extents, [1, 1, 2, 3])


def test_a_notebook_shows_figures_as_images() -> None:
    figure = learning_curves(_lines({"A-v0": ["td3"]}))
    image = plt.imread(BytesIO(figure._repr_png_()))  # IPython calls this method
    assert image.shape[1::-1] == figure.canvas.get_width_height()


@pytest.mark.parametrize("count", [1, 5])
def test_texts_do_not_overlap(count: int) -> None:
    names = [f"td3, actor_learning_rate 0.000{n}, batch_size 256, tau 0.01" for n in range(1, 20)]
    envs = ["dm_control/cartpole-swingup-with-a-long-name-v0", "A-v0", "B-v0", "C-v0", "D-v0"]
    lines = _lines(dict.fromkeys(envs[:count], names))
    figure = learning_curves(lines, metric="evaluation/length_mean", title="Week 12")
    figure.draw_without_rendering()
    boxes = [panel.get_tightbbox() for panel in figure.axes if panel.get_visible()]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    for number, box in enumerate(boxes):
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
        for other in boxes[:number]:
            assert not box.overlaps(other)


def test_pdf_figures_embed_fonts_that_publishers_accept(tmp_path: Path) -> None:
    save(learning_curves(_lines({"A-v0": ["td3"]})), tmp_path / "new" / "x.pdf")
    content = (tmp_path / "new" / "x.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/TrueType" in content or b"/CIDFontType2" in content
    assert b"/Type3" not in content


def test_long_lines_are_thinned_over_the_whole_period() -> None:
    """Over time, the line of runs with different steps still ends where the shorter run ends."""
    steps = [np.arange(1, count + 1) * every for every, count in ((100, 1000), (99, 500))]
    curves = (
        Curve("td3", "A-v0", seed, at, at * 2.0, 3600.0 * at / at[-1], at > 0)
        for seed, at in enumerate(steps)
    )
    group = RunGroup("td3", "A-v0", tuple(curves))
    (over_time,) = lines_of([group], "time", "iqm", 50)
    assert (over_time.places[0], over_time.places[-1]) == (7.2, 3600.0)
    (line,) = lines_of([group], "steps", "iqm", 3)
    assert line.places.tolist() == [9900, 29700, 49500]  # of five common steps
    np.testing.assert_array_equal(line.estimate.value, 2.0 * line.places)


def test_the_lines_are_written_as_a_table(tmp_path: Path) -> None:
    groups = [_group("td3, tau 0.1", "A-v0", [1.0, 2.5], [1.0, 2.5]), _group("td3", "A-v0", [7.0])]
    path = tmp_path / "new" / "x.csv"
    write_lines(lines_of(groups, "steps", "mean"), "steps", path)
    assert path.read_text().splitlines() == [
        "label,environment,steps,value,low,high,seeds",
        '"td3, tau 0.1",A-v0,1000,1.0,1.0,1.0,2',
        '"td3, tau 0.1",A-v0,2000,2.5,2.5,2.5,2',
        "td3,A-v0,1000,7.0,,,1",
    ]
    write_lines(lines_of(groups[:1], "time", "mean"), "time", path)
    rows = path.read_text().splitlines()
    assert rows[0] == "label,environment,seconds,value,low,high,seeds"
    assert rows[-1] == '"td3, tau 0.1",A-v0,200.0,2.5,2.5,2.5,2'
    write_lines(lines_of(groups[1:], "time", "mean"), "time", path)
    assert path.read_text().splitlines()[1:] == ["td3,A-v0,100.0,7.0,,,1"]


def test_devices_are_written_and_not_replaced() -> None:
    ends = os.pipe()
    write_file(Path(f"/dev/fd/{ends[1]}"), b"content")
    assert os.read(ends[0], 99) == b"content"
    for end in ends:
        os.close(end)
