"""``cirl compare A B``: by how much the preferences of two groups of experts differ."""

from __future__ import annotations

from irl.commands.options import CompareOptions
from irl.commands.terminal import console
from irl.report.comparison import report_of_comparison
from irl.report.terminal import show
from irl.run import Run
from irl.studies.comparison import Comparison, compare


def command(options: CompareOptions) -> Comparison:
    """Compare two runs, print the differences, write ``comparison.json``.

    Raises:
        ValueError: a folder is not a whole run's, both are the same, or the runs cannot be compared
            (:func:`irl.studies.comparison.compare`).
        OSError: the folder cannot be written to.
    """
    if options.a.resolve() == options.b.resolve():
        raise ValueError(f"A and B are the same run: {options.a}")
    found = compare(Run(options.a).preferences, Run(options.b).preferences, rescale=options.rescale)
    found.write(options.out / "comparison.json")
    show(report_of_comparison(found, options.out), console())
    return found
