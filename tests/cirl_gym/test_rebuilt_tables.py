"""Tables of decisions beside this checkout, made again from the records that they come from, row for row."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import pytest
from meds_records import actions_of, icu_stays, inside, read_events, records_of
from small_tables import ICU_DATA

from cirl_gym.tables import DecisionOptions, at_measurements, at_times
from cirl_gym.tables.measurements import ActionPlaces, IdCounts, PointCounts

pytestmark = pytest.mark.slow

MEDS, CONTROLS = ICU_DATA / "mimic-iv-demo-meds", ICU_DATA / "controls"
ITEMS = {"creatinine": [50912, 220615], "heart_rate": [220045]}
INSULIN = r"INFUSION_START//(223257|223258|223259|223262)$"
JUST_OVER = pd.Timedelta("1s")
"""Times are whole minutes, and the stored tables pass over readings that are exactly so long apart. (A bin, too, begins
just after its edge.)"""


@dataclass(frozen=True)
class Stays:
    """All events, and the stays that they belong to."""

    events: pd.DataFrame
    stays: pd.DataFrame

    def options(self, **given: object) -> DecisionOptions:
        patients = dict(zip(self.stays["id"], self.stays["subject_id"].astype(str), strict=True))
        return DecisionOptions(patients=patients, duplicates="first", **given)  # type: ignore[arg-type]

    def at(self, name: str, items: list[int]) -> pd.DataFrame:
        """Records whose readings of one variable lie inside the stay; the others may be older."""
        return inside(records_of(self.events, self.stays, {name: items} | ITEMS), name)


@pytest.fixture(scope="module")
def icu() -> Stays:
    pytest.importorskip("pyarrow")
    if not MEDS.exists() or not CONTROLS.exists():
        pytest.skip("the records and the tables made of them are not beside this checkout (../shared/data)")
    events = read_events(MEDS)
    return Stays(events, icu_stays(events))


def stored(name: str) -> pd.DataFrame:
    return pd.read_csv(CONTROLS / f"icu_{name}.csv", dtype={"stay": str, "subject": str})


def as_stored(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """The same order of columns and stays, and rounding; the number of the row in place of its time."""
    frame = frame.assign(bin=frame.groupby("id").cumcount()).rename(columns={"id": "stay", "patient": "subject"})
    place = {stay: number for number, stay in enumerate(like["stay"].unique())}
    assert set(place) == set(frame["stay"])
    order = frame["stay"].map(place).sort_values(kind="stable").index
    return frame.loc[order, list(like.columns)].reset_index(drop=True).astype({"given": "float64"}).round(2)


def differing(frame: pd.DataFrame, wanted: pd.DataFrame) -> dict[str, int]:
    """By column how many cells differ, for those in which some do."""
    counts = {name: int((frame[name].compare(wanted[name])).shape[0]) for name in wanted}
    return {name: count for name, count in counts.items() if count}


def test_potassium_comes_out_row_for_row(icu: Stays) -> None:
    frame, report = at_measurements(
        icu.at("potassium", [227442, 227464]),
        actions_of(icu.events, icu.stays, r"INFUSION_START//225166$", "given"),
        "potassium",
        pd.Timedelta("2h") + JUST_OVER,
        icu.options(window="4h", margin="15min", covariates=("potassium", *ITEMS), max_decisions=30),
    )
    wanted = stored("potassium_mimic4_demo_events")
    pd.testing.assert_frame_equal(as_stored(frame, wanted), wanted, check_dtype=False)
    assert report.points == PointCounts(1180, rows=965, close=128, short=28, beyond=59)
    assert report.ids == IdCounts(140, used=109, without_points=3, short=28)
    assert report.places == ActionPlaces(688, taken=233, elsewhere=32, before=181, after=160, late=82, near=0)
    assert (report.given, report.decisions) == ({"given": 159}, 856)
    # Potassium is given at measurements: readings in between are not what it answers.
    assert [(c.name, c.decisions_after, c.warned) for c in report.answers] == [
        ("potassium", 21, False),
        ("creatinine", 6, False),
        ("heart_rate", 138, False),
    ]


def test_insulin_at_measurements_comes_out_but_for_two_readings_of_one_time(icu: Stays) -> None:
    frame, report = at_measurements(
        icu.at("glucose", [225664, 220621, 226537]),
        actions_of(icu.events, icu.stays, INSULIN, "given"),
        "glucose",
        pd.Timedelta("1h") + JUST_OVER,
        icu.options(window="1h", margin="15min", covariates=("glucose", *ITEMS), max_decisions=30),
    )
    wanted = stored("insulin_mimic4_demo_events")
    # Which of two readings of one minute the stored table took follows no rule that could be found.
    assert differing(as_stored(frame, wanted), wanted) == {"glucose": 9}
    assert report.records.merged == 24
    assert (report.given, report.decisions) == ({"given": 345}, 1713)


def test_insulin_in_bins_answers_readings_inside_them(icu: Stays) -> None:
    wanted = stored("insulin_mimic4_demo_6h")
    edges = icu.stays.merge(wanted[["stay", "bin"]], left_on="id", right_on="stay")
    edges["time"] = edges["start"] + pd.to_timedelta(6 * (edges["bin"] + 1), unit="h") + JUST_OVER
    items = {"glucose": [225664, 220621, 226537, 50931], "potassium": [50971, 227442]} | ITEMS
    records = records_of(icu.events, icu.stays, items)
    frame, report = at_times(
        records[records["time"] >= records["start"] - pd.Timedelta("24h")],
        actions_of(icu.events, icu.stays, rf"{INSULIN}|MEDICATION//Insulin//Administered$", "given"),
        edges,
        icu.options(covariates=tuple(items)),
    )
    # All but readings of one time.
    assert differing(as_stored(frame, wanted), wanted) == {"glucose": 2, "potassium": 3, "heart_rate": 1}
    assert (report.given, report.decisions) == ({"given": 427}, 1482)
    glucose = report.answers[0]
    assert (glucose.decisions_after, glucose.decisions, glucose.warned) == (317, 427, True)
    assert (glucose.actions_after, glucose.actions) == (607, 742)
    assert glucose.by_chance == pytest.approx(265, abs=1)
    assert [c.name for c in report.answers if c.warned] == ["glucose"]
