"""Rows of a table: several columns of decisions are one action; rows of one (id, time) collapse, or are settled."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tables import COLUMNS, put, refusal, stays

from cirl_gym.tables import Sheet, TableColumns, TableOptions, infer_columns
from cirl_gym.tables.read import from_dataframe, prepare_table
from cirl_gym.tables.rows import merge_duplicates, parse_rows, sort_rows

BOTH = TableColumns("stay_id", "bin", ("drug", "air"), ("x", "y"), None, "terminated", "truncated")


def two(*lengths: int) -> pd.DataFrame:
    """Drug as "no" or "yes", air as 0, 1 or 2; (yes, 2) never happens."""
    frame = stays(*lengths).rename(columns={"action": "drug"})
    step = frame["bin"].astype(int)
    frame["air"] = (step % 3).astype(str).where(frame["drug"] != "", "")
    frame["drug"] = frame["drug"].map({"0": "no", "1": "yes", "": ""})
    frame.loc[(frame["air"] == "2") & (frame["drug"] == "yes"), "drug"] = "no"
    return frame


def test_combinations_by_hand_in_the_users_order_numbers_sorted() -> None:
    # Stay 0: t = 0, 1, 2: (no, 0), (yes, 1), (no, 2). Stay 1: (yes, 0), (no, 1), (no, 2).
    batch, report = from_dataframe(two(3, 3), BOTH)
    pairs = [("no", "0"), ("no", "1"), ("no", "2"), ("yes", "0"), ("yes", "1")]
    assert batch.action_names == tuple(f"drug={drug}, air={air}" for drug, air in pairs)
    assert batch.actions.tolist() == [[0, 4, 2], [3, 1, 2]]
    assert report.actions == tuple({"drug": drug, "air": air} for drug, air in pairs)
    said = (
        "5 actions, the combinations that were taken: drug=no, air=0 (1 time by 1 patient); "
        "drug=no, air=1 (1 time by 1 patient); drug=no, air=2 (2 times by 2 patients); "
    )
    assert any(line.startswith(said) for line in report.lines())
    batch, report = from_dataframe(two(3, 3), infer_columns(two(3, 3), action=("air", "drug")))
    assert batch.action_names[:3] == ("air=0, drug=no", "air=0, drug=yes", "air=1, drug=no")
    assert report.actions[1] == {"air": "0", "drug": "yes"}
    frame = two(3, 3)
    frame["air"] = frame["air"].map({"0": "10.0", "1": "9", "2": "100", "": ""})
    batch, _ = from_dataframe(frame, BOTH)
    assert batch.action_names[:3] == ("drug=no, air=9", "drug=no, air=10", "drug=no, air=100")
    batch, report = from_dataframe(stays(2, 1), COLUMNS)
    assert batch.action_names == ("0", "1")
    assert report.actions == ({"action": "0"}, {"action": "1"})
    assert not any("combinations" in line for line in report.lines())
    table = prepare_table(two(3, 3, 3, 3), BOTH, rng=np.random.default_rng(0))
    assert table.action_map == table.report.actions
    names = tuple(", ".join(f"{k}={v}" for k, v in entry.items()) for entry in table.action_map)
    assert names == table.train.action_names


@pytest.mark.parametrize(("line", "column", "other"), [(2, "drug", "air"), (3, "air", "drug")])
def test_half_a_decision_is_named(line: int, column: str, other: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        from_dataframe(put(two(3, 3), line, column, ""), BOTH)
    assert str(caught.value) == (
        f"column {column!r}, id '000', line {line}: the action is missing, but not in column {other!r}"
    )


def test_half_a_decision_on_a_last_row_and_a_whole_one_that_is_missing_are_named() -> None:
    frame = put(two(3, 3), 5, "air", "1")
    with pytest.raises(ValueError, match="'drug', id '000', line 5: the action is missing, but not in column 'air'"):
        from_dataframe(frame, BOTH)
    frame = put(put(two(3, 3), 3, "air", ""), 3, "drug", "")
    with pytest.raises(ValueError, match="columns 'drug' and 'air', id '000', line 3: the action is missing; only"):
        from_dataframe(frame, BOTH)
    frame = put(put(two(3, 3, 3), 5, "air", "0"), 5, "drug", "no")
    with pytest.raises(ValueError, match="columns 'drug' and 'air', id '000', line 5: the last row of the id has an"):
        from_dataframe(frame, BOTH)


def test_one_combination_alone_and_too_many_are_refused() -> None:
    frame = two(3, 3)
    last = frame["air"] == ""
    same = frame.assign(drug=frame["drug"].where(last, "no"), air=frame["air"].where(last, "1"))
    with pytest.raises(ValueError, match="columns 'drug' and 'air': only one action, 'drug=no, air=1', is ever taken"):
        from_dataframe(same, BOTH)
    long = two(60, 60)
    long["air"] = long["bin"].where(long["air"] != "", "")
    with pytest.raises(ValueError, match="columns 'drug' and 'air' have 100 different values"):
        from_dataframe(long, BOTH)


def test_a_feature_that_gives_one_of_two_decisions_away_is_named() -> None:
    frame = two(3, 3, 3)
    frame["x"] = frame["air"].where(frame["air"] != "", "0")
    _, report = from_dataframe(frame, BOTH)
    assert [text for text in report.warnings if "feature 'x' equals the action of its own row" in text]


def test_identical_rows_collapse_with_a_count_and_the_last_of_them_is_the_last_of_the_file() -> None:
    frame = stays(2, 1)
    twice = pd.concat([frame, frame.loc[[3, 4]].replace({"x": {"1": "1.0"}}), frame.loc[[4]]])
    batch, report = from_dataframe(twice, COLUMNS)
    assert batch == from_dataframe(frame, COLUMNS)[0]
    assert from_dataframe(pd.concat([frame] * 3))[1].rows.identical == 10
    assert (report.rows.read, report.rows.identical, report.rows.used) == (8, 3, 5)
    frame = twice_measured()
    frame = pd.concat([frame, frame.loc[[3]]])  # x was 1, 4, 7 and is 1 again
    batch, report = from_dataframe(frame, COLUMNS, TableOptions(duplicates="last"))
    assert batch.obs[0, 1].tolist() == [1, -1]
    assert (report.rows.identical, report.rows.merged) == (1, 2)
    frame = pd.concat([stays(2, 1), put(stays(2, 1), 3, "action", "0").loc[[3]]])
    with pytest.raises(
        ValueError, match="id '000', line 3: the action, the end or what habits depend on differs from that of line 3"
    ):
        from_dataframe(frame, COLUMNS, TableOptions(duplicates="mean"))


def twice_measured() -> pd.DataFrame:
    """Line 3 (id 000, bin 1, x = 1, y = -1) is there again with x = 4, and with x = 7 and no y."""
    frame = stays(2, *[1] * 25)
    again = pd.concat([put(frame, 3, "x", "4").loc[[3]], put(put(frame, 3, "x", "7"), 3, "y", "").loc[[3]]])
    again.index = pd.Index([60, 61], name="line")
    return pd.concat([frame, again])


def test_conflicting_rows_are_an_error_that_lists_them() -> None:
    message = refusal(twice_measured())
    assert (
        "2 rows have the id and time of another row and differ from it: id '000', line 60; id '000', line 61" in message
    )
    assert "--duplicates" in message


@pytest.mark.parametrize(("rule", "x", "y"), [("first", 1, -1), ("last", 7, 0), ("mean", 4, -1)])
def test_a_rule_settles_conflicting_rows_with_a_count(rule: Any, x: float, y: float) -> None:
    batch, report = from_dataframe(twice_measured(), options=TableOptions(duplicates=rule))
    assert batch.obs[0, 1].tolist() == [x, y]  # rule "last": y is missing there, so it is carried on from bin 0
    assert (report.rows.identical, report.rows.merged) == (0, 2)
    assert report.features[1].carried == (rule == "last")
    assert np.array_equal(batch.obs[1:], from_dataframe(stays(2, *[1] * 25))[0].obs[1:])


def test_a_mean_has_the_same_last_bit_in_whatever_order_its_rows_stand() -> None:
    # (.1 + .2) + .3 and .1 + (.2 + .3) differ as floating-point numbers.
    found = set()
    for readings in permutations((".1", ".2", ".3")):
        frame = pd.concat([stays(1), *(put(stays(1), 2, "x", x).loc[[2]] for x in readings)])
        rows, _, _ = sort_rows(parse_rows(Sheet(frame[frame["x"] != "0"]), COLUMNS))
        found.add(float(merge_duplicates(rows, "mean")[0].values[0, 0]))
    assert len(found) == 1
