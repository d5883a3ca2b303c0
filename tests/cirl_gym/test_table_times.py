"""Times as databases, pandas and people write them: read, or refused in words that say what to write."""

from __future__ import annotations

from datetime import time
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from small_tables import COLUMNS, put, stays

from cirl_gym.tables import Sheet, TableOptions, infer_columns, read_table
from cirl_gym.tables.cells import moment
from cirl_gym.tables.read import from_dataframe

HOUR = 3_600_000_000


def timed(cells: list[Any], **more: Any) -> pd.DataFrame:
    """Stay 0 with one row per time, actions 0 and 1 in turn, and two plain stays of the same days."""
    frame = stays(len(cells) - 1, len(cells) - 1, len(cells) - 1)
    return frame.assign(bin=cells * 3, **more)


@pytest.mark.parametrize(
    ("text", "microseconds", "kind"),
    [
        ("1970-01-01 01:00:00+00", HOUR, "zone"),  # PostgreSQL
        ("1970-01-01 01:00:00.5-01", 2 * HOUR + 500_000, "zone"),
        ("1970-01-01T01:00 UTC", HOUR, "zone"),
        ("1970-01-01 01:00:00UTC", HOUR, "zone"),
        ("1970-01-01 24:00", 24 * HOUR, "no zone"),
        ("1970-01-01T24:00:00.000", 24 * HOUR, "no zone"),
        ("1970-01-01T24:00+01:00", 23 * HOUR, "zone"),
        (pd.Timedelta(hours=2), 2 * HOUR, "duration"),
        (pd.Period("1970-01-02", freq="D"), 24 * HOUR, "no zone"),
        ("9999-12-31T24:00", 253402300800 * 10**6, "no zone"),
    ],
)
def test_moments_that_are_read(text: object, microseconds: int, kind: str) -> None:
    assert moment(text) == (microseconds, kind)


@pytest.mark.parametrize("text", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "0001-01-01 00:00:00+14"])
def test_offsets_at_the_ends_of_the_calendar_are_whole_numbers(text: str) -> None:
    found = moment(text)
    assert found is not None
    own = moment(text[:16].replace(" ", "T"))
    assert own is not None
    assert found[0] - own[0] == (-14 if "+" in text else 14) * HOUR


@pytest.mark.parametrize("text", ["1970-01-01T24:01", "1970-01-01T25:00", "1970-13-01", "1970-02-30", "+00", "UTC"])
def test_what_is_no_moment(text: str) -> None:
    assert moment(text) is None


@given(st.datetimes(), st.integers(-14, 14), st.booleans())
def test_any_time_with_any_offset_is_the_same_moment(when: Any, hours: int, short: bool) -> None:
    plain = moment(when.isoformat(" "))
    shifted = moment(f"{when.isoformat(' ')}{hours:+03d}{'' if short else ':00'}")
    assert plain is not None
    assert shifted is not None
    assert shifted == (plain[0] - hours * HOUR, "zone")


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        (["01/31/2020", "02/01/2020", "02/02/2020"], "'01/31/2020' is a date in another form than 2020-01-31"),
        (["31.01.2020", "01.02.2020", "02.02.2020"], "'31.01.2020' is a date in another form than 2020-01-31"),
        (["2020/01/31", "2020/02/01", "2020/02/02"], "'2020/01/31' is a date in another form than 2020-01-31"),
        (["08:00", "09:00", "24:00"], "'08:00' is a time of day without its date: write both"),
        ([time(8), time(9), time(10)], "is a time of day without its date: write both"),
        (["", "", "2020-01-31"], "the time is empty"),
        (["now", "then", "later"], "'now' is not a number or an ISO time"),
    ],
)
@pytest.mark.parametrize("given", [{}, {"time": "bin"}])
def test_times_that_cannot_be_read_are_the_first_thing_that_is_said(
    cells: list[Any], why: str, given: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"(?s)cells cannot be used.*column 'bin', id '000', line 2") as caught:
        infer_columns(timed(cells), **given)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "cells",
    [
        pd.to_timedelta([0, 1, 3], unit="h"),
        pd.to_datetime(["2020-01-01", "2020-01-01 01:00", "2020-01-01 03:00"], format="ISO8601"),
        pd.to_datetime(["2020-01-01", "2020-01-01 01:00", "2020-01-01 03:00"], format="ISO8601", utc=True),
        ["2020-01-01 00:00:00+00", "2020-01-01 01:00:00+00", "2020-01-01 03:00:00+00"],
    ],
)
@pytest.mark.parametrize("parquet", [False, True])
def test_times_of_every_type_order_rows(cells: Any, parquet: bool, tmp_path: Path) -> None:
    frame = timed(list(cells))
    if parquet:
        frame.to_parquet(tmp_path / "t.parquet")
        frame = read_table(tmp_path / "t.parquet")
    batch, report = from_dataframe(frame.iloc[::-1])
    assert np.array_equal(batch.obs, from_dataframe(stays(2, 2, 2))[0].obs)
    assert report.steps is not None
    assert report.steps.longest.startswith("2:00:00 (id '000', up to ")
    assert report.steps.shortest.startswith("1:00:00 (id '000', up to ")


