"""mu by roll-outs: the enumeration of an exact small world, in numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from known_model import KnownModel, best_plans, value_of_plan
from small_agents import exact_agent, known_problem

from agents.as_printed.mu import EndlessWorld, RollOutConfig, rolled_out_mu
from cirl_gym.data.rollout import rollout
from cirl_gym.worlds.world import CounterfactualWorld


class Planned:
    """The same plan for everybody; its memory is the time."""

    def __init__(self, *plan: int) -> None:
        self.plan = plan

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        time = np.zeros(len(observation), dtype=np.int64) if state is None else state[0]
        return np.array(self.plan)[time], (time + 1,)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("plan", [(0, 0, 0, 0), (1, 2, 0, 1), (2, 1, 2, 2)])
def test_the_mu_of_a_plan_is_its_enumeration(plan, gamma):
    problem = known_problem(gamma=gamma)
    by_hand = [value_of_plan((x, y, None), plan, gamma) for x, y in problem.starts.tolist()]
    np.testing.assert_allclose(rolled_out_mu(Planned(*plan), problem), np.mean(by_hand, axis=0), rtol=1e-6)


@pytest.fixture(scope="module")
def agent():
    return exact_agent()


@pytest.mark.parametrize("w", [(-0.3, -0.7), (0.6, -0.4), (0.5, 0.5)])
def test_the_mu_of_the_optimal_policy_is_that_of_the_best_of_all_plans(agent, w):
    problem, w = known_problem(), np.array(w)
    found = rolled_out_mu(agent.policy(w), problem)
    plans = np.array([best_plans((x, y, None), 4, 0.5, w) for x, y in problem.starts.tolist()])
    assert w @ found == pytest.approx((plans @ w).max(axis=1).mean(), abs=1e-6)
    # Read off the agent it is the same; of plans that are equally good for w, either may be followed.
    assert w @ found == pytest.approx(w @ agent.mu(w, problem.starts), abs=1e-6)


def test_sampled_outcomes_scatter_around_the_expected_ones_and_all_policies_meet_the_same():
    # Without ends the model is linear: residuals move single roll-outs, but not the mean of many.
    problem = known_problem(model=KnownModel(ends=False))
    many = replace(problem, starts=np.repeat(problem.starts, 100, axis=0))
    sampled = RollOutConfig(episodes=5000, outcome="sampled")
    policy = Planned(1, 2, 0, 1)
    found, exact = rolled_out_mu(policy, many, sampled, seed=1), rolled_out_mu(policy, problem)
    assert (found != exact).all()
    # A residual of .25 at every step: on the scale of phi at most .25 / 4 * 4 steps, over the root of 5,000 roll-outs.
    np.testing.assert_allclose(found, exact, atol=4 * 0.25 / np.sqrt(5000))
    assert rolled_out_mu(policy, many, sampled, seed=1).tobytes() == found.tobytes()
    assert (rolled_out_mu(policy, many, sampled, seed=2) != found).any()
    # The last action changes the last outcome alone: the same residuals lead there.
    last = rolled_out_mu(Planned(1, 2, 0, 2), many, sampled, seed=1) - found
    expected = rolled_out_mu(Planned(1, 2, 0, 2), problem) - exact
    np.testing.assert_allclose(last, expected, rtol=1e-5)


def test_the_first_observations_are_evenly_spread():
    problem = known_problem()
    rows = problem.starts[[0, 24, 49]]
    few = rolled_out_mu(Planned(0, 1, 0, 1), problem, RollOutConfig(episodes=3))
    np.testing.assert_array_equal(few, rolled_out_mu(Planned(0, 1, 0, 1), replace(problem, starts=rows)))
    whole = rolled_out_mu(Planned(0, 1, 0, 1), problem, RollOutConfig(episodes=50))
    np.testing.assert_array_equal(whole, rolled_out_mu(Planned(0, 1, 0, 1), problem, RollOutConfig(episodes=9999)))


def test_nothing_ends_in_an_endless_world():
    problem = known_problem()
    world = CounterfactualWorld(problem.model, problem.starts, 4)
    assert rollout(world, Planned(2, 2, 2, 2), 50, np.random.default_rng(0)).terminated.any()
    endless = rollout(EndlessWorld(problem.model, problem.starts, 4), Planned(2, 2, 2, 2), 50, np.random.default_rng(0))
    assert (endless.lengths == 4).all()
    assert endless.truncated.all()
    assert endless.features == ("x", "y")


def test_impossible_settings():
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        RollOutConfig(episodes=0)
    with pytest.raises(ValueError, match="must be 'expected' or 'sampled'"):
        RollOutConfig(outcome="guessed")
