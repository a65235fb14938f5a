"""Sphinx configuration; `make docs` runs `sphinx-build -c docs . build/docs`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from eagerly.agents import agent_class, agent_names
from eagerly.agents.config import AgentConfig
from eagerly.settings import flag_name
from eagerly.storage.config import RunConfig
from eagerly.storage.presets import ENVIRONMENTS
from eagerly.storage.run_settings import format_setting
from eagerly.suggestions import AGENT_NAMES, RUN_NAMES
from eagerly.version import __version__

project, author, release = "eagerly", "the eagerly authors", __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
source_suffix = {".md": "markdown"}
# Pages link to tables and source files, so the whole checkout is the source directory.
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


def _tables(config: Any, known: Collection[str] = ()) -> list[str]:
    """Returns one Markdown table per group of a settings class, without `known` settings."""
    lines: list[str] = []
    for group in config.GROUPS:
        settings = [s for n, s in config.SETTINGS.items() if s.group is group and n not in known]
        if settings:
            lines += ["", f"### {group.heading}", ""]
            lines += ["| setting | meaning and source | unit, range | default |"]
            lines += ["|---|---|---|---|"]
            lines += map(_row, settings)
    return lines


def _row(each: Any) -> str:
    allowed = ", ".join(each.choices) or each.range()
    notes = "; ".join(filter(None, (allowed, *(needed.text for needed in each.requires))))
    unit = ", ".join(filter(None, (each.unit, notes)))
    is_required = each.default is dataclasses.MISSING
    default = "" if is_required else f"`{format_setting(each.default)}`"
    return f"| `{each.name}` | {each.help} | {unit} | {default} |"


def _write_settings(app: Any) -> None:
    """Generates the settings page from the settings' declarations."""
    lines = [
        "# Settings",
        "",
        "A setting has the same name everywhere: as a keyword argument in Python, as an option of",
        "`eagerly train` (`n_step` becomes `--n-step`), and as a key in TOML files, presets and",
        "`config.json`. *Authors* refers to the public code of the TD3 authors, *paper* to the",
        "paper of the algorithm.",
        "",
        "## Run settings",
        *_tables(RunConfig),
        "",
        "## Settings of all agents",
        *_tables(AgentConfig),
    ]
    for name in agent_names():
        config = agent_class(name).Config
        lines += ["", f"## {name.upper()} settings"]
        if config.DEFAULTS:
            other = (f"`{n}` `{format_setting(v)}`" for n, v in config.DEFAULTS.items())
            lines += ["", f"Changed defaults: {', '.join(other)}."]
        if missing := [f"`{n}`" for n in AgentConfig.SETTINGS if n not in config.SETTINGS]:
            lines += ["", f"Not available: {', '.join(missing)}."]
        lines += _tables(config, AgentConfig.SETTINGS)
    lines += [
        "",
        "## Presets of environments",
        "",
        "A new run uses the preset of its environment, if there is a preset. Your own options take",
        "precedence, and `--preset defaults` disables it.",
        "",
        "| environment | settings | evidence |",
        "|---|---|---|",
    ]
    for env, preset in ENVIRONMENTS.items():
        settings = ", ".join(
            f"`{flag_name(k)} {format_setting(v)}`" for k, v in preset.settings.items()
        )
        lines.append(f"| {env} | {settings or 'the defaults'} | {preset.evidence} |")
    lines += [
        "",
        "## Names in other libraries",
        "",
        "An error about one of these names suggests the setting of this package.",
        "",
        "| other name | setting |",
        "|---|---|",
    ]
    for other, names in sorted((AGENT_NAMES | RUN_NAMES).items()):
        lines.append(f"| `{other}` | {', '.join(f'`{name}`' for name in names)} |")
    (_HERE / "settings.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Any) -> None:
    """Registers the generator of the settings page with Sphinx."""
    app.connect("builder-inited", _write_settings)
