"""Files as other programs write them: read, or refused with the file's name and the way out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet
from small_tables import COLUMNS, stays, write

from cirl_gym.tables import read_table
from cirl_gym.tables.read import from_dataframe

LISTS = [[1, 2], [], None] * 2


def test_a_folder_of_parts_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    frame = stays(*[3] * 10).reset_index(drop=True)
    frame.iloc[17:].to_parquet(tmp_path / "part-1.parquet", index=False)
    frame.iloc[:17].to_parquet(tmp_path / "part-0.parquet", index=False)
    (tmp_path / "_SUCCESS").write_text("")
    table = read_table(tmp_path)
    assert from_dataframe(table)[0] == from_dataframe(frame)[0]
    assert table.index.tolist() == list(range(1, 41))
    assert table["bin"].tolist() == frame["bin"].tolist()
    frame.drop(columns="x").to_parquet(tmp_path / "part-2.parquet", index=False)
    with pytest.raises(ValueError, match=r"part-2\.parquet: the columns are not those of part-0\.parquet"):
        read_table(tmp_path)


def test_an_index_of_id_and_time_is_two_columns_and_one_named_like_a_column_is_refused(tmp_path: Path) -> None:
    frame = stays(3, 2).reset_index(drop=True)
    indexed = frame.set_index(["stay_id", "bin"])
    assert from_dataframe(indexed)[0] == from_dataframe(frame)[0]
    twice = frame.set_index("x", drop=False)
    with pytest.raises(ValueError, match="the table: the index and a column have the same name 'x': rename one"):
        from_dataframe(twice, COLUMNS)
    twice.index.name = "stay_id"
    with pytest.raises(ValueError, match="the index and a column have the same name 'stay_id'"):
        from_dataframe(twice, COLUMNS)


def test_two_columns_of_one_name_are_named(tmp_path: Path) -> None:
    table = pa.table([[1], [2], [3]], names=["stay_id", "x", "x"])
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t\.parquet: two columns have the name 'x' \(2 and 3\)"):
        read_table(tmp_path / "t.parquet")


def test_excels_line_of_the_separator_is_no_header(tmp_path: Path) -> None:
    frame = stays(3, 2)
    path = write(tmp_path / "t.csv", frame)
    path.write_text("sep=,\n" + path.read_text())
    table = read_table(path)
    assert from_dataframe(table)[0] == from_dataframe(frame)[0]
    assert table.index[0] == 3


@pytest.mark.parametrize("cells", [LISTS, [{"a": 1}, None, {"a": 2}] * 2])
def test_lists_and_structs_are_no_numbers_and_crash_nothing(cells: list[object], tmp_path: Path) -> None:
    frame = stays(1, 1, 1).reset_index(drop=True)
    frame["notes"] = cells
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="'notes' is not a number"):
        from_dataframe(table)
    with pytest.raises(ValueError, match=r"column 'x', id '000', row 1: .* is not a number"):
        from_dataframe(table.assign(x=table["notes"]), COLUMNS)
    batch, report = from_dataframe(table, COLUMNS)
    assert (len(batch), report.unused) == (3, ("notes",))


def test_stale_notes_of_pandas_do_not_hide_the_columns(tmp_path: Path) -> None:
    frame = stays(3, 2).reset_index(drop=True)
    table = pa.Table.from_pandas(frame.set_index(["stay_id", "bin"]))
    notes = table.schema.metadata[b"pandas"].replace(b'"stay_id"', b'"gone"').replace(b'"object"', b'"never"')
    parquet.write_table(table.replace_schema_metadata({b"pandas": notes}), tmp_path / "t.parquet")
    assert from_dataframe(read_table(tmp_path / "t.parquet"), COLUMNS)[0] == from_dataframe(frame, COLUMNS)[0]
    broken = table.replace_schema_metadata({b"pandas": b'{"index_columns": [7], "columns": 3}'})
    parquet.write_table(broken, tmp_path / "t.parquet")
    assert np.array_equal(
        from_dataframe(read_table(tmp_path / "t.parquet"), COLUMNS)[0].obs, from_dataframe(frame, COLUMNS)[0].obs
    )


@pytest.mark.parametrize("notes", ["no json", "[]", '{"index_columns": ["gone"]}'])
def test_notes_of_pandas_that_cannot_be_read_change_neither_columns_nor_their_types(notes: str, tmp_path: Path) -> None:
    frame = stays(3, 2).reset_index(drop=True)
    frame["x"] = pd.array([1, None, 3, 4, 5, 6, 7], dtype="Int64")
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata({"pandas": notes})
    parquet.write_table(table, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert str(read["x"].dtype) == "Int64"
    assert from_dataframe(read, COLUMNS)[0] == from_dataframe(frame, COLUMNS)[0]


def test_a_text_that_is_no_utf_8_is_a_file_that_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": ["first", "second"], "y": [1, 2]}), path, compression="none")
    path.write_bytes(path.read_bytes().replace(b"second", b"sec\xffnd"))
    with pytest.raises(ValueError, match=r"t\.parquet: not a whole Parquet file"):
        read_table(path)


def test_a_nullable_column_is_as_pandas_has_it(tmp_path: Path) -> None:
    frame = stays(3, 2).reset_index(drop=True)
    frame["x"] = pd.array([1, None, 3, 4, 5, 6, 7], dtype="Int64")
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    assert from_dataframe(read_table(tmp_path / "t.parquet"))[0] == from_dataframe(frame)[0]
