"""How likely actions are: by hand, by invariance, of a pool of plans and habits, among all or among those allowed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from small_batches import batch_of
from tiny_run import fitted, make_the_command_line_tiny, tiny_demo, tiny_fit

from cirl_gym.data.habits import Contexts
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.outcome_models.model import EnsembleModel
from irl.commands.arguments import ModelArguments
from irl.commands.cli import main
from irl.pipeline import simulate
from irl.preferences.choice import Decisions, Density
from irl.preferences.likelihood import (
    PlanPool,
    by_episode,
    by_group,
    constant_chances,
    even_log_chances,
    log_chances,
    per_decision,
    taken_log_probabilities,
)
from irl.stages import stages

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


def test_sums_over_episodes_and_groups():
    table = np.array([[1.0, 2.0, 4.0, 8.0], [0.0, 0.0, 1.0, 1.0]])
    np.testing.assert_array_equal(by_group(table, ("q", "p", "q", "r")), [[2, 5, 8], [0, 1, 1]])
    np.testing.assert_array_equal(by_group(table[0], ("q", "p", "q", "r")), [2, 5, 8])
    np.testing.assert_array_equal(by_episode(np.arange(6.0), BATCH), [0 + 1 + 2, 3, 4 + 5])
    with pytest.raises(ValueError, match="4 episodes and 2 group names"):
        by_group(table, ("q", "p"))


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


@pytest.mark.parametrize("kappa", [0.0, 1.0, 5.0, 1e6])
def test_chances_by_hand(kappa):
    # Values 3 and 2: p = e^(2 kappa) / (e^(3 kappa) + e^(2 kappa)) = 1 / (1 + e^kappa) of the second action.
    logs = by_hand().log_chances(kappa * np.array([0.0, 1.0]), np.zeros((0, 2)))
    np.testing.assert_allclose(logs[0, 0], [-np.logaddexp(0, -kappa), -np.logaddexp(0, kappa)], atol=1e-12)


def test_habits_of_several_contexts_add_up_by_hand():
    # The action before and the ward: logits of treating 1 + .5 at first in ward A, -2 + .25 after treating in ward B.
    batch = replace(batch_of([1, 0], d=2), contexts=(("ward", ("A", "B")),), context_levels=np.array([[[0], [1]]]))
    logits = np.zeros((5, 2))
    logits[[0, 2, 3, 4], 1] = [1.0, -2.0, 0.5, 0.25]
    pool = PlanPool(batch, np.zeros((1, 1, 2, 2, 2)), Contexts.of(batch, ("previous", "ward")))
    logs = pool.log_chances(np.array([3.0, -9.0]), logits)
    np.testing.assert_allclose(logs[0, :, 1] - logs[0, :, 0], [1.5, -1.75])
    np.testing.assert_allclose(np.exp(logs).sum(axis=2), 1.0)
    np.testing.assert_allclose(pool.log_chances(np.zeros(2), logits + np.arange(5.0)[:, None]), logs)
    # And values: .01 more for treating, under 100.
    psi = np.zeros((1, 1, 2, 2, 2))
    psi[..., 1, 0] = 0.01
    more = replace(pool, psi=psi).log_chances(np.array([100.0, 0.0]), logits)
    np.testing.assert_allclose(more[0, :, 1] - more[0, :, 0], [2.5, -0.75])


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
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("scale", [1.0, 20.0])
def test_the_likelihood_that_is_sampled_is_the_pools(d, scale, masked):
    batch = masked_batch(d) if masked else batch_of([0, 2, 1], [1], [2, 0], n_actions=3, d=2)
    pool = replace(pool_of(batch, d, d=d, scale=scale), contexts=Contexts.of(batch, ("previous",)), levels=None)
    one, prior = (Density(Decisions.of(pool), np.zeros(d), power) for power in (1.0, 0.0))
    x = np.random.default_rng(0).standard_normal(one.n) / scale
    said = taken_log_probabilities(pool.log_chances(one.theta(x), one.logits(x)), batch)
    assert said.sum() == pytest.approx(one(x)[0] - prior(x)[0], rel=1e-4, abs=1e-4)


def test_only_what_matters_matters():
    pool, theta, logits = pool_of(BATCH), np.array([-0.6, -1.4]), np.zeros((0, 2))
    said = taken_log_probabilities(pool.log_chances(theta, logits), BATCH)
    longer = BATCH.padded(7)
    spoilt = np.pad(pool.psi, ((0, 0), (0, 0), (0, 4), (0, 0), (0, 0)), constant_values=np.nan)
    spoilt[:, ~longer.mask] = np.nan
    with np.errstate(invalid="ignore"):
        other = taken_log_probabilities(PlanPool(longer, spoilt).log_chances(theta, logits), longer)
    np.testing.assert_array_equal(other, said)
    order = np.array([2, 0, 1])
    moved = PlanPool(BATCH.take(order), pool.psi[:, order])
    np.testing.assert_allclose(taken_log_probabilities(moved.log_chances(theta, logits), moved.batch), said[order])
    np.testing.assert_allclose(replace(pool, psi=3 * pool.psi).q(theta / 3), pool.q(theta))


def test_some_episodes_of_a_pool_keep_their_plans_and_levels():
    batch = batch_of([0, 1, 1], [1], [0, 0])
    pool = replace(pool_of(batch), contexts=Contexts.of(batch, ("previous",)), levels=None)
    part = pool.take(np.array([2, 0]))
    assert part.batch.ids == ("e2", "e0")
    np.testing.assert_array_equal(part.psi, pool.psi[:, [2, 0]])
    np.testing.assert_array_equal(part.levels, pool.levels[[2, 0]])
    np.testing.assert_array_equal(part.levels[0, :2, 0], [0, 1])
    assert pool.take(np.array([True, False, True])).batch.ids == ("e0", "e2")
    with pytest.raises(ValueError, match=r"PlanPool.levels must be \[N, T, 1\]"):
        replace(pool, levels=np.zeros((3, 3, 2), dtype=int))
    with pytest.raises(ValueError, match="differ between the batch and the habit"):
        PlanPool(batch, pool.psi, Contexts(("previous",), (("none yet", "other"),)))


def test_masks_that_forbid_nothing_change_nothing_and_what_is_forbidden_is_not_there():
    batch, none = masked_batch(), np.zeros((0, 3))
    free, full = replace(batch, allowed=None), replace(batch, allowed=np.ones_like(batch.allowed))
    theta = np.array([3.0, -7.0])
    np.testing.assert_array_equal(pool_of(free).log_chances(theta, none), pool_of(full).log_chances(theta, none))
    np.testing.assert_array_equal(constant_chances(free), constant_chances(full))
    np.testing.assert_allclose(
        taken_log_probabilities(even_log_chances(free), free), taken_log_probabilities(even_log_chances(full), full)
    )
    logs = pool_of(batch).log_chances(theta, none)
    assert np.isneginf(logs[~batch.allowed]).all()
    np.testing.assert_allclose(np.exp(logs).sum(axis=2), 1.0)
    # Actions 0 and 2 of three, everywhere: the same as a batch of two actions. A forced decision says nothing.
    small = batch_of([0, 1, 1], [1, 0])
    big = replace(batch_of([0, 2, 2], [2, 0], n_actions=3), allowed=np.tile([True, False, True], (2, 3, 1)))
    psi = np.random.default_rng(0).normal(size=(2, 2, 3, 3, 2))
    one, two = PlanPool(big, psi), PlanPool(small, psi[:, :, :, [0, 2]])
    np.testing.assert_allclose(
        one.log_chances(theta, none)[big.mask][:, [0, 2]], two.log_chances(theta, none[:, :2])[small.mask]
    )
    np.testing.assert_allclose(constant_chances(big)[[0, 2]], constant_chances(small), atol=1e-9)
    forced = replace(small, allowed=np.eye(2, dtype=bool)[small.actions])
    said = PlanPool(forced, psi[:, :, :, :2]).log_chances(theta, none[:, :2])
    np.testing.assert_array_equal(taken_log_probabilities(said, forced), [0.0, 0.0])


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
