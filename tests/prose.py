"""Checks that the project's prose reads as native technical English.

`python -m tests.prose` is part of `make lint`; `--list` prints every marked passage. Rewrite a
marked passage with the technical noun and a verb. If its construction is natural English, add an
exception to `ALLOWED`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
CODE = ("agents", "benchmarks", "buffers", "eagerly", "networks", "scripts", "docs/conf.py")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "benchmarks")
MOST_UNITS, MOST_PARAGRAPHS = 0.02, 0.04
_SHOWN = 150  # characters of a passage in the list

CONSTRUCTIONS = {
    "clause in place of a noun": r"\bwhat\b(?! if\b)[^?]*$|\bwhoever\b|\bwhatever\b|\bwhichever\b",
    "data flow as speech": r"\b(says?|said|saying|tells?|told|hears?|heard|speaks?|asks? of)\b",
    "unspecific person": r"\b(some|no|any)body\b",
    "vague verb": (r"\b(stands?|stood|bears?|mends?|goes on|went on|go on|is to be|are to be)\b"),
    "made of": (
        r"\b(makes?|made) (?!use|sure)[\w`,\[\] ]{1,40}\bof (it|them|this|that|what|a|the)\b"
    ),
    "possessive detour": (
        r"\bof (its|their|your|his|her|one's) own\b|\bof (yours|ours|theirs|mine)\b"
    ),
    "pronoun after of": r"\bof (which|whom|it|them)\b",
    "archaism": r"\b(beside|afresh|anew|thereby|hitherto|whereby|whence|thence|dear)\b",
    "alone for only": r"(?<!stand)(?<!stands)\balone\b",
    "count without a number": r"\b(so|as) many\b(?! as\b)",
    "existence clause": (
        r"\bwhere there (is|are)\b|\bthere (is|are) none\b|\bif there is (one|none)\b"
    ),
    "came to be": r"\b(came|comes?) (of|to be)\b|\bas (it|they) (came|comes?)\b",
    "other term": r"\btruth values?\b|\bstep sizes?\b|\bpictures?\b|\bprocessors?\b",
    "British spelling": (
        r"\b\w*(behaviour|colour|favour|neighbour|honour|centre|artefact|modell|labell|cancell)\w*"
        r"|\b\w{3,}(isation|ising|ised|iser)(?<!raised)(?<!raising)(?<!noised)(?<!vised)(?<!vising)\b"
    ),
    "number without comma": r"(?<![\d.,])\d{1,3} \d{3}(?![\d.])",
}
FIRST_WORDS = re.compile(r"(Makes|Takes|Says|Lets|Gives|Refuses|What|Whether|Who|How)\b")
# Natural uses of marked words. They are removed from a passage before constructions are searched.
ALLOWED = (
    r"\bas many( \w+)? as\b",
    r"\bpromised\b|\bsurprised\b|\badvertised\b|\bcomprised\b|\bexercised\b|\bcompromised\b",
)


def units(source: str) -> Iterator[tuple[int, str]]:
    """Yields each docstring, comment, exception message and help text, after its line number."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if text := ast.get_docstring(node):
                yield node.body[0].lineno, text
        elif isinstance(node, ast.Raise) and node.exc is not None:
            yield from ((node.lineno, text) for text in strings(node.exc) if " " in text)
        elif isinstance(node, ast.Call):
            helps = [word.value for word in node.keywords if word.arg == "help"]
            if getattr(node.func, "id", "") == "setting":
                helps += node.args[1:2]
            yield from ((node.lineno, _joined(each)) for each in helps)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def strings(node: ast.AST) -> list[str]:
    """Returns all strings in an expression. The parts of an f-string are joined."""
    if text := _joined(node):
        return [text]
    return [text for child in ast.iter_child_nodes(node) for text in strings(child)]


def _joined(node: ast.AST) -> str:
    """Returns the text of a string, with {} for formatted values, or "" for other expressions."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_joined(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yields the line number and text of each paragraph of a Markdown page, without code blocks."""
    inside, start, lines = False, 1, list[str]()
    for number, line in enumerate([*page.splitlines(), ""], 1):
        fence = line.lstrip().startswith(("```", ":::"))
        if line.strip() and not inside and not fence:
            start = start if lines else number
            lines.append(line.strip())
            continue
        if lines:
            yield start, " ".join(lines)
            lines = []
        inside ^= fence


def constructions(text: str) -> list[str]:
    """Returns the names of the constructions that a passage contains."""
    plain = re.sub(r"`[^`]*`|\"[^\"]*\"|\]\([^)]*\)|https?://\S+", "`", text)
    for allowed in ALLOWED:
        plain = re.sub(allowed, " ", plain)
    plain = " ".join(plain.split())
    sentences = re.split(r"(?<=[.?!:]) ", plain)
    found = {
        name
        for name, pattern in CONSTRUCTIONS.items()
        for each in sentences
        if re.search(pattern, each, re.I)
    }
    return [*sorted(found), *(["first word"] if FIRST_WORDS.match(plain) else [])]


def files(places: tuple[str, ...], ending: str) -> Iterator[Path]:
    """Yields the given files, and the files with an ending in the given folders."""
    for place in places:
        path = ROOT / place
        yield from sorted(path.rglob(f"*{ending}")) if path.is_dir() else [path]


def main() -> int:
    """Prints the shares of marked passages. Returns 1, after an error, if a share is too high."""
    is_wrong = False
    for places, ending, read, most, kind in (
        (CODE, ".py", units, MOST_UNITS, "docstrings, comments, messages and help texts"),
        (PAGES, ".md", paragraphs, MOST_PARAGRAPHS, "paragraphs"),
    ):
        total = marked = 0
        for path in files(places, ending):
            for line, text in read(path.read_text(encoding="utf-8")):
                names, total = constructions(text), total + 1
                marked += bool(names)
                if names and "--list" in sys.argv:
                    shown = " ".join(text.split())[:_SHOWN]
                    place = f"{path.relative_to(ROOT)}:{line}"
                    sys.stdout.write(f"{place}: [{'; '.join(names)}] {shown}\n")
        share = f"{marked / total:.1%} (at most {most:.0%})"
        sys.stdout.write(f"{marked} of {total} {kind} are marked: {share}\n")
        is_wrong |= marked > most * total
    if is_wrong:
        sys.stderr.write(
            "More prose than allowed uses constructions that native technical English avoids: run "
            "`python -m tests.prose --list` and rewrite the marked passages.\n"
        )
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
