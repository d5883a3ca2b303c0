"""Several faults at once, patients left out for them, ends that say nothing, and one episode that is far too long."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tables import COLUMNS, put, stays

from cirl_gym.tables import TableColumns, TableOptions, episodes
from cirl_gym.tables.read import from_dataframe
from cirl_gym.tables.weighed import chosen_outcomes

DROP = TableOptions(drop_bad_patients=True)


def broken() -> pd.DataFrame:
    """Twelve stays of four actions; one fault of every kind, each in a stay of its own, from the second on."""
    frame = stays(*[4] * 12)
    first = {f"{i:03d}": 2 + 5 * i for i in range(12)}
    frame = put(frame, first["001"], "x", "high")
    frame = put(frame, first["002"] + 1, "bin", "noon")
    frame = put(frame, first["003"] + 1, "action", "")
    frame = put(frame, first["004"], "truncated", "1")
    frame = put(frame, first["005"] + 4, "action", "1")
    frame = put(frame, first["006"] + 4, "terminated", "0")
    twice = frame.loc[[first["007"]]].assign(x="99")
    twice.index = pd.Index([99], name="line")
    return pd.concat([frame, twice])


def test_patients_with_faults_are_left_out_counted_and_listed() -> None:
    batch, report = from_dataframe(broken(), COLUMNS, DROP)
    bad = tuple(f"{i:03d}" for i in range(1, 8))
    assert report.left_out == bad
    assert (report.rows.read, report.rows.bad, report.rows.used) == (61, 36, 25)
    assert (report.episodes.read, report.episodes.bad, report.episodes.used) == (12, 7, 5)
    good = stays(*[4] * 12)
    assert batch == from_dataframe(good[~good["stay_id"].isin(bad)], COLUMNS)[0]
    said = (
        "7 patients left out, of whom a row cannot be used, with 36 rows of 7 ids: '001', '002', '003', '004', '005',"
    )
    assert any(line.startswith(said) for line in report.lines())
    assert from_dataframe(good, COLUMNS, DROP)[1].left_out == ()


FAULTS = [("x", "high"), ("bin", "noon"), ("action", ""), ("truncated", "1"), ("terminated", "maybe"), ("bin", "")]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from(FAULTS)), max_size=4))
def test_whatever_is_wrong_the_others_are_read_as_if_alone(faults: list) -> None:
    """Of ten stays some of the first six have faults, in one of their rows but the last."""
    frame = good = stays(*[4] * 10)
    for stay, step, (column, cell) in faults:
        frame = put(frame, 2 + 5 * stay + step, column, cell)
    bad = sorted({f"{stay:03d}" for stay, _, _ in faults})
    batch, report = from_dataframe(frame, COLUMNS, DROP)
    assert batch == from_dataframe(good[~good["stay_id"].isin(bad)], COLUMNS)[0]
    assert report.left_out == tuple(bad)
    assert (report.rows.read, report.rows.bad, report.rows.used) == (50, 5 * len(bad), 50 - 5 * len(bad))


def test_all_stays_of_a_patient_go_and_lines_keep_their_names() -> None:
    frame = put(stays(*[4] * 12), 7, "x", "high")
    frame["subject_id"] = (frame["stay_id"].astype(int) // 2).astype(str)
    frame.loc[20, "action"] = "7"
    report = from_dataframe(frame, options=DROP)[1]
    assert report.left_out == ("0",)
    assert report.episodes.bad == 2
    assert report.taken[2].first == "id '003', line 20"
    plain = frame.reset_index(drop=True)
    assert from_dataframe(plain, options=DROP)[1].taken[2].first == "id '003', position 18"
    with pytest.raises(ValueError, match=r"--drop-bad-patients leaves nobody: 60 cells cannot be used"):
        from_dataframe(stays(*[4] * 12).assign(x="high"), COLUMNS, DROP)


def test_faults_of_a_kind_are_reported_together() -> None:
    frame = stays(*[4] * 30)
    for stay in range(25):
        frame.loc[3 + 5 * stay, "action"] = ""
    with pytest.raises(ValueError, match=r"25 rows cannot be used:\n  column 'action', id '000', line 3") as caught:
        from_dataframe(frame, COLUMNS)
    assert str(caught.value).count("the action is missing") == 20
    assert str(caught.value).endswith("\n  ... and 5 more")
    frame = put(put(stays(*[4] * 30), 4, "x", "low"), 9, "bin", "noon")
    with pytest.raises(ValueError, match=r"2 cells cannot be used:\n  .*line 9: 'noon' .*\n  .*line 4: 'low' is not"):
        from_dataframe(frame, COLUMNS)


def test_flags_that_are_never_one_name_the_way_out() -> None:
    frame = stays(*[4] * 10, last_action=True).assign(terminated="0", truncated="0")
    with pytest.raises(
        ValueError, match=r"neither 'terminated' nor 'truncated' is ever 1. Say --end terminated .* --end"
    ):
        from_dataframe(frame)
    batch, report = from_dataframe(frame, options=TableOptions(end="truncated"))
    assert batch.truncated.all()
    assert (report.end, report.episodes.last_actions_dropped) == ("truncated", 10)


def test_both_flags_at_a_true_end_are_one_end_with_a_count() -> None:
    frame = stays(2, 1, 2)
    both = put(put(frame, 4, "truncated", "1"), 6, "terminated", "1")
    batch, report = from_dataframe(both)
    assert batch.terminated.tolist() == [True, True, True]
    said = "2 last rows are marked both terminated and truncated, as Gymnasium does: read as terminated"
    assert report.repairs == (said,)
    with pytest.raises(ValueError, match="line 3: the end is marked before the last row"):
        from_dataframe(put(put(frame, 3, "truncated", "1"), 3, "terminated", "1"), COLUMNS)


def test_one_long_episode_among_short_ones_is_said_and_cut() -> None:
    frame = stays(*[2] * 200, 90)
    (warning,) = from_dataframe(frame)[1].warnings
    assert warning.startswith(
        "id '200' has 90 steps, 99 % of episodes have at most 2: the longest sets how far everybody"
    )
    batch, report = from_dataframe(frame, options=TableOptions(max_steps=3))
    assert report.warnings == ()
    assert batch.horizon == 3
    assert batch.truncated[batch.ids.index("200")]
    assert batch.terminated[0]
    assert (report.rows.read, report.rows.used, report.rows.cut) == (691, 604, 87)
    assert "87 rows dropped: after as many steps of their episode as are kept" in report.lines()
    with pytest.raises(ValueError, match=r"max_steps \(--max-steps\) must be at least 1, got 0"):
        TableOptions(max_steps=0)


def test_padding_that_would_be_nearly_all_there_is_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As 20,000 ids of three rows and one of 5,001 are, on a tenth of the scale."""
    monkeypatch.setattr(episodes, "MOST_PADDED", 900_000)
    lengths = np.array([2] * 2_000 + [500])
    ids = np.repeat(np.arange(len(lengths)), lengths + 1)
    step = np.arange(len(ids)) - np.repeat(np.cumsum(lengths + 1) - lengths - 1, lengths + 1)
    frame = pd.DataFrame({"id": ids, "t": step, "x": step * 1.0, "a": pd.array(step % 2, "Int64")})
    frame.loc[step == lengths[ids], "a"] = pd.NA
    columns = TableColumns("id", "t", "a", ("x",))
    options = TableOptions(end="truncated")
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"id '2000' has 500 steps, 99 % of ids at most 2: .* 1 million .*--max-steps"):
        from_dataframe(frame, columns, options)
    batch, report = from_dataframe(frame, columns, TableOptions(end="truncated", max_steps=10))
    assert tracemalloc.get_traced_memory()[1] < 15e6  # padded to the longest, 71 bytes for each of a million readings
    tracemalloc.stop()
    assert (batch.horizon, report.rows.cut) == (10, 490)


def test_a_column_named_like_an_outcome_that_could_be_computed_is_refused() -> None:
    columns = TableColumns("id", "t", "a", ("wbc", "Change(wbc)", "Above(bun, 3)"))
    with pytest.raises(
        ValueError, match=r"'Change\(wbc\)' is the name of a column, and can be computed of wbc as well"
    ):
        chosen_outcomes(columns, ("Change(wbc)",))
    assert chosen_outcomes(columns, ("Above(bun, 3)", "wbc")) == ("Above(bun, 3)", "wbc")  # there is no bun
    assert chosen_outcomes(columns, ("Change( wbc )", "wbc"))[1] == "wbc"
