"""Fitting any of the outcome models: what is learnt, what is accepted, what is refused.

Also features that change by shares of their size, several models as one, and weights of treatments.
"""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from brief_fits import NETWORKS, brief
from outcome_batches import confounded, cut_off, linear_system, random_model
from threadpoolctl import threadpool_limits

from cirl_gym.data.batch import Batch
from cirl_gym.diagnostics import row_weights
from cirl_gym.outcome_models import fitting
from cirl_gym.outcome_models.correction import treatment_weights
from cirl_gym.outcome_models.errors import factual_error
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, bootstrapped, fit_outcome_model
from cirl_gym.outcome_models.inputs import KINDS, Scaler, sequence_inputs, taken
from cirl_gym.outcome_models.law import AutoregressionConfig
from cirl_gym.outcome_models.model import EnsembleModel
from cirl_gym.outcome_models.networks import CorrectingNetwork, PropensityConfig, PropensityNetwork, RMSNConfig
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model, save_model
from cirl_gym.outcome_models.terms import STRAIGHT
from cirl_gym.outcome_models.training import seeded


def curved_system(episodes: int, seed: int) -> Batch:
    """X' = .9 x + sin(2 x) + a cos(x): no linear law comes near."""
    rng = np.random.default_rng(seed)
    obs, actions = 2 * rng.normal(size=(episodes, 9, 1)), rng.integers(2, size=(episodes, 8))
    for t in range(8):
        x = obs[:, t, 0]
        obs[:, t + 1, 0] = 0.9 * x + np.sin(2 * x) + actions[:, t] * np.cos(x) + 0.05 * rng.normal(size=episodes)
    return cut_off(obs, actions, ("x",), ("0", "1"))


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("base", [True, False])
def test_a_network_corrects_what_no_line_can_follow(kind, base):
    train, validation, test = (curved_system(n, seed) for n, seed in ((300, 0), (100, 1), (100, 2)))
    law = fit_outcome_model("ar", train, validation, brief(1), np.random.default_rng(0)).model
    fitted = fit_outcome_model(kind, train, validation, brief(40, base), np.random.default_rng(0))
    assert fitted.report["correction"]["kept"]
    assert (fitted.model.correction.network.lstm is None) == (kind == "mb_x")
    # MB(x) takes more epochs for the same curve.
    share = 0.75 if kind == "mb_x" else 0.6
    assert factual_error(fitted.model, test).raw[0] < share * factual_error(law, test).raw[0]


@pytest.mark.parametrize("kind", NETWORKS)
def test_an_untrained_correction_is_zero_and_one_that_is_only_noise_is_not_accepted(kind):
    network = CorrectingNetwork(2, 3, OutcomeModelConfig().network(kind)).eval()
    correction = network.correction(network.represent(network.read(torch.ones(1, 4, 5))[0]))
    assert correction.shape == (4, 3, 2)
    assert not correction.any()
    train, validation = linear_system(150, 0, noise=1.0), linear_system(40, 1, noise=1.0)
    fitted = fit_outcome_model(kind, train, validation, brief(3), np.random.default_rng(0))
    assert not fitted.report["correction"]["kept"]
    assert fitted.model.correction is None
    order = AutoregressionConfig(max_order=1) if kind == "mb_x" else AutoregressionConfig()
    law = fit_outcome_model(
        "ar", train, validation, replace(brief(3), autoregression=order), np.random.default_rng(9)
    ).model
    assert np.array_equal(*(m.predict(m.encode(validation)) for m in (fitted.model, law)))


