"""Counterfactual inverse reinforcement learning in nine steps, from a simulator or from a table.

simulator -> expert -> batch -> outcome model -> world model -> candidate policies -> mu -> projection -> weights

Steps 4 to 9 get a batch and nothing else: they have no way to reach the simulator (a test makes it raise).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from agents.as_printed.learning import EndlessWorld, mu_along
from agents.candidates import learnt_candidates, successor_candidates
from agents.expert import Expert, simulated_habit, successor_expert
from agents.policies.cloning import CloningPolicy, fit_cloning
from agents.successor.agent import SuccessorAgent, SuccessorPolicy
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, draw_weights
from cirl_gym.data.habits import Contexts
from cirl_gym.data.outcome_model import OutcomeModel, check_model
from cirl_gym.data.rollout import rollout
from cirl_gym.data.rules import masked, rules_for
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, fit_outcome_model
from cirl_gym.outcome_models.masked import rules_of, with_rules, without_rules
from cirl_gym.outcome_models.model import EnsembleModel
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld
from irl.checks.quality import quality_control
from irl.cross_fitting import ForeseenDecisions, foresee_others
from irl.limit_search import at_limits_of_others, with_limit
from irl.max_margin.loop import FeatureExpectation, MaxMarginResult, expert_mu, max_margin, phi_along
from irl.max_margin.mixture import Mixture, closest_mixture
from irl.preferences.identified_set import (
    IdentifiedSet,
    expert_regret_bound,
    identified_set,
    not_identifiable,
    sampling_tolerance,
)
from irl.preferences.inference import judged_episodes, judged_preferences, plan_pool, spread_weights
from irl.preferences.likelihood import PlanPool
from irl.preferences.posterior import PosteriorResult, further_posterior, sample_posterior, with_model_spread
from irl.processes import all_done
from irl.result.gammas import GammaChoice
from irl.result.limits import FoundLimit
from irl.result.result import Quality
from irl.result.windows import TimeWindow
from irl.settings import DemoConfig
from irl.stages import Reporter, Stages
from irl.stored_stages import MemberPosterior, stored_expert, stored_outcome_model
from irl.studies.gammas import SolvedGamma, choose_gamma
from irl.studies.windows import time_windows
from irl.study import Study, member_streams, stream
from irl.worlds import cross_fits, model_config


@dataclass(frozen=True)
class Simulated:
    """Steps 1 to 3: an expert whose preferences are known, and what was seen of the expert."""

    parameters: TumourParameters
    """The simulator."""
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
    foreseen: ForeseenDecisions | None = None
    """What was foreseen of every judged decision from other patients' alone, where decisions were cross-fitted."""
    limit: FoundLimit | None = None
    """The limit that was found from the decisions, where one was sought; the feature map has it."""

    @property
    def weights(self) -> FloatArray:
        """``[d]`` the weights that policies act on: the direction of the posterior mean of kappa w, L1 norm 1."""
        return self.posterior.mean

    @property
    def policy(self) -> Policy:
        """What the preferences alone would do: optimal for :attr:`weights` in the world model, without habits."""
        return self.agent.policy(self.weights)

    @property
    def predicted_experts(self) -> SuccessorPolicy:
        """What the experts are predicted to do: drawn with the chances of their habits and preferences together."""
        return _predicted_experts(self.agent, self.posterior)


def simulate(config: DemoConfig, stages: Stages, stored: StoredParts | None = None) -> Simulated:
    """Steps 1 to 3 (paper, section 5.1 and appendix E); stages that are stored are read, not done again."""
    stored, rng = stored or StoredParts(), partial(stream, config.seed)
    # 1. The simulator.
    parameters, rules = config.parameters, config.fit.forbid
    world = TumourWorld(parameters)
    # 2. The expert, trained in it on the true reward.
    with stages.stage("expert") as report:
        how = (np.array(config.weights), config.fit.gamma, config.kappa, config.expert, rng("expert"), report)
        habit = simulated_habit(config.expert_habit)
        solved = partial(successor_expert, parameters, *how, forbid=rules, habit=habit)
        expert = stored_expert(stored, config, solved)
    # 3. The batch that the expert leaves behind.
    with stages.stage("batch") as report:
        drawing, n = rng("batch"), config.episodes + config.test_episodes
        policy = expert.policy(int(drawing.integers(2**31)))
        played = partial(rollout, world, policy, n, drawing, deterministic=False, progress=report)
        everything = masked(stored.stage("batch.npz", played, Batch.save, Batch.load), rules)
    seen, test = (everything.take(np.arange(*ends)) for ends in ((0, config.episodes), (config.episodes, n)))
    return Simulated(parameters, expert, *seen.split(0.1, rng("split")), test)


