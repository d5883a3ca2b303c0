"""``cirl compare A B``: by how much the preferences of two groups of experts differ."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from cirl_gym.files import write_json
from irl.report import rows
from irl.report.console import text_table
from irl.result.posterior_file import load_preferences
from irl.studies.comparison import Comparison, compare


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
    found = compare(load_preferences(a), load_preferences(b), rescale=rescale)
    write_json(out / "comparison.json", found.as_dict())
    print_comparison(found, out)
    return found


def print_comparison(found: Comparison, folder: Path | None = None, console: Console | None = None) -> None:
    """Print the finding and its numbers.

    Args:
        found: what was found.
        folder: where ``comparison.json`` was written; None says nothing about it.
        console: where to print; default: standard output.
    """
    shown = console or Console(highlight=False)
    shown.print()
    shown.print(Text(headline(found), style="bold"))
    shown.print()
    for letter, run in (("A", found.a), ("B", found.b)):
        shown.print(Text(f"{letter}: {run}"), soft_wrap=True)
    head = ["feature", "A", "B", "A - B", "90 % interval", "above 0"]
    content = [
        [name, *map(rows.signed, (one.a, one.b, one.difference)), rows.span(one.interval), f"{one.above_zero:.3f}"]
        for name, one in found.differences.items()
    ]
    shown.print(text_table("Weights (sizes add up to 1), and A's minus B's", head, content))
    for note in found.notes:
        shown.print(Text(note))
    if folder is not None:
        shown.print(Text(f"Written to {folder}: comparison.json"), soft_wrap=True)


def headline(found: Comparison) -> str:
    """The finding in one sentence; the largest differences first."""
    if not found.clear:
        return "By the 90 % intervals, no weight differs between the two runs."
    # Of two weights of the same sign, the differences are equal but for rounding.
    order = sorted(found.clear, key=lambda name: -round(abs(found.differences[name].difference), 6))
    listed = ", ".join(f"{name} ({found.differences[name].difference:+.2f})" for name in order[:4])
    more = f" and {len(order) - 4} more" if len(order) > 4 else ""
    return f"By the 90 % intervals, these weights differ, A's minus B's: {listed}{more}."
