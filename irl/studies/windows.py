"""Weights per window of time: what the decisions of some steps alone say.

The question put to a window is: which weights, held from here to the end of the episode, make its decisions likely?
The plans along the experts' histories are solved already (:mod:`irl.preferences.likelihood`), and psi at step t reaches
to the end of the episode whatever window t is in. So a window only chooses which decisions count, and nothing is solved
again but a few plans near each window's own mean, where the pool may be thin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from cirl_gym.data.batch import evenly_spaced_rows
from cirl_gym.data.features import normalised
from cirl_gym.types import FloatArray
from irl.preferences.inference import PosteriorConfig, Psi, near_weights
from irl.preferences.likelihood import PlanPool, by_group, taken_log_probabilities
from irl.preferences.posterior import TAILS, PosteriorResult, normal_posterior, sample_posterior
from irl.result.windows import TimeWindow, WindowChange, WindowWeights, check_starts

FEWEST_DECISIONS, FEWEST_PATIENTS = 50, 10
"""A window with fewer is named and not fitted: how patients differ cannot be told from fewer."""
NEAR_ENOUGH = 0.002
"""Change of a decision's log-probability, on average, that a plan solved for a window's own mean may still make."""
_ROUNDS, _ROUGH_DRAWS = 2, 200
_INFLUENCE_DRAWS, _COMPARED_DRAWS = 400, 1000
_NORMAL_TAIL = 1.6448536269514722

Span: TypeAlias = tuple[int, int | None]
"""First step of a window and the step after its last; None: to the end of the episodes."""


def time_windows(
    psi: Psi,
    pool: PlanPool,
    signs: FloatArray,
    starts: Sequence[int],
    config: PosteriorConfig,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[TimeWindow, ...]:
    """Posterior of the weights in each window, and how the weights change from each to the next.

    Args:
        psi: solves for one w and gives psi along the pool's batch, whole episodes.
        pool: plans along the experts' histories, as the posterior of all decisions left it.
        signs: ``[d]`` of -1, 0 (free) and 1.
        starts: first step of each window; the last goes on to the end of the episodes, and decisions before the first
            are in none.
        config: how much work, per window.
        rng: plans and draws.
        progress: called with (windows done, windows).

    Raises:
        ValueError: the starts do not rise from 0 on.
    """
    check_starts(starts)
    spans: list[Span] = list(zip(starts, [*starts[1:], None], strict=True))
    inside = [window_pool(pool, *span) for span in spans]
    fitted = [
        i
        for i, part in enumerate(inside)
        if part and part.batch.n_steps >= FEWEST_DECISIONS and len(set(part.batch.groups)) >= FEWEST_PATIENTS
    ]
    pool = _with_near_plans(psi, pool, [spans[i] for i in fitted], signs, config, rng)
    posteriors: dict[int, PosteriorResult] = {}
    influence: dict[int, dict[str, FloatArray]] = {}
    for done, i in enumerate(fitted):
        part = _part(pool, spans[i])
        posteriors[i] = sample_posterior(part, signs, rng, config.draws)
        influence[i] = patient_influence(part, posteriors[i])
        if progress is not None:
            progress(done + 1, len(fitted))

    def recorded(i: int) -> TimeWindow:
        (first, end), part, posterior = spans[i], inside[i], posteriors.get(i)
        both = posterior is not None and i - 1 in posteriors
        found = None
        if posterior is not None:
            kappa = posterior.kappa_mean, posterior.kappa_interval
            found = WindowWeights(tuple(posterior.median.tolist()), posterior.intervals, *kappa)
        return TimeWindow(
            from_=first,
            to=None if end is None else end - 1,
            decisions=0 if part is None else part.batch.n_steps,
            patients=0 if part is None else len(set(part.batch.groups)),
            found=found,
            changes=change(posteriors[i - 1], posteriors[i], influence[i - 1], influence[i]) if both else None,
        )

    return tuple(map(recorded, range(len(spans))))


def window_pool(pool: PlanPool, first: int, end: int | None) -> PlanPool | None:
    """The plans at the decisions of steps ``first`` to ``end - 1`` (None: to the last); None if there is no decision.

    psi stays what it is: the plans begin at whole histories and go on to the end of the episodes. The pool's batch only
    says which actions were taken, and by whom.
    """
    batch = pool.batch
    end = batch.horizon if end is None else min(end, batch.horizon)
    lengths = np.clip(batch.lengths - first, 0, max(end - first, 0))
    going = np.flatnonzero(lengths > 0)
    if len(going) == 0:
        return None
    terminated = batch.terminated[going] & (batch.lengths[going] <= end)
    part = replace(
        batch,
        obs=batch.obs[going, first : end + 1],
        actions=batch.actions[going, first:end],
        lengths=lengths[going],
        terminated=terminated,
        truncated=~terminated,
        ids=tuple(batch.ids[i] for i in going),
        groups=tuple(batch.groups[i] for i in going),
        allowed=None if batch.allowed is None else batch.allowed[going, first:end],
        # The pool keeps what habits depend on: the action before a window's first is in none of its rows.
        contexts=(),
        context_levels=None,
    )
    assert pool.levels is not None
    psi = np.ascontiguousarray(pool.psi[:, going, first:end])
    return PlanPool(part, psi, pool.contexts, pool.levels[going, first:end])


def patient_influence(pool: PlanPool, posterior: PosteriorResult) -> dict[str, FloatArray]:
    """By patient, how far the posterior mean of the weights ``[d]`` moves per unit of weight that the patient gets.

    It is the posterior's covariance of the weights with the patient's log-likelihood, to the power that the likelihood
    has in it (the infinitesimal jackknife for posterior means): the first-order form of a bootstrap over patients, for
    any number of features.
    """
    thetas, logits = posterior.thinned(_INFLUENCE_DRAWS)
    drawn = zip(thetas, logits, strict=True)
    said = np.stack([by_group(said_of(pool, *each), pool.batch.groups) for each in drawn])
    draws = np.stack([normalised(theta) for theta in thetas])
    covariance = (said - said.mean(axis=0)).T @ (draws - draws.mean(axis=0)) / max(len(draws) - 1, 1)
    moved = posterior.sampler.power * covariance
    names = np.unique(np.asarray(pool.batch.groups))  # the order of by_group
    return {str(name): row for name, row in zip(names, moved, strict=True)}


def change(
    before: PosteriorResult,
    after: PosteriorResult,
    influence_before: Mapping[str, FloatArray],
    influence_after: Mapping[str, FloatArray],
) -> tuple[WindowChange, ...]:
    """Weights of a window minus those of the window before, with 90 % intervals that enclose two kinds of chance.

    1. Which actions were drawn: given their histories, decisions are independent under the likelihood, so every draw
       of one posterior is set against every one of the other.
    2. Which patients were seen: the windows share patients, and one who was treated differently in one may have been so
       in the other. So each patient's influence on both means is taken together, and its spread over patients is the
       standard error of their difference, however the two depend on each other.
    """
    ours, theirs = (one.draws[evenly_spaced_rows(len(one.draws), _COMPARED_DRAWS)] for one in (after, before))
    nothing = np.zeros(len(after.median))
    patients = sorted({*influence_before, *influence_after})
    both = np.array([influence_after.get(p, nothing) - influence_before.get(p, nothing) for p in patients])
    spread = np.sqrt(len(patients) * both.var(axis=0, ddof=1))
    found = []
    for i, difference in enumerate(after.median - before.median):
        low, high = np.quantile((ours[:, i, None] - theirs[:, i]).ravel(), TAILS[[0, 2]])
        margin = _NORMAL_TAIL * spread[i]
        # No two weights are further apart than 2.
        ends = max(min(low, difference - margin), -2.0), min(max(high, difference + margin), 2.0)
        found.append(WindowChange(float(difference), (float(ends[0]), float(ends[1]))))
    return tuple(found)


def _part(pool: PlanPool, span: Span) -> PlanPool:
    """:func:`window_pool` of a window that is known to hold decisions."""
    part = window_pool(pool, *span)
    assert part is not None
    return part


def _with_near_plans(
    psi: Psi,
    pool: PlanPool,
    spans: Sequence[Span],
    signs: FloatArray,
    config: PosteriorConfig,
    rng: np.random.Generator,
) -> PlanPool:
    """The pool with a plan for each window's own mean, and with more around it where that one changed anything."""
    waiting = list(spans)
    for _ in range(_ROUNDS):
        thin = []
        for span in waiting:
            part = _part(pool, span)
            rough = normal_posterior(part, signs, _ROUGH_DRAWS, rng)
            pool = pool.extended(psi(rough.mean, config.near_width)[None])
            if gain(part, _part(pool, span), rough) > NEAR_ENOUGH:
                around = near_weights(part, signs, config.near_plans, rng)
                pool = pool.extended(np.stack([psi(w, config.near_width) for w in around]))
                thin.append(span)
        waiting = thin
    return pool


def gain(part: PlanPool, exact: PlanPool, posterior: PosteriorResult) -> float:
    """Change of a decision's log-probability that better plans make at the posterior mean, on average."""
    theta, logits = posterior.theta.mean(axis=0), posterior.logits.mean(axis=0)
    one, two = (said_of(each, theta, logits) for each in (part, exact))
    return float(np.abs(two - one).sum() / part.batch.n_steps)


def said_of(pool: PlanPool, theta: FloatArray, logits: FloatArray) -> FloatArray:
    """``[N]`` log-likelihood of each episode of a pool."""
    return taken_log_probabilities(pool.log_chances(theta, logits), pool.batch)
