"""The report: well-formed, self-contained, escaped, the same bytes twice, and every number of the result in it."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from msgspec import structs
from sample_result import sample_fields, sample_result, sample_what_if
from shown import page_of, printed_result, rows_of

from irl.report.drawing import WhatIf, accuracy_svg, fold_name, margins_svg, weights_svg, what_if_svg
from irl.report.run import report_of
from irl.report.section import MINUS, Heading, Table, percent, short, signed
from irl.report.weights import weights_sections
from irl.result.chances import ChanceScores, LogLikelihoodScore, ShareScore
from irl.result.habits import HabitContext, HabitLevel
from irl.result.result import IdentifiedRanges, Result

VOID = {"meta", "br", "hr", "img", "link", "input", "wbr"}
HOSTILE = '<script>alert("x")</script> & $\\frac{1}{$ _%s [red]\x07'


class Page(HTMLParser):
    """Checks nesting while it reads, and keeps what the tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        assert len(dict(attrs)) == len(attrs), f"an attribute stands twice in <{tag}>"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open[-1:]):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))


def hostile(d: int = 2) -> tuple[Result, WhatIf]:
    """A result whose names, sentences and settings all try to be something else than text."""
    names = tuple(f"{HOSTILE}{i}" for i in range(d))
    fields = sample_fields(d)
    old = fields["features"]
    known = fields["identified_set"]
    fields["features"] = names
    fields["intervals"] = {new: fields["intervals"][name] for new, name in zip(names, old, strict=True)}
    ranges = {new: known.ranges[name] for new, name in zip(names, old, strict=True)}
    fields["identified_set"] = IdentifiedRanges(ranges, 0.0, 0.1, {names[0]: HOSTILE})
    fields |= {"headline": (HOSTILE,), "stop": HOSTILE, "config": {HOSTILE: HOSTILE}, "table": {HOSTILE: [HOSTILE]}}
    what_if = replace(sample_what_if(d), features=names, title=HOSTILE, units=(HOSTILE,) * d)
    actions = {"wait": HOSTILE, "treat": "_treat"}
    futures = {actions[name]: course for name, course in what_if.futures.items()}
    return Result(**fields), replace(what_if, futures=futures, actions=tuple(actions[a] for a in what_if.actions))


@pytest.mark.parametrize("d", [1, 2, 15])
def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(d: int) -> None:
    text = page_of(sample_result(d), sample_what_if(d))
    assert text.startswith("<!doctype html>\n")
    page = Page(text)
    identifiers = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))
    for tag, attrs in page.tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "image"}
        for key in ("href", "src"):
            assert (attrs.get(key) or "#").startswith("#")
            assert not attrs.get(key) or attrs[key][1:] in identifiers  # type: ignore[index]
    assert not any(word in text for word in ("http:", "https:", "@import"))
    for reference in re.findall(r"url\(([^)]*)\)", text):
        assert reference[0] == "#"
        assert reference[1:] in identifiers


@pytest.mark.parametrize("d", [2, 15])
def test_every_number_stands_in_a_table_and_every_picture_has_words(d: int) -> None:
    result, what_if = sample_result(d), sample_what_if(d)
    page = Page(page_of(result, what_if))
    pictures = [attrs for tag, attrs in page.tags if tag == "svg"]
    # The regret of all weights is drawn for two, a radar for more.
    assert len(pictures) == 6
    assert all(attrs["role"] == "img" and len(attrs["aria-label"] or "") > 20 for attrs in pictures)
    # Exchange rates, windows, discount factors, likelihoods, habits and those of simulated experts have tables alone.
    explained = 5 + 5 + 2 + (d == 2)
    assert page.text.count("What it shows") == page.text.count("How to read it") == explained
    assert page.text.count("What it cannot tell") == explained
    assert "0.02828 from the experts' in the outcome model" in page.text or d != 2
    assert all(attrs["scope"] in ("row", "col") for tag, attrs in page.tags if tag == "th")
    for name, weight in zip(result.features, result.weights, strict=True):
        assert name in page.text
        assert signed(weight) in page.text
        assert signed(result.intervals[name][0]) in page.text
        assert signed(result.identified_set.ranges[name][1]) in page.text
    for share in (0.835, 0.841, 0.54, 0.57, *result.agreement.cirl, *result.agreement.cloning):
        assert percent(share) in page.text
    for said in (result.likelihood.cirl, result.likelihood.habit, result.likelihood.boosting):
        assert signed(said.mean) in page.text
    assert ("the experts' own chances" in page.text) == (d == 2)
    assert "0.04243 from the experts' discounted outcomes" in page.text or d != 2
    assert short(float(what_if.futures["treat"][-1, -1])) in page.text
    assert ("Returns in the simulator" in page.text) == (d == 2)
    assert ("Not identifiable from these data" in page.text) == (d == 15)
    for word in result.headline:
        assert word in page.text


