"""Columns that habits may depend on: levels of the row of a decision, common to all parts, never a feature unasked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tables import COLUMNS, put, stays

from cirl_gym.tables import Sheet, TableColumns, TableOptions, infer_columns
from cirl_gym.tables.read import from_dataframe, prepare_table

WARD = replace(COLUMNS, contexts=("ward",))


def in_wards(*cells: object, lengths: tuple[int, ...] = (2, 1)) -> pd.DataFrame:
    """Stays whose rows stand in these wards, the last row of each stay among them."""
    return stays(*lengths).assign(ward=pd.Series(list(cells), dtype=object, index=stays(*lengths).index))


def test_the_level_is_that_of_the_decision_and_the_last_row_has_none() -> None:
    batch, report = from_dataframe(in_wards("west", "east", "heaven", "west", ""), WARD)
    assert batch.contexts == (("ward", ("east", "west")),)
    assert batch.levels_of("ward").tolist() == [[1, 0], [1, 0]]
    assert batch.features == ("x", "y")
    assert report.unused == ()
    assert report.as_dict()["contexts"] == [{"name": "ward", "decisions": {"east": 1, "west": 2}}]
    line = "habits may depend on ward, with so many decisions of each level: east (1), west (2)"
    assert line in report.lines()


@pytest.mark.parametrize(
    ("cells", "levels", "numbers"),
    [
        (("10", "9", "", "2", ""), ("2", "9", "10"), [[2, 1], [0, 0]]),
        ((1.0, 0.0, None, 1.0, None), ("0", "1"), [[1, 0], [1, 0]]),
        ((True, False, None, True, None), ("False", "True"), [[1, 0], [1, 0]]),
        (("b", "", "", "a", ""), ("a", "b", "missing"), [[1, 2], [0, 0]]),
        (("7", "NA", "x", "missing", ""), ("7", "missing"), [[0, 1], [1, 0]]),
        ((" a", "a ", "", "b", ""), ("a", "b"), [[0, 0], [1, 0]]),
    ],
)
def test_levels_stand_in_order_and_an_empty_field_is_the_last(cells: Any, levels: Any, numbers: list) -> None:
    batch, report = from_dataframe(in_wards(*cells), WARD)
    assert batch.contexts == (("ward", levels),)
    assert batch.levels_of("ward").tolist() == numbers
    assert sum(report.contexts[0].decisions.values()) == 3


def test_columns_of_habits_are_no_features_unless_they_are_named_as_such() -> None:
    frame = in_wards("0", "1", "1", "1", "0")
    assert infer_columns(frame).features == ("x", "y", "ward")
    assert infer_columns(frame, contexts=("ward",)) == WARD
    both = infer_columns(frame, contexts=("ward",), features=("x", "ward"))
    assert (both.features, both.contexts) == (("x", "ward"), ("ward",))
    batch, _ = from_dataframe(frame, both)
    assert batch.obs[0, :, 1].tolist() == [0, 1, 1]
    assert batch.levels_of("ward").tolist() == [[0, 1], [1, 0]]
    static = infer_columns(in_wards("3", "3", "3", "1", "1"), contexts=("ward",), static=("ward",))
    assert (static.features, static.contexts) == (("x", "y", "ward"), ("ward",))
    # A ward that is empty on every last row is not taken for the action, nor does it hide it.
    columns = infer_columns(in_wards("a", "b", "", "a", "").rename(columns={"action": "drug"}), contexts=("ward",))
    assert columns.action == "drug"
    several = TableColumns("id", "t", ("a", "b"), ("x",), contexts="ward")
    assert several.contexts == ("ward",)
    assert several.used == ("id", "t", "a", "b", "x", "ward")


def test_what_no_habit_can_depend_on_is_refused_by_name() -> None:
    for name in ("stay_id", "bin", "action", "terminated"):
        with pytest.raises(ValueError, match=f"a column cannot play two parts: '{name}'"):
            replace(COLUMNS, contexts=(name,))
    with pytest.raises(ValueError, match="a column cannot play two parts: 'ward'"):
        replace(COLUMNS, contexts=("ward", "ward"))
    with pytest.raises(ValueError, match="--habit none is no column: rename the column 'none'"):
        replace(COLUMNS, contexts=("none",))
    with pytest.raises(ValueError, match=r"the table has no column 'wrad' \(did you mean 'ward'\?\); its columns are"):
        infer_columns(in_wards(*"abcde"), contexts=("wrad",))
    with pytest.raises(ValueError, match=r"the table has no column 'wrad' \(did you mean 'ward'\?\); its columns are"):
        from_dataframe(in_wards(*"abcde"), replace(COLUMNS, contexts=("wrad",)))
    with pytest.raises(ValueError, match="--habit: column 'ward' is 'a' wherever a decision is made: no habit can"):
        from_dataframe(in_wards("a", "a", "b", "a", "c"), WARD)
    many = in_wards(*map(str, range(23)), lengths=(21, 0))
    with pytest.raises(ValueError, match="--habit: column 'ward' has 21 different values where decisions are made"):
        from_dataframe(many, WARD)
    assert len(from_dataframe(put(many, 2, "ward", "1"), WARD)[0].contexts[0][1]) == 20


def test_levels_go_with_their_rows_through_sorting_lone_rows_and_duplicates() -> None:
    frame = in_wards("b", "a", "", "c", "a", "", lengths=(2, 0, 1))
    batch, report = from_dataframe(frame.iloc[[4, 2, 3, 0, 5, 1]], WARD)
    assert (batch.ids, report.rows.lone) == (("000", "002"), 1)
    assert batch.contexts == (("ward", ("a", "b")),)  # "c" stands in the row of no decision
    assert batch.levels_of("ward").tolist() == [[1, 0], [0, 0]]
    # Two rows that differ in the ward alone differ.
    twice = pd.concat([frame, put(frame, 3, "ward", "d").loc[[3]]])
    with pytest.raises(ValueError, match="1 rows have the id and time of another row and differ from it"):
        from_dataframe(twice, WARD)
    with pytest.raises(ValueError, match="the action, the end or what habits depend on differs"):
        from_dataframe(twice, WARD, TableOptions(duplicates="mean"))
    assert from_dataframe(twice, WARD, TableOptions(duplicates="first"))[0] == batch
    last, _ = from_dataframe(twice, WARD, TableOptions(duplicates="last"))
    assert last.contexts == (("ward", ("a", "b", "d")),)
    assert last.levels_of("ward").tolist() == [[1, 2], [0, 0]]
    assert from_dataframe(pd.concat([frame, frame]), WARD)[1].rows.identical == 6
    assert from_dataframe(twice, COLUMNS)[1].rows.identical == 1


def test_levels_are_those_of_the_whole_table_in_every_part_and_a_file_of_typed_cells_reads_alike(
    tmp_path: Path,
) -> None:
    lengths = tuple(1 + i % 3 for i in range(12))
    cells = [["a", "b"][i % 2] for i in range(sum(lengths) + 12)]
    frame = in_wards(*cells, lengths=lengths)
    frame.loc[frame["stay_id"] == "007", "ward"] = "z"
    parts = prepare_table(frame, WARD, rng=np.random.default_rng(0))
    whole, _ = from_dataframe(frame, WARD)
    for part in (parts.train, parts.validation, parts.test):
        assert part.contexts == (("ward", ("a", "b", "z")),)
        assert part.horizon == part.lengths.max()
        for name, length, levels in zip(part.ids, part.lengths, part.levels_of("ward"), strict=True):
            assert levels[:length].tolist() == whole.levels_of("ward")[whole.ids.index(name), :length].tolist()
    assert parts.report.contexts[0].decisions["z"] == lengths[7]
    typed = frame.assign(ward=frame["ward"].astype("category"))
    assert from_dataframe(Sheet(typed), WARD)[0] == whole
    typed.to_parquet(tmp_path / "t.parquet")
    assert from_dataframe(pd.read_parquet(tmp_path / "t.parquet"), WARD)[0] == whole
