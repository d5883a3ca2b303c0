"""mu of any policy: learnt, against exact dynamic programming and by hand; played out, against all plans of a world."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from five_state_model import (
    ENDS,
    PRINTED,
    SMALL,
    TINY,
    ByBurden,
    every_course,
    exact,
    histories_of,
    mu_over,
    numbers,
    problem_of,
    targets_by_hand,
)
from five_states import BURDEN, MILD, NEXT
from known_model import PHI, KnownModel, best_plans, value_of_plan
from small_agents import exact_agent, known_problem

from agents.as_printed.histories import Histories, PolicyActions
from agents.as_printed.learning import EndlessWorld, MuLearner, RollOutConfig, learn_mu, learn_policy, rolled_out_mu
from agents.as_printed.training import HistoryRows, HistoryTrainingConfig, _learnt_actions, train_on_histories
from agents.successor.training import Problem, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import discounted, rollout

ACTIONS = np.array([1, 1, 0, 0, 1])


def choose(_psi):
    return ACTIONS


def exactly_along(batch, psi):
    """The exact values ``[N, T, A, d]`` of the histories of a batch."""
    return psi[np.arange(batch.horizon), numbers(batch.obs[:, :-1])]


class Coin:
    """Treats with a constant chance."""

    def __init__(self, chance: float) -> None:
        self.chance, self.rng = chance, np.random.default_rng(0)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        if deterministic:
            return np.full(len(observation), int(self.chance > 0.5)), state
        return (self.rng.random(len(observation)) < self.chance).astype(np.int64), state


class Counting:
    """Waits unless three observations were seen; remembers how many."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        count = np.zeros(len(observation)) if state is None else np.where(episode_start, 0, state[0])
        return (count >= 2).astype(np.int64), (count + 1,)


class TestExact:
    @pytest.mark.parametrize("gamma", [0.5, 0.99])
    def test_mu_is_that_of_dynamic_programming_and_of_rollouts(self, gamma):
        batch, policy = every_course(3), ByBurden(ACTIONS)
        problem = problem_of(batch, gamma)
        learnt = learn_mu(Histories.of(problem), policy, SMALL, np.random.default_rng(0))
        psi = exact(gamma, 3, choose)
        mu = mu_over(batch, psi, choose)
        np.testing.assert_allclose(learnt.mu, mu, atol=1e-2)
        np.testing.assert_allclose(learnt.along(batch), exactly_along(batch, psi), atol=3e-2)
        world = CounterfactualWorld(problem.model, np.tile(batch.start, (500, 1)), 3)
        played = rollout(world, policy, len(world.starts), np.random.default_rng(1))
        earned = discounted(played, problem.feature_map(played.next_obs), gamma)
        np.testing.assert_allclose(mu, earned.mean(axis=0), atol=1e-2)
        # Another policy's is far away.
        assert np.abs(mu_over(batch, exact(gamma, 3, lambda _: 1 - ACTIONS), lambda _: 1 - ACTIONS) - mu).max() > 0.1

    def test_as_printed_but_smaller(self):
        batch = every_course(3)
        printed, histories = replace(PRINTED, batch_size=64, iterations=400), histories_of(batch, 0.99, "data")
        learnt = learn_mu(histories, ByBurden(ACTIONS), printed, np.random.default_rng(0))
        psi = exact(0.99, 3, choose, p_end=np.zeros(2))
        np.testing.assert_allclose(learnt.mu, mu_over(batch, psi, choose), atol=2e-2)

    def test_of_a_policy_that_draws(self):
        batch = every_course(3)
        learnt = learn_mu(histories_of(batch, 0.5), Coin(0.25), SMALL, np.random.default_rng(0), draws=200)
        later = np.zeros((5, 2))
        for _ in range(3):
            psi = BURDEN[NEXT] + 0.5 * (1 - ENDS)[:, None] * later[NEXT]
            later = 0.75 * psi[:, 0] + 0.25 * psi[:, 1]
        np.testing.assert_allclose(learnt.mu, later[numbers(batch.start)].mean(axis=0), atol=3e-2)
        assert np.abs(psi[:, 0] - later).max() > 0.1

    def test_w_mu_is_q_of_the_same_policy(self):
        batch, w = every_course(3), np.array([-0.4, -0.6])
        histories = histories_of(batch, 0.99)
        policy = learn_policy(histories, w, SMALL, np.random.default_rng(0))
        learnt = learn_mu(histories, policy, SMALL, np.random.default_rng(1))
        np.testing.assert_allclose(learnt.along(batch) @ w, policy.q(batch), atol=3e-2)
        assert learnt.mu @ w == pytest.approx(policy.q(batch)[:, 0].max(axis=1).mean(), abs=1e-2)

    @pytest.mark.slow
    def test_five_steps(self):
        batch = every_course(5)
        config = replace(SMALL, hidden=48, batch_size=32, target_every=50, iterations=2_500)
        learnt = learn_mu(histories_of(batch, 0.99), ByBurden(ACTIONS), config, np.random.default_rng(1))
        psi = exact(0.99, 5, choose)
        np.testing.assert_allclose(learnt.mu, mu_over(batch, psi, choose), atol=1e-2)


