"""Long tables: a batch goes out and comes back without a change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from interop_batches import batches, ladder, uneven

from cirl_gym.data.batch import Batch
from cirl_gym.interop import from_long_table, to_long_table
from cirl_gym.tables import read_table
from cirl_gym.tables.columns import TableColumns


def test_a_small_batch_becomes_the_table_one_would_write_by_hand() -> None:
    frame = to_long_table(uneven(2, 1))
    assert list(frame.columns) == ["id", "patient", "step", "x", "z", "action", "terminated", "truncated"]
    assert frame.astype(object).where(frame.notna(), None).to_numpy().tolist() == [
        ["000", "g0", 0, 0, 1000, "none", 0, 0],
        ["000", "g0", 1, 1, 1001, "low", 0, 0],
        ["000", "g0", 2, 2, 1002, None, 1, 0],
        ["001", "g0", 0, 100, 1100, "low", 0, 0],
        ["001", "g0", 1, 101, 1101, None, 0, 1],
    ]
    assert frame["action"].cat.categories.tolist() == ["none", "low", "high"]
    assert frame["x"].dtype == np.float32


@settings(max_examples=40, deadline=None)
@given(batch=batches())
def test_any_batch_with_a_choice_comes_back_equal(batch: Batch) -> None:
    assume(len(set(batch.actions[batch.mask].tolist())) > 1)
    parts = ("the id", "the time", "the action", "the group", "ended", "cut")
    assume(not set(parts) & set(batch.features))
    columns = TableColumns(*parts[:3], batch.features, *parts[3:])
    frame = to_long_table(batch, columns)
    assert len(frame) == batch.n_steps + len(batch)
    back, report = from_long_table(frame, columns)
    assert back == batch
    assert (report.rows.used, report.episodes.used, report.episodes.steps) == (len(frame), len(batch), batch.n_steps)
    shuffled = frame.sample(frac=1, random_state=0)
    there = from_long_table(shuffled, columns)[0]
    assert there.take(np.array([there.ids.index(name) for name in batch.ids])) == batch


def test_names_ids_and_order_come_back_and_padding_is_no_data() -> None:
    batch = replace(uneven(2, 3), action_names=("NA", "2.0", " "))
    frame = to_long_table(batch)
    back, _ = from_long_table(frame)
    assert back == batch
    never = replace(batch, actions=np.minimum(batch.actions, 1))
    assert from_long_table(to_long_table(never))[0] == never
    batch = uneven(2, 3)
    assert to_long_table(batch.padded(9)).equals(to_long_table(batch))
    assert from_long_table(to_long_table(batch.padded(9)))[0] == batch
    ids = ("007", "7", "12.0", "9007199254740993", "NA")
    batch = replace(uneven(1, 2, 1, 2, 1), ids=ids, groups=("1", "01", "1.0", "nan", "x"))
    back, _ = from_long_table(to_long_table(batch))
    assert (back.ids, back.groups) == (ids, batch.groups)


def test_through_files(tmp_path: Path) -> None:
    batch = replace(uneven(2, 3), obs=uneven(2, 3).obs / np.float32(7))
    frame = to_long_table(batch)
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    assert from_long_table(pd.read_parquet(tmp_path / "t.parquet"))[0] == batch
    assert from_long_table(read_table(tmp_path / "t.parquet"))[0] == batch
    frame.to_csv(tmp_path / "t.csv", index=False)
    back, _ = from_long_table(read_table(tmp_path / "t.csv"))
    assert back.action_names == ("high", "low", "none")  # a CSV file knows no order of names, so they are sorted
    named = [[back.action_names[a] for a in episode] for _, episode in back.episodes()]
    assert named == [[batch.action_names[a] for a in episode] for _, episode in batch.episodes()]
    assert replace(back, actions=batch.actions, action_names=batch.action_names) == batch
    assert Batch.from_dataframe(read_table(tmp_path / "t.csv"))[0] == back


def test_a_table_that_would_lose_something_or_lacks_columns_is_refused() -> None:
    batch = uneven(1, 2)
    with pytest.raises(ValueError, match="columns must name group, terminated and truncated"):
        to_long_table(batch, TableColumns("id", "step", "action", ("x", "z")))
    with pytest.raises(ValueError, match=r"columns has the features \('x', 'y'\), the batch \('x', 'z'\)"):
        to_long_table(batch, TableColumns("id", "step", "action", ("x", "y"), "g", "terminated", "truncated"))
    with pytest.raises(ValueError, match="a column cannot play two parts: 'step'"):
        to_long_table(replace(batch, features=("x", "step")))
    with pytest.raises(ValueError, match="the id ' ' is blank"):
        to_long_table(replace(batch, ids=("0", " ")))
    with pytest.raises(ValueError, match="the group '' is blank"):
        to_long_table(replace(batch, groups=("", "0")))
    with pytest.raises(ValueError, match="column 1 has no name"):
        to_long_table(batch, TableColumns("", "step", "action", ("x", "z"), "g", "terminated", "truncated"))
    with pytest.raises(ValueError, match="the table has no column 'step'"):
        from_long_table(to_long_table(ladder()).drop(columns="step"))
    always = replace(uneven(2, 2), actions=np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(ValueError, match="only one action, '0', is ever taken"):
        from_long_table(to_long_table(always))
