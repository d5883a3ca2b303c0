"""DSFN: targets and averages by hand, an exact small world, the batch alone, and the known slips of its public code.

Also here, since it is about baselines without memory: MB(x)-IRL's policy sees x_t and the time alone.
"""

from __future__ import annotations

from dataclasses import replace

import five_states
import numpy as np
import pytest
import torch
from closed_simulator import close_the_simulator, closed
from outcome_batches import linear_system, random_model
from small_batches import batch_of
from small_dsfn import BURDEN, FIVE, QUICK, TINY, WITH_MEMORY

from agents.dsfn import (
    DSFN,
    ActionNetwork,
    DSFNConfig,
    TDConfig,
    Transitions,
    WarmStartNetwork,
    WarmStartSizes,
    best_of,
    fit_td,
    move_towards,
    td_target,
    transitions,
    under,
)
from agents.successor.agent import SuccessorConfig
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import act_along, observation, rollout
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.training import NotFiniteError, seeded
from irl.baselines.methods import DSFNLoopConfig, fit_dsfn, observed_mu
from irl.checks.metrics import accuracy, same_order


def patients(w: tuple[float, float], episodes: int, seed: int) -> Batch:
    """The five-state patient under an expert who errs; what is seen is the burden, which tells the state."""
    played = five_states.play(five_states.softmax_expert(np.array(w), 3.0), episodes, 20, np.random.default_rng(seed))
    seen = five_states.BURDEN[played.obs[:, :, 0].astype(int)]
    return replace(played, obs=seen.astype(np.float32), features=BURDEN.features)


def fitted(config: DSFNConfig = TINY, seed: int = 0, gamma: float = 0.9, batch: Batch | None = None) -> DSFN:
    train = linear_system(30, 0, noise=1.0) if batch is None else batch
    phi = FeatureMap.from_batch(train)
    return DSFN.fit(train, linear_system(8, 1, noise=1.0), phi, gamma, config, np.random.default_rng(seed))


# --- targets, averages, networks --------------------------------------------------------------------------------------


def test_targets_by_hand():
    outcomes = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    following = torch.tensor([[10.0, 20.0], [torch.nan, torch.inf]])
    y = td_target(outcomes, torch.tensor([True, False]), 0.5, following)
    assert y.tolist() == [[6.0, 12.0], [1.0, 2.0]]


def test_backups_by_hand():
    values = torch.tensor([[[1.0], [5.0]], [[2.0], [-4.0]]])
    chances = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]])
    assert under(chances)(values, torch.tensor([2, 1])).tolist() == [[4.0], [-1.0]]
    assert best_of(None)(values, torch.tensor([2, 1])).tolist() == [[5.0], [2.0]]


