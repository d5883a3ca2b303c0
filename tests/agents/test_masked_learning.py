"""Rules in what is learnt on the histories of a batch: exact optima among allowed actions, and no forbidden action."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from five_state_model import ENDS, FEATURES, ByBurden, every_course, numbers, problem_of
from five_states import BURDEN, NEXT, PHI, TREAT, WAIT
from known_model import PHI as KNOWN_PHI
from known_model import KnownModel

from agents import ppo as world_ppo
from agents.as_printed.histories import Histories, PolicyActions
from agents.as_printed.mu import MuLearner, learn_mu, rolled_out_mu
from agents.as_printed.policy import LearntPolicy, QLearner, learn_policy, stored_policies
from agents.as_printed.training import HistoryNetwork, HistoryTrainingConfig, Rows, _learnt_actions, _targets
from agents.candidates import learnt_candidates
from agents.successor.training import Problem, uniform_weights
from cirl_gym.data.rollout import act_along, observation, rollout
from cirl_gym.data.rules import read_rules
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.masked import MaskedModel
from cirl_gym.worlds.world import CounterfactualWorld

SMALL = HistoryTrainingConfig(hidden=32, batch_size=16, learning_rate=2e-2, target_every=20, iterations=300)
PRINTED = replace(
    HistoryTrainingConfig.paper(),
    hidden=32,
    batch_size=48,
    learning_rate=2e-2,
    last_rate=0.03,
    target_every=20,
    iterations=300,
)
TINY = replace(SMALL, hidden=4, batch_size=3, target_every=2, iterations=4)
W = np.array([-0.8, -0.2])
GAMMA, STEPS = 0.9, 3
TEXTS = ("treat when After(treat)", "wait when Above(disease, 0.9)")
RULES = read_rules(TEXTS, FEATURES, ("wait", "treat"))


def allowed_by_hand() -> np.ndarray:
    """``[5, 3, 2]`` by state and action before (none, wait, treat): never treat twice running, never leave severe.

    After a treatment nobody is severe; otherwise waiting, which is asked about last, would be all that is left.
    """
    allowed = np.ones((5, 3, 2), dtype=bool)
    allowed[:, 2, TREAT] = False
    allowed[1, :2, WAIT] = False
    return allowed


ALLOWED = allowed_by_hand()


def masked_psi(choose_among, p_end=ENDS) -> np.ndarray:
    """Psi ``[T, 5, 3, 2, 2]`` by time, state, action before and action; ``choose_among`` picks by psi and the masks."""
    psi, later = np.zeros((STEPS, 5, 3, 2, 2)), np.zeros((5, 3, 2))
    for t in reversed(range(STEPS)):
        for action in (WAIT, TREAT):
            onward = GAMMA * (1 - p_end[action]) * later[NEXT[:, action], action + 1]
            psi[t, :, :, action] = (PHI[:, action] + onward)[:, None]
        chosen = choose_among(psi[t])
        later = np.take_along_axis(psi[t], chosen[..., None, None], axis=2)[:, :, 0]
    return psi


def best_allowed(w=W):
    return lambda psi: np.where(ALLOWED, psi @ w, -np.inf).argmax(axis=2)


def along(batch, table) -> np.ndarray:
    """Of a table by time, state and action before what belongs to the histories of a batch."""
    before = np.concatenate([np.zeros((len(batch), 1), dtype=int), batch.actions[:, :-1] + 1], axis=1)
    return table[np.arange(STEPS), numbers(batch.obs[:, :-1]), before]


def lawful():
    """Every course that keeps to the rules."""
    batch = every_course(STEPS)
    everywhere = along(batch, np.tile(ALLOWED, (STEPS, 1, 1, 1)))
    keeps = np.take_along_axis(everywhere, batch.actions[..., None], axis=2)[..., 0].all(axis=1)
    return RULES.masked(batch.take(keeps))


def ruled_problem(batch=None):
    problem = problem_of(lawful() if batch is None else batch, GAMMA)
    return replace(problem, model=MaskedModel(problem.model, RULES))


@pytest.fixture(scope="module")
def learnt() -> LearntPolicy:
    return learn_policy(Histories.of(ruled_problem()), W, SMALL, np.random.default_rng(0))


def named(played):
    """A roll-out with the actions' names, as rules know them."""
    return replace(played, action_names=RULES.action_names, features=FEATURES)


