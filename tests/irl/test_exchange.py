"""Exchange rates: what change of an outcome makes up for one more step with an action."""

from __future__ import annotations

import numpy as np
import pytest

from cirl_gym.data.features import FeatureMap
from irl.result.exchange import ExchangeRate, exchange_rates

OF = ("wbc", "Given(1)", "Switched()")
PHI = FeatureMap(("Above(wbc, 12)", "Given(1)", "Switched()"), np.zeros(3), np.array([20.0, 1, 1]), OF)


def test_by_hand_in_raw_units_whatever_the_scale_of_the_weights() -> None:
    # A step costs .1; one unit above 12 costs .5/20 to .1/20: 4 to 20 units less make up for it, in the middle 8.
    draws = np.array([[w, -0.1, 0.3] for w in np.linspace(-0.5, -0.1, 11)])
    rate, between, other = exchange_rates(PHI, draws)
    expected = np.quantile(-0.1 / (-draws[:, 0] / 20), (0.05, 0.5, 0.95))
    assert (rate.one_more, rate.outcome, rate.unit) == ("Given(1)", "Above(wbc, 12)", "step with the action")
    np.testing.assert_allclose([rate.interval[0], rate.change, rate.interval[1]], expected)
    assert rate.change == pytest.approx(-0.1 * 20 / 0.3)
    # A step is worth a third of a switch; of two known outcomes each pair stands once.
    assert (between.outcome, between.change) == ("Switched()", pytest.approx(1 / 3))
    assert (other.one_more, other.outcome) == ("Switched()", "Above(wbc, 12)")
    again = exchange_rates(PHI, draws * np.random.default_rng(0).uniform(0.1, 50, (11, 1)))
    np.testing.assert_allclose([one.change for one in again], [one.change for one in (rate, between, other)])


def test_what_may_weigh_nothing_bounds_nothing() -> None:
    draws = np.column_stack([np.linspace(-0.5, 0.1, 101), np.full(101, -0.1), np.full(101, 0.4)])
    rate, between, _ = exchange_rates(PHI, draws)
    assert (rate.change, rate.interval) == (None, None)
    assert rate.sentence.endswith("Above(wbc, 12) makes up for it is not bounded, its weight may be 0.")
    assert between.change == pytest.approx(0.25)
    # A weight that is 0 in a draw in twenty leaves no number for the end of the interval.
    draws[:, 0] = np.where(np.arange(101) < 10, 0.0, -0.5)
    assert exchange_rates(PHI, draws)[0].change is None


@pytest.mark.parametrize(
    ("change", "interval", "said"),
    [
        (-2.1, (-7.0, -0.4), "is made up for by a fall of wbc by 2.1 (0.4 to 7)."),
        (2.1, (0.4, 7.0), "is made up for by a rise of wbc by 2.1 (0.4 to 7)."),
        (-0.5, (-7.0, 0.4), "is made up for by a change of wbc between -7 and +0.4."),
    ],
)
def test_a_rate_is_said_with_its_direction(change, interval, said) -> None:
    rate = ExchangeRate("Given(1)", "step with the action", "wbc", change, interval)
    assert rate.sentence == f"One more step with the action (Given(1)) {said}"


def test_nothing_without_an_action_among_the_outcomes_and_no_half_rates() -> None:
    phi = FeatureMap(("wbc",), np.zeros(1), np.ones(1))
    assert exchange_rates(phi, np.ones((5, 1))) == ()
    with pytest.raises(ValueError, match=r"need draws \[M, 1\]"):
        exchange_rates(phi, np.ones((5, 2)))
    for faults in ((1.0, None), (None, (0.0, 1.0)), (2.0, (0.0, 1.0))):
        with pytest.raises(ValueError, match="exchange_rates"):
            ExchangeRate("Given(1)", "step", "wbc", *faults)