def two_steps(**changes) -> Batch:
    """Mild, left alone: severe; treated: mild again. Three such episodes: watched to the end, ended, cut off."""
    obs = BURDEN[[[0, 1, 0], [0, 1, 0], [0, 1, 1]]].astype(np.float32)
    flags = {"terminated": np.array([False, True, False]), "truncated": np.array([True, False, True])}
    return replace(
        every_course(2).take(np.arange(3)),
        obs=obs,
        actions=np.array([[0, 1]] * 3),
        lengths=np.array([2, 1, 1]),
        **flags,
    )


def test_targets_by_hand():
    """A network whose mu of every history is (1, 10) for waiting and (2, 20) for treating, and gamma .5."""

    def target(ends, horizon=None):
        histories = histories_of(two_steps(), 0.5, ends, horizon)
        learner = MuLearner(histories.phi, PolicyActions.of(ByBurden(ACTIONS), histories))
        rows = HistoryRows(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 0, 0]))
        return targets_by_hand(histories, learner, [1.0, 10.0, 2.0, 20.0], rows)

    # Mild -> severe (treated next) or drugged (left alone next); severe -> severe or mild (both treated next).
    mild = BURDEN[[1, 2]] + 0.5 * np.array([[2, 20], [1, 10]])
    # Where the data ended: going on; the horizon's last step; ended in the data; watching ended before the horizon.
    np.testing.assert_allclose(target("data"), [mild, BURDEN[[1, 0]], BURDEN[[1, 2]], mild], atol=1e-5)
    severe = BURDEN[[1, 0]] + 0.5 * np.array([[2, 20], [2, 20]])
    np.testing.assert_allclose(target("data", horizon=3)[1], severe, atol=1e-5)
    # Where the model says so.
    mild = BURDEN[[1, 2]] + 0.5 * np.array([[2, 20], [0.8, 8]])
    np.testing.assert_allclose(target("model"), [mild, BURDEN[[1, 0]], mild, mild], atol=1e-5)


def test_the_loss_is_the_norm():
    error = torch.tensor([[[3.0, 4.0]], [[0.0, 0.0]]], requires_grad=True)
    loss = MuLearner(error, None).loss(error)
    loss.backward()
    assert loss.item() == pytest.approx(2.5)
    np.testing.assert_allclose(error.grad.numpy(), [[[0.3, 0.4]], [[0.0, 0.0]]], atol=1e-6)


