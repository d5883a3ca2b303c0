"""Behaviour cloning, with and without rules: probabilities that are right, small tables, and what is learnt.

Its memory: test_recurrent_networks.py.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from outcome_batches import confounded, linear_system
from scipy.special import softmax
from small_batches import batch_of, cut_off
from training_losses import captured

import agents.policies.cloning
from agents.policies.cloning import (
    CloningConfig,
    CloningNetwork,
    CloningPolicy,
    Rows,
    chosen_prior,
    episode_losses,
    fit_cloning,
    fit_logistic,
    with_past_along,
)
from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import act_along, observation, rollout
from cirl_gym.data.rules import read_rules
from cirl_gym.outcome_models.inputs import Scaler, sequence_inputs
from cirl_gym.outcome_models.network_files import read_model_file, write_model_file
from cirl_gym.outcome_models.training import TrainingConfig, seeded
from cirl_gym.worlds.tumour import TumourWorld
from irl.preferences.likelihood import taken_log_probabilities

TIGHT = {"rtol": 0, "atol": 1e-5}
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
    return RULES.masked(cut_off(obs, actions, RULES.features, NAMES, rng.integers(1, steps + 1, size=episodes)))


def untrained(rules=RULES, rng=None) -> CloningPolicy:
    """No part of it is zero: two features, three actions."""
    with seeded(0):
        network = CloningNetwork(2, 3, CloningConfig(hidden=6)).eval()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.7)
    return CloningPolicy(network, Scaler(np.zeros(2), np.ones(2)), rng or np.random.default_rng(0), rules)


@pytest.fixture(params=[None, RULES], ids=["free", "rules"])
def policy(request) -> CloningPolicy:
    return untrained(request.param)


@pytest.fixture
def batch(policy) -> Batch:
    """40 episodes of 1 to 8 actions; they say what was allowed where the policy has rules."""
    made = chosen_from_what_is_left(40, 3)
    return made if policy.rules else replace(made, allowed=None)


def everything(n: int, seed: int) -> np.ndarray:
    """Observations ``[n, 5]`` of all kinds, at the beginning and after every action."""
    rng = np.random.default_rng(seed)
    return observation(rng.normal(size=(n, 2)).astype(np.float32), rng.integers(-1, 3, size=n), 3)


def forgotten(n: int) -> tuple[np.ndarray, ...]:
    """The memory of n histories that begin in the middle."""
    return np.zeros((n, 6)), np.zeros((n, 6)), np.zeros((n, 3)), np.zeros((n, 3))


def chances(policy: CloningPolicy, seen: np.ndarray, memory=None) -> np.ndarray:
    """Probabilities ``[n, A]`` with which the policy acts."""
    return softmax(policy.act(seen, memory, None)[0], axis=1)


# --- acting -----------------------------------------------------------------------------------------------------------


def test_probabilities_are_those_of_the_network_renormalised():
    seen = everything(500, 0)
    got, free = (chances(untrained(rules), seen, forgotten(500)) for rules in (RULES, None))
    allowed = RULES.allowed_next(seen)
    within = np.where(allowed, free, 0.0)
    np.testing.assert_allclose(got, within / within.sum(axis=1, keepdims=True), atol=1e-7)
    assert (got[~allowed] == 0).all()
    assert 0.2 < (~allowed).any(axis=1).mean() < 0.8


@pytest.mark.parametrize("deterministic", [True, False])
def test_no_forbidden_action(deterministic):
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
def test_not_even_at_the_ends_of_what_is_drawn(drawn):
    class Fixed:
        def random(self, shape):
            return np.full(shape, drawn)

    seen = everything(3000, 2)
    chosen, _ = untrained(rng=Fixed()).predict(seen, forgotten(3000))
    assert RULES.allowed_next(seen)[np.arange(3000), chosen].all()


def test_actions_are_drawn_with_the_probabilities(policy):
    seen = np.repeat(observation(np.array([[1, 0]], dtype=np.float32), np.array([-1]), 3), 40_000, axis=0)
    expected = chances(policy, seen[:1])[0]
    actions, state = policy.predict(seen)
    assert actions.dtype == np.int64
    np.testing.assert_allclose(np.bincount(actions, minlength=3) / 40_000, expected, atol=0.01)
    assert expected[1:].min() > 0.05
    assert (expected[0] == 0) == (policy.rules is not None)
    best, _ = policy.predict(seen, deterministic=True)
    assert (best == expected.argmax()).all()
    assert [part.shape for part in state] == [(40_000, 6)] * 2 + [(40_000, 3)] * 2


def test_drawing_uses_the_policys_own_generator_and_another_shape_is_refused(policy):
    seen, memory, drawn = everything(200, 0), forgotten(200), []
    for disturbance in (1, 2):
        np.random.seed(disturbance)  # noqa: NPY002
        torch.manual_seed(disturbance)
        policy.rng = np.random.default_rng(3)
        drawn.append(policy.predict(seen, memory)[0])
    assert np.array_equal(*drawn)
    with pytest.raises(ValueError, match=r"\[n, 5\]"):
        policy.predict(np.zeros((4, 3)))


# --- along a batch ----------------------------------------------------------------------------------------------------


def test_probabilities_sum_to_one_and_neither_padding_nor_forbidden_actions_have_any(policy, batch):
    logs = policy.log_probabilities(batch)
    assert (logs[~batch.mask] == 0).all()
    np.testing.assert_allclose(np.exp(logs[batch.mask]).sum(axis=1), 1.0)
    allowed = np.ones(logs.shape, dtype=bool) if batch.allowed is None else batch.allowed
    assert np.isneginf(logs[~allowed]).all()
    assert np.isfinite(logs[allowed]).all()
    taken = taken_log_probabilities(logs, batch)
    assert np.isfinite(taken).all()
    if policy.rules:
        free = untrained(None).log_probabilities(replace(batch, allowed=None))
        assert (taken > taken_log_probabilities(free, batch)).any()


def test_a_batch_that_does_not_say_is_judged_by_the_rules():
    batch, policy = chosen_from_what_is_left(40, 3), untrained()
    silent = replace(batch, allowed=None)
    np.testing.assert_array_equal(policy.log_probabilities(silent), policy.log_probabilities(batch))
    # And one that does say needs no rules.
    np.testing.assert_array_equal(untrained(None).log_probabilities(batch), policy.log_probabilities(batch))
    assert np.isfinite(untrained(None).log_probabilities(silent)).all()


@pytest.mark.parametrize("horizon", [20, 60])
def test_more_padding_and_other_patients_change_nothing(policy, batch, horizon):
    logs = policy.log_probabilities(batch)
    np.testing.assert_allclose(policy.log_probabilities(batch.padded(horizon))[:, : batch.horizon], logs, **TIGHT)
    order = np.random.default_rng(0).permutation(len(batch))
    np.testing.assert_allclose(policy.log_probabilities(batch.take(order)), logs[order], **TIGHT)
    for i in range(0, len(batch), 9):
        np.testing.assert_allclose(policy.log_probabilities(batch.take(np.array([i])))[0], logs[i], **TIGHT)


def test_the_future_and_the_action_itself_are_not_seen(policy, batch):
    batch = replace(batch, allowed=None)  # what is moved may break the rules
    obs, actions = batch.obs.copy(), batch.actions.copy()
    obs[:, 4:] += 100
    actions[:, 3:] = (actions[:, 3:] + 1) % 3
    moved = policy.log_probabilities(replace(batch, obs=obs, actions=actions))
    assert np.array_equal(moved[:, :4], policy.log_probabilities(batch)[:, :4])
    assert not np.array_equal(moved[:, 4], policy.log_probabilities(batch)[:, 4])


def test_a_row_of_zeros_counts(policy, batch):
    long = batch.take(batch.lengths > 5)
    obs = long.obs.copy()
    obs[:, 2] = 0
    zero, nearly = replace(long, obs=obs), replace(long, obs=np.where(np.arange(9)[:, None] == 2, 1e-2, obs))
    assert policy.log_probabilities(zero)[:, 5].any()
    assert not np.array_equal(policy.log_probabilities(zero)[:, 3], policy.log_probabilities(nearly)[:, 3])


def test_a_saved_policy_is_the_same_to_the_last_bit(policy, batch, tmp_path):
    policy.save(tmp_path / "clone.npz")
    loaded = CloningPolicy.load(tmp_path / "clone.npz", np.random.default_rng(0))
    assert np.array_equal(loaded.log_probabilities(batch), policy.log_probabilities(batch))
    assert loaded.network.config == policy.network.config
    whole = (tmp_path / "clone.npz").read_bytes()
    (tmp_path / "clone.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"clone\.npz"):
        CloningPolicy.load(tmp_path / "clone.npz", np.random.default_rng(0))


def test_rules_are_not_in_the_file(tmp_path):
    batch = chosen_from_what_is_left(40, 3)
    untrained().save(tmp_path / "copy.npz")
    plain = CloningPolicy.load(tmp_path / "copy.npz", np.random.default_rng(0))
    ruled = CloningPolicy.load(tmp_path / "copy.npz", np.random.default_rng(0), RULES)
    assert plain.rules is None
    np.testing.assert_array_equal(act_along(ruled, batch), act_along(untrained(), batch))
    np.testing.assert_array_equal(act_along(plain, batch), act_along(untrained(None), batch))
    assert not np.array_equal(act_along(plain, batch), act_along(ruled, batch))


# --- what is learnt ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [None, RULES], ids=["free", "rules"])
def test_the_same_seed_gives_the_same_bytes(rules):
    train, validation = chosen_from_what_is_left(100, 0), chosen_from_what_is_left(20, 1)
    logs = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        fit = fit_cloning(train, validation, BRIEF, np.random.default_rng(5), rules=rules)
        logs.append(fit.policy.log_probabilities(train))
    assert np.array_equal(logs[0], logs[1])


@pytest.mark.parametrize("filling", [np.nan, 1e30])
def test_padding_never_enters_the_fit(filling):
    train, validation = linear_system(60, 0), linear_system(20, 1)
    obs = np.pad(train.obs, ((0, 0), (0, 8), (0, 0))).astype(np.float64)
    actions = np.pad(train.actions, ((0, 0), (0, 8)))
    obs[np.arange(21) > train.lengths[:, None]] = filling
    wide = replace(train, obs=obs, actions=actions)
    fits = [fit_cloning(data, validation, BRIEF, np.random.default_rng(0)) for data in (train, wide)]
    np.testing.assert_allclose(fits[0].history.validation, fits[1].history.validation, rtol=0, atol=1e-4)


def test_the_scaler_comes_from_the_training_episodes():
    train, validation = linear_system(30, 0), linear_system(10, 1)
    moved = replace(validation, obs=validation.obs + 100)
    policy = fit_cloning(train, moved, BRIEF, np.random.default_rng(0)).policy
    assert np.array_equal(policy.scaler.mean, Scaler.from_batch(train).mean)


def test_a_stated_action_that_was_never_taken_is_said():
    stated = batch_of([0, 1], [1, 0], n_actions=3)
    with pytest.warns(UserWarning, match="is never taken in these episodes"):
        assert fit_cloning(stated, stated, BRIEF, np.random.default_rng(0)).policy.n_actions == 3


def test_log_losses_by_hand():
    losses = episode_losses(
        np.log(np.array([[[0.2, 0.8], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7]]])), batch_of([1, 0], [1])
    )
    assert losses == pytest.approx(-np.array([np.log(0.8) + np.log(0.5), np.log(0.1)]) * 2 / 3)
    # One episode of two decisions: from all three actions, then from two.
    masks = np.array([[[True, True, True], [False, True, True]]])
    two = replace(batch_of([0, 1], n_actions=3), allowed=masks)
    logits = np.log(np.array([[[0.5, 0.25, 0.25], [0.9, 0.06, 0.04]]]))
    np.testing.assert_allclose(episode_losses(logits, two), [-(np.log(0.5) + np.log(0.6)) / 2])


def test_the_training_loss_is_the_same_number(monkeypatch, policy, batch):
    fit = lambda: fit_cloning(batch, batch, BRIEF, np.random.default_rng(0))  # noqa: E731
    ask = lambda network, loss: (copy.deepcopy(network), loss().item())  # noqa: E731
    network, loss = captured(monkeypatch, agents.policies.cloning, fit, ask)
    logs = CloningPolicy(network, Scaler.from_batch(batch), policy.rng).log_probabilities(batch)
    assert loss == pytest.approx(-taken_log_probabilities(logs, batch).sum() / batch.n_steps)


def test_decisions_with_one_possibility_teach_nothing():
    actions = np.random.default_rng(0).integers(3, size=(30, 5))
    forced = replace(batch_of(*actions.tolist(), n_actions=3), allowed=np.eye(3, dtype=bool)[actions])
    fit = fit_cloning(forced, forced, BRIEF, np.random.default_rng(0))
    assert fit.history.training == (0.0,) * 3
    assert fit.history.validation == (0.0,) * 4
    assert (fit.policy.network.direct.weight == 0).all()
    assert (fit.policy.network.direct.bias == 0).all()


def test_constant_chances_come_back_from_what_was_left():
    train, validation = chosen_from_what_is_left(2000, 0), chosen_from_what_is_left(200, 1)
    found = fit_logistic(Rows.of(Scaler.from_batch(train), train, validation), 0.0)
    chances = np.exp(found.bias) / np.exp(found.bias).sum()
    np.testing.assert_allclose(chances, CHANCES, atol=0.03)
    taken = np.bincount(train.actions[train.mask], minlength=3) / train.n_steps
    assert np.abs(taken - CHANCES).max() > 0.15


def test_the_copy_chooses_as_the_experts_do():
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


def test_rules_mask_batches_that_do_not_say():
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


def habit(n, seed, repeat=0.9):
    """Actions that are repeated nine times out of ten; 15 features that mean nothing; episodes of 1 to 8 actions."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=(n, 8))
    for t in range(1, 8):
        actions[:, t] = np.where(rng.random(n) < repeat, actions[:, t - 1], 1 - actions[:, t - 1])
    obs, lengths = rng.standard_t(3, size=(n, 9, 15)), rng.integers(1, 9, size=n)
    return cut_off(obs, actions, tuple(f"f{i}" for i in range(15)), ("0", "1"), lengths)


