"""The page of a report."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import resources

from eagerly.curves.figures import looks_of
from eagerly.reports.content import Report, counted
from eagerly.reports.drawing import swatch
from eagerly.reports.markup import Html, element
from eagerly.reports.scores import scores_section
from eagerly.reports.sections import (
    curves_section,
    overrides_section,
    runs_section,
    settings_section,
    skipped_section,
    versions_section,
    videos_section,
)
from eagerly.version import __version__

# No network, no scripts. matplotlib writes inline styles.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; media-src data:; base-uri 'none'; "
    "form-action 'none'"
)


def page_of(report: Report) -> str:
    """Returns a report as an HTML page."""
    looks = looks_of(report.lines)
    swatches = {label: swatch(look) for label, look in looks.items()}
    sections = [
        ("curves", "Learning curves", curves_section(report, looks, swatches)),
        ("scores", "Scores", scores_section(report, looks, swatches)),
        ("settings", "Settings that differ", settings_section(report, swatches)),
        ("videos", "Videos", videos_section(report, swatches)),
        ("overrides", "Overrides", overrides_section(report)),
        ("versions", "Versions", versions_section(report)),
        ("runs", "Runs", runs_section(report, swatches)),
    ]
    if report.skipped:
        title = f"Skipped ({len(report.skipped):,})"
        sections.append(("skipped", title, skipped_section(report)))
    count = sum(len(group.curves) for group in report.groups)
    lead = ", ".join(
        (
            counted(count, "run"),
            counted(len(report.groups), "group"),
            counted(len(report.envs), "environment"),
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