class TestHistories:
    def test_what_the_policy_does_after_next_histories(self):
        actions = PolicyActions.of(Counting(), histories_of(every_course(3), 0.5))
        np.testing.assert_array_equal(actions.here[0], np.tile([0, 0, 1], (16, 1)))
        # After h' one more was seen, whatever the action; there is nothing to do after the horizon.
        np.testing.assert_array_equal(actions.following[0], np.tile([[0, 0], [1, 1], [0, 0]], (16, 1, 1)))

    def test_the_next_history_is_the_models(self):
        batch = every_course(2)
        histories = histories_of(batch, 0.5)
        state = numbers(batch.obs[:, :-1])
        np.testing.assert_array_equal(numbers(histories.outcomes), NEXT[state])
        # The action that was taken leads where the episode went: there both readings are the same.
        taken = torch.tensor(batch.actions)
        went = histories.next_inputs[torch.arange(8)[:, None], torch.arange(2), taken]
        np.testing.assert_allclose(went[:, 0], histories.inputs[:, 1], atol=1e-6)

    def test_three_actions_and_some_outcomes(self):
        world = CounterfactualWorld(KnownModel(), np.zeros((6, 2), dtype=np.float32), 3)
        batch = rollout(world, ByBurden(np.arange(5) % 3), 6, np.random.default_rng(0))
        only_y = replace(PHI, features=("y",), low=PHI.low[1:], high=PHI.high[1:], of=("x", "y"))
        problem = Problem(KnownModel(), only_y, batch.start, 3, 0.9, uniform_weights([0]), histories=batch)
        learnt = learn_mu(Histories.of(problem), ByBurden(np.arange(5) % 3), TINY, np.random.default_rng(0))
        assert learnt.mu.shape == (1,)
        assert learnt.along(batch).shape == (6, batch.horizon, 3, 1)

    def test_bad_arguments(self):
        batch = every_course(2)
        with pytest.raises(ValueError, match="needs a problem with histories"):
            Histories.of(replace(problem_of(batch, 0.5), histories=None))
        with pytest.raises(ValueError, match="ends must be"):
            histories_of(batch, 0.5, "never")
        with pytest.raises(ValueError, match="3 actions, the model 2"):
            histories_of(replace(batch, action_names=("a", "b", "c")), 0.5)
        with pytest.raises(ValueError, match="draws must"):
            PolicyActions.of(Coin(0.5), histories_of(batch, 0.5), -1)
        with pytest.raises(ValueError, match="those of the model, the configuration's: data"):
            learn_mu(histories_of(batch, 0.5), Coin(0.5), replace(TINY, ends="data"), np.random.default_rng(0))
        learnt = learn_mu(histories_of(batch, 0.5), Coin(0.5), TINY, np.random.default_rng(0))
        with pytest.raises(ValueError, match="learnt was on"):
            learnt.along(replace(batch, features=("side effects", "disease")))