def fitted_bytes(kind, train, validation, seed):
    fitted = fit_outcome_model(kind, train, validation, brief(2, base=False), np.random.default_rng(seed))
    return fitted.model.predict(fitted.model.encode(validation)).tobytes(), fitted.report


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bytes(kind):
    train, validation = confounded(120)
    torch.manual_seed(1)
    one = fitted_bytes(kind, train, validation, 4)
    torch.manual_seed(2)
    np.random.default_rng(3)
    assert fitted_bytes(kind, train, validation, 4) == one
    if kind != "ar":
        assert fitted_bytes(kind, train, validation, 5)[0] != one[0]


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("filling", [7.0, np.nan, 1e30])
def test_what_stands_in_the_padding_never_enters_the_fit(kind, filling):
    train, validation = linear_system(60, 0, noise=1.0), linear_system(20, 1, noise=1.0)
    obs = np.pad(train.obs, ((0, 0), (0, 8), (0, 0))).astype(np.float64)
    actions = np.pad(train.actions, ((0, 0), (0, 8)))
    obs[np.arange(21) > train.lengths[:, None]] = filling
    actions[np.arange(20) >= train.lengths[:, None]] = 99
    config = brief(1, base=False)
    plain, filled = (
        fit_outcome_model(kind, data, validation, config, np.random.default_rng(0)).model
        for data in (train, replace(train, obs=obs, actions=actions))
    )
    np.testing.assert_allclose(*(m.predict(m.encode(validation)) for m in (plain, filled)), rtol=0, atol=1e-4)


def test_episodes_of_one_action_constant_features_and_untaken_actions_can_be_fitted():
    batch = linear_system(40, 0, noise=1.0)
    one = replace(batch, lengths=np.ones(40, dtype=np.int64))
    for kind in KINDS:
        fitted = fit_outcome_model(kind, one, one, brief(1, base=False), np.random.default_rng(0))
        assert fitted.report["factual"]["train"]["n"] == 40
    batch = linear_system(60, 0, noise=1.0)
    obs = batch.obs.copy()
    obs[..., 1] = 0.1
    flat = replace(batch, obs=obs, actions=np.minimum(batch.actions, 1))
    for kind in KINDS:
        with pytest.warns(UserWarning, match="action 'high' is never taken"):
            model = fit_outcome_model(kind, flat, flat, brief(1, base=False), np.random.default_rng(0)).model
        predicted = model.predict(model.encode(flat))
        assert np.isfinite(predicted).all()
        assert predicted[flat.lengths > 0, 0, :, 1] == pytest.approx(0.1)


def test_progress_runs_to_the_end():
    train, validation = confounded(60)
    for kind in KINDS:
        done, planned = [], []

        def tell(step, total, done=done, planned=planned):
            done.append(step)
            planned.append(total)

        fit_outcome_model(kind, train, validation, brief(2), np.random.default_rng(0), tell)
        assert done == sorted(done)
        assert done[-1] == planned[-1]


def test_static_covariates_stay_as_they_are():
    batch = linear_system(80, 0, noise=1.0)
    rng = np.random.default_rng(1)
    age = np.broadcast_to(rng.normal(60, 15, size=(80, 1, 1)).astype(np.float32), (80, 13, 1))
    wide = replace(batch, obs=np.concatenate([batch.obs, age], axis=2), features=("x", "y", "age"))
    for kind in KINDS:
        model = fit_outcome_model(kind, wide, wide, brief(2, base=False), np.random.default_rng(0)).model
        states = model.encode(wide)
        assert (model.predict(states)[wide.seen][..., 2] == wide.obs[wide.seen][:, None, 2]).all()
        law = fit_outcome_model(kind, wide, wide, brief(2), np.random.default_rng(0)).model
        assert (law.predict(law.encode(wide))[wide.seen][..., 2] == wide.obs[wide.seen][:, None, 2]).all()
        assert law.noise_scale[2] == 0


def test_bad_requests_settings_and_divergence_are_errors(monkeypatch):
    train, validation = confounded(40)
    with pytest.raises(ValueError, match="kind must be"):
        fit_outcome_model("lstm", train, validation, brief(1), np.random.default_rng(0))
    with pytest.raises(ValueError, match="same features"):
        fit_outcome_model("ar", train, linear_system(5, 0), brief(1), np.random.default_rng(0))
    with pytest.raises(ValueError, match="members"):
        OutcomeModelConfig(members=0)
    with pytest.raises(ValueError, match="clip"):
        RMSNConfig(clip=0.5)
    with pytest.raises(ValueError, match="hidden"):
        PropensityConfig(hidden=0)
    with pytest.raises(ValueError, match="sizes"):
        RMSNConfig(hidden=0)
    train, validation = confounded(60)
    monkeypatch.setattr(CorrectingNetwork, "side_loss", lambda self, representation, *_: representation.sum() * np.nan)
    with pytest.raises(ValueError, match="training stopped at step 1 "):
        fit_outcome_model("crn", train, validation, brief(1), np.random.default_rng(0))


