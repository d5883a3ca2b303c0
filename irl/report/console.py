"""A run's result as readable text on the console."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from irl.report import rows
from irl.report import rows as held_out_rows
from irl.report import rows as time_rows
from irl.result.result import Result
from irl.result.sentences import SAME_PATIENTS, TRADE_OFF
from irl.stages import duration


def print_result(result: Result, folder: Path | None = None, console: Console | None = None) -> None:
    """Print the finding, its numbers, how long it took and where the files are.

    Args:
        result: what the run found.
        folder: where its files were written; None says nothing about files.
        console: where to print; default: standard output.
    """
    shown = console or Console(highlight=False)
    shown.print()
    for sentence in result.headline:
        shown.print(Text(sentence, style="bold"))
    shown.print()
    shown.print(text_table("Weights (sizes add up to 1)", rows.weight_head(result), rows.weight_rows(result)))
    for name, reason in result.identified_set.not_identifiable.items():
        shown.print(Text(f"Not identifiable: {name} ({reason})"))
    _print_times(shown, result)
    shown.print(text_table("Held-out decisions met", ["policy", "accuracy"], rows.accuracy_rows(result)))
    if result.likelihood is not None:
        about = f"Log-likelihood per held-out decision (of {result.likelihood.decisions})"
        shown.print(text_table(about, held_out_rows.LIKELIHOOD_HEAD, held_out_rows.likelihood_rows(result)))
    if result.returns is not None:
        head = ["policy", "mean", "standard error"]
        shown.print(text_table("Returns in the simulator, true weights", head, rows.return_rows(result)))
    shown.print(Text(f"Loop: {len(result.rounds)} rounds, margin {rows.short(result.margin)}; {rows.stopped(result)}."))
    if result.mu_gap is not None:
        gap = f"the recovered policy's are {rows.short(result.mu_gap)} from the experts'"
        shown.print(Text(f"Discounted outcomes, in ranges: {gap}, in its world model."))
    if result.quality is not None:
        shown.print(Text(f"Plans and what is reached in the world model: {rows.kept(result.quality)}."))
    if result.allowed is not None:
        shown.print(Text(f"Forbidden: {rows.forbidden(result.allowed)}."))
    shown.print(Text(f"Actions per episode, on average: {rows.lengths(result)}, in its world model."))
    times = ", ".join(f"{name} {duration(seconds)}" for name, seconds in result.seconds.items())
    shown.print(Text(f"Time: {duration(sum(result.seconds.values()))} ({times})."))
    if folder is not None:
        names = ", ".join(sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")))
        shown.print(Text(f"Files in {folder}: {names}"), soft_wrap=True)


def _print_times(shown: Console, result: Result) -> None:
    """Windows of time and the choice of the discount factor, where there are any."""
    if result.windows:
        shown.print(text_table(time_rows.WINDOW_TITLE, time_rows.WINDOW_HEAD, time_rows.window_rows(result)))
        head = time_rows.WINDOW_KAPPA_HEAD
        shown.print(text_table("Decisions per window", head, time_rows.window_kappa_rows(result)))
        shown.print(Text(SAME_PATIENTS))
    if result.gammas is not None:
        about = f"{result.gammas.decisions} held-out decisions of {result.gammas.patients} patients"
        shown.print(
            text_table(
                f"Discount factors: per decision, of {about}", time_rows.GAMMA_HEAD, time_rows.gamma_rows(result)
            )
        )
        head = time_rows.GAMMA_WEIGHT_HEAD
        shown.print(text_table("Weights under each", head, time_rows.gamma_weight_rows(result)))
        shown.print(Text(TRADE_OFF))


def text_table(title: str, head: list[str], content: rows.Rows) -> Table:
    """Names come from a stranger's table: they are text, never markup. Minus signs are those of a keyboard."""
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(head):
        first = i == 0
        table.add_column(Text(name), justify="left" if first else "right", overflow="fold", no_wrap=not first)
    for row in content:
        table.add_row(*(Text(cell.replace(rows.MINUS, "-").replace(rows.NO_BREAK, " ")) for cell in row))
    return table
