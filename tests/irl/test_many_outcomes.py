"""Twenty outcomes and twenty-five actions: the optimum is known although nobody could try every plan."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from product_model import ProductModel, best_value

from agents.successor import training as successor_training
from agents.successor.agent import SuccessorAgent, SuccessorConfig
from agents.successor.planning import plan
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym.data.features import draw_weights
from cirl_gym.data.outcome_model import foresee
from irl.checks.quality import QualityConfig, planned_and_reached

GAMMA, HORIZON = 0.99, 4
FULL = float(np.sum(GAMMA ** np.arange(HORIZON)))


def product_problem(d: int, levels: int, horizon: int = HORIZON) -> Problem:
    model = ProductModel(d, levels)
    starts = np.random.default_rng(5).uniform(0, 1, (200, d)).astype(np.float32)
    return Problem(model, model.feature_map, starts, horizon, GAMMA, uniform_weights(np.zeros(d)))


@pytest.fixture(scope="module")
def problem() -> Problem:
    return product_problem(20, 5)


@pytest.fixture(scope="module")
def agent(problem) -> SuccessorAgent:
    config = SuccessorConfig(episodes=200, gradient_steps=40, batch_size=256)
    return fit_successor(problem, config, np.random.default_rng(0))


def test_the_best_plan_of_both_halves_is_the_best_of_all():
    model = ProductModel(4, 2)
    rng = np.random.default_rng(1)
    for w in draw_weights(np.zeros(4), rng, 5):
        obs = rng.uniform(0, 1, 4).astype(np.float32)
        values = []
        for actions in itertools.product(range(4), repeat=3):
            state, value = model.start(obs[None]), 0.0
            for step, action in enumerate(actions):
                outcome = model.predict(state)[:, action]
                value += GAMMA**step * float(model.feature_map(outcome)[0] @ w)
                state = model.advance(state, np.array([action]), outcome)
            values.append(value)
        assert best_value(model, obs, w, 3, GAMMA) == pytest.approx(max(values), abs=1e-6)


def test_one_action_is_foreseen_as_among_all():
    model, rng = ProductModel(6, 3), np.random.default_rng(2)
    states = rng.uniform(0, 1, (30, 12)).astype(np.float32)
    actions = rng.integers(9, size=30)
    outcomes, ends = foresee(model, states, actions)
    np.testing.assert_allclose(outcomes, model.predict(states)[np.arange(30), actions], atol=1e-6)
    assert not ends.any()
    # Limits bend the world, or it would be too easy.
    assert ((outcomes == 0) | (outcomes == 1)).any()


def test_plans_come_close_to_the_optimum_and_closer_the_wider_the_search(problem, agent):
    starts = problem.starts[:10]
    losses = {}
    for width in (1, 8, 64):
        agent.width = width
        lost = []
        for w in draw_weights(np.zeros(20), np.random.default_rng(9), 6):
            best = np.mean([best_value(problem.model, obs, w, HORIZON, GAMMA) for obs in starts])
            lost.append((best - w @ agent.mu(w, starts)) / FULL)
        assert min(lost) > -1e-6
        losses[width] = float(np.mean(lost))
    agent.width = 8
    # Shares of the full range; never acting loses about .1 of it.
    assert losses[64] < 0.002
    assert losses[64] < losses[8] < losses[1] < 0.03


def test_quality_is_measured_with_many_outcomes_too(problem, agent):
    weights = draw_weights(np.zeros(20), np.random.default_rng(1), 4)
    found = planned_and_reached(agent, problem, weights, np.random.default_rng(0), QualityConfig(starts=2))
    assert found.planned.shape == (4, 20)
    found.check(0.05)


def test_many_actions_are_learnt_from_fewer_histories(monkeypatch):
    """A stage has enough of some ten thousand returns, and nine actions give nine per history and w."""
    seen = []

    def watched(search, t, states, w):
        seen.append(len(states))
        return plan(search, t, states, w)

    monkeypatch.setattr("agents.successor.agent.plan", watched)
    problem = product_problem(4, 3, horizon=2)
    config = SuccessorConfig(episodes=100, gradient_steps=2, batch_size=32, hidden=(4,))
    fit_successor(problem, config, np.random.default_rng(0))
    assert seen == [200, 200]
    monkeypatch.setattr(successor_training, "_TARGETS", 500)
    seen.clear()
    fit_successor(problem, config, np.random.default_rng(0))
    # 27 histories, 2 w each, 9 actions: 486 returns.
    assert seen == [54, 54]
