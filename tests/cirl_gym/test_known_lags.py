"""A feature that is what another was one step earlier is known, and changes nothing of the law of the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from outcome_batches import linear_system

from cirl_gym.data.outcomes import with_lags
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.law import AutoregressionConfig, fit_autoregression, fit_law, known_lags

PLAIN = linear_system(60, 0, noise=0.3), linear_system(30, 1, noise=0.3)
WIDE = tuple(with_lags(batch, ("y",)) for batch in PLAIN)
CONFIG = AutoregressionConfig(max_order=3)


def test_it_is_found_by_its_name_and_by_the_data():
    assert known_lags(PLAIN[0]) == {}
    assert known_lags(WIDE[0]) == {2: 1}
    assert known_lags(with_lags(PLAIN[0], ("y", "x"))) == {2: 1, 3: 0}
    other = np.array(WIDE[0].obs)
    other[3, 2, 2] += 1
    assert known_lags(replace(WIDE[0], obs=other)) == {}, "a column of that name that is something else"


def test_the_law_of_the_others_stays_to_the_byte():
    alone, wide = fit_autoregression(*PLAIN, CONFIG), fit_law(*WIDE, CONFIG)
    assert (wide.order, wide.strength) == (alone.order, alone.strength)
    assert fit_law(*PLAIN, CONFIG).law.coefficients.tobytes() == alone.law.coefficients.tobytes()
    rows = wide.law.window.encode(WIDE[1])[:, :-1][WIDE[1].mask]
    said = alone.law(alone.law.window.encode(PLAIN[1])[:, :-1][PLAIN[1].mask])
    np.testing.assert_allclose(wide.law(rows)[..., :2], said, rtol=1e-12, atol=1e-12)
    now = WIDE[1].obs[:, :-1, 1][WIDE[1].mask]
    np.testing.assert_array_equal(wide.law(rows)[..., 2], np.repeat(now[:, None], 3, axis=1))
    assert (wide.low[2], wide.high[2]) == (wide.low[1], wide.high[1])
    assert not wide.limits[2].any


@pytest.mark.parametrize("kind", ["ar", "mb_h"])
def test_a_model_predicts_it_without_error(kind):
    model = fit_outcome_model(kind, *WIDE, OutcomeModelConfig.quick(), np.random.default_rng(0)).model
    predicted = model.predict(model.encode(WIDE[1])[:, :-1])[WIDE[1].mask]
    now = WIDE[1].obs[:, :-1, 1][WIDE[1].mask]
    np.testing.assert_allclose(predicted[..., 2], np.repeat(now[:, None], 3, axis=1), atol=0.0 if kind == "ar" else 0.1)
    assert model.noise(np.ones((4, 3)))[:, 2].tolist() == pytest.approx([0.0] * 4, abs=0.0 if kind == "ar" else 0.1)
