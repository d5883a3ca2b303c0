"""A report as text on a terminal, and as one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from rich import box
from rich import table as rich_table
from rich.console import Console
from rich.text import Text

from irl.report.section import MINUS, NO_BREAK, Line, Report, Table


def show(report: Report, console: Console) -> None:
    """Write the sentences of a report in bold, then what every section has for a terminal."""
    console.print()
    for sentence in report.headline:
        console.print(Text(sentence, style="bold"))
    if report.headline:
        console.print()
    for part in (part for section in report.sections for part in section.terminal):
        if isinstance(part, Table):
            console.print(_text_table(part))
        elif isinstance(part, Line):
            console.print(Text(part.text), soft_wrap=True)
        else:
            console.print(Text(part))


def _text_table(part: Table) -> rich_table.Table:
    """Names come from a stranger's table: they are text, never markup. Minus signs are those of a keyboard."""
    table = rich_table.Table(title=Text(part.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(part.head):
        first = i == 0
        table.add_column(Text(name), justify="left" if first else "right", overflow="fold", no_wrap=not first)
    for row in part.rows:
        table.add_row(*(Text(cell.replace(MINUS, "-").replace(NO_BREAK, " ")) for cell in row))
    return table


def render(report: Report) -> str:
    """The page as text. It loads nothing from anywhere, and every name from a table is escaped."""
    folder = Path(__file__).parent
    environment = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["breakable"] = breakable
    style = Markup((folder / "style.css").read_text(encoding="utf-8"))
    return environment.get_template("page.html").render(style=style, report=report)


def breakable(name: str) -> Markup:
    """A name, escaped, that a narrow screen may break after an underscore."""
    return escape(name).replace("_", Markup("_<wbr>"))
