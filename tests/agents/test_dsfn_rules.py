"""DSFN among allowed actions, against an exact solver."""

from __future__ import annotations

from dataclasses import replace

import five_states
import numpy as np
import pytest
import torch
from five_states import GAMMA, POLICIES, TREAT, WAIT
from ruled_patients import FELT, NOT_TWICE, experts
from small_batches import batch_of
from small_dsfn import BURDEN, FIVE, TINY, WITH_MEMORY

from agents.dsfn import DSFN, DSFNSolution, WarmStartNetwork, WarmStartSizes, best_of, transitions
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import act_along
from cirl_gym.data.rules import read_rules
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.types import FloatArray
from irl.baselines.methods import DSFNLoopConfig, fit_dsfn

W = np.array([-0.7, -0.3])
LAWFUL = np.ones((5, 2), dtype=bool)
LAWFUL[[five_states.DRUGGED, five_states.TOXIC], TREAT] = False
STATES = np.concatenate([five_states.BURDEN, np.zeros((5, 2))], axis=1).astype(np.float32)


def ruled_values(w) -> tuple[FloatArray, FloatArray]:
    """Of the best among the eight policies that keep to FELT: Q ``[5, 2]`` and mu ``[2]``."""
    kept = [np.eye(2)[p] for p in POLICIES if LAWFUL[np.arange(5), p].all()]
    assert len(kept) == 8
    q = np.stack([five_states.psi_of(policy) @ w for policy in kept]).max(axis=0)
    return q, max((five_states.mu_of(policy) for policy in kept), key=lambda mu: mu @ w)


def softmax(q: FloatArray) -> FloatArray:
    p = np.exp(3.0 * (q - q.max(axis=1, keepdims=True)))
    return p / p.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def felt() -> DSFN:
    """Experts who err and do not treat whom they may not."""
    chances = softmax(ruled_values(np.array([-0.3, -0.7]))[0])
    train, validation = experts(FELT, chances, 300, 0), experts(FELT, chances, 60, 1)
    return DSFN.fit(train, validation, BURDEN, GAMMA, FIVE, np.random.default_rng(0), rules=FELT)


@pytest.fixture(scope="module")
def solved(felt) -> DSFNSolution:
    return felt.solve(W)


def test_policy_and_q_are_the_best_of_those_that_keep_to_the_rules(solved):
    q, mu = ruled_values(W)
    among = np.where(LAWFUL, q, -np.inf)
    chosen, _ = solved.policy.predict(STATES)
    assert LAWFUL[np.arange(5), chosen].all()
    reached = np.arange(five_states.TOXIC)
    np.testing.assert_array_equal(chosen[reached], among.argmax(axis=1)[reached])
    np.testing.assert_allclose(solved.mu, mu, atol=0.1)
    # Without rules another policy would be best, and its mu is another.
    assert np.abs(five_states.solve(W).mu - mu).max() > 0.2
    # Q is that of allowed actions.
    scores, _ = solved.policy.act(STATES, None, None)
    assert np.isneginf(scores[~LAWFUL]).all()
    # Nobody was ever toxic or well: that takes a treatment of who is drugged.
    seen = LAWFUL & (np.arange(5) < five_states.TOXIC)[:, None]
    np.testing.assert_allclose(scores[seen], ruled_values(W)[0][seen], atol=1e-2)


def test_the_imitation_keeps_to_the_rules_too(felt):
    begun = felt.initial()
    seen = np.repeat(STATES, 500, axis=0)
    drawn, _ = begun.policy.predict(seen)
    assert np.tile(LAWFUL[:, None], (1, 500, 1)).reshape(-1, 2)[np.arange(2500), drawn].all()
    assert 0 < drawn.mean() < 1
    chances = np.where(LAWFUL, softmax(ruled_values(np.array([-0.3, -0.7]))[0]), 0.0)
    expert = chances / chances.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(begun.mu, five_states.mu_of(expert), atol=0.15)


