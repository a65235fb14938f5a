"""Builds the documentation: `make docs`, which is `sphinx-build -c docs . build/docs`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from eagerly.agents import agent_class, agent_names
from eagerly.conditions import flag_name
from eagerly.settings import settings_of
from eagerly.storage.config import RunConfig
from eagerly.storage.presets import ENVIRONMENTS
from eagerly.storage.settings import format_setting
from eagerly.version import __version__

project, author, release = "eagerly", "the eagerly authors", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
# The pages link to tables and to source files: the whole checkout is what is built from.
include_patterns = ["docs/**", "benchmarks/**", "CHANGELOG.md", "CONTRIBUTING.md"]
root_doc = "docs/index"
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_title = f"eagerly {release}"
html_static_path: list[str] = []

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
nitpicky = False

_HERE = Path(__file__).parent


def _rows(config: Any, known: set[str]) -> list[str]:
    lines = ["| setting | meaning and source | unit, range | default |", "|---|---|---|---|"]
    for name, each in settings_of(config).items():
        if name in known:
            continue
        allowed = ", ".join(each.choices)
        if each.kind in (int, float, tuple) and each.range() != "finite":
            allowed = each.range()
        where = (condition.where for condition in each.conditions)
        unit = ", ".join(filter(None, (each.unit, "; ".join(filter(None, (allowed, *where))))))
        is_required = each.default is dataclasses.MISSING
        default = "" if is_required else f"`{format_setting(each.default)}`"
        lines.append(f"| `{flag_name(name)}` | {each.help} | {unit} | {default} |")
    return lines


def _write_settings(app: Any) -> None:
    """Writes the page of all settings from their declarations."""
    run = set(settings_of(RunConfig))
    lines = [
        "# Settings",
        "",
        "Every setting is a flag of `eagerly train`, a key of `open_run`'s settings, a field of",
        "a frozen dataclass. This page is written from their declarations. *Authors* is the public",
        "code of the authors of TD3, *paper* the paper of the algorithm.",
        "",
        "## Of a run",
        "",
        *_rows(RunConfig, set()),
    ]
    for name in agent_names():
        lines += ["", f"## Of {name.upper()}", "", *_rows(agent_class(name).Config, run)]
    lines += [
        "",
        "## Presets of environments",
        "",
        "A new run takes the preset of its environment, where there is one; what is typed goes",
        "before, and `--preset defaults` takes none.",
        "",
        "| environment | settings | evidence |",
        "|---|---|---|",
    ]
    for env, preset in ENVIRONMENTS.items():
        settings = ", ".join(
            f"`{flag_name(k)} {format_setting(v)}`" for k, v in preset.settings.items()
        )
        lines.append(f"| {env} | {settings or 'the defaults'} | {preset.evidence} |")
    (_HERE / "settings.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Any) -> None:
    """Lets Sphinx call what writes pages."""
    app.connect("builder-inited", _write_settings)
