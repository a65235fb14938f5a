"""The check of `tests.prose` finds the constructions that it lists, and only in prose."""

from __future__ import annotations

import pytest

from tests.prose import constructions, paragraphs, units


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Returns the sampler selected by `sampling`.", []),
        ("Makes what draws from the replay buffer.", ["clause in place of a noun", "first word"]),
        ("The callback is told of each episode.", ["data flow as speech"]),
        ("Raises an error. What is the value?", []),
        ('The option `what is said` and the text "said".', []),
        ("An optimiser with 10 000 steps.", ["British spelling", "number without comma"]),
        ("Uses at most as many threads as there are cores.", []),
    ],
)
def test_a_passage_is_marked_by_construction(text: str, names: list[str]) -> None:
    assert constructions(text) == names


def test_units_are_docstrings_comments_messages_and_help() -> None:
    source = '''
"""A module."""
steps = setting(1, "A setting.")  # A comment.
option(help="An option.")
raise ValueError(f"{steps} is wrong")
print("not prose")
'''
    texts = [text for _, text in units(source)]
    assert sorted(texts) == ["# A comment.", "A module.", "A setting.", "An option.", "{} is wrong"]


def test_paragraphs_exclude_code() -> None:
    page = "# Title\n\nOne\nparagraph.\n```python\ncode\n```\nAnother one.\n"
    assert list(paragraphs(page)) == [(1, "# Title"), (3, "One paragraph."), (8, "Another one.")]
