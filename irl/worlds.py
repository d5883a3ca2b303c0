"""Worlds fitted to the patients of a study: to all but one part of them in turn, or to all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.rules import rules_for
from cirl_gym.outcome_models.fitting import MOST_DECISIONS, OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import Kind
from cirl_gym.outcome_models.known import law_alone
from cirl_gym.outcome_models.masked import with_rules
from irl.cross_fitting import CrossFit, cross_fit
from irl.preferences.inference import judged_episodes
from irl.stored_stages import stored_outcome_model
from irl.study import Study, fold_streams


def cross_fits(study: Study, chosen: OutcomeModel, agent: SuccessorAgent) -> list[CrossFit]:
    """Worlds for each part of the patients, fitted to the others, as often as is asked for; none where that is not.

    Where the chosen model is a law alone, they are laws of the same order and terms, and the agent's network guides the
    search for plans in them. Else each has an agent of its own.
    """
    if study.everyone is None or not study.config.folds:
        return []
    with study.stages.stage("worlds of other patients") as report:
        return worlds(study, chosen, agent, study.watched(report))


def worlds(
    study: Study, chosen: OutcomeModel, agent: SuccessorAgent, report: Callable[[int, int], None]
) -> list[CrossFit]:
    """The same, told of to ``report``."""
    config, everyone, found = study.config, study.everyone, []
    if everyone is None or not config.folds:
        return []
    rng, horizon = study.rng("folds"), config.length or everyone.horizon
    judged = judged_episodes(everyone, config.posterior.decisions, rng)
    how_divided, own = (everyone, judged, config.folds, rng), replace(study.elsewhere(), everyone=None)
    every = config.repeats * config.folds
    for repeat in range(config.repeats):
        solve = partial(_fold_agent, own, chosen, agent, horizon, repeat)
        told = partial(_counted, report, repeat * config.folds, every)
        found.append(cross_fit(*how_divided, solve, told, drawn=repeat > 0))
    return found


def _counted(report: Callable[[int, int], None], before: int, every: int, done: int, _: int) -> None:
    """Of a repetition's parts, those of all repetitions."""
    report(before + done, every)


def _fold_agent(
    study: Study,
    chosen: OutcomeModel,
    agent: SuccessorAgent,
    horizon: int,
    repeat: int,
    number: int,
    train: Batch,
    validation: Batch,
) -> SuccessorAgent:
    """The agent in the world of a fold's other patients."""
    if study.model is not None:  # fitted to nobody here, so that no decision is judged by its own outcomes
        return agent
    config, stored = study.config, study.stored
    kind, how = _like(study, chosen)
    fitting, solving = fold_streams(study.seed, repeat, number)
    part, ended = f"fold{repeat}_{number}", [batch.with_early_ends(horizon) for batch in (train, validation)]
    learnt = partial(fit_outcome_model, kind, ended[0], ended[1], how, fitting)
    model = stored_outcome_model(stored, learnt, f"{part}_outcome_model.npz").model
    imagined = with_rules(model, rules_for(train, config.forbid))
    if law_alone(chosen) is not None:
        return agent.within(imagined)
    w = uniform_weights(study.signs)
    world = Problem(imagined, study.feature_map, train.start, horizon, config.gamma, w, train, config.horizon)
    compute = partial(fit_successor, world, config.agent, solving)
    load = partial(SuccessorAgent.load, model=imagined)
    return stored.stage(f"{part}_agent.npz", compute, SuccessorAgent.save, load)


def _like(study: Study, chosen: OutcomeModel) -> tuple[Kind, OutcomeModelConfig]:
    """How the chosen model is fitted to other patients: a law alone with its order and terms."""
    # Patients are drawn anew by every repetition: members of an ensemble would be the same once more.
    how, law = replace(model_config(study), members=1, bootstrap=False), law_alone(chosen)
    if law is None:
        return study.config.model, how
    return "ar", replace(how, autoregression=how.autoregression.like(law))


def with_everyone(study: Study, chosen: OutcomeModel) -> tuple[OutcomeModel, Batch]:
    """The chosen law fitted to all patients, and their episodes; what is no law alone, and what it was fitted to.

    What an action does is best told from everyone: no decision is judged by it. Of very many episodes, those that the
    law is fitted to.
    """
    if study.model is not None or study.everyone is None or law_alone(chosen) is None:
        return chosen, study.train.thinned(MOST_DECISIONS)
    kind, how = _like(study, chosen)
    horizon = study.config.length or study.everyone.horizon
    everyone, validation = (batch.with_early_ends(horizon) for batch in (study.everyone, study.validation))
    fitted = fit_outcome_model(kind, everyone, validation, how, study.rng("effects"))
    return fitted.model, everyone.thinned(MOST_DECISIONS)


def model_config(study: Study) -> OutcomeModelConfig:
    """How outcome models of a study are fitted (:func:`for_ends_of`)."""
    train = study.train
    return for_ends_of(train, study.config.length or train.horizon, study.config.outcome)


def for_ends_of(batch: Batch, length: int, config: OutcomeModelConfig) -> OutcomeModelConfig:
    """How outcome models of a batch, whose whole episodes have ``length`` actions, are fitted: without actions that
    change when episodes end, where most were only left off.

    An episode that was watched no longer counts as ended (:meth:`cirl_gym.Batch.with_early_ends`), but no expert has
    decided on that, and what few ends there are would make a large effect of it.
    """
    left = int((batch.truncated & (batch.lengths < length)).sum())
    if left <= int(batch.terminated.sum()):
        return config
    return replace(config, end=replace(config.end, formulas=True))
