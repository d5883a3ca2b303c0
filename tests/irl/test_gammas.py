"""The discount factor is chosen by held-out decisions: by hand, in an exact world, and in the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact_experts import NEGATIVE, ExactAgent, drawn
from known_model import PHI, KnownModel, every_plan, plain_state
from msgspec import structs
from posteriors import known_posterior, posterior_like
from sample_result import sample_result
from shown import page_of, printed_result, rows_of
from small_agents import TINY, known_agent, known_problem
from small_batches import batch_of
from tiny_run import fitted, tiny_demo, tiny_fit
from tumour_experts import QUICK, expert_of, played, solved

from agents.solvers import Setting
from cirl_gym import rollout
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import discounted, returns
from irl.commands import explain as commands
from irl.commands.cli import main
from irl.max_margin.loop import expert_mu, phi_along
from irl.pipeline import simulate
from irl.preferences.inference import PosteriorConfig, judged_preferences, plan_pool
from irl.preferences.posterior import normal_posterior
from irl.report.section import MINUS, signed
from irl.result.gammas import GammaChoice, GammaTried, check_gammas
from irl.result.sentences import TRADE_OFF, gamma_sentences
from irl.run import Run
from irl.settings import FitConfig
from irl.stages import stages
from irl.studies.gammas import SolvedGamma, choose_gamma, compared, held_out_log_likelihood

STEPS = 8
SMALL = PosteriorConfig(decisions=10_000, plans=6, near_plans=2)


def chosen_among(gammas, truth: float, w, seed: int = 0, patients: int = 80):
    train, held_out = (drawn([w] * STEPS, truth, 8.0, patients, seed + part) for part in (0, 1000))
    asked = []

    def solve(gamma: float) -> SolvedGamma:
        asked.append(gamma)
        agent = ExactAgent(gamma, STEPS)
        rng = np.random.default_rng(0)
        pool = plan_pool(lambda w, width: agent.psi(train, w), train, NEGATIVE, SMALL, rng)
        # Close to what is sampled (test_posterior.py), at once.
        return SolvedGamma(agent, normal_posterior(pool, NEGATIVE, 800, rng))

    told = []
    choice, solved = choose_gamma(solve, gammas, held_out, progress=lambda *done: told.append(done))
    assert asked == list(gammas)
    assert told == [(i + 1, len(gammas)) for i in range(len(gammas))]
    return choice, solved, held_out


class TestExactWorld:
    def test_patient_experts_are_told_from_short_sighted_ones_and_the_other_way_round(self):
        choice, solved, _ = chosen_among((0.2, 0.8, 0.99), 0.99, (-0.7, -0.3))
        assert choice.chosen == choice.best.gamma == solved.agent.gamma == 0.99
        assert [one.gamma for one in choice.tied] == [0.99]
        assert choice.tried[0].difference < choice.tried[1].difference < 0
        # What a wrong discount factor says of the weights: a patient expert seems to weigh the disease more.
        assert choice.tried[0].weights[0] < choice.tried[-1].weights[0] - 0.05
        assert choice.tried[-1].weights == pytest.approx((-0.7, -0.3), abs=0.06)
        assert choice.tried[-1].weights == tuple(solved.posterior.median)
        choice, solved, held_out = chosen_among((0.5, 0.99), 0.5, (-0.7, -0.3))
        assert choice.chosen == choice.best.gamma == solved.agent.gamma == 0.5
        assert choice.decisions == held_out.n_steps
        assert choice.patients == 80

    def test_where_both_explain_the_decisions_it_is_a_tie_and_the_larger_is_taken(self):
        choice, solved, _ = chosen_among((0.2, 0.5), 0.2, (-0.5, -0.5))
        assert choice.best.gamma == 0.2
        assert [one.gamma for one in choice.tied] == [0.2, 0.5]
        assert choice.chosen == solved.agent.gamma == 0.5

    def test_order_and_padding_of_held_out_episodes_do_not_matter(self):
        choice, solved, held_out = chosen_among((0.5, 0.9), 0.9, (-0.4, -0.6), patients=30)
        said = held_out_log_likelihood(solved, held_out)
        own = next(one for one in choice.tried if one.gamma == solved.agent.gamma)
        assert own.log_likelihood == pytest.approx(said.sum() / held_out.n_steps)
        order = np.random.default_rng(0).permutation(len(held_out))
        np.testing.assert_allclose(held_out_log_likelihood(solved, held_out.take(order)), said[order])
        np.testing.assert_allclose(held_out_log_likelihood(solved, held_out.padded(STEPS + 3)), said)


class OnePlan:
    """One decision of one plan: the first action brings (1, 0), the second (0, 1)."""

    def __init__(self) -> None:
        self.widths: list[int | None] = []

    def psi(self, batch, w, width=None):
        self.widths.append(width)
        return np.tile(np.eye(2), (*w.shape[:-1], len(batch), 1, 1, 1))


def test_the_chance_of_a_decision_is_averaged_over_the_posterior():
    # Half of the draws hold the first action better, half the second: each has a chance of one half, not of 0 or 1.
    batch = batch_of([0], [1])
    sides = np.tile([[1.0, 0.0], [0.0, 1.0]], (100, 1))
    torn = known_posterior(sides, np.full(200, 50.0))
    solved = SolvedGamma(OnePlan(), torn)
    np.testing.assert_allclose(held_out_log_likelihood(solved, batch, 7), np.log([0.5, 0.5]))
    assert set(solved.agent.widths) == {7}
    # All of one mind, with kappa = ln 3: chances of 3/4 and 1/4.
    sure = known_posterior(sides[:1].repeat(200, axis=0), np.full(200, np.log(3)))
    np.testing.assert_allclose(held_out_log_likelihood(replace(solved, posterior=sure), batch), np.log([3 / 4, 1 / 4]))


class TestRule:
    GAMMAS = (0.5, 0.9, 0.99)
    HELD_OUT = batch_of([0, 1], [1, 1], [0, 0], [1, 0])
    POSTERIORS = tuple(posterior_like(np.array([-w, w - 1]), 0.1) for w in (0.2, 0.4, 0.6))

    def choice(self, *said: list[float]) -> GammaChoice:
        return compared(self.GAMMAS, self.POSTERIORS, np.array(said), self.HELD_OUT)

    def test_by_hand(self):
        # Four patients of two decisions each: differences to the best, .99, of -.2 and -1, -.6, -.6, -1 in all.
        found = self.choice([-2.0, -2.0, -2.0, -2.0], [-1.4, -1.8, -1.8, -1.4], [-1.2, -1.2, -1.2, -1.2])
        assert [one.log_likelihood for one in found.tried] == pytest.approx([-1.0, -0.8, -0.6])
        assert [one.difference for one in found.tried] == pytest.approx([-0.4, -0.2, 0.0])
        # -.2, -.6, -.6, -.2 per patient: variance 4/3 * .04, error of the sum sqrt(4 * .16 / 3), over 8 decisions.
        error = np.sqrt(4 * 0.04 * 4 / 3) / 8
        assert [one.standard_error for one in found.tried] == pytest.approx([0.0, error, 0.0])
        assert found.chosen == 0.99
        assert [one.weights for one in found.tried] == [(-0.2, -0.8), (-0.4, -0.6), (-0.6, -0.4)]
        assert found.tried[0].intervals[0] == pytest.approx((-0.2 - 0.1645, -0.2 + 0.1645), abs=0.005)
        assert (found.decisions, found.patients) == (8, 4)

    @pytest.mark.parametrize(("away", "chosen"), [(0.1, 0.99), (0.3, 0.9)])
    def test_a_larger_one_within_one_standard_error_is_taken(self, away, chosen):
        # Differences of -away, and +-.4 by patient: its standard error is sqrt(4 * .16 * 4 / 3) / 8 = .115.
        best = np.full(4, -1.0)
        larger = best - 2 * away + np.array([0.4, -0.4, 0.4, -0.4])
        found = self.choice(best - 1.0, best, larger)
        assert found.tried[2].standard_error == pytest.approx(0.1155, abs=1e-4)
        assert (found.best.gamma, found.chosen) == (0.9, chosen)

    def test_a_smaller_one_within_one_standard_error_is_a_tie_and_of_equals_the_largest_is_the_best(self):
        found = self.choice([-1.5, -0.5, -1.6, -0.5], [-9] * 4, [-1.0] * 4)
        assert [one.gamma for one in found.tied] == [0.5, 0.99]
        assert found.chosen == 0.99
        found = self.choice(*[[-1.0] * 4] * 3)
        assert found.best.gamma == found.chosen == 0.99
        assert [one.difference for one in found.tried] == [0.0] * 3


def test_patients_are_the_unit():
    # Differences of -.5 and +.3 in the two stays of each patient: apart they scatter, together they do not.
    gammas, posteriors = (0.5, 0.9), TestRule.POSTERIORS[:2]
    stays = batch_of([0], [1], [0], [1])
    said = np.array([[-1.5, -0.7, -1.5, -0.7], [-1.0, -1.0, -1.0, -1.0]])
    alone = compared(gammas, posteriors, said, stays)
    together = compared(gammas, posteriors, said, replace(stays, groups=("p", "p", "q", "q")))
    assert [one.tried[0].difference for one in (alone, together)] == pytest.approx([-0.1, -0.1])
    assert alone.tried[0].standard_error == pytest.approx(np.sqrt(4 / 3 * 4 * 0.16) / 4)
    assert together.tried[0].standard_error == pytest.approx(0.0, abs=1e-12)
    assert (alone.patients, together.patients) == (4, 2)


@pytest.mark.parametrize("gammas", [(), (0.5,), (0.9, 0.5), (0.5, 0.5), (-0.1, 0.5), (0.5, 1.1), (0.5, float("nan"))])
def test_there_must_be_a_choice(gammas):
    judged = batch_of([0], [1])
    for refuse in (check_gammas, lambda gammas: choose_gamma(lambda gamma: None, gammas, judged)):
        with pytest.raises(
            ValueError, match="a discount factor is chosen from two or more, rising and between 0 and 1"
        ):
            refuse(gammas)
    with pytest.raises(ValueError, match="decisions of two patients at least must be held out"):
        choose_gamma(lambda gamma: None, (0.5, 0.9), batch_of([0], [1], groups=("p", "p")))
    if gammas:  # none: the discount factor is given; the others are refused before any work
        with pytest.raises(ValueError, match="a discount factor is chosen from two or more"):
            FitConfig(choose_gamma=gammas)


TRIED = GammaTried(0.5, -1.0, 0.0, 0.0, (-0.5, -0.5), ((-1, 0), (-1, 0)), 3.0)


def test_only_one_of_the_best_can_be_chosen_and_how_it_is_said():
    worse = structs.replace(TRIED, gamma=0.9, log_likelihood=-2.0, difference=-1.0)
    assert GammaChoice(0.5, (TRIED, worse), 9, 3).best == TRIED
    with pytest.raises(ValueError, match="the chosen one is none of the best"):
        GammaChoice(0.9, (TRIED, worse), 9, 3)
    with pytest.raises(ValueError, match="all must weigh the same features"):
        GammaChoice(0.5, (TRIED, structs.replace(worse, weights=(1.0,), intervals=((1, 1),))), 9, 3)
    near = structs.replace(TRIED, gamma=0.9, log_likelihood=-1.1, difference=-0.1, standard_error=0.2)
    worse = structs.replace(TRIED, gamma=0.99, log_likelihood=-2.0, difference=-1.0)
    assert gamma_sentences(GammaChoice(0.5, (TRIED, worse), 9, 3)) == [
        "Of the discount factors 0.5 and 0.99, 0.5 makes held-out decisions most likely, by more than one standard "
        "error."
    ]
    assert gamma_sentences(GammaChoice(0.9, (TRIED, near, worse), 9, 3)) == [
        "Of the discount factors 0.5, 0.9 and 0.99, held-out decisions do not tell 0.5 and 0.9 apart (within one "
        "standard error): a tie, of which the largest is taken, 0.9."
    ]
    assert gamma_sentences(None) == []


def test_every_number_is_in_the_page_and_on_the_console():
    result = sample_result(2)
    page, shown = page_of(result), printed_result(result)
    for one in result.gammas.tried:
        for number in (one.log_likelihood, one.difference):
            assert signed(number, 4) in page
            assert signed(number, 4).replace(MINUS, "-") in shown
    for text in ("2950", "171", "tie, taken", TRADE_OFF):
        assert text in " ".join(page.split())
        assert text in " ".join(shown.split())
    rows = rows_of(result, "gammas", "Discount factors")
    assert [(row[0], row[4]) for row in rows] == [("0.5", ""), ("0.9", "tie"), ("0.99", "tie, taken")]
    plain = structs.replace(result, gammas=None)
    assert 'id="gammas"' not in page_of(plain)
    assert "iscount factor" not in printed_result(plain)
    with pytest.raises(ValueError, match=r"gammas\.tried\[0\]\.weights must be 3 numbers"):
        structs.replace(sample_result(3), gammas=result.gammas)


def test_a_chosen_discount_factor_finds_what_a_given_one_finds(tmp_path):
    experts = tiny_demo()
    choosing = replace(experts, fit=tiny_fit(choose_gamma=(0.3, 0.9)))
    result = commands.demo(choosing, tmp_path / "chosen")
    assert [one.gamma for one in result.gammas.tried] == [0.3, 0.9]
    assert any("Of the discount factors 0.3 and 0.9" in sentence for sentence in result.headline)
    assert "discount factor" in result.seconds
    own = next(one for one in result.gammas.tried if one.gamma == result.gammas.chosen)
    assert own.weights == result.weights
    # The experts stay those of gamma .99: only the fit is given another one.
    seen = simulate(experts, stages(9, quiet=True))
    given = fitted(seen.train, seen.validation, tiny_fit(gamma=result.gammas.chosen).whole(6))
    assert tuple(given.posterior.median) == result.weights
    assert tuple(given.mu_expert.mean) == result.mu_expert
    assert given.loop.margin == result.margin
    assert Run(tmp_path / "chosen").preferences.gamma == result.gammas.chosen


def test_the_command_line_takes_discount_factors(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("irl.commands.explain.demo", lambda config, out: seen.append(config.fit))
    assert main(["demo", "--choose-gamma", "0.5", "0.99", "--out", str(tmp_path)]) == 0
    assert main(["demo", "--choose-gamma", "0.99", "--out", str(tmp_path)]) == 2
    assert [(fit.gamma, fit.choose_gamma) for fit in seen] == [(0.99, (0.5, 0.99))]


@pytest.mark.slow
@pytest.mark.parametrize("truth", [0.5, 0.99])
def test_the_discount_factor_of_the_simulators_experts_is_found(truth):
    """With the simulator as outcome model, to see the choice alone."""
    policy = expert_of((-0.3, -0.7), truth, 100.0).policy(1)
    train, held_out = played(policy, 300, 3), played(policy, 60, 4)
    config = QUICK.fit.posterior

    def solve(gamma: float):
        agent = solved(train, gamma)
        return SolvedGamma(agent, judged_preferences(agent.psi, train, NEGATIVE, config, np.random.default_rng(5))[0])

    choice, _ = choose_gamma(solve, (0.5, 0.99), held_out, config.near_width)
    own = next(one for one in choice.tried if one.gamma == truth)
    assert choice.chosen == choice.best.gamma == truth
    assert len(choice.tied) == 1
    assert own.weights == pytest.approx((-0.3, -0.7), abs=0.06)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.99, 1.0])
def test_data_successor_features_rollouts_and_every_plan_agree(gamma):
    w = np.array([0.6, -0.4])
    certain = KnownModel(ends=False)
    agent = known_agent(config=replace(TINY, width=27), model=certain, gamma=gamma)
    starts = known_problem().starts
    played = rollout(CounterfactualWorld(certain, starts, 4), agent.policy(w), len(starts), np.random.default_rng(0))
    plans = [
        np.concatenate([every_plan(plain_state(row), 4, gamma, first, ends=False) for first in range(3)])
        for row in certain.start(starts)
    ]
    exact = np.array([psi[(psi @ w).argmax()] for psi in plans]).mean(axis=0)
    data = expert_mu(phi_along(certain, PHI, played), played, gamma).mean
    earned = discounted(played, PHI(played.next_obs), gamma).mean(axis=0)
    for found in (data, earned, agent.mu(w, starts)):
        # The weighted sum is unique, a plan of the same value may be another.
        assert found @ w == pytest.approx(exact @ w, abs=1e-5)
    np.testing.assert_allclose(data, earned, atol=1e-5)
    np.testing.assert_allclose(agent.mu(w, starts), earned, atol=1e-5)
    # Q of that policy is w . psi, and its value what it earns.
    q = agent.q(played, w)
    np.testing.assert_allclose(q, agent.psi(played, w) @ (w / np.abs(w).sum()), atol=1e-12)
    assert q[:, 0].max(axis=1).mean() == pytest.approx(returns(played, PHI, w, gamma).mean(), abs=1e-5)


@pytest.mark.parametrize("gamma", [0.5, 0.99])
def test_they_agree_where_episodes_end_by_chance(gamma):
    agent = known_agent(config=replace(TINY, width=27), gamma=gamma)
    starts = known_problem().starts
    starts = starts[starts[:, 0] > 0]
    world = CounterfactualWorld(agent.model, np.tile(starts, (200, 1)), 4)
    played = rollout(world, agent.policy([0.2, 0.8]), 200 * len(starts), np.random.default_rng(0))
    data = expert_mu(phi_along(agent.model, PHI, played), played, gamma)
    np.testing.assert_allclose(data.mean, agent.mu([0.2, 0.8], starts), atol=1e-2)


def test_the_sum_has_as_many_terms_as_actions():
    batch = batch_of([0] * 20, [0] * 3)
    ones = np.ones((2, 20, 1))
    assert expert_mu(ones, batch, 1.0).mean[0] == pytest.approx((20 + 3) / 2)
    assert expert_mu(ones, batch, 0.0).mean[0] == pytest.approx(1)
    assert expert_mu(ones[:1], batch.take(np.array([0])), 0.99).mean[0] == pytest.approx((1 - 0.99**20) / 0.01)


@pytest.mark.parametrize("gamma", [-0.01, 1.01, np.nan])
def test_another_discount_is_refused_everywhere(gamma):
    batch = batch_of([0, 1])
    for use in (
        lambda: expert_mu(np.ones((1, 2, 2)), batch, gamma),
        lambda: discounted(batch, np.ones((1, 2)), gamma),
        lambda: known_problem(gamma=gamma),
        lambda: FitConfig(gamma=gamma),
        lambda: Setting(gamma=gamma),
    ):
        with pytest.raises(ValueError, match="gamma must lie between 0 and 1"):
            use()