def fit(study: Study) -> Fit:
    """Steps 4 to 9 (paper, section 4 and Algorithm 1): offline, from the batch alone.

    Raises:
        ValueError: the batches do not fit together, do not say what ``config.forbid`` left to choose from
            (:func:`cirl_gym.data.rules.masked`), or nothing can be learnt from them.
    """
    train, validation, signs, config = study.train, study.validation, study.signs, study.config
    stage, stored = study.stages.stage, study.stored
    horizon = config.length or train.horizon
    # 4. The outcome model: phi(h, a), what would happen under each action.
    with stage("outcome model") as report:
        splits, rng = [batch.with_early_ends(horizon) for batch in (train, validation)], study.rng("outcome model")
        learnt = partial(fit_outcome_model, config.model, splits[0], splits[1], model_config(study), rng, report)
        fitted = stored_outcome_model(stored, learnt) if study.model is None else _given(study.model, train)
    study, profile, limit = with_limit(study, fitted.model)
    phi = study.feature_map
    # 5. The world model: h' = (h, a, phi(h, a)), starting where the patients started.
    imagined = with_rules(fitted.model, rules_for(train, config.forbid))
    w = uniform_weights(signs)
    world = Problem(imagined, phi, train.start, horizon, config.gamma, w, train, config.horizon)
    # 6. Candidate policies: psi for every w at once, under the discount factor that is given or chosen.
    agent, choice = _candidates(study, world)
    if choice is not None:
        config, world = replace(config, gamma=choice.chosen, choose_gamma=()), replace(world, gamma=choice.chosen)
    study = replace(study, config=config)
    # 7. mu of the expert; that of a candidate is read off psi.
    mu = expert_mu(phi_along(fitted.model, phi, train), train, config.gamma)
    # 8. Projection: the max-margin loop.
    with stage("max-margin loop") as report:
        loop = _loop(study, agent, world, mu, report)
    # 9. Weights, and what the data cannot tell.
    crosses, foreseen = cross_fits(study, fitted.model, agent), None
    if profile is not None:
        crosses = [at_limits_of_others(study, profile, cross) for cross in crosses]
    with stage("weights") as report:
        how = (signs, config.posterior, study.rng("weights"), Contexts.of(train, config.habit), report)
        if crosses:
            pools = [plan_pool(cross.psi, cross.judged, *how) for cross in crosses]
            pool, draws = pools[0], config.posterior.draws
            first = sample_posterior(pool, signs, how[2], draws)
            others = [further_posterior(each, signs, how[2], draws) for each in pools[1:]]
            posterior = with_model_spread(first, others)
        else:
            posterior, pool = judged_preferences(agent.psi, train, *how)
        identified = _identified(study, agent, world, mu, loop, posterior)
    if crosses:
        with stage("held-out decisions") as report:
            how_copied = (config.cloning, study.rng("held-out decisions"), rules_of(imagined), report)
            foreseen = foresee_others(crosses, pools, signs, *how_copied)
    with stage("quality control"):
        rng, seen = study.rng("quality control"), world.stages
        # A plan promises what comes of it while it is in sight; what replanning makes of later steps is another thing.
        near = (agent.for_episodes(seen), replace(world, horizon=seen, histories=None))
        quality = quality_control(*near, signs, loop, posterior, config.quality, rng)
    windows: tuple[TimeWindow, ...] = ()
    if config.windows:
        with stage("time windows") as report:
            psi, rng = crosses[0].psi if crosses else partial(agent.psi, pool.batch), study.rng("time windows")
            windows = time_windows(psi, pool, signs, config.windows, config.posterior, rng, report)
    members = _members(study, world)
    with stage("behaviour cloning") as report:
        rng, rules = study.rng("behaviour cloning"), rules_of(imagined)
        cloned = fit_cloning(train, validation, config.cloning, rng, report, rules=rules)
    return Fit(
        model=fitted,
        feature_map=phi,
        agent=agent,
        mu_expert=mu,
        loop=loop,
        mixture=closest_mixture(loop.mus, mu.mean),
        posterior=with_model_spread(posterior, [one.posterior for one in members]),
        pool=pool,
        identified=identified,
        cloning=cloned.policy,
        members=members,
        windows=windows,
        choice=choice,
        quality=quality,
        foreseen=foreseen,
        limit=limit,
    )


