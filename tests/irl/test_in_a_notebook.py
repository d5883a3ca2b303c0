"""What a notebook shows, in a kernel of its own: rows with bars while a run goes on, then what was found."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
pytest.importorskip("ipykernel", reason="needs ipykernel")
ROOT = Path(__file__).resolve().parents[2]
TINY = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests" / "helpers")!r}]
import pytest
from tiny_run import icu_stays, make_the_command_line_tiny
make_the_command_line_tiny(pytest.MonkeyPatch())
"""
THREE = """
import irl
result = irl.explain(icu_stays(40), outcomes=["wbc", "lactate"], features=["temperature", "wbc", "lactate"])
result
"""


def test_bars_come_first_and_end_full_and_then_the_verdict(tmp_path):
    cells = [nbformat.v4.new_code_cell(source) for source in (TINY, THREE, "result.plot_weights()")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    bars, found = (output for output in notebook.cells[1].outputs if output.output_type != "stream")
    rows = bars.data["text/html"].split("<div>")[1:]
    assert all('<progress value="1.000">' in row and ": done after " in row for row in rows)
    assert [row.split("] ")[0].split("[")[1] for row in rows] == [f"{i}/{len(rows)}" for i in range(1, len(rows) + 1)]
    assert "<h3>" in found.data["text/html"]
    assert "image/png" in notebook.cells[2].outputs[-1].data
    said = [output.text for cell in notebook.cells for output in cell.outputs if output.output_type == "stream"]
    assert said == []