def test_the_target_network_moves_by_its_share():
    slow, fast = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    for network, value in ((slow, 0.0), (fast, 10.0)):
        torch.nn.init.constant_(network.weight, value)
    move_towards(slow, fast, 0.01)
    assert slow.weight.item() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("ended", "first", "second"),
    # phi = 1 then 3 and gamma = .5. Ended: mu(h_1) = 3, mu(h_0) = 1 + 1.5. Cut: what follows h_2 looks like h_1 again,
    # mu = 3 + .5 mu = 6, and mu(h_0) = 1 + 3.
    [(True, 2.5, 3.0), (False, 4.0, 6.0)],
)
def test_a_chain_of_two_steps(ended, first, second):
    h0, h1 = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    steps = Transitions(
        features=torch.cat([h0, h1]),
        actions=torch.tensor([0, 1]),
        outcomes=torch.tensor([[1.0], [3.0]]),
        following=torch.cat([h1, h1]),
        goes_on=torch.tensor([True, not ended]),
    )
    with seeded(0):
        network = ActionNetwork(2, 2, 1, 16, 1.0)
    always_one = under(torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    values = fit_td(network, steps, steps.outcomes, always_one, 0.5, TDConfig(16, 300, 8, 0.02, 0.1), 0)
    assert values(steps.features, steps.actions).flatten().tolist() == pytest.approx([first, second], abs=0.03)


def test_where_an_episode_was_cut_and_where_it_ended():
    batch = replace(
        batch_of([0, 1], [1], [0, 0]),
        terminated=np.array([True, False, False]),
        truncated=np.array([False, True, True]),
    )
    phi = FeatureMap(batch.features, np.zeros(2), np.array([10.0, 100.0]))
    network = WarmStartNetwork(2, 2, WarmStartSizes(4, 3))
    _, steps = transitions(network, Scaler.from_batch(batch), phi, batch, batch.terminated)
    assert steps.goes_on.tolist() == [True, False, True, True, True]
    assert steps.actions.tolist() == [0, 1, 1, 0, 0]
    # Feature j of episode i at step t is 10 i + t + 100 j; an outcome is the observation after the action.
    np.testing.assert_allclose(steps.outcomes[:3], [[0.1, 1.01], [0.2, 1.02], [1.1, 1.11]], rtol=1e-6)
    assert torch.equal(steps.features[1], steps.following[0])
    ends = [
        DSFN(network, batch, phi, 0.5, replace(TINY, horizon_is_terminal=terminal), 0).steps.goes_on.tolist()
        for terminal in (True, False)
    ]
    assert ends == [[True, False, True, True, False], [True, False, True, True, True]]


def test_a_loss_that_is_not_finite_stops_the_training():
    steps = fitted().steps
    network = ActionNetwork(6, 3, 2, 8, 1.0)
    with pytest.raises(NotFiniteError, match="step 1"):
        fit_td(network, steps, torch.full_like(steps.outcomes, torch.nan), best_of(None), 0.9, QUICK, 0)


def test_values_too_large_for_any_policy_are_told(monkeypatch):
    dsfn = fitted()
    monkeypatch.setattr(dsfn, "_largest", 1e-6)
    with pytest.warns(UserWarning, match="have not settled"):
        dsfn.solve([-0.5, -0.5])


# --- slips of the public code, those of its projection, margin and mixture apart (tests/irl) --------------------------


def test_the_discount_restarts_in_every_episode():
    batch = batch_of([0, 1], [1])
    phi = FeatureMap(batch.features, np.zeros(2), np.array([1.0, 1.0]))
    # First feature: (1 + .5 * 2 + 11) / 2; the episode of one step is not discounted by the one before it.
    np.testing.assert_allclose(observed_mu(batch, phi, 0.5).mean, [6.5, 131.5])
    turned = observed_mu(batch.take(np.array([1, 0])), phi, 0.5)
    np.testing.assert_allclose(turned.mean, [6.5, 131.5])


def test_the_monte_carlo_estimate_runs():
    model = random_model("mb_h")
    start = linear_system(6, 0).start
    world = CounterfactualWorld(model, start, 5)
    played = rollout(world, fitted().initial().policy, 40, np.random.default_rng(0), deterministic=False)
    phi = FeatureMap(played.features, np.zeros(2), np.ones(2))
    by_hand = np.mean(
        [sum(0.9**t * obs[t + 1].astype(float) for t in range(len(acts))) for obs, acts in played.episodes()], axis=0
    )
    np.testing.assert_allclose(observed_mu(played, phi, 0.9).mean, by_hand)


def test_mu_is_not_linear_in_what_it_reads():
    dsfn = fitted()
    network = dsfn._values(2, dsfn.steps.outcomes, under(torch.full((len(dsfn.steps.actions), 3), 1 / 3)), QUICK)
    rows = torch.from_numpy(np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32))

    def mu(scaled):
        return network.every(dsfn.network.trunk(scaled))

    assert (mu(rows) + mu(-rows) - 2 * mu(0 * rows)).abs().max() > 1e-3