def _given(model: OutcomeModel, train: Batch) -> FittedOutcomeModel:
    """A model that nothing is to be learnt for; a ValueError says what it lacks."""
    check_model(model, train)
    return FittedOutcomeModel(model, {}, 0.0)


def _candidates(study: Study, problem: Problem) -> tuple[SuccessorAgent, GammaChoice | None]:
    """Step 6: candidate policies under the settings' discount factor, or under the one that held-out decisions choose.

    The outcome model knows of no discount factor and is fitted once. All else is solved anew under each, from the same
    random numbers, so that one that was chosen finds what a run that was given it finds.
    """
    config, how = study.config, study.config.posterior
    if not config.choose_gamma:
        with study.stages.stage("candidate policies") as report:
            return _agent(study, problem, "agent.npz", report), None
    held_out = judged_episodes(study.validation, how.decisions, study.rng("discount factor"))
    with study.stages.stage("discount factor") as report:
        solve = partial(_solved_gamma, study.elsewhere(), problem)
        choice, solved = choose_gamma(solve, config.choose_gamma, held_out, how.near_width, study.watched(report))
    return solved.agent, choice


def _agent(study: Study, problem: Problem, part: str, report: Reporter | None = None) -> SuccessorAgent:
    """Candidate policies in a world, stored as ``part``."""
    compute = partial(fit_successor, problem, study.config.agent, study.rng("candidate policies"), report)
    load = partial(SuccessorAgent.load, model=problem.model)
    return study.stored.stage(part, compute, SuccessorAgent.save, load)


def _solved_gamma(study: Study, problem: Problem, gamma: float) -> SolvedGamma:
    """Candidate policies and posterior under a discount factor."""
    agent = _agent(study, replace(problem, gamma=gamma), f"agent_gamma_{gamma!r}.npz")
    contexts = Contexts.of(study.train, study.config.habit)
    given = (study.train, study.signs, study.config.posterior, study.rng("weights"), contexts)
    return SolvedGamma(agent, judged_preferences(agent.psi, *given)[0])


def _members(study: Study, problem: Problem) -> tuple[MemberPosterior, ...]:
    """Of an ensemble, steps 5 to 9 in the world of each member; nothing of a single model.

    Every member is a world of its own, in which candidate policies are solved and the experts' decisions judged anew.
    What the members' posteriors have between them is then the interval: it holds the error of the outcome model and,
    since each is solved with other random numbers, that of the solver.
    """
    ensemble, rules = without_rules(problem.model), rules_of(problem.model)
    if not isinstance(ensemble, EnsembleModel):
        return ()
    own = replace(study.elsewhere(), everyone=None)
    worlds = [replace(problem, model=with_rules(member, rules)) for member in ensemble.members]
    with study.stages.stage("each outcome model") as report:
        calls = [partial(_stored_member, own, world, number) for number, world in enumerate(worlds)]
        return tuple(all_done(calls, study.watched(report)))


def _stored_member(study: Study, world: Problem, number: int) -> MemberPosterior:
    """What a member says, read where it is stored."""
    load = partial(MemberPosterior.load, contexts=Contexts.of(study.train, study.config.habit))
    compute = partial(_member, study, world, number)
    return study.stored.stage(f"member{number}.npz", compute, MemberPosterior.save, load)