def test_a_habit_is_found_among_meaningless_features():
    """60 patients: the logistic regression leaves the features out, and no network spoils it."""
    train, validation, test = habit(60, 0), habit(12, 1), habit(300, 2)
    fit = fit_cloning(train, validation, CloningConfig(), np.random.default_rng(0))
    logs = fit.policy.log_probabilities(test)
    previous = np.pad(test.actions, ((0, 0), (1, 0)))[:, :-1]
    later = test.mask & (np.arange(8) > 0)
    assert fit.prior == 0
    assert (logs.argmax(axis=2) == previous)[later].mean() > 0.97


def test_features_that_mean_something_are_used():
    rng = np.random.default_rng(0)
    base = habit(300, 0)
    actions = (base.obs[:, :-1, 2] + 0.3 * rng.normal(size=base.actions.shape) > 0).astype(np.int64)
    batch = replace(base, actions=actions)
    rows = Rows.of(Scaler.from_batch(batch), batch)
    prior = chosen_prior(rows, (3, 0.3, 0))
    assert prior > 0
    fit = fit_logistic(rows, prior)
    assert fit.weights[2, 1] - fit.weights[2, 0] > 2


def test_logistic_regression_without_features_is_counting():
    """An action follows itself three times out of four: the log-odds are log 3 but for the (wide) prior."""
    batch = batch_of(*[[0, 0], [0, 0], [0, 0], [0, 1], [1, 1], [1, 1], [1, 1], [1, 0]] * 200)
    fit = fit_logistic(Rows.of(Scaler.from_batch(batch), batch), 0.0)
    assert (fit.weights[:2] == 0).all()
    # With one action behind them the share of it is 1, and there is none before the last.
    odds = fit.weights[:, 1] - fit.weights[:, 0]
    assert odds[2:4] + odds[6:8] + fit.bias[1] - fit.bias[0] == pytest.approx([-np.log(3), np.log(3)], abs=0.05)


