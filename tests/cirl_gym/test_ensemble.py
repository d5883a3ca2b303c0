"""Several models as one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brief_fits import brief
from outcome_batches import linear_system, random_model

from cirl_gym.outcome_models.fitting import OutcomeModelConfig, bootstrapped, fit_outcome_model
from cirl_gym.outcome_models.model import EnsembleModel
from cirl_gym.outcome_models.oracle import OracleModel


def test_the_mean_of_its_members():
    members = [random_model("ar", 1), random_model("crn", 2), random_model("mb_x", 3)]
    model, batch = EnsembleModel(members), linear_system(10, 0, noise=1.0)
    states = model.encode(batch)
    apart = [(member.predict(s), member.end_probability(s)) for member, s in ((m, m.encode(batch)) for m in members)]
    np.testing.assert_allclose(model.predict(states), np.mean([p for p, _ in apart], axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(model.end_probability(states), np.mean([e for _, e in apart], axis=0), rtol=1e-6)
    np.testing.assert_array_equal(model.every_prediction(states), np.stack([p for p, _ in apart]))
    assert model.noise_scale == pytest.approx([0.1, 0.2])
    assert EnsembleModel(members, np.array([1.0, 2.0])).noise_scale == pytest.approx([1.0, 2.0])


def test_the_order_of_members_changes_nothing():
    members, batch = [random_model("ar", seed) for seed in (1, 2, 3)], linear_system(10, 0, noise=1.0)
    one, other = EnsembleModel(members), EnsembleModel(members[::-1])
    np.testing.assert_allclose(*(m.predict(m.encode(batch)) for m in (one, other)), rtol=1e-6, atol=1e-6)


def test_members_are_of_one_kind_of_data():
    with pytest.raises(ValueError, match="two members"):
        EnsembleModel([random_model("ar")])
    with pytest.raises(ValueError, match="same features"):
        EnsembleModel([random_model("ar"), OracleModel()])


def test_fitted_members_differ_and_their_mean_is_not_worse():
    train, validation, test = (linear_system(n, s, noise=1.0) for n, s in ((120, 0), (40, 1), (100, 2)))
    config = replace(brief(5, base=False), members=3)
    ticks = []
    fitted = fit_outcome_model(
        "mb_h", train, validation, config, np.random.default_rng(0), lambda *tick: ticks.append(tick)
    )
    assert [done for done, _ in ticks] == sorted(done for done, _ in ticks)
    assert ticks[-1][0] == ticks[-1][1]
    model = fitted.model
    assert isinstance(model, EnsembleModel)
    every = model.every_prediction(model.encode(test)[:, :-1])
    assert every.std(axis=0)[test.mask].mean() > 0.01
    squares = ((every - test.next_obs[None, :, :, None]) ** 2)[:, test.mask].mean(axis=(1, 2, 3))
    mean = ((model.predict(model.encode(test)[:, :-1]) - test.next_obs[:, :, None]) ** 2)[test.mask].mean()
    assert mean < squares.mean()
    assert len(fitted.report["members"]) == 3
    assert fitted.report["factual"]["validation"]["pooled"] > 0


def test_a_bootstrap_takes_patients_whole():
    batch = linear_system(30, 0)
    owned = replace(batch, groups=tuple(f"p{i // 3}" for i in range(30)))
    drawn = bootstrapped(owned, np.random.default_rng(0))
    assert len(drawn) == 30
    counts = {name: drawn.groups.count(name) for name in set(drawn.groups)}
    assert all(count % 3 == 0 for count in counts.values())
    assert len(counts) < 10
    config = replace(OutcomeModelConfig(), members=2, bootstrap=True)
    model = fit_outcome_model("ar", batch, batch, config, np.random.default_rng(0)).model
    one, two = (member.law.intercept for member in model.members)
    assert not np.array_equal(one, two)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="members"):
        OutcomeModelConfig(members=0)