# --- from the batch alone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [TINY, WITH_MEMORY], ids=["x", "h"])
def test_the_whole_fit_runs_from_a_saved_batch_alone(config, tmp_path, monkeypatch):
    linear_system(30, 0, noise=1.0).save(tmp_path / "train.npz")
    close_the_simulator(monkeypatch)
    monkeypatch.setattr(CounterfactualWorld, "__init__", closed)
    train = Batch.load(tmp_path / "train.npz")
    dsfn = fitted(config, batch=train)
    found = [dsfn.initial(), dsfn.solve([-0.3, -0.7])]
    loop = DSFNLoopConfig(config, rounds=2)
    result = fit_dsfn(train, train, FeatureMap.from_batch(train), [-1, -1], 0.9, loop, np.random.default_rng(0))
    assert np.isfinite([solution.mu for solution in found]).all()
    assert np.abs(result.weights).sum() == pytest.approx(1.0)
    assert (result.weights <= 0).all()
    assert len(result.accuracies) == len(result.loop.mus) == len(result.loop.rounds) == len(result.loop.policies)
    chosen = act_along(result.policy, train)
    assert accuracy(chosen, train) == result.accuracies[result.best]


@pytest.mark.parametrize("config", [TINY, WITH_MEMORY], ids=["x", "h"])
def test_the_same_seed_gives_the_same_bytes(config):
    train = linear_system(30, 0, noise=1.0)
    found = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        loop = DSFNLoopConfig(config, rounds=2, tolerance=0.0, accuracy_change=0.0)
        ranges, rng = FeatureMap.from_batch(train), np.random.default_rng(5)
        result = fit_dsfn(train, linear_system(8, 1), ranges, [0, 0], 0.9, loop, rng)
        found.append((result.loop.mus.tobytes(), result.weights.tobytes(), act_along(result.policy, train).tobytes()))
    assert found[0] == found[1]
    assert fitted(config, seed=6).solve([-1, 0]).mu.tobytes() != fitted(config, seed=5).solve([-1, 0]).mu.tobytes()


def test_the_scale_of_w_and_what_was_solved_before_change_nothing():
    train, dsfn = linear_system(30, 0, noise=1.0), fitted()
    w = np.array([-0.25, -0.75])  # so that scaling rounds nothing
    first, other, larger = dsfn.solve(w), dsfn.solve([1.0, 0.0]), dsfn.solve(3 * w)
    assert np.array_equal(first.mu, larger.mu)
    seen = observation(train.start, np.full(len(train), -1), 3)
    q, of_other, of_larger = (found.policy.act(seen, None, None)[0] for found in (first, other, larger))
    assert np.array_equal(q, of_larger)
    assert not np.array_equal(q, of_other)


@pytest.mark.parametrize("length", range(1, 21))
def test_every_length_is_taken(length):
    batch = batch_of([0, 1] * 10, [1] * length, [0] * length, groups=("a", "b", "c")).padded(25)
    config = replace(WITH_MEMORY, mu=replace(QUICK, iterations=2))
    dsfn = DSFN.fit(batch, batch, FeatureMap.from_batch(batch), 0.9, config, np.random.default_rng(0))
    assert len(dsfn.steps.actions) == 20 + 2 * length
    assert np.isfinite(dsfn.initial().mu).all()


@pytest.mark.parametrize("config", [TINY, WITH_MEMORY], ids=["x", "h"])
def test_padding_changes_nothing(config):
    train = linear_system(30, 0, noise=1.0)
    mus = [fitted(config, batch=batch).solve([-0.5, -0.5]).mu for batch in (train, train.padded(30))]
    np.testing.assert_allclose(mus[0], mus[1], rtol=0, atol=1e-5)


