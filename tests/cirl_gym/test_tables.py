"""From files and frames to batches: nothing is changed, merged or lost on the way."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from small_tables import ICU_DATA, put, stays, write

from cirl_gym.data.batch import Batch
from cirl_gym.tables import Sheet, TableColumns, TableOptions, infer_columns, read_table
from cirl_gym.tables.read import from_dataframe, prepare_table

COLUMNS = TableColumns("id", "t", "a", ("x",))
CUT = TableOptions(end="truncated")


def test_a_small_table_becomes_the_batch_one_would_write_by_hand_actions_beside_the_observation_before() -> None:
    batch, report = from_dataframe(stays(2, 1))
    assert batch.obs.tolist() == [[[0, 0], [1, -1], [2, -2]], [[10, 100], [11, 99], [0, 0]]]
    assert batch.actions.tolist() == [[0, 1], [1, 0]]
    assert batch.lengths.tolist() == [2, 1]
    assert batch.terminated.tolist() == [True, False]
    assert batch.truncated.tolist() == [False, True]
    assert batch.features == ("x", "y")
    assert batch.action_names == ("0", "1")
    assert batch.ids == batch.groups == ("000", "001")
    assert (report.rows.read, report.rows.used, report.episodes.steps) == (5, 5, 3)
    assert report.warnings == ()
    frame = pd.DataFrame({"id": "p", "t": [0, 1, 2, 3], "x": [0, 1, 2, 3], "a": ["10", "11", "12", ""]})
    batch, _ = Batch.from_dataframe(frame, COLUMNS, CUT)
    chosen = [batch.action_names[a] for a in batch.actions[0]]
    steps = zip(batch.obs[0, :-1, 0], chosen, batch.next_obs[0, :, 0], strict=True)
    assert list(steps) == [(0, "10", 1), (1, "11", 2), (2, "12", 3)]


@pytest.mark.parametrize(
    "ids",
    [
        ("007", "7"),
        ("16777216", "16777217"),
        ("9007199254740992", "9007199254740993"),
        ("1e3", "1000"),
        ("ü 1", "ü  1"),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
def test_ids_stay_the_text_that_they_are(ids: tuple[str, str], suffix: str, tmp_path: Path) -> None:
    frame = stays(2, 2).replace({"stay_id": {"000": ids[0], "001": ids[1]}})
    path = tmp_path / f"table{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    else:
        write(path, frame)
    batch, report = from_dataframe(read_table(path))
    assert batch.ids == tuple(sorted(ids))
    assert report.episodes.used == 2


def test_ids_in_memory_or_parquet_are_exact_or_refused(tmp_path: Path) -> None:
    big = [9007199254740992, 9007199254740993]
    frame = pd.DataFrame(
        {"id": np.repeat(big, 2), "t": [0, 1] * 2, "x": 1.5, "a": pd.array([0, None, 1, None], "Int64")}
    )
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    for table in (frame, read_table(tmp_path / "t.parquet"), frame.set_index(["id", "t"]).reset_index()):
        batch, _ = from_dataframe(table, COLUMNS, CUT)
        assert batch.ids == tuple(map(str, big))
        assert batch.action_names == ("0", "1")
    frame = pd.DataFrame({"id": ["a", "a", "b", "b"], "t": [0, 1] * 2, "x": 1.5, "a": ["0", None, "1", None]})
    frame.set_index(["id", "t"]).to_parquet(tmp_path / "t.parquet")
    assert from_dataframe(read_table(tmp_path / "t.parquet"), COLUMNS, CUT)[0].ids == ("a", "b")
    frame = pd.DataFrame({"id": [2.0**53] * 2, "t": [0, 1], "x": 1.0, "a": ["1", ""]})
    with pytest.raises(ValueError, match=r"column 'id' holds floating-point numbers .* read it as text"):
        from_dataframe(frame, COLUMNS, CUT)


@pytest.mark.parametrize(
    ("codes", "names"),
    [
        (["2", "10", "2"], ("2", "10")),
        (["1.0", "1", "0"], ("0", "1")),
        (["stop", "go", "2"], ("2", "go", "stop")),
        (["-1", "0.5", "01"], ("-1", "0.5", "01")),
        ([True, False, True], ("False", "True")),
        ([1.0, 0.0, 1.0], ("0", "1")),
        (["None", "drug", "None"], ("None", "drug")),
    ],
)
def test_actions_are_numbered_in_order_and_keep_their_names(codes: list[object], names: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"id": "p", "t": range(4), "x": 1.0, "a": pd.Series([*codes, None], dtype=object)})
    batch, _ = from_dataframe(frame, COLUMNS, CUT)
    assert batch.action_names == names
    plain = [str(c).removesuffix(".0") for c in codes]
    assert [names[a] for a in batch.actions[0]] == plain


def test_rows_in_any_order_are_grouped_and_sorted_with_a_count() -> None:
    frame = stays(3, 2, 4)
    shuffled = frame.iloc[np.random.default_rng(0).permutation(len(frame))]
    batch, report = from_dataframe(shuffled)
    want, none = from_dataframe(frame)
    assert batch == want
    assert (report.episodes.regrouped, none.episodes.regrouped) == (3, 0)
    orders = [shuffled["bin"][shuffled["stay_id"] == name].tolist() for name in want.ids]
    assert 0 < report.episodes.resorted == sum(order != sorted(order) for order in orders)
    assert none.episodes.resorted == 0
    swapped = frame.iloc[[1, 0, *range(2, len(frame))]]
    assert from_dataframe(swapped)[1].episodes.resorted == 1
    assert from_dataframe(swapped)[1].episodes.regrouped == 0


def test_the_checksum_is_of_what_a_table_says() -> None:
    """Rows and columns may stand in any order and numbers be written or typed in any way; a cell more is another."""
    frame = stays(3, 2)
    sums = {Sheet(frame).checksum}
    shuffled = frame.iloc[np.random.default_rng(0).permutation(len(frame))][list(frame.columns)[::-1]]
    sums.add(Sheet(shuffled).checksum)
    sums.add(Sheet(frame.assign(x=[float(cell) for cell in frame["x"]])).checksum)
    sums.add(Sheet(frame.assign(y=[f" {cell}.0" for cell in frame["y"]])).checksum)
    sums.add(from_dataframe(shuffled)[1].sha256)
    assert len(sums) == 1
    first = frame.index[0]
    others = [put(frame, first, "x", "0.5"), put(frame, first, "x", ""), put(frame, first, "stay_id", "ten")]
    others += [frame.iloc[1:], pd.concat([frame, frame.iloc[:1]]), frame.rename(columns={"x": "z"})]
    # Cells that change places within a column, or within a row, make another table.
    others.append(frame.assign(x=frame["x"].tolist()[::-1]))
    others.append(frame.assign(x=frame["y"], y=frame["x"]))
    sums |= {Sheet(other).checksum for other in others}
    assert len(sums) == 1 + len(others)


@pytest.mark.parametrize(
    ("cells", "gaps"),
    [
        (["0", "1", "2", "5"], 1),
        (["10", "9", "11", "12"], 0),
        (["0", "1", "2", "3.5"], 0),
        (["0", "1", "2", "3.6"], 1),
        (["2020-01-31", "2020-02-01", "2020-02-02", "2020-02-04"], 1),
        (["2020-01-31T08:00", "2020-01-31 20:00:00", "2020-02-01T08:00:00.000", "2020-02-01T20:00"], 0),
        (["2020-01-31T08:00Z", "2020-01-31T10:00+01:00", "2020-01-31T10:00Z", "2020-01-31T10:00-01:00"], 0),
    ],
)
def test_times_order_the_rows_and_gaps_are_counted(cells: list[str], gaps: int) -> None:
    frame = pd.DataFrame({"id": "p", "t": cells, "x": [0, 1, 2, 3], "a": ["1", "0", "1", ""]})
    if cells[0] == "10":
        frame["a"] = ["0", "1", "1", ""]
    batch, report = from_dataframe(frame, COLUMNS, CUT)
    assert batch.obs[0, :, 0].tolist() == ([1, 0, 2, 3] if cells[0] == "10" else [0, 1, 2, 3])
    assert report.episodes.gaps == gaps


@pytest.mark.parametrize(
    "cells",
    [
        pd.to_datetime(["2130-01-31 20:00:00.0", "2130-01-31 08:00:00.0", "2130-01-31 08:00:00.000001"]),
        ["1600000000000000002", "1600000000000000000", "1600000000000000001"],  # too long for floating point
    ],
)
def test_times_that_are_close_stay_apart(cells: list[str]) -> None:
    frame = pd.DataFrame({"id": "p", "t": cells, "x": [2, 0, 1], "a": ["", "1", "0"]})
    batch, report = from_dataframe(frame, COLUMNS, CUT)
    assert batch.obs[0, :, 0].tolist() == [0, 1, 2]
    assert report.rows.identical == report.rows.merged == 0


def test_episodes_of_one_action_and_ids_without_any() -> None:
    batch, report = from_dataframe(stays(1, 0, 1, 20, 0))
    assert batch.lengths.tolist() == [1, 1, 20]
    assert batch.ids == ("000", "002", "003")
    assert report.rows.lone == report.episodes.lone == 2
    assert report.rows.read == 27 == report.rows.used + 2
    assert any("2 rows dropped: the only row of its id" in line for line in report.lines())


def test_a_table_without_last_observations_loses_one_action_per_id_with_a_count() -> None:
    batch, report = from_dataframe(stays(2, 3, last_action=True))
    assert batch.lengths.tolist() == [2, 3]
    assert report.episodes.last_actions_dropped == 2
    assert any("2 last actions dropped" in line for line in report.lines())
    assert "1 episodes end terminated, but last actions were dropped" in report.warnings[0]
    assert batch == from_dataframe(stays(2, 3))[0]
    # An id of one row says nothing about the rule.
    batch, report = from_dataframe(put(stays(2, 3, 0, last_action=True), 9, "action", ""))
    assert batch.ids == ("000", "001")
    assert (report.episodes.last_actions_dropped, report.episodes.lone) == (2, 1)


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_the_user_says_how_episodes_end_if_the_table_does_not_and_one_flag_column_is_enough(end: Any) -> None:
    batch, report = from_dataframe(stays(2, 1, flags=False), options=TableOptions(end=end))
    assert batch.terminated.tolist() == [end == "terminated"] * 2
    assert report.end == report.as_dict()["end"] == end
    batch, report = from_dataframe(stays(2, 1).drop(columns=end))
    assert (batch.terminated.tolist(), report.end) == ([True, False], "flags")
    # Flags may be empty before the last row.
    frame = stays(2, 1)
    frame.loc[frame["action"] != "", ["terminated", "truncated"]] = ""
    assert from_dataframe(frame)[0] == from_dataframe(stays(2, 1))[0]


def test_the_report_adds_up_and_is_json() -> None:
    frame = put(put(stays(3, 0, 2), 2, "x", ""), 4, "y", "")
    frame = pd.concat([frame, frame.iloc[[0]]])
    batch, report = from_dataframe(frame)
    content = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert content["rows"] == {"read": 9, "used": 7, "identical": 1, "merged": 0, "lone": 1, "cut": 0, "bad": 0}
    counts = {"name": "x", "empty": 1, "below": 0, "above": 0, "carried": 0, "filled": 1, "observed": 6}
    counts["much_filled"] = False
    assert content["features"][0] == {**counts, "filled_share": 1 / 7}
    assert content["features"][1] == {
        **counts,
        "name": "y",
        "carried": 1,
        "filled": 0,
        "filled_share": 0,
        "much_filled": False,
    }
    assert content["columns"]["id"] == "stay_id"
    assert report.rows.used == batch.n_steps + len(batch)
    assert report.lines()[1] == "9 rows read, 7 used: 2 episodes of 2 groups with 5 actions"


reading = st.one_of(st.floats(-1e6, 1e6, width=32), st.just(float("nan")))
episode = st.integers(1, 5).flatmap(
    lambda k: st.tuples(
        st.lists(st.tuples(reading, reading), min_size=k + 1, max_size=k + 1),
        st.lists(st.sampled_from(["a", "b", "c"]), min_size=k, max_size=k),
        st.booleans(),
    )
)


@settings(max_examples=60, deadline=None)
@given(st.lists(episode, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_any_table_comes_back_from_its_batch(episodes: list[tuple], shuffler) -> None:
    """The readings of a frame are found again in the batch, gaps carried forward; text and shuffled rows included."""
    rows = [
        (str(i), t, *(repr(v) if v == v else "" for v in x), a, int(last and dead), int(last and not dead))
        for i, (obs, acts, dead) in enumerate(episodes)
        for t, (x, a) in enumerate(zip(obs, [*acts, ""], strict=True))
        for last in [t == len(acts)]
    ]
    taken = sorted({a for _, acts, _ in episodes for a in acts})
    observed = np.array([x for obs, _, _ in episodes for x in obs])
    shuffler.shuffle(rows)
    frame = pd.DataFrame(rows, columns=["id", "t", "x", "y", "action", "terminated", "truncated"])
    columns = TableColumns("id", "t", "action", ("x", "y"), None, "terminated", "truncated")
    if len(taken) < 2 or np.isnan(observed).all(axis=0).any():
        with pytest.raises(ValueError, match=r"only one action|has no reading"):
            from_dataframe(frame, columns)
        return
    batch, report = from_dataframe(frame, columns)
    medians = np.nanmedian(observed, axis=0).astype(np.float32)
    assert batch.action_names == tuple(taken)
    for name, (x, a) in zip(batch.ids, batch.episodes(), strict=True):
        obs, acts, dead = episodes[int(name)]
        assert [taken[code] for code in a] == acts
        assert batch.terminated[batch.ids.index(name)] == dead
        last = medians
        for row, want in zip(x, np.array(obs, dtype=np.float32), strict=True):
            last = np.where(np.isnan(want), last, want)
            np.testing.assert_array_equal(row, last)
    assert report.rows.used == len(rows)
    assert sum(f.empty for f in report.features) == int(np.isnan(observed).sum())


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_example_table_is_what_its_script_makes_and_is_read_without_a_word() -> None:
    spec = importlib.util.spec_from_file_location("make_icu_like_table", EXAMPLES / "make_icu_like_table.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.make_table()
    assert (EXAMPLES / "icu_like.csv").read_bytes() == made
    assert len(made) < 150_000
    table = prepare_table(read_table(EXAMPLES / "icu_like.csv"), rng=np.random.default_rng(0))
    report = table.report
    columns = report.columns
    assert (columns.id, columns.group, columns.action) == ("stay_id", "subject_id", "antibiotic")
    assert len(report.columns.features) == 15
    assert report.warnings == ()
    assert report.episodes.used == 200 > report.episodes.groups
    assert all(name.startswith("000") for name in table.train.ids[:10])
    # The trade-off that the example is about: treatment lowers temperature and white cells and raises creatinine.
    change = table.train.next_obs - table.train.obs[:, :-1]
    treated, untreated = (change[table.train.mask & (table.train.actions == a)].mean(axis=0) for a in (1, 0))
    at = table.train.features.index
    assert treated[at("temperature")] < 0 < untreated[at("temperature")]
    assert treated[at("wbc")] < 0 < untreated[at("wbc")]
    assert treated[at("creatinine")] > 0 > untreated[at("creatinine")]


@pytest.mark.parametrize(
    ("name", "count", "subjects", "rows", "actions", "treated", "died", "no_lactate", "doubt"),
    [
        ("mimic4_demo_24h", 77, 61, 433, 356, 275, 10, 59, "the range of 'wbc'"),
        ("mimic4_demo_12h", 86, 68, 758, 672, 446, 7, 101, "the range of 'spo2'"),
        ("eicu_demo_12h", 625, 556, 4365, 3740, 3011, 41, 2802, "feature 'lactate': 64% of its readings are missing"),
    ],
)
def test_real_icu_tables_are_read_and_what_is_odd_in_them_is_said(
    name: str, count: int, subjects: int, rows: int, actions: int, treated: int, died: int, no_lactate: int, doubt: str
) -> None:
    path = ICU_DATA / f"icu_antibiotics_{name}.csv"
    if not path.exists():
        pytest.skip("the real ICU tables are not beside this checkout (../shared/data)")
    frame = read_table(path)
    columns = infer_columns(frame)
    assert (columns.id, columns.group, columns.time, columns.action) == ("stay_id", "subject_id", "bin", "antibiotic")
    assert len(columns.features) == 15
    batch, report = from_dataframe(frame, columns)
    assert (len(batch), len(set(batch.groups)), batch.n_steps, report.rows.read) == (count, subjects, actions, rows)
    assert batch.actions[batch.mask].sum() == treated
    assert batch.action_names == ("0", "1")
    assert batch.terminated.sum() == died
    lactate = next(f for f in report.features if f.name == "lactate")
    assert (lactate.empty, lactate.carried, lactate.filled) == (no_lactate, 0, no_lactate)  # carried by its makers
    assert report.rows.used == rows
    (warning,) = report.all_warnings  # a range that rests on one stay, or most of a column that nobody measured
    assert warning.startswith(doubt)
    assert not Counter(frame["stay_id"]) - Counter(dict(zip(batch.ids, (batch.lengths + 1).tolist(), strict=True)))


cell = st.sampled_from(["", "-1.1", "0.1", "0.2", "0.3", "1e8"])


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(cell, st.sampled_from("ab"), st.sampled_from("uv")), max_size=5), min_size=3, max_size=6
    ),
    st.randoms(use_true_random=False),
)
def test_where_a_row_stands_in_the_file_changes_no_byte(episodes: list[list], shuffler) -> None:
    """Every row but the last of an episode is there again with other readings: means must not depend on order."""
    first = [[("0.1", "a", "u"), ("0.2", "b", "v")] for _ in range(5)]
    rows = [
        (f"{i * 7}", t, x, *(("", "") if t == len(steps) else (a, ward)), str(i // 2))
        for i, steps in enumerate([*first, *episodes])
        for t, (cells, a, ward) in enumerate(
            [*((("0.3", "0.1", x), a, ward) for x, a, ward in steps), (("1",), "", "")]
        )
        for x in cells
    ]
    columns = TableColumns("id", "t", "a", ("x",), "patient", contexts=("ward",))
    names = ["id", "t", "x", "a", "ward", "patient"]
    options = TableOptions(end="truncated", duplicates="mean", missing_indicator=True)
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    parts, others = (
        prepare_table(pd.DataFrame(table, columns=names), columns, options, rng=np.random.default_rng(1))
        for table in (rows, shuffled)
    )
    for name in ("train", "validation", "test"):
        one, other = getattr(parts, name), getattr(others, name)
        assert one == other
        assert one.obs.tobytes() == other.obs.tobytes()
        assert one.ids == tuple(sorted(one.ids))
    assert parts.medians == others.medians
    told = [report.as_dict() for report in (parts.report, others.report)]
    for content in told:
        content["episodes"] |= {"regrouped": 0, "resorted": 0}
        content["account"] = [line for line in content["account"] if not re.search("were (grouped|sorted)", line)]
    # The number of a row that is named is its place in the file; which row it is does not change.
    assert len({re.sub(r"position \d+", "", json.dumps(content)) for content in told}) == 1


def test_shuffled_rows_of_the_example_table_are_the_same_table(tmp_path: Path) -> None:
    frame = read_table(EXAMPLES / "icu_like.csv")
    saved = []
    for rows in (frame, frame.sample(frac=1, random_state=1)):
        table = prepare_table(rows, rng=np.random.default_rng(0))
        paths = [tmp_path / f"{name}.npz" for name in ("train", "validation", "test")]
        for path in paths:
            getattr(table, path.stem).save(path)
        saved.append([path.read_bytes() for path in paths] + [repr(table.medians)])
    assert saved[0] == saved[1]


def test_an_action_that_was_hardly_taken_is_named_with_its_counts() -> None:
    frame = stays(*[4] * 20)  # 20 patients, who take either action 40 times
    frame["action"] = frame["action"].where(frame["action"] != "", None)
    assert from_dataframe(frame)[1].all_warnings == ()
    rare = frame.copy()
    for line in (2, 3, 7):  # the first stay, and the first row of the second one
        rare.loc[line, "action"] = "2"
    report = from_dataframe(rare)[1]
    assert report.warnings == ()
    (warning,) = report.all_warnings
    said = "action '2' was taken 3 times by 2 patients (3.75% of decisions; first in id '000', line 2): too rare to say"
    assert warning.startswith(said)
    assert f"warning: {warning}" in report.lines()
    content = json.loads(json.dumps(report.as_dict()))
    assert content["warnings"] == [warning]
    where = "id '000', line 2"
    assert content["taken"][2] == {"action": "2", "times": 3, "groups": 2, "share": 3 / 80, "first": where}
    assert [row["times"] for row in content["taken"]] == [39, 38, 3]
    # Often, but by few: patients count, not stays.
    few = frame.assign(patient_id=frame["stay_id"].map(lambda stay: str(int(stay) % 9)))
    assert [t.groups for t in from_dataframe(few)[1].taken] == [9, 9]
    assert all("40 times by 9 patients" in text for text in from_dataframe(few)[1].all_warnings)
    once = frame.copy()
    once.loc[2, "action"] = "2"
    assert "action '2' was taken 1 time by 1 patient (1.25% of decisions; " in from_dataframe(once)[1].all_warnings[0]
    assert prepare_table(once, rng=np.random.default_rng(0)).report.taken == from_dataframe(once)[1].taken
