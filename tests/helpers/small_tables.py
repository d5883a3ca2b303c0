"""A table whose every cell can be told from its place: the ground on which the table tests stand."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from cirl_gym.tables import TableColumns, TableOptions
from cirl_gym.tables.read import from_dataframe

ICU_DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
"""Real ICU rows beside a checkout; absent elsewhere."""


COLUMNS = TableColumns("stay_id", "bin", "action", ("x", "y"), None, "terminated", "truncated")
"""Of the tables made here."""


def stays(*lengths: int, flags: bool = True, last_action: bool = False) -> pd.DataFrame:
    """One stay per length, T actions and T + 1 rows each, all cells text as in a CSV file.

    Stay i (id "00i") at row t has x = 10 i + t, y = 100 i - t, action (i + t) mod 2; even stays end terminated.
    The index counts lines of a file, the header being line 1.
    """
    rows = []
    for i, length in enumerate(lengths):
        for t in range(length + 1):
            last = t == length
            action = str((i + t) % 2) if not last or last_action else ""
            ends = [str(int(last and i % 2 == 0)), str(int(last and i % 2 == 1))] if flags else []
            rows.append([f"{i:03d}", str(t), str(10 * i + t), str(100 * i - t), action, *ends])
    names = ["stay_id", "bin", "x", "y", "action", *(["terminated", "truncated"] if flags else [])]
    return pd.DataFrame(rows, columns=names, index=pd.RangeIndex(2, len(rows) + 2, name="line"), dtype=object)


def write(path: str | os.PathLike[str], frame: pd.DataFrame) -> Path:
    frame.to_csv(path, index=False)
    return Path(path)


def put(frame: pd.DataFrame, line: int, column: str, cell: object) -> pd.DataFrame:
    """A copy with one other cell, named by the line of the file."""
    changed = frame.copy()
    changed.loc[line, column] = cell
    return changed


def without(frame: pd.DataFrame, *lines: int) -> pd.DataFrame:
    """A copy without some lines; the others keep their numbers."""
    return frame.drop(index=list(lines))


def refusal(frame: pd.DataFrame, options: TableOptions | None = None) -> str:
    """The message, which must be the same whether the columns are given or told from the table."""
    messages = set()
    for columns in (COLUMNS, None):
        with pytest.raises(ValueError, match=r".") as caught:
            from_dataframe(frame, columns, options)
        messages.add(str(caught.value))
    assert len(messages) == 1, messages
    return messages.pop()
