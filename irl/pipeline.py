"""Counterfactual inverse reinforcement learning in nine steps, from a simulator or from a table.

simulator -> expert -> batch -> outcome model -> world model -> candidate policies -> mu -> projection -> weights

Steps 4 to 9 get a batch and nothing else: they have no way to reach the simulator (a test makes it raise).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agents.candidates import learnt_candidates, successor_candidates
from agents.expert import Expert, successor_expert
from agents.policies.cloning import CloningPolicy, fit_cloning
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, draw_weights
from cirl_gym.data.rollout import rollout
from cirl_gym.data.rules import masked, rules_for
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, fit_outcome_model
from cirl_gym.outcome_models.masked import rules_of, with_rules
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds.world import TumourWorld
from irl.checks.quality import quality_control
from irl.max_margin.feature_expectations import FeatureExpectation, expert_mu, phi_along
from irl.max_margin.loop import MaxMarginResult, max_margin
from irl.max_margin.mixture import Mixture, closest_mixture
from irl.preferences.identified_set import (
    IdentifiedSet,
    expert_regret_bound,
    identified_set,
    not_identifiable,
    sampling_tolerance,
)
from irl.preferences.inference import judged_preferences, spread_weights
from irl.preferences.likelihood import PlanPool
from irl.preferences.posterior import PosteriorResult
from irl.result.result import GammaChoice, Quality, TimeWindow
from irl.settings import DemoConfig, FitConfig
from irl.stages import Reporter, Stages
from irl.stored_stages import stored_expert, stored_outcome_model
from irl.studies.gammas import find_candidates
from irl.studies.members import MemberPosterior, solved_members, with_model_spread
from irl.studies.windows import time_windows


@dataclass(frozen=True)
class Simulated:
    """Steps 1 to 3: an expert whose preferences are known, and what was seen of the expert."""

    expert: Expert
    train: Batch
    validation: Batch
    test: Batch


@dataclass(frozen=True)
class Fit:
    """Steps 4 to 9: what the batch says."""

    model: FittedOutcomeModel
    """phi and the world model."""
    feature_map: FeatureMap
    """Which features are outcomes, and the ranges by which they are scaled: a weight is per full range."""
    agent: SuccessorAgent
    """Candidate policies of every w, in the world model."""
    mu_expert: FeatureExpectation
    loop: MaxMarginResult
    mixture: Mixture
    posterior: PosteriorResult
    pool: PlanPool
    """Plans along the judged histories."""
    identified: IdentifiedSet
    cloning: CloningPolicy
    members: tuple[MemberPosterior, ...] = ()
    """What each member of an ensemble of outcome models says; the posterior's intervals hold it."""
    windows: tuple[TimeWindow, ...] = ()
    """What the decisions of each window of time say, where windows were asked for."""
    choice: GammaChoice | None = None
    """The discount factors of which held-out decisions chose one, where it was not given."""
    quality: Quality | None = None
    """Whether planning in the world model keeps what it promises."""

    @property
    def weights(self) -> FloatArray:
        """``[d]`` the weights that are reported: the posterior mean, L1 norm 1."""
        return self.posterior.mean

    @property
    def policy(self) -> Policy:
        """The recovered policy: optimal for the reported weights in the world model."""
        return self.agent.policy(self.weights)


def simulate(config: DemoConfig, run: Stages, stored: StoredParts | None = None) -> Simulated:
    """Steps 1 to 3 (paper, section 5.1 and appendix E); stages that are stored are read, not done again."""
    stored = stored or StoredParts()
    training, drawing, splitting = _generators(config.seed, "simulate", 3)
    # 1. The simulator.
    world = TumourWorld(config.parameters)
    # 2. The expert, trained in it on the true reward.
    with run.stage("expert") as report:
        w = np.array(config.weights)
        solve = partial(successor_expert, config.parameters, w, config.fit.gamma, config.kappa, config.expert, training)
        expert = stored_expert(stored, config, partial(solve, report, forbid=config.fit.forbid))
    # 3. The batch that the expert leaves behind.
    with run.stage("batch") as report:
        policy, n = expert.policy(int(drawing.integers(2**31))), config.episodes + config.test_episodes
        played = partial(rollout, world, policy, n, drawing, deterministic=False, progress=report)
        everything = masked(stored.stage("batch.npz", played, Batch.save, Batch.load), config.fit.forbid)
    seen = everything.take(np.arange(config.episodes))
    train, validation = seen.split(0.1, splitting)
    return Simulated(expert, train, validation, everything.take(np.arange(config.episodes, len(everything))))


