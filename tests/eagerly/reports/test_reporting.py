"""Whole reports of run directories, some of them damaged or hostile."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import eagerly
from eagerly.errors import RunError
from eagerly.state import sealed
from eagerly.storage.run_document import FORMAT

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>--></style>]]>\x1b"


def _run(path: Path, returns: list[float], history: Any = (), **settings: Any) -> Path:
    path.mkdir(parents=True)
    agent = settings.pop("agent", "td3")
    settings = {"env": "Ant-v5", "seed": 0} | settings
    document = {"format": FORMAT, "agent": agent, "history": list(history), "settings": settings}
    (path / "config.json").write_bytes(sealed(document))
    rows = [f"{1000 * number},{value}\n" for number, value in enumerate(returns, start=1)]
    (path / "evaluations.csv").write_text("steps,return_mean\n" + "".join(rows))
    return path


class _Parsed(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.handlers: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.ids += [value or ""] if name == "id" else []
            self.references += [value or ""] if name in ("href", "src") else []
            self.references += re.findall(r"url\(([^)]*)\)", value or "")
            self.handlers += [name] if name.startswith("on") else []

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def test_a_report_shows_curves_scores_settings_overrides_and_problems(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for seed in range(2):
        _run(runs / f"td3-{seed}", [1.0, 2.0, 3.0 + seed], seed=seed)
        _run(runs / f"ddpg-{seed}", [0.0, 1.0, 1.5], agent="ddpg", seed=seed)
    change = {"time": "2026-05-01T12:00:00+00:00", "steps": 1000, "overridden": {"tau": [0.1, 0.2]}}
    _run(runs / "changed", [1.0, 2.0, 3.0], [change], env="Hopper-v5", tau=0.2)
    _run(runs / "empty", [])
    _run(runs / "x is skipped: y", [])
    (_run(runs / "damaged", [1.0]) / "config.json").write_bytes(b"{")
    file = tmp_path / "new" / "report.html"
    page = eagerly.report(runs, output=file, baseline="ddpg", title="Week 12")
    assert file.read_text(encoding="utf-8") == page
    parsed = _Parsed(page)
    assert parsed.tags >= {"svg", "table", "style"}
    assert not parsed.tags & {"script", "img", "link", "iframe", "object", "embed"}
    assert len(parsed.ids) == len(set(parsed.ids))  # unique, although there are two figures
    assert {name.removeprefix("#") for name in parsed.references} <= set(parsed.ids)
    assert page.count("<svg") > 2
    assert not re.search(r"https?:", page)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'unsafe-inline'; media-src data:;")
    roots = re.findall(r":root \{(.*?)\}", page, re.DOTALL)  # of light and dark mode
    light, dark = (set(re.findall(r"(--[\w-]+):", root)) for root in roots)
    assert light == dark >= set(re.findall(r"var\((--[\w-]+)\)", page))
    assert "@media (prefers-color-scheme: dark) {\n  :root {" in page
    assert "#222222" not in page  # the ink of the page instead
    text = " ".join(parsed.text.split())
    for shown in (
        "Week 12 5 runs, 3 groups, 2 environments",
        "Hopper-v5 td3 (overridden at 1000) 0 3,000 2.5",
        "td3 0, 1 3,000 2.167 2 to 2.333",
        "Comparison with ddpg",
        "agent td3 ddpg td3",
        "2026-05-01 12:00 UTC tau 0.1 → 0.2",
        "No run has a video.",
        "No run has a checkpoint",
        "steps that count in all runs of its group. Steps before the first update and up to",
        "Skipped (3)",
        f"{runs}/x is skipped: y it has no evaluations yet",
        f"{runs}/empty it has no evaluations yet",
        f"{runs}/damaged {runs}/damaged/config.json cannot be read",
        "Note: not compared in Hopper-v5: ddpg has no runs there",
        "intervals over fewer than 5 runs are too narrow",
    ):
        assert shown in text, shown


def test_hostile_runs_neither_inject_markup_nor_enlarge_or_prevent_the_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _run(tmp_path / "good", [1.0, 2.0])
    name = HOSTILE.replace("/", "|")
    hostile = [{"time": HOSTILE, "steps": 10**30, "overridden": {HOSTILE: [HOSTILE, [HOSTILE]]}}]
    for seed in range(2):  # a setting that differs and has a hostile name
        _run(tmp_path / f"{name}{seed}", [1.0, 2.0], seed=seed, **{HOSTILE: f"{HOSTILE}{seed}"})
    _run(tmp_path / "history", [1.0, 2.0], hostile, tau=0.1)
    _run(tmp_path / "env", [1.0], env=f"x{HOSTILE}")
    _run(tmp_path / "agent", [1.0], agent="evil:Agent")
    _run(tmp_path / "other", [1.0], agent="evil:Agent", mine=1)
    _run(tmp_path / "long", [1.0], **{"x" * 10**5: "y" * 10**5})
    _run(tmp_path / "many", [1.0], **{f"s{number}": number for number in range(5000)})
    _run(tmp_path / "huge", [1.7e308, 1.7e308], tau=0.2)
    for start in (1, 2):  # runs without a common step
        path = _run(tmp_path / f"odd{start}", [], seed=start, tau=0.3)
        (path / "evaluations.csv").write_text(f"steps,return_mean\n{start},1.0\n")
    _run(tmp_path / "type", [1.0], batch_size=[1])
    assert "1 run, 1 group" in eagerly.report(tmp_path, filter={"batch_size": "256", "tau": 0.1})
    page = eagerly.report(tmp_path)
    parsed = _Parsed(page)
    assert not parsed.tags & {"script", "img"}
    assert parsed.handlers == []
    assert {name.removeprefix("#") for name in parsed.references} <= set(parsed.ids)
    assert "\x1b" not in page
    assert len(page) < 300_000
    assert "alert(1)" in parsed.text
    skipped = parsed.text[parsed.text.index("Skipped ") :]
    for omitted in ("agent", "other", "huge", "odd1", "odd2"):
        assert f"{tmp_path}/{omitted} " in parsed.text
        assert f"{tmp_path}/{omitted} is skipped: " in caplog.text
    assert "have no step in common" in skipped
    assert "a value is beyond 1e+100" in skipped


def test_runs_without_common_steps_are_shown_over_time(tmp_path: Path) -> None:
    for seed in range(2):  # evaluated after odd or even numbers of steps, for three hours
        rows = (f"{2 * n + seed},1.5,{n}\n" for n in range(2 * 3600, 5 * 3600, 1800))
        (tmp_path / f"td3-Ant-v5-{seed}.csv").write_text(
            "steps,return_mean,seconds\n" + "".join(rows)
        )
    text = " ".join(_Parsed(eagerly.report(tmp_path, x="time")).text.split())
    assert "2 runs, 1 group, 1 environment" in text
    assert "hours" in text
    assert "td3, Ant-v5: no score, because no evaluations count at common steps" in text
    assert "td3 0, 1 0 – – – –" in text


def test_curves_of_many_evaluations_are_thinned(tmp_path: Path) -> None:
    _run(tmp_path / "run", [float(number % 7) for number in range(20_000)])
    assert len(eagerly.report(tmp_path)) < 100_000


def test_an_existing_page_is_replaced_only_by_a_complete_one(tmp_path: Path) -> None:
    run, file = _run(tmp_path / "run", [1.0]), tmp_path / "report.html"
    other = tmp_path / "other.html"
    other.write_text("old")
    file.symlink_to(other)
    eagerly.report(run, output=file)
    assert other.read_text() == "old"  # the link is replaced, not its target
    assert file.read_text().endswith("</html>\n")
    with pytest.raises(RunError, match=r"run/config\.json/report\.html cannot be written: "):
        eagerly.report(run, output=run / "config.json" / "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.html", "report.html", "run"]


def test_invalid_requests_are_errors(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [1.0])
    with pytest.raises(RunError, match=r"baseline must be one of td3; got 'sb3'"):
        eagerly.report(run, baseline="sb3")
    with pytest.raises(RunError, match="these runs have no evaluations yet"):
        eagerly.report(_run(tmp_path / "empty", []))
    with pytest.raises(RunError, match=r"none of these runs can be shown: .* beyond 1e"):
        eagerly.report(_run(tmp_path / "huge", [1e200]))
    with pytest.raises(ValueError, match=r"output must be one of \.html; got '.png'"):
        eagerly.report(run, output="x.png")
    with pytest.raises(ValueError, match="until must be at least 1; got 0"):
        eagerly.report(run, until=0)
    (tmp_path / "ddpg-Ant-v5-0.csv").write_text("steps,return_mean\n1000,nan\n")
    page = eagerly.report(run, tmp_path / "ddpg-Ant-v5-0.csv", baseline="ddpg")
    assert "Note: not compared: baseline must be one of" in page
    assert "got &#x27;ddpg&#x27;. If it has runs, all of them are skipped" in page
    assert "ddpg-Ant-v5-0.csv</code></th><td>is damaged and cannot be read" in page
    assert "Note: not compared: no runs to compare with td3" in eagerly.report(run, baseline="td3")
