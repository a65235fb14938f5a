"""Draws learning curves as SVG elements that follow the colors of the page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from xml.etree import ElementTree

import matplotlib as mpl
from matplotlib.figure import Figure

from eagerly.curves.figures import COLORS, INK, Unit, draw_line, style_of
from eagerly.curves.lines import Line
from eagerly.reports.markup import Html, element, plain

_GRID = "#b0b0b0"  # matplotlib's default
_SIZE = (4.9, 2.9)  # inches
_DASHES = {"-": "none", "--": "6 3", "-.": "7 3 2 3", ":": "2 3"}
_KEPT = {
    "clip-path",
    "d",
    "height",
    "href",
    "id",
    "style",
    "transform",
    "viewBox",
    "width",
    "x",
    "y",
}


def panel(
    lines: Sequence[Line],
    looks: Mapping[str, dict[str, str]],
    unit: Unit,
    *,
    name: str,
    metric: str,
    prefix: str,
) -> Html:
    """Returns the lines of one environment as an SVG element, without a title and a legend.

    Args:
        lines: The lines.
        looks: Color and line style of each label, from `looks_of`.
        unit: The horizontal unit.
        name: Description for screen readers.
        metric: The metric, for the axis label.
        prefix: A prefix that makes identifiers unique in a page with several figures.
    """
    content = BytesIO()
    # Text remains text, in the font of the page.
    with mpl.rc_context(rc=style_of("light") | {"svg.fonttype": "none", "svg.hashsalt": prefix}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.subplots()
        for line in lines:
            draw_line(axes, line, unit, looks[line.group.label])
        axes.set(xlabel=unit.name, ylabel=metric)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(content, format="svg", transparent=True, metadata=nothing)
    root = ElementTree.fromstring(content.getvalue())
    _adapt(root, prefix)
    root.attrib |= {"role": "img", "aria-label": plain(name)}
    root.attrib = {n: v for n, v in root.attrib.items() if n not in ("height", "width")}
    return Html(ElementTree.tostring(root, encoding="unicode"))


def swatch(look: Mapping[str, str]) -> Html:
    """Returns a short line in the color and style of a label."""
    style = f"stroke:{color_of(look)};stroke-dasharray:{_DASHES[look['linestyle']]}"
    line = element("path", d="M1 5H29", style=style)
    return element("svg", line, class_="swatch", viewBox="0 0 30 10", aria_hidden="true")


def color_of(look: Mapping[str, str]) -> str:
    """Returns the CSS color of a label."""
    return _colored(look["color"])


def _adapt(root: ElementTree.Element, prefix: str) -> None:
    """Uses the colors of the page, makes identifiers unique, and removes other attributes."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):  # a style would apply to the whole page
                parent.remove(child)
    used = set(re.findall(r'(?:url\(#|href="#)([\w-]+)', ElementTree.tostring(root, "unicode")))
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
        attributes = {name.rpartition("}")[2]: value for name, value in each.attrib.items()}
        if attributes.get("id") not in used:
            attributes.pop("id", None)
        each.attrib = {}
        for name, value in attributes.items():
            if name == "id":
                value = prefix + value
            elif name == "style":
                value = _colored(value)
            elif name in ("href", "clip-path"):
                value = value.replace("#", f"#{prefix}")
            if name in _KEPT:
                each.attrib[name] = value


def _colored(style: str) -> str:
    """Replaces the colors in a CSS style by the ink of the page and its variables."""
    style = style.replace(INK["light"][0], "currentColor")
    style = style.replace(_GRID, "var(--grid)")
    for number, color in enumerate(COLORS):
        style = style.replace(color, f"var(--line-{number})")
    return style