class TestRecurrentQLearning:
    @pytest.mark.parametrize(("config", "p_end"), [(SMALL, ENDS), (PRINTED, np.zeros(2))], ids=["fast", "printed"])
    def test_the_greedy_policy_is_the_best_of_the_allowed_ones(self, config, p_end):
        problem = ruled_problem()
        batch = problem.histories
        policy = learn_policy(Histories.of(problem, config.ends), W, config, np.random.default_rng(0))
        allowed = along(batch, np.tile(ALLOWED, (STEPS, 1, 1, 1)))
        q = along(batch, masked_psi(best_allowed(), p_end)) @ W
        found = policy.q(batch)
        assert np.isneginf(found[~allowed]).all()
        np.testing.assert_allclose(found[allowed], q[allowed], atol=4e-2)
        best = np.where(allowed, q, -np.inf)
        np.testing.assert_array_equal(act_along(policy, batch), best.argmax(axis=2))
        # Rules that change nothing would prove nothing.
        free = masked_psi(lambda psi: (psi @ W).argmax(axis=2), p_end) @ W
        assert (free.argmax(axis=3) != np.where(ALLOWED, free, -np.inf).argmax(axis=3)).any()
        assert (along(batch, free) - q).max() > 0.1

    def test_it_earns_in_the_world_model_what_is_best_there(self, learnt):
        problem = ruled_problem()
        earned = W @ rolled_out_mu(learnt, problem)
        value = np.where(ALLOWED, masked_psi(best_allowed()) @ W, -np.inf).max(axis=3)
        best = value[0, numbers(problem.starts), 0].mean()
        assert earned == pytest.approx(best, abs=1e-5)

    def test_no_forbidden_action_whatever_happened_before(self, learnt):
        batch = every_course(STEPS)  # also after actions that were forbidden
        chosen = act_along(learnt, batch)
        allowed = along(batch, np.tile(ALLOWED, (STEPS, 1, 1, 1)))
        assert np.take_along_axis(allowed, chosen[..., None], axis=2).all()
        world = CounterfactualWorld(problem_of(batch, GAMMA).model, batch.start, STEPS)
        assert RULES.masked(named(rollout(world, learnt, len(batch), np.random.default_rng(0)))).allowed is not None
        # The network by itself would have done otherwise.
        free = LearntPolicy(replace(learnt.histories, rules=None, masks=None), learnt.network)
        assert not np.array_equal(act_along(free, batch), chosen)

    def test_step_by_step_as_along_the_batch(self, learnt):
        batch, memory, previous = lawful(), None, np.full(len(lawful()), -1)
        for t in range(STEPS):
            q, memory = learnt.act(observation(batch.obs[:, t], previous, 2), memory, np.full(len(batch), t == 0))
            np.testing.assert_allclose(q, learnt.q(batch)[:, t], atol=1e-6)
            previous = batch.actions[:, t]

    def test_padding_is_zero(self, learnt):
        batch = replace(every_course(STEPS), lengths=np.arange(16) % 3 + 1)
        assert (learnt.q(batch)[~batch.mask] == 0).all()
        assert np.isneginf(learnt.q(batch)[batch.mask]).any()
        np.testing.assert_allclose(learnt.q(batch), learnt.q(batch.padded(7))[:, :STEPS], atol=1e-6)

    def test_stored_and_read_again(self, learnt):
        stored = stored_policies(learnt.histories, SMALL)
        again, batch = stored.policy(W, stored.arrays(learnt)), every_course(STEPS)
        assert again.q(batch).tobytes() == learnt.q(batch).tobytes()
        np.testing.assert_array_equal(act_along(again, batch), act_along(learnt, batch))

    def test_kept_rounds_keep_to_the_rules(self, tmp_path):
        found = []
        for folder in ("a", "a", "b"):
            kept = StoredParts(tmp_path / folder)
            answer = learnt_candidates(
                None, ruled_problem(), "drqn", TINY, np.random.default_rng(0), mu="rollouts", stored=kept
            )
            found.append([answer(w) for w in (W, W[::-1])])
        for first, again, fresh in zip(*found, strict=True):
            assert first.mu.tobytes() == again.mu.tobytes() == fresh.mu.tobytes()
            chosen = act_along(again.policy, every_course(STEPS))
            np.testing.assert_array_equal(chosen, act_along(first.policy, every_course(STEPS)))
            everywhere = along(every_course(STEPS), np.tile(ALLOWED, (STEPS, 1, 1, 1)))
            assert np.take_along_axis(everywhere, chosen[..., None], axis=2).all()

    def test_the_target_by_hand(self):
        # Q of every history is 1 for waiting and 3 for treating, which nobody may do twice running; gamma is .5.
        problem = replace(ruled_problem(every_course(2)), gamma=0.5, horizon=2)
        histories = Histories.of(problem, "data")
        network = HistoryNetwork(4, 2, 1, hidden=3)
        with torch.no_grad():
            network.head.weight.zero_()
            network.head.bias.copy_(torch.tensor([1.0, 3.0]))
        learner = QLearner((histories.phi @ torch.tensor([-1.0, 0.0]))[..., None], histories.masks)
        rows = Rows(torch.tensor([0, 0]), torch.tensor([0, 1]))
        got = _targets(histories, learner, network, rows, torch.tensor([[0, 1]] * 2))[..., 0]
        # Mild, then severe: left alone and treated. After the second step there is nothing, allowed or not.
        np.testing.assert_allclose(got, [[-1 + 1.5, -0.2 + 0.5], [-1, -0.4]], atol=1e-6)
        values = torch.tensor([[[1.0], [3.0]]] * 2)
        after_treating = Rows(torch.tensor([0, 4]), torch.tensor([1, 1]))
        np.testing.assert_array_equal(every_course(2).actions[[0, 4], 0], [0, 0])
        assert learner.chosen(after_treating, values, np.random.default_rng(0)).tolist() == [1, 1]
        treated = Rows(torch.tensor([2, 6]), torch.tensor([1, 1]))
        assert learner.chosen(treated, values, np.random.default_rng(0)).tolist() == [0, 0]


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
        rows = Rows(torch.tensor([0, 0, 1, 1]).repeat(600), torch.tensor([0, 1, 0, 1]).repeat(600))
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
        problem = ruled_problem()
        mu = learn_mu(learnt.histories, learnt, SMALL, np.random.default_rng(1)).mu
        rolled = rolled_out_mu(learnt, problem)
        start = numbers(problem.starts)
        psi = masked_psi(best_allowed())
        exact = psi[0, start, 0, best_allowed()(psi[0])[start, 0]].mean(axis=0)
        np.testing.assert_allclose(rolled, exact, atol=1e-5)
        np.testing.assert_allclose(mu, rolled, atol=2e-2)
        free = masked_psi(lambda values: (values @ W).argmax(axis=2))
        unruled = free[0, start, 0, (free[0] @ W).argmax(axis=2)[start, 0]].mean(axis=0)
        assert np.abs(unruled - exact).max() > 0.1

    def test_roll_outs_need_no_rules_of_their_own(self, learnt):
        problem = ruled_problem()
        free = replace(problem, model=problem.model.model)
        assert rolled_out_mu(learnt, problem).tobytes() == rolled_out_mu(learnt, free).tobytes()


