"""The sections of a report, except the scores."""

from __future__ import annotations

from collections.abc import Sequence

from eagerly.curves.estimates import TITLES
from eagerly.curves.figures import unit_of
from eagerly.curves.groups import RunGroup
from eagerly.reports.content import (
    Looks,
    Report,
    Swatches,
    counted,
    label_of,
    number_of,
)
from eagerly.reports.drawing import panel
from eagerly.reports.facts import (
    conditions_of_runs,
    differing_settings,
    overrides,
    values_and_runs,
)
from eagerly.reports.markup import Content, Html, element, joined, table
from eagerly.reports.videos import Video, selected_videos

_MOST_PANELS, _MOST_LINES = 60, 40  # environments, and lines of each
_MOST_NAMES = 20  # videos named in a card


def curves_section(report: Report, looks: Looks, swatches: Swatches) -> Html:
    """Draws the curves of each environment, with a legend and notes."""
    unit, cards, omitted = unit_of(report.lines, report.selection.x), [], 0
    for number, env in enumerate(report.envs):
        lines = [line for line in report.lines if line.group.env == env]
        shown = lines[: _MOST_LINES if number < _MOST_PANELS else 0]
        omitted += len(lines) - len(shown)
        if not shown:
            continue
        name = f"Learning curves in {env}"
        drawing = panel(
            shown, looks, unit, name=name, metric=report.selection.metric, prefix=f"panel{number}-"
        )
        entries = [
            element(
                "li",
                swatches[line.group.label],
                element(
                    "span",
                    line.group.label,
                    " ",
                    element("span", counted(len(line.group.curves), "run"), class_="about"),
                ),
            )
            for line in shown
        ]
        cards.append(
            element(
                "article",
                element("h3", env),
                drawing,
                element("ul", *entries, class_="legend"),
                class_="card",
            )
        )
    statistic = TITLES[report.selection.statistic].capitalize()
    what = f"{statistic} over runs, with 95 % bootstrap intervals."
    parts = [element("p", what), element("div", *cards, class_="cards")]
    notes = list(report.notes)
    if omitted:
        limits = f"a figure has at most {_MOST_LINES} lines, and a page {_MOST_PANELS} figures"
        notes.append(f"{counted(omitted, 'line')} cannot be drawn: {limits}")
    return joined([*parts, *(element("p", f"Note: {note}", class_="note") for note in notes)])


def settings_section(report: Report, swatches: Swatches) -> Html:
    """Lists the settings whose values differ between runs."""
    groups = report.groups[:_MOST_LINES]
    found = differing_settings(groups)
    if not found:
        return element("p", "All runs have the same settings, except for their seeds.")
    several = len(report.envs) > 1
    head = [
        joined(
            [label_of(g.label, swatches), element("span", g.env, class_="about") if several else ""]
        )
        for g in groups
    ]
    rows = [[element("code", name), *cells] for name, cells in found]
    what = (
        "Settings that only one algorithm has are listed if they differ between its runs. A dash "
        "means that the runs do not have the setting."
    )
    if omitted := len(report.groups) - len(groups):
        what += f" The table cannot show {counted(omitted, 'further group')}."
    return joined([element("p", what), table("Settings", ("setting", *head), [("", rows)])])


def videos_section(report: Report, swatches: Swatches) -> Html:
    """Shows a video of each group, if a run of the group recorded one."""
    selected = selected_videos(report.groups)
    if not selected:
        return element(
            "p", "No run has a video. Train runs with --video-every-steps to record videos."
        )
    cards = [_video(group, videos, swatches) for group, videos in selected]
    what = "Each group has the newest video of its best run with videos."
    return joined([element("p", what), element("div", *cards, class_="cards small")])


def _video(group: RunGroup, videos: Sequence[Video], swatches: Swatches) -> Html:
    newest, *others = videos
    if newest.problem:
        shown = element("p", f"Not embedded: {newest.problem}.", class_="missing")
    else:
        name = f"Video of {group.label} in {group.env}"
        options = {"controls": "", "loop": "", "muted": "", "playsinline": ""}
        shown = element("video", src=newest.uri, aria_label=name, **options)
    names = [element("li", element("code", v.name), f", {_size(v.size)}") for v in others]
    more = [
        element("summary", f"{counted(len(others), 'earlier video')}, not embedded"),
        element(
            "ul", *names[:_MOST_NAMES], element("li", "…") if len(names) > _MOST_NAMES else None
        ),
    ]
    place = f"{newest.run}/{newest.name}"
    return element(
        "article",
        element("h3", label_of(group.label, swatches)),
        element("p", f"{group.env}, step {newest.step:,}, {_size(newest.size)}", class_="about"),
        shown,
        element("p", element("code", place), class_="about"),
        element("details", *more) if others else None,
        class_="card",
    )


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def overrides_section(report: Report) -> Html:
    """Lists the settings that were overridden during training."""
    found = overrides(report.groups)
    if not found:
        return element("p", "No setting was overridden during training.")
    rows = [
        [element("code", str(path)), label, step, when, changes]
        for label, path, step, when, changes in found
    ]
    what = "These settings were changed after the given number of environment steps."
    head = ("run", "group", "step", "time", "change")
    return joined([element("p", what), table("Overrides", head, [("", rows)], numbers=(2, 3))])


def versions_section(report: Report) -> Html:
    """Lists the versions of packages, the device and the threads of the runs."""
    conditions = conditions_of_runs(report.groups)
    if not conditions:
        return element("p", "No run has a checkpoint, which contains the versions.")
    rows = [
        [name, element("code", value), runs] for name, value, runs in values_and_runs(conditions)
    ]
    count = counted(len(conditions), "run")
    what = f"The newest checkpoints of {count} contain these versions, devices and threads."
    head = ("name", "value", "runs")
    return joined([element("p", what), table("Versions", head, [("", rows)])])


def runs_section(report: Report, swatches: Swatches) -> Html:
    """Lists the runs with their scores."""

    def rows(groups: Sequence[RunGroup]) -> list[list[Content]]:
        return [
            [
                element("code", str(curve.path)),
                label_of(group.label, swatches),
                str(curve.seed),
                f"{int(curve.steps[-1]):,}",
                number_of(score),
            ]
            for group in groups
            for curve, score in zip(group.curves, group.scores, strict=True)
        ]

    head = ("path", "group", "seed", "last step", "score")
    return table("Runs", head, report.by_env(rows), numbers=(2, 3, 4))


def skipped_section(report: Report) -> Html:
    """Lists damaged runs, runs without evaluations, and others that are not shown."""
    rows = [[element("code", path), reason] for path, reason in report.skipped]
    return table("Skipped", ("path", "reason"), [("", rows)])
