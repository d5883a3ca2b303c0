"""Records of MEDS data, worked out by hand: which events are read, whose they are, when they count."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from meds_records import DAY, event, meds_folder, stay

from cirl_gym.tables.meds import (
    Item,
    counted,
    edges_of,
    icu_stays,
    is_reading,
    parts,
    read_events,
    readings_of,
    running,
    starts_of,
)

pytest.importorskip("pyarrow")
NONE = re.compile("none")
DRUG = re.compile("INFUSION_START//(1|2)")
NOW = pd.Timedelta(0)


def at(time: str) -> pd.Timestamp:
    return pd.Timestamp(f"{DAY} {time}")


def of(folder, items=(), actions=NONE) -> pd.DataFrame:
    (path,) = parts(folder)
    return read_events(path, items, actions)


def test_codes_of_both_generations_are_readings_and_others_are_not() -> None:
    assert is_reading("LAB//220045//bpm", [220045])
    assert is_reading("LAB//RESULT//220045//bpm", [220045])
    assert is_reading("LAB//220045//UNK", [220045])
    for code in ("LAB//SPECIMEN_COLLECTED//220045", "LAB//2200456//bpm", "LAB//220045", "xLAB//220045//bpm"):
        assert not is_reading(code, [220045]), code


def test_events_of_other_codes_and_without_time_are_no_events(tmp_path) -> None:
    events = [
        *stay(7, 70, "08:00", "20:00"),
        event(7, None, "LAB//5//mg", 1.0),
        event(7, "09:00", "LAB//5//mg", 1.1),
        event(7, "09:30", "LAB//RESULT//5//mg", 1.2),
        event(7, "10:00", "LAB//6//mg", 9.0),
        event(7, "10:00", "INFUSION_START//1", 1.0, 70),
        event(7, "11:00", "INFUSION_END//1", 1.0, 70),
        event(7, "11:00", "INFUSION_START//3", 1.0, 70),
        event(7, "11:00", "MEDS_DEATH"),
        event(7, "11:00", "GENDER//F"),
    ]
    found = of(meds_folder(tmp_path, events), [5], DRUG)
    assert found["code"].str.split("//").str[0].tolist() == [
        "ICU_ADMISSION",
        "ICU_DISCHARGE",
        "LAB",
        "LAB",
        "INFUSION_START",
        "INFUSION_END",
        "MEDS_DEATH",
    ]
    assert found["value"].tolist()[2:4] == [1.1, 1.2]  # single precision, as they were written
    assert found["stay"].tolist()[:2] == ["70", "70"]


def test_batches_and_the_order_of_events_make_no_difference(tmp_path, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    events = [*stay(7, 70, "00:00", "23:00")]
    events += [event(7, f"{hour:02}:00", f"LAB//{item}//mg", item + hour) for hour in range(20) for item in (5, 6)]
    shuffled = [events[i] for i in rng.permutation(len(events))]
    whole = of(meds_folder(tmp_path / "a", events), [5])
    monkeypatch.setattr("cirl_gym.tables.meds._BATCH", 3)
    by_batch = of(meds_folder(tmp_path / "b", shuffled), [5])
    order = ["time", "code"]
    pd.testing.assert_frame_equal(
        whole.sort_values(order, ignore_index=True), by_batch.sort_values(order, ignore_index=True)
    )


def test_stays_have_both_ends_and_a_death_inside(tmp_path) -> None:
    events = [
        *stay(7, 71, "12:00", "20:00"),
        *stay(7, 70, "01:00", "05:00"),
        event(7, "20:00", "MEDS_DEATH"),
        event(8, "02:00", "ICU_ADMISSION//x", stay=80),  # never ended
    ]
    found, incomplete = icu_stays(of(meds_folder(tmp_path, events)))
    assert incomplete == 1
    assert found["id"].tolist() == ["70", "71"]
    assert found["subject"].tolist() == [7, 7]
    assert found["died"].tolist() == [pd.NaT, at("20:00")]


def test_readings_belong_to_stays_and_implausible_ones_are_counted(tmp_path) -> None:
    events = [
        *stay(7, 70, "08:00", "20:00"),
        event(7, "07:00", "LAB//5//degF", 98.6),  # an hour before
        event(7, "08:00", "LAB//5//degF", 212.0),
        event(7, "09:00", "LAB//4//degC", 38.0),
        event(7, "09:30", "LAB//4//degC"),  # no number
        event(7, "20:01", "LAB//4//degC", 38.0),  # after the stay
        event(7, "02:00", "LAB//9//x", 3.0),
        event(8, "09:00", "LAB//4//degC", 37.0),  # nobody's stay
    ]
    found = of(meds_folder(tmp_path, events), [4, 5, 9])
    items = [
        Item("temperature", (4, 5), 30, 43, pd.Timedelta("30min"), fahrenheit=(5,)),
        Item("other", (9,), 0, 10, None),
    ]
    readings, dropped = readings_of(found, icu_stays(found)[0], items)
    assert dropped == {"temperature": (1, 2), "other": (0, 0)}
    assert readings.to_numpy().tolist() == [
        ["70", at("09:00"), "temperature", 38.0],
        ["70", at("02:00"), "other", 3.0],
    ]
    early = [Item("temperature", (4, 5), 30, 43, pd.Timedelta("1h"), fahrenheit=(5,))]
    assert readings_of(found, icu_stays(found)[0], early)[0]["value"].round(6).tolist() == [37.0, 38.0]


def test_infusions_are_paired_by_order_and_run_until_they_end(tmp_path) -> None:
    events = [
        *stay(7, 70, "08:00", "20:00"),
        event(7, "07:00", "INFUSION_START//1"),  # runs into the stay
        event(7, "09:00", "INFUSION_END//1"),
        event(7, "10:00", "INFUSION_START//1"),
        event(7, "12:00", "INFUSION_END//1"),
        event(7, "10:30", "INFUSION_START//2"),
        event(7, "21:00", "INFUSION_START//2"),  # after the stay
    ]
    found = of(meds_folder(tmp_path, events), (), DRUG)
    stays, _ = icu_stays(found)
    acts, endless = starts_of(found, stays, DRUG, "dose")
    assert endless == 2
    acts = acts.sort_values("time", ignore_index=True)
    assert acts[["time", "end"]].to_numpy().tolist() == [
        [at("07:00"), at("09:00")],
        [at("10:00"), at("12:00")],
        [at("10:30"), at("10:30")],
    ]
    points = edges_of(stays, NOW, pd.Timedelta("1h"))
    again = running(acts, points)["time"].tolist()
    # 9:00 and 12:00 are ends: the infusion is over.
    assert sorted(set(again)) == [at(time) for time in ("07:00", "08:00", "10:00", "10:30", "11:00")]


def test_edges_of_bins_stop_with_the_stay() -> None:
    stays = pd.DataFrame({"id": ["a", "b"], "start": [at("08:00"), at("08:00")], "end": [at("14:00"), at("09:00")]})
    edges = edges_of(stays, pd.Timedelta("2h"), pd.Timedelta("2h"))
    assert edges.to_numpy().tolist() == [["a", at("10:00")], ["a", at("12:00")], ["a", at("14:00")]]


def test_counts_of_parts_are_added_up() -> None:
    assert counted([{"a": (1, 5)}, {}, {"a": (0, 3), "b": (2, 2)}]) == {"a": (1, 8), "b": (2, 2)}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: parts(folder / "absent"), "no MEDS data set.*Open data"),
        (lambda folder: of(meds_folder(folder, stay(7, 70, "08:00", "09:00"), icustay_id=True)), "lacks icustay_id"),
        (lambda folder: icu_stays(of(meds_folder(folder, 2 * stay(7, 70, "08:00", "09:00")))), "of its own"),
        (lambda folder: icu_stays(of(meds_folder(folder, [event(7, "08:00", "ICU_ADMISSION//x")]))), "of its own"),
        (lambda folder: Item("x", (), 0, 1, None), "x: name its items"),
        (lambda folder: Item("x", (1,), 0, 1, None, (2,)), "x: name its items"),
        (lambda folder: Item("x", (1,), 1, 1, None), "low < high"),
    ],
)
def test_what_is_wrong_is_said(make, words, tmp_path) -> None:
    with pytest.raises(ValueError, match=words):
        make(tmp_path)


def test_a_damaged_file_is_named(tmp_path) -> None:
    path = parts(meds_folder(tmp_path, stay(7, 70, "08:00", "09:00")))[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"0\.parquet: not a whole Parquet file"):
        read_events(path, (), NONE)
