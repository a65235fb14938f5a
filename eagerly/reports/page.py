"""The sections of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources

import numpy as np

from eagerly.curves.comparison import Comparison
from eagerly.curves.estimates import Estimate, format_number, over_runs
from eagerly.curves.figures import looks_of, unit_of
from eagerly.curves.groups import RunGroup
from eagerly.curves.lines import Line
from eagerly.reports.drawing import color_of, panel, swatch
from eagerly.reports.facts import (
    NO_VALUE,
    conditions_of_runs,
    differing_settings,
    overrides,
    values_and_runs,
)
from eagerly.reports.markup import Content, Html, element, joined, table
from eagerly.reports.videos import Video, selected_videos
from eagerly.version import __version__

# No network, no scripts. matplotlib writes inline styles.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; media-src data:; base-uri 'none'; "
    "form-action 'none'"
)
_MOST_PANELS, _MOST_LINES = 60, 40  # environments, and lines of each
_STATISTICS = {"iqm": "Interquartile mean", "mean": "Mean"}


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        title: Title of the page.
        lines: The line of each group.
        axis: "steps" or "time".
        metric: The metric of the lines.
        statistic: "iqm" or "mean".
        comparisons: Comparisons with the baseline.
        baseline: Label of the baseline, or None.
        notes: Caveats.
        left_out: The path of each omitted run or table, and the reason.
    """

    title: str
    lines: Sequence[Line]
    groups: Sequence[RunGroup]
    axis: str
    metric: str
    statistic: str
    comparisons: Sequence[Comparison]
    baseline: str | None
    notes: Sequence[str]
    left_out: Sequence[tuple[str, str]]

    @property
    def envs(self) -> list[str]:
        """The environments."""
        return list(dict.fromkeys(group.env for group in self.groups))

    def by_env(
        self, rows: Callable[[Sequence[RunGroup]], Sequence[Sequence[Content]]]
    ) -> list[tuple[Content, Sequence[Sequence[Content]]]]:
        """Returns the rows of each environment as a part of a table."""
        return [(env, rows([g for g in self.groups if g.env == env])) for env in self.envs]


def page_of(report: Report) -> str:
    """Returns a report as an HTML page."""
    looks = looks_of(report.lines)
    swatches = {label: swatch(look) for label, look in looks.items()}
    sections = [
        ("curves", "Learning curves", _curves(report, looks, swatches)),
        ("scores", "Scores", _scores(report, looks, swatches)),
        ("settings", "Settings that differ", _settings(report, swatches)),
        ("videos", "Videos", _videos(report, swatches)),
        ("overrides", "Overrides", _overrides(report)),
        ("versions", "Versions", _versions(report)),
        ("runs", "Runs", _runs(report, swatches)),
    ]
    count = sum(len(group.curves) for group in report.groups)
    lead = ", ".join(
        (
            _counted(count, "run"),
            _counted(len(report.groups), "group"),
            _counted(len(report.envs), "environment"),
        )
    )
    links = [element("a", title, href=f"#{name}") for name, title, _ in sections]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = element(
        "body",
        element(
            "header",
            element("h1", report.title),
            element("p", lead, class_="lead"),
            element("nav", *links),
        ),
        element(
            "main",
            *(
                element("section", element("h2", title), content, id=name)
                for name, title, content in sections
            ),
        ),
        element("footer", f"Created on {now} by eagerly {__version__}."),
    )
    style = resources.files("eagerly.reports").joinpath("page.css").read_text("utf-8")
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", report.title),
        element("style", Html(style)),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _label(label: str, swatches: Mapping[str, Html]) -> Html:
    return element("span", swatches[label], element("span", label), class_="label")


def _paragraph(text: Content) -> Html:
    return element("p", text)


