"""From a fit to what is reported: every number of result.json, and the finding in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace as replaced

from agents.policies.policy import ConstantPolicy, WithinRules
from agents.successor.agent import SuccessorPolicy
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcomes import read_outcome
from cirl_gym.data.rollout import act_along
from cirl_gym.diagnostics import effective_sizes
from cirl_gym.outcome_models.effects import action_effects
from cirl_gym.outcome_models.errors import counterfactual_error, factual_error
from cirl_gym.outcome_models.masked import rules_of
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.sensitivity import sensitivities
from cirl_gym.outcome_models.stated import StatedEffect
from cirl_gym.types import FloatArray, IntArray, Policy
from irl.checks.chances import judged_chances
from irl.checks.metrics import (
    RETURN_EPISODES,
    HeldOutConfig,
    accuracy,
    agreement_over_time,
    ceiling,
    held_out_likelihood,
    held_out_log_chances,
    majority,
    mean_and_error,
    repeat_last_action,
    simple_accounts,
    simulated_returns,
)
from irl.max_margin.loop import MaxMarginResult
from irl.max_margin.mixture import Mixture
from irl.pipeline import Fit, Simulated
from irl.preferences.inference import judged_episodes
from irl.preferences.likelihood import PlanPool, finite_logs
from irl.preferences.posterior import SamplerReport, sample_posterior
from irl.result import result as records
from irl.result import sentences
from irl.result.consequences import Consequences
from irl.result.effects import (
    ActionOverlap,
    Effect,
    action_labels,
    contradiction_sentences,
    found_effects,
    found_overlaps,
    held_sentences,
    uninterpreted,
)
from irl.result.exchange import exchange_rates
from irl.result.habits import found_habits
from irl.result.result import Result
from irl.result.simulated_habits import SimulatedHabits, WithoutHabits, habit_logits
from irl.studies.consequences import consequences
from irl.study import Study
from irl.worlds import with_everyone

_WATCHED, _WATCHED_WIDTH = 25, 16
"""Held-out episodes on which the policy of every round is watched, and the width of the search there: half of the usual
one takes half the time and changes 1 in 100 decisions."""
_SEARCHED = 200
"""First observations from which plans are searched for mu of the recovered policy."""


def _foreseen(
    study: Study, found: Fit, test: Batch, rng: np.random.Generator
) -> tuple[Mapping[str, FloatArray], Batch, int]:
    """Log-chances of decisions by account: by cross-validation over patients where worlds are, else of the held out.

    The decisions come with them, and the folds.
    """
    if found.foreseen is not None:
        return found.foreseen.chances, found.foreseen.judged, found.foreseen.folds
    config, train = HeldOutConfig(), study.train
    judged = judged_episodes(test, config.decisions)
    foreseen = {
        "cirl": held_out_log_chances(partial(found.agent.psi, judged), found.posterior, judged, config),
        "cloning": found.cloning.log_probabilities(judged),
        **simple_accounts(train, judged, found.posterior.contexts, rng),
    }
    return foreseen, judged, 0


def _scored(
    chances: Mapping[str, FloatArray], batch: Batch, rng: np.random.Generator, folds: int
) -> records.HeldOutLikelihood:
    """Every account of the decisions judged, AUROC and the like with it."""
    shape, seed = (*batch.actions.shape, batch.n_actions), int(rng.integers(2**31))
    scores = {
        # The same patients are drawn for every account.
        name: judged_chances(np.broadcast_to(logs, shape), batch, np.random.default_rng(seed))
        for name, logs in chances.items()
    }
    return replaced(held_out_likelihood(chances, batch, folds), scores=scores)


def measured_accuracy(
    cirl: IntArray, cloning: IntArray, train: Batch, test: Batch, chances: FloatArray | None
) -> records.Accuracy:
    """Appendix H on held-out episodes, beside what a copy, habit and repetition reach, and the ceiling if known."""
    return records.Accuracy(
        cirl=accuracy(cirl, test),
        cloning=accuracy(cloning, test),
        majority=accuracy(majority(train, test), test),
        repeat_last_action=accuracy(repeat_last_action(train, test), test),
        ceiling=ceiling(chances, test),
    )


def _returns(found: Fit, simulated: Simulated, episodes: int, seed: int) -> dict[str, records.Estimate]:
    """Undiscounted return under the true weights in the simulator; every policy has the same patients and noise."""
    rng, rules = np.random.default_rng(seed), rules_of(simulated.expert.agent.model)
    feature_map = simulated.expert.agent.feature_map
    constant: dict[str, Policy] = {
        name: ConstantPolicy(action, 2, rng) for name, action in (("random", None), ("never", 0), ("always", 1))
    }
    if rules is not None:
        constant = {name: WithinRules(policy, rules, np.full(2, 0.5)) for name, policy in constant.items()}
    policies = {"expert": simulated.expert.optimal, "cirl": found.policy, "cloning": found.cloning, **constant}
    estimates = {}
    for name, policy in policies.items():
        earned = simulated_returns(policy, simulated.parameters, feature_map, simulated.expert.w, seed, episodes)
        estimates[name] = records.Estimate(*mean_and_error(earned))
    return estimates


def _simulated_habits(study: Study, found: Fit, simulated: Simulated) -> SimulatedHabits | None:
    """What was found of the experts' habits, beside what the paper's model says of the same decisions; None without."""
    expert, posterior = simulated.expert, found.posterior
    if expert.habit is None or posterior.contexts != expert.habit.contexts:
        return None
    bare = PlanPool(found.pool.batch, found.pool.psi)
    without = sample_posterior(bare, study.signs, study.rng("weights"))
    return SimulatedHabits(
        logits=habit_logits(expert.habit.logits, posterior.habit_draws),
        kappa=expert.kappa,
        without=WithoutHabits(_numbers(without.median), without.intervals, without.kappa_mean, without.kappa_interval),
    )


def judged(
    study: Study,
    found: Fit,
    test: Batch,
    *,
    config: Mapping[str, Any],
    simulated: Simulated | None = None,
    table: Mapping[str, Any] | None = None,
) -> Result:
    """What a fit has found, measured on held-out episodes, and by the truth where experts are simulated.

    Args:
        study: what was fitted.
        found: the fit.
        test: held-out episodes.
        config: what was asked for, in JSON's own types.
        simulated: the experts and their simulator; None for a table.
        table: what was found and repaired when the table was read.
    """
    train, posterior, identified = study.train, found.posterior, found.identified
    names = found.feature_map.features
    chances = None if simulated is None else simulated.expert.probabilities(test)
    truth = None if simulated is None else simulated.expert.w
    model, phi, counterfactual = found.model.model, found.feature_map, None
    if simulated is not None:  # of actions not taken only where a simulator can be asked
        counterfactual = counterfactual_error(model, test, OracleModel(simulated.parameters), phi).pooled
    # What both policies would most likely have done.
    chosen = (_best_along(found.policy, test), act_along(found.cloning, test))
    met = measured_accuracy(*chosen, train, test, chances)
    rules = rules_of(found.agent.model)
    allowed = (
        None
        if rules is None
        else records.AllowedActions.of([rule.name for rule in rules.rules], study.everyone or train)
    )
    recovered = found.agent.mu(found.weights, train.start, _SEARCHED)
    rng = study.rng("held-out decisions")
    foreseen, decided, folds = _foreseen(study, found, test, rng)
    if simulated is not None and chances is not None:
        own = simulated.expert.probabilities(decided) if folds else chances[: len(decided)]
        foreseen = {**foreseen, "expert": finite_logs(own)}
    likelihood = _scored(foreseen, decided, rng, folds)
    effects = measured_effects(study, found, table)
    unread = uninterpreted(effects, phi)
    held = study.effects if study.config.outcome.autoregression.effects else ()
    word = sentences.verdict(likelihood, identified.not_identifiable, len(names))
    acting = (found.predicted_experts, found.cloning, train, action_labels(table, train.action_names))
    meant = sentences.weights_mean_something(word)
    followed = consequences(found.agent, found.weights, *acting, others=meant)
    return Result(
        verdict=word,
        features=names,
        weights=_numbers(posterior.median),
        intervals=_by_name(names, posterior.low, posterior.high),
        identified_set=records.IdentifiedRanges(
            ranges=_by_name(names, *np.sort([identified.low, identified.high], axis=0)),
            minimum=identified.minimum,
            tolerance=identified.tolerance,
            not_identifiable=dict(identified.not_identifiable),
            profile=() if identified.profile is None else tuple(map(tuple, identified.profile.tolist())),
        ),
        mu_expert=_numbers(found.mu_expert.mean),
        margin=found.loop.margin,
        rounds=recorded_rounds(found.loop, test),
        accuracy=met,
        agreement=agreement_over_time(*chosen, test),
        likelihood=likelihood,
        returns=None if simulated is None else _returns(found, simulated, RETURN_EPISODES, study.seed),
        model_error=records.ModelError(factual_error(model, test, phi).pooled, counterfactual),
        seconds=study.stages.seconds,
        seed=study.seed,
        config={**config, "ranges": _by_name(names, found.feature_map.low, found.feature_map.high)},
        versions=records.installed_versions(),
        estimates={
            "posterior": _numbers(posterior.mean),
            "w_K": _numbers(found.loop.weights),
            "last_direction": _numbers(found.loop.last_weights),
            "least_regret": _numbers(identified.best),
        },
        kappa=records.Kappa(posterior.kappa_mean, posterior.kappa_interval),
        true_weights=None if truth is None else _numbers(truth),
        table=None if table is None else dict(table),
        headline=headline(
            found, word, likelihood, met, effects=effects, held=held, truth=truth, allowed=allowed, followed=followed
        ),
        effects=effects,
        overlap=measured_overlap(foreseen["boosting"], decided, table),
        uninterpreted=unread,
        exchange_rates=tuple(
            rate for rate in exchange_rates(phi, posterior.draws) if not {rate.one_more, rate.outcome} & set(unread)
        ),
        simulated_habits=None if simulated is None else _simulated_habits(study, found, simulated),
        habits=found_habits(posterior.contexts, posterior.habit_draws, found.pool.batch),
        stop=found.loop.stop,
        identification=sentences.pinned(posterior, identified),
        sampler=recorded_sampler(names, posterior.sampler),
        episodes=records.EpisodeCounts(
            len(train), len(study.validation), len(test), followed.observed.length, followed.policies["cirl"].length
        ),
        members=tuple(
            records.Member(*map(_numbers, (one.posterior.mean, one.mu_expert, one.mu_recovered)))
            for one in found.members
        ),
        mu_recovered=_numbers(recovered),
        mu_gap=float(np.linalg.norm(found.mu_expert.mean - recovered)),
        windows=found.windows,
        gammas=found.choice,
        limit=found.limit,
        quality=found.quality,
        allowed=allowed,
        mixture=recorded_mixture(found.mixture, found.loop),
        consequences=followed,
    )


def measured_effects(study: Study, found: Fit, table: Mapping[str, Any] | None = None) -> tuple[Effect, ...]:
    """What every action changes by the outcome model: of a table, one that is fitted to all of its patients."""
    model, rows = with_everyone(study, found.model.model)
    phi, gamma = found.feature_map, found.agent.gamma
    stated = {one.outcome for one in study.effects} - set(phi.features)
    outcomes = (*phi.outcomes, *(read_outcome(name, phi.of) for name in phi.of if name in stated))
    effects = action_effects(model, rows, outcomes, gamma, study.rng("drawn effects"), study.config.length)
    names = action_labels(table, rows.action_names)
    known = dict(zip(rows.action_names, names, strict=True))
    said = [replace(one, action=known[one.action]) for one in study.effects]
    return found_effects(effects, names, sensitivities(model, rows, outcomes), said)


def measured_overlap(
    log_chances: FloatArray, batch: Batch, table: Mapping[str, Any] | None = None
) -> tuple[ActionOverlap, ...]:
    """What comparing every action with the first rests on.

    Args:
        log_chances: ``[N, T, A]`` of every decision, learnt from other patients' observations and actions.
        batch: the decisions.
        table: what was found when the table was read.
    """
    sizes = effective_sizes(np.exp(log_chances[batch.mask]), batch.actions[batch.mask])
    return found_overlaps(sizes, action_labels(table, batch.action_names))


def recorded_rounds(loop: MaxMarginResult, test: Batch) -> tuple[records.LoopRound, ...]:
    """Every round of the loop, with what its policy would have done on the first held-out episodes."""
    watched = test.take(np.arange(min(len(test), _WATCHED)))
    rounds: list[records.LoopRound] = []
    before = None
    for entry, policy in zip(loop.rounds, loop.policies, strict=True):
        chosen = _best_along(policy, watched, _WATCHED_WIDTH)
        changed = None if before is None else float((chosen != before)[watched.mask].mean())
        numbers = (entry.k, tuple(entry.w), tuple(entry.mu), entry.lambda_clipped, entry.margin, entry.seconds)
        rounds.append(records.LoopRound(*numbers, accuracy(chosen, watched), changed))
        before = chosen
    return tuple(rounds)


def _best_along(policy: Policy, batch: Batch, width: int | None = None) -> IntArray:
    """``[N, T]`` what a policy would do along histories, by one search where it searches, ``width`` at most."""
    if isinstance(policy, SuccessorPolicy) and policy.habit is None:
        return policy.best_along(batch, width and min(width, policy.agent.width))
    return act_along(policy, batch)


def recorded_mixture(mixture: Mixture, loop: MaxMarginResult) -> records.PolicyMixture:
    """The policies that the mixture follows at all, with the weights that each is optimal for."""
    shares = zip(loop.rounds, mixture.weights, strict=True)
    policies = tuple(records.MixedPolicy(entry.k, share, tuple(entry.w)) for entry, share in shares if share > 0)
    return records.PolicyMixture(policies, tuple(mixture.mu), mixture.distance)


def recorded_sampler(names: Sequence[str], sampler: SamplerReport) -> records.Sampler:
    """Convergence of every weight and of kappa, by name."""
    every = (*names, "kappa")
    r_hat, effective = (dict(zip(every, _numbers(each), strict=True)) for each in (sampler.r_hat, sampler.effective))
    return records.Sampler(sampler.converged, r_hat, effective, sampler.power)


def _numbers(values: FloatArray) -> tuple[float, ...]:
    return tuple(values.tolist())


def _by_name(names: Sequence[str], low: FloatArray, high: FloatArray) -> dict[str, tuple[float, float]]:
    return {name: (float(a), float(b)) for name, a, b in zip(names, low, high, strict=True)}


def headline(
    found: Fit,
    word: sentences.Verdict,
    likelihood: records.HeldOutLikelihood,
    met: records.Accuracy,
    *,
    effects: Sequence[Effect] = (),
    held: Sequence[StatedEffect] = (),
    truth: FloatArray | None = None,
    allowed: records.AllowedActions | None = None,
    followed: Consequences | None = None,
) -> tuple[str, ...]:
    """The verdict, the finding and what limits it, one sentence each; what contradicts what is known comes first.

    ``held``: what the outcome model was held to; ``followed``: what policies come to, of which an early end is told.
    """
    unread = uninterpreted(effects, found.feature_map)
    names, posterior = found.feature_map.features, found.posterior
    habits, meant = bool(posterior.contexts.names), sentences.weights_mean_something(word)
    clear = sentences.clear_weights(names, posterior, {*unread, *found.identified.not_identifiable})
    true = []
    if truth is not None:
        error, values = float(np.abs(posterior.median - truth).max()), ", ".join(f"{value:+.3g}" for value in truth)
        off = f"; the largest error is {error:.3f}" if meant else ""
        true = [f"The simulated expert's true weights are ({values}){off}."]
    told: tuple[str, ...] = ()
    if meant:
        told = (
            *sentences.strictness_sentences(posterior),
            *sentences.loop_sentences(names, found.loop, posterior, unread),
            *sentences.expectation_sentences(found.feature_map, found.model.model.noise_scale),
            *sentences.window_sentences(names, found.windows, unread),
            *([followed.sentence] if followed is not None and followed.shorter else []),
        )
    return (
        *contradiction_sentences(effects),
        sentences.verdict_sentence(word, which=bool(clear)),
        *sentences.limit_sentences(found.limit, word, likelihood.folds > 0),
        *sentences.added_sentences(word, likelihood, habits),
        *sentences.verdict_sentences(
            names, lambda i: sentences.per(found.feature_map, i), word, posterior, found.identified, unread
        ),
        *held_sentences(held),
        *sentences.sampler_sentences(posterior.sampler),
        *told,
        *sentences.seen_sentences(found.feature_map),
        *true,
        *sentences.gamma_sentences(found.choice),
        *([] if allowed is None else [allowed.sentence]),
        _accuracy_sentence(met, likelihood),
    )


def _accuracy_sentence(met: records.Accuracy, likelihood: records.HeldOutLikelihood) -> str:
    references = (("last-action table", likelihood.last_action), ("gradient boosting", likelihood.boosting))
    beside = ", ".join(f"{name} {one.accuracy:.3f}" for name, one in (*references, ("cloning", likelihood.cloning)))
    known = "" if met.ceiling is None else f"; nobody can exceed {met.ceiling:.3f} there but by luck"
    often = f"most frequent action {met.majority:.3f}, last action again {met.repeat_last_action:.3f}"
    return (
        f"What the experts are predicted to do meets {likelihood.cirl.accuracy:.3f} of {likelihood.decisions:,} "
        f"decisions ({beside}). What the preferences alone would do meets {met.cirl:.3f} of the decisions of held-out "
        f"episodes ({often}{known})."
    )
