"""A report as a page and as a terminal shows it."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from irl.report.drawing import WhatIf
from irl.report.run import report_of
from irl.report.section import Details, Report, Rows, Table, render
from irl.report.terminal import show
from irl.result.result import Result


def page_of(result: Result, what_if: WhatIf | None = None) -> str:
    """The page of a run."""
    return render(report_of(result, what_if))


def printed(report: Report, width: int = 100) -> str:
    """What a terminal shows of a report."""
    text = io.StringIO()
    show(report, Console(file=text, width=width, color_system=None))
    return text.getvalue()


def printed_result(result: Result, folder: Path | None = None, width: int = 100) -> str:
    """What a terminal shows of a run."""
    return printed(report_of(result, folder=folder), width)


def rows_of(result: Result, section: str, table: str, what_if: WhatIf | None = None) -> Rows:
    """The rows of one table of a run's page, folded away or not; nothing where the section is absent."""
    parts = [part for one in report_of(result, what_if).sections if one.name == section for part in one.page]
    parts += [inner for part in parts if isinstance(part, Details) for inner in part.parts]
    return next((part.rows for part in parts if isinstance(part, Table) and part.title.startswith(table)), [])
