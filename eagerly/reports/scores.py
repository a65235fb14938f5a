"""The tables of scores and comparisons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eagerly.curves.estimates import Estimate, over_runs
from eagerly.curves.groups import RunGroup
from eagerly.curves.reading import METRICS
from eagerly.reports.content import Looks, Report, Swatches, label_of, number_of
from eagerly.reports.drawing import color_of
from eagerly.reports.facts import NO_VALUE
from eagerly.reports.markup import Content, Html, element, joined, table


def scores_section(report: Report, looks: Looks, swatches: Swatches) -> Html:
    """Lists the scores of each group, and the comparisons with the baseline."""

    def rows(groups: Sequence[RunGroup]) -> list[list[Content]]:
        scores = [group.scores for group in groups]
        estimates = [over_runs(values) for values in scores]
        ends = [(e.value, e.low, e.high) for e in estimates]
        found = []
        for group, values, estimate in zip(groups, scores, estimates, strict=True):
            spread = np.std(values, ddof=1) if len(values) > 1 else np.nan
            numbers = (estimate.value, estimate.low, estimate.high, values.mean(), spread)
            iqm, low, high, mean, deviation = map(number_of, numbers)
            interval = NO_VALUE if low == NO_VALUE else f"{low} to {high}"
            where = _range(estimate, np.ravel(ends), color_of(looks[group.label]))
            seeds = ", ".join(str(curve.seed) for curve in group.curves)
            cells = (seeds, f"{group.last:,}", iqm, interval, where, mean, deviation)
            found.append([label_of(group.label, swatches), *cells])
        return found

    early = "before the first update and " if report.selection.metric in METRICS else ""
    what = (
        f"The score of a run is its mean at the last {report.selection.score_last} steps that "
        f"count in all runs of its group. Steps {early}up to the last override of a setting do not "
        "count."
    )
    head = ("group", "seeds", "steps", "IQM", "95 % interval", "", "mean", "std")
    numbers = (2, 3, 4, 6, 7)
    parts = [element("p", what), table("Scores", head, report.by_env(rows), numbers=numbers)]
    if report.comparisons:
        parts += _comparisons(report, swatches)
    return joined(parts)


def _comparisons(report: Report, swatches: Swatches) -> list[Html]:
    head = ("group", "environment", "steps", "difference of IQM", "normalized IQM")
    rows: list[list[Content]] = [
        [
            label_of(found.label, swatches),
            found.where,
            ", ".join(f"{count:,}" for count in dict.fromkeys(found.steps)),
            *(
                NO_VALUE if each is None else str(each)
                for each in (found.difference, found.normalized, found.improvement)
            ),
        ]
        for found in report.comparisons
    ]
    name = f"Comparison with {report.selection.reference}"
    what = (
        "Estimates with 95 % intervals. Normalized: a random policy has 0, the baseline 1. "
        "Probability of improvement: that a run scores higher than a run of the baseline, where a "
        "tie counts as half."
    )
    if report.selection.metric not in METRICS:
        what += " Higher scores count as improvements, even if the metric is a loss."
    made = table(name, (*head, "probability of improvement"), [("", rows)], numbers=(2, 3, 4, 5))
    return [element("h2", name), element("p", what), made]


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
