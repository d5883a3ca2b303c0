"""Computed outcomes as a user chooses them and a report speaks of them; the values are in tests of cirl_gym.data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from small_tables import stays

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcomes import Above, Below, Outside
from cirl_gym.tables import TableColumns
from irl.commands.explain import known_signs
from irl.preferences.identified_set import not_identifiable
from irl.result.sentences import expectation_sentences, most_understated, per, seen_sentences
from irl.settings import ExplainConfig, chosen_outcomes

OBSERVED = ("age", "x", "y", "x before")


def phi_of(*outcomes: str, of: tuple[str, ...] = OBSERVED) -> FeatureMap:
    """Ranges from 0 to 1."""
    return FeatureMap(outcomes, np.zeros(len(outcomes)), np.ones(len(outcomes)), of)


class TestChoice:
    COLUMNS = TableColumns("id", "t", "a", ("age", "x", "y"), static=("age",))

    def test_names_come_in_one_spelling(self) -> None:
        given = ("y", "Outside(x,36,38.0)", "Change(x)", "Product(age, y)")
        config = ExplainConfig(self.COLUMNS, outcomes=given, signs={"Outside( x, 36, 38)": -1})
        assert config.outcomes == ("y", "Outside(x, 36, 38)", "Change(x)", "Product(age, y)")
        assert dict(config.signs) == {"Outside(x, 36, 38)": -1}
        assert ExplainConfig(self.COLUMNS).outcomes == ()

    def test_signs_of_the_command_line(self) -> None:
        names = chosen_outcomes(self.COLUMNS, ("y", "Outside(x, 36, 38)", 'Change("x")'))
        found = known_signs(names, ["Outside(x,36,38)"], ["Change(x)=+1", "y=-1"])
        assert found == {"Outside(x, 36, 38)": -1, "Change(x)": 1, "y": -1}
        with pytest.raises(ValueError, match=r"--sign: 'Above\(x, 1\)' is not an outcome; the outcomes are y, Outside"):
            known_signs(names, [], ["Above(x, 1)=-1"])

    @pytest.mark.parametrize(
        ("outcomes", "message"),
        [
            (
                ("y", "Outside(z, 1, 2)"),
                r"--outcomes: 'z' \(in Outside\(z, 1, 2\)\) is not a feature; the features are",
            ),
            (("y", "Product(x, z)"), r"--outcomes: 'z' \(in Product\(x, z\)\) is not a feature"),
            (("y", "Change(age)"), r"--outcomes: 'Change\(age\)' is static; no action changes it"),
            (("y", "Product(age, age)"), "is static"),
            (("y", "above(x, 1)"), r"'above\(x, 1\)' is not a feature; .* is written Outside"),
            (("Above(x, 1)", "Above(x, 1.0)"), r"a name is there twice: Above\(x, 1\), Above\(x, 1\)"),
            (("y", "Outside(x, 3, 2)"), "the lower end of the range"),
            (("Above(x, 1)",), r"a trade-off needs two outcomes, got Above\(x, 1\)"),
        ],
    )
    def test_what_is_refused(self, outcomes: tuple[str, ...], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ExplainConfig(self.COLUMNS, outcomes=outcomes)


def test_what_no_data_can_tell_is_judged_by_the_values() -> None:
    batch, _ = Batch.from_dataframe(stays(*[6] * 9))  # x within 0..86, y within -6..800
    reasons = not_identifiable(batch, ("Above(x, 90)", "Outside(x, 20, 200)", "Below(x, 20)", "y", "Above(x, -1)", "x"))
    assert reasons["Above(x, 90)"] == "constant: every outcome is 0, so its weight would only count steps"
    # Below 20 alone x is outside; x + 1 moves with x.
    assert "moves exactly with 'Below(x, 20)'" in reasons["Outside(x, 20, 200)"]
    assert set(reasons) == {"Above(x, 90)", "Outside(x, 20, 200)", "Below(x, 20)", "Above(x, -1)", "x"}
    assert not_identifiable(batch, ("x", "Below(x, 20)", "y")) == {}
    with pytest.raises(ValueError, match="needs 'x before'"):
        not_identifiable(batch, ("Change(x)", "y"))


class TestSentences:
    PHI = FeatureMap(("Outside(x, 36, 38)", "Change(x)", "y"), np.zeros(3), np.array([2.0, 4, 5]), OBSERVED)

    def test_what_a_weight_is_per(self) -> None:
        assert [per(self.PHI, i) for i in range(3)] == [
            "per 2 units outside 36..38",
            "per 4 units of change",
            "per 5 units",
        ]
        assert per(phi_of("Above(x, 12)"), 0) == "per 1 units above 12"
        assert per(phi_of("Below(x, 9.5)"), 0) == "per 1 units below 9.5"

    def test_what_was_only_seen(self) -> None:
        assert seen_sentences(self.PHI) == [
            "Of 4 observed features 3 go into the 3 outcomes that are weighed; the others are only seen and predicted."
        ]
        assert seen_sentences(phi_of("x", "y"))[0].startswith("Of 4 observed features 2 are weighed as outcomes; ")
        assert seen_sentences(phi_of("Change(x)", of=("x", "x before"))) == []

    @pytest.mark.parametrize(
        "outcome", [Above("x", 1.0), Below("x", 1.0), Outside("x", 1.0, 9.0), Outside("x", 1, 1.5)]
    )
    def test_what_an_expectation_leaves_out(self, outcome) -> None:
        deviation = 0.7

        def shortfall(mean: float) -> float:
            expected = quad(
                lambda x: float(outcome({"x": np.array(x)})) * norm.pdf(x, mean, deviation),
                mean - 9 * deviation,
                mean + 9 * deviation,
                points=[1.0, 1.5, 9.0],
                limit=200,
            )[0]
            return expected - float(outcome({"x": np.array(mean)}))

        at_kink = most_understated(outcome, deviation)
        assert shortfall(1.0) == pytest.approx(at_kink, rel=1e-6)
        assert max(shortfall(mean) for mean in np.linspace(-1, 11, 25)) <= at_kink + 1e-9
        assert most_understated(Above("x", 0), deviation) == pytest.approx(deviation / np.sqrt(2 * np.pi))

    def test_it_is_said_where_there_is_a_kink(self) -> None:
        noise = np.array([0.0, 0.5, 3.0, 0.0])
        (said,) = expectation_sentences(self.PHI, noise)
        assert said.endswith("leaves out what chance adds on average: at most 0.2 to Outside(x, 36, 38).")
        assert expectation_sentences(phi_of("y", "Change(x)", "Product(x, y)"), noise) == []
        assert expectation_sentences(phi_of("Above(x, 1)"), np.zeros(4)) == []
