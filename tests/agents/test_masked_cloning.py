"""Behaviour cloning where some actions are forbidden: the choice among the others is copied, and nothing else done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from small_batches import batch_of

from agents.policies.cloning import (
    CloningConfig,
    CloningNetwork,
    CloningPolicy,
    _loss,
    episode_losses,
    fit_cloning,
    fit_logistic,
)
from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import act_along, observation
from cirl_gym.data.rules import read_rules
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.training import TrainingConfig, seeded
from irl.preferences.likelihood import taken_log_probabilities

BRIEF = CloningConfig(hidden=8, training=TrainingConfig(epochs=3, learning_rate=0.01), priors=(0.0, 1.0))
NAMES = ("a", "b", "c")
RULES = read_rules(("a when Above(x, 0)", "c when After(b)"), ("x", "y"), NAMES)
CHANCES = np.array([0.6, 0.3, 0.1])


def chosen_from_what_is_left(episodes: int, seed: int, steps: int = 8) -> Batch:
    """Experts who look at nothing and draw from constant chances, among what the rules leave."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(size=(episodes, steps + 1, 2)).astype(np.float32)
    actions, before = np.zeros((episodes, steps), dtype=int), np.full(episodes, -1)
    for t in range(steps):
        chances = np.where(RULES.allowed(obs[:, t], before), CHANCES, 0.0)
        actions[:, t] = before = (np.log(np.maximum(chances, 1e-300)) + rng.gumbel(size=chances.shape)).argmax(axis=1)
    none = np.zeros(episodes, dtype=np.bool_)
    ids = tuple(str(i) for i in range(episodes))
    lengths = rng.integers(1, steps + 1, size=episodes)
    return RULES.masked(Batch(obs, actions, lengths, none, ~none, RULES.features, NAMES, ids))


@pytest.fixture(scope="module")
def batch() -> Batch:
    return chosen_from_what_is_left(40, 3)


def untrained(rules=RULES, rng=None) -> CloningPolicy:
    """No part of it is zero."""
    with seeded(0):
        network = CloningNetwork(2, 3, CloningConfig(hidden=6)).eval()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.7)
    return CloningPolicy(network, Scaler(np.zeros(2), np.ones(2)), rng or np.random.default_rng(0), rules)


def everything(n: int, seed: int) -> np.ndarray:
    """Observations ``[n, 5]`` of all kinds, at the beginning and after every action."""
    rng = np.random.default_rng(seed)
    return observation(rng.normal(size=(n, 2)).astype(np.float32), rng.integers(-1, 3, size=n), 3)


