"""Does planning keep what it promises? Numbers by hand, an agent that cannot err, and two that do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from known_model import KnownModel
from sample_result import sample_result
from small_agents import TINY, exact_agent, known_agent, known_problem
from tiny_run import fitted, tiny_demo, tiny_fit

from agents.successor.agent import SuccessorPolicy
from cirl_gym.data.features import draw_weights
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import rollout
from irl.checks import quality
from irl.checks.quality import PlannedAndReached, QualityConfig, planned_and_reached, probed_weights
from irl.commands.arguments import SolverArguments
from irl.pipeline import Fit, Simulated, simulate
from irl.report.run import promised
from irl.settings import FitConfig
from irl.stages import Stages, stages

WEIGHTS = draw_weights([0, 0], np.random.default_rng(3), 6)
FULL = 1 + 0.5 + 0.25 + 0.125
"""Sum of gamma^t of the known problem: four steps, gamma 1/2."""


class Doubled(KnownModel):
    """Promises twice of what the known model does."""

    def predict(self, states):
        return 2 * super().predict(states)


def two_weights(**changes) -> PlannedAndReached:
    """Two preferences over two outcomes, full range 10."""
    fields = {
        "weights": np.array([[-0.25, -0.75], [1.0, 0.0]]),
        "planned": np.array([[4.0, 2.0], [8.0, 1.0]]),
        "expected": np.array([[4.5, 2.0], [8.0, 1.0]]),
        "sampled": np.array([[5.0, 2.4], [7.0, 1.1]]),
        "mu_error": np.array([[0.1, 0.2], [0.3, 0.01]]),
        "value_error": np.array([0.05, 0.3]),
        "greedy": np.array([[4.0, 3.0], [6.0, 9.0]]),
        "full": 10.0,
    }
    return PlannedAndReached(**(fields | changes))


def test_differences_by_hand():
    found = two_weights()
    np.testing.assert_allclose(found.sampled_difference, [0.1, 0.1])
    # Promised -2.5 and 8, reached -3.05 and 7; without a search -3.25 and 6.
    np.testing.assert_allclose(found.value_difference, [0.055, 0.1])
    # Of the first outcome -1 and 1, a tie; of the second -.4 and -.1: -.25 on average, its standard error .15.
    assert found.systematic_difference == 0.0
    steady = two_weights(sampled=np.array([[5.0, 2.0], [9.2, 1.0]]))
    # -1 and -1.2: -1.1 on average, its standard error .1.
    assert steady.systematic_difference == pytest.approx(0.08)
    # Along the expected course .25 * .5 = .125; with noise .55 - .15 and 1 - .9.
    np.testing.assert_allclose(found.proven_value_difference, [0.04, 0.01])
    told = found.summary(None)
    assert (told.weights, told.systematic, told.limit) == (2, 0.0, None)
    assert [told.expected, told.sampled, told.noise] == pytest.approx([0.05, 0.1, 0.03])
    assert [told.value, told.promised, told.search_gain] == pytest.approx([0.04, 0.1, (0.075 + 0.2) / 2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"planned": np.zeros((2, 3))}, r"planned must be \(2, 2\) finite"),
        ({"sampled": np.array([[5.0, np.nan], [7.0, 1.1]])}, r"sampled must be \(2, 2\) finite"),
        ({"value_error": np.zeros((2, 2))}, r"value_error must be \(2,\) finite"),
        ({"weights": np.zeros(2)}, "weights must be"),
        ({"mu_error": np.full((2, 2), -0.1)}, "no standard error below 0"),
        ({"full": 0.0}, "full above 0"),
        ({"full": np.inf}, "full above 0"),
    ],
)
def test_a_record_that_breaks_its_promise_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        two_weights(**changes)


def test_the_check_names_number_weights_and_what_to_do():
    found = two_weights()
    found.check(0.041)
    found.check(None)
    with pytest.raises(ValueError, match=r"for 2 weights.* by up to 0.040 in value; 0.039 is the limit") as stopped:
        found.check(0.039)
    promising = two_weights(expected=np.array([[4.0, 2.0], [5.0, 1.0]]))
    with pytest.raises(ValueError, match=r"by up to 0.300 in value.*Train more \(without --quick"):
        promising.check(0.05)
    for part in ("(-0.25, -0.75)", "(4, 2) as planned", "(5, 2.4) as reached", "noise of outcomes", "--quality-limit"):
        assert part in str(stopped.value)
    steady = two_weights(sampled=np.array([[5.0, 2.0], [9.2, 1.0]]), value_error=np.ones(2))
    with pytest.raises(ValueError, match=r"by 0.080 on average in an outcome; 0.05 is .* \(9.2, 1\) as reached"):
        steady.check(0.05)


@pytest.mark.parametrize(
    "changes", [{"weights": 0}, {"starts": 0}, {"episodes": 1}, {"limit": 0.0}, {"limit": np.inf}, {"limit": np.nan}]
)
def test_a_look_out_of_range_is_refused(changes):
    with pytest.raises(ValueError, match="QualityConfig"):
        QualityConfig(**changes)


class TestExactAgent:
    """With room for every plan and without noise, replanning at every step changes nothing."""

    def test_what_is_planned_is_what_is_reached(self):
        found = planned_and_reached(exact_agent(), known_problem(), WEIGHTS, np.random.default_rng(0))
        assert found.full == pytest.approx(FULL)
        np.testing.assert_allclose(np.abs(found.weights).sum(axis=1), 1.0)
        # Plans can tie in value, and then differ in mu; these do not.
        np.testing.assert_allclose(found.expected, found.planned, atol=1e-6)
        assert found.summary(None).search_gain >= -1e-9

    def test_noise_explains_the_rest_where_the_world_is_linear(self):
        problem = known_problem(model=KnownModel(ends=False))
        agent = known_agent(config=replace(TINY, width=27), model=KnownModel(ends=False))
        config = QualityConfig(starts=10, episodes=8)
        found = planned_and_reached(agent, problem, WEIGHTS, np.random.default_rng(0), config)
        assert found.sampled_difference.max() > 1e-3
        np.testing.assert_array_equal(found.proven_value_difference < 1e-6, True)
        # A residual of .25 in every step, on scales of 4 and 8 and with what is still to come of it, 80 courses.
        steps = np.array([FULL - 0.0, FULL - 1.0, FULL - 1.5, FULL - 1.75])
        by_hand = 0.25 / 4 * np.sqrt((steps[1:] ** 2).sum()) / np.sqrt(80) / FULL
        np.testing.assert_allclose(found.mu_error.max(axis=1) / FULL, by_hand, rtol=0.25)
        found.check(0.01)


def test_means_and_standard_errors_are_those_of_courses_from_the_same_start(monkeypatch):
    # One preference, two first observations, two courses each: 1, 3 and 5, 9. Within-start variances 2 and 8.
    courses = np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 0.0], [9.0, 0.0]])

    def reached(agent, problem, weights, first, outcome, seed):
        return courses if outcome == "sampled" else courses[::2]

    monkeypatch.setattr(quality, "_reached", reached)
    config = QualityConfig(starts=2, episodes=2)
    found = planned_and_reached(
        known_agent(), known_problem(), np.array([[1.0, 1.0]]), np.random.default_rng(0), config
    )
    np.testing.assert_allclose(found.sampled, [[4.5, 0.0]])
    np.testing.assert_allclose(found.expected, [[3.0, 0.0]])
    np.testing.assert_allclose(found.mu_error, [[np.sqrt((2 + 8) / 2 / 4), 0.0]])
    np.testing.assert_allclose(found.value_error, [np.sqrt(5 / 4) / 2])


def test_plans_that_do_not_hold_are_stopped():
    elsewhere = planned_and_reached(known_agent(model=Doubled()), known_problem(), WEIGHTS, np.random.default_rng(0))
    with pytest.raises(ValueError, match="not solved well enough"):
        elsewhere.check(0.05)
    agent = known_agent()  # one that has learnt nothing
    agent.network.initialise(np.random.default_rng(0))
    agent.width = 1
    found = planned_and_reached(agent, known_problem(), WEIGHTS, np.random.default_rng(0))
    # Acting, it looks one step ahead at each step: more is reached than was planned, and that is a difference too.
    assert found.value_difference.min() < -0.05
    with pytest.raises(ValueError, match="not solved well enough"):
        found.check(0.05)
    np.testing.assert_array_equal(found.greedy, found.planned)


def test_same_generator_same_bytes_and_the_agent_stays_as_it_was():
    agent, problem = known_agent(), known_problem()
    first, again, other = (
        planned_and_reached(agent, problem, WEIGHTS, np.random.default_rng(seed)) for seed in (4, 4, 5)
    )
    assert first.sampled.tobytes() == again.sampled.tobytes()
    assert (first.sampled != other.sampled).any()
    assert agent.width == 4


def test_a_policy_acts_for_each_row_as_for_that_row_alone():
    agent, starts = known_agent(), known_problem().starts[:6]
    world = CounterfactualWorld(KnownModel(ends=False), starts, 4)
    together = rollout(
        world, SuccessorPolicy(agent, WEIGHTS, None, np.random.default_rng(0)), 6, np.random.default_rng(0)
    )
    for row, w in enumerate(WEIGHTS):
        alone = rollout(world, agent.policy(w), 6, np.random.default_rng(0))
        np.testing.assert_array_equal(together.actions[row], alone.actions[row])
    assert len(np.unique(together.actions, axis=0)) > 1


def test_half_of_the_probed_weights_are_near_and_all_obey_the_signs():
    signs, near = np.array([-1.0, 0.0, -1.0]), np.array([[-0.3, 0.2, -0.5], [-0.6, -0.1, 0.3]])
    found = probed_weights(signs, near, 20, np.random.default_rng(0))
    assert found.shape == (20, 3)
    assert (found[:, [0, 2]] <= 0).all()
    # A component of the wrong sign is set to zero.
    assert {tuple(row) for row in found[:2].tolist()} == {(-0.3, 0.2, -0.5), (-0.6, -0.1, 0.0)}
    np.testing.assert_allclose(np.abs(found[2:]).sum(axis=1), 1.0)
    many = np.tile(near[:1], (50, 1))
    found = probed_weights(signs, many, 9, np.random.default_rng(0))
    assert ((found == near[0]).all(axis=1)).sum() == 4, "no more than half"
    for near, n in ((np.zeros((1, 3)), 0), (np.zeros((1, 2)), 5), (np.zeros(3), 5)):
        with pytest.raises(ValueError, match="n must be at least 1 and near"):
            probed_weights(signs, near, n, np.random.default_rng(0))


# --- within a run: it stops what fails, and changes nothing else ---

LOOK = QualityConfig(weights=4, starts=2, limit=None)


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    return simulate(tiny_demo(), stages(9, quiet=True))


def looked(seen: Simulated, look: QualityConfig) -> tuple[Fit, Stages]:
    run = stages(9, quiet=True)
    return fitted(seen.train, seen.validation, tiny_fit(quality=look), run=run), run


def test_a_run_says_how_far_plans_are_kept_and_looking_elsewhere_changes_nothing_else(simulated):
    found, run = looked(simulated, LOOK)
    assert found.quality.weights == 4
    assert found.quality.limit is None
    assert found.quality.sampled >= found.quality.noise > 0
    assert run.seconds["quality control"] > 0
    assert looked(simulated, LOOK)[0].quality == found.quality
    other, _ = looked(simulated, replace(LOOK, weights=2, starts=1))
    assert other.quality != found.quality
    assert other.loop.mus.tobytes() == found.loop.mus.tobytes()
    assert other.posterior.draws.tobytes() == found.posterior.draws.tobytes()
    chances = [each.cloning.log_probabilities(simulated.test) for each in (found, other)]
    np.testing.assert_array_equal(*chances)


def test_a_run_that_fails_stops(simulated):
    with pytest.raises(ValueError, match=r"not solved well enough: for 4 weights.*--quality-limit"):
        looked(simulated, replace(LOOK, limit=1e-9))


def test_the_limit_is_an_option_and_quality_is_put_in_words():
    assert SolverArguments(quality_limit=0.2).put_into(FitConfig()).quality.limit == 0.2
    assert SolverArguments().put_into(FitConfig()) == FitConfig()
    with pytest.raises(ValueError, match="limit must be positive"):
        SolverArguments(quality_limit=0.0).put_into(FitConfig())
    assert promised(sample_result().quality) == (
        "at most 0.2 % of the full range apart in value, 1.0 % in one outcome, where policies can tie (20 weights)"
    )
