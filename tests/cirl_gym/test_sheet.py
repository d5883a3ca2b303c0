"""A sheet parses a column once; what is no whole, well-formed table file is one error that names file and line."""

import builtins
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_tables import COLUMNS, stays

from cirl_gym.tables import Sheet, TableColumns, infer_columns, prepare_table, read_table
from cirl_gym.tables import sheet as sheets
from cirl_gym.tables.read import from_dataframe


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file is empty"),
        (b"stay_id,bin,x,action\n", "there is a header, but not one row below it"),
        (b"stay_id,bin,x,x\n1,0,2,3\n", "two columns have the name 'x' (3 and 4)"),
        (b"stay_id,bin,x, x\n1,0,2,3\n", "two columns have the name 'x' (3 and 4)"),
        (b",stay_id\n0,1\n", "column 1 has no name (pandas writes its index so; index=False leaves it out)"),
        (b"stay_id,\n0,1\n", "column 2 has no name"),
        (b"stay_id;bin;x\n1;0;2\n", "the fields must be separated by commas; the first line is 'stay_id;bin;x'"),
        (b"stay_id,bin\n1,0\n1\n", "line 3: 1 fields, but the header has 2"),
        (b"stay_id,bin\n1,0\n1,2,3\n", "line 3: 3 fields, but the header has 2"),
        (b'stay_id,bin\n1,0\n1,"2\n3,4\n', "line 3: not a line of a CSV file"),
        ("stay_id,bin\n1,0\nMüller,1\n".encode("latin-1"), "line 3: the text is not UTF-8"),
        ("stay_id,bin\n1,0\n".encode("utf-16"), "line 1: the text is not UTF-8"),
        (b"stay_id,bin\n1,\x000\n", "the file holds binary data"),
    ],
)
def test_faults_of_a_csv_file(content: bytes, message: str, tmp_path: Path) -> None:
    for name, stored in (("table.csv", content), ("table.csv.gz", gzip.compress(content))):
        path = tmp_path / name
        path.write_bytes(stored)
        with pytest.raises(ValueError, match=r".") as caught:
            read_table(path)
        assert message in str(caught.value)
        assert str(path) in str(caught.value)


def test_a_file_that_is_absent_of_another_kind_or_empty_is_refused(tmp_path: Path) -> None:
    for absent in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(ValueError, match="there is no such file"):
            read_table(absent)
    (tmp_path / "table.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"tables are read from \.csv, \.csv\.gz and \.parquet files"):
        read_table(tmp_path / "table.xlsx")
    stays(1).iloc[:0].to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="not one row"):
        read_table(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="the table has no rows"):
        from_dataframe(stays(1).iloc[:0], COLUMNS)


def test_half_a_file_is_not_read_as_a_whole_one(tmp_path: Path) -> None:
    frame = stays(3, 3)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    for name in ("t.parquet", "t.csv.gz"):
        whole = (tmp_path / name).read_bytes()
        for part in (len(whole) // 4, len(whole) // 2, len(whole) - 1):
            (tmp_path / name).write_bytes(whole[:part])
            with pytest.raises(ValueError, match="not a whole"):
                read_table(tmp_path / name)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stays(1).to_parquet(tmp_path / "t.parquet")
    real = builtins.__import__

    def no_pyarrow(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pyarrow":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_pyarrow)
    with pytest.raises(ValueError, match=r"need pyarrow; install it with: pip install 'cirl-gym\[parquet\]'"):
        read_table(tmp_path / "t.parquet")


def test_lines_in_messages_are_lines_of_the_file(tmp_path: Path) -> None:
    text = 'stay_id,bin,x,note,action,terminated,truncated\r\na,0,1,"two\nlines",1,0,0\r\n\r\na,1,high,,,1,0\r\n'
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())  # as a spreadsheet program saves it
    columns = TableColumns("stay_id", "bin", "action", ("x",), None, "terminated", "truncated")
    with pytest.raises(ValueError, match="column 'x', id 'a', line 5: 'high' is not a number"):
        from_dataframe(read_table(tmp_path / "t.csv"), columns)


def test_every_cell_is_parsed_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    # Numbers are parsed cell by cell, words by word.
    frame = stays(*[2] * 6).assign(x=[float(i * i) for i in range(18)])
    asked: list[object] = []
    real = sheets.number
    monkeypatch.setattr(sheets, "number", lambda cell: asked.append(cell) or real(cell))
    sheet = Sheet(frame)
    columns = infer_columns(sheet)
    table = prepare_table(sheet, columns, rng=np.random.default_rng(0))
    assert [cell for cell in asked if isinstance(cell, float)] == frame["x"].tolist()
    again = prepare_table(frame, rng=np.random.default_rng(0))
    assert (again.train, again.report) == (table.train, table.report)
