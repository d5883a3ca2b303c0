"""The limit at which experts act, ``Below(x, ?)``: written, found from decisions, and told as far as they tell it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from limits_found import searched, settings, stays
from msgspec import structs
from sample_result import sample_result
from small_batches import batch_of
from small_tables import COLUMNS
from tiny_run import icu_stays, tiny_explain, tiny_fit

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import Above, Below, Sought, read_outcome
from cirl_gym.tables.weighed import chosen_outcomes, known_signs
from irl.commands import explain as commands
from irl.report.limits import limit_section
from irl.result.limits import FoundLimit
from irl.result.result import Result
from irl.result.sentences import limit_sentences
from irl.run import Run
from irl.studies.limits import LimitProfile, ManyLimits, at_limit, shortest, tried_limits
from irl.whole_run import outcomes_of

FEATURES = ("temperature", "wbc", "lactate")
FOUND = FoundLimit(
    asked="Below(k, ?)",
    outcome="Below(k, 4)",
    limit=4.0,
    interval=(3.9, 4.1),
    tried=(3.8, 3.9, 4.0, 4.1, 4.2),
    log_likelihood=(-20.0, -12.0, -11.0, -13.0, -19.0),
    without=-30.0,
    power=0.5,
    gain=9.5,
    needed=4.4,
    decisions=60,
    patients=9,
)


class TestHowItIsWritten:
    @pytest.mark.parametrize(
        ("text", "name", "at"),
        [
            ("Below(x, ?)", "Below(x, ?)", Below("x", 3.5)),
            ("Above( 'a b' ,? ) ", 'Above("a b", ?)', Above("a b", 3.5)),
        ],
    )
    def test_a_question_mark_stands_for_the_limit(self, text, name, at) -> None:
        sought = read_outcome(text, ())
        assert isinstance(sought, Sought)
        assert (sought.name, sought.at(3.5), sought.columns) == (name, at, (at.column,))
        assert read_outcome(sought.name, ()) == sought

    @pytest.mark.parametrize(
        "text", ["Outside(x, ?, 3)", "Below(?, 3)", "Product(x, ?)", "Below(x, ?, ?)", "Below(x, ??)"]
    )
    def test_and_for_nothing_else(self, text) -> None:
        with pytest.raises(ValueError, match="limit of Above or Below alone"):
            read_outcome(text, ())

    def test_a_column_of_that_very_name_is_the_column(self) -> None:
        assert read_outcome("Below(x, ?)", ("Below(x, ?)",)).name == "Below(x, ?)"
        assert not isinstance(read_outcome("Below(x, ?)", ("Below(x, ?)",)), Sought)

    def test_it_has_no_values_until_it_is_found(self) -> None:
        with pytest.raises(ValueError, match=r"'Below\(x, \?\)' has no limit: cirl explain and irl\.explain alone"):
            FeatureMap(("Below(x, ?)",), np.zeros(1), np.ones(1), ("x",))

    def test_its_sign_can_be_known_and_one_is_enough(self) -> None:
        assert chosen_outcomes(COLUMNS, ("Below(x, ?)",)) == ("Below(x, ?)",)
        assert known_signs(("Below(x, ?)",), ("Below(x,?)",), ()) == {"Below(x, ?)": -1}
        with pytest.raises(ValueError, match=r"one limit can be found in a run, not Below\(x, \?\) and Above\(x, \?\)"):
            chosen_outcomes(COLUMNS, ("Below(x, ?)", "Above(x, ?)"))


class TestLimitsTried:
    VALUES = np.round(np.linspace(2.0, 6.0, 401), 1)

    def tried(self, outcomes: list[str], values=VALUES) -> list[float]:
        batch = batch_of(*[[0] * (len(values) - 1)])
        batch = replace(batch, obs=np.asarray(values, dtype=np.float32)[None, :, None], features=("k",))
        phi, place = outcomes_of(batch, outcomes)
        assert place is not None
        return tried_limits(batch, phi, place).tolist()

    def test_they_are_round_values_without_the_extremes(self) -> None:
        limits = self.tried(["Below(k, ?)"])
        assert len(limits) <= 25
        assert (limits[0], limits[-1]) == (2.2, 5.8)
        assert limits == [round(one, 1) for one in limits]

    def test_no_value_is_both_too_low_and_too_high(self) -> None:
        assert max(self.tried(["Above(k, 4.4)", "Below(k, ?)"])) == 4.4
        assert min(self.tried(["Above(k, ?)", "Below(k, 3.6)"])) == 3.6
        assert 4.0 not in self.tried(["Below(k, ?)", "Below(k, 4)"])

    def test_there_must_be_some(self) -> None:
        with pytest.raises(ValueError, match=r"Below\(k, \?\): k has too few different values"):
            self.tried(["Below(k, ?)"], np.array([0.0, 1.0, 1.0, 0.0, 1.0]))


def test_all_limits_stand_before_the_outcomes_beside_them() -> None:
    batch = replace(batch_of([0, 0, 1]), obs=np.array([[[1.0, 0], [2, 5], [4, 1], [3, 2]]], dtype=np.float32))
    batch = replace(batch, features=("k", "y"))
    phi = FeatureMap.from_batch(batch, ["y", "Below(k, 2.5)"])
    many = ManyLimits(phi, 1, np.array([2.0, 3.0]), np.zeros(2))
    every = many.over(batch)
    assert every.features == ("Below(k, 2)", "Below(k, 3)", "y")
    assert every.high.tolist() == [1.0, 2.0, 5.0]
    assert [many.columns(k).tolist() for k in (0, 1)] == [[2, 0], [2, 1]]
    assert many.spread(np.array([[0.25, -0.75]]), np.array([1])).tolist() == [[0.0, -0.75, 0.25]]
    drawn = many.weights(50, np.random.default_rng(0))
    assert ((drawn[:, :2] != 0).sum(axis=1) == 1).all()
    moved = at_limit(phi, 1, 3.0, 2.0)
    assert (moved.features, moved.high.tolist()) == (("y", "Below(k, 3)"), [5.0, 2.0])


def profile(by_patient, scores=None, without=-100.0, power=1.0) -> LimitProfile:
    values = np.array(by_patient, dtype=float)
    worlds, k, patients = values.shape
    given = np.zeros((worlds, k, patients, 1)) if scores is None else np.array(scores, dtype=float)
    names = tuple(map(str, range(patients)))
    return LimitProfile(np.arange(k) + 1.0, names, values, given, np.full(worlds, without), power, 10 * patients)


class TestProfile:
    def test_an_interval_leaves_a_few_far_away_draws_out(self) -> None:
        limits = np.array([1.0, 2.0, 3.0, 4.0, 8.0])
        assert shortest(limits, np.array([0.05, 0.5, 0.4, 0.0, 0.05]), 2.0) == (2.0, 3.0)
        assert shortest(limits, np.array([0.05, 0.5, 0.25, 0.0, 0.2]), 2.0) == (2.0, 8.0)
        assert shortest(limits, np.array([0.0, 0.5, 0.4, 0.1, 0.0]), 1.0) == (1.0, 3.0)

    def test_patients_drawn_anew_move_the_weights_too(self) -> None:
        found = profile([[[-1.0, -2, -4], [-3, -1, -2]]], [[[[1.0], [-1], [0]], [[0.0], [0], [0]]]])
        # Counted 2, 0 and 1 times: -2 - 4 + (1 + 1)^2 / 2, and -6 - 2.
        np.testing.assert_allclose(found.drawn(np.array([[2.0, 0, 1], [1, 1, 1]])), [[[-4.0, -8]], [[-7, -6]]])
        assert (found.likeliest, found.likeliest_of({"0", "2"}), found.likeliest_of({"1", "2"})) == (2.0, 1.0, 2.0)

    def test_all_patients_alike_leave_no_doubt(self) -> None:
        found = profile(np.tile([[[-3.0], [-1], [-2], [-4]]], (2, 1, 20)), without=-60.0, power=0.25)
        assert found.interval(np.random.default_rng(0)) == (2.0, 2.0)
        assert (found.gain, found.open((2.0, 2.0)), found.open((1.0, 3.0))) == (10.0, False, True)

    def test_none_is_told_where_none_is_better_than_no_limit(self) -> None:
        found = profile(np.tile([[[-3.0], [-1], [-2]]], (1, 1, 20)), without=-21.0)
        assert found.gain == 1.0
        assert found.open((2.0, 2.0))

    def test_it_is_stored(self, tmp_path) -> None:
        found = profile([[[-1.0, -2], [-3, -1]]])
        found.save(tmp_path / "limit.npz")
        again = LimitProfile.load(tmp_path / "limit.npz")
        assert {name: np.asarray(one).tolist() for name, one in vars(again).items()} == {
            name: np.asarray(one).tolist() for name, one in vars(found).items()
        }
        with pytest.raises(ValueError, match="LimitProfile"):
            replace(found, scores=np.zeros((1, 2, 3, 1)))


def test_a_known_limit_is_found_and_none_where_there_is_none() -> None:
    """Experts who keep to 3.9, and such as keep to no limit."""
    told = {}
    for strength in (12.0, 0.0):
        seen = stays(3.9, strength, 60, 8, np.random.default_rng(3))
        told[strength] = searched(seen, 0, replace(settings(), repeats=1, folds=2))[1]
    kept, free = told.values()
    assert kept.limit is not None
    assert kept.interval is not None
    assert kept.interval[0] <= 3.9 <= kept.interval[1]
    assert abs(kept.limit - 3.9) < 0.15
    assert (free.limit, free.interval) == (None, None)


class TestWhatIsSaid:
    def test_it_is_the_first_finding(self) -> None:
        told = limit_sentences(FOUND, "beyond habit", crossed=True)
        assert told[0] == "They act below k 4.0 (3.9 to 4.1)."
        assert "of the 5 limits tried (3.8 to 4.2)" in told[1]
        assert "the others tell" in told[1]
        assert limit_sentences(None, "beyond habit", crossed=True) == []

    def test_an_interval_that_ends_with_the_limits_says_so(self) -> None:
        at_end = structs.replace(FOUND, interval=(3.8, 4.1))
        assert "ends where no more were tried" in limit_sentences(at_end, "beyond habit", crossed=False)[1]

    @pytest.mark.parametrize(
        ("changes", "word", "why"),
        [
            ({}, "nothing beyond habit", "by the verdict"),
            ({"limit": None, "interval": None}, "beyond habit", "more than half of them"),
            ({"limit": None, "interval": None, "gain": 1.0}, "beyond habit", "none makes the decisions likelier"),
        ],
    )
    def test_where_it_is_open_no_limit_is_told(self, changes, word, why) -> None:
        (said,) = limit_sentences(structs.replace(FOUND, **changes), word, crossed=True)
        assert said.startswith("It is open below which k they act")
        assert why in said
        assert "3.9 to 4.1" not in said

    def test_the_page_shows_every_limit(self) -> None:
        result = structs.replace(sample_result(1))
        assert limit_section(result) is None
        section = limit_section(structs.replace(result, limit=structs.replace(FOUND, outcome=result.features[0])))
        assert section is not None
        (table,) = section.page[2].parts
        assert [row[0] for row in table.rows] == ["3.8", "3.9", "4.0", "4.1", "4.2", "without this outcome"]
        assert [row[3] for row in table.rows] == ["", "in it", "likeliest", "in it", "", ""]

    def test_a_record_that_contradicts_itself_is_refused(self) -> None:
        for changes in ({"interval": None}, {"limit": 3.95}, {"interval": (4.1, 4.2)}, {"tried": (1.0, 2.0)}):
            with pytest.raises(ValueError, match="limit"):
                structs.replace(FOUND, **changes)
        with pytest.raises(ValueError, match=r"limit\.outcome"):
            structs.replace(sample_result(1), limit=FOUND)


def test_a_run_that_was_stopped_weighs_the_limit_that_it_found(tmp_path, monkeypatch) -> None:
    outcomes, frame = ("wbc", "Above(lactate, ?)"), icu_stays(30)
    fit = tiny_fit(gamma=0.5, habit=("previous",), folds=2, horizon=2)
    config = tiny_explain(frame, FEATURES, outcomes=outcomes, signs={"Above(lactate, ?)": -1}, fit=fit)
    for place, stop in (("irl.pipeline.fit_successor", KeyboardInterrupt), ("irl.limit_search.limit_profile", None)):
        with monkeypatch.context() as patch:
            patch.setattr(place, lambda *given, stop=stop: (_ for _ in ()).throw(stop or AssertionError("it is kept")))
            with pytest.raises(stop) if stop else nullcontext():
                commands.explain(frame, config, tmp_path)
    result = Result.read(tmp_path / "result.json")
    assert result.limit is not None
    assert (result.limit.asked, result.features) == ("Above(lactate, ?)", ("wbc", result.limit.outcome))
    assert result.config["signs"] == {result.limit.outcome: -1}
    assert result.weights[1] < 0
    assert any("lactate they act" in said or "They act above lactate" in said for said in result.headline[:3])
    assert 'id="limit"' in (tmp_path / "report.html").read_text()
    assert Run(tmp_path).preferences.signs == {result.limit.outcome: -1}
