"""Rows of one (id, time): the same twice collapse with a count; other ones are an error, or settled by a rule."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tables import COLUMNS, put, refusal, stays

from cirl_gym.tables import TableOptions
from cirl_gym.tables.read import from_dataframe


def test_identical_rows_collapse_with_a_count() -> None:
    frame = stays(2, 1)
    twice = pd.concat([frame, frame.loc[[3, 4]].replace({"x": {"1": "1.0"}}), frame.loc[[4]]])
    batch, report = from_dataframe(twice, COLUMNS)
    assert batch == from_dataframe(frame, COLUMNS)[0]
    assert from_dataframe(pd.concat([frame] * 3))[1].rows.identical == 10
    assert (report.rows.read, report.rows.identical, report.rows.used) == (8, 3, 5)


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


def test_the_last_of_identical_rows_is_the_last_of_the_file() -> None:
    frame = twice_measured()
    frame = pd.concat([frame, frame.loc[[3]]])  # x was 1, 4, 7 and is 1 again
    batch, report = from_dataframe(frame, COLUMNS, TableOptions(duplicates="last"))
    assert batch.obs[0, 1].tolist() == [1, -1]
    assert (report.rows.identical, report.rows.merged) == (1, 2)


def test_actions_have_no_mean() -> None:
    frame = pd.concat([stays(2, 1), put(stays(2, 1), 3, "action", "0").loc[[3]]])
    with pytest.raises(ValueError, match="id '000', line 3: the action or the end differs from that of line 3"):
        from_dataframe(frame, COLUMNS, TableOptions(duplicates="mean"))
