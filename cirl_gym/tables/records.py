"""Records of finer times than the rows of a table: who, when, what and, of readings, how much.

A frame of records has the columns ``id``, ``time``, ``name`` and, of readings, ``value``. What cannot be placed (a
record without id, time, name or value) is left out with a count; what cannot be read is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, TypeAlias, get_args

import numpy as np
import pandas as pd

from cirl_gym.tables.cells import moment, zone_told
from cirl_gym.tables.columns import Duplicates
from cirl_gym.tables.sheet import Sheet, listed, refuse
from cirl_gym.tables.spellings import alike, is_no_id, plain_id
from cirl_gym.types import BoolArray, FloatArray, IntArray

Span: TypeAlias = float | str | timedelta
"""A length of time: a number in the unit of times that are numbers, "90min" or a timedelta where they are ISO times."""

_KEY = ["id", "time", "name"]


@dataclass(frozen=True)
class Clock:
    """What the times of records are, so that spans are in the same unit and times are written as they came."""

    iso: bool
    """ISO times or datetimes, in microseconds; otherwise numbers of a unit that only the owner knows."""
    zone: bool = False
    """ISO times that say their zone (read as UTC)."""

    def span(self, option: str, given: Span) -> float:
        """The length in the unit of the times; a ValueError that names the option if it is none, or negative."""
        if not self.iso or given == 0:
            number = isinstance(given, (int, float, np.integer, np.floating)) and not isinstance(given, bool)
            if not number or not 0 <= float(given) < np.inf:  # type: ignore[arg-type]
                raise ValueError(f"{option} must be a number in the unit of the times, not negative, got {given!r}")
            return float(given)  # type: ignore[arg-type]
        try:
            span = pd.Timedelta(given) if isinstance(given, (str, timedelta, np.timedelta64)) else pd.NaT
        except ValueError:
            span = pd.NaT
        if span is pd.NaT or span < pd.Timedelta(0):
            raise ValueError(f"{option} must be a length of time such as '90min' or '2h', not negative, got {given!r}")
        return float(span // pd.Timedelta("1us"))

    def written(self, times: FloatArray | IntArray) -> pd.Series[Any]:
        """``[R]`` times as they came: numbers, or datetimes (of UTC where the zone was told)."""
        if not self.iso:
            return pd.Series(times)
        return pd.Series(pd.to_datetime(times, unit="us", utc=self.zone))


@dataclass(frozen=True)
class RecordCounts:
    """Where the records went, each counted once; a ValueError where the counts do not add up to those read."""

    read: int
    without_id: int
    without_time: int
    without_name: int
    other_names: int
    """Records of names that were not asked for."""
    without_value: int
    identical: int
    """Records that say the same as another of the same id, time and name."""
    merged: int
    """Records merged with a differing one of the same id, time and name, by the rule for duplicates."""
    used: int
    notes: tuple[str, ...] = ()
    """Names and ids that may be one and the same, in words."""

    def __post_init__(self) -> None:
        counts = asdict(self)
        del counts["notes"]
        if counts.pop("read") != sum(counts.values()):
            raise ValueError(f"RecordCounts: the counts do not add up to {self.read} records: {self}")

    def lines(self, what: str) -> list[str]:
        """The account in sentences; what did not occur is not mentioned."""
        told = (
            (self.without_id, f"{what} without an id left out"),
            (self.without_time, f"{what} without a time left out"),
            (self.without_name, f"{what} without a name left out"),
            (self.other_names, f"{what} of other names left out"),
            (self.without_value, f"{what} without a value left out"),
            (self.identical, f"{what} dropped: the same as another of the same id, time and name"),
            (self.merged, f"{what} merged with a differing one of the same id, time and name"),
        )
        return (
            [f"{self.read} {what} read, {self.used} used"]
            + [f"{count} {text}" for count, text in told if count]
            + [f"warning: {what}: {note}" for note in self.notes]
        )


def read_records(
    frame: pd.DataFrame,
    what: str,
    names: Sequence[str] | None,
    duplicates: Duplicates | None = None,
    part: bool = False,
) -> tuple[pd.DataFrame, Clock | None, RecordCounts]:
    """Records that can be placed, one per id, time and name, in the order of these.

    Args:
        frame: records in any order, with the columns ``id``, ``time``, ``name`` and, of readings, ``value``.
        what: what to call them in messages, such as "records".
        names: those to read; None: all.
        duplicates: what to do with readings of one id, time and name that differ; None: there are no values to read.
        part: these are a part of all records: some names, or all records, may be in others.

    Returns:
        Columns ``id`` and ``name`` (texts), ``time`` (float64; microseconds of ISO times, int64) and ``value``; the
        clock, None where a part has no record; the account.

    Raises:
        ValueError: a column is missing, a time or value cannot be read, differing readings are an error, a name has no
            record, or no record can be placed; the message names column, id and row, or the names there are.
    """
    if duplicates is not None and duplicates not in get_args(Duplicates):
        raise ValueError(f"duplicates must be one of {', '.join(get_args(Duplicates))}, got {duplicates!r}")
    absent = [name for name in (*_KEY, *([] if duplicates is None else ["value"])) if name not in frame.columns]
    if absent:
        raise ValueError(f"{what}: there is no column {listed(absent)}; the columns are {listed(map(str, frame))}")
    sheet = Sheet(frame)
    # Of two frames one may hold its ids as floating-point numbers: 44.0 is the id 44.
    ids = np.array([None if is_no_id(id) else plain_id(id) for id in sheet.texts("id")], dtype=object)
    called = np.array(sheet.texts("name"), dtype=object)
    notes = (*alike(sorted({id for id in ids if id is not None}), "ids"),)
    found = sorted({name for name in called if name is not None})
    notes += tuple(alike(found, "names"))
    unknown = [] if names is None else [name for name in names if name not in found]
    if unknown and not part:
        raise ValueError(f"{what}: no record has the name {listed(unknown)}; the names are {listed(found)}")
    wanted = np.isin(called.astype(str), found if names is None else list(names))
    empty = np.zeros(len(frame), dtype=np.bool_)
    left = empty.copy()
    counts: dict[str, int] = {}
    for why, these in (
        ("without_id", ids == None),  # noqa: E711
        ("without_time", sheet.missing("time")),
        ("without_name", called == None),  # noqa: E711
        ("other_names", ~wanted),
        (
            "without_value",
            empty if duplicates is None else np.isnan(sheet.measured("value")[0]) & ~sheet.measured("value")[1],
        ),
    ):
        counts[why] = int((these & ~left).sum())
        left = left | these
    if left.all() and part:
        columns = {"id": str, "time": np.int64, "name": str} | ({} if duplicates is None else {"value": np.float64})
        none = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in columns.items()})
        return none, None, RecordCounts(len(frame), **counts, identical=0, merged=0, used=0, notes=notes)
    if left.all():
        told = ", ".join(f"{number} {why.replace('_', ' ')}" for why, number in counts.items() if number)
        raise ValueError(f"{what}: none of {len(frame)} can be used{f': {told}' if told else ''}")
    time, clock = _times(sheet, ~left, [str(name) for name in ids])
    kept = pd.DataFrame({"id": ids, "time": time, "name": called}).astype({"id": str, "name": str})
    if duplicates is not None:
        kept["value"], faults = sheet.readings("value")
        refuse([fault for fault in faults if not left[fault.position]], [str(name) for name in ids], sheet.rows)
    kept = kept[~left]
    same = kept.duplicated()
    one = _merged(kept[~same], what, duplicates)
    merged = len(kept) - int(same.sum()) - len(one)
    account = RecordCounts(len(frame), **counts, identical=int(same.sum()), merged=merged, used=len(one), notes=notes)
    return one, clock, account


def read_times(frame: pd.DataFrame, what: str) -> tuple[pd.DataFrame, Clock]:
    """Columns ``id`` and ``time`` of a frame, in the order of these, and their clock.

    Raises:
        ValueError: a column is missing, a time cannot be read, or a row has no id, no time, or those of another row.
    """
    absent = [name for name in ("id", "time") if name not in frame.columns]
    if absent:
        raise ValueError(f"{what}: there is no column {listed(absent)}; the columns are {listed(map(str, frame))}")
    points, clock, counts = read_records(frame[["id", "time"]].assign(name="row"), what, None)
    assert clock is not None  # records that are all there have one
    if counts.used < counts.read:
        raise ValueError(
            f"{what}: {counts.read - counts.used} of {counts.read} rows have no id, no time, or those of another row"
        )
    return points, clock


def _times(sheet: Sheet, placed: BoolArray, ids: Sequence[str]) -> tuple[FloatArray | IntArray, Clock]:
    times, faults = sheet.times("time")
    refuse([fault for fault in faults if placed[fault.position]], ids, sheet.rows)
    first = moment(sheet.frame["time"].iloc[int(np.argmax(placed))])
    if first is not None and first[1] == "duration":
        raise ValueError("column 'time' holds durations: records need times, or numbers in a unit of their own")
    zone = zone_told(sheet.frame["time"].iloc[int(np.argmax(placed))])
    return (times.astype(np.float64), Clock(iso=False)) if zone is None else (times, Clock(iso=True, zone=zone))


def _merged(records: pd.DataFrame, what: str, duplicates: Duplicates | None) -> pd.DataFrame:
    """One record per id, time and name, in the order of these; a mean does not depend on where its readings stood."""
    if duplicates == "error":
        twice = records[records.duplicated(_KEY)]
        if len(twice):
            where = [f"id {row.id!r}, {row.name_!r}" for row in twice.rename(columns={"name": "name_"}).itertuples()]
            raise ValueError(
                f"{what}: {len(twice)} readings have the id, time and name of another and differ from it: "
                f"{'; '.join(where[:10])}. Say which to keep (duplicates first, last or mean)"
            )
    if duplicates == "mean":
        rising = records.sort_values([*_KEY, "value"])
        return rising.groupby(_KEY, sort=True)["value"].mean().reset_index()
    one = records.drop_duplicates(_KEY, keep="last" if duplicates == "last" else "first")
    return one.sort_values(_KEY, ignore_index=True)


def last_before(points: pd.DataFrame, records: pd.DataFrame) -> pd.DataFrame:
    """``[R]`` to each point (columns ``id`` and ``time``, any order) the last record at or before it of the same id.

    Columns of records but ``id`` and ``time`` are appended, missing where there is no such record.
    """
    order = np.argsort(points["time"].to_numpy(), kind="stable")
    found = pd.merge_asof(points.iloc[order], records.sort_values("time", kind="stable"), on="time", by="id")
    return found.iloc[np.argsort(order)].set_axis(points.index)


def first_after(points: pd.DataFrame, records: pd.DataFrame) -> FloatArray:
    """``[R]`` the time of the first record after each point of the same id, infinite where there is none."""
    order = np.argsort(points["time"].to_numpy(), kind="stable")
    later = records[["id", "time"]].sort_values("time", kind="stable").assign(found=lambda own: own["time"])
    found = pd.merge_asof(
        points.iloc[order], later, on="time", by="id", direction="forward", allow_exact_matches=False
    )["found"].to_numpy(dtype=np.float64)
    return np.where(np.isnan(found), np.inf, found)[np.argsort(order)]


def one_clock(**clocks: Clock | None) -> Clock:
    """The clock that all that have one have in common; a ValueError that names two frames whose times cannot be
    compared."""
    words = {(False, False): "numbers", (True, False): "ISO times", (True, True): "ISO times with a zone"}
    told = {name: one for name, one in clocks.items() if one is not None}
    if not told:
        return Clock(iso=True)
    (first, clock), *rest = told.items()
    for name, other in rest:
        if other != clock:
            raise ValueError(
                f"column 'time': {first} has {words[clock.iso, clock.zone]}, but {name} has "
                f"{words[other.iso, other.zone]}: they cannot be compared"
            )
    return clock
