"""The content of a report, and elements that its sections share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eagerly.curves.comparison import Comparison
from eagerly.curves.estimates import format_number
from eagerly.curves.groups import RunGroup
from eagerly.curves.lines import Line
from eagerly.curves.selection import Selection
from eagerly.reports.facts import NO_VALUE
from eagerly.reports.markup import Content, Html, element

Looks = Mapping[str, dict[str, str]]  # color and line style of each label
Swatches = Mapping[str, Html]  # the line swatch of each label


@dataclass(frozen=True)
class Report:
    """The content of a report.

    Attributes:
        title: Title of the page.
        lines: The line of each group.
        groups: The groups, in the same order.
        selection: What the report shows.
        comparisons: Comparisons with the baseline.
        notes: Caveats.
        skipped: The path of each skipped run or table, and the reason.
    """

    title: str
    lines: Sequence[Line]
    groups: Sequence[RunGroup]
    selection: Selection
    comparisons: Sequence[Comparison]
    notes: Sequence[str]
    skipped: Sequence[tuple[str, str]]

    @property
    def envs(self) -> list[str]:
        """The environments."""
        return list(dict.fromkeys(group.env for group in self.groups))

    def by_env(
        self, rows: Callable[[Sequence[RunGroup]], Sequence[Sequence[Content]]]
    ) -> list[tuple[Content, Sequence[Sequence[Content]]]]:
        """Returns the rows of each environment as a part of a table."""
        return [(env, rows([g for g in self.groups if g.env == env])) for env in self.envs]


def counted(count: int, noun: str) -> str:
    """Returns a number with a noun, such as "3 runs"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def label_of(label: str, swatches: Swatches) -> Html:
    """Returns a label preceded by its line swatch."""
    return element("span", swatches[label], element("span", label), class_="label")


def number_of(value: float) -> str:
    """Returns a number as text, or a dash if it is not finite."""
    return format_number(value) if np.isfinite(value) else NO_VALUE