def test_what_is_imitated_is_the_choice_among_what_was_allowed():
    """Experts who treat seven times of ten, wherever they may: the memoryless copy cannot see where they may."""
    chances = np.tile([0.3, 0.7], (5, 1))
    train, validation = experts(NOT_TWICE, chances, 300, 0), experts(NOT_TWICE, chances, 60, 1)
    few = replace(FIVE, mu=replace(FIVE.mu, iterations=1))
    dsfn = DSFN.fit(train, validation, BURDEN, GAMMA, few, np.random.default_rng(0), rules=NOT_TWICE)
    with torch.no_grad():
        copied = torch.softmax(dsfn.network.action(dsfn.steps.features), dim=-1).numpy()
    free = train.allowed[train.mask].all(axis=1)
    assert copied[free, TREAT].mean() == pytest.approx(0.7, abs=0.05)
    state = np.abs(train.obs[:, :-1, None] - five_states.BURDEN).sum(axis=3).argmin(axis=2)[train.mask]
    mild = (state == five_states.MILD) & free
    assert copied[mild, TREAT].mean() == pytest.approx(0.7, abs=0.1)
    treated = (train.actions[train.mask] == TREAT)[state == five_states.MILD].mean()
    assert treated < 0.55, "a copy that does not know why would treat less"


@pytest.mark.parametrize("config", [TINY, WITH_MEMORY], ids=["x", "h"])
def test_no_forbidden_action_in_the_whole_loop(config):
    chances = np.tile([0.3, 0.7], (5, 1))
    train, validation = experts(NOT_TWICE, chances, 30, 0), experts(NOT_TWICE, chances, 10, 1)
    loop = DSFNLoopConfig(config, rounds=2, tolerance=0.0, accuracy_change=0.0)
    rng = np.random.default_rng(0)
    found = fit_dsfn(train, validation, BURDEN, [0, 0], GAMMA, loop, rng, rules=NOT_TWICE)
    for policy in (found.imitation.policy, *found.loop.policies):
        for deterministic in (True, False):
            chosen = act_along(policy, validation, deterministic=deterministic)
            assert np.take_along_axis(validation.allowed, chosen[..., None], axis=2).all()


def test_backups_by_hand():
    values = torch.tensor([[[1.0], [5.0]], [[2.0], [-4.0]]])
    allowed = torch.tensor([[True, True], [False, True], [True, False]])
    assert best_of(allowed)(values, torch.tensor([2, 1])).tolist() == [[1.0], [-4.0]]
    everything = torch.tensor([0, 0])
    assert best_of(allowed)(values, everything).tolist() == best_of(None)(values, everything).tolist()


def test_masks_are_those_of_the_next_history():
    # The last history of an episode has no step in the batch, and its mask is known all the same.
    rules = read_rules(("a1 when After(a1)", "a0 when Above(x, 11.5)"), ("x", "y"), ("a0", "a1"))
    batch = batch_of([0, 1], [0])  # x is 0, 1, 2 and 10, 11
    network = WarmStartNetwork(2, 2, WarmStartSizes(4, 3))
    phi = FeatureMap(batch.features, np.zeros(2), np.ones(2))
    arguments = (network, Scaler.from_batch(batch), phi, batch, batch.terminated)
    assert transitions(*arguments, rules)[1].allowed.tolist() == [[True, True], [True, False], [True, True]]
    assert transitions(*arguments)[1].allowed is None
    # First histories have masks of their own.
    rules = read_rules(("a0 when Above(x, 9.5)",), ("x", "y"), ("a0", "a1"))
    batch = rules.masked(batch_of([0, 1], [1]))
    dsfn = DSFN(WarmStartNetwork(2, 2, WarmStartSizes(4, 3)), batch, phi, 0.5, TINY, 0, rules)
    ahead, first = (scores.tolist() for scores in dsfn._scored(lambda rows: torch.zeros(len(rows), 2)))
    assert first == [[0, 0], [-np.inf, 0]]
    assert ahead == [[0, 0], [0, 0], [-np.inf, 0]]


def test_masks_without_rules_are_refused():
    batch = experts(NOT_TWICE, np.full((5, 2), 0.5), 10, 0)
    loop = DSFNLoopConfig(TINY)
    with pytest.raises(ValueError, match="DSFN needs the rules"):
        fit_dsfn(batch, batch, BURDEN, [0, 0], GAMMA, loop, np.random.default_rng(0))
    broken = replace(batch, actions=np.ones_like(batch.actions), allowed=None)
    with pytest.raises(ValueError, match="'treat' was taken although it is forbidden"):
        fit_dsfn(broken, broken, BURDEN, [0, 0], GAMMA, loop, np.random.default_rng(0), rules=NOT_TWICE)


def test_the_world_of_these_tests():
    assert (WAIT, TREAT) == (0, 1)
    allowed = FELT.allowed(five_states.BURDEN.astype(np.float32), np.full(5, -1))
    np.testing.assert_array_equal(allowed, LAWFUL)
