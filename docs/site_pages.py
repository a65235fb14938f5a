"""Sphinx extension: dark figures, equations, pages for source files, what the search finds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from pygments.lexers import find_lexer_class_for_filename
from sphinx import addnodes
from sphinx.search.en import SearchEnglish


def _index_settings(app: Any, page: nodes.document) -> None:
    """Adds the settings to the index, so that a search for a name finds its row."""
    if app.env.docname == "docs/settings":
        html = "".join(node.astext() for node in page.findall(nodes.raw))
        names = re.findall(r'<span id="(\w+)">', html)
        page += addnodes.index(entries=[("single", name, name, "main", None) for name in names])


class _Search(SearchEnglish):
    """Finds HER (hindsight experience replay), and "baselines" in Stable-Baselines3."""

    stopwords = SearchEnglish.stopwords - {"her"}

    def split(self, input: str) -> list[str]:
        return super().split(input) + re.findall(r"[A-Za-z]{4,}(?=\d)", input)


def _add_dark_figures(app: Any, page: nodes.document) -> None:
    """Adds the dark variant of each figure that has one; the theme shows one of the two."""
    name = app.env.docname
    for image in list(page.findall(nodes.image)):
        dark = re.sub(r"(\.\w+)$", r"-dark\1", image["uri"])
        if Path(app.env.relfn2path(dark, name)[1]).is_file():
            other = image.deepcopy()
            other["uri"] = dark
            image["classes"].append("only-light")
            other["classes"].append("only-dark")
            image.parent.insert(image.parent.index(image) + 1, other)


def _link_sources(app: Any, page: nodes.document, name: str) -> None:
    """Links a page to the pages of source files instead of downloads."""
    for link in list(page.findall(addnodes.download_reference)):
        path, _ = app.env.relfn2path(link["reftarget"], name)
        uri = app.builder.get_relative_uri(name, f"source/{path}")
        link.replace_self(nodes.reference("", "", *link.children, internal=True, refuri=uri))


def _source_pages(app: Any) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yields a page with highlighted code for each source file that a page links to."""
    for path in app.env.dlfiles:
        code = (Path(app.srcdir) / path).read_text(encoding="utf-8")
        lexer = find_lexer_class_for_filename(str(path))
        language = lexer.aliases[0] if lexer else "text"
        body = f"<h1>{path}</h1>{app.builder.highlighter.highlight_block(code, language)}"
        yield f"source/{path}", {"title": path, "body": body}, "page.html"


def _unlink_folders(app: Any, page: nodes.document) -> None:
    """Replaces links to folders, which have no page, by their text."""
    for link in list(page.findall(addnodes.pending_xref)):
        path = app.env.relfn2path(link["reftarget"], app.env.docname)[1]
        if link["reftype"] == "myst" and not link["refdomain"] and Path(path).is_dir():
            link.replace_self(link.children)


def _write_equation(translator: Any, node: nodes.Element) -> None:
    """Writes an equation as MathML, which browsers display without scripts from elsewhere."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    translator.body.append(f'<span class="math">{convert(node.astext(), display=display)}</span>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Registers the functions above with Sphinx."""
    app.add_search_language(_Search)
    app.add_html_math_renderer("mathml", (_write_equation, None), (_write_equation, None))
    # Before Sphinx collects figures and the index.
    app.connect("doctree-read", _add_dark_figures, priority=400)
    app.connect("doctree-read", _index_settings, priority=400)
    app.connect("doctree-read", _unlink_folders)
    app.connect("doctree-resolved", _link_sources)
    app.connect("html-collect-pages", _source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