def _curves(
    report: Report, looks: Mapping[str, dict[str, str]], swatches: Mapping[str, Html]
) -> Html:
    unit, cards, omitted = unit_of(report.lines, report.axis), [], 0
    for number, env in enumerate(report.envs):
        lines = [line for line in report.lines if line.group.env == env]
        shown = lines[: _MOST_LINES if number < _MOST_PANELS else 0]
        omitted += len(lines) - len(shown)
        if not shown:
            continue
        name = f"Learning curves in {env}"
        drawing = panel(
            shown, looks, unit, name=name, metric=report.metric, prefix=f"panel{number}-"
        )
        entries = [
            element(
                "li",
                swatches[line.group.label],
                element(
                    "span",
                    line.group.label,
                    " ",
                    element("span", _counted(len(line.group.curves), "run"), class_="about"),
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
    what = f"{_STATISTICS[report.statistic]} over runs, with 95 % bootstrap intervals."
    parts = [_paragraph(what), element("div", *cards, class_="cards")]
    notes = [*report.notes, *([f"{_counted(omitted, 'line')} not drawn."] if omitted else [])]
    return joined([*parts, *(element("p", note, class_="note") for note in notes)])


def _scores(
    report: Report, looks: Mapping[str, dict[str, str]], swatches: Mapping[str, Html]
) -> Html:
    def rows(groups: Sequence[RunGroup]) -> list[list[Content]]:
        scores = [group.scores for group in groups]
        estimates = [over_runs(values) for values in scores]
        ends = [(e.value, e.low, e.high) for e in estimates]
        found = []
        for group, values, estimate in zip(groups, scores, estimates, strict=True):
            spread = np.std(values, ddof=1) if len(values) > 1 else np.nan
            numbers = (estimate.value, estimate.low, estimate.high, values.mean(), spread)
            iqm, low, high, mean, deviation = map(_number, numbers)
            interval = NO_VALUE if low == NO_VALUE else f"{low} to {high}"
            where = _range(estimate, np.ravel(ends), color_of(looks[group.label]))
            seeds = ", ".join(str(curve.seed) for curve in group.curves)
            cells = (seeds, f"{group.last:,}", iqm, interval, where, mean, deviation)
            found.append([_label(group.label, swatches), *cells])
        return found

    what = "The score of a run is the mean of its last three evaluations that all runs share."
    head = ("group", "seeds", "steps", "IQM", "95 % interval", "", "mean", "std")
    numbers = (2, 3, 4, 6, 7)
    parts = [_paragraph(what), table("Scores", head, report.by_env(rows), numbers=numbers)]
    if report.comparisons:
        parts += _comparisons(report, swatches)
    return joined(parts)


def _comparisons(report: Report, swatches: Mapping[str, Html]) -> list[Html]:
    head = ("group", "environment", "steps", "difference of IQM", "normalized IQM")
    rows: list[list[Content]] = [
        [
            _label(found.label, swatches),
            found.where,
            ", ".join(f"{count:,}" for count in dict.fromkeys(found.steps)),
            *(
                NO_VALUE if each is None else str(each)
                for each in (found.difference, found.normalized, found.improvement)
            ),
        ]
        for found in report.comparisons
    ]
    name = f"Comparison with {report.baseline}"
    what = (
        "Estimates with 95 % intervals. Normalized: a random policy has 0, the baseline 1. "
        "Probability of improvement: that a run scores higher than a run of the baseline."
    )
    made = table(name, (*head, "probability of improvement"), [("", rows)], numbers=(2, 3, 4, 5))
    return [element("h2", name), _paragraph(what), made]


def _number(value: float) -> str:
    return format_number(value) if np.isfinite(value) else NO_VALUE


def _range(estimate: Estimate, ends: np.ndarray, color: str) -> Html:
    """Returns a small drawing of an estimate on the scale of its environment."""
    ends = ends[np.isfinite(ends)]
    if not np.isfinite(estimate.value) or not np.ptp(ends) > 0:
        return Html("")

    def place(value: float) -> float:
        return float(100 * (value - ends.min()) / np.ptp(ends))

    marks = [element("i"), element("i", class_="value", style=f"left:{place(estimate.value):.1f}%")]
    if np.isfinite(estimate.low):
        left, right = place(estimate.low), place(estimate.high)
        style = f"left:{left:.1f}%;width:{right - left:.1f}%"
        marks.insert(1, element("i", class_="interval", style=style))
    return element("span", *marks, class_="range", style=f"color:{color}", aria_hidden="true")


def _settings(report: Report, swatches: Mapping[str, Html]) -> Html:
    found = differing_settings(report.groups)
    if not found:
        return _paragraph("All runs have the same settings, except for their seeds.")
    several = len(report.envs) > 1
    head = [
        joined(
            [_label(g.label, swatches), element("span", g.env, class_="about") if several else ""]
        )
        for g in report.groups
    ]
    rows = [[element("code", name), *cells] for name, cells in found]
    what = "Settings that only one algorithm has are omitted."
    return joined([_paragraph(what), table("Settings", ("setting", *head), [("", rows)])])


def _videos(report: Report, swatches: Mapping[str, Html]) -> Html:
    selected = selected_videos(report.groups)
    if not selected:
        return _paragraph("No run has a video. Option --video-every-steps records some.")
    cards = [_video(group, videos, swatches) for group, videos in selected]
    what = "The newest video of the best run with videos, for each group."
    return joined([_paragraph(what), element("div", *cards, class_="cards small")])


def _video(group: RunGroup, videos: Sequence[Video], swatches: Mapping[str, Html]) -> Html:
    newest, *others = videos
    if newest.problem:
        shown = element("p", f"Not embedded: {newest.problem}.", class_="missing")
    else:
        name = f"Video of {group.label} in {group.env}"
        options = {"controls": "", "loop": "", "muted": "", "playsinline": ""}
        shown = element("video", src=newest.uri, aria_label=name, **options)
    names = [element("li", element("code", v.name), f", {_size(v.size)}") for v in others]
    more = [
        element("summary", f"{_counted(len(others), 'earlier video')}, not embedded"),
        element("ul", *names[:20], element("li", "…") if len(names) > 20 else None),
    ]
    place = f"{newest.run}/{newest.name}"
    return element(
        "article",
        element("h3", _label(group.label, swatches)),
        element("p", f"{group.env}, step {newest.step:,}, {_size(newest.size)}", class_="about"),
        shown,
        element("p", element("code", place), class_="about"),
        element("details", *more) if others else None,
        class_="card",
    )


def _size(count: int) -> str:
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def _overrides(report: Report) -> Html:
    found = overrides(report.groups)
    if not found:
        return _paragraph("No setting was overridden during training.")
    rows = [
        [element("code", str(path)), label, step, when, changes]
        for label, path, step, when, changes in found
    ]
    what = "Settings that were changed during training, with the environment steps completed."
    head = ("run", "group", "step", "time", "change")
    return joined([_paragraph(what), table("Overrides", head, [("", rows)], numbers=(2,))])


def _versions(report: Report) -> Html:
    conditions = conditions_of_runs(report.groups)
    if not conditions:
        return _paragraph("No run has a checkpoint, which contains the versions.")
    rows = [
        [name, element("code", value), runs] for name, value, runs in values_and_runs(conditions)
    ]
    count = _counted(len(conditions), "run")
    what = f"As stored in the newest checkpoints of {count}, with the device and threads."
    head = ("name", "value", "runs")
    return joined([_paragraph(what), table("Versions", head, [("", rows)])])


def _runs(report: Report, swatches: Mapping[str, Html]) -> Html:
    def rows(groups: Sequence[RunGroup]) -> list[list[Content]]:
        return [
            [
                element("code", str(curve.path)),
                _label(group.label, swatches),
                str(curve.seed),
                f"{int(curve.steps[-1]):,}",
                _number(score),
            ]
            for group in groups
            for curve, score in zip(group.curves, group.scores, strict=True)
        ]

    head = ("path", "group", "seed", "last step", "score")
    parts = [table("Runs", head, report.by_env(rows), numbers=(2, 3, 4))]
    if report.left_out:
        found = [[element("code", path), reason] for path, reason in report.left_out]
        parts += [
            element("h2", f"Left out ({len(found):,})", id="left-out"),
            table("Left out", ("path", "reason"), [("", found)]),
        ]
    return joined(parts)
