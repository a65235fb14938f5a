"""Sphinx configuration; `make docs` runs `sphinx-build -c docs . build/docs`."""

from __future__ import annotations

import dataclasses
import re
import sys
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

_HERE = Path(__file__).parent

project, author, release = "eagerly", "the eagerly developers", __version__
project_copyright = f"{author}. Version {release}, Apache License 2.0"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
extensions += ["sphinx_copybutton"]
# Pages link to tables and source files, so the whole checkout is the source directory.
include_patterns = ["docs/**", "benchmarks/**", "CHANGELOG.md", "CONTRIBUTING.md"]
root_doc = "docs/index"
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
pygments_dark_style = "a11y-dark"
html_title = f"eagerly {release}"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_favicon = "_static/favicon.svg"
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}  # the root of the site
html_search_scorer = str(_HERE / "_templates" / "scorer.js")
# Blocks of output, which have no language, have no copy button.
copybutton_selector = ":not(.highlight-default, .highlight-none, .highlight-text) > .highlight pre"
copybutton_exclude = ".linenos, .gp, .go"  # prompts and output between commands

nb_execution_mode = "off"  # notebooks are committed with their outputs
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
nitpicky = False


def _tables(config: Any, known: Collection[str], anchors: set[str]) -> list[str]:
    """Returns one Markdown table per group of a settings class, basic settings first.

    Args:
        config: The class.
        known: Names of settings to omit.
        anchors: Anchors of the page, to which those of the rows are added.
    """
    lines: list[str] = []
    for group in config.GROUPS:
        settings = [s for n, s in config.SETTINGS.items() if s.group is group and n not in known]
        if settings:
            # A heading must not have the anchor of a setting.
            is_setting = group.heading.lower().replace(" ", "_") in config.SETTINGS
            lines += ["", f"### {group.heading}{' settings' if is_setting else ''}", ""]
            lines += [
                "| setting | meaning and source | unit, range | has an effect only | default |"
            ]
            lines += ["|---|---|---|---|---|"]
            lines += [_row(each, anchors) for each in sorted(settings, key=lambda s: not s.basic)]
    return lines


def _row(each: Any, anchors: set[str]) -> str:
    names = {each.name: None, each.name.replace("_", "-"): None}
    cell = "".join(f'<span id="{name}"></span>' for name in names if name not in anchors)
    anchors.update(names)
    cell += f"**`{each.name}`**" if each.basic else f"`{each.name}`"
    flag = f"`{flag_name(each.name)}`"
    unit = ", ".join(filter(None, (each.unit, ", ".join(each.choices) or each.range())))
    effect = "; ".join(needed.text for needed in each.requires)
    is_required = each.default is dataclasses.MISSING
    default = "required" if is_required else f"`{format_setting(each.default)}`"
    cells = (f"{cell}<br>{flag}", _text(each.help), _text(unit), _text(effect), default)
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Returns a declaration's text for a table: flags as code, titles of pages as links."""
    text = re.sub(r"--[a-z][a-z-]*", r"`\g<0>`", text.replace("|", r"\|"))
    for page in _HERE.glob("*.md"):
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        text = text.replace(f"(documentation: {title})", f"([{title}]({page.name}))")
    return text


def _write_settings(app: Any) -> None:
    """Generates the settings page from the settings' declarations."""
    anchors: set[str] = set()
    lines = [
        "# Settings",
        "",
        "A setting (hyperparameter) has the same name everywhere: as a keyword argument in",
        "Python, as an option of `eagerly train` (`n_step` becomes `--n-step`), and as a key in",
        "TOML files, presets and `config.json`. *Authors* refers to the public code of the TD3",
        "authors, *paper* to the paper of the algorithm.",
        "",
        "Settings in bold are basic: `eagerly train td3 --help` lists them, and `--help-all` lists",
        "all settings. Link to a setting in either spelling, such as `#n_step` or `#n-step`.",
        "",
        "## Run settings",
        *_tables(RunConfig, (), anchors),
        "",
        "## Settings of all agents",
        *_tables(AgentConfig, (), anchors),
    ]
    for name in agent_names():
        config = agent_class(name).Config
        lines += ["", f"## {name.upper()} settings"]
        if config.DEFAULTS:
            other = (f"`{n}` `{format_setting(v)}`" for n, v in config.DEFAULTS.items())
            lines += ["", f"Changed defaults: {', '.join(other)}."]
        if missing := [f"`{n}`" for n in AgentConfig.SETTINGS if n not in config.SETTINGS]:
            lines += ["", f"Not available: {', '.join(missing)}."]
        lines += _tables(config, AgentConfig.SETTINGS, anchors)
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
        lines.append(f"| {env} | {settings or 'the defaults'} | {_text(preset.evidence)} |")
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


def _set_metadata(app: Any, env: Any) -> None:
    """Keeps tables of measurements out of the navigation, and also the changelog out of the search.

    Pages about measurements link to the tables.
    """
    for name in env.all_docs:
        if name.startswith("benchmarks/"):
            env.metadata[name] |= {"orphan": True, "no-search": True}
    env.metadata["CHANGELOG"] |= {"no-search": True}


def setup(app: Any) -> None:
    """Registers the functions above and the extension next to this file with Sphinx."""
    sys.path.insert(0, str(_HERE))
    app.setup_extension("site_pages")
    app.connect("builder-inited", _write_settings)
    app.connect("env-updated", _set_metadata)
