"""A study in which a limit is sought, ``Below(potassium, ?)``, becomes one in which it is found
(:mod:`irl.studies.limits`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agents.successor.agent import SuccessorConfig
from agents.successor.training import Problem, fit_successor
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.habits import Contexts
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.rules import rules_for
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.fitting import fit_outcome_model
from cirl_gym.outcome_models.known import law_alone
from cirl_gym.outcome_models.masked import with_rules
from irl.cross_fitting import CrossFit
from irl.preferences.inference import judged_episodes
from irl.result.limits import FoundLimit
from irl.settings import quick_agent
from irl.stages import Reporter
from irl.studies.limits import DECISIONS, LimitProfile, ManyLimits, at_limit, found_limit, limit_profile, tried_limits
from irl.study import Study
from irl.worlds import model_config, worlds


def with_limit(study: Study, chosen: OutcomeModel) -> tuple[Study, LimitProfile | None, FoundLimit | None]:
    """The study with the limit that the decisions tell in place of any, where one is sought.

    ``chosen`` is the outcome model of the fit.
    """
    place, phi, train = study.sought, study.feature_map, study.train
    if place is None:
        return study, None, None
    many = ManyLimits(phi, place, tried_limits(study.everyone or train, phi, place), study.signs)
    with study.stages.stage("limit") as report:
        compute = partial(_profile, study, many, chosen, report)
        profile = study.stored.stage("limit.npz", compute, LimitProfile.save, LimitProfile.load)
    found = found_limit(profile, phi.outcomes[place], study.rng("interval of the limit"))
    scale = FeatureMap.from_batch(train, [found.outcome]).high[0]
    return replace(study, feature_map=at_limit(phi, place, profile.likeliest, scale)), profile, found


def _profile(study: Study, many: ManyLimits, chosen: OutcomeModel, report: Reporter) -> LimitProfile:
    """How likely the decisions are at every limit.

    Limits are compared in linear laws, whatever the outcome model, unless that is the user's own: what is foreseen has
    to be searched in the worlds of many patients, and at once.
    """
    train, config, rng = study.train, study.config, study.rng("limit")
    horizon, gamma = config.length or train.horizon, (config.gamma, *config.choose_gamma)[-1]
    how = replace(config.posterior, decisions=min(config.posterior.decisions, DECISIONS))
    # Nothing but the profile is stored: the fit stores worlds of its own under the same names.
    trial = replace(study, config=replace(config, gamma=gamma, posterior=how), stored=StoredParts())
    trial, law = replace(trial, feature_map=many.over(train)), chosen
    if study.model is None and law_alone(chosen) is None:
        splits = [batch.with_early_ends(horizon) for batch in (train, study.validation)]
        law = fit_outcome_model("ar", splits[0], splits[1], replace(model_config(study), members=1), rng).model
    imagined = with_rules(law, rules_for(train, config.forbid))
    given = (imagined, trial.feature_map, train.start, horizon, gamma, many.weights, train, config.horizon)
    small = min(config.agent, quick_agent(SuccessorConfig()), key=lambda one: one.episodes)
    agent = fit_successor(Problem(*given), small, rng)

    def told(before: int, done: float, total: float) -> None:
        report(before + done / total, 3)

    crosses = worlds(trial, law, agent, partial(told, 1))
    judged = crosses[0].judged if crosses else judged_episodes(train, how.decisions, study.rng("folds"))
    searched = [cross.psi for cross in crosses] or [partial(agent.psi, judged)]
    drawing, contexts = study.rng("plans of limits"), Contexts.of(train, config.habit)
    return limit_profile(many, searched, judged, contexts, drawing, partial(told, 2))


def at_limits_of_others(study: Study, profile: LimitProfile, cross: CrossFit) -> CrossFit:
    """Every part's decisions weighed with the limit that those of all others tell: none helps to foresee itself."""
    agents, phi, place = [], study.feature_map, study.sought
    assert place is not None
    for agent, *others in zip(cross.agents, cross.train, cross.validation, strict=True):
        limit = profile.likeliest_of({name for batch in others for name in batch.groups})
        agents.append(agent.weighing(at_limit(phi, place, limit)))
    return replace(cross, agents=tuple(agents))
