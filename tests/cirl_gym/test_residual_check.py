"""What is found in a law's errors, and that no network is trained where nothing is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from brief_fits import brief
from outcome_batches import confounded, cut_off, linear_system

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.residual_check import ResidualCheck, check_residuals, history_inputs
from cirl_gym.outcome_models.training import Watch


def remembering(episodes: int, seed: int) -> Batch:
    """X is noise around the share of all earlier actions that were 1, which no few of them tell."""
    rng = np.random.default_rng(seed)
    obs, actions = rng.normal(size=(episodes, 31, 1)), rng.integers(2, size=(episodes, 30))
    obs[:, 1:, 0] += 20 * (actions.cumsum(axis=1) / np.arange(1, 31) - 0.5)
    return cut_off(obs, actions, ("x",), ("0", "1"))


def law_of(train: Batch, validation: Batch):
    return fit_outcome_model("ar", train, validation, brief(1), np.random.default_rng(0)).model


def checked(make, train=300, validation=100) -> ResidualCheck:
    batches = make(train, 0), make(validation, 1)
    return check_residuals(law_of(*batches), *batches)


def noisy(episodes: int, seed: int) -> Batch:
    return linear_system(episodes, seed, noise=1.0)


def test_what_is_seen_of_a_history_by_hand():
    obs, actions = np.array([[[1.0], [3.0], [5.0], [9.0]]]), np.array([[1, 0, 1]])
    rows = history_inputs(cut_off(obs, actions, ("x",), ("0", "1"), np.array([3])))
    # Ten observations, newest first, and nine actions before as two columns each; then what stands for the rest.
    assert rows.shape == (3, 10 + 18 + 1 + 1 + 2 + 2 + 1)
    np.testing.assert_array_equal(rows[2, :4], [5, 3, 1, 1])
    np.testing.assert_array_equal(rows[2, 10:14], [1, 0, 0, 1])
    # First observation, step, mean of x and of the actions before, their running means, the action.
    np.testing.assert_allclose(rows[2, 28:], [1, 2, 3, 1 / 3, 0.75 * 1.5 + 0.25 * 5, 0.75 * 0.25, 1])
    np.testing.assert_allclose(rows[0, 28:], [1, 0, 1, 0, 1, 0, 1])


def test_nothing_is_found_in_noise_and_something_where_the_past_goes_on():
    assert not checked(noisy).predictable
    found = checked(remembering)
    assert found.predictable
    assert found.pooled[0] > 0.1
    # A law of the last observation alone misses what the LSTM of others would find.
    train, validation = confounded(400)
    short = replace(brief(1), autoregression=replace(OutcomeModelConfig().autoregression, max_order=1))
    law = fit_outcome_model("ar", train, validation, short, np.random.default_rng(0)).model
    assert check_residuals(law, train, validation).pooled[0] > 0.3
    assert not check_residuals(law_of(train, validation), train, validation).predictable


def test_gains_and_errors_are_of_episodes_and_the_judgement_is_of_all_and_of_each():
    batches = remembering(200, 0), remembering(50, 1)
    law, (train, validation) = law_of(*batches), batches
    found = check_residuals(law, *batches)
    assert found == check_residuals(law, train.padded(40), validation.padded(35))
    turned = check_residuals(law, train, validation.take(np.arange(50)[::-1]))
    np.testing.assert_allclose([*turned.pooled, turned.law_loss], [*found.pooled, found.law_loss], rtol=1e-9)
    # The same episodes twice: the same gain, an error smaller by the root of two.
    twice = check_residuals(law, train, validation.resampled(np.tile(np.arange(50), 2)))
    np.testing.assert_allclose(twice.pooled, np.array(found.pooled) / [1, np.sqrt(2)], rtol=1e-9)
    assert found.gain == found.pooled[:1]
    for gain, pooled, said in (
        ((0.0, 0.0), (0.11, 0.1), True),
        ((0.0, 0.21), (0.0, 0.1), True),
        ((0.19, 0.19), (0.09, 0.1), False),
        ((-1.0, -1.0), (-1.0, 0.1), False),
    ):
        assert ResidualCheck(gain, (0.1, 0.1), pooled, 1.0).predictable == said


def test_what_the_law_says_exactly_has_no_gain():
    train, validation = (
        replace(
            batch,
            obs=np.concatenate([batch.obs, np.full_like(batch.obs[..., :1], 7.0)], axis=2),
            features=("x", "y", "z"),
        )
        for batch in (noisy(80, 0), noisy(40, 1))
    )
    found = check_residuals(law_of(train, validation), train, validation)
    assert (found.gain[2], found.standard_error[2]) == (0, 0)
    assert found.pooled[0] == pytest.approx(np.mean(found.gain))


def test_a_network_is_trained_only_where_something_is_found_unless_it_is_asked_for():
    batches, asked = (noisy(150, 0), noisy(60, 1)), []
    watch = Watch(on_epoch=lambda name, *_: asked.append(name))
    law = law_of(*batches)
    for check, tried in ((True, False), (False, True)):
        asked.clear()
        config = replace(brief(2), check=check)
        fitted = fit_outcome_model("crn", *batches, config, np.random.default_rng(0), watch=watch)
        assert ("correction" in asked) == tried
        assert fitted.report["correction"]["tried"] == tried
        assert fitted.report["correction"]["kept"] is False
        assert (fitted.report["residual_check"] is None) != check
        np.testing.assert_array_equal(*(model.predict(model.encode(batches[1])) for model in (fitted.model, law)))
        loss = fitted.report["correction"]["validation_loss_of_law"]
        assert loss == pytest.approx(1.0, abs=0.2)
    fitted = fit_outcome_model("mb_x", *batches, brief(2), np.random.default_rng(0))
    assert fitted.report["residual_check"]["predictable"]
    assert fitted.report["correction"]["tried"]
    # Neither is asked where the law is not what is corrected.
    sizes = [replace(batch, obs=np.abs(batch.obs)) for batch in batches]
    for config in (brief(1, base=False), replace(brief(1), relative=("x",))):
        assert fit_outcome_model("mb_h", *sizes, config, np.random.default_rng(0)).report["residual_check"] is None


@pytest.mark.parametrize("filling", [np.nan, np.inf, 3e38])
def test_what_stands_in_the_padding_is_never_seen(filling):
    train, validation = remembering(60, 0), remembering(30, 1)
    wide = train.padded(40)
    obs, actions = wide.obs.copy(), wide.actions.copy()
    obs[~wide.seen], actions[~wide.mask] = filling, 99
    law = law_of(train, validation)
    assert check_residuals(law, replace(wide, obs=obs, actions=actions), validation) == check_residuals(
        law, train, validation
    )


def test_one_decision_is_enough_to_be_asked():
    one = replace(noisy(1, 0), lengths=np.ones(1, dtype=np.int64))
    found = check_residuals(law_of(noisy(20, 0), noisy(20, 1)), one, one)
    assert np.isfinite([*found.pooled, *found.gain, found.law_loss]).all()
