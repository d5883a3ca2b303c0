"""IQ-Learn and AVRIL: losses by hand, exact optima, the five-state patient's soft-optimal expert, files and rules."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from five_states import GAMMA, NEXT, PHI, START
from ruled_patients import FELT, NOT_TWICE, experts
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, logsumexp, softmax
from small_batches import batch_of, cut_off
from training_losses import captured

import agents.soft_q
from agents.avril import AVRIL, AVRILConfig, fit_avril, temporal_differences, terms
from agents.iq_learn import IQLearn, IQLearnConfig, fit_iq_learn, implied_rewards, iq_loss
from agents.policies.cloning import CloningConfig, CloningPolicy
from agents.soft_q import EpisodeTensors, soft_value
from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import act_along
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.training import TrainingConfig
from cirl_gym.types import FloatArray

L2, L3, L4 = math.log(2), math.log(3), math.log(4)
BRIEF = CloningConfig(hidden=6, training=TrainingConfig(epochs=3, learning_rate=0.01), priors=(0.0, 1.0))
PATIENT = TrainingConfig(epochs=200, batch_size=600, fewest_steps=1, learning_rate=0.05, patience=50, schedule="cosine")
LONG = CloningConfig(hidden=1, dropout=0.0, priors=(0.0,), training=PATIENT)
"""What the logistic regression may look at is the actions before alone: the rest is for the method to find."""


class Method(NamedTuple):
    fit: Any
    found: Any
    config: Any


METHODS = {
    "iq_learn": Method(fit_iq_learn, IQLearn, IQLearnConfig(BRIEF)),
    "avril": Method(fit_avril, AVRIL, AVRILConfig(BRIEF)),
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def fitted(method: Method, train: Batch, validation: Batch, rules=None, config=None):
    return method.fit(train, validation, 0.9, config or method.config, np.random.default_rng(5), rules=rules)


def ended(batch: Batch) -> Batch:
    return replace(batch, terminated=np.ones_like(batch.terminated), truncated=np.zeros_like(batch.truncated))


def histories_of(batch: Batch, rules=None) -> EpisodeTensors:
    return EpisodeTensors.of(Scaler.from_batch(batch), batch, rules)


TWO = batch_of([1, 0], [1])
"""Two decisions that end the process, and one."""
Q = torch.tensor([[[0.0, 0.0], [L3, 0.0], [0.0, L2]], [[L3, 0.0], [L3, L3], [5.0, 5.0]]], dtype=torch.float64)
"""V: log 2, log 4, log 3 and log 4, log 6; Q of what was done: 0, log 3 and 0."""


# --- losses by hand ---------------------------------------------------------------------------------------------------


def test_implied_rewards_by_hand():
    half = 0.5 * L4
    np.testing.assert_allclose(implied_rewards(Q, histories_of(TWO), 0.5), [[-half, L3], [0, 0]])
    cut = replace(TWO, terminated=np.array([False, False]), truncated=np.array([True, True]))
    expected = [[-half, L3 - 0.5 * L3], [-0.5 * math.log(6), 0]]
    np.testing.assert_allclose(implied_rewards(Q, histories_of(cut), 0.5), expected)


def test_the_loss_of_iq_learn_by_hand():
    histories, alpha = histories_of(TWO), 2.0
    penalties = ((0.5 * L4) ** 2 / 8, L3**2 / 8, 0.0)
    surprises = (L2, L4 - L3, L4)
    assert iq_loss(Q, histories, 0.5, alpha, "value").item() == pytest.approx((sum(surprises) + sum(penalties)) / 3)
    # Weights 1, 1/2 and 1; V(h_0) is log 2 and log 4.
    earned = (-0.5 * L4 - penalties[0]) + 0.5 * (L3 - penalties[1]) + 0.0
    assert iq_loss(Q, histories, 0.5, alpha, "v0").item() == pytest.approx((L2 + L4 - earned) / 2.5)


def test_both_forms_are_one_where_nothing_is_discounted_and_every_episode_ended():
    """V(h) - V(h') telescopes to V(h_0)."""
    batch = ended(
        cut_off(np.zeros((5, 7, 2)), np.ones((5, 6), dtype=int), ("x", "y"), lengths=np.array([1, 3, 6, 6, 2]))
    )
    q = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 7, 2)))
    value, v0 = (iq_loss(q, histories_of(batch), 1.0, 3.0, form).item() for form in ("value", "v0"))
    assert value == pytest.approx(v0)