def _member(study: Study, world: Problem, number: int) -> MemberPosterior:
    """Steps 5 to 9 in the world of a member."""
    train, config, contexts = study.train, study.config, Contexts.of(study.train, study.config.habit)
    solving, judging = member_streams(study.seed, number)
    agent = fit_successor(world, config.agent, solving)
    mu = expert_mu(phi_along(world.model, world.feature_map, train), train, config.gamma)
    posterior, _ = judged_preferences(agent.psi, train, study.signs, config.posterior, judging, contexts)
    return MemberPosterior(mu.mean, agent.mu(posterior.mean, train.start, config.starts), posterior)


def _loop(
    study: Study, agent: SuccessorAgent, world: Problem, mu: FeatureExpectation, report: Reporter
) -> MaxMarginResult:
    """Candidates of the solver and mu that the settings name, from weights that are drawn on."""
    config, rng = study.config, study.rng("max-margin loop")
    first = draw_weights(study.signs, rng)
    if config.mu == "successor":
        solve = successor_candidates(agent, world, config.starts)
    else:
        # A trajectory ends where it was watched no longer, as in the outcome model's training.
        ended = replace(world, histories=study.train.with_early_ends(world.horizon))
        solve = learnt_candidates(
            agent,
            ended,
            config.solver,
            config.histories,
            rng,
            mu=config.mu,
            ppo=config.ppo,
            rollouts=config.rollouts,
            stored=study.stored,
        )
    return max_margin(
        mu.mean,
        solve,
        first,
        rounds=config.rounds,
        tolerance=config.tolerance,
        signs=study.signs,
        progress=lambda done: report(done.k + 1, config.rounds + 1),
    )


def _identified(
    study: Study,
    agent: SuccessorAgent,
    world: Problem,
    mu: FeatureExpectation,
    loop: MaxMarginResult,
    posterior: PosteriorResult,
) -> IdentifiedSet:
    """The set of weights that explain mu_E equally well, against the policies of the loop, the posterior and others."""
    train, signs, config = study.train, study.signs, study.config
    # A loop that ends early has found few policies, and weights are excluded only by policies that beat the experts.
    tried = [posterior.mean, *spread_weights(signs, config.posterior.plans, study.rng("identified set"))]
    mus = np.concatenate([loop.mus, [agent.mu(w, train.start, config.starts) for w in tried]])
    short_sighted = world.stages < world.horizon
    if posterior.habit is None and not short_sighted:
        erring = expert_regret_bound(posterior.kappa_mean, config.gamma, train.horizon, train.n_actions)
    else:
        erring = max(_cost_of_habit(study, agent, world, posterior), 0.0)
    if short_sighted:
        # Who does not look to the end is beaten by some policy, whatever the weights.
        values = mus @ posterior.mean
        erring += float(values.max() - values[len(loop.mus)])
    tolerance = sampling_tolerance(mu, signs) + erring
    named = not_identifiable(train, agent.feature_map.features)
    return identified_set(mu.mean, mus, signs, tolerance=tolerance, nodes=1000, not_identifiable=named)


def _cost_of_habit(study: Study, agent: SuccessorAgent, world: Problem, posterior: PosteriorResult) -> float:
    """By how much the experts as the choice model predicts them, errors and habits, fall short of the best policy.

    Under the weights that the posterior finds, along the world model's expected course.
    """
    rng = study.rng("habits")
    starts = world.starts[rng.integers(len(world.starts), size=study.config.starts)]
    courses = EndlessWorld(world.model, starts, world.horizon, outcome="expected")
    predicted = _predicted_experts(agent, posterior, int(rng.integers(2**31)))
    played = rollout(courses, predicted, len(starts), rng, deterministic=False)
    reached = mu_along(world, played).mean(axis=0)
    return float((agent.mu(posterior.mean, starts) - reached) @ posterior.mean)


def _predicted_experts(agent: SuccessorAgent, posterior: PosteriorResult, seed: int = 0) -> SuccessorPolicy:
    """Habits and preferences together, at the posterior means of theta and the logits."""
    kappa = float(np.abs(posterior.theta_mean).sum())
    return agent.policy(posterior.mean, kappa, seed, habit=posterior.habit)