def test_what_the_direct_path_sees_of_the_past():
    batch = batch_of([1, 1, 0, 1])
    seen = with_past_along(torch.from_numpy(sequence_inputs(Scaler.from_batch(batch), batch)[:, :-1]), 2)[0, :, 2:]
    third = pytest.approx(1 / 3)
    assert seen.tolist() == [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 1],
        [0, 1, 0, 1, 0, 1],
        [1, 0, 0, 1, third, pytest.approx(2 / 3)],
    ]


def test_the_prior_is_chosen_by_patients_who_were_left_out():
    """Ten patients of many stays; what is read of a patient says what is done to her, and nothing of others."""
    rng = np.random.default_rng(0)
    marks = rng.normal(size=(10, 8))
    obs = np.broadcast_to(np.repeat(marks, 20, axis=0)[:, None], (200, 4, 8))
    actions = np.broadcast_to(np.repeat(np.arange(10) % 2, 20)[:, None], (200, 3))
    batch = cut_off(obs, actions, tuple("abcdefgh"), ("0", "1"))
    first = replace(batch, lengths=np.ones(200, dtype=np.int64))  # so that no action before tells
    scaler = Scaler.from_batch(first)
    assert chosen_prior(Rows.of(scaler, first), (0.0, 1.0)) == 1
    patients = replace(first, groups=tuple(f"p{i // 20}" for i in range(200)))
    assert chosen_prior(Rows.of(scaler, patients), (0.0, 1.0)) == 0


