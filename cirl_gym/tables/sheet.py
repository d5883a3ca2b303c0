"""A table as it stands in its file, and its columns as numbers, times and texts, each parsed once.

A file is read without changing a cell: CSV as text, Parquet with its own types. Nothing is guessed of what a cell
means: one that cannot be read is pointed at.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from cirl_gym.data.batch import LARGEST
from cirl_gym.tables.cells import is_missing, moment, number, reading, stands_for_missing, whole, why_no_moment
from cirl_gym.tables.files import LINE, ROW, check_names, with_index
from cirl_gym.types import BoolArray, FloatArray, IntArray

_SHOWN, _LISTED = 20, 10

T = TypeVar("T")


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


class BadRows(ValueError):
    """Rows that cannot be used.

    Attributes:
        positions: places of all of them in the frame, from 0, also of those that the message leaves out.
    """

    def __init__(self, message: str, positions: Iterable[int]) -> None:
        super().__init__(message)
        self.positions = tuple(int(position) for position in positions)


def refuse(cells: Sequence[BadCell], ids: Sequence[str | None], rows: RowNames) -> None:
    """One error that names column, id and row of the bad cells, if there are any.

    Raises:
        BadRows: there are.
    """
    if not cells:
        return
    shown = [
        f"column {c.column!r}, id {ids[c.position]!r}, {rows[c.position]}: {_short(c.why)}" for c in cells[:_SHOWN]
    ]
    rest = f"\n  ... and {len(cells) - _SHOWN} more" if len(cells) > _SHOWN else ""
    several = f"{len(cells)} cells cannot be used:\n  " + "\n  ".join(shown) + rest
    raise BadRows(shown[0] if len(cells) == 1 else several, [cell.position for cell in cells])


def _short(message: str) -> str:
    """A message in which no word of a cell, such as a number of 5,000 digits, hides the rest."""
    return re.sub(r"\S{80,}", lambda word: f"{word[0][:40]}... ({len(word[0]):,} characters)", message)


def listed(names: Iterable[str]) -> str:
    """At most ten names for a message, and how many more there are."""
    names = list(names)
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(repr(name) for name in names[:_LISTED]) + rest


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
        rows: what to call its rows in messages; by default by the index of lines or rows, or by position.

    Raises:
        ValueError: a column has no name, one that is no text, or that of another.
    """

    def __init__(self, frame: pd.DataFrame, rows: RowNames | None = None) -> None:
        frame = self.frame = with_index(frame, "the table")
        self.columns: list[str] = list(frame.columns)
        check_names(self.columns, "the table")
        named = frame.index.name in (LINE, ROW) and pd.api.types.is_integer_dtype(frame.index)
        numbers = frame.index.to_numpy(dtype=np.int64) if named else np.arange(len(frame))
        self.rows = rows or RowNames(str(frame.index.name) if named else "position", numbers)
        self.parsed: dict[tuple[str, str], Any] = {}

    def take(self, chosen: BoolArray) -> Sheet:
        """The chosen rows, called as before."""
        return Sheet(self.frame[chosen], RowNames(self.rows.word, self.rows.numbers[chosen]))

    def __len__(self) -> int:
        """R, the number of rows."""
        return len(self.frame)

    @_once
    def cells(self, column: str) -> npt.NDArray[np.object_]:
        """``[R]`` the cells as Python objects; those that hold others (lists, arrays) by their text."""
        cells = self.frame[column].astype(object).to_numpy()
        holding = [kind for kind in set(map(type, cells)) if kind.__hash__ is None]
        return np.array([str(c) if type(c) in holding else c for c in cells], dtype=object) if holding else cells

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
        if self._typed(column, "biufMm"):
            return self.frame[column].isna().to_numpy(dtype=np.bool_)
        return np.array(self._each(column, is_missing), dtype=np.bool_)

    @_once
    def numbers(self, column: str) -> tuple[FloatArray, BoolArray]:
        """``[R]`` float64 values, NaN where missing or bad; ``[R]`` True where a cell is no number."""
        if self._typed(column, "biuf"):
            return self.frame[column].to_numpy(dtype=np.float64), np.zeros(len(self), dtype=np.bool_)
        found = self._each(column, number)
        return np.array(found, dtype=np.float64), np.array([value is None for value in found], dtype=np.bool_)

    @_once
    def measured(self, column: str) -> tuple[FloatArray, BoolArray]:
        """As :meth:`numbers`, where a column may hold true and false, and signs for missing readings (".", "-")."""
        (values, bad), cells = self.numbers(column), self.cells(column)
        if not bad.any():
            return values, bad
        values, bad = values.copy(), bad.copy()
        for i in np.flatnonzero(bad):
            found = reading(cells[i])
            values[i], bad[i] = np.nan if found is None else found, found is None
        return values, bad

    @property
    def checksum(self) -> str:
        """SHA-256 of what the cells say, in whatever order rows and columns stand, and whatever kind of file it was.

        A number counts by its value ("12.0" and 12 are one), everything else by its text.
        """
        hashed, names = {}, sorted(self.columns)
        for column in names:
            values, bad = self.numbers(column)
            cells = self.cells(column)  # truth is a text in a CSV file
            if {bool, np.bool_} & set(map(type, cells)):
                bad = bad | np.array([isinstance(cell, (bool, np.bool_)) for cell in cells], dtype=np.bool_)
            texts = np.array([str(cell) if other else "" for cell, other in zip(cells, bad, strict=True)])
            # One number for what is missing; -0 is 0.
            known = np.where(np.isnan(values), np.inf, values + 0.0)
            hashed[column] = np.where(bad, pd.util.hash_array(texts.astype(object)), pd.util.hash_array(known))
        rows = np.sort(pd.util.hash_pandas_object(pd.DataFrame(hashed), index=False).to_numpy(dtype="<u8"))
        return hashlib.sha256("\0".join(names).encode() + b"\0" + rows.tobytes()).hexdigest()

    @_once
    def readings(self, column: str) -> tuple[FloatArray, list[BadCell]]:
        """``[R]`` readings, NaN where missing, and the cells that are no number or beyond what any reading is."""
        (values, bad), cells = self.measured(column), self.cells(column)
        with np.errstate(invalid="ignore"):
            huge = np.abs(values) > LARGEST
        odd = []
        for i in np.flatnonzero(bad):
            offer = f" (--missing-values {cells[i]} reads it as missing)" if stands_for_missing(cells[i]) else ""
            odd.append((i, f"{cells[i]!r} is not a number{offer}"))
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
            if isinstance(cell, bytes):
                raise ValueError(f"column {column!r} holds bytes such as {cell!r}: read it as text")
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

        A column is of numbers, of ISO times ("2020-01-31", "2020-01-31T08:30:00Z") or of durations, whichever most
        cells are. Whole numbers stay whole numbers, so that large ones are not rounded.
        """
        if self._typed(column, "Mm"):
            moments_of, gaps = self.frame[column].to_numpy(), self.missing(column)
            whole_us = moments_of.astype(f"{moments_of.dtype.kind}8[us]").astype(np.int64)
            empty = [BadCell(column, int(i), "the time is empty") for i in np.flatnonzero(gaps)]
            return np.where(gaps, 0, whole_us), empty
        (_, no_number), cells, missing = self.numbers(column), self.cells(column), self.missing(column)
        moments = self._each(column, moment) if no_number.any() else [None] * len(cells)
        kinds = [found[1] for found in moments if found is not None]
        if len(kinds) <= int((~no_number & ~missing).sum()):
            return self._numbers_as_times(column)
        usual = max(sorted(set(kinds)), key=lambda kind: (kinds.count(kind), kind == "zone"))
        faults = []
        for i, found in enumerate(moments):
            if missing[i]:
                faults.append(BadCell(column, i, "the time is empty"))
            elif found is None:
                why = "is a number, not an ISO time as most others" if not no_number[i] else why_no_moment(cells[i])
                faults.append(BadCell(column, i, f"{cells[i]!r} {why}"))
        if len(set(kinds)) > 1:
            word = {"zone": "a time zone", "no zone": "no time zone", "duration": "a duration and no time"}
            odd = next(i for i, found in enumerate(moments) if found is not None and found[1] != usual)
            own = word[moments[odd][1]]  # type: ignore[index]
            faults.append(BadCell(column, odd, f"{cells[odd]!r} has {own}, but most other cells have {word[usual]}"))
        return np.array([0 if found is None else found[0] for found in moments], dtype=np.int64), faults

    def _numbers_as_times(self, column: str) -> tuple[FloatArray | IntArray, list[BadCell]]:
        (values, no_number), cells, missing = self.numbers(column), self.cells(column), self.missing(column)
        faults = [BadCell(column, int(i), "the time is empty") for i in np.flatnonzero(missing)]
        faults += [
            BadCell(column, int(i), f"{cells[i]!r} {why_no_moment(cells[i])}")
            for i in np.flatnonzero(no_number | np.isinf(values))
        ]
        if not faults and all(map(whole, cells)):
            integers = [int(cell.strip() if isinstance(cell, str) else cell) for cell in cells]
            # Half of what 64 bits hold, so that differences fit as well; nanoseconds since 1970 do.
            if max(map(abs, integers), default=0) < 2**62:
                return np.array(integers, dtype=np.int64), faults
        return values, faults
