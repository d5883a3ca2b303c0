"""What one cell says: nothing, a number, a reading, or a moment that can be compared with others."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

Kind: TypeAlias = Literal["zone", "no zone", "duration"]
"""What a moment is told by: a time with its zone, one without, or how long after a start that is not told."""

_MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "nat", "null", "<na>"))
_NO_READING = _MISSING | {".", "-", "--", "?", "none"}
_OFFERED = frozenset(("unknown", "missing", "empty", "n.a.", "n.d.", "nd", "not done", "not measured", "pending"))
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(?:Z| ?UTC|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_OF_DAY = re.compile(r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?( ?[AaPp][Mm])?", re.ASCII)
_OTHER_ORDER = re.compile(r"(\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./]\d{1,2}[./]\d{1,2})\b.*", re.ASCII)
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def is_missing(cell: object) -> bool:
    """An empty field, one of the words NA, N/A, NaN, NaT and NULL, None, or a missing value of pandas or NumPy."""
    if isinstance(cell, str):
        return cell.strip().lower() in _MISSING
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, (float, np.floating)) and cell != cell)


def number(cell: object) -> float | None:
    """The number that a cell is, NaN if it is missing, None if it is something else."""
    if is_missing(cell):
        return float("nan")
    if isinstance(cell, str):
        # Not float() alone: it would also take "1_000", "infinity" and digits of other scripts.
        # And not of the text as it is: float() leaves separators such as 0x1F on, which strip() takes for blanks.
        plain = cell.strip()
        return float(plain) if _NUMBER.fullmatch(plain) else None
    if isinstance(cell, (bool, int, float, Decimal, np.bool_, np.integer, np.floating)):
        return float(cell)
    return None


def reading(cell: object) -> float | None:
    """As :func:`number`, for a column of readings: true is 1 and false 0; ".", "-", "?" and "none" are missing."""
    if isinstance(cell, str):
        word = cell.strip().lower()
        if word in _NO_READING:
            return float("nan")
        if word in ("true", "false"):
            return float(word == "true")
    return number(cell)


def stands_for_missing(cell: object) -> bool:
    """Whether a text is likely to say that nothing was measured, which only the table's owner can know."""
    return isinstance(cell, str) and cell.strip().lower() in _OFFERED


def value_of(text: str) -> int | float | str:
    """What is equal for texts that mean the same: numbers of one value, words that differ in case or blanks.

    Whole numbers are exact, however large; true is 1 and false is 0.
    """
    plain = " ".join(text.split()).casefold()
    if plain in ("true", "false"):
        return int(plain == "true")
    if _INTEGER.fullmatch(plain):
        return int(plain)
    found = None if is_missing(plain) else number(plain)
    return plain if found is None else found


def whole(cell: object) -> bool:
    """Whether a cell is a whole number of at most 19 digits, as a text or as a number."""
    if isinstance(cell, str):
        return _INTEGER.fullmatch(cell.strip()) is not None
    return isinstance(cell, (int, np.integer))


def moment(cell: object) -> tuple[int, Kind] | None:
    """Microseconds since 1970 (UTC if the cell has a zone) or of a duration, and which of these; None for no moment.

    24:00 is the end of its day, and a period begins with its first moment.
    """
    if is_missing(cell):
        return None  # NaT is a datetime to Python
    if isinstance(cell, pd.Period):
        cell = cell.start_time
    if isinstance(cell, (timedelta, np.timedelta64)):
        return pd.Timedelta(cell) // pd.Timedelta(_MICROSECOND), "duration"
    if isinstance(cell, datetime):
        zone = cell.utcoffset()
        local = datetime(*cell.timetuple()[:6], cell.microsecond)
        return (local - _EPOCH) // _MICROSECOND - (
            zone or timedelta(0)
        ) // _MICROSECOND, "no zone" if zone is None else "zone"
    if isinstance(cell, date):
        return (datetime(cell.year, cell.month, cell.day) - _EPOCH) // _MICROSECOND, "no zone"
    match = _ISO.fullmatch(cell.strip()) if isinstance(cell, str) else None
    return None if match is None else _iso_moment(match)


def _iso_moment(match: re.Match[str]) -> tuple[int, Kind] | None:
    *parts, fraction, sign, hours, minutes = match.groups(default="")
    year, month, day, hour, minute, second = (int(part or 0) for part in parts)
    midnight = hour == 24 and not minute and not second and not fraction.strip("0")
    try:
        local = datetime(year, month, day, 0 if midnight else hour, minute, second, int(f"{fraction:0<6}"[:6]))
    except ValueError:
        return None
    # In whole numbers, as a datetime ends with the year 9999.
    since = (local - _EPOCH) // _MICROSECOND + midnight * (timedelta(days=1) // _MICROSECOND)
    if sign:
        since -= int(f"{sign}1") * (timedelta(hours=int(hours), minutes=int(minutes or 0)) // _MICROSECOND)
    return since, "zone" if sign or match[0].endswith(("Z", "UTC")) else "no zone"


def why_no_moment(cell: object) -> str:
    """Why a cell is neither a number nor a moment, and what to write."""
    text = str(cell).strip()
    if isinstance(cell, time) or _OF_DAY.fullmatch(text):
        return "is a time of day without its date: write both, as 2020-01-31T08:30, or hours since a start"
    if _OTHER_ORDER.fullmatch(text):
        return "is a date in another form than 2020-01-31 (year, month, day)"
    return "is not a number or an ISO time (2020-01-31 or 2020-01-31T08:30)"


def zone_told(cell: object) -> bool | None:
    """Whether an ISO time or a datetime says its zone; None for what is neither."""
    found = moment(cell)
    return None if found is None else found[1] == "zone"