def test_without_memory_the_present_alone_decides():
    train = linear_system(30, 0, noise=1.0)
    now = train.obs[:1, 3]
    seen = [observation(now, np.array([action]), 3) for action in (0, 1)]
    going = np.zeros(1, dtype=np.bool_)
    plain = fitted().solve([-0.5, -0.5]).policy
    scores = [plain.act(rows, None, going)[0] for rows in seen]
    assert plain.predict(seen[0])[1] is None
    assert np.array_equal(scores[0], scores[1])
    with pytest.raises(ValueError, match=r"\[n, 5\]"):
        plain.predict(np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"w": [1.0, 0.0, 0.0]}, "2 numbers"),
        ({"w": [0.0, 0.0]}, "must not all be zero"),
        ({"phi": FeatureMap(("q", "r"), np.zeros(2), np.ones(2))}, "feature map reads"),
        ({"validation": batch_of([0], [1])}, "same features"),
    ],
)
def test_bad_requests(change, message):
    train = linear_system(20, 0)
    given = {"gamma": 0.9, "w": [-1.0, 0.0], "phi": FeatureMap.from_batch(train), "validation": linear_system(5, 1)}
    given |= change
    fit = [given[name] for name in ("validation", "phi", "gamma")]
    with pytest.raises(ValueError, match=message):
        DSFN.fit(train, *fit, TINY, np.random.default_rng(0)).solve(given["w"])


def test_bad_settings():
    for build in (
        lambda: TDConfig(8, 0, 32, 1e-2),
        lambda: TDConfig(8, 1, 32, 0.0),
        lambda: TDConfig(8, 1, 32, 1e-2, ema=0.0),
        lambda: WarmStartSizes(shared=0),
        lambda: DSFNConfig(transition_weight=-1.0),
        lambda: DSFNLoopConfig(rounds=0),
        lambda: DSFNLoopConfig(tolerance=np.nan),
    ):
        with pytest.raises(ValueError, match=r"must|range"):
            build()
    train = linear_system(20, 0)
    with pytest.raises(ValueError, match="one per outcome"):
        fit_dsfn(train, train, FeatureMap.from_batch(train), [-1], 0.9, DSFNLoopConfig(TINY), np.random.default_rng(0))


# --- the loop's rules -------------------------------------------------------------------------------------------------


def ruled(signs=(0, 0), **rules):
    train = linear_system(30, 0, noise=1.0)
    loop = DSFNLoopConfig(TINY, **rules)
    return fit_dsfn(train, train, FeatureMap.from_batch(train), signs, 0.9, loop, np.random.default_rng(0))


def test_the_loop_begins_with_the_imitation_and_ends_when_accuracy_stays():
    result = ruled(tolerance=0.0, accuracy_change=1.0)
    assert result.warm_start
    assert not result.already_matched
    assert len(result.loop.rounds) == 2
    assert result.loop.stop == "enough"
    assert result.loop.policies[0] is result.imitation.policy
    np.testing.assert_array_equal(result.loop.mus[0], result.imitation.mu)
    assert result.loop.rounds[0].margin == pytest.approx(np.linalg.norm(result.mu_expert.mean - result.loop.mus[0]))
    # The weights of round 0 were never used: however near the imitation is, it is not what is picked.
    assert result.best == 1
    left = result.mu_expert.mean - result.loop.mus[0]
    np.testing.assert_allclose(result.weights, left / np.abs(left).sum())


def test_where_the_imitation_matches_already_the_loop_begins_with_drawn_weights():
    result = ruled(tolerance=1e6)
    assert result.already_matched
    assert len(result.loop.rounds) == 2
    assert result.loop.policies[0] is not result.imitation.policy
    left = result.mu_expert.mean - result.imitation.mu
    assert ruled(signs=-np.sign(left), tolerance=0.0, rounds=1).already_matched, "no allowed sign is left"
    cold = ruled(tolerance=1e6, warm_start=False)
    assert cold.imitation is None
    assert not cold.already_matched
    np.testing.assert_array_equal(cold.loop.mus, result.loop.mus)