def test_parts_that_are_not_known_are_absent() -> None:
    page = Page(page_of(sample_result()))
    assert "What if" not in page.text
    pictures = ("weights", "regret", "accuracy", "agreement", "margins")
    assert [attrs["class"] for tag, attrs in page.tags if tag == "svg"] == [f"picture {name}" for name in pictures]
    known, unknown = sample_result(2), sample_result(15)
    assert ">truth<" in weights_svg(known)
    assert ">truth<" not in weights_svg(unknown)
    assert ">ceiling 85.2 %<" in accuracy_svg(known)
    assert "ceiling" not in accuracy_svg(unknown)
    alone, several = (" ".join(page_of(sample_result(d)).split()) for d in (2, 15))
    assert "not errors of the outcome model" in alone
    assert "3 outcome models, each searched anew for policies, differ in" in several


def test_names_from_a_table_stay_text() -> None:
    result, what_if = hostile()
    text = page_of(result, what_if)
    page = Page(text)
    assert not any(tag == "script" for tag, _ in page.tags)
    assert page.text.count('<script>alert("x")</script> & $\\frac{1}{$ _%s [red]') >= 10
    assert "$\\frac{1}{$" in weights_svg(result).replace("\n", "")  # not read as a formula
    assert "[red]" in printed_result(result, width=300)
    assert "if _treat" in what_if_svg(what_if)  # a legend would hide a name that begins with an underscore


def test_same_input_same_bytes_whatever_the_readers_settings() -> None:
    first = page_of(sample_result(), sample_what_if())
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "red", "svg.fonttype": "path"}):
        settings = dict(matplotlib.rcParams)
        assert page_of(sample_result(), sample_what_if()) == first
        assert dict(matplotlib.rcParams) == settings


def test_dots_lie_where_the_weights_are() -> None:
    result = sample_result(15)
    found = re.findall(r'<use href="#weights-\w+" x="([\d.]+)" y="([\d.]+)" style="fill: #0072b2', weights_svg(result))
    assert len(found) == 15 + 1  # and the legend's
    x, y = np.array(found[:15], dtype=np.float64).T
    assert (np.diff(y) > 0).all()  # first feature on top
    scale = (x[1] - x[0]) / (result.weights[1] - result.weights[0])
    assert scale > 0
    np.testing.assert_allclose(x - x[0], scale * (np.array(result.weights) - result.weights[0]), atol=1e-3)


def test_the_mixture_names_its_policies_by_share_and_weights() -> None:
    result = sample_result()
    assert rows_of(result, "mixture", "Mixture") == [["round 2", "25.0 %"], ["round 8", "75.0 %"]]
    assert [row[0] for row in rows_of(result, "mixture", "Discounted")] == list(result.features)
    assert rows_of(result, "mixture", "Discounted")[0][3:] == [f"{MINUS}0.290", "+0.290"]
    shown = printed_result(result)
    assert re.search(r"round 8 +75\.0 %", shown)
    assert "0.02828 from the experts'" in shown
    assert "Mixture" not in printed_result(structs.replace(result, mixture=None))


