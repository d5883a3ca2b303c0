"""Columns are told from the table where that is no guess; otherwise the error names the option and the candidates."""

from __future__ import annotations

import builtins
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_tables import COLUMNS, stays

from cirl_gym.tables import Sheet, TableColumns, infer_columns, prepare_table, read_table
from cirl_gym.tables import sheet as sheets
from cirl_gym.tables.read import from_dataframe


def halved(frame: pd.DataFrame) -> pd.Series:
    """Whose stay it is, if each has two."""
    return frame["stay_id"].map(lambda stay: str(int(stay) // 2))


def test_a_plain_table_needs_no_option_and_a_given_column_is_taken_at_its_word() -> None:
    assert infer_columns(stays(3, 2)) == COLUMNS
    names = {"stay_id": "Stay-ID", "bin": "Bin", "action": "drug", "truncated": "Truncated"}
    renamed = stays(3, 2).rename(columns=names)
    assert infer_columns(renamed) == TableColumns("Stay-ID", "Bin", "drug", ("x", "y"), None, "terminated", "Truncated")
    assert infer_columns(stays(2, 2, last_action=True)).action == "action"
    # A few broken ids are named when the table is read, and not by asking for columns that are plain.
    frame = stays(*[2] * 100)
    frame.loc[4, "action"] = "1"
    frame.loc[6, "action"] = ""
    frame.loc[10, "bin"] = frame.loc[9, "bin"]
    frame.loc[5, "x"] = "high"
    assert infer_columns(frame) == infer_columns(stays(2, 2))
    got = infer_columns(stays(3, 2), id="x", time="y", features=["bin"], group="stay_id")
    assert got == TableColumns("x", "y", "action", ("bin",), "stay_id", "terminated", "truncated")
    with pytest.raises(ValueError, match="the table has no column 'drug'; its columns are 'stay_id'"):
        infer_columns(stays(3), action="drug")


@pytest.mark.parametrize(
    ("added", "id", "group"),
    [
        ({"subject_id": halved}, "stay_id", "subject_id"),
        ({"subject_id": lambda f: f["stay_id"]}, "stay_id", "subject_id"),
        ({"hadm_id": halved, "patient": lambda f: "p"}, "stay_id", "patient"),
        ({"hadm_id": halved}, "stay_id", "hadm_id"),
        ({"id": lambda f: range(len(f))}, "stay_id", None),  # a key of the rows
    ],
)
def test_the_episode_is_the_finest_key_and_the_group_the_coarsest(added: dict, id: str, group: str | None) -> None:
    frame = stays(3, 2, 1, 2).assign(**added)
    columns = infer_columns(frame[[*added, *frame.columns.drop(list(added))]])  # wherever the columns stand
    assert (columns.id, columns.group) == (id, group)
    assert columns.features == ("x", "y")  # a key is never a feature


def test_a_patient_is_the_episode_if_nothing_finer_is_there_and_no_visit_owns_it() -> None:
    columns = infer_columns(stays(3, 2).rename(columns={"stay_id": "patient_id"}))
    assert (columns.id, columns.group) == ("patient_id", None)
    frame = stays(3, 2).rename(columns={"stay_id": "patient_id"}).assign(visit_id="1")
    columns = infer_columns(frame, id="patient_id")
    assert (columns.id, columns.group, columns.features) == ("patient_id", None, ("x", "y"))


def numbered_within_patient() -> pd.DataFrame:
    """Episodes 0 and 1 of each patient: neither column alone is an episode."""
    frame = stays(2, 2, 2, 2)
    number = frame["stay_id"].astype(int)
    return frame.assign(patient=(number // 2).astype(str), stay_id=(number % 2).astype(str))


def drugged(**options: bool) -> pd.DataFrame:
    return stays(2, 2, **options).rename(columns={"action": "drug"})


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (numbered_within_patient(), "id of an episode: neither of 'stay_id', 'patient' has one value of .* Give --id"),
        (stays(2, 2).rename(columns={"stay_id": "who"}), "well-known name; .* 'who', 'bin', .* Give --id"),
        (stays(2, 2).assign(stay_id=list("abcdef")), "'stay_id' is different in every row. Give --id"),
        (stays(2, 2).rename(columns={"bin": "when"}), "time: no column .* apart: 'when', 'x', 'y'.* Give --time"),
        (stays(2, 2).assign(hour=stays(2, 2)["bin"]), "time: 'bin', 'hour' all order the rows of an id. Give --time"),
        (stays(9, 9).assign(bin="1"), "'bin' does not tell the rows of one 'stay_id' apart .* Give --time"),
        (drugged().assign(dose=drugged()["drug"]), "be 'drug', 'dose'. Give --action"),
        (drugged(last_action=True), r"drug \(2 values; .* 0% of ids\).* Give --action"),
        (stays(2, 2).assign(treatment="1"), "it could be 'action', 'treatment'. Give --action"),
    ],
)
def test_what_cannot_be_told_names_the_option_and_the_candidates(frame: pd.DataFrame, message: str) -> None:
    if "could be 'action', 'treatment'" in message:
        frame["action"] = frame["action"].replace("", "0")
    with pytest.raises(ValueError, match=f"cannot tell which column is the .*{message}"):
        infer_columns(frame)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (lambda f: ["m" if i % 2 else "f" for i in range(len(f))], "'z' is not a number"),
        (lambda f: "", "'z' is empty"),
        (lambda f: [str(i) for i in range(5, 5 + len(f))], "'z' counts the rows"),
        (lambda f: [str(i) for i in reversed(range(len(f)))], "'z' counts the rows"),
        (lambda f: [f"0.{i}" if a else "" for i, a in enumerate(f["action"])], "'z' is empty on the last row"),
        (lambda f: (f["action"] == "").astype(int), "'z' is 0 except on last rows, like an end flag"),
    ],
)
def test_a_column_that_may_be_no_feature_needs_the_users_word(column, why: str) -> None:
    frame = stays(12, 11)
    frame["z"] = column(frame)
    with pytest.raises(ValueError, match="cannot tell which columns are features") as caught:
        infer_columns(frame)
    assert why in str(caught.value)
    assert str(caught.value).endswith("Give --features (numbers: 'x', 'y')")
    assert infer_columns(frame, features=("x", "z")).features == ("x", "z")


