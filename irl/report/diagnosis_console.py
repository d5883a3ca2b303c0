"""A diagnosis as readable text on the console."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.text import Text

from irl.diagnosis import Diagnosis
from irl.report import diagnosis_rows as rows
from irl.report.console import text_table
from irl.report.diagnosis_verdicts import verdicts


def print_diagnosis(found: Diagnosis, folder: Path | None = None, console: Console | None = None) -> None:
    """Print the verdicts and the numbers behind them.

    Args:
        found: what was found.
        folder: where its files were written; None says nothing about files.
        console: where to print; default: standard output.
    """
    shown = console or Console(highlight=False)
    shown.print()
    for sentence in verdicts(found):
        shown.print(Text(sentence, style="bold"))
    shown.print()
    errors = {"Errors for the actions taken": found.factual}
    if found.counterfactual is not None:
        errors["Errors for the other actions, same patients and noise"] = found.counterfactual.flipped
    for title, part in errors.items():
        content = rows.selected(rows.error_rows(part))
        shown.print(text_table(f"{title} (roots of mean squares, outcomes scaled)", rows.error_head(part), content))
    head = ["outcome", "becomes 0", "becomes 1", "range"]
    shown.print(text_table("Scaled by", head, rows.normaliser_rows(found)))
    if found.counterfactual is not None:
        title = "Mean courses against the simulator, in ranges"
        shown.print(text_table(title, rows.course_head(found), rows.course_rows(found)))
    shown.print(text_table("Which action was taken", rows.PROBE_HEAD, rows.probe_rows(found)))
    shown.print(text_table("Overlap, share of steps", rows.overlap_head(found), rows.overlap_rows(found)))
    coverage = [row[:3] for row in rows.coverage_rows(found)]  # every feature's share is in the files
    shown.print(text_table("Intervals", rows.coverage_head(found)[:3], coverage))
    shown.print(text_table("Ends of episodes", rows.END_HEAD, rows.end_rows(found)))
    shown.print(text_table("Roll-outs in the model", rows.SUPPORT_HEAD, rows.support_rows(found)))
    if folder is not None:
        shown.print(Text(f"Written to {folder}: diagnostics.html, diagnostics.json"), soft_wrap=True)