def test_odd_results_can_be_drawn() -> None:
    result = sample_result()
    assert "no rounds" in margins_svg(structs.replace(result, rounds=()))
    none = structs.replace(result.rounds[0], margin=0.0)
    assert "from 0 to 0 in 1 rounds" in margins_svg(structs.replace(result, rounds=(none,)))
    futures = {f"action {a}": np.full((3, 1), float(a)) for a in range(9)}
    svg = what_if_svg(WhatIf("start", ("x",), np.zeros((1, 1)), (), futures))
    assert all(f">if action {a}<" in svg for a in range(9))
    what_if = replace(sample_what_if(1), features=("肿瘤体积",), units=("毫升",))
    assert "肿瘤体积 [毫升]" in what_if_svg(what_if)


def test_what_if_rows_follow_the_course() -> None:
    what_if = WhatIf("p", ("x",), np.array([[1.0], [2.0]]), ("treat",), {"wait": np.array([[3.0], [-4.25]])})
    assert rows_of(sample_result(), "what-if", "Observed", what_if) == [
        ["0", "observed, then treat", "1"],
        ["1", "observed last", "2"],
        ["2", "if wait", "3"],
        ["3", "if wait", f"{MINUS}4.25"],
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": ("treat", "treat")}, "2 observations need one action less, got 2"),
        ({"observed": np.zeros((2, 2))}, r"observed must be \[steps, 1\] finite"),
        ({"observed": np.full((2, 1), np.nan)}, "observed must be"),
        ({"futures": {}}, "one future for each action"),
        ({"futures": {"wait": np.zeros((0, 1))}}, r"futures\['wait'\] must be"),
        ({"units": ("ml", "mg")}, "units must be 1 texts, got 2"),
    ],
)
def test_a_what_if_checks_what_it_promises(changes: dict[str, object], message: str) -> None:
    valid = WhatIf("p", ("x",), np.zeros((2, 1)), ("treat",), {"wait": np.zeros((1, 1))})
    with pytest.raises(ValueError, match=message):
        replace(valid, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("temperature", "temperature"),
        ("white_blood_cell_count", "white_blood_\ncell_count"),
        ("mean arterial pressure of today", "mean arterial\npressure of\ntoday"),
        ("mean arterial pressure of today and tomorrow", "mean arterial\npressure of\ntoday and \u2026"),
        ("abcdefghijklmnopqrs", "abcdefghijklmnopqrs"),
        ("a" * 30, "a" * 14 + "\n" + "a" * 14 + "\naa"),
        ("", ""),
        ("a\x00b\nc", "a b c"),
    ],
)
def test_long_names_are_folded(name: str, folded: str) -> None:
    assert fold_name(name, 14) == folded


def test_numbers_are_typeset() -> None:
    assert [signed(x) for x in (-0.29, 0.0514, 0.0, -0.0001)] == [f"{MINUS}0.290", "+0.051", "0.000", "0.000"]
    assert [short(x) for x in (-1234.56, 0.000123456)] == [f"{MINUS}1235", "0.0001235"]
    assert percent(0.8349) == "83.5 %"