def test_the_terms_of_avril_by_hand():
    mean, deviation = torch.tensor([[1.0, 0.5], [0.0, 9.0]]), torch.tensor([[2.0, 1.0], [0.5, 7.0]])
    found = terms(Q, mean, deviation.log(), histories_of(TWO), 0.5, beta=2.0)
    np.testing.assert_allclose(found.log_losses, [[L2, L4 - L3], [L4, 0]])
    divergences = [[0.5 * (1 + 4 - 1) - L2, 0.5 * 0.25], [0.5 * (0.25 - 1) + L2, 0]]
    np.testing.assert_allclose(found.divergences, divergences, atol=1e-6)
    # Q is half of what behaviour follows from: 0 - (log 3)/4, then (log 3)/2 and 0, after which nothing comes.
    unit = -0.5 * math.log(2 * math.pi)
    densities = [
        [-0.5 * ((-L3 / 4 - 1) / 2) ** 2 - L2 + unit, -0.5 * (L3 / 2 - 0.5) ** 2 + unit],
        [L2 + unit, 0],
    ]
    np.testing.assert_allclose(found.td_densities, densities, atol=1e-6)


def test_where_watching_was_cut_there_is_no_temporal_difference():
    cut = replace(TWO, terminated=np.array([False, True]), truncated=np.array([True, False]))
    differences, known = temporal_differences(Q, histories_of(cut), 0.5)
    assert known.tolist() == [[True, False], [True, False]]
    np.testing.assert_allclose(differences[known], [-0.5 * L3, 0.0])


def test_what_is_forbidden_has_no_share_in_values():
    """Treated once, no patient may be treated again: Q of waiting is all that V has then."""
    batch = NOT_TWICE.masked(ended(cut_off(np.zeros((1, 3, 2)), [[1, 0]], NOT_TWICE.features)))
    histories = histories_of(batch, NOT_TWICE)
    logits = agents.soft_q.only_allowed(Q[:1], histories.allowed)
    np.testing.assert_allclose(implied_rewards(logits, histories, 0.5), [[-0.5 * L3, L3]])
    with pytest.raises(ValueError, match="the rules themselves"):
        histories_of(batch)


# --- exact optima -----------------------------------------------------------------------------------------------------


def one_step(first: int, second: int) -> Batch:
    """Patients who are all alike, decided about once: so many times 0, so many times 1."""
    batch = batch_of(*[[0]] * first, *[[1]] * second)
    return replace(batch, obs=np.zeros_like(batch.obs))


def chances_of(policy: CloningPolicy, batch: Batch) -> FloatArray:
    return np.exp(policy.log_probabilities(batch)[0, 0])


def test_the_reward_of_iq_learn_is_the_ratio_of_densities():
    """At the optimum pi = p (1 - r / (2 alpha)): what the chi-squared penalty is known for."""
    batch, alpha = one_step(30, 10), 0.5
    found, _ = fit_iq_learn(batch, batch, 0.9, IQLearnConfig(LONG, alpha), np.random.default_rng(0))
    p = np.array([0.75, 0.25])
    rewards = lambda pi: 2 * alpha * (1 - np.array([pi, 1 - pi]) / p)  # noqa: E731
    pi = brentq(lambda pi: np.log(pi / (1 - pi)) - rewards(pi) @ [1, -1], 0.5, 0.75)
    assert pi < 0.7
    np.testing.assert_allclose(chances_of(found.policy, batch), [pi, 1 - pi], atol=0.005)
    np.testing.assert_allclose(found.rewards(batch)[[0, -1], 0], rewards(pi), atol=0.02)


