"""Reading a table from a file without changing a cell: CSV as text, Parquet with its own types."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

LINE = "line"
"""Name of the index of a table that came from a CSV file: its numbers are lines of the file, the header is line 1."""
ROW = "row"
"""Name of the index of a table that came from a Parquet file: its numbers are rows, the first one is row 1."""


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a ``.csv``, ``.csv.gz`` or ``.parquet`` file.

    Every cell of a CSV file stays the text that it is in the file ("007", "12.0" and the empty text among them), so
    that no id is rounded or merged. The frame's index holds the number of the line (CSV, header = line 1) or of the
    row (Parquet, first row = 1), for messages.

    Raises:
        ValueError: the file is absent, empty, has no rows, is cut off, is not UTF-8, has two columns of one name or a
            column without a name, has a line with too few or too many fields, or is of another kind.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        frame = _read_parquet(path)
    elif name.endswith((".csv", ".csv.gz")):
        frame = _read_csv(path)
    else:
        raise ValueError(f"{path}: tables are read from .csv, .csv.gz and .parquet files")
    if frame.empty:
        raise ValueError(f"{path}: there is a header, but not one row below it")
    return frame


def _read_csv(path: Path) -> pd.DataFrame:
    text = _decode(path)
    if not text.strip():
        raise ValueError(f"{path}: the file is empty")
    # strict: a quote that is never closed is a file cut off in the middle, not a field that swallows the rest.
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    records: list[list[str]] = []
    lines: list[int] = []
    line = 1
    try:
        for record in reader:
            if not record:
                pass  # a line without a single character holds nothing
            elif header is None:
                header = _header(path, record)
            elif len(record) != len(header):
                raise ValueError(f"{path}, line {line}: {len(record)} fields, but the header has {len(header)}")
            else:
                records.append(record)
                lines.append(line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}, line {line}: not a line of a CSV file ({error})") from error
    if header is None:
        raise ValueError(f"{path}: the file is empty")
    return pd.DataFrame(
        records, columns=pd.Index(header), index=pd.Index(lines, name=LINE, dtype="int64"), dtype=object
    )


def _decode(path: Path) -> str:
    content = path.read_bytes()
    if path.name.lower().endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: not a whole gzip file ({error})") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: the text is not UTF-8; save the table with that encoding") from error
    if "\0" in text:
        raise ValueError(f"{path}: the file holds binary data, not UTF-8 text")
    return text


def _header(path: Path, record: Sequence[str]) -> list[str]:
    names = [name.strip() for name in record]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
        raise ValueError(f"{path}: the fields must be separated by commas; the first line is {record[0]!r}")
    return check_names(names, str(path))


def check_names(names: Sequence[object], where: str) -> list[str]:
    """The column names, once it is sure that each is a text and stands for one column.

    Raises:
        ValueError: a name is no text, empty or there twice.
    """
    texts: list[str] = []
    for number, name in enumerate(names, start=1):
        if not isinstance(name, str):
            raise ValueError(f"{where}: the name of column {number} must be a text, got {name!r}")
        if not name:
            hint = " (pandas writes its index so; index=False leaves it out)" if number == 1 else ""
            raise ValueError(f"{where}: column {number} has no name{hint}")
        if name in texts:
            raise ValueError(f"{where}: two columns have the name {name!r} ({texts.index(name) + 1} and {number})")
        texts.append(name)
    return texts


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ValueError(
            f"{path}: Parquet files need pyarrow; install it with: pip install 'cirl-gym[parquet]'"
        ) from error
    try:
        # Nullable types: with the default ones a column of whole numbers with a gap would become floating point.
        frame = pd.read_parquet(path, engine="pyarrow", dtype_backend="numpy_nullable")
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from error
    own = list(frame.index.names) in ([LINE], [ROW])  # a table of read_table that was saved again
    if not own and any(name is not None for name in frame.index.names):
        frame = frame.reset_index()  # pandas had kept columns such as (id, time) as its index
    check_names(list(frame.columns), str(path))
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name=ROW), axis=0)