def test_the_console_shows_the_finding_where_it_is_and_fits_eighty_columns(tmp_path: Path) -> None:
    for name in ("report.html", "result.json", ".hidden"):
        (tmp_path / name).touch()
    text = printed_result(sample_result(), tmp_path, width=80)
    words = re.sub(r"\s+", " ", text)
    assert "side effects weigh 2.4 times as much as tumour volume." in words
    assert "tumour_volume -0.290 -0.421 to -0.159 -0.553 to -0.093 -0.300" in words
    assert text.lstrip().startswith("Beyond habit: the outcomes weighed help to foresee these decisions.")
    assert "predicted experts (CIRL) 80.0 % 2,010 decisions" in words
    assert "preferences alone (CIRL) 83.5 % 1500 held-out episodes" in words
    assert "what outcomes add to habit +0.108 0.011" in words
    assert "Over 2,010 decisions of 104 patients, of episodes that nothing was learnt from." in words
    assert "after wait 900 wait in 88 % (86 to 90 %) 90 %" in words
    assert "after treat 0 never seen" in words
    assert "ceiling 85.2 %" in words
    assert "experts -3.410 0.061" in words
    assert "9 rounds, margin 0.1037; converged (the margin is within the tolerance)." in words
    assert "Time: 5 min 24 s (expert 2 min 01 s" in words
    assert f"Files in {tmp_path}: report.html, result.json\n" in text
    text = printed_result(sample_result(15), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert not any(word in text for word in ("Returns", "Files"))
    assert "not known" in text
    assert "Not identifiable: days since admission (constant)" in text
    assert "each foreseen from other patients alone (cross-validation in 5 parts)" in re.sub(r"\s+", " ", text)


NOTHING = "Nothing beyond habit: it cannot be seen that the outcomes weighed matter to these decisions."


@pytest.mark.parametrize("verdict", ["nothing beyond habit", "not identifiable"])
def test_weights_that_mean_nothing_are_folded_away(verdict: str) -> None:
    """Their numbers and pictures, and all that rests on them, stand in one closed fold, and nowhere on a terminal."""
    result = structs.replace(sample_result(), verdict=verdict, headline=(NOTHING,))
    sections = {section.name: section for section in report_of(result).sections}
    assert list(sections) == [
        *("habits", "simulated-habits", "likelihood", "accuracy", "agreement", "returns", "weights", "run")
    ]
    says, fold = sections["weights"].page
    assert "They are no finding." in says
    assert fold.kind == "details"
    headings = [part.text for part in fold.parts if isinstance(part, Heading)]
    assert headings == [
        *("Weights", "Exchange rates", "Weights per window of time", "The discount factor"),
        *("What ending an episode is worth", "If the weights were others"),
        *("The search for the weights", "Mixture of policies"),
    ]
    (line,) = sections["weights"].terminal
    assert "folded away on the page" in line
    text = page_of(result)
    page, bare = Page(text), re.sub(r"\s+", " ", printed_result(result, width=80))
    assert "<details open" not in text
    assert text.index("<h1>" + NOTHING) < text.index("<section")
    for weight in result.weights:
        assert signed(weight) in page.text
    assert not any(name in bare for name in result.features)
    assert not any(word in bare for word in ("90 % interval explains", "One more step with", "Mixture", "w_K", "Loop:"))


def test_a_habit_is_named_by_the_tables_own_column_and_others_are_counted() -> None:
    result = sample_result(15)
    actions = [{"drug": "0"}, {"drug": "1"}]
    known = structs.replace(result.habits, actions=("0", "1"))
    levels = tuple(structs.replace(known.contexts[0].levels[0], level=f"{i}", taken=(i, 1)) for i in range(14))
    previous = structs.replace(known.contexts[0], levels=(*known.contexts[0].levels[:1], levels[0]))
    known = structs.replace(known, contexts=(previous, HabitContext("ward", levels)))
    result = structs.replace(result, habits=known, table={"actions": actions})
    rows = rows_of(result, "habits", "Habits")
    assert rows[:2] == [
        ["first decision", "1,110", "drug 0 in 88 % (86 to 90 %)", "90 %"],
        ["after drug 0", "1", "drug 0 in 88 % (86 to 90 %)", "0 %"],
    ]
    assert rows[2][0] == "ward 0"
    assert len(rows) == 16
    assert len(rows_of(result, "habits", "Logits of the habits")) == 32
    assert "And 4 more situations on the page." in printed_result(result)
    assert "the others are taken at the mean of their levels" in " ".join(page_of(result).split())
    chances, between = (0.1, 0.5, 0.3, 0.1), ((0, 0.2), (0.4, 0.6), (0.2, 0.4), (0, 0.2))
    four = HabitLevel("0", (1, 2, 1, 0), (0, 0, 0, 0), ((0, 0),) * 4, chances, between)
    more = structs.replace(known, actions=("a", "b", "c", "d"), contexts=(HabitContext("ward", (four,)),))
    (row,) = rows_of(structs.replace(result, habits=more, table=None), "habits", "Habits")
    assert row == [
        "ward 0",
        "4",
        "b in 50 % (40 to 60 %), c in 30 % (20 to 40 %), a in 10 % (0 to 20 %)",
        "50 %, 25 %, 25 %",
    ]


def test_without_habits_they_are_no_more_than_frequencies() -> None:
    result = structs.replace(sample_result(), habits=None)
    assert rows_of(result, "habits", "Habits") == []
    rows = [row[0] for row in rows_of(result, "likelihood", "Log-likelihood")]
    assert rows[0] == "preferences (CIRL)"
    assert "habit alone" not in rows
    assert rows[-1] == "what outcomes add to frequencies"
    assert [row[-1] for row in rows_of(result, "likelihood", "Log-likelihood") if row[0] == "pure chance"] == [""]


def test_ranking_and_calibration_stand_in_a_fold() -> None:
    result = sample_result()
    assert rows_of(result, "likelihood", "Ranking") == []
    share = ShareScore(0.75, 0.02)
    scores = ChanceScores(
        decisions=9,
        patients=2,
        log_likelihood=LogLikelihoodScore(-0.4, 0.1),
        accuracy=share,
        auroc=share,
        auprc=None,
        brier=share,
        calibration_error=ShareScore(0.031, 0.004),
    )
    judged = structs.replace(result.likelihood, scores={"cirl": scores})
    (row,) = rows_of(structs.replace(result, likelihood=judged), "likelihood", "Ranking")
    assert row == ["preferences and habit (CIRL)", "0.750 ± 0.020", "", "0.750 ± 0.020", "0.031 ± 0.004"]


def test_convergence_stands_in_a_fold() -> None:
    result = sample_result()
    assert rows_of(result, "run", "The sampler")[-1] == ["kappa", "1.003", "812"]
    assert "It did. The likelihood has the power 0.90" in " ".join(page_of(result).split())
    failed = structs.replace(result, sampler=structs.replace(result.sampler, converged=False))
    assert "It did not." in page_of(failed)


def weights_tables(result: Result) -> tuple[Table, Table]:
    """On the page, and on a terminal."""
    section = weights_sections(result)[0][0]
    (page,), (shown,) = ([part for part in of if isinstance(part, Table)] for of in (section.page, section.terminal))
    return page, shown


def test_what_has_to_be_known_of_an_outcome_stands_beside_its_weight() -> None:
    first, second = sample_result().features
    told = [
        {"name": first, "observed": 30, "carried": 6, "filled": 64, "filled_share": 0.64, "much_filled": True},
        {"name": second, "observed": 75, "carried": 25, "filled": 0, "filled_share": 0.0, "much_filled": False},
    ]
    config = {"ranges": {first: [-2, 40.5], second: [0, 1]}}
    result = structs.replace(sample_result(), table={"features": told}, config=config)
    page, shown = weights_tables(result)
    assert page.head[-1] == "imputed"
    assert [row[-1] for row in page.rows] == ["70.0 % (64.0 % by the median)", "25.0 %"]
    assert [row[page.head.index("range")] for row in page.rows] == [f"{MINUS}2\xa0to\xa040.5", "0\xa0to\xa01"]
    assert shown.head[-1] == "filled by the median"
    assert [row[-1] for row in shown.rows] == ["64.0 %", "0.0 %"]
    told[0]["much_filled"] = False
    _, little = weights_tables(structs.replace(result, table={"features": told}))
    assert "filled by the median" not in little.head
    bare, _ = weights_tables(sample_result())
    assert not {"range", "imputed"} & set(bare.head)


def test_what_average_outcomes_allow_is_left_out_where_it_is_anything() -> None:
    result = sample_result()
    first, second = result.features
    known = result.identified_set
    assert "average outcomes allow" in weights_tables(result)[0].head
    half = structs.replace(known, ranges={**known.ranges, second: (-1.0, 0.0)})
    told = structs.replace(result, identified_set=half, config={"signs": {second: -1}})
    page, _ = weights_tables(told)
    assert [row[page.head.index("average outcomes allow")] for row in page.rows][1] == "anything"
    assert weights_svg(told).count("average outcomes allow") == 1
    # Without a known sign, 0 to -1 says something.
    page, _ = weights_tables(structs.replace(told, config={}))
    assert [row[page.head.index("average outcomes allow")] for row in page.rows][1] == f"{MINUS}1.000\xa0to\xa00.000"
    free = structs.replace(known, ranges={first: (-1.0, 1.0), second: (-0.995, 1.0)})
    whole = structs.replace(result, identified_set=free)
    assert "average outcomes allow" not in weights_tables(whole)[0].head
    assert "average outcomes allow" not in weights_svg(whole)
