"""A report as text on a terminal of any width. No number is ever cut.

A table that is too wide for the terminal breaks its heads between words, then its cells between numbers, then long
names; where that is not enough its rows are written one under another.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from cirl_gym.files import escaped
from irl.report.section import MINUS, NO_BREAK, Line, Report, Table

BETWEEN = 2
"""Blanks between columns."""
NAME = 16
"""Characters to which the names of rows are broken at the least."""
RULE, PLUS_MINUS = "\N{BOX DRAWINGS LIGHT HORIZONTAL}", "\N{PLUS-MINUS SIGN}"


def show(report: Report, console: Console) -> None:
    """Write the sentences of a report in bold, then what every section has for a terminal.

    Names come from a stranger's table: they are text, never markup. Minus signs are those of a keyboard.
    """
    console.print()
    said = [sentence for sentence in (report.verdict, *report.headline) if sentence]
    for sentence in said:
        console.print(_text(sentence, style="bold"))
    apart = bool(said)
    if said:
        console.print()
    for part in (part for section in report.sections for part in section.terminal):
        if isinstance(part, Table):
            if not apart:
                console.print()
            show_table(part, console)
        else:
            text = part.text if isinstance(part, Line) else part
            console.print(_text(text), soft_wrap=isinstance(part, Line))
        apart = isinstance(part, Table)


def show_table(table: Table, console: Console) -> None:
    """Write a table under its title: as a table where it fits, else row by row, which is said."""
    cells = [[_glued(cell) for cell in row] for row in (table.head, *table.rows)]
    if console.options.ascii_only:  # three characters where there is no sign: what is measured is what is shown
        cells = [[cell.replace(PLUS_MINUS, "+/-") for cell in row] for row in cells]
    widths = column_widths(cells, console.width)
    if widths is None:
        _show_rows(table.title, cells, console)
        return
    console.print(_text(table.title, style="italic"))
    head, *rows = (_lines(row, widths) for row in cells)
    for line in head:
        console.print(_text(line, style="bold"), soft_wrap=True)
    console.print(_text(RULE * (sum(widths) + BETWEEN * (len(widths) - 1))), soft_wrap=True)
    for line in (line for row in rows for line in row):
        console.print(_text(line), soft_wrap=True)
    console.print()


def _show_rows(title: str, cells: Sequence[Sequence[str]], console: Console) -> None:
    says = f"{title} (row by row: lines of {console.width} characters are too short for a table)"
    console.print(_text(says, style="italic"))
    for name, *values in cells[1:]:
        console.print(_text(name, style="bold"))
        for head, value in zip(cells[0][1:], values, strict=True):
            if value:
                console.print(_text(f"  {head}: {value}".replace("\n", " ")))
    console.print()


def column_widths(cells: Sequence[Sequence[str]], most: int) -> list[int] | None:
    """The widths of the columns of a table of which the first row is the head; None where no widths will do.

    Heads alone are broken if that will do, else cells as well, and last the names of rows; always in the widest column
    that can still be narrower.
    """
    columns = list(zip(*cells, strict=True))
    natural = [_widest(column) for column in columns]
    heads_broken = [max(_widest(column[1:]), _longest_word(column[0])) for column in columns]
    cells_broken = [max(map(_longest_word, column)) for column in columns]
    names_broken = [min(cells_broken[0], NAME), *cells_broken[1:]]
    room = most - BETWEEN * (len(columns) - 1)
    for steps in ((heads_broken,), (cells_broken, names_broken)):
        widths = list(natural)
        for least in steps:
            while sum(widths) > room and (spare := [i for i, width in enumerate(widths) if width > least[i]]):
                widths[max(spare, key=lambda i: widths[i])] -= 1
        if sum(widths) <= room:
            return widths
    return None


def _glued(text: str) -> str:
    """Printable, with no number apart from its sign, its unit or the other end of its interval."""
    text = escaped(text).replace("\t", " ")
    text = re.sub(r"(?<=[\d.%]) to (?=[(+.\d\-\N{MINUS SIGN}])", f"{NO_BREAK}to{NO_BREAK}", text)
    return re.sub(rf"(?<=\d) (?=%)|(?<={PLUS_MINUS}) ", NO_BREAK, text)


def _lines(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """The lines of a row: names to the left, all else to the right."""
    columns = [_broken(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = []
    for name, *others in zip_longest(*columns, fillvalue=""):
        placed = [name + " " * (widths[0] - cell_len(name))]
        placed += [" " * (width - cell_len(cell)) + cell for cell, width in zip(others, widths[1:], strict=True)]
        lines.append((" " * BETWEEN).join(placed).rstrip())
    return lines


def _broken(cell: str, width: int) -> list[str]:
    """A cell in lines of at most so many characters, broken at blanks, else after an underscore, else anywhere."""
    lines = list[str]()
    for line in cell.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        # Some characters take two places.
        most = width if cell_len(line) == len(line) else max(width // 2, 1)
        words = " ".join(word if cell_len(word) <= width else word.replace("_", "_\v") for word in line.split(" "))
        parts = textwrap.wrap(words, most, break_on_hyphens=False, replace_whitespace=False)
        lines += [part.replace("\v", "") for part in parts]
    return lines


def _widest(cells: Iterable[str]) -> int:
    return max((cell_len(line) for cell in cells for line in cell.split("\n")), default=0)


def _longest_word(cell: str) -> int:
    return max(map(cell_len, re.split("[ \n]", cell)))


def _text(text: str, style: str = "") -> Text:
    return Text(escaped(text.replace(MINUS, "-").replace(NO_BREAK, " ")), style=style)
