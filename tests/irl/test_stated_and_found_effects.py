"""Effects of actions in a run: records, sentences, weights that are not read, and effects that are known beforehand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from msgspec import structs
from sample_result import sample_result
from shown import page_of, printed_result, rows_of
from tiny_run import make_the_command_line_tiny, refused

from cirl_gym.data.features import FeatureMap
from cirl_gym.diagnostics import EffectiveSize
from cirl_gym.outcome_models.effects import ActionEffects, LevelEffects
from cirl_gym.outcome_models.sensitivity import Sensitivity
from cirl_gym.outcome_models.stated import StatedEffect
from irl.commands.cli import main
from irl.report.section import MINUS, NO_BREAK
from irl.result.effects import (
    ActionOverlap,
    Effect,
    HiddenCause,
    LevelEffect,
    action_labels,
    contradiction_sentences,
    found_effects,
    found_overlaps,
    held_sentences,
    uninterpreted,
)
from irl.result.result import Result

NAMES = ("tumour_volume", "side_effects")


def effect(outcome="glucose", following=2.0, interval=(1.0, 3.0), **changes) -> Effect:
    fields = {
        "action": "given 1",
        "reference": "given 0",
        "outcome": outcome,
        "next": following,
        "next_interval": interval,
        "total": 2 * following,
        "total_interval": None if interval is None else (2 * interval[0], 2 * interval[1]),
        "plain": 0.5,
        "decisions": 40,
        "reference_decisions": 160,
        "by_level": (),
        "hidden": None,
    }
    return Effect(**(fields | changes))


UNKNOWN = effect("potassium", 0.1, (-0.2, 0.4))
LOWERS = StatedEffect("given lowers glucose", "given 1", "glucose", -np.inf, 0.0)


class TestRecords:
    def test_every_number_of_the_estimates_has_its_place(self):
        levels = LevelEffects(np.array([1.0, 2.0, 5.0]), np.array([0.5, -0.5]), np.full(2, -1.0), np.array([1, np.nan]))
        numbers = np.arange(4.0).reshape(2, 2)  # of actions b and c on two outcomes
        interval = np.array([numbers - 1, numbers + 1])
        interval[:, 1, 1] = np.nan
        plain = np.array([[7.0, np.nan], [8.0, 9.0]])
        by_level = ((levels, None), (None, None))
        counts = np.array([50, 20, 0])
        estimated = ActionEffects(
            ("x", "y"), numbers, interval, 10 * numbers, 10 * interval, plain, counts, by_level, 0.0
        )
        hidden = {(2, "y"): Sensitivity("y", 3.5, 0.2, "z", np.inf, 70)}
        said = [StatedEffect("c lowers x", "c", "x", -np.inf, 0.0), StatedEffect("b raises y", "b", "y", 0.0, np.inf)]
        found = found_effects(estimated, ("a", "b", "c"), hidden, said)
        assert [(one.action, one.outcome, one.next, one.total) for one in found] == [
            ("b", "x", 0, 0), ("b", "y", 1, 10), ("c", "x", 2, 20), ("c", "y", 3, 30),
        ]  # fmt: skip
        assert {one.reference for one in found} == {"a"}
        assert [one.next_interval for one in found] == [(-1, 1), (0, 2), (1, 3), None]
        assert found[2].total_interval == (10, 30)
        assert [one.plain for one in found] == [7, None, 8, 9]
        assert [one.decisions for one in found] == [20, 20, 0, 0]
        assert found[0].by_level == (LevelEffect((1, 2), 0.5, (-1, 1)), LevelEffect((2, 5), -0.5, None))
        assert found[1].by_level == found[2].by_level == ()
        assert [one.hidden for one in found] == [None, None, None, HiddenCause("y", 3.5, 0.2, "z", None)]
        assert [one.stated for one in found] == [None, "b raises y", "c lowers x", None]
        assert [one.contradicted for one in found] == [False, False, True, False]

    @pytest.mark.parametrize(
        "changes",
        [
            {"next": 3.5},
            {"total": 1.0},
            {"contradicted": True},
            {"decisions": -1},
        ],
    )
    def test_what_cannot_be_is_refused(self, changes):
        with pytest.raises(ValueError, match=r"must|nothing stated|Expected"):
            Effect(**(structs.asdict(effect()) | changes))

    def test_an_effect_is_unknown_only_where_both_intervals_hold_zero(self):
        assert UNKNOWN.unknown
        assert not effect().unknown
        assert not structs.replace(UNKNOWN, total_interval=(0.1, 0.4)).unknown
        assert not effect(interval=None).unknown, "without an interval nothing is said of it"

    def test_they_are_written_and_read_back(self, tmp_path):
        levels = (LevelEffect((1.0, 2.0), 0.5, None),)
        cause = HiddenCause("x", 1.0, 0.5, "y", None)
        result = structs.replace(
            sample_result(),
            effects=(effect(), effect("x", by_level=levels, hidden=cause, stated="s", contradicted=True)),
            overlap=(
                ActionOverlap("given 1", "given 0", 40, 160, 33.3),
                ActionOverlap("given 2", "given 0", 0, 160, None),
            ),
            uninterpreted={NAMES[0]: "unknown"},
        )
        result.write(tmp_path / "result.json")
        assert Result.read(tmp_path / "result.json") == result
        with pytest.raises(ValueError, match="uninterpreted must be of outcomes"):
            structs.replace(sample_result(), uninterpreted={"nobody": "unknown"})

    def test_overlaps(self):
        sizes = (EffectiveSize(40, 200, 60.0, 88.4), EffectiveSize(0, 160, None, None))
        one, none = found_overlaps(sizes, ("given 0", "given 1", "given 2"))
        assert one == ActionOverlap("given 1", "given 0", 40, 160, 88.4)
        assert one.sentence == (
            "40 judged decisions with given 1 and 160 with given 0, compared where both were possible, are worth 88 "
            "that were decided by the toss of a coin."
        )
        assert none.sentence == "Of the judged decisions, 0 are for given 2: nothing to compare."
        with pytest.raises(ValueError, match="worth more than it is"):
            ActionOverlap("a", "b", 1, 2, 3.5)

    def test_actions_of_a_table_say_what_they_are_of(self):
        assert action_labels({"actions": [{"given": "0"}, {"given": "1"}]}, ("0", "1")) == ["given 0", "given 1"]
        both = {"actions": [{"a": "0", "b": "0"}, {"a": "1", "b": "0"}]}
        assert action_labels(both, ("a=0, b=0", "a=1, b=0")) == ["a 0, b 0", "a 1, b 0"]
        assert action_labels(None, ("wait", "treat")) == action_labels({}, ("wait", "treat")) == ["wait", "treat"]


class TestWeightsThatAreNotRead:
    PHI = FeatureMap(
        ("glucose", "Below(glucose, 80)", "potassium"), np.zeros(3), np.ones(3), of=("glucose", "potassium")
    )

    def test_known_effects_leave_all_weights(self):
        assert uninterpreted([effect(), effect("Below(glucose, 80)"), effect("potassium")], self.PHI) == {}
        assert uninterpreted([], self.PHI) == {}

    def test_an_unknown_effect_takes_its_outcome_alone(self):
        assert uninterpreted([effect(), UNKNOWN], self.PHI) == {
            "potassium": "the effect of given 1 is unknown, its intervals hold 0"
        }

    def test_one_known_effect_of_several_actions_is_enough(self):
        other = structs.replace(UNKNOWN, action="given 2")
        (reason,) = uninterpreted([UNKNOWN, other], self.PHI).values()
        assert reason.startswith("the effect of every action is unknown")
        assert uninterpreted([UNKNOWN, structs.replace(effect("potassium"), action="given 2")], self.PHI) == {}

    def test_a_contradiction_counts_for_all_that_is_read_from_the_feature(self):
        wrong = effect(stated="given lowers glucose", contradicted=True)
        reasons = uninterpreted([wrong, effect("Below(glucose, 80)"), effect("potassium")], self.PHI)
        assert list(reasons) == ["glucose", "Below(glucose, 80)"]
        assert set(reasons.values()) == {
            "the outcome model contradicts what is known, that given lowers glucose: it estimates +2 (+1 to +3)"
        }
        # What is said of the outcome that is computed says nothing of what it is computed of.
        computed = effect("Below(glucose, 80)", stated="given lowers Below(glucose, 80)", contradicted=True)
        assert list(uninterpreted([effect(), computed], self.PHI)) == ["Below(glucose, 80)"]


class TestSentences:
    def test_the_contradiction(self):
        wrong = effect(stated="given lowers glucose", contradicted=True)
        assert contradiction_sentences([effect(), wrong]) == [
            "Contradiction: it is known that given lowers glucose, but by the outcome model given 1 changes the next "
            "glucose by +2 (+1 to +3). No weight that rests on it is interpreted."
        ]

    def test_what_a_model_was_held_to(self):
        assert held_sentences(()) == []
        (told,) = held_sentences((LOWERS, replace(LOWERS, text="given raises x")))
        assert told.startswith("The outcome model was held to what was said of effects (given lowers glucose; given ")

    def test_sensitivity(self):
        assert effect().sensitivity_sentence == ""
        cause = HiddenCause("glucose", -26.5, 0.21, "creatinine", 53.0)
        assert effect(hidden=cause).sensitivity_sentence == (
            "given 1 on glucose: a cause that was not observed would have to move the effect by 26.5 to turn its sign, "
            "and with it that of the weight: 0.5 times what one as strong as creatinine can move it (it would have to "
            "explain 21 % of what the table leaves open of both)."
        )
        for moved in (None, 0.0):
            told = effect(hidden=structs.replace(cause, moved=moved)).sensitivity_sentence
            assert "creatinine" not in told
            assert told.endswith("it would have to explain 21 % of what the table leaves open of both.")


def with_effects(**changes) -> Result:
    """Side effects are not read: what is known of them is contradicted."""
    wrong = effect(NAMES[1], stated="given lowers side_effects", contradicted=True)
    cause = HiddenCause(NAMES[0], -3.0, 0.1, NAMES[1], 1.5)
    levels = (LevelEffect((1.0, 2.0), -4.0, (-6.0, -3.0)), LevelEffect((2.0, 9.0), -1.0, (-2.0, 0.5)))
    fields = {
        "effects": (effect(NAMES[0], -3.0, (-5.0, -2.0), by_level=levels, hidden=cause), wrong),
        "overlap": (ActionOverlap("given 1", "given 0", 40, 160, 88.4),),
        "uninterpreted": {NAMES[1]: "contradicted"},
        "headline": (*contradiction_sentences([wrong]), *sample_result().headline),
    }
    return structs.replace(sample_result(), **(fields | changes))


def between(low: float, high: float) -> str:
    return f"{low:+g}{NO_BREAK}to{NO_BREAK}{high:+g}".replace("-", MINUS)


class TestReport:
    def test_the_contradiction_is_the_first_thing_said(self):
        result = with_effects()
        assert printed_result(result).strip().startswith("Contradiction: it is known that given lowers side_effects")
        assert "<h1>" in page_of(result) or "verdict" in page_of(result)
        assert page_of(result).index("Contradiction: ") < page_of(result).index("Beyond habit")

    def test_the_table_of_effects(self):
        first, second = rows_of(
            with_effects(), "effects", "Effects of given 1 against given 0 (40 against 160 decisions"
        )
        spans = (f"{MINUS}3 ({between(-5, -2)})", f"{MINUS}6 ({between(-10, -4)})")
        assert first == [NAMES[0], *spans, "+0.5", ""]
        assert (second[0], second[-1]) == (NAMES[1], "contradicted")
        (unknown,) = rows_of(
            with_effects(effects=(UNKNOWN,), uninterpreted={}),
            "effects",
            "Effects of given 1 against given 0 (40 against 160 decisions",
        )
        assert (unknown[1], unknown[-1]) == (f"+0.1 ({between(-0.2, 0.4)})", "unknown")
        assert "unknown (-0.2 to +0.4)" in printed_result(with_effects(effects=(UNKNOWN,)))
        assert rows_of(sample_result(), "effects", "Effects") == []

    def test_every_action_has_a_table_and_a_terminal_shows_twelve_effects(self):
        several = [effect(f"x{i}", action=f"given {a}") for a in (1, 2) for i in range(9)]
        result = with_effects(effects=tuple(several), uninterpreted={})
        text = printed_result(result)
        titles = [f"Effects of given {a} against given 0" for a in (1, 2)]
        assert [len(rows_of(result, "effects", title)) for title in titles] == [9, 9]
        assert all(title in text for title in titles)
        assert "And 6 more effects on the page." in text
        assert max(map(len, printed_result(result, width=80).splitlines())) <= 80

    def test_numbers_are_short(self):
        sizes = (1234.4, -1.2e7, -4.45e-6, 0.0)
        result = with_effects(
            effects=tuple(effect(f"x{i}", size, None) for i, size in enumerate(sizes)), uninterpreted={}
        )
        shown = [row[1] for row in rows_of(result, "effects", "Effects of")]
        assert shown == ["+1,234", f"{MINUS}1.2e+07", f"{MINUS}4.45e{MINUS}06", "0"]
        # What rounding leaves where an outcome cannot change is 0.
        levels = (LevelEffect((1.0, 2.0), -2.0, (-3.0, -1.0)), LevelEffect((2.0, 9.0), 1e-6, (-1e-5, 0.0)))
        rows = rows_of(with_effects(effects=(effect(NAMES[0], by_level=levels),)), "effects", "Effects by level")
        assert rows[1][2] == f"0 (0{NO_BREAK}to{NO_BREAK}0)"

    def test_levels_sensitivity_and_overlap_stand_below(self):
        result, page = with_effects(), page_of(with_effects())
        assert [row[1:] for row in rows_of(result, "effects", "Effects by level")] == [
            [f"1{NO_BREAK}to{NO_BREAK}2", f"{MINUS}4 ({between(-6, -3)})"],
            [f"2{NO_BREAK}to{NO_BREAK}9", f"{MINUS}1 ({between(-2, 0.5)})"],
        ]
        assert f"Effect of given 1 on {NAMES[0]} by level: -4 from 1 to 2, -1 from 2 to 9" in page.replace(MINUS, "-")
        for told in (result.overlap[0].sentence, result.effects[0].sensitivity_sentence):
            assert told in page
            assert told in " ".join(printed_result(result).split())

    def test_nothing_is_found_of_a_weight_that_is_not_read(self):
        result = with_effects()
        rows = rows_of(result, "weights", "Weights")
        assert [row[1] == "not interpreted" for row in rows] == [False, True]
        assert rows[1][2] == rows[1][3] == ""
        for section, table in (
            ("weights", "Weights by other readings"), ("windows", "Weights per"), ("gammas", "Weights under"),
        ):  # fmt: skip
            assert {row[0] for row in rows_of(result, section, table)} == {NAMES[0]}
        nothing = with_effects(uninterpreted=dict.fromkeys(NAMES, "unknown"))
        for section, table in (("windows", "Weights per"), ("gammas", "Weights under"), ("weights", "Weights by")):
            assert rows_of(nothing, section, table) == []


def bins(direction: int, stays: int = 30, steps: int = 8) -> pd.DataFrame:
    """A dose answers a rise inside the bin: glucose is high after it, though the dose itself lowers glucose by 10.

    ``direction`` -1 is the same without the rise: the dose answers what was seen at the beginning of the bin.
    """
    rng, rows = np.random.default_rng(3), []
    for stay in range(stays):
        level = 150.0
        for t in range(steps + 1):
            inside = rng.normal(0, 30)
            cause = inside if direction > 0 else level - 150
            given = int(cause + rng.normal(0, 10) > 5)
            rows.append([stay, t, round(level, 1), round(rng.normal(), 2), given if t < steps else "", 0, t == steps])
            level = 150 + 0.5 * (level - 150) + inside - 10 * given
    frame = pd.DataFrame(rows, columns=["stay", "t", "glucose", "other", "given", "terminated", "truncated"])
    frame["truncated"] = frame["truncated"].astype(int)
    return frame


@pytest.fixture
def tiny(monkeypatch):
    make_the_command_line_tiny(monkeypatch)


def run(tmp_path, *more, direction=1):
    table, out = tmp_path / "bins.csv", tmp_path / "run"
    bins(direction).to_csv(table, index=False)
    columns = ("--id", "stay", "--time", "t", "--action", "given", "--features", "glucose", "other")
    return main(["explain", str(table), *columns, *more, "--out", str(out)]), out


def test_a_table_whose_action_answers_a_rise_contradicts_what_is_known(tmp_path, tiny, capsys):
    outcomes = ("--outcomes", "glucose", "Above(glucose, 160)", "other")
    status, out = run(tmp_path, *outcomes, "--effect", "given lowers glucose")
    assert status == 0
    result = Result.read(out / "result.json")
    wrong = next(one for one in result.effects if one.outcome == "glucose")
    assert wrong.contradicted
    assert wrong.next > 0
    assert wrong.stated == "given lowers glucose"
    assert (wrong.action, wrong.reference) == ("given 1", "given 0")
    assert result.headline[0].startswith("Contradiction: it is known that given lowers glucose, but by the outcome")
    assert {"glucose", "Above(glucose, 160)"} <= set(result.uninterpreted)
    assert not any("traded off" in one and "glucose" in one for one in result.headline)
    assert "Contradiction: it is known" in capsys.readouterr().out
    (overlap,) = result.overlap
    assert overlap.decisions + overlap.reference_decisions == result.likelihood.decisions
    assert 0 < overlap.worth < result.likelihood.decisions
    assert json.loads((out / "config.json").read_text())["effects"] == ["given lowers glucose"]


def test_a_model_that_is_held_to_it_keeps_it_and_says_so(tmp_path, tiny):
    status, out = run(tmp_path, "--effect", "given 1 lowers glucose", "given other -1 to +1", "--enforce-effects")
    assert status == 0
    result = Result.read(out / "result.json")
    of_glucose = next(one for one in result.effects if one.outcome == "glucose")
    assert of_glucose.next <= 1e-6
    assert of_glucose.stated == "given 1 lowers glucose"
    assert not any(one.contradicted for one in result.effects)
    assert any(
        told.startswith("The outcome model was held to what was said of effects (given 1 l") for told in result.headline
    )
    assert result.config["fit"]["model"] == "ar"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--effect", "dose lowers glucose"), "begins with no action; the actions are given, given=0, given=1, 0, 1"),
        (("--effect", "given lowers sugar"), "'sugar' is no outcome nor feature; there are glucose, other"),
        (("--effect", "given changes glucose"), 'must be "ACTION raises OUTCOME"'),
        (("--effect", "given=0 lowers glucose"), "effects are of other actions against 'given=0'"),
        (("--effect", "given lowers glucose", "1 glucose -5 to -1"), "are of the same effect"),
        (("--actions", "0", "1", "2", "--effect", "2 lowers glucose"), "action '2' was never taken"),
        (("--effect", "given glucose +5 to +1"), "5 is above 1"),
        (
            ("--outcomes", "Above(glucose, 160)", "--effect", "given lowers Above(glucose, 160)", "--enforce-effects"),
            "--enforce-effects: 'Above(glucose, 160)' is computed",
        ),
        (("--enforce-effects",), "--enforce-effects: there is nothing to enforce; state an effect by --effect"),
    ],
)
def test_what_cannot_be_stated_is_one_error(tmp_path, tiny, capsys, more, told):
    table = tmp_path / "bins.csv"
    bins(1, 6, 3).to_csv(table, index=False)
    columns = ("--id", "stay", "--time", "t", "--action", "given", "--features", "glucose", "other")
    assert told in refused(capsys, "explain", table, *columns, *more, "--out", tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