class TestWithoutRules:
    def test_histories_have_no_masks(self):
        histories = Histories.of(problem_of(every_course(2), GAMMA))
        assert histories.rules is histories.masks is None

    def test_masks_of_next_histories_by_hand(self):
        histories = Histories.of(ruled_problem())
        state = numbers(histories.batch.obs[:, :-1])
        for action in (WAIT, TREAT):
            expected = ALLOWED[NEXT[state, action], action + 1]
            np.testing.assert_array_equal(histories.masks.following[:, :, action].numpy(), expected)
        np.testing.assert_array_equal(histories.masks.here.numpy(), histories.batch.allowed)


def test_recurrent_ppo_refuses_rules_before_anything_is_trained(monkeypatch):
    def train(*_arguments, **_settings):
        raise AssertionError("it was trained")

    monkeypatch.setattr(world_ppo, "train_recurrent_ppo", train)
    with pytest.raises(ValueError, match=r"--solver recurrent_ppo .* --forbid"):
        learnt_candidates(None, ruled_problem(), "recurrent_ppo", TINY, np.random.default_rng(0), mu="rollouts")
    learnt_candidates(None, problem_of(lawful(), GAMMA), "recurrent_ppo", TINY, np.random.default_rng(0))


def test_the_hand_made_masks_are_those_of_the_rules():
    for before in range(3):
        found = RULES.allowed(BURDEN.astype(np.float32), np.full(5, before - 1))
        np.testing.assert_array_equal(found, ALLOWED[:, before])