def forgotten(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The memory of n histories that begin in the middle."""
    return np.zeros((n, 6)), np.zeros((n, 6))


def chances(policy: CloningPolicy, seen: np.ndarray, memory=None) -> np.ndarray:
    """Probabilities ``[n, A]`` with which the policy acts."""
    return softmax(policy.act(seen, memory, None)[0], axis=1)


class TestActing:
    def test_probabilities_are_those_of_the_network_renormalised(self):
        seen = everything(500, 0)
        got, free = (chances(untrained(rules), seen, forgotten(500)) for rules in (RULES, None))
        allowed = RULES.allowed_next(seen)
        within = np.where(allowed, free, 0.0)
        np.testing.assert_allclose(got, within / within.sum(axis=1, keepdims=True), atol=1e-7)
        assert (got[~allowed] == 0).all()
        assert 0.2 < (~allowed).any(axis=1).mean() < 0.8

    @pytest.mark.parametrize("deterministic", [True, False])
    def test_no_forbidden_action(self, deterministic):
        seen = everything(3000, 1)
        chosen, free = (
            untrained(rules).predict(seen, forgotten(3000), None, deterministic)[0] for rules in (RULES, None)
        )  # fmt: skip
        allowed = RULES.allowed_next(seen)
        assert allowed[np.arange(3000), chosen].all()
        assert not allowed[np.arange(3000), free].all()
        if deterministic:
            assert np.array_equal(chosen[allowed.all(axis=1)], free[allowed.all(axis=1)])

    @pytest.mark.parametrize("drawn", [0.0, np.nextafter(1.0, 0.0)])
    def test_not_even_at_the_ends_of_what_is_drawn(self, drawn):
        class Fixed:
            def random(self, shape):
                return np.full(shape, drawn)

        seen = everything(3000, 2)
        chosen, _ = untrained(rng=Fixed()).predict(seen, forgotten(3000))
        assert RULES.allowed_next(seen)[np.arange(3000), chosen].all()

    def test_draws_have_the_chances(self):
        seen = np.repeat(observation(np.array([[1, 0]], dtype=np.float32), np.array([-1]), 3), 20_000, axis=0)
        policy = untrained()
        expected = chances(policy, seen[:1])[0]
        share = np.bincount(policy.predict(seen)[0], minlength=3) / 20_000
        np.testing.assert_allclose(share, expected, atol=0.015)
        assert expected[0] == 0
        assert expected[1:].min() > 0.05


class TestAlongABatch:
    def test_step_by_step_as_along_the_batch(self, batch):
        policy, memory, previous = untrained(), None, np.full(len(batch), -1)
        logs = policy.log_probabilities(batch)
        for t in range(batch.horizon):
            seen = observation(batch.obs[:, t], previous, 3)
            logits, memory = policy.act(seen, memory, np.full(len(batch), t == 0))
            live = batch.mask[:, t]
            np.testing.assert_allclose(np.exp(logs[live, t]), softmax(logits[live], axis=1), atol=1e-6)
            previous = batch.actions[:, t]

    def test_forbidden_actions_have_none_and_padding_has_no_probability(self, batch):
        logs = untrained().log_probabilities(batch)
        assert np.isneginf(logs[~batch.allowed]).all()
        assert np.isfinite(logs[batch.allowed]).all()
        assert (logs[~batch.mask] == 0).all()
        np.testing.assert_allclose(np.exp(logs[batch.mask]).sum(axis=1), 1.0)
        taken = taken_log_probabilities(logs, batch)
        assert np.isfinite(taken).all()
        assert (
            taken > taken_log_probabilities(untrained(None).log_probabilities(replace(batch, allowed=None)), batch)
        ).any()

    def test_a_batch_that_does_not_say_is_judged_by_the_rules(self, batch):
        policy = untrained()
        silent = replace(batch, allowed=None)
        np.testing.assert_array_equal(policy.log_probabilities(silent), policy.log_probabilities(batch))
        # And one that does say needs no rules.
        np.testing.assert_array_equal(untrained(None).log_probabilities(batch), policy.log_probabilities(batch))
        assert np.isfinite(untrained(None).log_probabilities(silent)).all()

    def test_more_padding_changes_nothing(self, batch):
        logs = untrained().log_probabilities(batch)
        np.testing.assert_allclose(
            untrained().log_probabilities(batch.padded(20))[:, : batch.horizon], logs, rtol=0, atol=1e-6
        )


class TestLearning:
    def test_log_losses_by_hand(self):
        # One episode of two decisions: from all three actions, then from two.
        masks = np.array([[[True, True, True], [False, True, True]]])
        two = replace(batch_of([0, 1], n_actions=3), allowed=masks)
        logits = np.log(np.array([[[0.5, 0.25, 0.25], [0.9, 0.06, 0.04]]]))
        np.testing.assert_allclose(episode_losses(logits, two), [-(np.log(0.5) + np.log(0.6)) / 2])

    def test_the_training_loss_is_the_same_number(self, batch):
        policy = untrained()
        every = torch.arange(len(batch))
        loss = _loss(policy.network, policy.scaler, batch, "cpu")(every, 0.0).item()
        assert loss == pytest.approx(
            -taken_log_probabilities(policy.log_probabilities(batch), batch).sum() / batch.n_steps
        )

    def test_decisions_with_one_possibility_teach_nothing(self):
        actions = np.random.default_rng(0).integers(3, size=(30, 5))
        forced = replace(batch_of(*actions.tolist(), n_actions=3), allowed=np.eye(3, dtype=bool)[actions])
        fit = fit_cloning(forced, forced, BRIEF, np.random.default_rng(0))
        assert fit.history.training == (0.0,) * 3
        assert fit.history.validation == (0.0,) * 4
        assert (fit.policy.network.direct.weight == 0).all()
        assert (fit.policy.network.direct.bias == 0).all()

    def test_constant_chances_come_back_from_what_was_left(self):
        train, validation = chosen_from_what_is_left(2000, 0), chosen_from_what_is_left(200, 1)
        found = fit_logistic(train, validation, Scaler.from_batch(train), (0.0,))
        chances = np.exp(found.bias) / np.exp(found.bias).sum()
        np.testing.assert_allclose(chances, CHANCES, atol=0.03)
        taken = np.bincount(train.actions[train.mask], minlength=3) / train.n_steps
        assert np.abs(taken - CHANCES).max() > 0.15

    def test_the_copy_chooses_as_the_experts_do(self):
        train, validation = chosen_from_what_is_left(600, 0), chosen_from_what_is_left(100, 1)
        fit = fit_cloning(train, validation, BRIEF, np.random.default_rng(0), rules=RULES)
        held_out = chosen_from_what_is_left(50, 2)
        within = np.where(held_out.allowed, CHANCES, 0.0)
        truth = (within / within.sum(axis=2, keepdims=True))[held_out.mask]
        np.testing.assert_allclose(
            np.exp(fit.policy.log_probabilities(held_out)[held_out.mask]), truth, atol=0.1
        )  # fmt: skip
        chosen = act_along(fit.policy, held_out)
        assert np.take_along_axis(held_out.allowed, chosen[..., None], axis=2).all()

    def test_rules_mask_batches_that_do_not_say(self):
        pair = chosen_from_what_is_left(30, 0), chosen_from_what_is_left(10, 1)
        silent = [replace(part, allowed=None) for part in pair]
        fits = [
            fit_cloning(*given, BRIEF, np.random.default_rng(0), rules=rules)
            for given, rules in ((pair, RULES), (silent, RULES), (pair, None), (silent, None))
        ]
        said, ruled, by_batch, free = (fit.history for fit in fits)
        assert said == ruled == by_batch
        assert free != said
        assert [fit.policy.rules for fit in fits] == [RULES, RULES, None, None]
        broken = replace(silent[0], actions=np.zeros_like(silent[0].actions))
        with pytest.raises(ValueError, match="'a' was taken although it is forbidden"):
            fit_cloning(broken, silent[1], BRIEF, np.random.default_rng(0), rules=RULES)


def test_rules_are_not_in_the_file(batch, tmp_path):
    untrained().save(tmp_path / "copy.npz")
    plain = CloningPolicy.load(tmp_path / "copy.npz", np.random.default_rng(0))
    ruled = CloningPolicy.load(tmp_path / "copy.npz", np.random.default_rng(0), RULES)
    assert plain.rules is None
    np.testing.assert_array_equal(act_along(ruled, batch), act_along(untrained(), batch))
    np.testing.assert_array_equal(act_along(plain, batch), act_along(untrained(None), batch))
    assert not np.array_equal(act_along(plain, batch), act_along(ruled, batch))
