"""HTML elements escape their content."""

from __future__ import annotations

from html.parser import HTMLParser

from eagerly.reports.markup import Html, element, joined, table


def test_text_and_attributes_are_escaped_and_html_is_kept() -> None:
    made = element("p", "<b>&", Html("<i></i>"), None, class_="a\"'<", aria_label="x", muted="")
    assert made == ('<p class="a&quot;&#x27;&lt;" aria-label="x" muted>&lt;b&gt;&amp;<i></i></p>')
    assert joined(["<", Html("<")]) == "&lt;<"


def test_control_characters_are_visible_and_long_text_is_truncated() -> None:
    assert element("p", "a\x1b[0m\u202e\x00\ud800") == "<p>a\\x1b[0m\\u202e\\x00\\ud800</p>"
    assert len(element("p", "<" * 10**6, title='"' * 10**6)) < 5000
    assert len(element("p", src="x" * 1000)) > 1000  # data are not truncated


def test_tables_align_numbers_and_have_a_limit() -> None:
    made = table("T", ("name", "value"), [("part", [["a", "1"], ["b", "2"]])], numbers=(1,))
    assert '<td class="number">2</td>' in made
    assert '<th colspan="2" scope="rowgroup">part</th>' in made
    rows = [[str(number)] for number in range(400)]
    made = table("T", ("name",), [("one", rows), ("two", rows)])
    assert made.count('scope="row"') == 500
    assert "300 more rows are omitted." in made


def test_every_element_is_closed() -> None:
    opened: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Parser().feed(table("T", ("</table>",), [("</tr>", [["</td>"]])]))
    assert opened == []
