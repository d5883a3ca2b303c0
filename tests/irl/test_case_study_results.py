"""The stored findings of the case studies: the page shows them as they are, and they are what the page says of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from case_studies import STORED, collect_checks
from case_study_tables import ORDER, Checks, Stored, accuracies, tables
from markdown_tables import renewed
from small_tables import ICU_DATA

from cirl_gym.files import write_json
from irl.benchmark.table import TableOutcome
from irl.result.baselines import Row
from irl.result.case_study import CaseStudy, CheckedRun
from irl.result.sentences import weights_mean_something

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "case-studies.md").read_text(encoding="utf-8")
TWIN = ROOT / "examples" / "potassium_like.csv"
EVERYTHING = Stored.read(STORED)
FOUND, TABLES = EVERYTHING.studies, tables(EVERYTHING)


def known(found: CaseStudy) -> tuple[str, str]:
    """What is said of the first effect and of the first weight beside what is known."""
    return next(one.says for one in found.effects if one.known is not None), found.weights[0].says


@pytest.mark.parametrize("title", TABLES)
def test_the_page_shows_the_stored_findings(title) -> None:
    assert TABLES[title] in PAGE


def test_a_page_gets_the_tables_that_are_stored() -> None:
    """Cells that are wrong, and rows too many, are put right; what stands around them stays."""
    wrong = PAGE.replace("\n| potassium |", "\n| nothing |\n| potassium |")
    assert wrong != PAGE
    assert renewed(wrong, TABLES) == PAGE


def test_every_study_was_run_with_seeds_from_0_on() -> None:
    assert tuple(FOUND) == ORDER
    for runs in FOUND.values():
        assert [one.seed for one in runs] == list(range(len(runs)))


@pytest.mark.parametrize("name", ["potassium", "transfusion"])
def test_what_everybody_knows_is_found_in_nine_of_ten_seeds(name) -> None:
    right = [known(one) == ("agrees", "agrees") and one.verdict == "beyond habit" for one in FOUND[name]]
    assert sum(right) >= 0.9 * len(right)


@pytest.mark.parametrize(("name", "low", "high"), [("potassium", 3.9, 4.2), ("transfusion", 7.5, 8.5)])
def test_the_levels_at_which_they_act_are_those_of_guidelines(name, low, high) -> None:
    found = [one.limit.limit for one in FOUND[name] if one.limit is not None]
    assert all(limit is not None and low <= limit <= high for limit in found)


@pytest.mark.parametrize("name", ["insulin", "vasopressor", "antibiotics"])
def test_where_the_page_says_that_no_weight_is_read_none_is(name) -> None:
    assert all(weight.unread is not None for one in FOUND[name] for weight in one.weights)


def test_no_weight_of_antibiotics_is_read_in_any_cohort_and_in_the_larger_one_outcomes_add_nothing() -> None:
    read = [one for runs in EVERYTHING.hospitals.values() for one in runs if weights_mean_something(one.verdict)]
    assert all(weight.unread for one in read for weight in one.weights)
    added = [one.beyond_habit for one in EVERYTHING.hospitals["eicu"]]
    assert all(abs(one.mean) < 2 * one.standard_error for one in added)


def test_what_the_page_says_of_variants_is_so() -> None:
    (narrow,) = (one for one in FOUND["potassium"][0].variants if one.name == "window 2 h")
    assert narrow.limit is not None
    assert narrow.limit.limit is None
    (bins,) = (one for one in FOUND["insulin"][0].variants if one.name == "bins 6 h")
    assert (bins.verdict, bins.weights[0].says) == ("beyond habit", "contradicts")
    assert next(one.says for one in bins.effects if one.known is not None) == "contradicts"


def test_the_twin_holds_no_stay_of_the_real_table() -> None:
    twin = pd.read_csv(TWIN, dtype={"stay": str})
    assert list(twin) == ["stay", "bin", "potassium", "creatinine", "heart_rate", "given", "terminated", "truncated"]
    assert twin["stay"].nunique() == 160
    assert twin["given"].notna().sum() == len(twin) - 160
    path = ICU_DATA / "controls" / "icu_potassium_mimic4_demo_events.csv"
    if not path.exists():
        pytest.skip("the real table is not beside this checkout (../shared/data)")

    def courses(table: pd.DataFrame) -> set[tuple[float, ...]]:
        seen = (one[["potassium", "heart_rate"]].to_numpy()[:4].ravel() for _, one in table.groupby("stay"))
        return {tuple(course) for course in seen if len(course) == 8}

    real = courses(pd.read_csv(path))
    assert real
    assert not real & courses(twin)


# --- experts who are known, and accuracies ----------------------------------------------------------------------------


def checked(
    truth: list[float], kappa: float, interval: list[float], gain: list[float], verdict: str
) -> dict[str, object]:
    """What a run of the check leaves, as far as it is read."""
    return {
        "number": 0,
        "truth": {"weights": truth, "kappa": kappa, "gain": gain},
        "outcomes": ["a", "b"],
        "habit": {
            "intervals": [[-0.8, -0.2], [0.1, 0.2]],
            "kappa_interval": interval,
            "verdict": verdict,
            "uninterpreted": ["b"] if truth[1] == 0.5 else [],
        },
    }


def test_checks_are_collected_as_far_as_they_are_done(tmp_path) -> None:
    runs = [
        checked([-0.5, 0.5], 0.0, [0.1, 1.0], [0.0, 0.1], "nothing beyond habit"),
        checked([-0.5, 0.5], 2.0, [1.0, 3.0], [0.3, 0.1], "beyond habit"),
        checked([-0.5, 0.15], 5.0, [1.0, 3.0], [0.1, 0.1], "beyond habit"),
    ]
    for number, run in enumerate(runs):
        write_json(tmp_path / "check" / f"run_{number:03}.json", run)
    found = collect_checks("potassium", tmp_path, quick=True)
    found.write(tmp_path / "checks" / "potassium.json")
    assert Checks.read(tmp_path / "checks" / "potassium.json") == found
    assert found.outcomes == ("a", "b")
    assert found.runs[1] == CheckedRun(
        weights=(-0.5, 0.5),
        intervals=((-0.8, -0.2), (0.1, 0.2)),
        kappa=2.0,
        kappa_interval=(1.0, 3.0),
        matter=True,
        verdict="beyond habit",
        read=(True, False),
    )
    made = tables(Stored({}, Stored.read(tmp_path).checks, {}, None, {}))["Experts who are known"]
    # Two of three have preferences, 3 of their 4 weights are held, and the fourth is not read; the last gain is less
    # than two standard errors.
    assert made.splitlines()[2] == "| potassium | 3, 2 | 3 of 4 (75 %) | 3 of 3 (100 %) | 1 of 2 | 2 of 3 | 1 |"


def test_accuracies_stand_beside_those_of_the_same_splits() -> None:
    def one(method: str, seed: int, met: float) -> TableOutcome:
        patients = {"train": 60, "validation": 20, "test": 20}
        row = Row(method=method, memory=True, accuracy=met)
        return TableOutcome(seed=seed, features=("a",), row=row, judged="x", patients=patients)

    met = {"cirl": (0.8, 0.9), "mb_h": (0.7, 0.7), "dsfn": (0.85,)}
    found = accuracies([one(name, seed, each) for name, row in met.items() for seed, each in enumerate(row)], True)
    cirl, other, once = found.methods
    # Two splits .8 and .9: variance .005; 1/2 and the 1/4 of patients that splits share.
    assert cirl.accuracy == pytest.approx(0.85)
    assert cirl.standard_error == pytest.approx((0.005 * (1 / 2 + 1 / 4)) ** 0.5)
    assert other.behind is not None
    assert other.behind.mean == pytest.approx(0.15)
    assert other.behind.standard_error == pytest.approx((0.005 * 0.75) ** 0.5)
    assert (cirl.behind, once.behind, once.standard_error) == (None, None, None)
    made = tables(Stored({}, {}, {}, found, {}))["Accuracy"].splitlines()
    assert made[2] == "| CIRL | 2 | 85.0 ± 6.1 |  | 83.4 ± 0.17 |  |  |"
    assert made[3] == "| MB(h)-IRL | 2 | 70.0 ± 0.0 | +15.0 ± 6.1 | 77.5 ± 0.15 | +5.9 |  |"
    assert made[4] == "| DSFN | 1 | 85.0 |  | 73.5 ± 0.25 | +9.9 |  |"
