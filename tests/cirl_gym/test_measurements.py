"""Tables of decisions from records: worked out by hand, by a plain loop, and unchanged by what must not matter."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import write

from cirl_gym.tables import (
    NOT_CHECKED,
    AnswerCounts,
    DecisionOptions,
    answers_inside,
    at_measurements,
    at_times,
    from_dataframe,
    infer_columns,
    read_table,
)
from cirl_gym.tables.measurements import ActionPlaces, IdCounts, PointCounts
from cirl_gym.tables.records import RecordCounts

READINGS = [
    ("a", 0, "k", 4.0),
    ("a", 1, "k", 4.1),  # too soon after 0
    ("a", 3, "k", 3.5),
    ("a", 6, "k", 3.9),
    ("a", 9, "k", 4.2),
    ("a", 3, "hr", 80.0),  # at the time of a row: known there
    ("a", 4, "hr", 90.0),
    ("b", 0, "k", 5.0),  # one reading only
    ("c", 0, "hr", 70.0),  # no reading to decide at
]
ACTIONS = [
    ("a", -1, "dose"),  # before the first row
    ("a", 0, "dose"),  # at the reading: after it
    ("a", 1.5, "dose"),  # in the same step, as close to the next row as may be
    ("a", 1.75, "dose"),  # too close to the next row
    ("a", 4.5, "drip"),  # after a reading of hr that is in no row yet
    ("a", 5.9, "dose"),  # too long after its row
    ("a", 9, "dose"),  # at the last row
    ("b", 1, "dose"),  # no row of its id
]
OPTIONS = DecisionOptions(window=2, margin=1.5)


def records(rows: list[tuple] = READINGS) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["id", "time", "name", "value"])


def actions(rows: list[tuple] = ACTIONS) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["id", "time", "name"])


def test_a_table_worked_out_by_hand() -> None:
    frame, report = at_measurements(records(), actions(), "k", 2, OPTIONS)
    wanted = pd.DataFrame(
        {
            "id": ["a"] * 4,
            "time": [0.0, 3.0, 6.0, 9.0],
            "k": [4.0, 3.5, 3.9, 4.2],
            "hr": [math.nan, 80.0, 90.0, 90.0],
            "dose": pd.array([1, 0, 0, pd.NA], dtype="Int64"),
            "drip": pd.array([0, 1, 0, pd.NA], dtype="Int64"),
            "terminated": [0, 0, 0, 0],
            "truncated": [0, 0, 0, 1],
        }
    )
    pd.testing.assert_frame_equal(frame, wanted, check_dtype=False)
    assert report.records == RecordCounts(9, 0, 0, 0, 0, 0, 0, 0, 9)
    assert report.actions == RecordCounts(8, 0, 0, 0, 0, 0, 0, 0, 8)
    assert report.points == PointCounts(6, rows=4, close=1, short=1, beyond=0)
    assert report.places == ActionPlaces(8, taken=3, elsewhere=1, before=1, after=1, late=1, near=1)
    assert report.ids == IdCounts(3, used=1, without_points=1, short=1)
    assert (report.given, report.decisions) == ({"dose": 1, "drip": 1}, 3)
    # The drip follows the reading of hr at 4; between 3 and 4.5, when it counts, a third of the time does.
    chance = (pytest.approx(1 / 3), pytest.approx(math.sqrt(2 / 9)))
    told = [(c.name, c.actions, c.actions_after, c.decisions, c.decisions_after) for c in report.answers]
    assert told == [("k", 3, 1, 2, 0), ("hr", 3, 1, 2, 1)]
    assert all((c.by_chance, c.chance_spread) == chance for c in report.answers)


def test_the_account_in_sentences() -> None:
    _, report = at_measurements(records(), actions(), "k", 2, OPTIONS)
    assert report.lines() == [
        "9 records read, 9 used",
        "8 actions read, 8 used",
        "6 readings of k, 4 rows: 1 of 3 ids with 3 decisions",
        "1 readings of k passed over: too soon after the row before",
        "1 readings of k left out: too few decisions of their id",
        "1 ids left out: no readings of k",
        "1 ids left out: too few decisions",
        "1 actions left out: no row of their id",
        "1 actions left out: before the first row of their id",
        "1 actions left out: at or after the last row of their id",
        "1 actions left out: too long after their row",
        "1 actions left out: too shortly before the next row",
        "action 'dose' in 1 of 3 decisions (33 %)",
        "action 'drip' in 1 of 3 decisions (33 %)",
        "1 of 2 decisions to act (50 %) follow a reading of hr inside their own step, which their row does not hold "
        "(17 % would at random times)",
    ]


def test_what_cannot_be_placed_is_counted_once() -> None:
    odd = [
        (None, 1, "k", 1.0),
        ("a", None, "k", 1.0),
        ("a", 2, None, 1.0),
        ("a", 2, "weight", "heavy"),  # of a name that was not asked for: never read
        ("a", 2, "hr", None),
        (None, None, None, None),
        ("a", 3, "k", 3.5),  # said twice
        ("a", 4, "hr", 94.0),  # differs from 90
    ]
    frame, report = at_measurements(records(READINGS + odd), actions(), "k", 2, DecisionOptions(covariates=("k", "hr")))
    assert report.records == RecordCounts(
        17,
        without_id=2,
        without_time=1,
        without_name=1,
        other_names=1,
        without_value=1,
        identical=1,
        merged=1,
        used=9,
    )
    assert frame["hr"].tolist()[1:] == [80, 92, 92]
    assert report.records.lines("records") == [
        "17 records read, 9 used",
        "2 records without an id left out",
        "1 records without a time left out",
        "1 records without a name left out",
        "1 records of other names left out",
        "1 records without a value left out",
        "1 records dropped: the same as another of the same id, time and name",
        "1 records merged with a differing one of the same id, time and name",
    ]


@pytest.mark.parametrize(("rule", "value"), [("mean", 92.0), ("first", 90.0), ("last", 94.0)])
def test_readings_of_one_time_that_differ(rule: str, value: float) -> None:
    twice = records([*READINGS, ("a", 4, "hr", 94.0)])
    options = replace(OPTIONS, duplicates=rule)  # type: ignore[arg-type]
    assert at_measurements(twice, actions(), "k", 2, options)[0]["hr"].iloc[-1] == value
    with pytest.raises(ValueError, match=r"1 readings have the id, time and name of another .*: id 'a', 'hr'"):
        at_measurements(twice, actions(), "k", 2, replace(OPTIONS, duplicates="error"))


def test_the_most_and_the_fewest_decisions_ends_and_patients() -> None:
    more = [(id, 10 * t, "k", t) for id, n in (("x", 3), ("y", 5), ("z", 2)) for t in range(n)]
    options = DecisionOptions(
        min_decisions=2, max_decisions=3, patients={"x": "p", "y": "q", "z": "p"}, terminated=("x", "y")
    )
    frame, report = at_measurements(records(more), actions([("x", 5, "dose")]), "k", 1, options)
    assert frame[["id", "patient", "time"]].values.tolist() == [
        *(["x", "p", t] for t in (0, 10, 20)),
        *(["y", "q", t] for t in (0, 10, 20, 30)),
    ]
    # What came of y stands after what is kept of it: only watching ended.
    assert frame.groupby("id")[["terminated", "truncated"]].sum().values.tolist() == [[1, 0], [0, 1]]
    assert report.points == PointCounts(10, rows=7, close=0, short=2, beyond=1)
    assert report.ids == IdCounts(3, used=2, without_points=0, short=1)
    with pytest.raises(ValueError, match="patients: nobody is named for id 'y'"):
        at_measurements(records(more), actions([("x", 5, "dose")]), "k", 1, DecisionOptions(patients={"x": 1, "z": 2}))


def test_the_table_is_read_as_any_other_is(tmp_path: Path) -> None:
    frame, _ = at_measurements(records(), actions(), "k", 2, OPTIONS)
    columns = infer_columns(frame.drop(columns="drip"))
    assert (columns.id, columns.time, columns.action, columns.features) == ("id", "time", "dose", ("k", "hr"))
    batch, report = from_dataframe(frame, infer_columns(frame, action=("dose", "drip")))
    assert batch.action_names == ("dose=0, drip=0", "dose=0, drip=1", "dose=1, drip=0")
    assert report.episodes.truncated == 1
    assert (
        from_dataframe(read_table(write(tmp_path / "t.csv", frame)), infer_columns(frame, action=("dose", "drip")))[0]
        == batch
    )


@pytest.mark.parametrize("zone", [None, "Europe/Rome"])
@pytest.mark.parametrize("unit", ["s", "us", "text"])
def test_times_are_numbers_or_datetimes_or_texts(unit: str, zone: str | None) -> None:
    frame, report = at_measurements(records(), actions(), "k", 2, OPTIONS)
    start = pd.Timestamp("2150-03-01", tz=zone)
    moved = []
    for rows in (records(), actions()):
        times = pd.Series(start + pd.to_timedelta(rows["time"], unit="h"))
        moved.append(rows.assign(time=times.astype(str) if unit == "text" else times.dt.as_unit(unit)))
    told, account = at_measurements(*moved, "k", "2h", replace(OPTIONS, window="2h", margin=pd.Timedelta("90min")))
    assert account == report
    assert told["time"].tolist() == [start + pd.Timedelta(hours=hours) for hours in (0, 3, 6, 9)]
    assert str(told["time"].dt.tz) == ("UTC" if zone else "None")
    pd.testing.assert_frame_equal(told.drop(columns="time"), frame.drop(columns="time"))


ROW = st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.sampled_from(["k", "hr"]), st.integers(0, 3))
ACT = st.tuples(st.sampled_from("abcd"), st.integers(-1, 14), st.sampled_from(["dose", "drip"]))
ANCHOR = [("a", 0, "k", 1), ("a", 12, "k", 2), ("a", 0, "hr", 1)]


def by_a_loop(rows: list[tuple], acts: list[tuple], apart: int, window: int, margin: int) -> list[list]:
    """The same table, one row after the other."""
    known: dict[tuple, list[float]] = {}
    for id, time, name, value in set(rows):
        known.setdefault((id, name, time), []).append(value)
    table = []
    for id in "abc":
        points: list[float] = []
        for time in sorted(t for i, name, t in known if i == id and name == "k"):
            if not points or time >= points[-1] + apart:
                points.append(time)
        if len(points) < 2:
            continue
        for time, after in zip(points, [*points[1:], None], strict=True):
            cells: list = [id, time]
            for name in ("k", "hr"):
                times = [t for i, n, t in known if (i, n) == (id, name) and t <= time]
                cells.append(np.mean(known[id, name, max(times)]) if times else None)
            for name in ("dose", "drip"):
                own = [t for i, t, n in acts if (i, n) == (id, name)]
                cells.append(
                    after and int(any(time <= t <= min(time + window, after - margin) and t < after for t in own))
                )
            table.append(cells)
    return table


@settings(max_examples=15, deadline=None)
@given(
    st.lists(ROW, max_size=25),
    st.lists(ACT, max_size=12),
    st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 2)),
    st.randoms(use_true_random=False),
)
def test_any_records_in_any_order_give_the_table_of_a_plain_loop(
    rows: list, acts: list, spans: tuple, shuffler
) -> None:
    rows, acts = ANCHOR + rows, [("a", 1, "dose"), ("a", 2, "drip"), *acts]
    apart, window, margin = spans
    options = DecisionOptions(window=window, margin=margin)
    frame, report = at_measurements(records(rows), actions(acts), "k", apart, options)
    told = frame[["id", "time", "k", "hr", "dose", "drip"]].astype(object)
    assert told.where(told.notna(), None).values.tolist() == by_a_loop(rows, acts, *spans)
    shuffler.shuffle(rows)
    shuffler.shuffle(acts)
    again, account = at_measurements(records(rows), actions(acts), "k", apart, options)
    pd.testing.assert_frame_equal(again, frame)
    assert account == report
    # The same rows by their times; and the answers counted from them.
    by_times, other = at_times(records(rows), actions(acts), frame, replace(options, covariates=("k", "hr")))
    pd.testing.assert_frame_equal(by_times, frame)
    counted = answers_inside(records(rows), actions(acts), frame, ("k", "hr"), window=window, margin=margin)
    assert counted == other.answers == report.answers


def test_a_variable_and_an_action_of_which_nothing_is_left_have_their_columns() -> None:
    rows = records([("a", 0, "k", 1.0), ("a", 2, "k", 2.0), ("a", 1, "hr", None)])
    acts = actions([("a", -1, "dose")])
    for index in ([5, 5, 5], ["x", "y", "z"]):
        frame, report = at_measurements(rows.set_index(pd.Index(index)), acts, "k", 1, DecisionOptions(covariates="hr"))
        assert frame["hr"].isna().all()
        assert frame["dose"].tolist() == [0, pd.NA]
        assert [(c.name, c.decisions, c.share, c.warned) for c in report.answers] == [
            ("k", 0, 0, False),
            ("hr", 0, 0, False),
        ]
        assert not any("decisions to act" in line for line in report.lines())


def test_rows_at_given_times() -> None:
    # Bins of 4 h: the row at 4 knows the reading at 3; the reading at 9 is in no row.
    times = pd.DataFrame({"id": ["a"] * 3, "time": [8, 0, 4]})
    frame, report = at_times(records(), actions(), times, DecisionOptions(covariates=("k",), given=("dose",)))
    assert frame["time"].tolist() == [0, 4, 8]
    assert frame["k"].tolist() == [4.0, 3.5, 3.9]
    assert frame["dose"].tolist()[:2] == [1, 1]
    assert report.ids == IdCounts(2, used=1, without_points=1, short=0)
    assert report.lines()[4] == "3 times, 3 rows: 1 of 2 ids with 2 decisions"
    for bad in ([("a", 0), ("a", 0)], [("a", 0), (None, 4)], [("a", 0), ("a", None)]):
        with pytest.raises(ValueError, match="times: 1 of 2 rows have no id, no time, or those of another row"):
            at_times(records(), actions(), pd.DataFrame(bad, columns=["id", "time"]))
    with pytest.raises(ValueError, match="times: there is no column 'time'"):
        at_times(records(), actions(), times[["id"]])


def test_actions_that_answer_readings_inside_their_step() -> None:
    # Steps of 6 h. Readings at 0 (in the row), 2, 7 and 11; in the first step a dose at 1 and one at 2, in the second
    # one at 9, in the third one at 13 and, of another id, one in no step.
    readings = records([("a", t, "g", 1.0) for t in (0, 2, 7, 11)])
    doses = actions([("a", t, "dose") for t in (1, 2, 9, 13)] + [("b", 1, "dose")])
    edges = pd.DataFrame({"id": "a", "time": [0, 6, 12, 18]})
    (counts,) = answers_inside(readings, doses, edges)
    # Of the first step the dose at 1 counts. At a random time 4 of 6 hours of the first step follow the reading at 2, 5
    # of 6 of the second that at 7, and none of the third any.
    assert (counts.name, counts.actions, counts.actions_after) == ("g", 4, 2)
    assert (counts.decisions, counts.decisions_after) == (3, 1)
    assert (counts.by_chance, counts.chance_spread) == pytest.approx((4 / 6 + 5 / 6, math.sqrt(8 / 36 + 5 / 36)))
    (counts,) = answers_inside(readings, doses, edges, window=3)
    assert (counts.actions, counts.actions_after, counts.by_chance) == (4, 2, pytest.approx(1 / 3 + 2 / 3))
    (counts,) = answers_inside(readings, doses, edges, margin=4.5)
    assert (counts.actions, counts.actions_after, counts.by_chance) == (2, 0, 0.0)


def test_answers_are_warned_of_where_there_are_more_than_by_chance() -> None:
    ids = [f"{i}" for i in range(40)]
    edges = pd.DataFrame([(id, t) for id in ids for t in (0, 6)], columns=["id", "time"])
    readings = records([(id, 3, "g", 1.0) for id in ids])
    late = actions([(id, 3.1, "dose") for id in ids])
    (counts,) = answers_inside(readings, late, edges)
    assert (counts.share, counts.by_chance, counts.warned) == (1.0, 20.0, True)
    assert counts.sentence() == (
        "warning: 40 of 40 decisions to act (100 %) follow a reading of g inside their own step, which their row does "
        "not hold (50 % would at random times): the next g tells of what the action answered as well as of what it "
        "caused, and its effect may have the wrong sign; a row at every reading mends that (docs/timing.md)"
    )
    early = actions([(id, 2.0 if int(id) % 2 else 4.0, "dose") for id in ids])
    (counts,) = answers_inside(readings, early, edges)
    assert (counts.share, counts.warned) == (0.5, False)
    assert counts.sentence().endswith("which their row does not hold (50 % would at random times)")
    assert "docs/timing.md" in NOT_CHECKED


def test_counts_must_add_up() -> None:
    for wrong in (
        lambda: RecordCounts(9, 0, 0, 0, 0, 0, 0, 0, 8),
        lambda: PointCounts(3, 1, 1, 0, 0),
        lambda: ActionPlaces(3, 1, 1, 0, 0, 0, 0),
        lambda: IdCounts(3, 1, 1, 0),
        lambda: AnswerCounts("g", 3, 4, 1, 1, 0.0, 0.0),
        lambda: AnswerCounts("g", 3, 1, 2, 3, 0.0, 0.0),
    ):
        with pytest.raises(ValueError, match=r"add up|more than the whole"):
            wrong()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"records": records().drop(columns="value")}, "records: there is no column 'value'; the columns are 'id'"),
        ({"actions": actions().rename(columns={"name": "drug"})}, "actions: there is no column 'name'"),
        (
            {"records": records([*READINGS, ("a", 2, "k", "low")])},
            "column 'value', id 'a', position 9: 'low' is not a number",
        ),
        (
            {"records": records([*READINGS, ("a", "noon", "k", 1)])},
            "column 'time', id 'a', position 9: 'noon' is not a",
        ),
        ({"actions": actions([("a", "2150-01-01", "dose")])}, "records has numbers, but actions has ISO times"),
        (
            {"actions": actions([("z", 1, "dose")])},
            "actions: no id is one of those of the records, 'z' and others here",
        ),
        ({"actions": actions([(None, 1, "dose")])}, "actions: none of 1 can be used: 1 without id"),
        ({"actions": actions([])}, "actions: none of 0 can be used"),
        ({"at": "na"}, "records: no reading that can be placed has the name 'na'; the names are 'hr', 'k'"),
        ({"apart": 20}, "no id has 2 readings of k at least 20 apart"),
        ({"apart": "2h"}, "apart must be a number in the unit of the times, not negative, got '2h'"),
        ({"apart": -1}, "apart must be a number"),
        ({"options": {"window": math.nan}}, "window must be a number"),
        ({"options": {"covariates": ("na",)}}, "records: no record has the name 'na'; the names are 'hr', 'k'"),
        ({"options": {"given": ("pill",)}}, "actions: no record has the name 'pill'; the names are 'dose', 'drip'"),
        ({"options": {"given": ("k",)}, "actions": actions([("a", 1, "k")])}, "two columns have the name 'k'"),
        ({"options": {"duplicates": "median"}}, "duplicates must be one of error, first, last, mean, got 'median'"),
    ],
)
def test_what_cannot_be_used_is_one_clear_error(change: dict, message: str) -> None:
    arguments = {"records": records(), "actions": actions(), "at": "k", "apart": 2} | change
    arguments["options"] = DecisionOptions(**change.get("options", {}))
    with pytest.raises(ValueError, match=re.escape(message)):
        at_measurements(**arguments)


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="min_decisions must be at least 1 and at most max_decisions, got 3 and 2"):
        DecisionOptions(min_decisions=3, max_decisions=2)
    with pytest.raises(ValueError, match="two columns have the name 'time'"):
        DecisionOptions(covariates=("k", "time"))
    iso = [given.assign(time="2150-01-01T08:00") for given in (records(), actions())]
    for span in (2, "-2h", "soon", None):
        with pytest.raises(ValueError, match=r"apart must be a length of time such as '90min' or '2h', not negative"):
            at_measurements(*iso, "k", span)  # type: ignore[arg-type]


def test_ids_and_values_are_missing_as_in_a_table_and_a_float_id_is_its_number() -> None:
    rows = [(44, 0, "k", "4"), (44, 2, "k", "."), (44, 3, "k", "5"), ("nan", 0, "k", "4"), ("None", 1, "k", "4")]
    frame, report = at_measurements(records(rows), actions([(44.0, 1, "dose"), (44.0, 1, "DOSE")]), "k", 1)
    assert frame["id"].tolist() == ["44", "44"]
    assert frame["dose"].tolist()[0] == 1
    assert (report.records.without_id, report.records.without_value, report.records.used) == (2, 1, 2)
    assert "warning: actions: names that differ in blanks, case or zeros only are different ones: 'DOSE', 'dose'" in (
        report.lines()
    )
    options = DecisionOptions(patients={"44.0": "p"}, terminated=("44",))
    frame, _ = at_measurements(records(rows), actions([(44.0, 1, "dose")]), "k", 1, options)
    assert frame["patient"].tolist() == ["p", "p"]
    assert frame["terminated"].tolist() == [0, 1]
    durations = records([("a", pd.Timedelta(0), "k", 1.0), ("a", pd.Timedelta("2h"), "k", 1.0)])
    with pytest.raises(ValueError, match="column 'time' holds durations"):
        at_measurements(durations, actions([("a", pd.Timedelta(1), "dose")]), "k", 0)
