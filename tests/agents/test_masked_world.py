"""A world in which not every action is always allowed: plans, policies and mu against all allowed plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from known_model import PHI, KnownModel, best_plans, weights
from small_agents import TINY, known_agent, known_problem

from agents.as_printed.learning import rolled_out_mu
from agents.successor.agent import SuccessorAgent
from agents.successor.planning import Search, best_plan, plan
from agents.successor.training import RandomRates, fit_successor
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import CounterfactualWorld, ForesightModel, foresee
from cirl_gym.data.rollout import rollout
from cirl_gym.data.rules import read_rules
from cirl_gym.outcome_models.masked import MaskedModel, allowed_actions, rules_of, with_rules, without_rules

HORIZON, GAMMA = 4, 0.5
TEXTS = ("1 when Above(x, 0.5)", "0 when After(0)", "2 unless Below(y, 1)")
RULES = read_rules(TEXTS, ("x", "y"), ("0", "1", "2"))
assert RULES is not None
MODEL = MaskedModel(KnownModel(), RULES)


def left(x, y, previous):
    """The rules above, once more, in plain Python: in their order, the last that is left stays."""
    actions = {0, 1, 2}
    for action, forbidden in ((1, x > 0.5), (0, previous == 0), (2, not y < 1)):
        if forbidden and actions != {action}:
            actions -= {action}
    return actions


def exact(rows, w):
    """``[n, 3]`` value of the best allowed plan that begins with each action, allowed or not."""
    return np.array(
        [
            best_plans((*row, None), HORIZON, GAMMA, weight, left=left) @ weight
            for row, weight in zip(rows.tolist(), w, strict=True)
        ]
    )


def best(rows, w):
    """``[n]`` value of the best allowed plan of all."""
    return np.where(MODEL.allowed(MODEL.start(rows)), exact(rows, w), -np.inf).max(axis=1)


def starts(n=20):
    return (np.random.default_rng(3).integers(-8, 9, size=(n, 2)) / 4).astype(np.float32)


def exact_agent():
    return fit_successor(known_problem(model=MODEL), replace(TINY, width=81), np.random.default_rng(0))


def test_the_rules_as_written_twice():
    for obs in starts(40):
        for previous in (-1, 0, 1, 2):
            mask = MODEL.rules.allowed(obs, np.array(previous))
            assert set(np.flatnonzero(mask)) == left(*obs.tolist(), previous)


def test_a_state_says_what_is_allowed_along_any_history():
    states, obs = MODEL.start(starts()), starts()
    np.testing.assert_array_equal(MODEL.allowed(states), MODEL.rules.allowed(obs, np.full(20, -1)))
    rng = np.random.default_rng(0)
    for _ in range(3):
        actions = rng.integers(3, size=20)
        obs = MODEL.predict(states)[np.arange(20), actions]
        states = MODEL.advance(states, actions, obs)
        np.testing.assert_array_equal(MODEL.allowed(states), MODEL.rules.allowed(obs, actions))


def test_predictions_are_the_models_own():
    model = KnownModel()
    inner, outer = model.start(starts()), MODEL.start(starts())
    actions = np.arange(20) % 3
    obs = model.predict(inner)[np.arange(20), actions]
    inner, outer = model.advance(inner, actions, obs), MODEL.advance(outer, actions, obs)
    np.testing.assert_array_equal(MODEL.predict(outer), model.predict(inner))
    np.testing.assert_array_equal(MODEL.end_probability(outer), model.end_probability(inner))
    for a, b in zip(foresee(MODEL, outer, actions), foresee(model, inner, actions), strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(MODEL, ForesightModel)
    assert (MODEL.features, MODEL.n_actions, MODEL.bounds[1].tolist()) == (model.features, 3, model.bounds[1].tolist())
    np.testing.assert_array_equal(MODEL.noise(np.ones(2)), model.noise(np.ones(2)))
    np.testing.assert_array_equal(MODEL.noise_scale, model.noise_scale)


def test_encoded_histories_are_those_that_are_walked():
    agent = exact_agent()
    world = CounterfactualWorld(MODEL, starts(), HORIZON)
    batch = rollout(world, agent.policy([0.5, 0.5]), 20, np.random.default_rng(0))
    states = MODEL.encode(batch)
    walked = MODEL.start(batch.start)
    for t in range(batch.horizon):
        live = batch.mask[:, t]
        np.testing.assert_array_equal(states[live, t], walked[live])
        walked = MODEL.advance(walked, batch.actions[:, t], batch.obs[:, t + 1])
    assert not states[~batch.seen].any()


def test_with_and_without():
    model = KnownModel()
    assert with_rules(model, None) is model
    assert (rules_of(model), allowed_actions(model, model.start(starts()))) == (None, None)
    assert without_rules(model) is model
    assert without_rules(with_rules(model, RULES)) is model
    assert rules_of(MODEL) is RULES
    more = read_rules(["1 when After(2)"], ("x", "y"), ("0", "1", "2"))
    both = rules_of(with_rules(MODEL, more))
    assert both is not None
    assert [rule.name for rule in both.rules] == [*TEXTS, "1 when After(2)"]
    assert without_rules(with_rules(MODEL, more)) is MODEL.model
    other = read_rules(["0 when After(1)"], ("x", "y"), ("0", "1"))
    assert other is not None
    with pytest.raises(ValueError, match="the rules are for features"):
        MaskedModel(model, other)


# --- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [27, 81])
def test_with_room_for_every_plan_the_best_allowed_one_is_found(width):
    rows, w = starts(), weights(20)
    search = Search(MODEL, PHI, lambda t, s, _: np.zeros((len(s), 3)), HORIZON, GAMMA, width)
    psi = plan(search, 0, MODEL.start(rows), w)
    np.testing.assert_allclose(np.einsum("nad,nd->na", psi, w), exact(rows, w), atol=1e-6)


@pytest.mark.parametrize("width", [1, 2, 81])
def test_the_best_plan_of_all_begins_with_an_allowed_action(width):
    rows, w = starts(), weights(20, 1)
    # The estimate promises most for what is forbidden.
    search = Search(MODEL, PHI, lambda t, s, _: np.where(MODEL.allowed(s), 0.0, 1e3), HORIZON, GAMMA, width)
    psi = best_plan(search, 0, MODEL.start(rows), w)
    exhaustive = best(rows, w)
    value = np.einsum("nd,nd->n", psi, w)
    assert (value <= exhaustive + 1e-6).all()
    if width == 81:
        np.testing.assert_allclose(value, exhaustive, atol=1e-6)


# --- agents --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [None, 0.0, 3.0])
def test_a_policy_never_does_what_is_forbidden(kappa):
    agent = fit_successor(known_problem(model=MODEL), TINY, np.random.default_rng(0))
    world = CounterfactualWorld(MODEL, starts(50), HORIZON, outcome="sampled")
    policy = agent.policy([0.6, -0.4], kappa, 1)
    batch = rollout(world, policy, 300, np.random.default_rng(0), deterministic=kappa is None)
    checked = MODEL.rules.masked(batch)  # raises where one was
    assert checked.allowed is not None
    forced = checked.allowed[batch.mask].sum(axis=1) == 1
    assert 0.05 < forced.mean() < 0.95


def test_q_is_minus_infinity_where_forbidden_and_psi_is_not():
    agent = exact_agent()
    world = CounterfactualWorld(MODEL, starts(), HORIZON)
    batch = rollout(world, agent.policy([0.5, 0.5]), 20, np.random.default_rng(0))
    q, psi = agent.q(batch, [0.5, 0.5]), agent.psi(batch, [0.5, 0.5])
    mask = MODEL.rules.masked(batch).allowed
    assert np.isneginf(q[batch.mask][~mask[batch.mask]]).all()
    np.testing.assert_array_equal(q[batch.mask][mask[batch.mask]], (psi @ [0.5, 0.5])[batch.mask][mask[batch.mask]])
    # The first values are exact.
    values = exact(batch.start, np.full((20, 2), 0.5))
    np.testing.assert_allclose(q[:, 0][mask[:, 0]], values[mask[:, 0]], atol=1e-6)


@pytest.mark.parametrize("w", [(0.5, 0.5), (-0.9, 0.1), (0.2, -0.8)])
def test_mu_is_that_of_the_policy_in_the_masked_world(w):
    agent, problem = exact_agent(), known_problem(model=MODEL)
    read_off = agent.mu(w, problem.starts)
    np.testing.assert_allclose(read_off, rolled_out_mu(agent.policy(w), problem), atol=1e-6)
    value = best(problem.starts, np.tile(w, (len(problem.starts), 1))).mean()
    assert read_off @ w == pytest.approx(value, abs=1e-6)
    assert value < known_agent(config=replace(TINY, width=81)).mu(w, problem.starts) @ w - 0.01
    # Searching from a part is masked too.
    np.testing.assert_allclose(agent.mu(w, problem.starts, 25), read_off, atol=0.15)


def test_an_agent_is_read_with_its_rules_and_the_same_seed_gives_the_same_one(tmp_path):
    agent = exact_agent()
    agent.save(tmp_path / "agent.npz")
    again = SuccessorAgent.load(tmp_path / "agent.npz", MODEL)
    np.testing.assert_array_equal(again.mu([0.5, 0.5], starts()), agent.mu([0.5, 0.5], starts()))
    with pytest.raises(ValueError, match="another world model"):
        SuccessorAgent.load(tmp_path / "agent.npz", KnownModel())
    one, two = (fit_successor(known_problem(model=MODEL), TINY, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one.mu([0.5, 0.5], starts()), two.mu([0.5, 0.5], starts()))


def test_what_is_imagined_for_training_obeys():
    explorer = RandomRates(HORIZON, 3, np.random.default_rng(0), MODEL.rules)
    world = CounterfactualWorld(MODEL, starts(), HORIZON, outcome="sampled")
    batch: Batch = rollout(world, explorer, 500, np.random.default_rng(1), deterministic=False)
    MODEL.rules.masked(batch)
    assert set(batch.actions[batch.mask]) == {0, 1, 2}
