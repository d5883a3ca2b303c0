"""Effects of actions: sums by their definition, next values of a law exactly, levels and plain differences by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from known_model import KnownModel, plain_state, states, value_of_plan
from outcome_batches import linear_system, random_model
from small_batches import batch_of, cut_off
from termed_laws import ACTIONS, FEATURES, levels, model_of, one_step, relabelled, termed_law

from cirl_gym.data.known import with_known
from cirl_gym.data.outcomes import Above, Below, Column, Given
from cirl_gym.outcome_models.effects import (
    ActionEffects,
    action_effects,
    discounted_sums,
    drawn_models,
    plain_differences,
    share_outside,
)
from cirl_gym.outcome_models.ends import EndHead, EndLines, drawn_ends
from cirl_gym.outcome_models.inputs import Scaler, Window
from cirl_gym.outcome_models.known import knowing
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.model import EnsembleModel, LearnedModel

X, Y = Column("x"), Column("y")


def asked(model, batch, outcomes=(X, Y), gamma=0.9, seed=0, **options) -> ActionEffects:
    return action_effects(model, batch, outcomes, gamma, np.random.default_rng(seed), **options)


@pytest.mark.parametrize("ends", [True, False])
def test_sums_are_those_of_the_plans_action_then_the_first(ends):
    model, begun, left = KnownModel(ends), states(6, 0), np.array([1, 2, 3, 4, 5, 3])
    found = discounted_sums(model, begun, left, (X, Y), 0.8)
    assert found.shape == (3, 6, 2)
    for a in range(3):
        for row, steps in enumerate(left):
            plan = (a, *(0,) * (int(steps) - 1))
            by_hand = value_of_plan(plain_state(begun[row]), plan, 0.8, ends) * (4, 8)  # it counts in such units
            assert found[a, row] == pytest.approx(by_hand, rel=1e-6)


def test_a_decaying_effect_sums_to_the_geometric_series():
    # x' = x / 2 + 3 a: an action once adds 3 (1 + g/2 + (g/2)^2 + ..), what is left of it each step; ends take theirs.
    law = LinearLaw(Window(1, 1, 2), np.zeros(1), np.array([[0.5]]), np.array([[0.0], [3.0]]))
    batch = cut_off(np.ones((5, 9, 1)), np.arange(40).reshape(5, 8) % 2, ("x",))
    for ends in (0.0, 0.25):
        sums = discounted_sums(model_of(law, ends=ends), batch.start, np.full(5, 4), (X,), 0.8)
        share = 0.8 * (1 - ends) / 2
        assert sums[1] - sums[0] == pytest.approx(3 * (1 + share + share**2 + share**3), rel=1e-6)
    found = asked(model_of(law), batch, (X,), 0.8, horizon=8)
    left = 8 - np.argwhere(batch.mask)[:, 1]
    assert found.total == pytest.approx(np.mean([3 * (1 - 0.4**k) / 0.6 for k in left]), rel=1e-6)


def test_next_effects_of_a_linear_law_are_its_numbers_and_one_number():
    law = replace(termed_law(), terms=None)
    found = asked(model_of(law), one_step(law, levels(50)))
    assert found.outcomes == ("x", "y")
    np.testing.assert_allclose(found.next, [[0.5, 2.0], [-1.0, 1.0]], atol=1e-5)
    np.testing.assert_allclose(found.total, found.next, atol=1e-5)  # one step is all there is
    assert found.by_level == ((None, None), (None, None))
    assert (found.next_interval[0] <= found.next).all()
    assert (found.next_interval[1] >= found.next).all()


def test_effects_by_level_are_means_in_quarters_by_hand():
    # The effect of "low" on y is 2 + .1 y: in each quarter that of its mean.
    law = termed_law(interactions=[((1, 1, 1), 0.1)])
    y = np.arange(-8.0, 8.0)
    start = np.column_stack([np.zeros(16), y])
    found = asked(model_of(law), one_step(law, start))
    assert found.by_level[0][0] is None
    assert found.by_level[1] == (None, None)
    one = found.by_level[0][1]
    assert one.edges.tolist() == [-8.0, -4.0, 0.0, 4.0, 7.0]
    np.testing.assert_allclose(one.mean, 2 + 0.1 * np.array([-6.5, -2.5, 1.5, 5.5]), atol=1e-5)
    assert (one.low <= one.mean).all()
    assert (one.high >= one.mean).all()
    assert found.next[0, 1] == pytest.approx(2 + 0.1 * y.mean(), abs=1e-5)


def test_how_far_outside_a_limit_by_hand():
    # x' = x + a: below 3 it is less by 1 where x <= 2, by 1/2 at 2.5 and by 0 from 3 on.
    law = LinearLaw(Window(1, 1, 2), np.zeros(1), np.eye(1), np.array([[0.0], [1.0]]))
    x = np.array([0.0, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0])
    batch = cut_off(np.stack([x, x], axis=1)[..., None], np.arange(8)[:, None] % 2, ("x",))
    found = asked(model_of(law), batch, (Below("x", 3), Above("x", 5)))
    assert found.next[0].tolist() == pytest.approx([-3.5 / 8, 2 / 8])
    below, above = found.by_level[0]
    np.testing.assert_allclose(below.mean, [-1, -0.75, 0, 0], atol=1e-6)
    np.testing.assert_allclose(above.mean, [0, 0, 0, 1], atol=1e-6)


def test_plain_differences_by_hand():
    obs = np.array([[[0.0], [1.0], [5.0]], [[2.0], [2.0], [4.0]]])
    batch = cut_off(obs, [[0, 1], [0, 1]], ("x",))
    # Changes after the first action are 1 and 0, after the second 4 and 2.
    assert plain_differences(batch, (X,)).tolist() == [[2.5]]
    assert plain_differences(batch, (Below("x", 3),)).tolist() == [[pytest.approx(-1.5 + 0.5)]]
    short = replace(batch, lengths=np.array([2, 1]))  # one of 0 and no 2
    assert plain_differences(short, (X,)).tolist() == [[3.5]]
    three = replace(batch, action_names=ACTIONS)
    assert plain_differences(three, (X,))[0].tolist() == [2.5]
    assert np.isnan(plain_differences(three, (X,))[1]).all()


@pytest.mark.parametrize("never", [0, 1, 2])
def test_of_an_action_that_nobody_took_nothing_is_said(never):
    law = termed_law(interactions=[((1, 1, 1), 0.1)])
    batch = one_step(law, levels(60))
    batch = replace(batch, actions=np.where(batch.actions == never, (never + 1) % 3, batch.actions))
    found = asked(model_of(law), batch)
    silent = np.array([never in (0, a) for a in (1, 2)])
    for values in (found.next, found.total, found.plain, *found.next_interval, *found.total_interval):
        assert np.isnan(values).all(axis=1).tolist() == silent.tolist()
        assert np.isfinite(values[~silent]).all()
    assert found.decisions[never] == 0
    assert [row == (None, None) for row in found.by_level] == [bool(silent[0]), True]


def test_intervals_are_those_of_refitted_laws_of_one_number():
    # Without covariates to speak of the effect is a difference of means, and its error known.
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=400)
    after = 3 + 2 * actions + rng.normal(size=400)
    batch = cut_off(np.stack([np.zeros(400), after], axis=1)[..., None], actions[:, None], ("x",))
    effect = after[actions == 1].mean() - after[actions == 0].mean()
    law = LinearLaw(
        Window(1, 1, 2), after[actions == 0].mean(keepdims=True), np.zeros((1, 1)), np.array([[0.0], [effect]])
    )
    found = asked(model_of(law), batch, (X,), draws=2000)
    error = np.sqrt(sum(after[actions == a].var() / (actions == a).sum() for a in (0, 1)))
    assert found.next[0, 0] == pytest.approx(effect, abs=1e-5)
    assert found.next_interval[:, 0, 0] == pytest.approx([effect - 1.645 * error, effect + 1.645 * error], abs=0.02)


def test_a_foreign_model_has_effects_and_no_intervals():
    batch = batch_of([1, 0, 2], [0, 2], n_actions=3)
    found = asked(KnownModel(), batch)
    np.testing.assert_allclose(found.next, [[-2, 3], [-0.5, 1.25]])
    assert np.isnan(found.next_interval).all()
    assert np.isnan(found.total_interval).all()
    assert drawn_models(KnownModel(), batch, 5, np.random.default_rng(0)) == []


def test_an_ensemble_has_the_mean_effect_and_an_interval_as_wide_as_its_members_differ():
    law = replace(termed_law(), terms=None)
    other = replace(law, effects=law.effects + np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 0.0]]))
    batch = one_step(law, levels(60), noise=0.01)
    found = asked(EnsembleModel([model_of(law), model_of(other)]), batch)
    assert found.next[0, 0] == pytest.approx(0.5 + 1.0, abs=1e-4)
    assert found.next_interval[:, 0, 0] == pytest.approx([0.5, 2.5], abs=0.9)
    assert np.ptp(found.next_interval[:, 0, 0]) > 1.5
    assert asked(random_model("ensemble"), linear_system(20, 0)).next.shape == (2, 2)


def test_what_is_known_of_actions_is_left_out():
    law = termed_law(interactions=[((1, 1, 1), 0.1)])
    batch = one_step(law, levels(60), noise=0.5)
    alone = asked(model_of(law), batch)
    wide = with_known(batch, (Given("low").name,))
    model = knowing(model_of(law), wide.features, wide.action_names)
    found = asked(model, wide, (Given("low"), X, Y))
    assert found.outcomes == ("x", "y")
    np.testing.assert_array_equal(found.next_interval, alone.next_interval)
    np.testing.assert_array_equal(found.total, alone.total)
    assert asked(model, wide, (Given("low"),)).next.shape == (2, 0)


def test_padding_the_order_of_episodes_and_names_do_not_matter():
    law = termed_law(bends=(0.2, 0.0), interactions=[((1, 1, 1), 0.1)])
    batch = one_step(law, levels(60), noise=0.5)
    alone = asked(model_of(law), batch)
    for other in (batch.padded(3), batch.take(np.arange(60)[::-1])):
        found = asked(model_of(law), other, horizon=1)
        for name in ("next", "next_interval", "total", "total_interval", "plain", "decisions"):
            np.testing.assert_allclose(getattr(found, name), getattr(alone, name), rtol=1e-5, atol=1e-5, err_msg=name)
    turned = LinearLaw(
        law.window,
        law.intercept[::-1],
        law.coefficients[::-1, ::-1],
        law.effects[::-1, ::-1],
        replace(
            law.terms,
            knots=law.terms.knots[:, ::-1],
            bends=law.terms.bends[:, ::-1],
            interactions=law.terms.interactions[::-1, ::-1, ::-1],
        ),
    )
    model = model_of(turned)
    model = LearnedModel(turned, replace(model.spec, features=FEATURES[::-1]), model.end)
    found = asked(model, relabelled(batch))
    # Against the last action of before.
    np.testing.assert_allclose(found.next, [alone.next[0] - alone.next[1], -alone.next[1]], atol=1e-5)


def test_steps_that_nobody_saw_are_counted():
    # x' = x + 1 + a from 0 to 3: after "given" once and then nothing 2, 3, 4, .., without it 1, 2, 3, ..
    law = LinearLaw(Window(1, 1, 2), np.ones(1), np.eye(1), np.array([[0.0], [1.0]]))
    batch = cut_off([[[0.0], [1.0], [3.0]]], [[0, 1]], ("x",))
    states = np.zeros((1, 1), dtype=np.float32)
    for steps, share in ((1, 0), (2, 0), (3, 1 / 6), (5, 5 / 10)):
        assert share_outside(model_of(law), states, np.array([steps]), batch) == pytest.approx(share)
    # With ends after half of the steps the third step counts a quarter.
    ending = share_outside(model_of(law, ends=0.5), states, np.array([3]), batch)
    assert ending == pytest.approx(0.25 / (2 * 1.75))
    assert asked(model_of(law), batch, (X,)).outside == 0
    assert asked(model_of(law), batch, (X,), horizon=9).outside > 0.5


def test_lines_at_which_the_process_ends_are_drawn_from_the_gap_that_holds_them():
    # Ends at 9.0 and beyond; the last that went on had 8.0.
    x = np.linspace(0, 8, 20)
    obs = np.concatenate([np.stack([x, x], axis=1), np.array([[7.0, 9.0], [7.0, 9.5], [7.0, 11.0], [7.0, 12.0]])])
    batch = cut_off(obs[..., None], np.arange(24)[:, None] % 2, ("x",))
    ended = obs[:, 1] > 8
    batch = replace(batch, terminated=ended, truncated=~ended)
    scaler = Scaler(np.zeros(1), np.ones(1))
    head = EndHead("lines", EndLines.from_batch(batch, scaler, np.ones(1)), 0.0)
    assert head.lines.high.tolist() == [8.5]
    high = np.array([one.lines.high[0] for one in drawn_ends(head, batch, 500, np.random.default_rng(0))])
    assert high.min() == pytest.approx(8.0, abs=0.02)
    assert high.max() == pytest.approx(9.0, abs=0.02)
    assert all(one.lines.low[0] == -np.inf for one in drawn_ends(head, batch, 5, np.random.default_rng(0)))
    still = EndHead("constant", head.lines, 0.1)
    assert drawn_ends(still, batch, 3, np.random.default_rng(0)) == [still] * 3
    # All at the same outcome, a limit: it is the line.
    floor = replace(batch, obs=np.minimum(batch.obs, 9.0))
    head = EndHead("lines", EndLines.from_batch(floor, scaler, np.ones(1)), 0.0)
    assert {float(one.lines.high[0]) for one in drawn_ends(head, floor, 5, np.random.default_rng(0))} == {9.0}


def test_the_same_numbers_give_the_same_intervals():
    law = termed_law(interactions=[((1, 1, 1), 0.1)])
    batch = one_step(law, levels(60), noise=0.5)
    one, other, third = (asked(model_of(law), batch, seed=seed, draws=50) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.next_interval, other.next_interval)
    assert not np.array_equal(one.next_interval, third.next_interval)
