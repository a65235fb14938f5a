"""Builds HTML. Everything except `Html` is escaped, because run directories may be hostile."""

from __future__ import annotations

import html
from collections.abc import Sequence

from eagerly.sanitizing import sanitize

_LONGEST = 300  # characters of a text
_MOST_ROWS = 500  # of a table


class Html(str):
    """Text that is HTML already and is not escaped again."""

    __slots__ = ()


Content = Html | str


def element(name: str, *children: Content | None, **attributes: str) -> Html:
    """Returns an HTML element.

    Args:
        name: The name of the element.
        *children: Its content, escaped as by `text`; None is omitted.
        **attributes: Its attributes, escaped. A final underscore is removed (`class_`), and the
            other ones become hyphens. An empty value stands for a boolean attribute. Long values
            are truncated, except for the data in `src`.
    """
    words = [name]
    for key, value in attributes.items():
        key = key.removesuffix("_").replace("_", "-")
        value = value if key == "src" else plain(value)
        words.append(f'{key}="{html.escape(value)}"' if value else key)
    inner = "".join(text(child) for child in children if child is not None)
    return Html(f"<{' '.join(words)}>{inner}</{name}>")


def text(value: Content) -> Html:
    """Returns `plain` text as HTML. HTML is returned unchanged."""
    return value if isinstance(value, Html) else Html(html.escape(plain(value)))


def plain(value: str) -> str:
    """Returns text without control characters, truncated if it is long."""
    return sanitize(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…", lines=False)


def joined(parts: Sequence[Content]) -> Html:
    """Concatenates contents."""
    return Html("".join(map(text, parts)))


def table(
    name: str,
    head: Sequence[Content],
    bodies: Sequence[tuple[Content, Sequence[Sequence[Content]]]],
    *,
    numbers: Sequence[int] = (),
) -> Html:
    """Returns a table that scrolls horizontally if it is too wide, with at most 500 rows.

    Args:
        name: Description for screen readers.
        head: The titles of the columns.
        bodies: The title of each part, or "", and its rows. The first cell of a row is its title.
        numbers: Indices of columns with numbers, which are right-aligned.
    """
    kind = ["number" if index in numbers else "" for index in range(len(head))]
    titles = (_cell("th", each, of, scope="col") for each, of in zip(head, kind, strict=True))
    parts, left = [element("thead", element("tr", *titles))], _MOST_ROWS
    for title, rows in bodies:
        shown = []
        if title:
            cell = element("th", title, colspan=str(len(head)), scope="rowgroup")
            shown.append(element("tr", cell, class_="part"))
        for first, *others in rows[:left]:
            cells = (_cell("td", *pair) for pair in zip(others, kind[1:], strict=True))
            shown.append(element("tr", _cell("th", first, kind[0], scope="row"), *cells))
        left -= min(left, len(rows))
        parts.append(element("tbody", *shown))
    inner = element("table", *parts)
    omitted = sum(len(rows) for _, rows in bodies) - _MOST_ROWS
    more = element("p", f"{omitted:,} more rows are omitted.", class_="note")
    scroll = element("div", inner, class_="scroll", role="region", aria_label=name, tabindex="0")
    return joined([scroll, more] if omitted > 0 else [scroll])


def _cell(name: str, content: Content, kind: str, **attributes: str) -> Html:
    return element(name, content, **({"class_": kind} if kind else {}), **attributes)
