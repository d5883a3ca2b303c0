"""The stored findings of the case studies: the page shows them as they are, and they are what the page says of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from case_studies import ORDER, STORED, TABLES, read
from small_tables import ICU_DATA

from irl.result.case_study import CaseStudy

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "case-studies.md").read_text(encoding="utf-8")
TWIN = ROOT / "examples" / "potassium_like.csv"
FOUND = read(STORED)


def known(found: CaseStudy) -> tuple[str, str]:
    """What is said of the first effect and of the first weight beside what is known."""
    return next(one.says for one in found.effects if one.known is not None), found.weights[0].says


@pytest.mark.parametrize("title", TABLES)
def test_the_page_shows_the_stored_findings(title) -> None:
    assert TABLES[title](FOUND) in PAGE


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