class TestFrame:
    def test_the_papers_numbers(self):
        from agents.drqn.drqn import paper_settings

        printed, settings = HistoryTrainingConfig.paper(), paper_settings("D").arguments
        assert printed.hidden == settings["policy_kwargs"]["lstm_hidden_size"] == 128
        assert (printed.batch_size, printed.learning_rate) == (settings["batch_size"], settings["learning_rate"])
        assert printed.target_every == settings["target_update_interval"] == 100
        names = (printed.iterations, printed.unit, printed.actions, printed.ends)
        assert names == (20_000, "histories", "epsilon_greedy", "data")
        assert [printed.epsilon_at(i) for i in (0, 20_000, 200_000)] == pytest.approx([0.9, 0.7, 0.0])
        assert printed.epsilon_at(20_000) == pytest.approx(settings["exploration_final_eps"])
        assert printed.rate_at(0) == printed.rate_at(19_999) == 1e-3

    @pytest.mark.parametrize("config", [TINY, replace(TINY, unit="histories", actions="epsilon_greedy")])
    def test_same_seed_same_bytes(self, config):
        histories = histories_of(every_course(3), 0.9)
        before = torch.random.get_rng_state()
        nets = [learn_mu(histories, ByBurden(ACTIONS), config, np.random.default_rng(s)).network for s in (3, 3, 4)]
        weights = [torch.cat([p.flatten() for p in net.parameters()]).detach().numpy() for net in nets]
        assert weights[0].tobytes() == weights[1].tobytes()
        assert weights[0].tobytes() != weights[2].tobytes()
        assert torch.equal(torch.random.get_rng_state(), before)

    @pytest.mark.parametrize("config", [TINY, replace(TINY, unit="histories", actions="epsilon_greedy")])
    def test_padding_changes_nothing(self, config):
        batch = replace(every_course(3), lengths=np.arange(16) % 3 + 1)
        far = problem_of(batch, 0.9, horizon=6)
        got = []
        for histories in (batch, batch.padded(6)):
            made = Histories.of(replace(far, histories=histories))
            got.append(learn_mu(made, ByBurden(ACTIONS), config, np.random.default_rng(0)).along(batch))
        np.testing.assert_allclose(got[0], got[1], atol=1e-6)
        assert (got[0][~batch.mask] == 0).all()

    def test_one_history_or_a_whole_episode_give_the_same_memory(self):
        histories = histories_of(every_course(3), 0.9)
        network = learn_mu(histories, ByBurden(ACTIONS), TINY, np.random.default_rng(0)).network
        episodes, live = torch.tensor([5, 2]), torch.tensor([[True, True, True], [True, True, False]])
        rows = HistoryRows(torch.tensor([5, 5, 5, 2, 2]), torch.tensor([0, 1, 2, 0, 1]))
        whole = rows._replace(whole=(episodes, live))
        alone, together = network.memory(histories.inputs, rows), network.memory(histories.inputs, whole)
        together += (network.hidden(histories.inputs, whole),)
        for one, other in zip((*alone, alone[0]), together, strict=True):
            np.testing.assert_allclose(one.detach(), other.detach(), atol=1e-6)

    def test_epsilon_says_how_often_the_policy_is_followed(self):
        histories = histories_of(every_course(3), 0.9)
        learner = MuLearner(histories.phi, PolicyActions.of(ByBurden(ACTIONS), histories))
        rows = HistoryRows(torch.zeros(10_000, dtype=torch.int64), torch.zeros(10_000, dtype=torch.int64))
        config = replace(TINY, actions="epsilon_greedy", epsilon=0.6, epsilon_decay=0.1)
        for iteration, share in ((0, 0.7), (2, 0.8), (9, 1.0)):
            rng = np.random.default_rng(0)
            actions = _learnt_actions(learner, rows, torch.zeros(10_000, 2, 2), config, iteration, rng)
            assert actions.shape == (10_000, 1)
            assert (actions == ACTIONS[MILD]).double().mean().item() == pytest.approx(share, abs=0.02)

    def test_progress_ends_at_the_end_and_what_is_not_finite_stops_it(self):
        told = []
        histories, rng = histories_of(every_course(2), 0.9), np.random.default_rng(0)
        learn_mu(histories, ByBurden(ACTIONS), TINY, rng, progress=lambda *done: told.append(done))
        assert told == [(2, 4), (4, 4)]
        learner = MuLearner(histories.phi * torch.inf, PolicyActions.of(ByBurden(ACTIONS), histories))
        with pytest.raises(ValueError, match="training stopped at iteration"):
            train_on_histories(histories, learner, TINY, np.random.default_rng(0))

    @pytest.mark.parametrize(
        ("value", "names"),
        [
            (0, "hidden batch_size iterations target_every learning_rate"),
            (np.nan, "learning_rate epsilon_decay"),
            (1.5, "last_rate"),
            (-0.1, "epsilon"),
            ("never", "unit actions ends"),
        ],
    )
    def test_bad_settings(self, value, names):
        for name in names.split():
            with pytest.raises(ValueError, match=f"HistoryTrainingConfig.{name}"):
                replace(TINY, **{name: value})


# --- roll-outs: the enumeration of an exact small world ---------------------------------------------------------------


class Planned:
    """The same plan for everybody; its memory is the time."""

    def __init__(self, *plan: int) -> None:
        self.plan = plan

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        time = np.zeros(len(observation), dtype=np.int64) if state is None else state[0]
        return np.array(self.plan)[time], (time + 1,)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("plan", [(0, 0, 0, 0), (1, 2, 0, 1), (2, 1, 2, 2)])
