"""``cirl compare A B``: by how much the preferences of two groups of experts differ."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from irl.commands.options import CompareOptions
from irl.report.comparison import report_of_comparison
from irl.report.section import show
from irl.run import Run
from irl.studies.comparison import Comparison, compare


def command(options: CompareOptions) -> None:
    """Run ``cirl compare``; raises as :func:`compare_runs` does."""
    compare_runs(options.a, options.b, options.out, rescale=options.rescale)


def compare_runs(a: Path, b: Path, out: Path, *, rescale: bool = False) -> Comparison:
    """Compare two runs, print the differences, write ``comparison.json``.

    Args:
        a: folder of a run.
        b: folder of another.
        out: where to write.
        rescale: compare even where the runs' ranges have little in common.

    Raises:
        ValueError: a folder is not a whole run's, both are the same, or the runs cannot be compared
            (:func:`irl.studies.comparison.compare`).
        OSError: the folder cannot be written to.
    """
    if a.resolve() == b.resolve():
        raise ValueError(f"A and B are the same run: {a}")
    found = compare(Run(a).preferences, Run(b).preferences, rescale=rescale)
    found.write(out / "comparison.json")
    show(report_of_comparison(found, out), Console(highlight=False))
    return found
