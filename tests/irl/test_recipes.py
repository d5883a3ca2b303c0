"""Environments of others, from their episodes to weights and a page, as README and docs print it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot
from tiny_run import make_the_command_line_tiny

ROOT = Path(__file__).resolve().parents[2]


def recipe(page: str, word: str) -> str:
    """The one block of a page that holds a word."""
    blocks = re.findall(r"^```py\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if word in block]
    assert len([line for line in found.splitlines() if line.strip()]) <= 15
    return found


def test_cart_pole(tmp_path, monkeypatch):
    """Quick settings are made tiny here."""
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    make_the_command_line_tiny(monkeypatch)
    names: dict = {}
    exec(compile(recipe("README.md", "CartPole"), "README.md", "exec"), names)
    assert list(names["result"].weights.index) == names["weighed"]
    assert {path.name for path in tmp_path.iterdir()} == {"weights.png", "cartpole.html"}
    pyplot.close("all")


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("icu_sepsis") is None, reason="needs icu-sepsis (tests/compat/sepsis.sh)")
def test_icu_sepsis(tmp_path):
    code = recipe("docs/own_environment.md", "icu_sepsis")
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    print(told.stdout)
    assert "beyond habit" in told.stdout.lower()
    assert (tmp_path / "sepsis.html").stat().st_size < 5_000_000
