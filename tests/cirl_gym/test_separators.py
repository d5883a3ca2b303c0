"""Semicolons, tabs and decimal commas: the same table, and said."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cirl_gym.tables.columns import TableOptions
from cirl_gym.tables.files import read_table
from cirl_gym.tables.read import from_dataframe
from cirl_gym.tables.separators import separator_of

ROWS = ["stay_id,hour,wbc,dose,action", "a,0,12.5,1,0", "a,1,.5,2,1", "a,2,3,1.25e1,", "b,0,-7.25,0,1", "b,1,8,0,"]


def table(tmp_path, mark=",", decimal=".", name="t.csv", first=""):
    lines = [row.replace(".", "\0").replace(",", mark).replace("\0", decimal) for row in ROWS]
    content = (first + "\r\n".join(lines) + "\r\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return read_table(tmp_path / name)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("mark", "decimal", "said"),
    [
        (",", ".", []),
        (";", ".", ["fields separated by semicolons"]),
        (";", ",", ["fields separated by semicolons, and decimal commas read as points in 'wbc', 'dose'"]),
        ("\t", ",", ["fields separated by tabs, and decimal commas read as points in 'wbc', 'dose'"]),
        ("\t", ".", ["fields separated by tabs"]),
    ],
)
def test_the_table_is_the_same_and_the_account_says_how_it_was_read(tmp_path, mark, decimal, said, first, name):
    frame = table(tmp_path, mark, decimal, name, f"sep={mark}\r\n" if first else "")
    assert frame.to_numpy().tolist() == [row.split(",") for row in ROWS[1:]]
    assert frame.index.tolist() == [line + first for line in range(2, 7)]
    batch, report = from_dataframe(frame, options=TableOptions(end="truncated"))
    np.testing.assert_allclose(batch.obs[0, :, 0], [12.5, 0.5, 3])
    assert [line for line in report.lines() if "separated" in line] == said


def test_commas_beside_points_stay_what_they_are(tmp_path):
    (tmp_path / "t.csv").write_text('id;x;y\na;1,5;1.234,5\nb;2.5;"1,5 mg"\n')
    frame = read_table(tmp_path / "t.csv")
    assert frame.to_numpy().tolist() == [["a", "1,5", "1.234,5"], ["b", "2.5", "1,5 mg"]]
    assert frame.attrs["repairs"] == ("fields separated by semicolons",)


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("id;dose, mg;x\n1;3,5;2\n", ";"),
        ("id,name;x,y\n1,2,3\n", ","),
        ("a\n1\n", ","),
        ("a;b\n1\n", ";"),
        ("\n\na\tb\n1\t2\n", "\t"),
        ('"a;b",c\n"1;2",3\n', ","),
    ],
)
def test_the_header_and_the_first_row_tell_what_separates(text, mark):
    assert separator_of(text) == (mark, 0)


@given(st.text(max_size=60))
def test_any_text_has_an_answer(text):
    assert separator_of(text)[0] in ",;\t"


def test_other_separators_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("id|x\n1|2\n")
    with pytest.raises(ValueError, match=r"separated by commas, semicolons or tabs; the first line is 'id\|x'"):
        read_table(tmp_path / "t.csv")
