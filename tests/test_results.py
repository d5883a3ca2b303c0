"""The stored results of the benchmark, and the report that is made of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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
