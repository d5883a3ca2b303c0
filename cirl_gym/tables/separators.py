"""What separates the fields of a CSV file, and whether its numbers have decimal commas, as spreadsheets write them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from itertools import islice

import pandas as pd

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""What is looked for, the usual one first."""
REPAIRS = "repairs"
"""Key of a frame's ``attrs``: what was read in another way than commas and decimal points say, in sentences."""
_EXCEL = re.compile(r"\s*\"?sep=(.)\"?,*\r?\n", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*", re.ASCII)
_DECIMAL_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*", re.ASCII)


def separator_of(text: str) -> tuple[str, int]:
    """What separates the fields of a CSV file's text, and how many lines at its beginning say only that (0 or 1).

    ``sep=;`` in the first line, as Excel writes it, says it. Else it is what cuts the header into the most fields, and
    the first row into as many; where none cuts it, a comma.
    """
    told = _EXCEL.match(text)
    if told is not None and told[1] in SEPARATORS:
        return told[1], 1
    fields = {mark: _fields(text, mark) for mark in SEPARATORS}
    # A row of another length is a fault that reading will name; then the header alone decides.
    alike = [mark for mark, counts in fields.items() if len(counts) == 2 and counts[0] == counts[1] > 1]
    return max(alike or SEPARATORS, key=lambda mark: fields[mark][:1]), 0


def _fields(text: str, mark: str) -> list[int]:
    """How many fields the first two records have that hold anything."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    try:
        return [len(record) for record in islice((record for record in reader if record), 2)]
    except csv.Error:
        return []


def with_decimal_points(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The table with decimal points in place of decimal commas, and in which columns there were any.

    In a column that has decimal points as well nothing is changed: what its commas mean cannot be told.
    """
    changed = []
    for column in frame.columns:
        cells = frame[column]
        commas = cells.map(lambda cell: _DECIMAL_COMMA.fullmatch(cell) is not None)
        if commas.any() and not cells.map(lambda cell: _DECIMAL_POINT.fullmatch(cell) is not None).any():
            frame[column] = cells.where(~commas, cells.str.replace(",", ".", regex=False))
            changed.append(column)
    return frame, tuple(changed)


def told(mark: str, changed: Sequence[str]) -> tuple[str, ...]:
    """What the account says of a file whose fields are separated by ``mark``, no comma."""
    commas = f", and decimal commas read as points in {', '.join(map(repr, changed))}" if changed else ""
    return (f"fields separated by {SEPARATORS[mark]}{commas}",)
