"""Several columns of decisions: every combination that was taken is one action, and says what it is made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from small_tables import COLUMNS, put, stays

from cirl_gym.tables import TableColumns, infer_columns
from cirl_gym.tables.read import from_dataframe, prepare_table

BOTH = TableColumns("stay_id", "bin", ("drug", "air"), ("x", "y"), None, "terminated", "truncated")


def two(*lengths: int) -> pd.DataFrame:
    """Drug as "no" or "yes", air as 0, 1 or 2; (yes, 2) never happens."""
    frame = stays(*lengths).rename(columns={"action": "drug"})
    step = frame["bin"].astype(int)
    frame["air"] = (step % 3).astype(str).where(frame["drug"] != "", "")
    frame["drug"] = frame["drug"].map({"0": "no", "1": "yes", "": ""})
    frame.loc[(frame["air"] == "2") & (frame["drug"] == "yes"), "drug"] = "no"
    return frame


def test_combinations_by_hand() -> None:
    # Stay 0: t = 0, 1, 2: (no, 0), (yes, 1), (no, 2). Stay 1: (yes, 0), (no, 1), (no, 2).
    batch, report = from_dataframe(two(3, 3), BOTH)
    assert batch.action_names == (
        "drug=no, air=0",
        "drug=no, air=1",
        "drug=no, air=2",
        "drug=yes, air=0",
        "drug=yes, air=1",
    )
    assert batch.actions.tolist() == [[0, 4, 2], [3, 1, 2]]
    pairs = [("no", "0"), ("no", "1"), ("no", "2"), ("yes", "0"), ("yes", "1")]
    assert report.actions == tuple({"drug": drug, "air": air} for drug, air in pairs)
    said = "5 actions, the combinations that were taken: drug=no, air=0; drug=no, air=1; "
    assert any(line.startswith(said) for line in report.lines())


def test_the_order_of_the_columns_is_the_users() -> None:
    batch, report = from_dataframe(two(3, 3), infer_columns(two(3, 3), action=("air", "drug")))
    assert batch.action_names[:3] == ("air=0, drug=no", "air=0, drug=yes", "air=1, drug=no")
    assert report.actions[1] == {"air": "0", "drug": "yes"}


def test_numbers_are_sorted_and_written_as_with_one_column() -> None:
    frame = two(3, 3)
    frame["air"] = frame["air"].map({"0": "10.0", "1": "9", "2": "100", "": ""})
    batch, _ = from_dataframe(frame, BOTH)
    assert batch.action_names[:3] == ("drug=no, air=9", "drug=no, air=10", "drug=no, air=100")


def test_one_column_is_what_it_was() -> None:
    batch, report = from_dataframe(stays(2, 1), COLUMNS)
    assert batch.action_names == ("0", "1")
    assert report.actions == ({"action": "0"}, {"action": "1"})
    assert not any("combinations" in line for line in report.lines())


def test_the_map_comes_with_a_prepared_table() -> None:
    table = prepare_table(two(3, 3, 3, 3), BOTH, rng=np.random.default_rng(0))
    assert table.action_map == table.report.actions
    assert [", ".join(f"{k}={v}" for k, v in entry.items()) for entry in table.action_map] == list(
        table.train.action_names
    )


@pytest.mark.parametrize(("line", "column", "other"), [(2, "drug", "air"), (3, "air", "drug")])
def test_half_a_decision_is_named(line: int, column: str, other: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        from_dataframe(put(two(3, 3), line, column, ""), BOTH)
    assert str(caught.value) == (
        f"column {column!r}, id '000', line {line}: the action is missing, but not in column {other!r}"
    )


def test_half_a_decision_on_a_last_row_is_named() -> None:
    frame = put(two(3, 3), 5, "air", "1")
    with pytest.raises(ValueError, match="'drug', id '000', line 5: the action is missing, but not in column 'air'"):
        from_dataframe(frame, BOTH)


def test_a_whole_decision_that_is_missing_is_named_as_with_one_column() -> None:
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