def test_avril_reaches_the_optimum_of_its_objective():
    batch, weight, beta, p = one_step(30, 10), 0.5, 2.0, np.array([0.75, 0.25])

    def objective(flat: FloatArray) -> float:
        q, mean, log_deviation = flat.reshape(3, 2)
        divergence = 0.5 * (mean**2 + np.exp(2 * log_deviation) - 1) - log_deviation
        density = -0.5 * ((q - mean) / np.exp(log_deviation)) ** 2 - log_deviation - 0.5 * np.log(2 * np.pi)
        return float(p @ (-log_softmax(beta * q) + divergence - weight * density))

    exact = minimize(objective, np.zeros(6)).x.reshape(3, 2)
    found, history = fit_avril(batch, batch, 0.9, AVRILConfig(LONG, beta, weight), np.random.default_rng(0))
    assert min(history.validation) == pytest.approx(objective(exact), abs=2e-3)
    np.testing.assert_allclose(chances_of(found.policy, batch), softmax(beta * exact[0]), atol=0.01)
    mean, deviation = found.posterior(batch)
    np.testing.assert_allclose(mean[[0, -1], 0], exact[1], atol=0.03)
    np.testing.assert_allclose(deviation[[0, -1], 0], np.exp(exact[2]), atol=0.03)


REWARD = 12 * PHI @ np.array([-0.4, -0.6])


def soft_optimal() -> FloatArray:
    """Q ``[5, 2]`` of the five-state patient: r + gamma V of the next state, V = log sum exp Q."""
    q = np.zeros((5, 2))
    for _ in range(200):
        q = REWARD + GAMMA * logsumexp(q, axis=1)[NEXT]
    return q


def soft_experts(episodes: int, seed: int, steps: int = 20) -> tuple[Batch, FloatArray]:
    """Episodes cut off by watching, the state seen as one number of five; states ``[N, T+1]``."""
    rng, chances = np.random.default_rng(seed), softmax(soft_optimal(), axis=1)
    course, taken = [rng.choice(5, size=episodes, p=START)], []
    for _ in range(steps):
        taken.append((rng.random(episodes) < chances[course[-1], 1]).astype(np.int64))
        course.append(NEXT[course[-1], taken[-1]])
    states = np.stack(course, axis=1)
    return cut_off(np.eye(5)[states], np.stack(taken, axis=1), tuple("abcde")), states


@pytest.fixture(scope="module")
def five() -> tuple[Batch, FloatArray, Batch]:
    (train, states), (validation, _) = soft_experts(600, 0), soft_experts(100, 1)
    return train, states, validation


def test_iq_learn_recovers_the_soft_optimal_expert_and_its_reward_up_to_shaping(five):
    train, states, validation = five
    found, _ = fit_iq_learn(train, validation, GAMMA, IQLearnConfig(LONG, alpha=500.0), np.random.default_rng(0))
    truth = log_softmax(soft_optimal(), axis=1)
    assert np.ptp(truth[:, 1]) > 2
    logs = found.policy.log_probabilities(train)
    for state in range(5):
        np.testing.assert_allclose(np.exp(logs[states[:, :-1] == state].mean(axis=0)), np.exp(truth[state]), atol=0.03)
    # r is the true one plus f(h) - gamma f(h'), with f by how much V is another.
    histories = EpisodeTensors.of(found.policy.scaler, train)
    with torch.no_grad():
        values = soft_value(histories.logits(found.policy.network)).double().numpy()
    f = values - logsumexp(soft_optimal(), axis=1)[states]
    true = REWARD[states[:, :-1], train.actions]
    missed = found.rewards(train) - true
    assert (missed - (f[:, :-1] - GAMMA * f[:, 1:])).std() < 0.2
    assert missed.std() > 0.5
    assert true.std() > 1


def test_temporal_differences_of_avril_shrink_with_their_weight(five):
    train, validation = five[0].take(np.arange(150)), five[2]
    sizes = []
    for weight in (0.0, 0.3, 1.0):
        config = AVRILConfig(replace(LONG, training=replace(PATIENT, epochs=50)), 1.0, weight)
        found, history = fit_avril(train, validation, GAMMA, config, np.random.default_rng(0))
        assert history.validation[history.best_epoch] < history.validation[0] - 0.05
        histories = EpisodeTensors.of(found.policy.scaler, train)
        with torch.no_grad():
            differences, known = temporal_differences(histories.logits(found.policy.network), histories, GAMMA)
        sizes.append(((differences.numpy() - found.rewards(train))[known.numpy()] ** 2).mean())
    assert sizes[0] > 2 * sizes[1] > 2 * sizes[2]