def test_what_is_not_finite_counts_no_rows() -> None:
    frame = stays(12, 11)
    frame["z"] = ["1", *["9" * 400] * (len(frame) - 1)]  # infinite as floats; nothing is warned of
    assert infer_columns(frame).features == ("x", "y", "z")
    with pytest.raises(ValueError, match=r"column 'z', id '000', line 3: 9{40}\.\.\. \(400 characters\) is beyond"):
        prepare_table(frame, infer_columns(frame), rng=np.random.default_rng(0))


def test_a_second_time_is_no_feature_and_one_must_be_left() -> None:
    frame = stays(9, 9).assign(hour="3")
    with pytest.raises(ValueError, match=r"'hour' has the name of a time\. Give --features"):
        infer_columns(frame)
    with pytest.raises(ValueError, match=r"no column is left\. Give --features \(numbers: none\)"):
        infer_columns(stays(2, 2).drop(columns=["x", "y"]))


def test_static_columns_are_features_at_the_users_word_alone() -> None:
    frame = stays(3, 2).assign(age="7", hour="3")
    with pytest.raises(ValueError, match="'hour' has the name of a time"):
        infer_columns(frame, static=["age"])
    frame = frame.drop(columns="hour")
    assert infer_columns(frame).static == ()
    columns = infer_columns(frame[["age", *frame.columns.drop("age")]], static=["age"])
    assert (columns.features, columns.static, columns.outcomes) == (("age", "x", "y"), ("age",), ("x", "y"))
    assert infer_columns(frame, features=["y"], static=["age"]).features == ("y", "age")
    assert infer_columns(frame, features=["age", "y"], static=["age"]).features == ("age", "y")
    with pytest.raises(ValueError, match="static: 'age' is not among the features 'x', 'y'"):
        TableColumns("id", "t", "a", ("x", "y"), static=("age",))


def test_several_action_columns_are_given_and_one_stays_a_name() -> None:
    frame = stays(3, 2)
    frame["dose"] = frame["action"]
    columns = infer_columns(frame, action=["dose", "action"])
    assert (columns.action, columns.actions, columns.features) == (("dose", "action"), ("dose", "action"), ("x", "y"))
    assert columns.action_words == "columns 'dose' and 'action'"
    one = infer_columns(stays(3, 2), action=["action"])
    assert one == infer_columns(stays(3, 2))
    assert (one.action, one.actions, one.action_words) == ("action", ("action",), "column 'action'")
    with pytest.raises(ValueError, match="at least one column must be the action"):
        TableColumns("id", "t", (), ("x",))


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
        (b"stay_id;bin;x\n1;0\n", "line 2: 2 fields, but the header has 3"),
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
    with pytest.raises(ValueError, match="there is no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="a folder without Parquet files"):
        read_table(tmp_path)
    (tmp_path / "table.xlsx").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"tables are read from \.csv, \.tsv, \.csv\.gz, \.tsv\.gz and"):
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
    # Numbers are parsed cell by cell, words by word; a column of numbers need not be parsed at all.
    frame = stays(*[2] * 6).assign(x=[float(i * i) for i in range(18)], z=np.sin(np.arange(18.0)))
    frame = frame.astype({"x": object})
    asked: list[object] = []
    real = sheets.number
    monkeypatch.setattr(sheets, "number", lambda cell: asked.append(cell) or real(cell))
    sheet = Sheet(frame)
    columns = infer_columns(sheet)
    table = prepare_table(sheet, columns, rng=np.random.default_rng(0))
    assert [cell for cell in asked if isinstance(cell, float)] == frame["x"].tolist()
    again = prepare_table(frame, rng=np.random.default_rng(0))
    assert (again.train, again.report) == (table.train, table.report)


@pytest.mark.parametrize(
    "column",
    [
        np.array([3, -1, 2**40]),
        np.array([0.5, np.nan, -2.0], dtype=np.float32),
        np.array([True, False, True]),
        np.array(["2020-01-31T08:30:00.5", "NaT", "1969-12-31T23:59:59.999999"], dtype="datetime64[us]"),
        np.array(["2020-01-31T08:30:00.000000999", "NaT", "1969-12-31T23:59:59.999999999"], dtype="datetime64[ns]"),
        np.array(["2180-01-31", "2180-02-01", "0900-01-01"], dtype="datetime64[s]"),
    ],
)
def test_typed_columns_are_read_as_their_cells_are(column: np.ndarray) -> None:
    typed = Sheet(pd.DataFrame({"c": column}))
    cells = Sheet(pd.DataFrame({"c": pd.Series([*pd.Series(column)], dtype=object)}))
    np.testing.assert_array_equal(typed.missing("c"), cells.missing("c"))
    for read in (Sheet.numbers, Sheet.times, Sheet.readings) if column.dtype.kind != "M" else (Sheet.times,):
        for told, wanted in zip(read(typed, "c"), read(cells, "c"), strict=True):
            np.testing.assert_array_equal(told, wanted)
