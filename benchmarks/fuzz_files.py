"""Tables for benchmarks/fuzz_tables.py as files: CSV, Parquet, or a folder of Parquet parts."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from fuzz_mutations import FuzzedTable
from pyarrow import parquet


def write_table(table: FuzzedTable, folder: Path) -> Path:
    """The file of a table, or the folder of its parts; its bytes depend on the table alone."""
    ending = table.ending or (".parquet" if table.parquet else ".csv")
    path = folder / f"table{ending}"
    if table.parquet and table.parts:
        path = folder / "parts"
        path.mkdir()
        for number, rows in enumerate(np.array_split(np.arange(len(table.frame)), table.parts)):
            (path / f"part{number}.parquet").write_bytes(_spoilt(table, _parquet(table, table.frame.iloc[rows])))
        return path
    content = _parquet(table, table.frame) if table.parquet else table.frame.to_csv(index=False).encode("utf-8")
    path.write_bytes(_spoilt(table, content))
    return path


def _spoilt(table: FuzzedTable, content: bytes) -> bytes:
    for change in table.spoil:
        content = change(content) if content else content
    return content


def _parquet(table: FuzzedTable, frame: pd.DataFrame) -> bytes:
    arrays = [_array(frame.iloc[:, j].tolist(), table.types.get(name)) for j, name in enumerate(frame.columns)]
    made = pa.Table.from_arrays(arrays, names=list(frame.columns))
    if table.metadata is not None:
        made = made.replace_schema_metadata({"pandas": table.metadata})
    sink = io.BytesIO()
    parquet.write_table(made, sink)
    return sink.getvalue()


def _array(cells: list[Any], wanted: pa.DataType | None) -> pa.Array:
    """A column of Parquet: of the type wanted where its cells can be cast to it, else of what they are, else texts."""
    if wanted is not None:
        texts = pa.array([None if cell is None or cell == "" else str(cell) for cell in cells], pa.string())
        with suppress(pa.ArrowException, OverflowError):
            return texts.cast(wanted)
        with suppress(pa.ArrowException, OverflowError):  # "1" is a time or a whole number of some size only so
            return texts.cast(pa.float64()).cast(pa.int64()).cast(wanted)
        return texts
    if all(isinstance(cell, str) for cell in cells):
        return pa.array(cells, pa.string())
    with suppress(pa.ArrowException, OverflowError, UnicodeDecodeError):
        return pa.array(cells)
    some = next(cell for cell in cells if cell is not None and not isinstance(cell, str))
    if isinstance(some, bytes):
        return pa.array([cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells], pa.binary())
    return pa.array([None if cell is None or cell == "" else str(cell) for cell in cells], pa.string())
