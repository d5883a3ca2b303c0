"""The simulated expert: chances of its actions, what kappa means, what it refuses, and the exact optimum beside it."""

from __future__ import annotations

import numpy as np
import pytest
from small_agents import TINY, tumour_agent, tumour_batch

from agents.expert import Expert, noise_free_values, simulated_habit, successor_expert
from agents.successor.agent import SuccessorConfig
from cirl_gym import TumourParameters, TumourWorld, rollout
from cirl_gym.data.habits import Habit
from cirl_gym.data.rollout import act_along, observation
from cirl_gym.types import FloatArray
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import draw_start

SHORT = TumourParameters(horizon=5)
W = np.array([-0.3, -0.7])
PARAMETERS = TumourParameters()
SETTINGS = [(w, gamma) for gamma in (0.99, 0.5) for w in ((-0.3, -0.7), (-0.7, -0.3), (-0.5, -0.5))]
ALLOWED = {0.99: 0.08, 0.5: 0.02}
HARD = SETTINGS[0]
"""A switch of the optimal policy lies just beside it, and always treating is a deep local optimum."""


def trained(w, kappa=100.0, gamma=0.99):
    return successor_expert(SHORT, np.array(w, dtype=float), gamma, kappa, TINY, np.random.default_rng(0))


@pytest.fixture(scope="module")
def agent():
    return tumour_agent(SHORT)


@pytest.fixture(scope="module")
def batch():
    return tumour_batch(SHORT, 0.0, 0.5, 1.0)


def test_for_two_actions_it_is_a_sigmoid_of_the_difference(agent, batch):
    q = agent.q(batch, W)
    for kappa in (0.0, 5.0, 1e6):
        chances = Expert(agent, W, kappa).probabilities(batch)
        assert chances.shape == (24, 5, 2)
        assert (chances >= 0).all()
        np.testing.assert_allclose(chances.sum(axis=-1), 1.0)
        assert kappa or (chances == 0.5).all(), "it tosses a coin"
    treat = Expert(agent, W, 20.0).probabilities(batch)[..., 1]
    np.testing.assert_allclose(treat, 1 / (1 + np.exp(-20 * (q[..., 1] - q[..., 0]))))
    # The printed sigmoid(kappa Q) could never reach one half, as no reward is positive.
    assert (q[batch.mask] < 0).all()
    assert treat[batch.mask].max() > 0.6


def test_frequencies_are_the_chances(agent, batch):
    expert = Expert(agent, W, 5.0)
    n = 5000
    shown = observation(np.repeat(batch.obs[:1, 0], n, axis=0), np.full(n, -1), 2)
    expected = expert.probabilities(batch)[0, 0, 1]
    assert 0.1 < expected < 0.9
    # Standard error .007.
    assert expert.policy(seed=1).predict(shown)[0].mean() == pytest.approx(expected, abs=0.03)


def test_the_seed_decides_what_is_drawn_and_the_best_action_comes_on_request(agent, batch):
    expert = Expert(agent, W, 20.0)
    runs = [
        rollout(TumourWorld(SHORT), expert.policy(seed), 50, np.random.default_rng(0), deterministic=False)
        for seed in (1, 1, 2)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]
    expert = Expert(agent, W, 0.1)
    best = np.where(batch.mask, expert.probabilities(batch).argmax(axis=-1), 0)
    np.testing.assert_array_equal(act_along(expert.policy(), batch), best)