# --- what both promise ------------------------------------------------------------------------------------------------


def ruled(episodes: int, seed: int) -> Batch:
    return experts(NOT_TWICE, np.tile([0.4, 0.6], (5, 1)), episodes, seed, steps=8)


@each_method
@pytest.mark.parametrize("rules", [None, NOT_TWICE], ids=["free", "rules"])
def test_the_same_seed_gives_the_same_bytes_and_nothing_forbidden_is_done(method, rules, tmp_path):
    lengths = np.random.default_rng(2).integers(1, 9, size=40)
    train, validation = (replace(ruled(40, seed), allowed=None, lengths=lengths) for seed in (0, 1))
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        found, _ = fitted(method, train, validation, rules)
        found.save(tmp_path / f"{disturbance}.npz")
    assert (tmp_path / "1.npz").read_bytes() == (tmp_path / "2.npz").read_bytes()
    chosen = act_along(found.policy, train)
    treated_twice = (chosen == 1)[:, 1:] & (train.actions == 1)[:, :-1]
    assert rules is None or not treated_twice.any()
    assert np.isfinite(found.rewards(train)).all()


@each_method
def test_padding_changes_nothing(method, monkeypatch):
    lengths = np.random.default_rng(0).integers(1, 9, size=20)
    base = replace(ruled(20, 0), allowed=None, lengths=lengths)
    wide = base.padded(15)
    losses = []
    for batch in (base, wide):
        fit = lambda batch=batch: fitted(method, batch, base)  # noqa: E731
        losses.append(captured(monkeypatch, agents.soft_q, fit, lambda _network, loss: loss().item()))
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    found, _ = fitted(method, base, base, config=replace(method.config, network=replace(BRIEF, dropout=0.0)))
    np.testing.assert_allclose(found.rewards(wide)[:, : base.horizon], found.rewards(base), atol=1e-5)
    assert (found.rewards(wide)[~wide.mask] == 0).all()


@each_method
def test_a_saved_answer_is_the_same_to_the_last_bit(method, tmp_path):
    train = replace(ruled(20, 0), allowed=None)
    found, _ = fitted(method, train, train)
    found.save(tmp_path / "found.npz")
    again = method.found.load(tmp_path / "found.npz", np.random.default_rng(0))
    assert np.array_equal(again.policy.log_probabilities(train), found.policy.log_probabilities(train))
    assert np.array_equal(again.rewards(train), found.rewards(train))
    whole = (tmp_path / "found.npz").read_bytes()
    (tmp_path / "found.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"found\.npz"):
        method.found.load(tmp_path / "found.npz", np.random.default_rng(0))
    found.policy.save(tmp_path / "clone.npz")
    with pytest.raises(ValueError, match="the kind is 'cloning'"):
        method.found.load(tmp_path / "clone.npz", np.random.default_rng(0))


@each_method
def test_what_is_not_possible_is_refused(method):
    train = ruled(20, 0)
    with pytest.raises(ValueError, match="the rules themselves"):
        fitted(method, train, train)
    with pytest.raises(ValueError, match="gamma must lie between 0 and 1"):
        method.fit(train, train, 1.5, method.config, np.random.default_rng(0), rules=NOT_TWICE)
    with pytest.raises(ValueError, match="was taken although it is forbidden"):
        fitted(method, *[experts(FELT, np.full((5, 2), 0.5), 20, 0)] * 2, NOT_TWICE)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (lambda: IQLearnConfig(alpha=0.0), "alpha must be positive"),
        (lambda: IQLearnConfig(form="v1"), "'value' or 'v0'"),
        (lambda: AVRILConfig(beta=math.inf), "beta must be positive"),
        (lambda: AVRILConfig(td_weight=1.5), r"td_weight must be within \[0, 1\]"),
    ],
)
def test_settings_that_cannot_be(config, told):
    with pytest.raises(ValueError, match=told):
        config()