# --- an exact world ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exact() -> DSFN:
    train, validation = patients((-0.3, -0.7), 300, 0), patients((-0.3, -0.7), 60, 1)
    return DSFN.fit(train, validation, BURDEN, five_states.GAMMA, FIVE, np.random.default_rng(0))


@pytest.mark.parametrize("w", [(-0.3, -0.7), pytest.param((0.5, -0.5), marks=pytest.mark.slow)])
def test_policy_and_mu_are_those_of_an_exact_solver(exact, w):
    """Both are far from an expert who errs, and come from the expert's batch alone."""
    truth = five_states.solve(np.array(w))
    found = exact.solve(w)
    np.testing.assert_allclose(found.mu, truth.mu, atol=0.1)
    seen = np.concatenate([five_states.BURDEN, np.zeros((5, 2))], axis=1)
    chosen, _ = found.policy.predict(seen)
    best_value = five_states.optimal_q(np.array(w))
    assert (best_value.max(axis=1) - best_value[np.arange(5), chosen]).max() < 0.05


def test_the_warm_start_imitates(exact):
    expert = five_states.softmax_expert(np.array([-0.3, -0.7]), 3.0)
    begun = exact.initial()
    np.testing.assert_allclose(begun.mu, five_states.mu_of(expert), atol=0.15)
    seen = np.concatenate([five_states.BURDEN, np.zeros((5, 2))], axis=1)
    chances = torch.softmax(torch.from_numpy(begun.policy.act(seen, None, None)[0]), dim=-1).numpy()
    np.testing.assert_allclose(chances, expert, atol=0.1)
    drawn, _ = begun.policy.predict(np.repeat(seen[:1], 4000, axis=0))
    assert drawn.mean() == pytest.approx(chances[0, 1], abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("truth", [(-0.3, -0.7), (-0.7, -0.3)])
def test_the_order_of_the_weights_comes_back(truth):
    """A random order is right half of the time: 2 of 2 for both truths is what chance gives once in 16."""
    train, validation = patients(truth, 300, 0), patients(truth, 60, 1)
    loop = DSFNLoopConfig(FIVE, rounds=4, tolerance=0.02, accuracy_change=0.0)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        result = fit_dsfn(train, validation, BURDEN, [-1, -1], five_states.GAMMA, loop, rng)
        assert same_order(result.weights, truth)
        assert result.loop.rounds[-1].margin < 0.1


# --- MB(x)-IRL --------------------------------------------------------------------------------------------------------


def test_on_the_memoryless_model_the_successor_policy_sees_x_and_the_time_alone():
    model = random_model("mb_x")
    batch = linear_system(6, 0, noise=1.0)
    phi = FeatureMap.from_batch(batch)
    problem = Problem(model, phi, batch.start, 4, 0.9, uniform_weights([0, 0]))
    tiny = SuccessorConfig(episodes=50, gradient_steps=3, weights_per_history=1, hidden=(8,), width=2)
    policy = fit_successor(problem, tiny, np.random.default_rng(0)).policy([-0.3, 0.7])
    now, n_actions = batch.obs[:3, 2], model.n_actions
    values = {}
    for past in (batch.obs[:3, 0], batch.obs[3:, 1] + 5):  # other pasts and other actions, the same x_t at t = 1 and 2
        _, first = policy.act(observation(past, np.full(3, -1), n_actions), None, None)
        for action in range(n_actions):
            going, taken = np.zeros(3, dtype=np.bool_), observation(now, np.full(3, action), n_actions)
            q, memory = policy.act(taken, first, going)
            np.testing.assert_array_equal(memory[0], now)  # all that is remembered is x_t itself ..
            np.testing.assert_array_equal(memory[1], 1)  # .. and the time
            later, _ = policy.act(taken, memory, going)
            values.setdefault(1, []).append(q)
            values.setdefault(2, []).append(later)
    assert all(np.array_equal(each, values[t][0]) for t in (1, 2) for each in values[t])
    assert not np.array_equal(values[1][0], values[2][0])
