"""Behaviour cloning: probabilities that are right, and small tables (its memory: test_recurrent_networks.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from outcome_batches import confounded, linear_system
from scipy.special import softmax
from small_batches import batch_of

from agents.policies.cloning import (
    CloningConfig,
    CloningNetwork,
    CloningPolicy,
    episode_losses,
    fit_cloning,
    fit_logistic,
)
from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import observation, rollout
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.training import TrainingConfig, seeded
from cirl_gym.worlds.world import TumourWorld

TIGHT = {"rtol": 0, "atol": 1e-5}
BRIEF = CloningConfig(hidden=8, training=TrainingConfig(epochs=3, learning_rate=0.01))


@pytest.fixture
def policy():
    """Untrained, no part of it zero: two features, three actions."""
    with seeded(0):
        network = CloningNetwork(2, 3, CloningConfig(hidden=6)).eval()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.7)
    return CloningPolicy(network, Scaler(np.zeros(2), np.full(2, 3.0)), np.random.default_rng(0))


@pytest.fixture(scope="module")
def batch() -> Batch:
    return linear_system(40, 3, noise=1.0)


def seen(batch, t):
    previous = batch.actions[:, t - 1] if t else np.full(len(batch), -1)
    return observation(batch.obs[:, t], previous, batch.n_actions)


def test_probabilities_sum_to_one_and_padding_has_none(policy, batch):
    logs = policy.log_probabilities(batch)
    assert (logs[~batch.mask] == 0).all()
    assert np.exp(logs[batch.mask]).sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("horizon", [20, 60])
def test_more_padding_and_other_patients_change_nothing(policy, batch, horizon):
    logs = policy.log_probabilities(batch)
    np.testing.assert_allclose(policy.log_probabilities(batch.padded(horizon))[:, : batch.horizon], logs, **TIGHT)
    order = np.random.default_rng(0).permutation(len(batch))
    np.testing.assert_allclose(policy.log_probabilities(batch.take(order)), logs[order], **TIGHT)
    for i in range(0, len(batch), 9):
        np.testing.assert_allclose(policy.log_probabilities(batch.take(np.array([i])))[0], logs[i], **TIGHT)


def test_the_future_and_the_action_itself_are_not_seen(policy, batch):
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
    zero, nearly = replace(long, obs=obs), replace(long, obs=np.where(np.arange(13)[:, None] == 2, 1e-2, obs))
    assert policy.log_probabilities(zero)[:, 5].any()
    assert not np.array_equal(policy.log_probabilities(zero)[:, 3], policy.log_probabilities(nearly)[:, 3])


def test_observations_of_another_shape_are_refused(policy):
    with pytest.raises(ValueError, match=r"\[n, 5\]"):
        policy.predict(np.zeros((4, 3)))


def test_actions_are_drawn_with_the_probabilities(policy, batch):
    row = np.repeat(seen(batch, 0)[:1], 40_000, axis=0)
    probability = softmax(policy.act(row[:1], None, None)[0], axis=1)
    actions, state = policy.predict(row)
    assert actions.dtype == np.int64
    assert np.bincount(actions, minlength=3) / 40_000 == pytest.approx(probability[0], abs=0.01)
    best, _ = policy.predict(row, deterministic=True)
    assert (best == probability[0].argmax()).all()
    assert [part.shape for part in state] == [(40_000, 6)] * 2


def test_drawing_uses_the_policys_own_generator(policy, batch):
    row = np.repeat(seen(batch, 0), 5, axis=0)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    policy.rng = np.random.default_rng(3)
    first, _ = policy.predict(row)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(2)
    policy.rng = np.random.default_rng(3)
    assert np.array_equal(first, policy.predict(row)[0])


def test_a_saved_policy_is_the_same_to_the_last_bit(policy, batch, tmp_path):
    policy.save(tmp_path / "clone.npz")
    loaded = CloningPolicy.load(tmp_path / "clone.npz", np.random.default_rng(0))
    assert np.array_equal(loaded.log_probabilities(batch), policy.log_probabilities(batch))
    assert loaded.network.config == policy.network.config
    whole = (tmp_path / "clone.npz").read_bytes()
    (tmp_path / "clone.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"clone\.npz"):
        CloningPolicy.load(tmp_path / "clone.npz", np.random.default_rng(0))


def test_the_same_seed_gives_the_same_bytes():
    train, validation = confounded(100)
    logs = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        logs.append(fit_cloning(train, validation, BRIEF, np.random.default_rng(5)).policy.log_probabilities(train))
    assert np.array_equal(logs[0], logs[1])


@pytest.mark.parametrize("filling", [np.nan, 1e30])
def test_padding_never_enters_the_fit(filling):
    train, validation = linear_system(60, 0), linear_system(20, 1)
    obs, actions = (
        np.pad(train.obs, ((0, 0), (0, 8), (0, 0))).astype(np.float64),
        np.pad(train.actions, ((0, 0), (0, 8))),
    )
    obs[np.arange(21) > train.lengths[:, None]] = filling
    wide = replace(train, obs=obs, actions=actions)
    fits = [fit_cloning(data, validation, BRIEF, np.random.default_rng(0)) for data in (train, wide)]
    np.testing.assert_allclose(fits[0].history.validation, fits[1].history.validation, rtol=0, atol=1e-4)


def test_the_scaler_comes_from_the_training_episodes():
    train, validation = linear_system(30, 0), linear_system(10, 1)
    moved = replace(validation, obs=validation.obs + 100)
    policy = fit_cloning(train, moved, BRIEF, np.random.default_rng(0)).policy
    assert np.array_equal(policy.scaler.mean, Scaler.from_batch(train).mean)


# --- what is learnt --------------------------------------------------------------------------------------------------


def test_losses_by_hand():
    batch = batch_of([1, 0], [1])
    logits = np.log(np.array([[[0.2, 0.8], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7]]]))
    losses = episode_losses(logits, batch)
    assert losses == pytest.approx(-np.array([np.log(0.8) + np.log(0.5), np.log(0.1)]) * 2 / 3)


def habit(n, seed, repeat=0.9):
    """Actions that are repeated nine times out of ten; 15 features that mean nothing; episodes of 1 to 8 actions."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=(n, 8))
    for t in range(1, 8):
        actions[:, t] = np.where(rng.random(n) < repeat, actions[:, t - 1], 1 - actions[:, t - 1])
    none = np.zeros(n, dtype=np.bool_)
    obs, lengths = rng.standard_t(3, size=(n, 9, 15)), rng.integers(1, 9, size=n)
    names = tuple(f"f{i}" for i in range(15))
    return Batch(obs, actions, lengths, none, ~none, names, ("0", "1"), tuple(str(i) for i in range(n)))


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
    fit = fit_logistic(
        batch.take(np.arange(240)), batch.take(np.arange(240, 300)), Scaler.from_batch(batch), (0, 0.3, 3)
    )
    assert fit.prior > 0
    assert fit.weights[2, 1] - fit.weights[2, 0] > 2


def test_logistic_regression_without_features_is_counting():
    """An action follows itself three times out of four: the log-odds are log 3 but for the (wide) prior."""
    actions = [[0] * 4 + [1] * 4 + [0]] * 50 + [[1] * 4 + [0] * 4 + [1]] * 50
    batch = batch_of(*actions)
    fit = fit_logistic(batch, batch, Scaler.from_batch(batch), (0.0,))
    odds = fit.weights[2:, 1] - fit.weights[2:, 0] + fit.bias[1] - fit.bias[0]
    assert odds == pytest.approx([-np.log(3), np.log(3)], abs=0.05)


def test_a_doctor_with_a_memory_is_cloned():
    """The doctor counts the doses of five steps: no logistic regression on the last one can."""
    train, validation = confounded(1500)
    config = CloningConfig(training=TrainingConfig(epochs=6, batch_size=64, learning_rate=0.01))
    fit = fit_cloning(train, validation, config, np.random.default_rng(0))
    assert fit.accepted
    assert fit.history.validation[fit.history.best_epoch] < fit.history.validation[0] - 0.01
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
