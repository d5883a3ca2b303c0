"""Laws as other patients would have given them: they scatter around the law as refitted ones do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from outcome_batches import linear_system
from small_batches import cut_off
from termed_laws import FEATURES, levels, one_step, relabelled, termed_law

import cirl_gym.outcome_models.law_draws as module
from cirl_gym.outcome_models.fitting import bootstrapped
from cirl_gym.outcome_models.law import AutoregressionConfig, LinearLaw, fit_autoregression
from cirl_gym.outcome_models.law_draws import law_draws
from cirl_gym.outcome_models.limits import OutcomeSpec
from cirl_gym.outcome_models.terms import STRAIGHT, Shape

INTERACTION = [((1, 1, 1), 0.05), ((2, 1, 1), -0.1)]


def unlimited(noise: float = 1.0) -> OutcomeSpec:
    wide = np.full(2, 1e4)
    return OutcomeSpec(FEATURES, 3, -wide, wide, np.full(2, noise), np.full(2, -np.inf), np.full(2, np.inf))


def fitted(batch, config) -> LinearLaw:
    return fit_autoregression(batch, batch, config).law


def contrasts(law: LinearLaw, rows) -> np.ndarray:
    """Mean effects of the other actions, and mean expected outcomes."""
    said = law(rows)
    return np.concatenate([(said[:, 1:] - said[:, :1]).mean(axis=0).ravel(), said[:, 0].mean(axis=0)])


@pytest.mark.parametrize("termed", [False, True])
def test_they_scatter_as_laws_that_are_fitted_anew(termed):
    config = AutoregressionConfig(max_order=1, strengths=(0.0,))
    if termed:
        batch = one_step(termed_law((0.4, 0.0), INTERACTION), levels(400), noise=1.0)
        config = replace(config, shapes=(Shape(True), Shape(by="own")))
    else:
        batch = linear_system(60, 0, noise=1.0)
        config = replace(config, shapes=(Shape(), Shape()))
    law = fitted(batch, config)
    rows = batch.obs[:, :-1][batch.mask]
    drawn = np.array(
        [contrasts(one, rows) for one in law_draws(law, unlimited(), batch, 400, np.random.default_rng(0))]
    )
    anew = [fitted(bootstrapped(batch, np.random.default_rng(seed)), config) for seed in range(200)]
    again = np.array([contrasts(one, rows) for one in anew])
    np.testing.assert_allclose(drawn.std(axis=0), again.std(axis=0), rtol=0.2)
    error = drawn.std(axis=0) / np.sqrt(400)
    assert (np.abs(drawn.mean(axis=0) - contrasts(law, rows)) < 4 * error).all()


class Counted:
    """Not a generator, but who is counted how often."""

    def __init__(self, often: np.ndarray) -> None:
        self.often = often

    def multinomial(self, n: int, _shares: np.ndarray) -> np.ndarray:
        assert len(self.often) == n
        return self.often


def test_a_patient_that_counts_twice_changes_a_law_as_leaving_it_out_does():
    batch = linear_system(12, 0, noise=1.0)
    config = AutoregressionConfig(max_order=1, strengths=(0.0,), shapes=(STRAIGHT, STRAIGHT))
    law, rows = fitted(batch, config), batch.obs[:, :-1][batch.mask]
    for who in (0, 7):
        (twice,) = law_draws(law, unlimited(), batch, 1, Counted(np.where(np.arange(12) == who, 2, 1)))
        without = fitted(batch.take(batch.owners != who), config)
        np.testing.assert_allclose(twice(rows) - law(rows), law(rows) - without(rows), atol=1e-8)


def test_blocks_of_patients_say_what_all_together_say(monkeypatch):
    batch = one_step(termed_law((0.4, 0.0), INTERACTION), levels(100), noise=1.0)
    batch = replace(batch, groups=tuple(f"p{i % 60}" for i in range(100)))
    config = AutoregressionConfig(max_order=1, strengths=(0.0,), shapes=(Shape(True), Shape(by="own")))
    law, rows = fitted(batch, config), batch.obs[:, 0]
    whole = law_draws(law, unlimited(), batch, 3, np.random.default_rng(0))
    monkeypatch.setattr(module, "BLOCK", 7)
    parts = law_draws(law, unlimited(), batch, 3, np.random.default_rng(0))
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one(rows), other(rows), rtol=1e-12, atol=1e-12)


def test_a_patient_with_several_stays_pulls_with_all_of_them():
    batch = linear_system(60, 0, noise=1.0)
    law = fitted(batch, AutoregressionConfig(max_order=1, strengths=(0.0,)))
    rows = batch.obs[:, :-1][batch.mask]

    def spread(one) -> float:
        drawn = law_draws(law, unlimited(), one, 300, np.random.default_rng(0))
        return float(np.std([contrasts(draw, rows)[0] for draw in drawn]))

    # The same stays a second time: as those of others they halve the variance, as those of the same patients not.
    twice = batch.resampled(np.tile(np.arange(60), 2))
    others = replace(twice, groups=twice.ids)
    assert spread(twice) == pytest.approx(spread(batch), rel=1e-6)
    assert spread(others) == pytest.approx(spread(batch) / np.sqrt(2), rel=0.15)


def test_what_was_never_seen_does_not_move():
    batch = one_step(termed_law((0.4, 0.0), INTERACTION), levels(200), noise=1.0)
    batch = replace(batch, actions=np.where(batch.actions == 2, 1, batch.actions))
    law = fitted(batch, AutoregressionConfig(max_order=1, shapes=(Shape(True), Shape(by="own"))))
    for one in law_draws(law, unlimited(), batch, 5, np.random.default_rng(0)):
        np.testing.assert_allclose(one.effects[2], law.effects[2], atol=1e-9)
        assert not np.allclose(one.effects[1], law.effects[1])
        assert one.shapes == law.shapes


def test_of_one_patient_there_is_one_law_and_without_residuals_too():
    config = AutoregressionConfig(max_order=1, strengths=(0.0,))
    batch = linear_system(40, 0, noise=1.0)
    law = fitted(batch, config)
    (one,) = law_draws(law, unlimited(), replace(batch, groups=("p",) * 40), 1, np.random.default_rng(0))
    np.testing.assert_allclose(one.coefficients, law.coefficients, atol=1e-12)
    exact = one_step(replace(termed_law(), terms=None), levels(100))
    law = fitted(exact, config)
    (one,) = law_draws(law, unlimited(), exact, 1, np.random.default_rng(0))
    np.testing.assert_allclose(one(exact.obs[:, 0]), law(exact.obs[:, 0]), atol=1e-4)


def test_rows_at_a_limit_count_as_censored_ones_do():
    """Against laws that are fitted anew as censored: an error that took clipped rows at their word would be off."""
    rng = np.random.default_rng(0)
    start, actions = rng.uniform(0, 2, size=(400, 1)), rng.integers(2, size=400)
    after = np.maximum(start + actions[:, None] - 1.3 + 0.3 * rng.normal(size=(400, 1)), 0.0)
    batch = cut_off(np.stack([start, after], axis=1), actions[:, None], ("x",))
    assert (after == 0).mean() > 0.35
    config = AutoregressionConfig(max_order=1, strengths=(0.0,))
    fit = fit_autoregression(batch, batch, config)
    assert fit.limits[0].low == 0.0
    wide = np.full(1, 1e4)
    spec = OutcomeSpec(("x",), 2, -wide, wide, np.full(1, 0.3), np.zeros(1), np.full(1, np.inf))
    drawn = law_draws(fit.law, spec, batch, 400, np.random.default_rng(0))
    anew = [fit_autoregression(bootstrapped(batch, np.random.default_rng(seed)), batch, config) for seed in range(200)]
    again = [one.law for one in anew if one.limits[0].any]
    assert len(again) > 190
    spreads = [np.std([np.diff(one.effects, axis=0)[0, 0] for one in laws]) for laws in (drawn, again)]
    assert spreads[0] == pytest.approx(spreads[1], rel=0.15)


def test_names_and_order_do_not_matter():
    batch = one_step(termed_law((0.4, 0.0), INTERACTION), levels(100), noise=1.0)
    config = AutoregressionConfig(max_order=1, strengths=(0.0,), shapes=(Shape(True), Shape(by="own")))
    law, turned = fitted(batch, config), fitted(relabelled(batch), replace(config, shapes=config.shapes[::-1]))
    (one,) = law_draws(law, unlimited(), batch, 1, np.random.default_rng(0))
    (other,) = law_draws(turned, unlimited(), relabelled(batch), 1, np.random.default_rng(0))
    (third,) = law_draws(law, unlimited(), batch.take(np.arange(100)[::-1]).padded(3), 1, np.random.default_rng(0))
    rows = batch.obs[:, 0]
    np.testing.assert_allclose(other(rows[:, ::-1])[:, ::-1, ::-1], one(rows), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(third(rows), one(rows), rtol=1e-8)


def test_what_never_changes_stays():
    obs = np.concatenate([np.random.default_rng(0).normal(size=(50, 3, 1)), np.full((50, 3, 1), 2.0)], axis=2)
    batch = cut_off(obs, np.arange(100).reshape(50, 2) % 2, FEATURES)
    law = fitted(batch, AutoregressionConfig(max_order=2))
    spec = replace(unlimited(), n_actions=2, noise_scale=np.array([1.0, 0.0]))
    for one in law_draws(law, spec, batch, 3, np.random.default_rng(0)):
        rows = one.window.encode(batch)[:, :-1][batch.mask]
        np.testing.assert_allclose(one(rows)[..., 1], 2.0, atol=1e-6)
