"""Bends and interactions of a law: found where they are, absent where they are not, and the same under other names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from outcome_batches import confounded, linear_system, random_model
from small_batches import cut_off
from termed_laws import FEATURES, ONE_LAG, levels, one_step, relabelled, termed_law

from cirl_gym.data.outcomes import with_lags
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, bootstrapped, fit_outcome_model
from cirl_gym.outcome_models.inputs import Window
from cirl_gym.outcome_models.law import AutoregressionConfig, LinearLaw, fit_autoregression, fit_law
from cirl_gym.outcome_models.model import LearnedModel
from cirl_gym.outcome_models.store import load_model, save_model
from cirl_gym.outcome_models.terms import STRAIGHT, Shape, TermColumns, Terms

OWN = [((1, 1, 1), 0.05), ((2, 1, 1), -0.1)]
OTHER = [((2, 1, 0), 0.04)]


def test_terms_by_hand():
    interactions = np.zeros((2, 2, 2))
    interactions[1, 0, 1] = 3.0  # a unit of the first feature adds 3 to the effect on the second
    law = LinearLaw(
        Window(1, 2, 2),
        np.zeros(2),
        np.eye(2),
        np.array([[0.0, 0.0], [10.0, 20.0]]),
        Terms(np.array([[1.0, 0.0], [4.0, 9.0]]), np.array([[2.0, 0.0], [-1.0, 0.0]]), interactions),
    )
    # x = 6: 6 + 2 (6 - 1) - (6 - 4) = 14; y = 7 bends nowhere; given, x + 10 and y + 20 + 3 * 6.
    assert law(np.array([[6.0, 7.0]])).tolist() == [[[14.0, 7.0], [24.0, 45.0]]]
    assert law(np.array([[0.0, 7.0]])).tolist() == [[[0.0, 7.0], [10.0, 27.0]]]
    assert law.shapes == (Shape(True, "none"), Shape(False, "every"))
    assert law.terms.without(np.array([True, False])).shapes == (STRAIGHT, Shape(False, "every"))
    wide = law.terms.wider(4, (3, 1))
    assert wide.shapes == (STRAIGHT, Shape(False, "every"), STRAIGHT, Shape(True, "none"))
    assert wide.interactions[1, 3, 1] == 3.0
    assert wide.knots[:, 3].tolist() == [1.0, 4.0]


def test_columns_and_their_contrast_by_hand():
    columns = TermColumns(np.array([[1.0, 5.0], [3.0, 7.0]]), np.array([0, 1]), 2, np.array([[2.0, 0.0]]))
    # Each action was taken in half of the rows.
    assert columns.of(0, Shape(True, "own")).tolist() == [[0, 0.5, -0.5], [1, -1.5, 1.5]]
    assert columns.of(1, Shape(False, "every")).tolist() == [[0.5, 2.5, -0.5, -2.5], [-1.5, -3.5, 1.5, 3.5]]
    # Two columns before the actions; mean levels are 2 and 6.
    assert columns.contrast(0, Shape(True, "own"), 1, 4).tolist() == [0, 0, -1, 1, 0, -2, 2]
    assert columns.contrast(1, Shape(False, "every"), 1, 4).tolist() == [0, 0, -1, 1, -2, -6, 2, 6]
    bends, interactions = np.zeros((1, 2)), np.zeros((2, 2, 2))
    columns.put(0, Shape(True, "own"), np.array([9.0, 1.0, 2.0]), bends, interactions)
    columns.put(1, Shape(False, "every"), np.array([3.0, 4.0, 5.0, 6.0]), bends, interactions)
    assert bends.tolist() == [[9, 0]]
    # Columns of mean action 0 leave what all actions share to the straight law.
    assert interactions.tolist() == [[[-0.5, -1], [0, -1]], [[0.5, 1], [0, 1]]]


@pytest.mark.parametrize(
    ("bends", "interactions", "shapes"),
    [
        ((0.0, 0.0), (), (STRAIGHT, STRAIGHT)),
        ((-0.6, 0.0), (), (Shape(True), STRAIGHT)),
        ((0.0, 0.0), OWN, (STRAIGHT, Shape(by="own"))),
        ((0.0, 0.3), [*OWN, *OTHER], (Shape(by="every"), Shape(True, "own"))),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_shapes_and_numbers_are_found_again(bends, interactions, shapes, noise):
    start = levels(400)
    train = one_step(termed_law(bends, interactions), start, noise=noise)
    law = termed_law(bends, interactions)
    validation = one_step(law, levels(200, 1), 1, noise)
    fit = fit_autoregression(train, validation, ONE_LAG)
    assert fit.law.shapes == shapes
    rows = validation.obs[:, 0]
    effects = [found[:, 1:] - found[:, :1] for found in (fit.law(rows), law(rows))]
    # What a straight law misses, a weak ridge answers.
    close = 0.02 if noise == 0 else 0.05
    np.testing.assert_allclose(fit.law(rows), law(rows), atol=close)
    np.testing.assert_allclose(*effects, atol=close)
    if fit.law.terms is not None and noise == 0:
        np.testing.assert_allclose(fit.law.terms.bends, law.terms.bends, atol=0.02)
        differences = [one.terms.interactions - one.terms.interactions[:1] for one in (fit.law, law)]
        np.testing.assert_allclose(*differences, atol=0.02)


def test_of_one_action_and_of_every_action_are_the_same():
    law = termed_law((-0.5, 0.2), [*OWN, *OTHER])
    rows, actions = levels(50, 3).astype(np.float32), np.arange(50) % 3
    np.testing.assert_allclose(law.of_action(rows, actions), law(rows)[np.arange(50), actions], rtol=1e-12)
    assert law(rows.reshape(5, 10, 2)).shape == (5, 10, 3, 2)
    np.testing.assert_array_equal(law(rows.reshape(5, 10, 2)).reshape(50, 3, 2), law(rows))


def test_other_names_give_the_same_law():
    law = termed_law((-0.6, 0.0), OWN)
    splits = one_step(law, levels(400), noise=0.3), one_step(law, levels(100, 1), 1, noise=0.3)
    alone, turned = fit_law(*splits, ONE_LAG), fit_law(*map(relabelled, splits), ONE_LAG)
    assert turned.law.shapes == alone.law.shapes[::-1]
    rows = levels(40, 2).astype(np.float32)
    np.testing.assert_allclose(turned.law(rows[:, ::-1])[:, ::-1, ::-1], alone.law(rows), rtol=1e-9, atol=1e-9)


def test_order_and_padding_do_not_matter_and_repeated_patients_are_kept_together():
    law = termed_law((-0.6, 0.0), OWN)
    train, validation = one_step(law, levels(300), noise=0.3), one_step(law, levels(100, 1), 1, noise=0.3)
    alone = fit_law(train, validation, ONE_LAG)
    padded = fit_law(train.padded(4), validation.padded(3), ONE_LAG)
    np.testing.assert_array_equal(padded.law.coefficients, alone.law.coefficients)
    np.testing.assert_array_equal(padded.law.terms.bends, alone.law.terms.bends)
    again = fit_law(bootstrapped(train, np.random.default_rng(0)), validation, ONE_LAG)
    assert again.law.shapes == alone.law.shapes


def test_one_lag_that_is_known_and_shapes_that_are_given():
    """What each part of the patients is fitted with: the order and the terms of the law of all of them."""
    law = termed_law((-0.6, 0.0), OWN)
    batches = [replace(one_step(law, levels(300, seed), seed, noise=0.3)) for seed in (0, 1)]
    wide = [with_lags(batch, ("x",)) for batch in batches]
    whole = fit_law(*wide, ONE_LAG)
    assert whole.law.shapes == (Shape(True), Shape(by="own"), STRAIGHT)
    given = replace(ONE_LAG, shapes=whole.law.shapes)
    assert fit_law(*wide, given).law.shapes == whole.law.shapes
    assert fit_law(wide[1], wide[0], given).law.shapes == whole.law.shapes
    alone = fit_law(*batches, replace(ONE_LAG, shapes=whole.law.shapes[:2])).law
    rows = wide[1].obs[:, 0]
    np.testing.assert_allclose(whole.law(rows)[..., :2], alone(rows[:, :2]), rtol=1e-9)
    straight = fit_law(*batches, replace(ONE_LAG, shapes=(STRAIGHT, STRAIGHT)))
    assert straight.law.terms is None
    with pytest.raises(ValueError, match="shapes"):
        fit_law(*batches, replace(ONE_LAG, shapes=(STRAIGHT,)))


def test_features_that_stop_at_a_limit_stay_straight_unless_terms_are_given():
    train, validation = confounded(400)
    law = fit_autoregression(train, validation, AutoregressionConfig(min_order=5, max_order=5))
    assert [limit.any for limit in law.limits] == [True, True]
    assert law.law.terms is None
    given = AutoregressionConfig(min_order=5, max_order=5, shapes=(STRAIGHT, Shape(True, "own")))
    other = fit_autoregression(train, validation, given)
    assert [limit.any for limit in other.limits] == [True, False]
    assert other.law.shapes == given.shapes
    np.testing.assert_array_equal(other.law.coefficients[:, 0], law.law.coefficients[:, 0])


def test_a_dose_that_halves_what_is_there_counts_for_more_than_a_pile_at_zero():
    rng = np.random.default_rng(0)
    start, actions = rng.uniform(1.0, 9.0, size=(600, 1)), rng.integers(2, size=600)
    after = start * np.where(actions, 0.5, 1.1)[:, None] + 0.1 * rng.normal(size=(600, 1))
    after[rng.permutation(600)[:30]] = 0.0
    batch = cut_off(np.stack([start, after], axis=1), actions[:, None], ("x",))
    fit = fit_autoregression(batch, batch, ONE_LAG)
    assert fit.law.shapes[0].by == "own"
    assert (fit.limits[0].any, fit.low[0]) == (False, 0.0)
    given = fit_autoregression(batch, batch, replace(ONE_LAG, shapes=fit.law.shapes))
    np.testing.assert_array_equal(given.law.effects, fit.law.effects)
    straight = fit_autoregression(batch, batch, replace(ONE_LAG, shapes=(STRAIGHT,)))
    assert (straight.limits[0].low, straight.law.terms) == (0.0, None)


def test_what_never_changes_has_no_terms_and_disturbs_none():
    law = termed_law((-0.6, 0.0), OWN)
    batches = [one_step(law, levels(400, seed), seed, noise=0.1) for seed in (0, 1)]
    alone = fit_law(*batches, ONE_LAG).law
    still = [
        replace(
            one, obs=np.concatenate([one.obs, np.full((*one.obs.shape[:2], 1), 3.0)], axis=2), features=(*FEATURES, "z")
        )
        for one in batches
    ]
    wide = fit_law(*still, ONE_LAG).law
    assert wide.shapes == (*alone.shapes, STRAIGHT)
    rows = still[1].obs[:, 0]
    np.testing.assert_allclose(wide(rows)[..., :2], alone(rows[:, :2]), rtol=1e-6)
    np.testing.assert_allclose(wide(rows)[..., 2], 3.0, rtol=1e-6)


def test_few_decisions_leave_the_law_straight():
    law = termed_law((-0.6, 0.0), OWN)
    few = [one_step(law, levels(40, seed), seed, noise=0.5) for seed in (0, 1)]
    assert fit_law(*few, ONE_LAG).law.terms is None
    # And where there is nothing to find, none is found.
    batches = linear_system(400, 0, noise=1.0), linear_system(50, 1, noise=1.0)
    assert fit_law(*batches, AutoregressionConfig(max_order=3)).law.terms is None


def test_files_hold_terms_to_the_last_bit(tmp_path):
    plain, law = random_model("ar"), termed_law((-0.6, 0.1), [*OWN, *OTHER])
    model = LearnedModel(law, plain.spec, plain.end)
    save_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    states = levels(100, 5).astype(np.float32)
    assert np.array_equal(loaded.predict(states), model.predict(states))
    assert loaded.law.shapes == law.shapes
    save_model(loaded, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()


def test_a_report_names_the_terms():
    law = termed_law((-0.6, 0.0), OWN)
    splits = one_step(law, levels(400), noise=0.1), one_step(law, levels(100, 1), 1, noise=0.1)
    config = replace(OutcomeModelConfig.quick(), autoregression=ONE_LAG)
    report = fit_outcome_model("ar", *splits, config, np.random.default_rng(0)).report
    assert report["law"]["terms"] == {"x": {"bent": True, "by": "none"}, "y": {"bent": False, "by": "own"}}


@pytest.mark.parametrize(
    ("knots", "bends", "interactions", "message"),
    [
        (np.zeros((3, 2)), np.zeros((2, 2)), np.zeros((2, 2, 2)), "Terms must be"),
        (np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((2, 3, 2)), "Terms must be"),
        (np.zeros((3, 2)), np.full((3, 2), np.nan), np.zeros((2, 2, 2)), "finite"),
    ],
)
def test_terms_that_do_not_fit_are_refused(knots, bends, interactions, message):
    with pytest.raises(ValueError, match=message):
        Terms(knots, bends, interactions)


def test_terms_of_other_features_than_the_law_are_refused():
    with pytest.raises(ValueError, match="terms must be of 2 features and 2 actions"):
        LinearLaw(
            Window(1, 2, 2),
            np.zeros(2),
            np.eye(2),
            np.zeros((2, 2)),
            Terms(np.zeros((3, 2)), np.zeros((3, 2)), np.zeros((3, 2, 2))),
        )


def test_a_level_that_takes_few_values_is_no_trouble():
    rng = np.random.default_rng(0)
    obs = rng.integers(2, size=(300, 2, 2)).astype(np.float64)
    obs[:, 1, 0] += 0.1 * rng.normal(size=300)
    batch = cut_off(obs, rng.integers(2, size=(300, 1)), FEATURES)
    law = fit_law(batch, batch, ONE_LAG).law
    assert np.isfinite(law(obs[:, 0])).all()