def test_a_missing_time_of_every_type_is_named(tmp_path: Path) -> None:
    for cells in (
        pd.to_timedelta([0, None, 3], unit="h"),
        pd.to_datetime(["2020-01-01", None, "2020-01-01 03:00"], format="ISO8601"),
        pd.to_datetime(["2020-01-01", None, "2020-01-01 03:00"], format="ISO8601", utc=True),
    ):
        frame = timed(list(cells))
        frame.to_parquet(tmp_path / "t.parquet")
        for table in (frame, read_table(tmp_path / "t.parquet")):
            with pytest.raises(ValueError, match=r"column 'bin', id '000', (line 3|row 2): the time is empty"):
                from_dataframe(table, COLUMNS)


def test_time32_of_parquet_is_a_time_of_day(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    plain = stays(2, 2, 2).reset_index(drop=True).drop(columns="bin")
    table = pa.Table.from_pandas(plain).append_column("bin", pa.array([0, None, 2] * 3, pa.time32("s")))
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"row 1: .* is a time of day without its date"):
        from_dataframe(read_table(tmp_path / "t.parquet"), COLUMNS)


def test_irregular_steps_are_said_with_ids_and_lines() -> None:
    frame = stays(5, 5, 5)
    frame.loc[frame["stay_id"] == "001", "bin"] = ["0", "1", "1.5", "9", "9.1", "40"]
    report = from_dataframe(frame)[1]
    said = (
        "steps of unequal length count the same: the median one takes 1, the shortest 0.1 (id '001', up to line 12), "
        "the longest 30.9 (id '001', up to line 13), and 3 of 15 are longer than one and a half times or shorter than "
        "half of the median one"
    )
    assert report.warnings == (said,)
    assert (
        "every row is one step, however much time passes: 1, from 0.1 (id '001', up to line 12) to 30.9 (id '001', up "
        "to line 13)"
    ) in report.lines()
    assert "every row is one step, however much time passes: 1 in every" in from_dataframe(stays(5, 5))[1].lines()


def test_a_stamp_a_year_off_is_named_and_the_action_is_not_blamed_alone() -> None:
    days = [f"2020-01-0{day}" for day in range(1, 5)]
    frame = timed(days)
    (warning,) = from_dataframe(put(frame, 5, "bin", "2021-01-04"))[1].warnings  # the last row of stay 0
    assert "the longest 367 days, 0:00:00 (id '000', up to line 5)" in warning
    with pytest.raises(ValueError, match=r".") as caught:
        from_dataframe(put(frame, 3, "bin", "2021-01-02"), COLUMNS)
    assert str(caught.value) == (
        "column 'action', id '000', line 5: the action is missing; only the last row of an id may have none, and by "
        "'bin' line 3 comes after it, 364 days, 0:00:00 later"
    )
    frame.loc[[2, 3, 4], ["terminated", "truncated"]] = "0"
    ended = put(frame, 5, "action", "1")
    with pytest.raises(
        ValueError, match="line 5: the end is marked before the last row of the id; by 'bin' line 3 comes"
    ):
        from_dataframe(put(ended, 3, "bin", "2021-01-02"), COLUMNS, TableOptions(last_row="drop_action"))


def test_times_of_two_kinds_are_refused() -> None:
    frame = timed([pd.Timedelta(0), "2020-01-01", "2020-01-02"])
    with pytest.raises(
        ValueError, match=r"line 2: .* has a duration and no time, but most other cells have no time zone"
    ):
        from_dataframe(frame, COLUMNS)
    assert len(Sheet(timed(["1", "2", "2020-01-01"])).times("bin")[1]) == 3
