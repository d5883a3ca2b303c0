"""How well chosen actions match the expert's (paper, appendix H), recovered weights the true ones, intervals the truth,
and preferences foresee decisions that nothing was learnt from; and what a policy earns in the simulator.

Chosen actions are ``[N, T]`` arrays along the batch's own histories (see :func:`cirl_gym.data.rollout.act_along`); what
stands on padding is never looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import softmax
from scipy.stats import beta

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, normalised
from cirl_gym.data.habits import Contexts
from cirl_gym.data.rollout import returns, rollout
from cirl_gym.data.rules import among_allowed
from cirl_gym.types import BoolArray, FloatArray, IntArray, Policy
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld
from irl.checks.predictors import Boosting, LastActionTable
from irl.preferences.inference import Psi
from irl.preferences.likelihood import (
    PlanPool,
    constant_chances,
    even_log_chances,
    finite_logs,
    log_chances,
    per_decision,
    taken_log_probabilities,
)
from irl.preferences.posterior import PosteriorResult, normal_posterior
from irl.result.result import AgreementOverTime, Difference, Foreseen, HeldOutLikelihood

RETURN_EPISODES = 500
"""Patients of a return."""
ACCOUNTS = ("cirl", "habit", "last_action", "boosting", "cloning", "frequencies", "chance")
"""What foresees decisions, field by field of :class:`irl.result.result.HeldOutLikelihood`."""
_AT_ONCE = 8
"""Draws of one matrix product: of more the values would not fit the processor's cache."""


def agreement(chosen: IntArray, batch: Batch) -> BoolArray:
    """``[N, T]`` True where the chosen action is the one taken; False on padding.

    Raises:
        ValueError: ``chosen`` is not ``[N, T]`` whole numbers.
    """
    chosen = np.asarray(chosen)
    if chosen.shape != batch.actions.shape or not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(
            f"chosen actions must be whole numbers {batch.actions.shape}, got {chosen.dtype} {chosen.shape}"
        )
    same: BoolArray = (chosen == batch.actions) & batch.mask
    return same


def accuracy(chosen: IntArray, batch: Batch) -> float:
    """Mean over episodes of the mean over their steps of [a_t = chosen_t] (paper, appendix H).

    The paper numbers the actions 1..T here and 0..T-1 elsewhere; either way every action taken counts once.
    """
    return _episode_mean(agreement(chosen, batch), batch)


def accuracy_by_step(chosen: IntArray, batch: Batch) -> FloatArray:
    """``[longest length]`` accuracy at t = 0, 1, ... among the episodes that are still going on."""
    alive = batch.mask[:, : int(batch.lengths.max())]
    right: FloatArray = agreement(chosen, batch)[:, : alive.shape[1]].sum(axis=0) / alive.sum(axis=0)
    return right


def majority(training: Batch, batch: Batch) -> IntArray:
    """``[N, T]`` always the action that is most frequent in ``training`` (of equals the first), of those allowed."""
    chances = constant_chances(training)
    if batch.allowed is None:
        return np.full(batch.actions.shape, int(chances.argmax()), dtype=np.int64)
    return np.asarray(np.where(batch.allowed, chances, -1.0).argmax(axis=2))


def repeat_last_action(training: Batch, batch: Batch) -> IntArray:
    """``[N, T]`` the action before; at t = 0 the most frequent first action in ``training`` (of equals the first).

    Where it is not allowed, the most frequent one that is.
    """
    first = int(np.bincount(training.actions[:, 0], minlength=training.n_actions).argmax())
    chosen = np.full(batch.actions.shape, first, dtype=np.int64)
    chosen[:, 1:] = batch.actions[:, :-1]
    if batch.allowed is None:
        return chosen
    possible = np.take_along_axis(batch.allowed, chosen[..., None], axis=2)[..., 0]
    return np.where(possible, chosen, majority(training, batch))


def ceiling(probabilities: FloatArray | None, batch: Batch) -> float | None:
    """Accuracy that a policy reaches at best against an expert who draws actions: E[max over a of p(a | h)].

    Weighted as in :func:`accuracy`, of the expert's probabilities ``[N, T, A]`` along the batch; None without them.

    Raises:
        ValueError: another shape, or live rows that are not probabilities.
    """
    if probabilities is None:
        return None
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.shape != (*batch.actions.shape, batch.n_actions):
        raise ValueError(f"probabilities must be {(*batch.actions.shape, batch.n_actions)}, got {probabilities.shape}")
    live = probabilities[batch.mask]
    if not (live >= 0).all() or not (np.abs(live.sum(axis=1) - 1) < 1e-4).all():
        raise ValueError("probabilities must not be negative and must sum to 1 in every step")
    return _episode_mean(probabilities.max(axis=2), batch)


