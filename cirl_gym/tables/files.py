"""Files of tables, read without changing a cell: CSV as text, Parquet with its own types."""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cirl_gym.tables.separators import REPAIRS, separator_of, told, with_decimal_points

LINE = "line"
"""Name of the index of a table that came from a CSV file: its numbers are lines of the file, the header is line 1."""
ROW = "row"
"""Name of the index of a table that came from a Parquet file: its numbers are rows, the first one is row 1."""


def read_table(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a ``.csv``, ``.tsv`` or ``.parquet`` file, or a folder of Parquet parts in the order of their names.

    Text files may be gzipped, and their fields separated by commas, semicolons or tabs; with the last two, numbers may
    have decimal commas (:mod:`~cirl_gym.tables.separators`), which the account says.

    Every cell of a CSV file stays the text that it is in the file ("007", "12.0" and the empty text among them), so
    that no id is rounded or merged. The frame's index holds the number of the line (CSV, header = line 1) or of the
    row (Parquet, first row = 1), for messages.

    Raises:
        ValueError: the file is absent, empty, has no rows, is cut off, is not UTF-8, has two columns of one name or a
            column without a name, has a line with too few or too many fields, or is of another kind.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: there is no such file")
    name = path.name.lower()
    if path.is_dir():
        frame = _read_parts(path)
    elif name.endswith((".parquet", ".pq")):
        frame = _read_parquet(path)
    elif name.endswith((".csv", ".csv.gz", ".tsv", ".tsv.gz")):
        frame = _read_csv(path)
    else:
        raise ValueError(f"{path}: tables are read from .csv, .tsv, .csv.gz, .tsv.gz and .parquet files")
    if frame.empty:
        raise ValueError(f"{path}: there is a header, but not one row below it")
    return frame


def _read_csv(path: Path) -> pd.DataFrame:
    text = _decode(path)
    if not text.strip():
        raise ValueError(f"{path}: the file is empty")
    # strict: a quote that is never closed is a file cut off in the middle, not a field that swallows the rest.
    mark, before = separator_of(text)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=mark)
    header: list[str] | None = None
    records, lines, line = [], [], 1
    try:
        for record in reader:
            if not record or line <= before:
                pass  # a line without a single character holds nothing, and one of Excel's says what separates fields
            elif header is None:
                header = [name.strip() for name in record]
                if len(header) == 1 and "|" in header[0]:
                    raise ValueError(
                        f"{path}: the fields must be separated by commas, semicolons or tabs; the first line is "
                        f"{record[0]!r}"
                    )
                check_names(header, str(path))
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
    index = pd.Index(lines, name=LINE, dtype="int64")
    frame = pd.DataFrame(records, columns=pd.Index(header), index=index, dtype=object)
    if mark != ",":
        frame, changed = with_decimal_points(frame)
        frame.attrs[REPAIRS] = told(mark, changed)
    return frame


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


def check_names(names: Sequence[object], where: str) -> None:
    """A ValueError where a column's name is no text, empty or there twice."""
    for number, name in enumerate(names, start=1):
        if not isinstance(name, str):
            raise ValueError(f"{where}: the name of column {number} must be a text, got {name!r}")
        if not name:
            hint = " (pandas writes its index so; index=False leaves it out)" if number == 1 else ""
            raise ValueError(f"{where}: column {number} has no name{hint}")
        first = names.index(name) + 1
        if first < number:
            raise ValueError(f"{where}: two columns have the name {name!r} ({first} and {number})")


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        import pyarrow  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ValueError(
            f"{path}: Parquet files need pyarrow; install it with: pip install 'cirl-gym[parquet]'"
        ) from error
    from pyarrow import parquet

    try:
        names = parquet.read_schema(path).names
        check_names([name for name in names if not name.startswith("__index_level_")], str(path))
        # Texts that are no UTF-8 would else be found out only when a cell is looked at.
        parquet.read_table(path).validate(full=True)
        frame = _typed_frame(path)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from error
    frame = with_index(frame, str(path))
    check_names(list(frame.columns), str(path))
    for column in [name for name in frame.columns if pd.api.types.is_object_dtype(frame[name])]:
        cells = frame[column]
        if cells.map(lambda cell: isinstance(cell, bytes)).any():
            try:
                frame[column] = cells.map(lambda cell: cell.decode() if isinstance(cell, bytes) else cell)
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}: column {column!r} holds bytes that are no UTF-8 text ({error})") from error
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name=ROW), axis=0)


def _typed_frame(path: Path) -> pd.DataFrame:
    from pyarrow import ArrowException, parquet

    def typed(source: Path | io.BytesIO) -> pd.DataFrame:
        # Nullable types: with the default ones a column of whole numbers with a gap would become floating point.
        return pd.read_parquet(source, engine="pyarrow", dtype_backend="numpy_nullable")

    try:
        return typed(path)
    except (OSError, ArrowException):
        raise
    except Exception:  # what pandas noted beside the columns is of another table: the columns speak for themselves
        bare = io.BytesIO()
        parquet.write_table(parquet.read_table(path).replace_schema_metadata(None), bare)
        frame = typed(bare)
        return frame.drop(columns=[name for name in frame.columns if str(name).startswith("__index_level_")])


def _read_parts(folder: Path) -> pd.DataFrame:
    paths = sorted(path for path in folder.iterdir() if path.name.lower().endswith((".parquet", ".pq")))
    if not paths:
        raise ValueError(f"{folder}: a folder without Parquet files; give a table's own file")
    parts = [_read_parquet(path) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if list(part.columns) != list(parts[0].columns):
            raise ValueError(f"{path}: the columns are not those of {paths[0].name}, which lies beside it")
    frame = pd.concat(parts)
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name=ROW), axis=0)


def with_index(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """The frame with its named index as columns, such as (id, time); one of lines or rows stays the index.

    Raises:
        ValueError: the index and a column have one name.
    """
    names = [name for name in frame.index.names if name is not None]
    if not names or list(frame.index.names) in ([LINE], [ROW]):
        return frame
    twice = [name for name in names if name in frame.columns]
    if twice:
        raise ValueError(
            f"{where}: the index and a column have the same name {twice[0]!r}: rename one, or drop the index"
        )
    return frame.reset_index()