def test_habits_stand_beside_the_values(agent, batch):
    """P = softmax(b + kappa Q), written out by hand; the columns of a habit belong to actions, whatever their order."""
    repeat, treat, kappa = 2.0, -1.0, 20.0
    expert = Expert(agent, W, kappa, simulated_habit((repeat, treat)))
    difference = kappa * np.diff(agent.q(batch, W), axis=-1)[..., 0] + treat
    before = batch.actions[:, :-1]
    difference[:, 1:] += np.where(before == 1, repeat, -repeat)
    chances = expert.probabilities(batch)
    np.testing.assert_allclose(chances[..., 1][batch.mask], 1 / (1 + np.exp(-difference[batch.mask])))
    # What acts is what those chances say: the most likely, and draws as often as they say.
    most_likely = np.where(batch.mask, chances.argmax(axis=-1), 0)
    np.testing.assert_array_equal(act_along(expert.policy(), batch), most_likely)
    plain = act_along(Expert(agent, W, kappa).policy(), batch)
    assert (plain != most_likely).any()
    np.testing.assert_array_equal(act_along(expert.optimal, batch), plain)
    draws = [act_along(expert.policy(seed), batch, deterministic=False) for seed in range(100)]
    error = np.abs(np.mean(draws, axis=0) - chances[..., 1])[batch.mask]
    assert error.max() < 0.2, "four standard errors of 100 draws"
    # Without values only the habit is left; without logits, only the values.
    alone = Expert(agent, W, 0.0, simulated_habit((repeat, treat))).probabilities(batch)
    np.testing.assert_allclose(alone[:, 0, 1], 1 / (1 + np.exp(1.0)))
    same = Expert(agent, W, kappa, simulated_habit((0.0, 0.0))).probabilities(batch)
    np.testing.assert_allclose(same, Expert(agent, W, kappa).probabilities(batch))


def test_habits_are_kept_in_step_with_episodes_that_begin_anew(agent, batch):
    """Rows whose episode starts have no action before, whatever the observation of a vector environment holds."""
    policy = Expert(agent, W, 0.0, simulated_habit((50.0, 1.0))).policy()
    shown = observation(batch.obs[:4, 0], np.full(4, -1), 2)
    first, memory = policy.predict(shown, deterministic=True)
    assert (first == 1).all()
    again = observation(batch.obs[:4, 1], np.zeros(4, dtype=int), 2)
    begins = np.array([True, False, True, False])
    following, _ = policy.predict(again, memory, begins, deterministic=True)
    np.testing.assert_array_equal(following, [1, 0, 1, 0])


def test_habits_never_break_rules():
    policy = successor_expert(
        SHORT, W, 0.99, 1.0, TINY, np.random.default_rng(0), forbid=["1 unless After(0)"], habit=simulated_habit((9, 9))
    ).policy()
    played = rollout(TumourWorld(SHORT), policy, 20, np.random.default_rng(0), deterministic=False)
    assert (played.actions[:, 0] == 0).all(), "nothing came before"
    treated = (played.actions[:, 1:] == 1) & played.mask[:, 1:]
    assert treated.any()
    assert (played.actions[:, :-1][treated] == 0).all()


