"""Recurrent Q-learning on histories of a batch, with and without rules: exact optima, and a policy that acts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from five_state_model import (
    ENDS,
    FEATURES,
    PRINTED,
    SMALL,
    TINY,
    ByBurden,
    every_course,
    histories_of,
    numbers,
    problem_of,
    targets_by_hand,
)
from five_states import BURDEN, NEXT, PHI, TREAT, WAIT
from known_model import PHI as KNOWN_PHI
from known_model import KnownModel

from agents.as_printed.histories import Histories, PolicyActions
from agents.as_printed.learning import (
    LearntPolicy,
    MuLearner,
    QLearner,
    learn_mu,
    learn_policy,
    rolled_out_mu,
    stored_policies,
)
from agents.as_printed.training import HistoryRows, _learnt_actions
from agents.candidates import learnt_candidates
from agents.successor.training import Problem, uniform_weights
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import act_along, rollout
from cirl_gym.data.rules import read_rules
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.masked import MaskedModel

W = np.array([-0.8, -0.2])
OTHER = np.array([-0.4, -0.6])
GAMMA, STEPS = 0.9, 3
RULES = read_rules(("treat when After(treat)", "wait when Above(disease, 0.9)"), FEATURES, ("wait", "treat"))


ALLOWED = np.ones((5, 3, 2), dtype=bool)
"""By state and action before (none, wait, treat): never treat twice running, never leave severe.

