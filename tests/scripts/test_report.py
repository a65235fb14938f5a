"""The command `report`."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eagerly.scripts.report import main


def _table(path: Path, returns: list[float]) -> Path:
    rows = [f"{1000 * number},{value}\n" for number, value in enumerate(returns, start=1)]
    path.write_text("steps,return_mean\n" + "".join(rows))
    return path


def _report(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for seed in range(2):
        _table(tmp_path / f"td3-Ant-v5-{seed}.csv", [1.0, 2.0])
        _table(tmp_path / f"sb3-Hopper-v5-{seed}.csv", [1.0, 2.0])
    return tmp_path


def test_a_page_is_written_and_named(tables: Path) -> None:
    _table(tables / "td3-Ant-v5-9.csv", [float("nan")])
    words = "--env", "Ant-v5", "--rename", "td3", "A<B", "--title", "Week <12>", "--until", "1000"
    result = _report(tables, "-o", tables / "r.HTML", *words)
    assert result.exit_code == 0, result.output
    assert f"report    {tables / 'r.HTML'} (" in result.output
    page = (tables / "r.HTML").read_text()
    assert "<h1>Week &lt;12&gt;</h1>" in page
    assert "A&lt;B" in page
    assert "Hopper" not in page
    assert f"{tables / 'td3-Ant-v5-9.csv'}</code>" in page  # damaged, so it is listed
    assert "2,000" not in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "x.png"], "--output must end in .html; got x.png"),
        (["--filter", "tau"], "--filter must be SETTING=VALUE, such as tau=0.005; got tau"),
        (["--baseline", "x"], "Error: baseline must be one of sb3, td3; got 'x'"),
        (["-o", "/dev/null/x.html"], "Error: /dev/null/x.html cannot be written: "),
    ],
)
def test_errors_are_one_line(tables: Path, words: list[str], message: str) -> None:
    result = _report(tables, *words)
    assert result.exit_code in (1, 2)
    assert message in result.output.splitlines()[-1]
