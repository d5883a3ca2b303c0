"""A table as it stands in its file, and its columns as numbers, times and texts, each parsed once.

A file is read without changing a cell: CSV as text, Parquet with its own types. Nothing is guessed of what a cell
means: one that cannot be read is pointed at.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from cirl_gym.data.batch import LARGEST
from cirl_gym.types import BoolArray, FloatArray, IntArray

_SHOWN = 10
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z|([+-])(\d\d):?(\d\d))?)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1)

T = TypeVar("T")

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
    records, lines, line = [], [], 1
    try:
        for record in reader:
            if not record:
                pass  # a line without a single character holds nothing
            elif header is None:
                header = [name.strip() for name in record]
                if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
                    raise ValueError(f"{path}: the fields must be separated by commas; the first line is {record[0]!r}")
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
    return pd.DataFrame(records, columns=pd.Index(header), index=index, dtype=object)


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
    try:
        # Nullable types: with the default ones a column of whole numbers with a gap would become floating point.
        frame = pd.read_parquet(path, engine="pyarrow", dtype_backend="numpy_nullable")
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise ValueError(f"{path}: not a whole Parquet file ({error})") from error
    own = list(frame.index.names) in ([LINE], [ROW])  # a table of read_table that was saved again
    if not own and any(name is not None for name in frame.index.names):
        frame = frame.reset_index()  # pandas had taken columns such as (id, time) as its index
    check_names(list(frame.columns), str(path))
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1, name=ROW), axis=0)


@dataclass(frozen=True)
class BadCell:
    """One cell that cannot be used."""

    column: str
    position: int
    """Position in the frame, from 0."""
    why: str


@dataclass(frozen=True)
class RowNames:
    """What to call R rows in messages."""

    word: str
    """What the numbers count, "line" (of the file), "row" (first = 1) or "position" (first = 0)."""
    numbers: IntArray
    """``[R]``."""

    def __getitem__(self, position: int) -> str:
        return f"{self.word} {self.numbers[position]}"


def refuse(cells: Sequence[BadCell], ids: Sequence[str], rows: RowNames) -> None:
    """One ValueError that names column, id and row of the bad cells, if there are any."""
    if not cells:
        return
    shown = [f"column {c.column!r}, id {ids[c.position]!r}, {rows[c.position]}: {c.why}" for c in cells[:_SHOWN]]
    if len(cells) == 1:
        raise ValueError(shown[0])
    rest = f"\n  ... and {len(cells) - _SHOWN} more" if len(cells) > _SHOWN else ""
    raise ValueError(f"{len(cells)} cells cannot be used:\n  " + "\n  ".join(shown) + rest)


def listed(names: Iterable[str]) -> str:
    """At most ten names for a message, and how many more there are."""
    names = list(names)
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + rest


def is_missing(cell: object) -> bool:
    """An empty field, one of the words NA, NaN and NULL, None, or a missing value of pandas or NumPy."""
    if isinstance(cell, str):
        return cell.strip().lower() in ("", "na", "nan", "null")
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, (float, np.floating)) and cell != cell)


def number(cell: object) -> float | None:
    """The number that a cell is, NaN if it is missing, None if it is something else."""
    if is_missing(cell):
        return float("nan")
    if isinstance(cell, str):
        # Not float() alone: it would also take "1_000", "infinity" and digits of other scripts.
        return float(cell) if _NUMBER.fullmatch(cell.strip()) else None
    if isinstance(cell, (bool, int, float, Decimal, np.bool_, np.integer, np.floating)):
        return float(cell)
    return None


def _moment(cell: object) -> tuple[int, bool] | None:
    """Microseconds since 1970 (UTC if the cell has a zone), and whether it has one."""
    offset = timedelta(0)
    if is_missing(cell):
        return None  # NaT is a datetime to Python
    if isinstance(cell, datetime):
        zone = cell.utcoffset()
        moment, aware = datetime(*cell.timetuple()[:6], cell.microsecond), zone is not None
        offset = zone or offset
    elif isinstance(cell, date):
        moment, aware = datetime(cell.year, cell.month, cell.day), False
    elif isinstance(cell, str) and (match := _ISO.fullmatch(cell.strip())):
        *parts, fraction, sign, hours, minutes = match.groups(default="")
        try:
            moment = datetime(*(int(p or 0) for p in parts), microsecond=int(fraction[:6].ljust(6, "0")))  # type: ignore[arg-type,misc]
        except ValueError:
            return None
        aware = cell.strip().endswith("Z") or bool(sign)
        if sign:
            offset = int(f"{sign}1") * timedelta(hours=int(hours), minutes=int(minutes))
    else:
        return None
    return (moment - offset - _EPOCH) // timedelta(microseconds=1), aware


def zone_told(cell: object) -> bool | None:
    """Whether an ISO time or a datetime says its zone; None for what is neither."""
    moment = _moment(cell)
    return None if moment is None else moment[1]


def _once(parse: Callable[[Sheet, str], T]) -> Callable[[Sheet, str], T]:
    """What a column is read as is found once, whoever asks for it."""

    @wraps(parse)
    def parsed(sheet: Sheet, column: str) -> T:
        key = parse.__name__, column
        if key not in sheet.parsed:
            sheet.parsed[key] = parse(sheet, column)
        found: T = sheet.parsed[key]
        return found

    return parsed


class Sheet:
    """R rows of a table whose columns are parsed when they are asked for, and then only once.

    Attributes:
        frame: the table; it must not be changed.
        columns: the names of its columns.
        rows: what to call its rows in messages.

    Raises:
        ValueError: a column has no name, one that is no text, or that of another.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.columns: list[str] = list(frame.columns)
        check_names(self.columns, "the table")
        named = frame.index.name in (LINE, ROW) and pd.api.types.is_integer_dtype(frame.index)
        numbers = frame.index.to_numpy(dtype=np.int64) if named else np.arange(len(frame))
        self.rows = RowNames(str(frame.index.name) if named else "position", numbers)
        self.parsed: dict[tuple[str, str], Any] = {}

    def __len__(self) -> int:
        """R, the number of rows."""
        return len(self.frame)

    @_once
    def cells(self, column: str) -> npt.NDArray[np.object_]:
        """``[R]`` the cells as Python objects."""
        return np.asarray(self.frame[column].astype(object).to_numpy(), dtype=object)

    def _each(self, column: str, parse: Callable[[object], T]) -> list[T]:
        """``[R]`` what each cell is; equal texts are parsed once."""
        cells = self.cells(column)
        known = {text: parse(text) for text in {cell for cell in cells if isinstance(cell, str)}}
        return [known[cell] if isinstance(cell, str) else parse(cell) for cell in cells]

    def _typed(self, column: str, kinds: str) -> bool:
        """Whether NumPy holds the column as one of these kinds, so that no cell need be looked at."""
        dtype = self.frame[column].dtype
        return isinstance(dtype, np.dtype) and dtype.kind in kinds

    @_once
    def missing(self, column: str) -> BoolArray:
        """``[R]`` True where a cell is missing."""
        if self._typed(column, "biufM"):
            return self.frame[column].isna().to_numpy(dtype=np.bool_)
        return np.array(self._each(column, is_missing), dtype=np.bool_)

    @_once
    def numbers(self, column: str) -> tuple[FloatArray, BoolArray]:
        """``[R]`` float64 values, NaN where missing or bad; ``[R]`` True where a cell is no number."""
        if self._typed(column, "biuf"):
            return self.frame[column].to_numpy(dtype=np.float64), np.zeros(len(self), dtype=np.bool_)
        found = self._each(column, number)
        return np.array(found, dtype=np.float64), np.array([value is None for value in found], dtype=np.bool_)

    @property
    def checksum(self) -> str:
        """SHA-256 of what the cells say, in whatever order rows and columns stand, and whatever kind of file it was.

        A number counts by its value ("12.0" and 12 are one), everything else by its text.
        """
        hashed, names = {}, sorted(self.columns)
        for column in names:
            values, bad = self.numbers(column)
            texts = np.array([str(cell) if other else "" for cell, other in zip(self.cells(column), bad, strict=True)])
            # One number for what is missing; -0 is 0.
            known = np.where(np.isnan(values), np.inf, values + 0.0)
            hashed[column] = np.where(bad, pd.util.hash_array(texts.astype(object)), pd.util.hash_array(known))
        rows = np.sort(pd.util.hash_pandas_object(pd.DataFrame(hashed), index=False).to_numpy(dtype="<u8"))
        return hashlib.sha256("\0".join(names).encode() + b"\0" + rows.tobytes()).hexdigest()

    @_once
    def readings(self, column: str) -> tuple[FloatArray, list[BadCell]]:
        """``[R]`` readings, NaN where missing, and the cells that are no number or beyond what any reading is."""
        (values, bad), cells = self.numbers(column), self.cells(column)
        with np.errstate(invalid="ignore"):
            huge = np.abs(values) > LARGEST
        odd = [(i, f"{cells[i]!r} is not a number") for i in np.flatnonzero(bad)]
        odd += [(i, f"{cells[i]} is beyond {LARGEST:g}, which no reading is") for i in np.flatnonzero(huge)]
        return values, [BadCell(column, int(i), why) for i, why in odd]

    @_once
    def texts(self, column: str) -> list[str | None]:
        """``[R]`` the cells as text, exactly as they came; None where one is empty ("NA" is a text like any other).

        Raises:
            ValueError: floating-point numbers so large that two different ones may have been rounded to one.
        """
        exact = 2.0**24 if str(self.frame[column].dtype).lower() == "float32" else 2.0**53

        def text(cell: object) -> str | None:
            if isinstance(cell, str):
                return cell if cell.strip() else None
            if is_missing(cell):
                return None
            if not isinstance(cell, (float, np.floating)):
                return str(cell)
            if abs(float(cell)) >= exact:
                raise ValueError(
                    f"column {column!r} holds floating-point numbers as large as {cell:.0f}, to which different "
                    "ids may have been rounded: read it as text"
                )
            return repr(float(cell))

        return self._each(column, text)

    @_once
    def codes(self, column: str) -> IntArray:
        """``[R]`` equal numbers where the texts of a column are equal; empty cells are -1."""
        codes, _ = pd.factorize(np.array(self.texts(column), dtype=object))
        return np.asarray(codes, dtype=np.int64)

    @_once
    def distinct(self, column: str) -> int:
        """The number of different values, without the empty cells."""
        return int(pd.Series(self.cells(column)[~self.missing(column)]).nunique())

    @_once
    def times(self, column: str) -> tuple[FloatArray | IntArray, list[BadCell]]:
        """``[R]`` times that can be compared (ISO times in microseconds), and the bad cells.

        A column is either of numbers or of ISO times ("2020-01-31", "2020-01-31T08:30:00Z"), whichever most cells are.
        Whole numbers stay whole numbers, so that large ones are not rounded.
        """
        if self._typed(column, "M"):
            moments_of, gaps = self.frame[column].to_numpy(dtype="datetime64[us]"), self.missing(column)
            empty = [BadCell(column, int(i), "the time is empty") for i in np.flatnonzero(gaps)]
            return np.where(gaps, 0, moments_of.astype(np.int64)), empty
        (values, no_number), cells, missing = self.numbers(column), self.cells(column), self.missing(column)
        moments = [_moment(cell) if no_number.any() else None for cell in cells]
        iso = sum(m is not None for m in moments) > int((~no_number & ~missing).sum())
        word = "an ISO time as most others" if iso else "a number or an ISO time (2020-01-31 or 2020-01-31T08:30)"
        no_time = [m is None for m in moments] if iso else (no_number | np.isinf(values)).tolist()
        faults = [
            BadCell(column, i, "the time is empty" if missing[i] else f"{cells[i]!r} is not {word}")
            for i in range(len(cells))
            if missing[i] or no_time[i]
        ]
        if iso:
            if len({m[1] for m in moments if m is not None}) == 2:
                odd = next(i for i, m in enumerate(moments) if m is not None and not m[1])
                faults.append(BadCell(column, odd, f"{cells[odd]!r} has no time zone, but other cells have one"))
            return np.array([0 if m is None else m[0] for m in moments], dtype=np.int64), faults
        whole = [not isinstance(cell, str) or _INTEGER.fullmatch(cell.strip()) for cell in cells]
        if not faults and all(whole) and all(isinstance(cell, (str, int, np.integer)) for cell in cells):
            integers = [int(cell) for cell in cells]
            # Half of what 64 bits hold, so that differences fit as well; nanoseconds since 1970 do.
            if max(map(abs, integers), default=0) < 2**62:
                return np.array(integers, dtype=np.int64), faults
        return values, faults
