"""What a value means: spellings of one action or id, what stands for missing, and what a person should look at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from small_tables import COLUMNS, put, refusal, stays

from cirl_gym.tables import TableColumns, TableOptions, read_table
from cirl_gym.tables.cells import number, value_of
from cirl_gym.tables.read import from_dataframe, prepare_table
from cirl_gym.tables.spellings import plain_id

CUT = TableOptions(end="truncated")
AS_WRITTEN = TableOptions(as_written=True)


def many(n: int = 40) -> pd.DataFrame:
    """N stays of four actions, 0 and 1 in turn: neither is rare."""
    return stays(*[4] * n)


def acted(first: str, second: str, others: dict[int, str]) -> pd.DataFrame:
    """The same with other names of the two actions, and some cells by line."""
    frame = many().replace({"action": {"0": first, "1": second}})
    for line, cell in others.items():
        frame.loc[line, "action"] = cell
    return frame


@pytest.mark.parametrize(
    ("first", "second", "cell", "said"),
    [
        ("0", "1", "-0", "'-0' (1 cells) read as '0'"),
        ("0", "1", "+1", "'+1' (1 cells) read as '1'"),
        ("0", "1", "1e0", "'1e0' (1 cells) read as '1'"),
        ("0", "1", "1.0", "'1.0' (1 cells) read as '1'"),
        ("0", "1", "01", "'01' (1 cells) read as '1'"),
        ("0", "1", "True", "'True' (1 cells) read as '1'"),
        ("0", "0.5", "0.50", "'0.50' (1 cells) read as '0.5'"),
        ("no", "yes", "Yes", "'Yes' (1 cells) read as 'yes'"),
        ("absent", "high dose", " HIGH  dose", "' HIGH  dose' (1 cells) read as 'high dose'"),
    ],
)
def test_spellings_of_one_value_are_one_action_with_a_count(first: str, second: str, cell: str, said: str) -> None:
    # Line 3 holds the second action (stay 0, step 1), line 2 the first.
    frame = acted(first, second, {2 if cell == "-0" else 3: cell})
    batch, report = from_dataframe(frame)
    assert batch == from_dataframe(acted(first, second, {}))[0]
    assert batch.action_names == (first, second)
    assert report.repairs == (f"column 'action': {said}, which is the same (--as-written keeps them apart)",)
    assert report.repairs[0] in report.lines()
    assert from_dataframe(frame, options=AS_WRITTEN)[0].action_names != batch.action_names


@pytest.mark.parametrize("cell", ["0.5", "-1", "999", "l"])
def test_a_value_of_its_own_is_an_action_and_named_as_a_possible_slip(cell: str) -> None:
    batch, report = from_dataframe(put(many(), 3, "action", cell))
    assert cell in batch.action_names
    (warning,) = report.all_warnings
    assert f"action {cell!r} was taken 1 time by 1 patient (0.62% of decisions; first in id '000', line 3)" in warning
    (told,) = (line for line in report.lines() if line.startswith("3 actions: "))
    assert f"{cell} (1 time by 1 patient)" in told
    assert "0 (80 times by 40 patients)" in told


def test_the_share_of_decisions_counts_too() -> None:
    frame = stays(*[80] * 40)  # 3,200 decisions
    for stay in range(31):
        frame.loc[2 + 81 * stay, "action"] = "2"
    assert "2" in from_dataframe(frame)[0].action_names
    (warning,) = from_dataframe(frame)[1].all_warnings
    assert "action '2' was taken 31 times by 31 patients (0.97% of decisions" in warning


value = st.one_of(
    st.integers(-99, 99).map(str), st.floats(-1e3, 1e3, width=16).map(repr), st.sampled_from(["a", "b c"])
)


@settings(max_examples=60, deadline=None)
@given(st.lists(value, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_however_values_are_spelled_the_batch_is_the_same(values: list[str], random) -> None:
    """Zeros, signs, exponents, case and blanks change no action and no number of one."""

    def respelled(text: str) -> str:
        try:
            number = float(text)
        except ValueError:
            return random.choice([text, f" {text.upper()}", text.replace(" ", "  ")])
        return random.choice([text, f"{number!r}", f"{number:.17e}", f" {text} "])

    rows = [("p", t, 1.0, a) for t, a in enumerate([*values, *values])] + [("p", 99, 1.0, "")]
    frame = pd.DataFrame(rows, columns=["id", "t", "x", "a"])
    other = frame.assign(a=[respelled(a) if a else a for a in frame["a"]])
    columns = TableColumns("id", "t", "a", ("x",))
    different = len({float(v) if v[-1].isdigit() else v for v in values})
    if different < 2:
        with pytest.raises(ValueError, match="only one action"):
            from_dataframe(frame, columns, CUT)
        return
    one, two = (from_dataframe(table, columns, CUT)[0] for table in (frame, other))
    names = [[value_of(batch.action_names[a]) for a in batch.actions[0]] for batch in (one, two)]
    assert names[0] == names[1]
    assert one.n_actions == two.n_actions == different


def test_stated_actions_have_their_order_and_one_never_taken_is_kept_and_said() -> None:
    batch, report = from_dataframe(many(), options=TableOptions(actions=("2", "1", "0")))
    assert batch.action_names == ("2", "1", "0")
    assert batch.actions[0].tolist() == [2, 1, 2, 1]
    assert report.all_warnings == (
        "action '2' is stated, but was never taken: what is said of it rests on nothing seen",
    )
    assert report.taken[0].times == 0
    table = prepare_table(many(), options=TableOptions(actions=("0", "1", "2")), rng=np.random.default_rng(0))
    assert table.train.action_names == table.test.action_names == ("0", "1", "2")
    assert len(table.report.all_warnings) == 1
    with pytest.raises(
        ValueError, match=r"column 'action', id '000', line 3: '1' is not among the actions stated, 0, 2"
    ):
        from_dataframe(stays(2, *[1] * 3), options=TableOptions(actions=("0", "2")))
    with pytest.raises(ValueError, match=r"must be two or more different values, got '0', '0\.0'"):
        TableOptions(actions=("0", "0.0"))
    frame = many()
    frame["action"] = pd.Categorical(frame["action"].replace("", None), categories=["never", "1", "0"])
    batch, report = from_dataframe(frame)
    assert batch.action_names == ("never", "1", "0")
    assert "action 'never' is stated, but was never taken" in report.all_warnings[0]


def test_a_categorical_of_parquet_states_its_actions(tmp_path: Path) -> None:
    frame = many()
    frame["action"] = pd.Categorical(frame["action"].replace("", None), categories=["1", "0", "9"])
    frame.to_parquet(tmp_path / "t.parquet")
    assert from_dataframe(read_table(tmp_path / "t.parquet"))[0].action_names == ("1", "0", "9")


def test_actions_on_dropped_rows_alone_are_said() -> None:
    frame = put(stays(*[4] * 40, last_action=True), 6, "action", "7")  # line 6: the last row of stay 0
    assert "actions on dropped rows alone, which are none of the actions: '7'" in from_dataframe(frame)[1].warnings


@pytest.mark.parametrize("cell", ["", "nan", "None", "NULL", "<NA>", "NaN", "NA", "n/a", None, np.nan, pd.NA])
@pytest.mark.parametrize("column", ["stay_id", "subject_id"])
def test_a_missing_id_is_an_error_with_its_lines(cell: object, column: str) -> None:
    frame = many()
    frame["subject_id"] = frame["stay_id"]
    for line in (3, 8):
        frame.at[line, column] = cell
    columns = TableColumns("stay_id", "bin", "action", ("x", "y"), "subject_id", "terminated", "truncated")
    with pytest.raises(
        ValueError, match=rf"column '{column}' is .* in line 3, line 8 \(2 of 200 rows\): every row needs"
    ):
        from_dataframe(frame, columns)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["na", "n/a", "#n/a", "nan", "nat", "none", "null", "<na>", ""]),
    st.lists(st.booleans(), min_size=4, max_size=4),
    st.text(" \t", max_size=3),
    st.text(" \t", max_size=3),
)
def test_no_spelling_of_a_missing_id_is_an_id(word: str, upper: list[bool], before: str, after: str) -> None:
    text = "".join(c.upper() if up else c for c, up in zip(word, upper * 2, strict=False)) + word[8:]
    with pytest.raises(ValueError, match=r"column 'stay_id' is .* \(1 of 16 rows\): every row needs one"):
        from_dataframe(put(stays(*[3] * 4), 6, "stay_id", before + text + after), COLUMNS)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["", ".0", ".00", "."]), min_size=12, max_size=12), st.integers(0, 10**17))
def test_however_a_numbers_zeros_are_written_it_is_one_id(ends: list[str], first: int) -> None:
    """Twelve rows of three stays."""
    frame = stays(*[3] * 3)
    ids = [str(first + int(text)) for text in frame["stay_id"]]
    plain, other = frame.assign(stay_id=ids), frame.assign(stay_id=[a + b for a, b in zip(ids, ends, strict=True)])
    one, two = (from_dataframe(table, COLUMNS)[0] for table in (plain, other))
    assert len(two) == 3
    assert one == replace(two, ids=one.ids, groups=one.groups)
    assert [plain_id(id) for id in two.ids] == list(one.ids)


def test_as_written_a_word_for_missing_is_an_id() -> None:
    frame = stays(2, 2).replace({"stay_id": {"000": "NA", "001": "nan"}})
    with pytest.raises(ValueError, match="'NA', which stands for a missing id"):
        from_dataframe(frame)
    assert from_dataframe(frame, options=AS_WRITTEN)[0].ids == ("NA", "nan")


def test_a_patient_written_as_a_float_is_one_patient_and_stays_on_one_side_of_the_split() -> None:
    frame = many()
    number = frame["stay_id"].astype(int) // 2
    later = frame["stay_id"].astype(int) % 2 == 1
    frame["subject_id"] = [f"{n}.0" if second else str(n) for n, second in zip(number, later, strict=True)]
    table = prepare_table(frame, rng=np.random.default_rng(0))
    groups = [set(part.groups) for part in (table.train, table.validation, table.test)]
    assert sum(map(len, groups)) == len(set.union(*groups)) == 20
    assert len(table.report.repairs) == 20
    assert table.report.repairs[0].startswith("column 'subject_id': '0.0' (5 cells) read as '0', which is the same")
    apart = prepare_table(frame, options=AS_WRITTEN, rng=np.random.default_rng(0))
    assert apart.report.episodes.groups == 40
    assert any(text.startswith("patients that differ in blanks, case or zeros") for text in apart.report.warnings)
    # Nothing else is one patient: leading zeros may tell two apart, and are said.
    frame["subject_id"] = [f"0{n}" if second else str(n) for n, second in zip(number, later, strict=True)]
    report = from_dataframe(frame)[1]
    assert report.episodes.groups == 40
    assert report.warnings == (
        "patients that differ in blanks, case or zeros only are different ones: '0', '00', '01', '010', '011', '012', "
        "'013', '014', '015', '016' and 30 more",
    )


def test_what_is_forbidden_is_counted_in_all_splits() -> None:
    table = prepare_table(many(), rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"'1' was taken although it is forbidden .*; 80 of 160 actions are"):
        table.masked(["1 when Above(x, -1)"])


def test_bytes_are_texts_of_parquet_and_refused_in_memory(tmp_path: Path) -> None:
    frame = many()
    coded = frame.assign(stay_id=[text.encode() for text in frame["stay_id"]])
    coded.to_parquet(tmp_path / "t.parquet")
    assert from_dataframe(read_table(tmp_path / "t.parquet"))[0] == from_dataframe(frame)[0]
    with pytest.raises(ValueError, match="column 'stay_id' holds bytes such as b'000'"):
        from_dataframe(coded, COLUMNS)
    frame.assign(stay_id=[b"\xff"] * len(frame)).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t\.parquet: column 'stay_id' holds bytes that are no UTF-8 text"):
        read_table(tmp_path / "t.parquet")


def test_ages_that_contradict_each_other_are_not_averaged() -> None:
    frame = many().assign(age="43")
    frame = pd.concat([frame, put(frame, 3, "age", "77").loc[[3]]])
    columns = TableColumns(
        "stay_id", "bin", "action", ("x", "age", "y"), None, "terminated", "truncated", static=("age",)
    )
    for rule in ("mean", "first", "last", "error"):
        with pytest.raises(
            ValueError, match=r"column 'age', id '000', line [34]: .* but .* in line 3: a static feature"
        ):
            from_dataframe(frame, columns, TableOptions(duplicates=rule))


def test_a_static_value_that_differs_between_stays_of_a_patient_is_said() -> None:
    frame = many().assign(age="43")
    frame["subject_id"] = (frame["stay_id"].astype(int) // 2).astype(str)
    frame.loc[frame["stay_id"] == "003", "age"] = "77"
    columns = TableColumns(
        "stay_id", "bin", "action", ("x", "age", "y"), "subject_id", "terminated", "truncated", static=("age",)
    )
    assert from_dataframe(frame, columns)[1].warnings == (
        "static feature 'age' differs between the episodes of 1 patient (first '1': 43 in id '002', line 12, but 77 in "
        "id '003', line 17)",
    )


def measured(**cells: float) -> pd.DataFrame:
    """White cells around 8 (4 to 12), and single cells by line ("l12")."""
    frame = many().rename(columns={"x": "wbc"})
    frame["y"] = [str(i % 7) for i in range(len(frame))]
    frame["wbc"] = [f"{8 + 4 * np.sin(i):.2f}" for i in range(len(frame))]
    for line, value in cells.items():
        frame.loc[int(line[1:]), "wbc"] = repr(value)
    return frame


@pytest.mark.parametrize("value", [-999, -99, -9, 999, 9999, 99999])
def test_a_usual_sign_for_missing_is_named_taken_out_or_given_a_range(value: float) -> None:
    frame = measured(l12=value)
    (warning,) = from_dataframe(frame)[1].warnings
    assert warning == (
        f"column 'wbc': 1 reading is {value}, far from all others (first in id '002', line 12): does it stand for a "
        f"missing one? --missing-values {value} takes it out, --valid wbc LOW HIGH what is not plausible"
    )
    batch, report = from_dataframe(frame, options=TableOptions(missing_values=(str(value),)))
    assert report.warnings == ()
    assert report.features[0].empty == 1
    assert report.repairs == (f"column 'wbc': 1 cells read as missing (--missing-values {value})",)
    assert batch.obs[..., 0].max() <= 12
    limited, report = from_dataframe(frame, options=TableOptions(ranges={"wbc": (0.1, 200)}))
    assert report.warnings == ()
    assert (report.features[0].below, report.features[0].above) == (int(value < 0), int(value > 0))
    assert np.array_equal(limited.obs, batch.obs)


def test_what_may_be_a_reading_is_no_sign_for_missing() -> None:
    frame = many().rename(columns={"x": "ldh"})
    frame["ldh"] = [f"{500 + 450 * np.sin(i):.0f}" for i in range(len(frame))]
    frame["y"] = [f"{8 * np.sin(2 * i):.1f}" for i in range(len(frame))]  # a base excess
    frame.loc[12, ["ldh", "y"]] = ["999", "-9"]
    assert from_dataframe(frame)[1].warnings == ()


def test_a_value_that_repeats_far_out_is_named_and_one_that_is_carried_is_not() -> None:
    (warning,) = from_dataframe(measured(l12=777, l19=777))[1].warnings
    assert warning.startswith("column 'wbc': 2 readings are 777, far from all others (first in id '002', line 12)")
    (warning,) = from_dataframe(measured(l12=777, l13=777))[1].warnings  # one stay: as a row carries the one before it
    assert warning == (
        "the range of 'wbc', 4 to 777, by which a weight is measured, rests on one id (id '002', line 12): without it, "
        "it is 4 to 12"
    )


def test_a_binary_feature_of_few_ones_is_no_oddity() -> None:
    frame = many()
    frame["x"] = ["1" if i % 20 == 0 else "0" for i in range(len(frame))]
    assert from_dataframe(frame)[1].warnings == ()


def test_a_feature_that_is_mostly_filled_is_said() -> None:
    frame = many()
    frame.loc[frame["stay_id"].astype(int) < 26, "x"] = ""  # 26 of 40 stays, of which each has five rows
    report = from_dataframe(frame)[1]
    assert report.features[0].filled_share == 0.65
    assert report.all_warnings == (
        "feature 'x': 65% of its readings are missing and filled by the median, a value that nobody measured",
    )
    frame = many()
    frame.loc[frame["stay_id"].astype(int) < 13, "x"] = ""  # 32.5 %
    assert from_dataframe(frame)[1].all_warnings == ()


@pytest.mark.parametrize("cell", ["N/A", ".", "-", "--", "?", "none", "None", "<NA>", "NaT", "#N/A"])
def test_other_words_for_missing_are_missing_readings(cell: str) -> None:
    batch, report = from_dataframe(put(many(), 3, "x", cell))
    assert (report.features[0].empty, report.features[0].carried) == (1, 1)
    assert batch.obs[0, :, 0].tolist() == [0, 0, 2, 3, 4]


def test_other_words_are_offered() -> None:
    frame = put(many(), 3, "x", "unknown")
    assert "column 'x', id '000', line 3: 'unknown' is not a number (--missing-values unknown" in refusal(frame)
    batch, report = from_dataframe(frame, options=TableOptions(missing_values=("Unknown", "-999")))
    assert report.repairs == ("column 'x': 1 cells read as missing (--missing-values Unknown -999)",)
    assert batch.obs[0, :3, 0].tolist() == [0, 0, 2]


def test_true_and_false_are_the_same_of_csv_and_parquet(tmp_path: Path) -> None:
    frame = many()
    truth = [i % 3 == 0 for i in range(len(frame))]
    frame["x"] = truth
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    one, two = (read_table(tmp_path / name) for name in ("t.csv", "t.parquet"))
    batch, report = from_dataframe(one)
    other, again = from_dataframe(two)
    assert batch == other
    assert report.sha256 == again.sha256
    assert batch.obs[0, :, 0].tolist() == [1, 0, 0, 1, 0]


def test_platelets_per_litre_are_readings() -> None:
    frame = many()
    frame["x"] = [f"{2e11 + i * 1e9:g}" for i in range(len(frame))]
    assert from_dataframe(frame)[0].obs[0, 0, 0] == np.float32(2e11)


@pytest.mark.parametrize("blank", [" ", "\t", "\x1c", "\x1f", "\x85", "\u3000"])
def test_blanks_of_every_kind_around_a_number_are_none_of_it(blank: str) -> None:
    assert number(f"{blank}-1.5{blank}") == -1.5
    assert number(f"1{blank}5") is None
    assert value_of(f"{blank}-1.5{blank}") == -1.5


def test_blanks_of_every_kind_in_a_table() -> None:
    cells = {"id": ["a"] * 3, "t": ["0\x1f", "1", "2"], "x": ["1\x1c", "7", "3"], "action": ["0\x1f", "1", ""]}
    batch, _ = from_dataframe(pd.DataFrame(cells), options=CUT)
    assert (batch.obs.ravel().tolist(), batch.actions.tolist()) == ([1.0, 7.0, 3.0], [[0, 1]])