def shares(episodes: int, seed: int) -> Batch:
    """A size that grows by a fifth, or shrinks by two fifths when treated; and a coordinate that drifts."""
    rng = np.random.default_rng(seed)
    obs, actions = np.zeros((episodes, 11, 2)), rng.integers(2, size=(episodes, 10))
    obs[:, 0] = np.stack([np.exp(rng.normal(2, 1.5, size=episodes)), rng.normal(size=episodes)], axis=1)
    for t in range(10):
        rate = np.where(actions[:, t] == 1, 0.6, 1.2) * (1 + 0.01 * rng.normal(size=episodes))
        obs[:, t + 1, 0] = obs[:, t, 0] * rate
        obs[:, t + 1, 1] = obs[:, t, 1] + 0.5 * actions[:, t] + 0.1 * rng.normal(size=episodes)
    return cut_off(obs, actions, ("size", "place"), ("no", "yes"))


@pytest.mark.parametrize("kind", NETWORKS)
def test_shares_are_learnt_where_no_line_can(kind, tmp_path):
    train, validation, test = shares(300, 0), shares(60, 1), shares(200, 2)
    straight = replace(brief(1), autoregression=AutoregressionConfig(shapes=(STRAIGHT, STRAIGHT)))
    line = fit_outcome_model("ar", train, validation, straight, np.random.default_rng(0)).model
    config = replace(brief(15), relative=("size",))
    model = fit_outcome_model(kind, train, validation, config, np.random.default_rng(0)).model
    assert model.spec.relative == ("size",)
    error, of_line = (factual_error(one, test).raw for one in (model, line))
    assert error[0] < 0.3 * of_line[0]
    assert error[1] < 1.1 * of_line[1]
    save_model(model, tmp_path / "model.npz")
    loaded, states = load_model(tmp_path / "model.npz"), model.encode(test)
    assert np.array_equal(loaded.predict(states), model.predict(states))
    assert np.array_equal(loaded.encode(test), states)


def test_twice_the_unit_twice_the_prediction():
    train, validation = shares(200, 0), shares(50, 1)
    scaled = [replace(one, obs=one.obs * np.array([1000, 1], dtype=np.float32)) for one in (train, validation)]
    config = replace(brief(4), relative=("size",))
    predicted = []
    for one, other in ((train, validation), scaled):
        model = fit_outcome_model("mb_h", one, other, config, np.random.default_rng(0)).model
        predicted.append(model.predict(model.encode(other)[:, :-1]))
        empty = np.array([[0.0, 1.0]], dtype=np.float32)
        assert (model.predict(model.start(empty))[..., 0] == 0).all(), "nothing stays nothing"
    np.testing.assert_allclose(predicted[1][..., 0], 1000 * predicted[0][..., 0], rtol=2e-3)


