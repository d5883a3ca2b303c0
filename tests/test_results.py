"""The stored results of the benchmark, and the report that is made of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from markdown_tables import renewed
from results_page import PAGES, tables

from irl.benchmark.report import read_outcomes
from irl.commands.cli import main

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def test_the_stored_report_is_that_of_the_stored_outcomes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(RESULTS / "jobs", tmp_path / "jobs")
    shutil.copy(RESULTS / "benchmark.json", tmp_path)
    assert main(["benchmark", "report", str(tmp_path)]) == 0
    assert "Return, undiscounted" in capsys.readouterr().out
    # A picture's bytes depend on the version of Matplotlib.
    for name in ("report.md", "outcomes.csv", "cells.csv"):
        assert (tmp_path / "report" / name).read_text() == (RESULTS / "report" / name).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_pages_show_the_stored_outcomes(page: Path) -> None:
    made, text = tables(read_outcomes(RESULTS)), page.read_text(encoding="utf-8")
    assert renewed(text, made) == text
    shown = {title for title, one in made.items() if one in text}
    assert shown == ({"truth"} if page.name == "README.md" else set(made) - {"truth"})
