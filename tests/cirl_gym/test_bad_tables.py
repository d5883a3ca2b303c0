"""Every fault of a table gives one error that names column, id and row, or a repair with a count. Never silence."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tables import COLUMNS, put, refusal, stays, without, write

from cirl_gym.tables import TableColumns, TableOptions, read_table
from cirl_gym.tables.read import from_dataframe, prepare_table

ENDS = "columns 'terminated' and 'truncated', id '000', line 4, the last row of the id: one of the two must be 1"


@pytest.mark.parametrize(
    ("line", "column", "cell", "message"),
    [
        (3, "x", "high", "column 'x', id '000', line 3: 'high' is not a number"),
        (3, "x", "36,6", "column 'x', id '000', line 3: '36,6' is not a number"),
        (3, "x", "<0.5", "column 'x', id '000', line 3: '<0.5' is not a number"),
        (3, "x", "1_0", "column 'x', id '000', line 3: '1_0' is not a number"),
        (3, "x", "inf", "column 'x', id '000', line 3: 'inf' is not a number"),
        (5, "y", "1e30", "column 'y', id '001', line 5: 1e30 is beyond 1e+15, which no reading is"),
        (5, "y", "-1e16", "column 'y', id '001', line 5: -1e16 is beyond 1e+15, which no reading is"),
        (5, "y", "1e999", "column 'y', id '001', line 5: 1e999 is beyond 1e+15, which no reading is"),
        (2, "action", "", "column 'action', id '000', line 2: the action is missing; only the last row"),
        (3, "action", "NaN", "column 'action', id '000', line 3: the action is missing; only the last row"),
        (3, "stay_id", "", "column 'stay_id' is empty in line 3 (1 of 63 rows): every row needs one"),
        (3, "bin", "", "column 'bin', id '000', line 3: the time is empty"),
        (3, "bin", "noon", "column 'bin', id '000', line 3: 'noon' is not a number or an ISO time"),
        (3, "terminated", "2", "column 'terminated', id '000', line 3: '2' is not 0 or 1"),
        (3, "terminated", "1", "column 'terminated', id '000', line 3: the end is marked before the last row"),
        (4, "terminated", "0", ENDS),
        (4, "terminated", "", ENDS),
    ],
)
def test_one_bad_cell_is_named(line: int, column: str, cell: str, message: str) -> None:
    frame = put(stays(2, *[1] * 30), line, column, cell)
    assert message in refusal(frame)


def test_many_bad_cells_are_one_error_that_names_the_first_twenty() -> None:
    frame = stays(*[3] * 20)
    frame.loc[2:24, "x"] = "high"
    frame.loc[30, "y"] = "low"
    message = refusal(frame)
    assert message.startswith("24 cells cannot be used:\n  column 'x', id '000', line 2: 'high' is not a number\n")
    assert message.count("is not a number") == 20
    assert message.endswith("\n  ... and 4 more")


def test_frames_in_memory_name_the_position_and_files_the_line(tmp_path: Path) -> None:
    frame = stays(2, 1).reset_index(drop=True).astype({"x": float})
    frame.loc[1, "x"] = np.inf
    with pytest.raises(ValueError, match="column 'x', id '000', position 1: inf is beyond"):
        from_dataframe(frame, COLUMNS)
    path = write(tmp_path / "t.csv", put(stays(*[1] * 5000), 9000, "x", "1e30"))
    with pytest.raises(ValueError, match="column 'x', id '4499', line 9000: 1e30 is beyond"):
        from_dataframe(read_table(path))


@pytest.mark.parametrize("cell", [[1], {"a": 1}, pd.Timestamp("2020-01-01"), 1j, b"1"])
def test_cells_of_odd_types_are_no_numbers(cell: object) -> None:
    frame = stays(2, 1)
    frame.at[3, "x"] = cell
    with pytest.raises(ValueError, match=r"column 'x', id '000', line 3: .* is not a number"):
        from_dataframe(frame, COLUMNS)


@pytest.mark.parametrize("cell", ["", " ", "NA", "NaN", "nan", "NULL", None, np.nan, pd.NA])
def test_words_for_missing_are_missing_readings(cell: object) -> None:
    frame = stays(2, 1)
    frame.at[3, "x"] = cell
    batch, report = from_dataframe(frame)
    assert (report.features[0].empty, report.features[0].carried) == (1, 1)
    assert batch.obs[0, :, 0].tolist() == [0, 0, 2]


def test_ids_that_differ_in_blanks_only_are_kept_apart_with_a_warning() -> None:
    batch, report = from_dataframe(stays(2, 2).replace({"stay_id": {"001": "000 "}}))
    assert batch.ids == ("000", "000 ")
    assert "ids that differ in blanks, case or zeros only are different ones: '000', '000 '" in report.warnings


def test_times_with_and_without_a_zone_cannot_be_ordered() -> None:
    frame = stays(2).assign(bin=["2020-01-01T00:00", "2020-01-01T01:00Z", "2020-01-01T02:00Z"])
    with pytest.raises(
        ValueError, match=r"column 'bin', id '000', line 2: .* has no time zone, but most other cells have"
    ):
        from_dataframe(frame, COLUMNS)
    frame = stays(2).assign(bin=["2020-01-01", "2020-02-30", "2020-03-01"])
    with pytest.raises(ValueError, match="line 3: '2020-02-30' is not a number or an ISO time"):
        from_dataframe(frame, COLUMNS)


def test_the_rule_of_last_actions_broken_in_one_id_of_many() -> None:
    good = stays(*[2] * 1000)
    last = 2 + 3 * 700 + 2
    acted = put(good, last, "action", "1")
    said = "the last row of the id has an action, but in 999 of 1000"
    assert f"column 'action', id '700', line 2104: {said}" in refusal(acted)
    cut = without(put(put(good, last - 1, "terminated", "1"), last - 1, "truncated", "0"), last)
    assert f"id '700', line 2103: {said} ids it has none" in refusal(cut)
    batch, report = from_dataframe(acted, options=TableOptions(last_row="drop_action"))
    assert report.episodes.last_actions_dropped == 1
    assert batch == from_dataframe(good)[0]
    frame = put(stays(*[2] * 50, last_action=True), 4, "action", "")
    with pytest.raises(ValueError, match="id '000', line 4: the last row of the id has no action, but in 49 of 50 ids"):
        from_dataframe(frame, COLUMNS)


def test_too_few_actions_rows_or_classes_are_refused() -> None:
    frame = stays(*[2] * 5)
    frame.loc[frame["action"] != "", "action"] = "1"
    assert "column 'action': only one action, '1', is ever taken" in refusal(frame)
    # An action that is only on last rows, whose outcome nobody saw, is none that was learnt from.
    frame = stays(1, 1, last_action=True).assign(action=["0", "1", "0", "1"])
    with pytest.raises(ValueError, match="only one action, '0', is ever taken"):
        from_dataframe(frame, COLUMNS)
    frame = stays(60, 60)
    frame.loc[frame["action"] != "", "action"] = [str(0.5 * i) for i in range(120)]
    with pytest.raises(ValueError, match=r"column 'action' has 120 different values: .* put amounts into classes"):
        from_dataframe(frame, COLUMNS)
    with pytest.raises(ValueError, match="no id has two rows"):
        from_dataframe(stays(0, 0, 0), COLUMNS)


def test_one_id_under_two_owners() -> None:
    frame = stays(*[2] * 40)
    frame.insert(1, "subject_id", frame["stay_id"])
    frame.loc[4, "subject_id"] = "else"
    said = "column 'subject_id', id '000', line 4: the id belongs to 'else' here, but to "
    with pytest.raises(ValueError, match=said):
        from_dataframe(frame)
    frame.loc[4, "subject_id"] = ""
    with pytest.raises(ValueError, match="column 'subject_id' is empty in line 4"):
        from_dataframe(frame)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"end": "dead"}, "end must be one of terminated, truncated, got 'dead'"),
        ({"duplicates": "sum"}, "duplicates must be one of error, first, last, mean, got 'sum'"),
        ({"last_row": "keep"}, "last_row must be one of observation, drop_action, got 'keep'"),
        ({"ranges": {"x": (2, 1)}}, r"ranges: 'x' must have low <= high, got \(2.0, 1.0\)"),
    ],
)
def test_options_that_do_not_exist(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TableOptions(**options)


def test_columns_options_ends_and_splits_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="the table has no column 'wbc'; its columns are 'stay_id', 'bin', 'x', 'y'"):
        from_dataframe(stays(1), TableColumns("stay_id", "bin", "action", ("wbc",)))
    with pytest.raises(ValueError, match="ranges: 'z' is not among the features 'x', 'y'"):
        from_dataframe(stays(2, 1), options=TableOptions(ranges={"z": (0, 1)}))
    with pytest.raises(ValueError, match="lag: 'z' is not among the features 'x', 'y'"):
        from_dataframe(stays(2, 1), options=TableOptions(lag=("z",)))
    with pytest.raises(ValueError, match="a column cannot play two parts: 'x'"):
        TableColumns("id", "x", "action", ("x",))
    with pytest.raises(ValueError, match="at least one feature is needed"):
        TableColumns("id", "t", "action", ())
    with pytest.raises(ValueError, match="the name of column 1 must be a text, got 0"):
        from_dataframe(pd.DataFrame([[1, 2]]), COLUMNS)
    with pytest.raises(ValueError, match=r"2 groups cannot be split .* three are needed"):
        prepare_table(stays(2, 2), rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"must be positive and leave a rest, got 0\.5 and 0\.5"):
        prepare_table(stays(2, 2, 2), rng=np.random.default_rng(0), validation=0.5, test=0.5)
    unsaid = stays(2, 1, flags=False)
    with pytest.raises(ValueError, match=r"does not say how its episodes end: .* Say --end terminated .* --end trunc"):
        from_dataframe(unsaid)
    with pytest.raises(ValueError, match="the table's own column 'terminated' says how each episode ends"):
        from_dataframe(stays(2, 1), options=TableOptions(end="truncated"))