def fit(
    train: Batch,
    validation: Batch,
    feature_map: FeatureMap,
    signs: FloatArray,
    config: FitConfig,
    seed: int,
    run: Stages,
    model: FittedOutcomeModel | None = None,
    stored: StoredParts | None = None,
) -> Fit:
    """Steps 4 to 9 (paper, section 4 and Algorithm 1): offline, from the batch alone.

    Args:
        train: episodes to learn from.
        validation: episodes to choose by.
        feature_map: which features are outcomes, and their ranges.
        signs: ``[d]`` of -1, 0 (free) and 1, one per outcome: what is known of the weights' signs.
        config: how.
        seed: everything that is drawn.
        run: shows and times the stages.
        model: taken as it is in place of step 4's, for a control run; None: learnt.
        stored: what is stored of the stages and rounds of the same run, begun before; None: nothing.

    Raises:
        ValueError: the batches do not fit together, do not say what ``config.forbid`` left to choose from
            (:func:`cirl_gym.data.rules.masked`), or nothing can be learnt from them.
    """
    stored = stored or StoredParts()
    modelling, solving, looping, judging, copying = _generators(seed, "fit", 5)
    horizon = config.horizon or train.horizon
    splits = (train.with_early_ends(horizon), validation.with_early_ends(horizon))
    # 4. The outcome model: phi(h, a), what would happen under each action.
    with run.stage("outcome model") as report:
        learnt = partial(fit_outcome_model, config.model, *splits, config.outcome, modelling, report)
        fitted = model or stored_outcome_model(stored, learnt)
    # 5. The world model: h' = (h, a, phi(h, a)), starting where the patients started.
    imagined = with_rules(fitted.model, rules_for(train, config.forbid))
    world = Problem(imagined, feature_map, train.start, horizon, config.gamma, uniform_weights(signs), train)
    # 6. Candidate policies: psi for every w at once, under the discount factor that is given or chosen.
    draw = partial(_generators, seed)
    (choosing,) = draw("discount factor", 1)
    draws = {"solving": solving, "judging": judging, "choosing": choosing}
    agent, world, config, choice = find_candidates(world, train, validation, signs, config, run, stored, **draws)
    # 7. mu of the expert; that of a candidate is read off psi.
    mu = expert_mu(phi_along(fitted.model, feature_map, train), train, config.gamma)
    # 8. Projection: the max-margin loop.
    with run.stage("max-margin loop") as report:
        loop = _loop(agent, world, mu, signs, config, looping, report, stored)
    # 9. Weights, and what the data cannot tell.
    with run.stage("weights") as report:
        posterior, pool = judged_preferences(agent.psi, train, signs, config.posterior, judging, report)
        identified = _identified(agent, mu, loop, posterior, train, signs, config, draw("identified", 1)[0])
    with run.stage("quality control"):
        rng = draw("quality", 1)[0]
        quality = quality_control(agent, world, signs, loop, posterior, config.quality, rng)
    windows = _windows(agent, pool, signs, config, seed, run)
    members = solved_members(world, train, signs, config, lambda number: draw(f"member {number}", 2), run, stored)
    posterior = with_model_spread(posterior, members) if members else posterior
    with run.stage("behaviour cloning") as report:
        cloned = fit_cloning(train, validation, config.cloning, copying, report, rules=rules_of(imagined))
    mixture = closest_mixture(loop.mus, mu.mean)
    found = (fitted, feature_map, agent, mu, loop, mixture, posterior, pool, identified, cloned.policy)
    return Fit(*found, members, windows, choice, quality)


def _loop(
    agent: SuccessorAgent,
    world: Problem,
    mu: FeatureExpectation,
    signs: FloatArray,
    config: FitConfig,
    rng: np.random.Generator,
    report: Reporter,
    stored: StoredParts,
) -> MaxMarginResult:
    first = draw_weights(signs, rng)
    if config.mu == "successor":
        solve = successor_candidates(agent, world, config.starts)
    else:
        assert world.histories is not None
        # A trajectory ends where it was watched no longer, as in the outcome model's training.
        ended = replace(world, histories=world.histories.with_early_ends(world.horizon))
        solve = learnt_candidates(
            agent,
            ended,
            config.solver,
            config.histories,
            rng,
            mu=config.mu,
            ppo=config.ppo,
            rollouts=config.rollouts,
            stored=stored,
        )
    return max_margin(
        mu.mean,
        solve,
        first,
        rounds=config.rounds,
        tolerance=config.tolerance,
        signs=signs,
        progress=lambda done: report(done.k + 1, config.rounds + 1),
    )


def _windows(
    agent: SuccessorAgent, pool: PlanPool, signs: FloatArray, config: FitConfig, seed: int, run: Stages
) -> tuple[TimeWindow, ...]:
    """The weights of each window of time, where windows are asked for."""
    if not config.windows:
        return ()
    with run.stage("time windows") as report:
        psi, rng = partial(agent.psi, pool.batch), _generators(seed, "windows", 1)[0]
        return time_windows(psi, pool, signs, config.windows, config.posterior, rng, report)


def _identified(
    agent: SuccessorAgent,
    mu: FeatureExpectation,
    loop: MaxMarginResult,
    posterior: PosteriorResult,
    train: Batch,
    signs: FloatArray,
    config: FitConfig,
    rng: np.random.Generator,
) -> IdentifiedSet:
    """The set of weights that explain mu_E equally well, against the policies of the loop, the posterior and others."""
    # A loop that ends early has found few policies, and weights are excluded only by policies that beat the experts.
    tried = [posterior.mean, *spread_weights(signs, config.posterior.plans, rng)]
    mus = np.concatenate([loop.mus, [agent.mu(w, train.start, config.starts) for w in tried]])
    erring = expert_regret_bound(posterior.kappa_mean, config.gamma, train.horizon, train.n_actions)
    tolerance = sampling_tolerance(mu, signs) + erring
    named = not_identifiable(train, agent.feature_map.features)
    return identified_set(mu.mean, mus, signs, tolerance=tolerance, nodes=1000, not_identifiable=named)


def _generators(seed: int, part: str, n: int) -> list[np.random.Generator]:
    """Independent generators, the same for the same seed and part, whatever other parts draw."""
    sequence = np.random.SeedSequence([seed, *part.encode()])
    return [np.random.default_rng(child) for child in sequence.spawn(n)]