def test_logarithms_by_hand_and_features_that_cannot_have_them():
    batch = shares(10, 0)
    scaler = Scaler.from_batch(batch).with_logarithms(batch, np.array([True, False]))
    middle = np.median(batch.obs[batch.seen][:, 0].astype(np.float64))
    logs = np.log(batch.obs[batch.seen][:, 0].astype(np.float64) + 0.01 * middle)
    assert scaler.mean[0] == pytest.approx(logs.mean())
    value = scaler(np.array([[3.0, 0.0], [0.0, 0.0]]))
    assert value[0, 0] == pytest.approx((np.log(3 + 0.01 * middle) - logs.mean()) / logs.std(), rel=1e-5)
    assert np.isfinite(value).all()
    assert scaler(batch.obs)[batch.seen].mean(axis=0) == pytest.approx([0, 0], abs=1e-5)
    batch = linear_system(30, 0, noise=1.0)
    for kind, names, message in (
        ("crn", ("z",), "'z' is not a feature"),
        ("crn", ("x",), "'x' is negative in some rows"),
        ("ar", ("x",), "need a network"),
    ):
        config = replace(brief(1), relative=names)
        with pytest.raises(ValueError, match=message):
            fit_outcome_model(kind, batch, batch, config, np.random.default_rng(0))
    with pytest.raises(ValueError, match="offset"):
        Scaler(np.zeros(2), np.ones(2), np.array([-1.0, 0.0]))


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

    turned = EnsembleModel(members[::-1])
    np.testing.assert_allclose(turned.predict(turned.encode(batch)), model.predict(states), rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="two members"):
        EnsembleModel([random_model("ar")])
    with pytest.raises(ValueError, match="same features"):
        EnsembleModel([random_model("ar"), OracleModel()])


def test_fitted_members_differ_and_their_mean_is_not_worse():
    train, validation, test = (linear_system(n, s, noise=1.0) for n, s in ((120, 0), (40, 1), (100, 2)))
    config = replace(brief(5, base=False), members=3)
    ticks = []
    rng = np.random.default_rng(0)
    fitted = fit_outcome_model("mb_h", train, validation, config, rng, lambda *tick: ticks.append(tick))
    assert ticks == sorted(ticks)
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


def weights(train, validation, clip=0.01):
    return treatment_weights(train, validation, Scaler.from_batch(train), PropensityConfig(), clip, (0, 1))


def confound(batch, slope, seed=0):
    """Actions 0 and 1 by a rule on the current x, which no earlier x or treatment foretells."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(scale=3.0, size=batch.obs.shape)
    p = 1 / (1 + np.exp(-slope * obs[:, :-1, 0]))
    return replace(batch, obs=obs, actions=(rng.random(p.shape) < p).astype(np.int64)), p


def test_independent_treatment_has_weights_near_one_and_clipping_moves_tails_to_quantiles():
    train, validation = linear_system(400, 0, noise=1.0), linear_system(100, 1, noise=1.0)
    (rows, held_out), report = weights(train, validation)
    assert report.mean == pytest.approx(1.0, abs=0.05)
    assert report.effective_share > 0.95
    assert rows[train.mask].mean() == pytest.approx(1.0)
    assert not rows[~train.mask].any()
    assert not held_out[~validation.mask].any()
    train, _ = confound(linear_system(300, 0, noise=1.0), 1.0)
    validation, _ = confound(linear_system(80, 1, noise=1.0), 1.0, 1)
    ((wide, _), one), ((narrow, _), other) = (weights(train, validation, clip) for clip in (0.0, 0.2))
    quantile = np.quantile(wide[train.mask], 0.8) * one.mean
    assert narrow.max() * other.mean == other.largest * other.mean == pytest.approx(quantile)
    assert other.effective_share > one.effective_share
    # A fifth of the rows lies beyond either quantile.
    assert (one.clipped, one.rows) == (0, train.n_steps)
    assert other.clipped == pytest.approx(0.4 * train.n_steps, abs=2)


def test_a_rule_is_recovered():
    (train, p), (validation, _) = (confound(linear_system(n, s, noise=1.0), 0.5, s) for n, s in ((1500, 0), (300, 1)))
    (rows, _), report = weights(train, validation, clip=0.0)
    given = np.where(train.actions == 1, p, 1 - p)[train.mask]
    assert np.corrcoef(np.log(rows[train.mask]), -np.log(given))[0, 1] > 0.97
    # E[marginal / given] = 1 whatever the rule.
    assert report.mean == pytest.approx(1.0, abs=0.1)
    assert report.effective_share < 0.9


def test_how_rows_were_weighed_stays_with_the_network_and_its_file(tmp_path):
    train, validation = linear_system(60, 0, noise=1.0), linear_system(20, 1, noise=1.0)
    fitted = fit_outcome_model("rmsn", train, validation, brief(1, base=False), np.random.default_rng(0))
    kept = fitted.model.correction.weights
    assert asdict(kept) == fitted.report["weights"]
    assert 0 < kept.clipped <= 0.03 * kept.rows
    save_model(fitted.model, tmp_path / "model.npz")
    assert load_model(tmp_path / "model.npz").correction.weights == kept
    assert row_weights(fitted.model) == row_weights(EnsembleModel([fitted.model, random_model("ar")])) == (kept,)
    assert row_weights(random_model("crn")) == ()


@pytest.mark.slow
def test_with_independent_treatment_weighing_changes_nothing():
    train, validation, test = (linear_system(n, s, noise=1.0) for n, s in ((2000, 0), (400, 1), (1000, 2)))
    errors = {}
    for kind in ("mb_h", "rmsn"):
        config = OutcomeModelConfig(base=False)
        model = fit_outcome_model(kind, train, validation, config, np.random.default_rng(0)).model
        squares = ((taken(model.predict(model.encode(test)[:, :-1]), test) - test.next_obs) ** 2)[test.mask]
        errors[kind] = float(np.sqrt(squares.mean()))
    assert errors["rmsn"] == pytest.approx(errors["mb_h"], rel=0.02)


def test_propensities_do_not_look_ahead():
    """A weight of a step depends on what came before it, the step's own treatment, and nothing later."""
    batch = linear_system(20, 0, noise=1.0)
    with seeded(0):
        network = PropensityNetwork(5, 3, 8).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    scaler = Scaler.from_batch(batch)
    obs, actions = batch.obs.copy(), batch.actions.copy()
    obs[:, 6:], actions[:, 5:] = 100.0, 2
    later = replace(batch, obs=obs, actions=actions)
    with torch.inference_mode():
        one, other = (network(torch.from_numpy(sequence_inputs(scaler, b)[:, :-1])) for b in (batch, later))
    assert torch.equal(one[:, :6], other[:, :6])
    assert not torch.equal(one[:, 6:], other[:, 6:])