def test_bad_habits(agent):
    three = Habit.repeating(("0", "1", "2"), 1.0, (0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="habit is one of 3 actions, the agent acts with 2"):
        Expert(agent, W, 1.0, three)
    with pytest.raises(ValueError, match="habit is one of 3 actions"):
        successor_expert(SHORT, W, 0.99, 1.0, TINY, np.random.default_rng(0), habit=three)
    with pytest.raises(ValueError, match="a habit needs kappa"):
        agent.policy(W, habit=simulated_habit((1.0, 0.0)))
    with pytest.raises(ValueError, match="finite"):
        simulated_habit((np.nan, 0.0))


def test_weights_of_a_smaller_norm_make_a_smaller_kappa():
    small, full = trained([-0.15, -0.35]), trained([-0.3, -0.7])
    np.testing.assert_allclose(small.w, [-0.3, -0.7])
    assert (small.kappa, full.kappa) == (pytest.approx(50), 100)
    # What is optimal depends on the direction alone: the two agents are the same.
    for one, two in zip(small.agent.network.parameters(), full.agent.network.parameters(), strict=True):
        np.testing.assert_allclose(one.detach(), two.detach(), atol=1e-6)


@pytest.mark.parametrize("w", [(-0.3, -0.7), (-0.7, -0.3), (-1, 0), (0, -1), (0.5, -0.5), (0, 0)])
def test_any_weights_can_be_solved_and_acted_on(w):
    expert = trained(w)
    played = rollout(TumourWorld(SHORT), expert.policy(), 50, np.random.default_rng(0), deterministic=False)
    assert np.isfinite(expert.probabilities(played)).all()
    np.testing.assert_allclose(np.abs(expert.w).sum(), float(any(w)))
    if w == (0, 0):
        assert expert.kappa == 0


def test_clear_cases_are_solved():
    # Nothing but the tumour counts: always treat. Nothing but side effects: never do.
    def treated(w):
        played = rollout(TumourWorld(SHORT), trained(w).policy(), 100, np.random.default_rng(0))
        return played.actions[played.mask].mean()

    assert treated((-1, 0)) > 0.99
    assert treated((0, -1)) < 0.01


def test_bad_weights_and_gamma():
    for w in ((-0.8, -0.7), (-0.3,), (-0.3, -0.3, -0.4), (np.nan, -0.3), (-np.inf, 0.0), ((-0.3, -0.7),)):
        with pytest.raises(ValueError, match="two finite numbers with L1 norm at most 1"):
            trained(w)
    for gamma in (-0.1, 1.5, np.nan):
        with pytest.raises(ValueError, match="gamma must lie between 0 and 1"):
            trained(W, gamma=gamma)


@pytest.mark.parametrize("kappa", [-1.0, np.nan, np.inf])
def test_bad_kappa_is_refused_before_training(agent, kappa):
    told = []
    with pytest.raises(ValueError, match="kappa must be a finite number"):
        successor_expert(SHORT, W, 0.99, kappa, TINY, np.random.default_rng(0), lambda *done: told.append(done))
    assert not told
    with pytest.raises(ValueError, match="kappa must be a finite number"):
        Expert(agent, W, kappa)


# --- what it earns without noise beside the exact optimum, on the same starts -----------------------------------------


def shortfall(setting, config: SuccessorConfig, starts: FloatArray, best: FloatArray) -> FloatArray:
    """By how much the greedy expert earns less than the optimum, start by start, without noise."""
    w, gamma = np.array(setting[0]), setting[1]
    expert = successor_expert(PARAMETERS, w, gamma, 100.0, config, np.random.default_rng(0))
    missing = best - noise_free_values(expert.policy(), PARAMETERS, starts, w, gamma)
    print(f"w {setting[0]}, gamma {gamma}: short of the optimum by {missing.mean():.4f}, at most {missing.max():.4f}")
    # Observations are float32; nobody earns more than the optimum.
    assert missing.min() > -1e-5
    return missing


def test_the_hard_setting_within_seconds():
    starts = draw_start(PARAMETERS, 5, np.random.default_rng(7))
    config = SuccessorConfig(episodes=1024, weights_per_history=1, gradient_steps=75, width=8)
    missing = shortfall(HARD, config, starts, optimum(PARAMETERS, starts, [HARD]).values[:, 0])
    assert missing.mean() <= ALLOWED[0.99]


@pytest.fixture(scope="module")
def solved() -> tuple[FloatArray, FloatArray]:
    """Ten starts and their optimum in every setting."""
    starts = draw_start(PARAMETERS, 10, np.random.default_rng(11))
    return starts, optimum(PARAMETERS, starts, SETTINGS).values


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SETTINGS)), ids=[f"w{w}-gamma{gamma}" for w, gamma in SETTINGS])
def test_every_setting_with_the_default_training(solved, number):
    starts, best = solved
    config = SuccessorConfig(weights_per_history=1, width=8)
    missing = shortfall(SETTINGS[number], config, starts, best[:, number])
    assert missing.mean() <= ALLOWED[SETTINGS[number][1]]
