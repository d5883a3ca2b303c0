"""The exact optimum against every plan written out, and against what policies earn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scripted import Scripted, plain_course

from cirl_gym import TumourParameters, TumourWorld, rollout
from cirl_gym.data.rollout import returns
from cirl_gym.worlds.exact import optimum
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


def test_nobody_earns_more():
    starts = draw_start(SHORT, 30, np.random.default_rng(0))
    best = optimum(SHORT, starts, [((-0.3, -0.7), 0.99)]).values[:, 0]
    world, phi = TumourWorld(SHORT, noise=False), SHORT.feature_map
    for seed in range(20):
        batch = rollout(world, Scripted(0.5, seed), 30, np.random.default_rng(0), start=world.start(starts))
        assert (returns(batch, phi, np.array([-0.3, -0.7]), 0.99) <= best + 1e-9).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((TumourParameters(horizon=25), STARTS, CRITERIA), "2\\^25 plans"),
        ((SHORT, [30.0, 2.0], CRITERIA), "starts must be"),
        ((SHORT, STARTS, [((1, 1), 0.9)]), "weights must"),
        ((SHORT, STARTS, [((-1, 0), 1.5)]), "discount factors"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        optimum(*arguments)