def test_a_copy_that_an_earlier_version_stored_knows_the_last_action_alone(tmp_path):
    policy, batch = untrained(None), replace(chosen_from_what_is_left(40, 3), allowed=None)
    with torch.no_grad():
        policy.network.direct.weight[:, 5:] = 0
    policy.save(tmp_path / "new.npz")
    settings, arrays = read_model_file(tmp_path / "new.npz")
    arrays["network.direct.weight"] = arrays["network.direct.weight"][:, :5]
    write_model_file(tmp_path / "old.npz", settings, arrays)
    old = CloningPolicy.load(tmp_path / "old.npz", np.random.default_rng(0))
    np.testing.assert_array_equal(old.log_probabilities(batch), policy.log_probabilities(batch))


def test_acting_and_judging_see_the_same_past():
    batch = replace(chosen_from_what_is_left(20, 3), allowed=None)
    policy, memory = untrained(None), None
    logs = policy.log_probabilities(batch)
    for t in range(batch.horizon):
        before = batch.actions[:, t - 1] if t else np.full(len(batch), -1)
        scores, memory = policy.act(observation(batch.obs[:, t], before, 3), memory, np.full(len(batch), t == 0))
        going = batch.mask[:, t]
        np.testing.assert_allclose(softmax(scores, axis=1)[going], np.exp(logs[going, t]), atol=1e-5)


