"""Checks the README and docs: code blocks run; links, commands and quoted code exist."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import eagerly
from eagerly.agents import agent_class, agent_names
from eagerly.settings import flag_name
from eagerly.storage.config import RunConfig

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

# A code block that quotes a file of the repository without comments and docstrings.
QUOTED = r"```python of=(\S+)\n(.*?)```"


def _blocks(page: Path) -> list[str]:
    """Returns a page's Python blocks; a "continued" block is appended to the previous one.

    Blocks that require other packages are marked `py` and omitted.
    """
    blocks: list[str] = []
    for mark, block in re.findall(r"```python( continued)?\n(.*?)```", page.read_text(), re.S):
        if mark:
            blocks[-1] += block
        else:
            blocks.append(block)
    return blocks


BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(_blocks(page))
]


# The tests only check that blocks run, so they use small networks, few updates and eager mode.
# `test_notebook` runs the README's blocks unchanged, and XLA is tested elsewhere.
SMALL = {"mode": "eager", "hidden_sizes": (8,), "evaluation_episodes": 1}
SMALL |= {"replay_ratio": 0.01, "updates_per_call": 1}
SMALLER = {
    '"mode": "graph"': '"mode": "eager"',
    '"memory": "gru", "steps"': '"memory": "gru", "memory_units": 8, "sequence_length": 3, "steps"',
    '"updates_per_call": 10, "replay_ratio": 0.1': '"updates_per_call": 10, "replay_ratio": 0.025',
    '"replay_ratio": 0.05, "updates_per_call": 10': '"replay_ratio": 0.01, "updates_per_call": 2',
    '"sequence_length": 8': '"sequence_length": 3',
    "TD3(env, ": 'TD3(env, mode="eager", ',
    "TD3(*spaces, ": 'TD3(*spaces, mode="eager", ',
    "(2,)), actor=": '(2,)), mode="eager", actor=',
    "updates=50": "updates=2",
    "updates_per_call=50": "updates_per_call=2",
    "updates=10)": "updates=2)",
}


def test_every_replacement_occurs_in_the_docs() -> None:
    whole = "".join(block for page in PAGES for block in _blocks(page))
    assert [text for text in SMALLER if text not in whole] == []


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, smaller in SMALLER.items():
        block = block.replace(text, smaller)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    train = eagerly.train
    # Settings in the code block take precedence over `SMALL`.
    monkeypatch.setattr(
        eagerly, "train", lambda agent, env, **more: train(agent, env, **SMALL | more)
    )
    # A custom loop continues if its program is started again.
    for _ in range(2 if "LoopCheckpoints(" in block else 1):
        names: dict[str, object] = {}
        exec(compile(block, "block", "exec"), names)
        names.clear()  # unlocks directories


def test_quoted_code_matches_its_file() -> None:
    quoted = [found for page in PAGES for found in re.findall(QUOTED, page.read_text(), re.S)]
    assert quoted
    for name, block in quoted:
        lines = [line.strip() for line in (ROOT / name).read_text().splitlines()]
        source = "\n".join(line for line in lines if not line.startswith(("#", '"""')))
        assert "\n".join(map(str.strip, block.strip().splitlines())) in source, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_point_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("https://"):
            assert (page.parent / target).exists(), target


def test_figures_have_a_dark_variant() -> None:
    for page in PAGES:
        for name in re.findall(r"!\[[^]]*\]\(([^)]+)\.png\)", page.read_text()):
            assert (page.parent / f"{name}-dark.png").exists(), name


def test_referenced_scripts_exist() -> None:
    for page in PAGES:
        for name in re.findall(r"python (scripts/\w+\.py)", page.read_text()):
            assert (ROOT / name).exists(), name


def test_make_targets_in_the_docs_exist() -> None:
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        assert set(re.findall(r"^make ([a-z-]+)", page.read_text(), re.M)) <= verbs, page.name


def test_the_quick_tests_exist() -> None:
    command = subprocess.run(
        ["make", "-n", "test-quick"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    paths = re.findall(r"tests/\S+", command)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_each_setting_has_an_anchor_in_both_spellings(tmp_path: Path) -> None:
    conf = tmp_path / "conf.py"  # writes the page to its folder
    conf.write_text((ROOT / "docs" / "conf.py").read_text())
    runpy.run_path(str(conf))["_write_settings"](None)
    page = (tmp_path / "settings.md").read_text()
    anchors = re.findall(r'<span id="([^"]+)"', page)
    headings = [text.lower().replace(" ", "-") for text in re.findall("^#+ (.*)$", page, re.M)]
    assert len({*anchors}) == len(anchors)
    assert not {*anchors} & {*headings}
    for config in (RunConfig, *(agent_class(name).Config for name in agent_names())):
        for name, each in config.SETTINGS.items():
            assert {name, name.replace("_", "-")} <= {*anchors}
            assert f"`{name}`{'**' * each.basic}<br>`{flag_name(name)}` |" in page


def test_titles_of_pages_in_help_texts_become_links() -> None:
    text = runpy.run_path(str(ROOT / "docs" / "conf.py"))["_text"]
    assert text("Can be repeated (documentation: Learn from logged data: offline RL)") == (
        "Can be repeated ([Learn from logged data: offline RL](data.md))"
    )


def test_the_reading_path_is_under_700_lines() -> None:
    text = (ROOT / "README.md").read_text()
    named = text[text.index("in four files, under 700 lines") : text.index("[agents/losses.py]")]
    names = ["agents/losses.py", *re.findall(r"\[([\w/]+/\w+\.py)\]", named)]
    assert len(names) == 4
    assert sum(len((ROOT / name).read_text().splitlines()) for name in names) < 700