def test_the_law_does_not_depend_on_the_threads_of_blas():
    train, validation = confounded(400)
    fits = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            fits.append(
                fit_outcome_model("ar", train, validation, OutcomeModelConfig(), np.random.default_rng(0)).model
            )
    for name in ("intercept", "coefficients", "effects"):
        assert np.array_equal(getattr(fits[0].law, name), getattr(fits[1].law, name)), name


def test_of_very_many_decisions_a_law_is_chosen_by_a_part_and_fitted_to_more(monkeypatch):
    """Order, ridge and terms are those of the part; the numbers are nearer to the truth than the part's own."""
    train, validation = linear_system(1500, 0, noise=1.0), linear_system(200, 1, noise=1.0)

    def fitted(**limits: int):
        for name, value in limits.items():
            monkeypatch.setattr(fitting, name, value)
        return fit_outcome_model("ar", train, validation, OutcomeModelConfig(), np.random.default_rng(0))

    def off(found) -> float:
        law, true = found.model.law, np.array([[0, 0], [2, 0], [2, -1]])  # taken as numbers 0, 1, 2: 2 a is 0, 2, 4
        true[2, 0] = 4
        return float(np.abs(law.effects - law.effects[0] - true).max())

    whole = fitted()
    part = fitted(MOST_DECISIONS=600, ENOUGH_TO_CHOOSE=600)
    more = fitted(MOST_DECISIONS=10**9, ENOUGH_TO_CHOOSE=600)
    assert part.report["decisions"]["train"] <= 600 < more.report["decisions"]["train"] == train.n_steps
    assert {"order", "strength", "terms"} <= part.report["law"].keys()
    assert [more.report["law"][key] for key in ("order", "strength")] == [
        part.report["law"][key] for key in ("order", "strength")
    ]
    assert off(more) < off(part)
    assert off(whole) < 0.2
