"""How strong a hidden cause would have to be: the published example, a bound that is attained, and invariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from known_model import KnownModel
from small_batches import cut_off
from termed_laws import ONE_LAG, levels, model_of, one_step, termed_law

from cirl_gym.data.known import with_known
from cirl_gym.data.outcomes import Above, Column, Given
from cirl_gym.outcome_models.known import knowing
from cirl_gym.outcome_models.law import fit_law
from cirl_gym.outcome_models.model import EnsembleModel
from cirl_gym.outcome_models.sensitivity import most_moved, robustness_value, sensitivities, sensitivity_of


def test_the_published_example():
    """Cinelli and Hazlett (2020), section 5: exposure to violence and attitudes to peace in Darfur.

    Effect .097, standard error .023, 783 degrees of freedom: a robustness value of 13.9 %. Being female has partial R2
    of .0091 with the exposure and .109 with attitudes; a cause as strong would bring the estimate to .075.
    """
    assert robustness_value(0.097 / 0.0232, 783) == pytest.approx(0.139, abs=0.001)
    assert most_moved(0.0091, 0.109, 0.0232, 783) == pytest.approx(0.097 - 0.075, abs=0.0005)


def test_a_cause_of_both_at_the_robustness_value_brings_an_effect_to_0():
    for t, freedom in ((0.5, 50), (4.18, 783), (30.0, 100)):
        share = robustness_value(t, freedom)
        # Their equation for the bias of a cause of these shares, in standard errors.
        assert np.sqrt(freedom * share * share / (1 - share)) == pytest.approx(t)
        assert 0 < share < 1


def regression(n: int = 4000, seed: int = 0):
    """An observed and a hidden cause of the same strength, exactly uncorrelated; the true effect is 1."""
    rng = np.random.default_rng(seed)
    columns = np.linalg.qr(np.column_stack([np.ones(n), rng.normal(size=(n, 4))]))[0][:, 1:] * np.sqrt(n)
    seen, hidden, of_action, of_outcome = columns.T
    action = 0.5 * seen + 0.5 * hidden + of_action
    outcome = action + 0.7 * seen + 0.7 * hidden + of_outcome
    return seen, hidden, action, outcome


def test_the_bound_is_attained_by_a_cause_exactly_as_strong_as_the_observed_one():
    seen, _, action, outcome = regression()
    found = sensitivity_of(seen[:, None], np.zeros(1, dtype=np.int64), action, outcome, ("seen",), 0)
    # Without the hidden cause the effect is 1 + .5 * .7 / (1 + .25).
    bias = 0.35 / 1.25
    assert found.strongest == "seen"
    assert found.moved == pytest.approx(bias, rel=1e-6)
    assert found.decisions == 4000


def test_numbers_of_one_feature_count_together_and_others_are_not_benchmarks():
    seen, _, action, outcome = regression()
    weak = np.random.default_rng(1).normal(size=4000)
    halves = np.column_stack([seen + weak, seen - weak, weak**2, seen**3])
    whole = sensitivity_of(halves, np.array([0, 0, 1, -1]), action, outcome, ("seen", "weak"), 0)
    assert whole.strongest == "seen"
    alone = sensitivity_of(halves[:, [0, 1, 3]], np.array([0, 0, -1]), action, outcome, ("seen",), 0)
    assert whole.moved == pytest.approx(alone.moved, rel=0.05)
    assert sensitivity_of(halves, np.full(4, -1), action, outcome, (), 0) is None


def test_units_copies_and_constants_change_nothing():
    seen, _, action, outcome = regression()
    plain = sensitivity_of(seen[:, None], np.zeros(1, dtype=np.int64), action, outcome, ("seen",), 0)
    columns = np.column_stack([1e4 * seen + 7, 1e4 * seen + 7, np.full(4000, 3.0)])
    same = sensitivity_of(columns, np.array([0, 0, 0]), action, 10 * outcome - 5, ("seen",), 0)
    assert same.moved == pytest.approx(10 * plain.moved, rel=1e-6)
    assert same.robustness == pytest.approx(plain.robustness, rel=1e-3)


def test_where_nothing_can_be_told():
    seen, _, action, outcome = regression(50)
    owner = np.zeros(1, dtype=np.int64)
    assert sensitivity_of(seen[:, None], owner, np.ones(50), outcome, ("seen",), 0) is None, "always taken"
    assert sensitivity_of(seen[:, None], owner, seen, outcome, ("seen",), 0) is None, "taken by the covariate alone"
    assert sensitivity_of(seen[:3, None], owner, action[:3], outcome[:3], ("seen",), 0) is None, (
        "as few rows as columns"
    )
    assert sensitivity_of(seen[:, None], owner, action, action + seen, ("seen",), 0) is None, "no noise"
    strong = sensitivity_of(seen[:, None], owner, seen + 0.1 * action, outcome, ("seen",), 0)
    assert strong.moved == np.inf


OUTCOMES = (Column("x"), Above("y", -30), Given("low"))


def of_law(law, batch):
    return sensitivities(model_of(law), batch, OUTCOMES)


def test_of_a_law_the_regression_is_its_own():
    law = termed_law((-0.6, 0.0))
    train, validation = one_step(law, levels(600), noise=0.5), one_step(law, levels(100, 1), 1, 0.5)
    law = fit_law(train, validation, ONE_LAG).law
    found = of_law(law, train)
    assert list(found) == [(1, "x"), (1, "Above(y, -30)"), (2, "x"), (2, "Above(y, -30)")]
    assert found[2, "Above(y, -30)"].feature == "y"
    low, high = found[1, "x"], found[2, "x"]
    assert [one.decisions for one in (low, high)] == [int(np.isin(train.actions, (0, a)).sum()) for a in (1, 2)]
    # Actions are drawn evenly: no covariate tells of them, and effects of .5 and -1 beside noise of .5 stand firm.
    assert (low.effect, high.effect) == pytest.approx((0.5, -1.0), abs=0.15)
    assert high.robustness > low.robustness > 0.2
    assert max(one.moved for one in (low, high)) < 0.2  # the upper ends of bounds
    for other in (train.padded(4), train.take(np.arange(600)[::-1])):
        assert of_law(law, other)[2, "x"].moved == pytest.approx(high.moved, rel=1e-6)
    never = replace(train, actions=np.where(train.actions == 1, 0, train.actions))
    assert {a for a, _ in of_law(law, never)} == {2}
    wide = with_known(train, (Given("low").name,))
    model = knowing(model_of(law), wide.features, wide.action_names)
    assert sensitivities(model, wide, OUTCOMES) == found
    assert sensitivities(EnsembleModel([model_of(law)] * 2), train, OUTCOMES) == found
    assert sensitivities(KnownModel(), train, OUTCOMES) == {}


def test_a_driver_is_named_as_the_strongest():
    rng = np.random.default_rng(0)
    start = rng.normal(size=(800, 2))
    actions = (rng.random(800) < 1 / (1 + np.exp(-start[:, 1]))).astype(np.int64)
    after = np.column_stack([0.1 * start[:, 0] + start[:, 1] + 0.5 * actions, start[:, 1]]) + rng.normal(size=(800, 2))
    batch = cut_off(np.stack([start, after], axis=1), actions[:, None], ("x", "y"))
    law = fit_law(batch, batch, ONE_LAG).law
    assert of_law(law, batch)[1, "x"].strongest == "y"