def test_the_mu_of_a_plan_is_its_enumeration(plan, gamma):
    problem = known_problem(gamma=gamma)
    by_hand = [value_of_plan((x, y, None), plan, gamma) for x, y in problem.starts.tolist()]
    np.testing.assert_allclose(rolled_out_mu(Planned(*plan), problem), np.mean(by_hand, axis=0), rtol=1e-6)


@pytest.fixture(scope="module")
def planner():
    return exact_agent()


@pytest.mark.parametrize("w", [(-0.3, -0.7), (0.6, -0.4), (0.5, 0.5)])
def test_the_mu_of_the_optimal_policy_is_that_of_the_best_of_all_plans(planner, w):
    problem, w = known_problem(), np.array(w)
    found = rolled_out_mu(planner.policy(w), problem)
    plans = np.array([best_plans((x, y, None), 4, 0.5, w) for x, y in problem.starts.tolist()])
    assert w @ found == pytest.approx((plans @ w).max(axis=1).mean(), abs=1e-6)
    # Read off the agent it is the same; of plans that are equally good for w, either may be followed.
    assert w @ found == pytest.approx(w @ planner.mu(w, problem.starts), abs=1e-6)


def test_sampled_outcomes_scatter_around_the_expected_ones_and_all_policies_meet_the_same():
    # Without ends the model is linear: residuals move single roll-outs, but not the mean of many.
    problem = known_problem(model=KnownModel(ends=False))
    many = replace(problem, starts=np.repeat(problem.starts, 100, axis=0))
    sampled = RollOutConfig(episodes=5000, outcome="sampled")
    policy = Planned(1, 2, 0, 1)
    found, exact = rolled_out_mu(policy, many, sampled, seed=1), rolled_out_mu(policy, problem)
    assert (found != exact).all()
    # A residual of .25 at every step: on the scale of phi at most .25 / 4 * 4 steps, over the root of 5,000 roll-outs.
    np.testing.assert_allclose(found, exact, atol=4 * 0.25 / np.sqrt(5000))
    assert rolled_out_mu(policy, many, sampled, seed=1).tobytes() == found.tobytes()
    assert (rolled_out_mu(policy, many, sampled, seed=2) != found).any()
    # The last action changes the last outcome alone: the same residuals lead there.
    last = rolled_out_mu(Planned(1, 2, 0, 2), many, sampled, seed=1) - found
    expected = rolled_out_mu(Planned(1, 2, 0, 2), problem) - exact
    np.testing.assert_allclose(last, expected, rtol=1e-5)


def test_the_first_observations_are_evenly_spread():
    problem = known_problem()
    rows = problem.starts[[0, 24, 49]]
    few = rolled_out_mu(Planned(0, 1, 0, 1), problem, RollOutConfig(episodes=3))
    np.testing.assert_array_equal(few, rolled_out_mu(Planned(0, 1, 0, 1), replace(problem, starts=rows)))
    whole = rolled_out_mu(Planned(0, 1, 0, 1), problem, RollOutConfig(episodes=50))
    np.testing.assert_array_equal(whole, rolled_out_mu(Planned(0, 1, 0, 1), problem, RollOutConfig(episodes=9999)))


def test_nothing_ends_in_an_endless_world_and_impossible_settings_are_refused():
    problem = known_problem()
    world = CounterfactualWorld(problem.model, problem.starts, 4)
    assert rollout(world, Planned(2, 2, 2, 2), 50, np.random.default_rng(0)).terminated.any()
    endless = rollout(EndlessWorld(problem.model, problem.starts, 4), Planned(2, 2, 2, 2), 50, np.random.default_rng(0))
    assert (endless.lengths == 4).all()
    assert endless.truncated.all()
    assert endless.features == ("x", "y")
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        RollOutConfig(episodes=0)
    with pytest.raises(ValueError, match="must be 'expected' or 'sampled'"):
        RollOutConfig(outcome="guessed")