def test_a_doctor_with_a_memory_is_cloned():
    """The doctor counts the doses of five steps: no logistic regression on the last two and their shares can."""
    train, validation = confounded(1500)
    config = CloningConfig(training=TrainingConfig(epochs=6, batch_size=64, learning_rate=0.01))
    fit = fit_cloning(train, validation, config, np.random.default_rng(0))
    assert fit.accepted
    assert fit.history.validation[fit.history.best_epoch] < fit.history.validation[0] - 0.005
    cloned = rollout(TumourWorld(), fit.policy, 500, np.random.default_rng(0), deterministic=False)
    assert cloned.actions[cloned.mask].mean() == pytest.approx(train.actions[train.mask].mean(), abs=0.03)
    assert cloned.terminated.mean() == pytest.approx(train.terminated.mean(), abs=0.07)


def test_bad_requests_are_refused():
    train, _ = confounded(40)
    with pytest.raises(ValueError, match="same features"):
        fit_cloning(train, linear_system(5, 0), BRIEF, np.random.default_rng(0))
    with pytest.raises(ValueError, match="priors"):
        CloningConfig(priors=())
    with pytest.raises(ValueError, match="CloningConfig"):
        CloningConfig(dropout=1.0)


def test_a_longer_training_keeps_everything_else():
    config = CloningConfig(hidden=5, training=TrainingConfig(epochs=7, fewest_steps=40, patience=3, weight_decay=0.2))
    assert config.longer() == replace(config, training=replace(config.training, epochs=21, patience=21))