After a treatment nobody is severe; otherwise waiting, which is asked about last, would be all that is left.
"""
ALLOWED[:, 2, TREAT] = ALLOWED[1, :2, WAIT] = False
EVERYTHING = np.ones_like(ALLOWED)


def exact_psi(w, gamma=GAMMA, p_end=ENDS, allowed=ALLOWED) -> np.ndarray:
    """Psi ``[T, 5, 3, 2, 2]`` by time, state, action before and action, of the best policy among what is allowed."""
    psi, later = np.zeros((STEPS, 5, 3, 2, 2)), np.zeros((5, 3, 2))
    for t in reversed(range(STEPS)):
        for action in (WAIT, TREAT):
            onward = gamma * (1 - p_end[action]) * later[NEXT[:, action], action + 1]
            psi[t, :, :, action] = (PHI[:, action] + onward)[:, None]
        chosen = among(psi[t] @ w, allowed).argmax(axis=2)
        later = np.take_along_axis(psi[t], chosen[..., None, None], axis=2)[:, :, 0]
    return psi


def among(values, allowed=ALLOWED) -> np.ndarray:
    return np.where(allowed, values, -np.inf)


def along(batch, table) -> np.ndarray:
    """Of a table by time, state and action before what belongs to the histories of a batch."""
    before = np.concatenate([np.zeros((len(batch), 1), dtype=int), batch.actions[:, :-1] + 1], axis=1)
    return table[np.arange(STEPS), numbers(batch.obs[:, :-1]), before]


def allowed_along(batch) -> np.ndarray:
    return along(batch, np.tile(ALLOWED, (STEPS, 1, 1, 1)))


def lawful():
    """Every course that keeps to the rules."""
    batch = every_course(STEPS)
    keeps = np.take_along_axis(allowed_along(batch), batch.actions[..., None], axis=2)[..., 0].all(axis=1)
    return RULES.masked(batch.take(keeps))


def problem(rules=RULES, gamma=GAMMA, batch=None) -> Problem:
    if rules is None:
        return problem_of(every_course(STEPS), gamma)
    made = problem_of(lawful() if batch is None else batch, gamma)
    return replace(made, model=MaskedModel(made.model, rules))


@pytest.fixture(scope="module")
def learnt() -> LearntPolicy:
    """The best of those that keep to the rules."""
    return learn_policy(Histories.of(problem()), W, SMALL, np.random.default_rng(0))


@pytest.fixture(scope="module")
def tiny() -> LearntPolicy:
    """Of a world without rules."""
    return learn_policy(Histories.of(problem(None)), OTHER, TINY, np.random.default_rng(0))


@pytest.fixture(params=["tiny", "learnt"])
def policy(request) -> LearntPolicy:
    return request.getfixturevalue(request.param)


class TestOptimum:
    @pytest.mark.parametrize(
        ("rules", "config", "gamma", "w"),
        [
            (None, SMALL, 0.5, W),
            (None, SMALL, 0.99, OTHER),
            (None, PRINTED, 0.99, OTHER),
            (RULES, SMALL, GAMMA, W),
            (RULES, PRINTED, GAMMA, W),
        ],
        ids=["free .5", "free .99", "free, printed", "rules", "rules, printed"],
    )
    def test_the_greedy_policy_is_the_exact_optimum(self, rules, config, gamma, w):
        world = problem(rules, gamma)
        batch, p_end = world.histories, ENDS if config is SMALL else np.zeros(2)
        table = EVERYTHING if rules is None else ALLOWED
        policy = learn_policy(Histories.of(world, config.ends), w, config, np.random.default_rng(0))
        allowed = along(batch, np.tile(table, (STEPS, 1, 1, 1)))
        values = exact_psi(w, gamma, p_end, table) @ w
        q, found = along(batch, values), policy.q(batch)
        assert np.isneginf(found[~allowed]).all()
        np.testing.assert_allclose(found[allowed], q[allowed], atol=4e-2 if rules or config is PRINTED else 3e-2)
        best = among(q, allowed)
        clear = ~(np.abs(best[..., 0] - best[..., 1]) <= 0.02)
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(act_along(policy, batch)[clear], best.argmax(axis=2)[clear])
        if config is SMALL:
            # Acting in the world model it earns what is best there.
            first = among(values, table)[0, numbers(world.starts), 0].max(axis=1)
            assert w @ rolled_out_mu(policy, world) == pytest.approx(first.mean(), abs=1e-5)
        if rules:
            # Rules that change nothing would prove nothing.
            free = exact_psi(w, gamma, p_end, EVERYTHING) @ w
            assert (free.argmax(axis=3) != among(free).argmax(axis=3)).any()
            assert (along(batch, free) - q).max() > 0.1

    @pytest.mark.parametrize("rules", [None, RULES], ids=["free", "rules"])
    def test_the_target_by_hand(self, rules):
        # Q of every history is 1 for waiting and 3 for treating, which rules forbid twice running; gamma is .5, and
        # the second step is the last.
        world = replace(problem(RULES, 0.5, every_course(2)), horizon=2)
        histories = Histories.of(world if rules else replace(world, model=world.model.model), "data")
        learner = QLearner((histories.phi @ torch.tensor([-1.0, 0.0]))[..., None], histories.masks)
        rows = HistoryRows(torch.tensor([0, 0]), torch.tensor([0, 1]))
        got = targets_by_hand(histories, learner, [1.0, 3.0], rows)[..., 0]
        # Mild, then severe: diseases of (1, .2) and (1, .4) follow. After the second step there is nothing.
        after_treating = 0.5 if rules else 1.5
        np.testing.assert_allclose(got, [[-1 + 1.5, -0.2 + after_treating], [-1, -0.4]], atol=1e-6)
        values = torch.tensor([[[1.0], [3.0]]] * 2)
        waited, treated = (HistoryRows(torch.tensor(rows), torch.tensor([1, 1])) for rows in ([0, 4], [2, 6]))
        np.testing.assert_array_equal(every_course(2).actions[[0, 4, 2, 6], 0], [0, 0, 1, 1])
        assert learner.chosen(waited, values, np.random.default_rng(0)).tolist() == [1, 1]
        assert learner.chosen(treated, values, np.random.default_rng(0)).tolist() == ([0, 0] if rules else [1, 1])

        # The loss is squared.
        assert QLearner(torch.zeros(1)).loss(torch.tensor([[[3.0]], [[1.0]]])).item() == 5.0


class TestPolicy:
    def test_a_batch_with_padding(self, policy):
        batch = replace(every_course(STEPS), lengths=np.arange(16) % 3 + 1)
        np.testing.assert_allclose(policy.q(batch), policy.q(batch.padded(7))[:, :STEPS], atol=1e-6)
        assert (policy.q(batch)[~batch.mask] == 0).all()
        assert np.isneginf(policy.q(batch)[batch.mask]).any() == (policy.rules is not None)

    def test_same_seed_same_bytes(self, tiny):
        again = learn_policy(histories_of(every_course(3), GAMMA), OTHER, TINY, np.random.default_rng(0))
        assert again.q(every_course(3)).tobytes() == tiny.q(every_course(3)).tobytes()

    def test_stored_and_read_again(self, policy):
        stored = stored_policies(policy.histories, SMALL if policy.rules else TINY)
        again, batch = stored.policy(W, stored.arrays(policy)), every_course(STEPS)
        assert again.q(batch).tobytes() == policy.q(batch).tobytes()
        np.testing.assert_array_equal(act_along(again, batch), act_along(policy, batch))

    def test_no_forbidden_action_whatever_happened_before(self, learnt):
        batch = every_course(STEPS)  # also after actions that were forbidden
        chosen = act_along(learnt, batch)
        assert np.take_along_axis(allowed_along(batch), chosen[..., None], axis=2).all()
        world = CounterfactualWorld(problem_of(batch, GAMMA).model, batch.start, STEPS)
        played = rollout(world, learnt, len(batch), np.random.default_rng(0))
        named = replace(played, action_names=RULES.action_names, features=FEATURES)
        assert RULES.masked(named).allowed is not None
        # The network by itself would have done otherwise.
        free = LearntPolicy(replace(learnt.histories, rules=None, masks=None), learnt.network)
        assert not np.array_equal(act_along(free, batch), chosen)

    def test_stored_rounds_keep_to_the_rules(self, tmp_path):
        found = []
        for folder in ("a", "a", "b"):
            stored = StoredParts(tmp_path / folder)
            answer = learnt_candidates(
                None, problem(), "drqn", TINY, np.random.default_rng(0), mu="rollouts", stored=stored
            )
            found.append([answer(w) for w in (W, W[::-1])])
        batch = every_course(STEPS)
        for first, again, fresh in zip(*found, strict=True):
            assert first.mu.tobytes() == again.mu.tobytes() == fresh.mu.tobytes()
            chosen = act_along(again.policy, batch)
            np.testing.assert_array_equal(chosen, act_along(first.policy, batch))
            assert np.take_along_axis(allowed_along(batch), chosen[..., None], axis=2).all()

    def test_bad_arguments(self, tiny):
        histories = tiny.histories
        for w in ([1.0], [np.nan, 1.0], [[1.0, 1.0]]):
            with pytest.raises(ValueError, match="w must be 2 finite numbers"):
                learn_policy(histories, w, TINY, np.random.default_rng(0))
        with pytest.raises(ValueError, match=r"must be \[n, 4\]"):
            tiny.predict(np.zeros((1, 3), dtype=np.float32))
        with pytest.raises(ValueError, match="learnt was on"):
            tiny.q(replace(every_course(2), action_names=("a", "b", "c")))


class TestExploring:
    """Three actions: the second never after the first, the third while x is below 0."""

    rules = read_rules(("1 when After(0)", "2 when Below(x, 0)"), ("x", "y"), ("0", "1", "2"))

    def histories(self) -> Histories:
        world = CounterfactualWorld(KnownModel(ends=False), np.array([[1, 0], [-9, 0]], dtype=np.float32), 3)
        batch = rollout(world, ByBurden(np.zeros(5, dtype=int)), 2, np.random.default_rng(0))
        model = MaskedModel(KnownModel(ends=False), self.rules)
        return Histories.of(Problem(model, KNOWN_PHI, batch.start, 3, 0.9, uniform_weights([0, 0]), histories=batch))

    @pytest.mark.parametrize("policy", [True, False])
    @pytest.mark.parametrize("epsilon", [0.0, 1.0])
    def test_one_of_the_allowed_actions(self, epsilon, policy):
        histories = self.histories()
        rows = HistoryRows(torch.tensor([0, 0, 1, 1]).repeat(600), torch.tensor([0, 1, 0, 1]).repeat(600))
        values = torch.tensor([0.0, 1.0, 2.0])[:, None].expand(2400, 3, 1)
        learner = (
            QLearner(torch.zeros(1), histories.masks)
            if policy
            else MuLearner(histories.phi, PolicyActions.of(ByBurden(np.zeros(5, dtype=int)), histories))
        )
        config = replace(TINY, actions="epsilon_greedy", epsilon=epsilon, epsilon_decay=0.0)
        allowed = histories.masks.here[rows.episode, rows.step].numpy()
        rng = np.random.default_rng(0)
        chosen = _learnt_actions(learner, rows, values, config, 0, rng, allowed)[:, 0].reshape(600, 4).numpy()
        possible = [[0, 1, 2], [0, 2], [0, 1], [0]]
        for column, actions in zip(chosen.T, possible, strict=True):
            if epsilon == 0.0:
                assert set(column) == {max(actions) if policy else 0}
                continue
            share = np.bincount(column, minlength=3) / 600
            np.testing.assert_allclose(share, np.isin(np.arange(3), actions) / len(actions), atol=0.07)

    def test_training_explores_so_too(self, monkeypatch):
        seen = []

        def watched(*arguments):
            actions = _learnt_actions(*arguments)
            seen.append((arguments[1], actions))
            return actions

        monkeypatch.setattr("agents.as_printed.training._learnt_actions", watched)
        config = replace(TINY, actions="epsilon_greedy", unit="histories", batch_size=50, epsilon=1.0)
        histories = self.histories()
        learn_policy(histories, W, config, np.random.default_rng(0))
        for rows, actions in seen:
            assert histories.masks.here[rows.episode, rows.step].gather(1, actions).all()
        assert len({int(action) for _, actions in seen for action in actions}) == 3


class TestMuOfAPolicyThatKeepsRules:
    def test_mu_learning_roll_outs_and_dynamic_programming_agree(self, learnt):
        start = numbers(problem().starts)

        def at_start(allowed):
            psi = exact_psi(W, allowed=allowed)[0, start, 0]
            return psi[np.arange(len(start)), among(psi @ W, allowed[start, 0]).argmax(axis=1)].mean(axis=0)

        mu = learn_mu(learnt.histories, learnt, SMALL, np.random.default_rng(1)).mu
        rolled = rolled_out_mu(learnt, problem())
        np.testing.assert_allclose(rolled, at_start(ALLOWED), atol=1e-5)
        np.testing.assert_allclose(mu, rolled, atol=2e-2)
        assert np.abs(at_start(EVERYTHING) - rolled).max() > 0.1
        # Roll-outs need no rules of their own.
        free = replace(problem(), model=problem().model.model)
        assert rolled.tobytes() == rolled_out_mu(learnt, free).tobytes()


def test_masks_of_histories_by_hand():
    histories = Histories.of(problem())
    state = numbers(histories.batch.obs[:, :-1])
    for action in (WAIT, TREAT):
        expected = ALLOWED[NEXT[state, action], action + 1]
        np.testing.assert_array_equal(histories.masks.following[:, :, action].numpy(), expected)
    np.testing.assert_array_equal(histories.masks.here.numpy(), histories.batch.allowed)
    free = Histories.of(problem(None))
    assert free.rules is free.masks is None
    # The hand-made masks are those of the rules.
    for before in range(3):
        found = RULES.allowed(BURDEN.astype(np.float32), np.full(5, before - 1))
        np.testing.assert_array_equal(found, ALLOWED[:, before])


def test_recurrent_ppo_refuses_rules_before_anything_is_trained(monkeypatch):
    def train(*_arguments, **_settings):
        raise AssertionError("it was trained")

    monkeypatch.setattr("agents.ppo.train_recurrent_ppo", train)
    with pytest.raises(ValueError, match=r"--solver recurrent_ppo .* --forbid"):
        learnt_candidates(None, problem(), "recurrent_ppo", TINY, np.random.default_rng(0), mu="rollouts")
    learnt_candidates(None, problem_of(lawful(), GAMMA), "recurrent_ppo", TINY, np.random.default_rng(0))
