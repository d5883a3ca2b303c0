"""A world in which not every action is always allowed: plans, policies and mu against all allowed plans."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from known_model import ENDS, MOVES, PHI, KnownModel
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


def allowed_values(state, first, w):
    """Value and psi of the best allowed plan that begins with ``first``."""
    best = (-np.inf, np.zeros(2))
    for rest in itertools.product(range(3), repeat=HORIZON - 1):
        (x, y, previous), total, reach = state, np.zeros(2), 1.0
        for step, action in enumerate((first, *rest)):
            if step and action not in left(x, y, previous):
                break
            chance = ENDS[action] if x > 0 else 0.0
            before = (0.0, 0.0) if previous is None else MOVES[previous]
            x, y = x + MOVES[action][0] + before[0] / 2, y + MOVES[action][1] + before[1] / 2
            total = total + reach * np.array([x / 4, y / 8])
            reach *= GAMMA * (1 - chance)
            previous = action
        else:
            if total @ w > best[0]:
                best = (total @ w, total)
    return best


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


def weights(n, seed=0):
    w = np.random.default_rng(seed).normal(size=(n, 2))
    return w / np.abs(w).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("width", [27, 81])
def test_with_room_for_every_plan_the_best_allowed_one_is_found(width):
    rows, w = starts(), weights(20)
    psi = plan(
        Search(MODEL, PHI, lambda t, s, _: np.zeros((len(s), 3)), HORIZON, GAMMA, width), 0, MODEL.start(rows), w
    )
    for row, weight, found in zip(rows, w, psi, strict=True):
        for first in range(3):
            np.testing.assert_allclose(
                found[first] @ weight, allowed_values((*row.tolist(), None), first, weight)[0], atol=1e-6
            )


@pytest.mark.parametrize("width", [1, 2, 81])
def test_the_best_plan_of_all_begins_with_an_allowed_action(width):
    rows, w = starts(), weights(20, 1)
    # The estimate promises most for what is forbidden.
    search = Search(MODEL, PHI, lambda t, s, _: np.where(MODEL.allowed(s), 0.0, 1e3), HORIZON, GAMMA, width)
    psi = best_plan(search, 0, MODEL.start(rows), w)
    exhaustive = np.array(
        [
            max(allowed_values((*row.tolist(), None), first, weight)[0] for first in left(*row.tolist(), None))
            for row, weight in zip(rows, w, strict=True)
        ]
    )
    value = np.einsum("nd,nd->n", psi, w)
    assert (value <= exhaustive + 1e-6).all()
    if width == 81:
        np.testing.assert_allclose(value, exhaustive, atol=1e-6)


# --- agents --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kappa", [None, 0.0, 3.0])
def test_a_policy_never_does_what_is_forbidden(kappa):
    agent = fit_successor(known_problem(model=MODEL), TINY, np.random.default_rng(0))
    world = CounterfactualWorld(MODEL, starts(50), HORIZON, outcome="sampled")
    batch = rollout(
        world, agent.policy([0.6, -0.4], kappa, 1), 300, np.random.default_rng(0), deterministic=kappa is None
    )
    checked = MODEL.rules.masked(batch)  # raises where one was
    assert checked.allowed is not None
    forced = checked.allowed[batch.mask].sum(axis=1) == 1
    assert 0.05 < forced.mean() < 0.95


def test_q_is_minus_infinity_where_forbidden_and_psi_is_not():
    agent = exact_agent()
    batch = rollout(
        CounterfactualWorld(MODEL, starts(), HORIZON), agent.policy([0.5, 0.5]), 20, np.random.default_rng(0)
    )
    q, psi = agent.q(batch, [0.5, 0.5]), agent.psi(batch, [0.5, 0.5])
    mask = MODEL.rules.masked(batch).allowed
    assert np.isneginf(q[batch.mask][~mask[batch.mask]]).all()
    np.testing.assert_array_equal(q[batch.mask][mask[batch.mask]], (psi @ [0.5, 0.5])[batch.mask][mask[batch.mask]])
    # The first values are exact.
    for row, values, left_over in zip(batch.start, q[:, 0], mask[:, 0], strict=True):
        for first in np.flatnonzero(left_over):
            exact = allowed_values((*row.tolist(), None), first, np.array([0.5, 0.5]))[0]
            assert values[first] == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("w", [(0.5, 0.5), (-0.9, 0.1), (0.2, -0.8)])
def test_mu_is_that_of_the_policy_in_the_masked_world(w):
    agent, problem = exact_agent(), known_problem(model=MODEL)
    read_off = agent.mu(w, problem.starts)
    np.testing.assert_allclose(read_off, rolled_out_mu(agent.policy(w), problem), atol=1e-6)
    exact = np.mean(
        [
            max(allowed_values((*row.tolist(), None), a, np.array(w))[0] for a in left(*row.tolist(), None))
            for row in problem.starts
        ]
    )
    assert read_off @ w == pytest.approx(exact, abs=1e-6)
    assert exact < known_agent(config=replace(TINY, width=81)).mu(w, problem.starts) @ w - 0.01


def test_searching_from_a_part_is_masked_too():
    agent, problem = exact_agent(), known_problem(model=MODEL)
    whole, part = (agent.mu([0.5, 0.5], problem.starts, searched) for searched in (None, 25))
    np.testing.assert_allclose(part, whole, atol=0.15)


def test_an_agent_is_read_with_its_rules(tmp_path):
    agent = exact_agent()
    agent.save(tmp_path / "agent.npz")
    again = SuccessorAgent.load(tmp_path / "agent.npz", MODEL)
    np.testing.assert_array_equal(again.mu([0.5, 0.5], starts()), agent.mu([0.5, 0.5], starts()))
    with pytest.raises(ValueError, match="another world model"):
        SuccessorAgent.load(tmp_path / "agent.npz", KnownModel())


def test_what_is_imagined_for_training_obeys():
    explorer = RandomRates(HORIZON, 3, np.random.default_rng(0), MODEL.rules)
    world = CounterfactualWorld(MODEL, starts(), HORIZON, outcome="sampled")
    batch: Batch = rollout(world, explorer, 500, np.random.default_rng(1), deterministic=False)
    MODEL.rules.masked(batch)
    assert set(batch.actions[batch.mask]) == {0, 1, 2}


def test_the_same_seed_gives_the_same_agent():
    one, two = (fit_successor(known_problem(model=MODEL), TINY, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one.mu([0.5, 0.5], starts()), two.mu([0.5, 0.5], starts()))
