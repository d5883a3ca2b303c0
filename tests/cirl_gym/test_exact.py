"""Exact answers of the simulator: the optimum against every plan written out; the same patients under other actions."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scripted import Scripted, plain_course

from cirl_gym import TumourParameters, TumourWorld, rollout
from cirl_gym.data.rollout import returns
from cirl_gym.worlds.exact import (
    Futures,
    Patients,
    PatientsWorld,
    action_values,
    constant_futures,
    flipped_futures,
    optimum,
    taken_futures,
)
from cirl_gym.worlds.tumour import draw_start

SHORT = TumourParameters(horizon=7)
CRITERIA = [((-0.3, -0.7), 0.99), ((-0.7, -0.3), 0.5), ((-0.5, -0.5), 1.0), ((1.0, 0.0), 0.9), ((0, -1), 0.0)]
STARTS = [(30.0, 2.0), (4.0, 1.0), (46.0, 3.0), (35.0, 11.0)]


def plain_value(start, plan, w, gamma):
    course = plain_course(start, plan)[1:]
    return sum(gamma**t * (w[0] * x / 50 + w[1] * z / 15) for t, (x, z) in enumerate(course))


def test_equals_every_plan_written_out():
    found = optimum(SHORT, STARTS, CRITERIA)
    assert found.values.shape == (4, 5)
    assert found.plans.shape == (4, 5, 7)
    for i, start in enumerate(STARTS):
        for k, (w, gamma) in enumerate(CRITERIA):
            values = [plain_value(start, plan, w, gamma) for plan in itertools.product((0, 1), repeat=7)]
            assert found.values[i, k] == pytest.approx(max(values), abs=1e-5)
            assert plain_value(start, found.plans[i, k], w, gamma) == pytest.approx(max(values), abs=1e-5)
    # Nobody earns more.
    starts = draw_start(SHORT, 30, np.random.default_rng(0))
    best = optimum(SHORT, starts, [((-0.3, -0.7), 0.99)]).values[:, 0]
    world, phi = TumourWorld(SHORT, noise=False), SHORT.feature_map
    for seed in range(20):
        batch = rollout(world, Scripted(0.5, seed), 30, np.random.default_rng(0), start=world.start(starts))
        assert (returns(batch, phi, np.array([-0.3, -0.7]), 0.99) <= best + 1e-9).all()


def test_exact_values_of_both_actions():
    patients = Patients(SHORT, np.array(STARTS), np.zeros((4, 7, 2)))
    batch = seen(patients)
    for w, gamma in CRITERIA:
        values = action_values(patients, batch, w, gamma)
        for i, start in enumerate(STARTS):
            for first in (0, 1):
                plans = [(first, *rest) for rest in itertools.product((0, 1), repeat=6)]
                assert values[i, 0, first] == pytest.approx(
                    max(plain_value(start, p, w, gamma) for p in plans), abs=1e-5
                )
        # Without noise, what is seen after an action is what its value holds.
        phi = SHORT.feature_map(batch.obs[:, 1:]) @ np.asarray(w, dtype=float)
        taken = np.take_along_axis(values, batch.actions[..., None], axis=2)[..., 0]
        ahead = np.append(values[:, 1:].max(axis=2) * batch.mask[:, 1:], np.zeros((4, 1)), axis=1)
        np.testing.assert_allclose(taken[batch.mask], (phi + gamma * ahead)[batch.mask], atol=1e-5)
        assert (values[~batch.mask] == 0).all()
    with pytest.raises(ValueError, match="between 0 and 1, got 2"):
        action_values(patients, batch, (-0.5, -0.5), 2)


PARAMETERS = TumourParameters(horizon=8)


def seen(patients, chance=0.5, seed=0):
    return rollout(PatientsWorld(patients), Scripted(chance, seed), len(patients), np.random.default_rng(9))


@pytest.fixture(scope="module")
def patients():
    return Patients.draw(PARAMETERS, 60, np.random.default_rng(0))


def test_who_acts_changes_neither_starts_nor_noise(patients):
    never, always = seen(patients, 0.0), seen(patients, 1.0)
    np.testing.assert_array_equal(never.start, always.start)
    np.testing.assert_array_equal(never.start, patients.start.astype(np.float32))
    # The same seed draws the same patients.
    np.testing.assert_array_equal(Patients.draw(PARAMETERS, 60, np.random.default_rng(0)).noise, patients.noise)
    np.testing.assert_array_equal(patients.take(np.array([4, 0])).start, patients.start[[4, 0]])
    # One step: five first observations, so that the mean is x_0; -2.5 per treatment, +2.5 per step, and the noise.
    noise = patients.noise[:, 0, 0]
    np.testing.assert_allclose(never.obs[:, 1, 0], patients.start[:, 0] + 2.5 + noise, rtol=1e-6)
    np.testing.assert_allclose(always.obs[:, 1, 0], patients.start[:, 0] + noise, rtol=1e-6)


def test_one_step_ahead_only_the_treatment_differs(patients):
    batch = seen(patients)
    flipped, taken = flipped_futures(patients, batch, 1), taken_futures(batch, 1)
    np.testing.assert_array_equal(flipped.actions, 1 - taken.actions)
    # A treatment is worth -2.5 of tumour, whatever the history and noise, where nothing is clipped.
    difference = (flipped.outcomes - taken.outcomes)[:, 0, 0]
    expected = np.where(flipped.actions[:, 0] == 1, -2.5, 2.5)
    inside = (flipped.outcomes[:, 0, 0] > 0) & (taken.outcomes[:, 0, 0] > 0)
    assert inside.sum() > 300
    np.testing.assert_allclose(difference[inside], expected[inside], atol=1e-4)


def test_further_ahead_a_flipped_course_is_that_of_the_flipped_policy(patients):
    # Never treating, flipped from the start, is always treating.
    never, always = seen(patients, 0.0), seen(patients, 1.0)
    flipped = flipped_futures(patients, never, 8)
    starts = flipped.step == 0
    for row, episode in zip(np.flatnonzero(starts), flipped.episode[starts], strict=True):
        length = min(always.lengths[episode], never.lengths[episode])
        np.testing.assert_array_equal(np.flatnonzero(flipped.live[row]), np.arange(length))
        np.testing.assert_allclose(flipped.outcomes[row, :length], always.obs[episode, 1 : length + 1], rtol=1e-6)


def test_a_flipped_course_is_not_looked_at_after_its_own_end():
    parameters = TumourParameters(horizon=6, tumour_start_mean=47.0, tumour_start_sd=0.1)
    patients = Patients.draw(parameters, 20, np.random.default_rng(1))
    always = seen(patients, 1.0)
    # Untreated from 47 on, the tumour passes 50 after the second step (49.5, 50): the third is not there.
    flipped = flipped_futures(patients, always, 6)
    lived = flipped.live[flipped.step == 0].sum(axis=1)
    assert ((lived >= 1) & (lived <= 3)).all()
    assert (always.lengths == 6).all()


def test_always_treating_begins_with_what_was_seen_or_with_what_was_flipped(patients):
    batch, always = seen(patients), constant_futures(patients, 1)
    flipped = flipped_futures(patients, batch, 8)
    treated = batch.actions[:, 0] == 1
    np.testing.assert_allclose(always.outcomes[treated, 0], batch.obs[treated, 1], rtol=1e-6)
    first = flipped.outcomes[flipped.step == 0, 0]
    np.testing.assert_allclose(always.outcomes[~treated, 0], first[~treated], rtol=1e-6)
    assert {*treated} == {True, False}


def test_taken_futures_follow_the_batch(patients):
    batch = seen(patients, 0.8)
    futures = taken_futures(batch, 3)
    assert len(futures.episode) == batch.n_steps
    for row in (0, 7, len(futures.episode) - 1):
        e, t = futures.episode[row], futures.step[row]
        there = min(3, batch.lengths[e] - t)
        assert futures.live[row].tolist() == [k < there for k in range(3)]
        np.testing.assert_array_equal(futures.actions[row, :there], batch.actions[e, t : t + there])
        np.testing.assert_array_equal(futures.outcomes[row, :there], batch.obs[e, t + 1 : t + 1 + there])


def test_what_does_not_fit_is_one_clear_error(patients):
    for arguments, message in (
        ((TumourParameters(horizon=25), STARTS, CRITERIA), "2\\^25 plans"),
        ((SHORT, [30.0, 2.0], CRITERIA), "starts must be"),
        ((SHORT, STARTS, [((1, 1), 0.9)]), "weights must"),
        ((SHORT, STARTS, [((-1, 0), 1.5)]), "discount factors"),
    ):
        with pytest.raises(ValueError, match=message):
            optimum(*arguments)
    batch = seen(patients)
    with pytest.raises(ValueError, match="does not begin with these patients"):
        flipped_futures(patients.take(np.arange(60)[::-1]), batch, 2)
    for fault in (lambda: flipped_futures(patients, batch, 0), lambda: taken_futures(batch, 0)):
        with pytest.raises(ValueError, match="steps must be at least 1"):
            fault()
    with pytest.raises(ValueError, match="needs noise"):
        replace(patients, noise=patients.noise[:, :3])
    with pytest.raises(ValueError, match="60 patients"):
        PatientsWorld(patients).reset(3, np.random.default_rng(0))
    with pytest.raises(ValueError, match="shapes do not agree"):
        Futures(np.zeros(2, int), np.zeros(2, int), np.zeros((2, 3), int), np.zeros((2, 2, 1)), np.ones((2, 3), bool))