def weight_error(w: npt.ArrayLike, truth: npt.ArrayLike) -> FloatArray:
    """``[d]`` absolute differences of the two weights after both are scaled to L1 norm 1: only directions compare.

    Raises:
        ValueError: lengths differ, or one of them is zero or not finite.
    """
    found, true = _directions(w, truth)
    error: FloatArray = np.abs(found - true)
    return error


def same_order(w: npt.ArrayLike, truth: npt.ArrayLike) -> bool:
    """Whether the weights rank the features as the truth does; features that are equal in truth may come in any order.

    Raises:
        ValueError: lengths differ, or one of them is zero or not finite.
    """
    found, true = _directions(w, truth)
    below = true[:, None] < true
    return bool((found[:, None] < found)[below].all())


class Coverage(NamedTuple):
    """How often intervals held the truth, and what that says of how often they will."""

    share: FloatArray
    """``[d]`` share of runs whose interval holds the truth."""
    low: FloatArray
    """``[d]`` lower end of the share's own interval."""
    high: FloatArray
    """``[d]`` upper end."""


def coverage(intervals: npt.ArrayLike, truths: npt.ArrayLike, level: float = 0.95) -> Coverage:
    """Calibration of intervals over many runs: how many of them hold the truth, ends included.

    The share's interval is Clopper's and Pearson's: whatever the true chance, it lies inside with at least ``level``.
    Runs must be independent (other patients in each); the weights of one run are not, so each has its own share.

    Args:
        intervals: ``[R, d, 2]`` lower and upper end of each of d weights in each of R runs.
        truths: ``[R, d]`` the true weights, or ``[d]`` where they are the same in all runs.
        level: of the share's interval.

    Raises:
        ValueError: shapes do not match, there is no run, a number is not finite, an interval is upside down, or the
            level is not inside (0, 1).
    """
    ends, true = np.asarray(intervals, dtype=np.float64), np.asarray(truths, dtype=np.float64)
    if ends.ndim != 3 or ends.shape[2] != 2 or 0 in ends.shape or true.shape not in (ends.shape[:2], ends.shape[1:2]):
        raise ValueError(f"intervals must be [R, d, 2] and truths [R, d] or [d], got {ends.shape} and {true.shape}")
    if not np.isfinite(ends).all() or not np.isfinite(true).all() or (ends[..., 0] > ends[..., 1]).any():
        raise ValueError("intervals must be finite and [low, high], and truths finite")
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    runs, hits = len(ends), ((ends[..., 0] <= true) & (true <= ends[..., 1])).sum(axis=0)
    tail = (1 - level) / 2
    # With no hit the lower end is 0, with no miss the upper end 1: the distribution has no such parameter.
    low = np.where(hits > 0, beta.ppf(tail, np.maximum(hits, 1), runs - hits + 1), 0.0)
    high = np.where(hits < runs, beta.ppf(1 - tail, hits + 1, np.maximum(runs - hits, 1)), 1.0)
    return Coverage(hits / runs, low, high)


def simulated_returns(
    policy: Policy,
    parameters: TumourParameters,
    feature_map: FeatureMap,
    w: FloatArray,
    seed: int,
    episodes: int = RETURN_EPISODES,
) -> FloatArray:
    """``[episodes]`` undiscounted returns, one per patient; patients and noise are the seed's alone."""
    played = rollout(TumourWorld(parameters), policy, episodes, np.random.default_rng([seed, 1]))
    return returns(played, feature_map, w)


def mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


@dataclass(frozen=True)
class HeldOutConfig:
    """How much of the held-out episodes is judged, and how exactly.

    Raises:
        ValueError: a number is out of its range.
    """

    decisions: int = 2000
    """Whole episodes, from the first on, until they hold so many decisions."""
    plans: int = 6
    """Posterior draws whose plans join those of the posterior mean."""
    width: int = 32
    """Of the search for plans: that of the posterior."""
    draws: int = 200
    """Posterior draws over which chances are averaged."""

    def __post_init__(self) -> None:
        if min(self.decisions, self.plans, self.draws, self.width) < 1:
            raise ValueError(f"HeldOutConfig: every number must be at least 1, got {self}")


def held_out_plans(psi: Psi, posterior: PosteriorResult, batch: Batch, config: HeldOutConfig) -> PlanPool:
    """Plans along held-out histories, optimal for the posterior mean and for some draws evenly spread over them."""
    weights = np.stack([posterior.mean, *(normalised(theta) for theta in posterior.thinned(config.plans)[0])])
    return PlanPool(batch, psi(weights, config.width), posterior.contexts)


def held_out_log_chances(psi: Psi, posterior: PosteriorResult, batch: Batch, config: HeldOutConfig) -> FloatArray:
    """Log-probabilities ``[N, T, A]`` along held-out histories by plans searched there, mean over the posterior."""
    return averaged_log_chances(held_out_plans(psi, posterior, batch, config), posterior, config.draws)


