"""How likely actions are: by hand, by invariance, of a pool of plans, among all actions or among those allowed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from posteriors import known_posterior
from scipy.optimize import minimize
from small_batches import batch_of
from tiny_run import fitted, make_the_command_line_tiny, tiny_demo, tiny_fit

from cirl_gym.files import read_arrays, write_arrays
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.outcome_models.model import EnsembleModel
from irl.checks.metrics import averaged_log_likelihood
from irl.commands.cli import main
from irl.commands.options import ModelArguments
from irl.pipeline import simulate
from irl.preferences import PosteriorResult, SamplerReport
from irl.preferences.likelihood import (
    PlanPool,
    action_log_likelihood,
    bootstrap_weights,
    by_group,
    constant_chances,
    even_log_chances,
    log_chances,
    per_decision,
    taken_log_probabilities,
)
from irl.preferences.posterior import with_model_spread
from irl.stages import stages
from irl.stored_stages import MemberPosterior

BATCH = batch_of([0, 1, 1], [1], [0, 0], groups=("p", "q", "p"))


def masked_batch(seed=0, n_actions=3, episodes=6, steps=4):
    rng = np.random.default_rng(seed)
    batch = batch_of(*rng.integers(n_actions, size=(episodes, steps)).tolist(), n_actions=n_actions)
    allowed = rng.random((episodes, steps, n_actions)) < 0.5
    np.put_along_axis(allowed, batch.actions[..., None], True, axis=2)
    return replace(batch, allowed=allowed)


def pool_of(batch, seed=0, plans=4, d=2, scale=1.0) -> PlanPool:
    rng = np.random.default_rng(seed)
    return PlanPool(batch, scale * rng.normal(size=(plans, *batch.actions.shape, batch.n_actions, d)))


class TestActions:
    def test_by_hand_and_finite_at_extremes(self):
        # kappa = ln 3 and q = (0, 1): the better action has probability 3/4. kappa = 0: one half.
        batch = batch_of([1, 1], [0])
        q = np.zeros((2, 2, 2))
        q[..., 1] = 1.0
        expected = [[2 * np.log(3 / 4), np.log(1 / 4)], [2 * np.log(1 / 2), np.log(1 / 2)]]
        np.testing.assert_allclose(action_log_likelihood(q, batch, [np.log(3), 0.0]), expected)
        q = np.array([[[-1e3, 1e3, 0.0]], [[-1e3, 1e3, 0.0]]], dtype=np.float32)
        result = action_log_likelihood(q, batch_of([0], [1], n_actions=3), [1e6])
        np.testing.assert_allclose(result, [[-2e9, 0.0]])

    def test_only_what_matters_matters(self):
        rng = np.random.default_rng(0)
        batch = batch_of([0, 2, 1], [1], [2, 0], n_actions=3)
        q, kappas = rng.normal(size=(3, 3, 3)), np.array([0.5, 20.0])
        plain = action_log_likelihood(q, batch, kappas)
        padded = np.pad(np.where(batch.mask[..., None], q, np.nan), ((0, 0), (0, 4), (0, 0)), constant_values=1e30)
        np.testing.assert_array_equal(action_log_likelihood(padded, batch.padded(7), kappas), plain)
        np.testing.assert_allclose(action_log_likelihood(3 * q, batch, kappas / 3), plain)
        np.testing.assert_allclose(action_log_likelihood(q + rng.normal(size=(3, 3, 1)), batch, kappas), plain)
        order = np.array([2, 0, 1])
        np.testing.assert_allclose(action_log_likelihood(q[order], batch.take(order), kappas), plain[:, order])
        renamed = batch_of([2, 1, 0], [0], [1, 2], n_actions=3)  # 0 -> 2, 1 -> 0, 2 -> 1
        np.testing.assert_allclose(action_log_likelihood(q[..., [1, 2, 0]], renamed, kappas), plain)

    def test_bad_input(self):
        batch, q = batch_of([0, 1]), np.zeros((1, 2, 2))
        for kappas in ([-1.0], [np.inf], 1.0):
            with pytest.raises(ValueError, match="kappas must be"):
                action_log_likelihood(q, batch, kappas)
        with pytest.raises(ValueError, match="q must be"):
            action_log_likelihood(np.zeros((1, 2, 3)), batch, [1.0])
        with pytest.raises(ValueError, match="q is not finite"):
            action_log_likelihood(q * np.nan, batch, [1.0])

    def test_groups_and_their_bootstrap_weights(self):
        table = np.array([[1.0, 2.0, 4.0, 8.0], [0.0, 0.0, 1.0, 1.0]])
        np.testing.assert_array_equal(by_group(table, ("q", "p", "q", "r")), [[2, 5, 8], [0, 1, 1]])
        np.testing.assert_array_equal(by_group(table[0], ("q", "p", "q", "r")), [2, 5, 8])
        with pytest.raises(ValueError, match="4 episodes and 2 group names"):
            by_group(table, ("q", "p"))
        weights = bootstrap_weights(10, 20_000, np.random.default_rng(0))
        np.testing.assert_allclose(weights.mean(axis=1), 1.0)
        np.testing.assert_allclose(weights.mean(axis=0), 1.0, atol=0.03)
        # Dirichlet(1, ..., 1) times n: variance (n - 1)/(n + 1).
        np.testing.assert_allclose(weights.var(axis=0), 9 / 11, atol=0.06)

    def test_what_is_forbidden_does_not_count_and_a_forced_decision_says_nothing(self):
        # Values 1, 2, 5; the last is forbidden; the first was taken: p = 1 / (1 + e^kappa), whatever the 5 is.
        batch = replace(batch_of([0], n_actions=3), allowed=np.array([[[True, True, False]]]))
        kappas = np.array([0.0, 1.0, 20.0])
        for third in (5.0, -1e6, np.inf, np.nan):
            found = action_log_likelihood(np.array([[[1.0, 2.0, third]]]), batch, kappas)
            np.testing.assert_allclose(found[:, 0], -np.log1p(np.exp(kappas)))
        batch = replace(batch_of([1, 0]), allowed=np.array([[[False, True], [True, True]]]))
        q = np.array([[[7.0, -3.0], [1.0, 2.0]]])
        np.testing.assert_allclose(action_log_likelihood(q, batch, [1.0])[0], -np.log1p(np.e))
        q[0, 1, 1] = -np.inf
        with pytest.raises(ValueError, match="not finite"):
            action_log_likelihood(q, batch, [1.0])


class TestDecisions:
    STAYS = batch_of([0, 1], [1], [1, 1, 0])

    def test_log_probabilities_of_the_actions_taken(self):
        p = np.zeros((3, 3, 2))
        p[0, :2] = [[0.9, 0.1], [0.2, 0.8]]
        p[1, 0] = [0.5, 0.5]
        p[2] = [[0.3, 0.7], [0.6, 0.4], [0.9, 0.1]]
        with np.errstate(divide="ignore"):
            found = taken_log_probabilities(np.log(p), self.STAYS)
        np.testing.assert_allclose(np.exp(found), [0.9 * 0.8, 0.5, 0.7 * 0.4 * 0.9])
        same = taken_log_probabilities(np.log([0.25, 0.75]), self.STAYS)
        np.testing.assert_allclose(np.exp(same), [0.25 * 0.75, 0.75, 0.75**2 * 0.25])

    def test_the_mean_per_decision_and_its_error_with_patients_as_the_unit(self):
        mean, error = per_decision(np.array([-2.0, -1.0, -6.0]), self.STAYS)
        assert mean == pytest.approx(-9 / 6)
        # What is left over -1.5 per decision: 1, .5, -1.5; three patients.
        assert error == pytest.approx(np.sqrt(3 / 2 * (1 + 0.25 + 2.25)) / 6)
        one = replace(self.STAYS, groups=("p", "p", "p"))
        assert per_decision(np.array([-2.0, -1.0, -6.0]), one) == (pytest.approx(-1.5), 0.0)
        pairs = replace(self.STAYS, groups=("p", "q", "p"))
        assert per_decision(np.array([-2.0, -1.0, -6.0]), pairs)[1] == pytest.approx(np.sqrt(2 * 2 * 0.25) / 6)

    @pytest.mark.parametrize("log_p", [np.zeros((3, 3, 3)), np.zeros(3), np.full(2, 0.1), np.full(2, np.nan)])
    def test_what_are_no_log_probabilities(self, log_p):
        with pytest.raises(ValueError, match="log-probabilities must be"):
            taken_log_probabilities(log_p, self.STAYS)


class TestConstantChances:
    def test_by_hand(self):
        # Without masks: frequencies. Where 1 was forbidden in the first step, that 0 was taken there tells nothing.
        batch = batch_of([0, 0, 1])
        np.testing.assert_allclose(constant_chances(batch), [2 / 3, 1 / 3])
        np.testing.assert_allclose(constant_chances(batch, more=1.0), [3 / 5, 2 / 5])
        mask = np.array([[[True, False], [True, True], [True, True]]])
        np.testing.assert_allclose(constant_chances(replace(batch, allowed=mask)), [0.5, 0.5], atol=1e-9)

    @pytest.mark.parametrize("seed", range(4))
    def test_they_are_the_likeliest(self, seed):
        batch = masked_batch(seed, n_actions=4, episodes=20)
        found = constant_chances(batch)

        def lost(logits):
            return -taken_log_probabilities(log_chances(np.exp(logits) / np.exp(logits).sum(), batch), batch).sum()

        best = minimize(lost, np.zeros(4), method="BFGS", options={"gtol": 1e-6})
        assert -taken_log_probabilities(log_chances(found, batch), batch).sum() <= best.fun + 1e-6

    def test_log_chances_are_of_what_is_allowed(self):
        batch = masked_batch(3)
        logs = log_chances(np.array([0.2, 0.3, 0.5]), batch)
        np.testing.assert_allclose(np.exp(logs).sum(axis=2), 1.0)
        assert np.isneginf(logs[~batch.allowed]).all()
        even = even_log_chances(batch)
        np.testing.assert_allclose(np.exp(even).sum(axis=2), 1.0)
        left = batch.allowed.sum(axis=2).ravel()
        np.testing.assert_allclose(np.exp(even)[batch.allowed], np.repeat(1 / left, left))


def by_hand() -> PlanPool:
    """One decision, two actions; plan 0 gives (1, 0) and (0, 2), plan 1 gives (0, 3) and (2, 2)."""
    return PlanPool(batch_of([1]), np.array([[[[[1.0, 0.0], [0.0, 2.0]]]], [[[[0.0, 3.0], [2.0, 2.0]]]]]))


@pytest.mark.parametrize(
    ("w", "values"),
    [([1, 0], [1, 2]), ([0, 1], [3, 2]), ([-1, 0], [0, 0]), ([-0.5, -0.5], [-0.5, -1]), ([0.5, -0.5], [0.5, 0])],
)
def test_q_is_the_best_plan_of_each_action_by_hand(w, values):
    np.testing.assert_allclose(by_hand().q(np.array(w, dtype=float))[0, 0], values)


def test_likelihood_by_hand():
    # Values 3 and 2, the second action was taken: p = e^(2 kappa) / (e^(3 kappa) + e^(2 kappa)) = 1 / (1 + e^kappa).
    w, kappas = np.array([0.0, 1.0]), np.array([0.0, 1.0, 5.0])
    expected = -np.log1p(np.exp(kappas))
    np.testing.assert_allclose(by_hand().group_log_likelihood(w, kappas)[:, 0], expected)
    np.testing.assert_allclose(by_hand().log_likelihoods(np.tile(w, (3, 1)), kappas), expected, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), w=st.lists(st.floats(-1, 1), min_size=2, max_size=2))
def test_more_plans_never_lower_a_value(seed, w):
    pool, more = pool_of(BATCH, seed), pool_of(BATCH, seed + 1, plans=2)
    bigger = pool.extended(more.psi)
    weights = np.array(w)
    assert len(bigger.psi) == 6
    # Products over other numbers of rows may differ in their last bit.
    assert (bigger.q(weights) >= pool.q(weights) - 1e-12).all()
    np.testing.assert_allclose(bigger.q(weights), np.maximum(pool.q(weights), more.q(weights)), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_the_two_likelihoods_agree(d, scale, masked):
    batch = masked_batch(d) if masked else BATCH
    pool = pool_of(batch, d, d=d, scale=scale)
    rng = np.random.default_rng(0)
    w = rng.normal(size=(7, d))
    w /= np.abs(w).sum(axis=1, keepdims=True)
    kappas = np.exp(rng.uniform(0, np.log(1000), size=7))
    one_by_one = [pool.group_log_likelihood(w[i], kappas[i : i + 1]).sum() for i in range(7)]
    np.testing.assert_allclose(pool.log_likelihoods(w, kappas), one_by_one, rtol=1e-4)
    few = np.array([3.0 / scale])  # chances far from 0, which an average does not tell from 1e-300
    averaged = averaged_log_likelihood(pool, w[:1], few)
    np.testing.assert_allclose(averaged, action_log_likelihood(pool.q(w[0]), batch, few)[0], atol=1e-9)


def test_masks_that_forbid_nothing_change_nothing_and_what_is_forbidden_is_not_there():
    batch = masked_batch()
    free, full = replace(batch, allowed=None), replace(batch, allowed=np.ones_like(batch.allowed))
    w, kappas = np.array([0.3, -0.7]), np.array([0.5, 30.0])
    one, two = pool_of(free), pool_of(full)
    np.testing.assert_array_equal(one.group_log_likelihood(w, kappas), two.group_log_likelihood(w, kappas))
    np.testing.assert_array_equal(constant_chances(free), constant_chances(full))
    np.testing.assert_allclose(
        taken_log_probabilities(even_log_chances(free), free), taken_log_probabilities(even_log_chances(full), full)
    )
    # Actions 0 and 2 of three, everywhere: the same as a batch of two actions.
    small = batch_of([0, 1, 1], [1, 0])
    big = replace(batch_of([0, 2, 2], [2, 0], n_actions=3), allowed=np.tile([True, False, True], (2, 3, 1)))
    psi = np.random.default_rng(0).normal(size=(2, 2, 3, 3, 2))
    w, kappas = np.array([0.4, 0.6]), np.array([2.0])
    np.testing.assert_allclose(
        PlanPool(big, psi).group_log_likelihood(w, kappas),
        PlanPool(small, psi[:, :, :, [0, 2]]).group_log_likelihood(w, kappas),
    )
    np.testing.assert_allclose(constant_chances(big)[[0, 2]], constant_chances(small), atol=1e-9)


def test_groups_are_patients_in_sorted_order_and_padding_is_not_looked_at():
    pool, w, kappas = pool_of(BATCH), np.array([-0.3, -0.7]), np.array([2.0])
    groups = pool.group_log_likelihood(w, kappas)
    alone = [
        PlanPool(BATCH.take(np.array([i])), pool.psi[:, [i]]).group_log_likelihood(w, kappas)[0, 0] for i in range(3)
    ]
    np.testing.assert_allclose(groups, [[alone[0] + alone[2], alone[1]]])
    pool = pool_of(BATCH)
    spoilt = pool.psi.copy()
    spoilt[:, ~BATCH.mask] = np.nan
    other = PlanPool(BATCH, spoilt)
    w, kappas = np.array([[-0.3, -0.7]]), np.array([5.0])
    assert other.log_likelihoods(w, kappas) == pool.log_likelihoods(w, kappas)
    np.testing.assert_array_equal(other.group_log_likelihood(w[0], kappas), pool.group_log_likelihood(w[0], kappas))


@pytest.mark.parametrize("shape", [(0, 3, 3, 2, 2), (1, 2, 3, 2, 2), (1, 3, 4, 2, 2), (1, 3, 3, 3, 2), (3, 3, 2, 2)])
def test_shapes_must_match_the_batch_and_values_be_finite(shape):
    with pytest.raises(ValueError, match=r"PlanPool.psi must be \[J, 3, 3, 2, d\], got"):
        PlanPool(BATCH, np.zeros(shape))
    for bad in (np.nan, np.inf):
        psi = np.zeros((1, *BATCH.actions.shape, 2, 2))
        psi[0, 0, 2, 1, 0] = bad
        for refuse in (lambda psi: PlanPool(BATCH, psi), pool_of(BATCH).extended):
            with pytest.raises(ValueError, match="not finite where an action was taken"):
                refuse(psi)


def posterior(centre, half, n=1001):
    """Draws spread evenly around a first weight; both weights negative."""
    first = np.linspace(centre - half, centre + half, n)
    draws = np.stack([first, -1 - first], axis=1)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    return known_posterior(draws, np.linspace(50, 150, n), low=low, high=high)


def test_intervals_hold_what_members_say_and_never_shrink():
    whole = posterior(-0.3, 0.01)
    assert with_model_spread(whole, []) is whole
    alike = with_model_spread(whole, [posterior(-0.3, 0.01)] * 2)
    np.testing.assert_allclose([alike.low, alike.high], [whole.low, whole.high], atol=1e-6)
    np.testing.assert_array_equal(alike.mean, whole.mean)
    members = [posterior(-0.35, 0.01), posterior(-0.25, 0.01)]
    for ordered in (members, members[::-1]):
        wider = with_model_spread(whole, ordered)
        assert (wider.low[0], wider.high[0]) == pytest.approx((-0.357, -0.243), abs=0.002)
        assert len(wider.draws) == 3 * 1001
    assert len(with_model_spread(whole, [posterior(-0.35, 0.01, n=101)]).draws) == 2 * 101, "as many of each"
    wide = replace(posterior(-0.3, 0.001), low=np.array([-0.4, -0.8]), high=np.array([-0.2, -0.6]))
    same = with_model_spread(wide, [posterior(-0.3, 0.001)])
    np.testing.assert_array_equal([same.low, same.high], [wide.low, wide.high])


def test_a_run_with_three_models():
    outcome = replace(OutcomeModelConfig.quick(), members=3, bootstrap=True)
    config = tiny_demo(fit=tiny_fit(outcome=outcome))
    run = stages(9, quiet=True)
    seen = simulate(config, run)
    found = fitted(seen.train, seen.validation, config.fit, run=run)
    assert isinstance(found.model.model, EnsembleModel)
    assert len(found.members) == 3
    assert "each outcome model" in run.seconds
    for one in found.members:
        assert np.abs(one.posterior.mean).sum() == pytest.approx(1.0)
        assert (found.posterior.low <= one.posterior.high).all()
    means = np.stack([one.mu_expert for one in found.members])
    assert (means.std(axis=0) > 0).all()
    np.testing.assert_allclose(means.mean(axis=0), found.mu_expert.mean, rtol=0.05)


def test_the_command_and_its_options(tmp_path, monkeypatch, capsys):
    make_the_command_line_tiny(monkeypatch)
    assert main(["demo", "--quick", "--members", "2", "--bootstrap", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "result.json").read_text())
    assert len(found["members"]) == 2
    assert set(found["members"][0]) == {"weights", "mu_expert", "mu_recovered"}
    assert main(["demo", "--quick", "--bootstrap", "--out", str(tmp_path)]) == 2
    assert "--members" in capsys.readouterr().err
    assert main(["demo", "--quick", "--model", "ar", "--relative", "x", "--out", str(tmp_path)]) == 2
    assert "--relative needs a network" in capsys.readouterr().err
    assert main(["diagnose", str(tmp_path), "--patients", "20"]) == 0
    config = ModelArguments(model="mb_h", members=4, relative=("x",)).put_into(tiny_fit())
    assert (config.model, config.outcome.members, config.outcome.relative) == ("mb_h", 4, ("x",))
    assert ModelArguments().put_into(tiny_fit()) == tiny_fit()


def test_what_is_stored_of_a_member_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    vectors = {name: rng.standard_normal(3) for name in ("mean", "median", "low", "high", "best")}
    numbers = ("concentration", "kappa_mean", "kappa_low", "kappa_high", "best_kappa", "best_log_likelihood")
    drawn = {"draws": rng.standard_normal((5, 3)), "kappa_draws": rng.standard_normal(5)}
    sampler = SamplerReport(0.1, rng.standard_normal(4), rng.standard_normal(4), 700, 12)
    values = {name: float(rng.standard_normal()) for name in numbers}
    for more in ({"sampler": sampler}, {"bootstrap": rng.standard_normal((4, 3))}):
        found = MemberPosterior(*rng.standard_normal((2, 3)), PosteriorResult(**vectors, **values, **drawn, **more))
        found.save(tmp_path / "member.npz")
        again = MemberPosterior.load(tmp_path / "member.npz")
        for one, other in ((found, again), (found.posterior, again.posterior)):
            assert {name: type(value) for name, value in vars(one).items()} == {
                name: type(value) for name, value in vars(other).items()
            }
        np.testing.assert_equal(flat(again), flat(found))
    arrays = read_arrays(tmp_path / "member.npz")
    for broken in ({**arrays, "mean": np.zeros(2)}, {key: arrays[key] for key in arrays if key != "low"}):
        write_arrays(tmp_path / "member.npz", broken)
        with pytest.raises(ValueError, match="is not a whole posterior of a member"):
            MemberPosterior.load(tmp_path / "member.npz")


def flat(found):
    posterior = dict(vars(found.posterior))
    sampler = posterior.pop("sampler")
    return found.mu_expert, found.mu_recovered, posterior, sampler and vars(sampler)
