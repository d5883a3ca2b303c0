"""From exact successor features to weights: where no decision bears on a later one, everything is known."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from product_model import ProductModel, best_value
from small_batches import batch_of
from tiny_run import AGENT, POSTERIOR, fitted, tiny_demo, tiny_fit

from agents.successor import training as successor_training
from agents.successor.agent import SuccessorAgent, SuccessorConfig
from agents.successor.planning import plan
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import draw_weights
from cirl_gym.data.habits import Contexts
from cirl_gym.data.outcome_model import foresee
from cirl_gym.types import FloatArray
from irl.checks.quality import QualityConfig, planned_and_reached
from irl.pipeline import Fit, simulate
from irl.preferences.inference import (
    PosteriorConfig,
    judged_episodes,
    judged_preferences,
    near_weights,
    plan_pool,
    spread_weights,
)
from irl.preferences.likelihood import PlanPool
from irl.preferences.posterior import PosteriorResult, prepared, sample_posterior
from irl.stages import stages

SMALL = PosteriorConfig(decisions=100, plans=4, near_plans=2, draws=50)


class OneStep:
    """Decisions that end with their own outcome: action a brings phi_a, and that is all; psi needs no plan.

    Ten decisions stand together as one patient's, each of them with an outcome of its own.
    """

    def __init__(self, truth: FloatArray, kappa: float, n: int, n_actions: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.phi = rng.random((n // 10, 10, n_actions, len(truth)))
        logits = kappa * self.phi @ truth
        taken = (logits + rng.gumbel(size=logits.shape)).argmax(axis=2)
        self.batch: Batch = batch_of(*taken, n_actions=n_actions, d=len(truth))
        self.asked: list[FloatArray] = []
        self.widths: list[int | None] = []

    def psi(self, w: FloatArray, width: int | None) -> FloatArray:
        several = np.atleast_2d(w)
        self.asked.extend(several)
        self.widths.extend([width] * len(several))
        return self.phi if w.ndim == 1 else np.stack([self.phi] * len(w))


def inferred(world: OneStep, signs: list[int], config: PosteriorConfig, seed: int = 0) -> PosteriorResult:
    rng, fixed = np.random.default_rng(seed), np.array(signs, float)
    return sample_posterior(plan_pool(world.psi, world.batch, fixed, config, rng), fixed, rng, config.draws)


@pytest.mark.parametrize("truth", [(-0.3, -0.7), (0.5, -0.5), (-0.2, 0.3, -0.5)])
def test_weights_are_recovered(truth):
    world = OneStep(np.array(truth), 30.0, n=1000, n_actions=len(truth), seed=1)
    found = inferred(world, [0] * len(truth), PosteriorConfig(plans=1, near_plans=1))
    # The standard deviation of the posterior is about .015 here.
    np.testing.assert_allclose(found.mean, truth, atol=0.06)
    assert found.kappa_mean == pytest.approx(30, rel=0.25)
    assert found.sampler.converged


@pytest.mark.parametrize("signs", [[-1, -1], [1, 0], [-1, 0, 1], [0, 0, -1, 1]])
def test_signs_are_kept_by_plans_draws_and_intervals(signs):
    # The truth has the opposite signs, where one is fixed: even then none is crossed.
    truth = np.where(np.array(signs) == 0, 1.0, -np.array(signs, float)) / len(signs)
    world = OneStep(truth, 10.0, n=200, n_actions=2, seed=3)
    found = inferred(world, signs, SMALL)
    for rows in (found.mean, found.low, found.high, found.draws, np.stack(world.asked)):
        assert (rows * np.array(signs) >= -1e-12).all()
    np.testing.assert_allclose(np.abs(np.stack(world.asked)).sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("signs", "spread", "near"),
    [([-1, -1], 4, 4), ([0, 0], 8, 4), ([-1, 0], 4, 4), ([-1, 0, 1], 5, 4), ([0], 2, 0), ([1], 1, 0)],
)
def test_plans_are_solved_for_once_and_reported(signs, spread, near):
    world = OneStep(np.full(len(signs), 1 / len(signs)), 10.0, n=50, n_actions=2, seed=4)
    told: list[tuple[int, int]] = []
    rng, fixed = np.random.default_rng(0), np.array(signs, float)
    pool = plan_pool(world.psi, world.batch, fixed, SMALL, rng, progress=lambda *done: told.append(done))
    # Two rounds of two plans each near the mean, searched more widely than the others; a single outcome needs none.
    assert len(world.asked) == len(pool.psi) == spread + near
    # Eight at once, in each of the rounds.
    searches = -(-spread // 8) + 2 * -(-near // 16)
    assert told == [(i + 1, searches) for i in range(searches)]
    widely = near or spread
    assert world.widths == [SMALL.spread_width] * (spread + near - widely) + [SMALL.near_width] * widely
    np.testing.assert_array_equal(np.stack(world.asked[:spread]), spread_weights(fixed, 4, np.random.default_rng(0)))


def test_weights_are_spread_over_what_signs_allow():
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(spread_weights(np.array([-1.0, -1.0]), 2, rng), [[-0.75, -0.25], [-0.25, -0.75]])
    both = spread_weights(np.zeros(2), 16, rng)
    assert len({tuple(np.sign(w)) for w in both}) == 4
    assert len(both) == 16
    assert len(spread_weights(np.zeros(2), 1, rng)) == 8, "two of each side at least"
    np.testing.assert_array_equal(spread_weights(np.array([0.0]), 16, rng), [[-1.0], [1.0]])
    np.testing.assert_array_equal(spread_weights(np.array([-1.0]), 16, rng), [[-1.0]])
    assert spread_weights(np.array([-1.0, 1.0, 0.0, 0.0]), 8, rng).shape == (8 + 2, 4)


def test_near_weights_are_the_means_and_then_draws():
    world = OneStep(np.array([-0.3, -0.7]), 30.0, n=1000, n_actions=2, seed=5)
    pool = PlanPool(world.batch, world.phi[None])
    found = sample_posterior(pool, [-1, -1], np.random.default_rng(0))
    near = near_weights(pool, np.array([-1.0, -1.0]), 40, np.random.default_rng(1))
    assert near.shape == (40, 2)
    assert np.abs(near[0] - found.mean).max() < 0.01
    spread = found.draws.std(axis=0)
    np.testing.assert_allclose(near[1:].std(axis=0), spread, rtol=0.4)
    assert (np.abs(near[1:] - found.mean) < 5 * spread).all()
    np.testing.assert_allclose(np.abs(near).sum(axis=1), 1.0)
    assert near_weights(pool, np.array([-1.0, -1.0]), 1, np.random.default_rng(1)).shape == (1, 2)


def test_habits_are_judged_beside_outcomes():
    """Experts who repeat themselves whatever they foresee: with habits their weights are unknown, not strange."""
    world = OneStep(np.zeros(2), 0.0, n=400, n_actions=2, seed=7)
    stays = np.random.default_rng(0).random((40, 10)) < 0.85
    taken = np.cumsum(~stays, axis=1) % 2
    world.batch = batch_of(*taken.tolist())
    config, contexts = replace(SMALL, decisions=400), Contexts.of(world.batch, ("previous",))

    def psi(batch, w, width):
        return np.stack([world.phi[[int(name[1:]) for name in batch.ids]]] * len(w))

    found, pool = judged_preferences(psi, world.batch, np.zeros(2), config, np.random.default_rng(0), contexts)
    assert pool.contexts == found.contexts == contexts
    again = found.habit.logits[1:] @ [1.0, -1.0]
    assert again[0] == pytest.approx(np.log(0.85 / 0.15), abs=0.6)
    assert again[1] == pytest.approx(-np.log(0.85 / 0.15), abs=0.6)
    assert (found.low < 0).all()
    assert (found.high > 0).all()


def test_same_seed_same_posterior_and_another_seed_another_one():
    world = OneStep(np.array([-0.3, -0.2, -0.5]), 10.0, n=100, n_actions=2, seed=6)
    one, again, other = (inferred(world, [-1, -1, -1], SMALL, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.draws, again.draws)
    assert not np.array_equal(one.draws, other.draws)


def test_judged_episodes_are_whole_and_reach_the_number():
    batch = batch_of(*([0, 1, 0, 1, 1][:k] for k in (5, 3, 1, 4, 2, 5)))
    by_id = dict(zip(batch.ids, batch.episodes(), strict=True))
    for wanted in (1, 5, 11, 19, 20):
        judged = judged_episodes(batch, wanted, np.random.default_rng(wanted))
        assert judged.n_steps >= wanted
        assert len(set(judged.ids)) == len(judged)
        for name, (obs, actions) in zip(judged.ids, judged.episodes(), strict=True):
            np.testing.assert_array_equal(obs, by_id[name][0])
            np.testing.assert_array_equal(actions, by_id[name][1])
        if len(judged) > 1:
            without_last = judged.take(np.arange(len(judged) - 1))
            assert without_last.n_steps < wanted, "no more episodes than are needed"
    few = judged_episodes(batch_of([0, 1], [1]), 1000, np.random.default_rng(0))
    assert sorted(few.ids) == ["e0", "e1"], "all where there are too few"
    batch = batch_of(*([0] for _ in range(50)))
    first = [judged_episodes(batch, 10, np.random.default_rng(seed)).ids for seed in (0, 0, 1)]
    assert first[0] == first[1] != first[2], "in a random order"


@pytest.mark.parametrize("name", ["decisions", "plans", "spread_width", "near_plans", "near_width", "draws"])
def test_every_number_must_be_at_least_one(name):
    with pytest.raises(ValueError, match="every number must be at least 1"):
        PosteriorConfig(**{name: 0})


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


# Every plan of six steps is searched, from every start, so that nothing rests on what the network has learnt.
EXACT = tiny_fit(
    agent=replace(AGENT, width=64),
    posterior=replace(POSTERIOR, decisions=150, spread_width=64, near_width=64, draws=1),
    starts=999,
)


def relabelled(batch: Batch) -> Batch:
    """Action 0 is called 1, and 1 is called 0."""
    return replace(batch, actions=np.where(batch.mask, 1 - batch.actions, 0), action_names=batch.action_names[::-1])


@pytest.fixture(scope="module")
def found() -> tuple[Fit, Fit]:
    seen = simulate(tiny_demo(), stages(20, quiet=True))
    splits = (seen.train, seen.validation)
    return fitted(*splits, EXACT), fitted(*map(relabelled, splits), EXACT)


def test_neither_names_of_actions_nor_the_size_of_weights_matter(found):
    one, other = found
    # Draws follow other paths after a rounding error; what they are drawn around does not.
    peaks = [density.theta(peak) for density, peak, _ in (prepared(each.pool, [-1, -1]) for each in found)]
    np.testing.assert_allclose(peaks[1], peaks[0], rtol=2e-3)
    np.testing.assert_allclose(other.mu_expert.mean, one.mu_expert.mean, atol=1e-4)
    # Later rounds can ask for weights under which policies tie.
    np.testing.assert_allclose(other.loop.rounds[0].mu, one.loop.rounds[0].mu, atol=1e-4)
    agent, starts = found[0].agent, found[0].pool.batch.start
    w = np.array([-0.2, -0.1])
    np.testing.assert_array_equal(agent.mu(3 * w, starts), agent.mu(w, starts))
    batch = found[0].pool.batch
    np.testing.assert_array_equal(agent.psi(batch, 3 * w), agent.psi(batch, w))