def averaged_log_chances(pool: PlanPool, posterior: PosteriorResult, draws: int = 200) -> FloatArray:
    """Log-probabilities ``[N, T, A]`` of every action along a pool, chances averaged over posterior draws.

    At the posterior means alone, weights that are hardly known would be taken at their word.
    """
    assert pool.levels is not None
    batch, (theta, logits) = pool.batch, posterior.thinned(draws)
    live, allowed = batch.mask, None if batch.allowed is None else batch.allowed[batch.mask]
    psi, levels = pool.psi[:, live], pool.levels[live]
    chances, total = np.ones((*batch.actions.shape, batch.n_actions)), np.zeros((batch.n_steps, batch.n_actions))
    for first in range(0, len(theta), _AT_ONCE):
        own = slice(first, first + _AT_ONCE)
        # One product for several draws: alone each takes as long as it takes to read all psi.
        values = psi.reshape(-1, psi.shape[-1]) @ theta[own].T.astype(psi.dtype)
        best = np.moveaxis(values.reshape(*psi.shape[:-1], -1).max(axis=0), -1, 0).astype(np.float64)
        total += softmax(among_allowed(best, allowed) + logits[own][:, levels].sum(axis=2), axis=-1).sum(axis=0)
    chances[live] = total / len(theta)
    return finite_logs(chances)


def habit_log_chances(train: Batch, batch: Batch, contexts: Contexts, rng: np.random.Generator) -> FloatArray:
    """Log-probabilities ``[N, T, A]`` along a batch by habit alone, learnt from ``train``; no outcome is foreseen.

    It is the choice model with theta = 0. Without contexts it is how often each action is taken, one more of each
    counted, so that an action that was never seen is not impossible.
    """
    shape = (*batch.actions.shape, batch.n_actions)
    if not contexts.names:
        return np.broadcast_to(log_chances(constant_chances(train, more=1.0), batch), shape)
    ours, theirs = (
        PlanPool(each, np.zeros((1, *each.actions.shape, each.n_actions, 1)), contexts) for each in (train, batch)
    )
    return averaged_log_chances(theirs, normal_posterior(ours, np.zeros(1), 200, rng))


def simple_accounts(train: Batch, batch: Batch, contexts: Contexts, rng: np.random.Generator) -> dict[str, FloatArray]:
    """What knows no preferences, learnt from ``train``: log-probabilities ``[N, T, A]`` (or ``[A]``) along a batch."""
    return {
        "habit": habit_log_chances(train, batch, contexts, rng),
        "last_action": LastActionTable.fit(train).log_probabilities(batch),
        "boosting": Boosting.fit(train, int(rng.integers(2**31))).log_probabilities(batch),
        "frequencies": log_chances(constant_chances(train, more=1.0), batch),
        "chance": even_log_chances(batch),
    }


def held_out_likelihood(
    chances: Mapping[str, npt.NDArray[np.floating]], batch: Batch, folds: int = 0
) -> HeldOutLikelihood:
    """How well decisions are foreseen, and by how much better with outcomes than by habit alone.

    Args:
        chances: by field of :class:`HeldOutLikelihood`, log-probabilities ``[N, T, A]`` or ``[A]``; ``expert`` may be
            missing, where the experts' own are not known.
        batch: the decisions.
        folds: of a cross-validation over patients; 0: nothing was learnt from any of these episodes.

    Raises:
        ValueError: shapes do not match, or a number is no log-probability.
    """
    said = {name: taken_log_probabilities(logs, batch) for name, logs in chances.items()}
    shape = (*batch.actions.shape, batch.n_actions)

    def foreseen(name: str) -> Foreseen:
        met = accuracy(np.broadcast_to(chances[name], shape).argmax(axis=-1), batch)
        return Foreseen(*per_decision(said[name], batch), met)

    each: dict[str, Any] = {name: foreseen(name) for name in ACCOUNTS}
    return HeldOutLikelihood(
        decisions=batch.n_steps,
        patients=len(set(batch.groups)),
        folds=folds,
        beyond_habit=Difference(*per_decision(said["cirl"] - said["habit"], batch)),
        expert=foreseen("expert") if "expert" in chances else None,
        **each,
    )


def agreement_over_time(cirl: IntArray, cloning: IntArray, batch: Batch) -> AgreementOverTime:
    """At every step, how many held-out decisions two policies meet by the actions ``[N, T]`` that they would choose."""
    going = batch.mask[:, : int(batch.lengths.max())].sum(axis=0)
    return AgreementOverTime(tuple(going), *(tuple(accuracy_by_step(chosen, batch)) for chosen in (cirl, cloning)))


def _directions(w: npt.ArrayLike, truth: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    found, true = normalised(w), normalised(truth)
    if found.shape != true.shape:
        raise ValueError(f"weights {found} and truth {true} differ in length")
    return found, true


def _episode_mean(values: npt.NDArray[np.generic], batch: Batch) -> float:
    live = np.where(batch.mask, values, 0.0)
    return float((live.sum(axis=1) / batch.lengths).mean())
