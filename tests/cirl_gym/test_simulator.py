"""The simulator: its constants, and its equations with values that were worked out by hand."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from env_runs import copied
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, truncnorm
from scripted import plain_course

from cirl_gym import TumourParameters
from cirl_gym.worlds import tumour

P = TumourParameters()
QUIET = np.zeros(2)


def course(actions, start=(30.0, 2.0), parameters=P):
    state = tumour.initial_state(parameters, np.array([start]))
    values = [tumour.observe(state)[0]]
    for action in actions:
        state = tumour.transition(parameters, state, np.array([action]), QUIET)
        values.append(tumour.observe(state)[0])
    return np.array(values)


def test_two_steps_by_hand():
    # Without treatment:
    # x1 = 30 + 2.5;                 x2 = (32.5 + 4 * 30) / 5 + 2.5 = 30.5 + 2.5
    # z1 = 2 - 2.5 -> clipped to 0;  z2 = (0 + 4 * 2) / 5 - 2.5 = -0.9 -> 0
    np.testing.assert_allclose(course([0, 0]), [[30, 2], [32.5, 0], [33.0, 0]])
    # Two treatments:
    # x1 = 30 - 2.5 + 2.5 = 30;   x2 = 30 - 2 * 2.5 + 2.5 = 27.5
    # z1 = 2 + 1 - 2.5 = 0.5;     z2 = (0.5 + 4 * 2) / 5 + 2 - 2.5 = 1.7 - 0.5 = 1.2
    np.testing.assert_allclose(course([1, 1]), [[30, 2], [30, 0.5], [27.5, 1.2]])


def test_a_treatment_counts_for_five_steps_and_no_longer():
    with_dose, without = course([1, 0, 0, 0, 0, 0]), course([0] * 6)
    # The difference d of both courses: d_t = mean(last five d) - 2.5 * (dose among the last five), d = 0 before:
    # t=1: -2.5; t=2: -0.5 - 2.5 = -3; t=3: (-2.5 - 3) / 5 - 2.5 = -3.6; t=4: -9.1 / 5 - 2.5 = -4.32;
    # t=5: -13.42 / 5 - 2.5 = -5.184; t=6: the dose has left: (-2.5 - 3 - 3.6 - 4.32 - 5.184) / 5 = -3.7208
    np.testing.assert_allclose((with_dose - without)[1:, 0], [-2.5, -3, -3.6, -4.32, -5.184, -3.7208])


def test_lags_available_average_only_what_exists():
    available = TumourParameters(lags="available")
    # x1 = 30 / 1 + 2.5 = 32.5;  x2 = (32.5 + 30) / 2 + 2.5 = 33.75;  x3 = (33.75 + 32.5 + 30) / 3 + 2.5 = 34.58333
    np.testing.assert_allclose(course([0, 0, 0], parameters=available)[:, 0], [30, 32.5, 33.75, 96.25 / 3 + 2.5])
    # From the fifth observation on, both conventions average the last five.
    six = course([0] * 6, parameters=available)[:, 0]
    assert six[6] == pytest.approx(six[1:6].mean() + 2.5)


def test_as_printed_side_effects_vanish_whatever_is_done():
    # 2 + 0.5 - 5 < 0, and five treatments give + 2.5 - 5 < 0 from any smaller z.
    printed = course([1] * 9, parameters=TumourParameters.as_printed())
    np.testing.assert_array_equal(printed[1:, 1], np.zeros(9))
    # The x line is the same in both.
    np.testing.assert_array_equal(printed[:, 0], course([1] * 9)[:, 0])


def test_what_ends_the_process():
    state = tumour.initial_state(P, np.array([[0, 2], [50, 2], [30, 15], [1e-9, 2], [49.999, 14.999], [30, 0]]))
    assert tumour.terminal(P, state).tolist() == [True] * 3 + [False] * 3


@settings(deadline=None, max_examples=40)
@given(x=st.floats(1, 49), z=st.floats(0, 14), actions=st.lists(st.integers(0, 1), min_size=1, max_size=20))
def test_equals_the_equations_written_a_second_time(x, z, actions):
    plain = plain_course((x, z), actions)
    np.testing.assert_allclose(course(actions, (x, z))[: len(plain)], plain, rtol=1e-12, atol=1e-12)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10**6), lags=st.sampled_from(["repeat", "available"]))
def test_a_patient_is_the_same_to_the_last_bit_alone_and_among_others(seed, lags):
    parameters = TumourParameters(lags=lags)
    rng = np.random.default_rng(seed)
    first = tumour.draw_start(parameters, 7, rng)
    actions, noise = rng.integers(2, size=(6, 7)), rng.normal(size=(6, 7, 2))
    together = tumour.initial_state(parameters, first)
    alone = tumour.initial_state(parameters, first[3:4])
    for t in range(6):
        together = tumour.transition(parameters, together, actions[t], noise[t])
        alone = tumour.transition(parameters, alone, actions[t, 3:4], noise[t, 3:4])
    assert together.recent[3].tobytes() == alone.recent[0].tobytes()


def test_the_future_does_not_reach_back_and_inputs_are_left_alone():
    rng = np.random.default_rng(0)
    actions = rng.integers(2, size=8)
    changed = actions.copy()
    changed[5:] = 1 - changed[5:]
    np.testing.assert_array_equal(course(actions)[:6], course(changed)[:6])
    assert (course(actions)[6] != course(changed)[6]).all()
    state = tumour.initial_state(P, np.array([[30.0, 2.0]]))
    before = state.recent.copy(), state.doses.copy(), state.seen.copy()
    following = tumour.transition(P, state, np.array([1]), QUIET)
    tumour.observe(following)[:] = -1
    for was, now in zip(before, (state.recent, state.doses, state.seen), strict=True):
        np.testing.assert_array_equal(was, now)
    assert tumour.observe(following)[0, 0] == 30.0


def test_starts_are_quantiles_of_the_cut_normal_law():
    normals = np.random.default_rng(0).standard_normal((1000, 2))
    starts = tumour.first_observations(P, normals)
    for k, (mean, sd, limit) in enumerate(((30, 5, 50), (2, 1, 15))):
        law = truncnorm(-mean / sd, (limit - mean) / sd, loc=mean, scale=sd)
        np.testing.assert_allclose(starts[:, k], law.ppf(norm.cdf(normals[:, k])), rtol=1e-9)
    start = tumour.draw_start(P, 20_000, np.random.default_rng(0))
    assert ((start > 0) & (start < P.limits)).all()
    # x: cut at +-4 and 6 deviations, so mean 30, sd 5; z: N(2, 1) cut at 0 = -2 deviations: with
    # density(-2) / (1 - cdf(-2)) = .05399 / .97725 = .05525 the mean is 2.055.
    np.testing.assert_allclose(start.mean(axis=0), [30, 2.055], atol=0.12)
    assert start[:, 0].std() == pytest.approx(5, abs=0.1)
    # Without spread they are the mean, and those of extreme numbers are within the limits.
    fixed = TumourParameters(tumour_start_sd=0.0, side_start_sd=0.0)
    starts = tumour.first_observations(fixed, np.array([[-5.0, 0.0], [9.0, -40.0]]))
    np.testing.assert_array_equal(starts, [[30, 2], [30, 2]])
    starts = tumour.first_observations(P, np.repeat([[-40.0], [-9.0], [9.0], [40.0]], 2, axis=1))
    assert ((starts >= 0) & (starts <= P.limits)).all()


def test_end_probability_is_the_normal_tail():
    # Expected x after no treatment from x = 47.4 is 49.9, one deviation below the limit: 1 - cdf(1) = .158655.
    state = tumour.initial_state(P, np.array([[47.4, 2.0]]))
    chance = tumour.end_probability(P, tumour.expected_outcome(P, state, np.array([0])))[0]
    assert chance == pytest.approx(0.5 * math.erfc(1 / math.sqrt(2)), rel=1e-6)
    far = tumour.initial_state(P, np.array([[30.0, 2.0]]))
    assert tumour.end_probability(P, tumour.expected_outcome(P, far, np.array([0])))[0] == pytest.approx(0, abs=1e-12)


def test_defaults_are_the_papers_with_the_corrected_z_line():
    p = TumourParameters()
    assert (p.order, p.horizon) == (5, 20)
    # The drift is + 0.5 p for x; the z line mirrors it: - 0.5 p.
    found = [p.effect, p.drift, p.noise, p.start_mean, p.start_sd, p.limits]
    np.testing.assert_array_equal(found, [[-2.5, 1], [0.5 * 5, -0.5 * 5], [0.1, 0.1], [30, 2], [5, 1], [50, 15]])
    # As printed nothing but the z line is changed.
    printed = TumourParameters.as_printed()
    assert (printed.side_effect, printed.side_drift) == (0.5, -5.0)
    assert dataclasses.replace(printed, side_effect=1.0, side_drift=-2.5) == TumourParameters()


def test_highest_is_one_largest_step_and_ten_deviations_beyond_the_limits():
    # x grows by at most 2.5 per step (no treatment): 50 + 2.5 + 10 * 0.1.
    # z grows by at most 5 * 1.0 - 2.5 per step (five treatments): 15 + 2.5 + 10 * 0.1.
    np.testing.assert_allclose(TumourParameters().highest, [53.5, 18.5])
    # The printed z line never grows: 15 + 0 + 1.
    np.testing.assert_allclose(TumourParameters.as_printed().highest, [53.5, 16.0])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("order", order) for order in (0, 2.5, 5.0)),
        *((name, 0) for name in ("horizon", "tumour_max", "side_start_mean")),
        *((name, -0.1) for name in ("side_max", "tumour_noise", "side_start_sd")),
        *(("tumour_effect", effect) for effect in (float("inf"), "-2.5")),
        ("side_noise", float("nan")),
        ("tumour_start_mean", 50.0),
        ("lags", "none"),
    ],
)
def test_an_impossible_constant_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"TumourParameters.{name} "):
        TumourParameters(**{name: value})


@copied
def test_copies_are_equal_before_and_after_the_derived_arrays_were_used(copied):
    p = TumourParameters(order=3)
    assert copied(p) == p
    with pytest.raises(ValueError, match="read-only"):
        p.highest[0] = 0.0
    assert copied(p) == p
    assert hash(copied(p)) == hash(p)
    # A changed copy derives its own arrays.
    np.testing.assert_array_equal(dataclasses.replace(p, tumour_max=60.0).limits, [60, 15])
