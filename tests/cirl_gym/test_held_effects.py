"""Laws that are held to what is known of effects: a quadratic program, checked against a general solver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brief_fits import brief
from scipy.optimize import minimize
from termed_laws import ONE_LAG, levels, one_step, termed_law

from cirl_gym.data.outcomes import with_lags
from cirl_gym.outcome_models.fitting import fit_outcome_model
from cirl_gym.outcome_models.law import fit_law, held_effects
from cirl_gym.outcome_models.ridge import bounded_ridge, ridge
from cirl_gym.outcome_models.terms import STRAIGHT, Shape

INF = np.inf
OWN = [((1, 1, 1), 0.05), ((2, 1, 1), -0.1)]


def problem(seed: int, n: int = 60, f: int = 5):
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(n, f)) @ rng.normal(size=(f, f))
    target = design @ rng.normal(size=f) + rng.normal(size=n)
    return design - design.mean(axis=0), target - target.mean(), rng.normal(size=(2, f))


def loss(weights, design, target, strength):
    return ((target - design @ weights) ** 2).mean() + strength * weights @ weights


def test_bounds_that_do_not_act_leave_the_ridge_as_it_is():
    design, target, contrasts = problem(0)
    ((weights, _),) = ridge(design, target[:, None], (0.1,))
    own = contrasts @ weights[:, 0]
    for ranges in ([[-INF, INF]] * 2, np.column_stack([own - 0.1, own + 0.1])):
        found = bounded_ridge(design, target, 0.1, contrasts, np.array(ranges))
        np.testing.assert_allclose(found, weights[:, 0], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strength", [0.0, 0.1])
def test_it_is_the_best_of_what_the_bounds_leave(seed, strength):
    design, target, contrasts = problem(seed)
    ((free, _),) = ridge(design, target[:, None], (strength,))
    own = contrasts @ free[:, 0]
    # One bound acts, the other is a number; or both are on the far side; or one acts and the other is far away.
    for ranges in (
        [[own[0] + 0.5, INF], [own[1] - 1.0, own[1] - 1.0]],
        [[-INF, own[0] - 0.3], [own[1] + 0.2, own[1] + 0.9]],
        [[own[0] + 0.4, INF], [-INF, own[1] + 5.0]],
    ):
        found = bounded_ridge(design, target, strength, contrasts, np.array(ranges))
        inside = [
            {"type": "ineq", "fun": lambda w, c=c, bound=bound, sign=sign: sign * (c @ w - bound)}
            for c, pair in zip(contrasts, ranges, strict=True)
            for bound, sign in zip(pair, (1, -1), strict=True)
            if np.isfinite(bound)
        ]
        best = minimize(loss, found + 0.1, (design, target, strength), "SLSQP", constraints=inside, tol=1e-12)
        held = contrasts @ found
        low, high = np.array(ranges).T
        assert (held >= low - 1e-9).all()
        assert (held <= high + 1e-9).all()
        assert loss(found, design, target, strength) <= best.fun * (1 + 1e-7) + 1e-12
        np.testing.assert_allclose(found, best.x, rtol=2e-3, atol=2e-3)
        # Where it is held the slope of the loss is a mix of the contrasts that act, pulling the right way.
        slope = -2 * design.T @ (target - design @ found) / len(target) + 2 * max(strength, 1e-8) * found
        forces, *_ = np.linalg.lstsq(contrasts.T, slope, rcond=None)
        np.testing.assert_allclose(contrasts.T @ forces, slope, atol=1e-6)
        for force, value, (least, most) in zip(forces, held, ranges, strict=True):
            if least < most:
                assert force > -1e-6 or value == pytest.approx(most)
                assert force < 1e-6 or value == pytest.approx(least)


def mean_effects(law, batch):
    """``[A - 1, d]`` against the first action, over all decisions."""
    said = law(law.window.encode(batch)[:, :-1][batch.mask])
    return (said[:, 1:] - said[:, :1]).mean(axis=0)


@pytest.mark.parametrize("shapes", [(STRAIGHT, STRAIGHT), (Shape(True), Shape(by="own")), (Shape(by="every"),) * 2])
def test_a_law_holds_what_it_is_held_to_at_mean_levels(shapes):
    law = termed_law((-0.6, 0.0), OWN)
    train, validation = one_step(law, levels(400), noise=0.5), one_step(law, levels(100, 1), 1, 0.5)
    free = fit_law(train, validation, replace(ONE_LAG, shapes=shapes)).law
    own = mean_effects(free, train)
    effects = (
        ("low", "y", own[0, 1] + 1.0, INF),  # acts
        ("high", "y", -INF, own[1, 1] + 100.0),  # does not
        ("low", "x", 0.0, 0.0),
        ("high", "x", own[1, 0] - 0.4, own[1, 0] - 0.3),
    )
    fit = fit_law(train, validation, replace(ONE_LAG, shapes=shapes, effects=effects))
    held = mean_effects(fit.law, train)
    assert held[0, 1] == pytest.approx(own[0, 1] + 1.0, abs=1e-6)
    assert held[0, 0] == pytest.approx(0.0, abs=1e-6)
    assert held[1, 0] == pytest.approx(own[1, 0] - 0.3, abs=1e-6)
    assert held[1, 1] > own[1, 1]  # what is held of one action pulls at the other, which shares the intercept
    assert fit.law.shapes == shapes
    assert not any(limit.any for limit in fit.limits)


def test_what_is_not_spoken_of_stays_as_it_is():
    law = termed_law((-0.6, 0.0), OWN)
    train, validation = one_step(law, levels(400), noise=0.5), one_step(law, levels(100, 1), 1, 0.5)
    free = fit_law(train, validation, ONE_LAG).law
    held = fit_law(train, validation, replace(ONE_LAG, effects=(("low", "y", 5.0, 6.0),))).law
    np.testing.assert_array_equal(held.coefficients[:, 0], free.coefficients[:, 0])
    np.testing.assert_array_equal(held.terms.bends[:, 0], free.terms.bends[:, 0])
    assert mean_effects(held, train)[0, 1] == pytest.approx(5.0, abs=1e-6)


def test_known_lags_do_not_shift_what_is_held():
    law = termed_law((-0.6, 0.0), OWN)
    splits = [one_step(law, levels(n, seed), seed, 0.5) for n, seed in ((400, 0), (100, 1))]
    wide = [with_lags(batch, ("x",)) for batch in splits]
    held = fit_law(*wide, replace(ONE_LAG, effects=(("low", "y", 5.0, INF),))).law
    assert mean_effects(held, wide[0])[0, 1] == pytest.approx(5.0, abs=1e-6)


def test_a_network_cannot_undo_it_and_the_report_says_what_was_held():
    train, validation = one_step(termed_law(), levels(200), noise=0.5), one_step(termed_law(), levels(80, 1), 1, 0.5)
    config = brief(1)
    config = replace(config, autoregression=replace(ONE_LAG, effects=(("low", "y", -INF, 0.0),)))
    found = fit_outcome_model("crn", train, validation, config, np.random.default_rng(0))
    assert found.model.correction is None
    assert found.report["kind"] == "ar"
    assert found.report["law"]["held_to"] == [["low", "y", "-inf", "0.0"]]
    assert mean_effects(found.model.law, train)[0, 1] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("effect", [("no", "x", 0.0, 1.0), ("some", "x", 0.0, 1.0), ("low", "z", 0.0, 1.0)])
def test_effects_of_what_there_is_not_are_refused(effect):
    batch = one_step(termed_law(), levels(50))
    with pytest.raises(ValueError, match=r"effects: there is no effect of '\w+' on '\w'; there are actions low, high"):
        fit_law(batch, batch, replace(ONE_LAG, effects=(effect,)))
    assert held_effects((("high", "y", 0.0, 1.0), ("low", "y", 2.0, 3.0)), batch) == {1: {2: (0.0, 1.0), 1: (2.0, 3.0)}}
