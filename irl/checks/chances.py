"""Predicted chances of the experts' actions, judged: six figures, each with a standard error by patient.

Every figure is computed once with all patients weighing 1, and again for patients drawn with replacement, which weigh
as often as they were drawn: the spread is the standard error, however much the decisions of one patient depend on each
other. Chances are ``[R, A]`` of R decisions, weights ``[B, R]`` of B draws, and every figure comes out as ``[B]``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.types import BoolArray, FloatArray, IntArray
from irl.preferences.likelihood import per_decision, taken_log_probabilities
from irl.result.chances import ChanceScores, LogLikelihoodScore, ShareScore

DRAWS = 200
"""Of the patients, for standard errors."""
BINS = 10
"""Groups of decisions, of about one size, in which chances are held against frequencies."""
_AT_ONCE = 2_000_000
"""Weights in memory at once."""


def judged_chances(
    log_probabilities: npt.NDArray[np.floating], batch: Batch, rng: np.random.Generator, draws: int = DRAWS
) -> ChanceScores:
    """Judge chances of the next action by the actions that were taken.

    Args:
        log_probabilities: ``[N, T, A]`` after every history, or ``[A]`` where they never change; what stands on padding
            is not looked at.
        batch: the episodes.
        rng: draws patients.
        draws: how many times, for standard errors.

    Raises:
        ValueError: another shape, a log-probability is above 0 or not a number, chances do not sum to 1, or an action
            that was taken had none.
    """
    likelihood = taken_log_probabilities(log_probabilities, batch)
    for episode in np.flatnonzero(~np.isfinite(likelihood))[:1]:
        raise ValueError(f"an action that was taken in episode {batch.ids[episode]!r} was given no chance")
    shape = (*batch.actions.shape, batch.n_actions)
    chances = np.exp(np.broadcast_to(log_probabilities, shape)[batch.mask].astype(np.float64))
    if not (np.abs(chances.sum(axis=1) - 1) < 1e-4).all():
        raise ValueError("the chances of the actions must sum to 1 at every decision")
    names, patient = np.unique(np.asarray(batch.groups), return_inverse=True)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
    times = np.concatenate([np.ones((1, len(names))), drawn])
    parts = np.array_split(times, -(-len(times) * len(chances) // _AT_ONCE))
    figures = [_figures(part[:, patient], chances, batch) for part in parts]
    scores = {name: _score(np.concatenate([part[name] for part in figures])) for name in figures[0]}
    told = len(np.unique(batch.actions[batch.mask])) > 1
    return ChanceScores(
        decisions=batch.n_steps,
        patients=len(names),
        # The same standard error as wherever else a log-likelihood per decision is reported.
        log_likelihood=LogLikelihoodScore(*per_decision(likelihood, batch)),
        accuracy=scores["accuracy"],
        auroc=scores["auroc"] if told else None,
        auprc=scores["auprc"] if told else None,
        brier=scores["brier"],
        calibration_error=scores["calibration_error"],
    )


def _figures(weights: FloatArray, chances: FloatArray, batch: Batch) -> dict[str, FloatArray]:
    """``[B]`` of every figure, for the weights ``[B, N]`` of the episodes."""
    taken = batch.actions[batch.mask]
    right = chances.argmax(axis=1) == taken
    episode = np.repeat(np.arange(len(batch)), batch.lengths)
    each = weights[:, episode]
    shares = np.bincount(episode, weights=right) / batch.lengths
    auroc, auprc = areas(chances, taken, each)
    return {
        "accuracy": weights @ shares / weights.sum(axis=1),
        "auroc": auroc,
        "auprc": auprc,
        "brier": each @ brier(chances, taken) / each.sum(axis=1),
        "calibration_error": calibration_error(chances.max(axis=1), right, each),
    }


def _score(values: FloatArray) -> ShareScore:
    """The first value, and how far the others spread; a draw that leaves nothing to compare does not count."""
    others = values[1:][np.isfinite(values[1:])]
    error = float(others.std(ddof=1)) if len(others) > 1 else 0.0
    return ShareScore(float(np.clip(np.nan_to_num(values[0]), 0.0, 1.0)), error)


def brier(chances: FloatArray, taken: IntArray) -> FloatArray:
    """``[R]`` half the squared distance of the chances ``[R, A]`` from certainty of the action taken (Brier 1950)."""
    distance = chances.copy()
    distance[np.arange(len(taken)), taken] -= 1.0
    halved: FloatArray = (distance**2).sum(axis=1) / 2
    return halved


def calibration_error(confidence: FloatArray, right: BoolArray, weights: FloatArray) -> FloatArray:
    """``[B]`` expected calibration error (Naeini et al. 2015) with groups of about one size instead of width.

    Decisions of the same confidence ``[R]`` are in one group, however many: their order says nothing.
    """
    ends = np.quantile(confidence, np.arange(1, BINS) / BINS)
    member = np.searchsorted(ends, confidence)  # those up to the first end, then up to the second, ...
    gaps = np.zeros((len(confidence), BINS))
    gaps[np.arange(len(confidence)), member] = right - confidence
    error: FloatArray = np.abs(weights @ gaps).sum(axis=1) / weights.sum(axis=1)
    return error


def areas(chances: FloatArray, taken: IntArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """``[B]`` AUROC and ``[B]`` average precision; not a number where one action alone has weight.

    Of two actions those of the one that was taken more rarely (of equals the later), of more the mean over those taken.
    """
    counts = np.bincount(taken, minlength=chances.shape[1])
    rare = [int(counts[::-1].argmin())] if chances.shape[1] == 2 else []
    judged = [1 - action for action in rare] or [int(action) for action in np.flatnonzero(counts)]
    found = np.array([_areas_of(chances[:, action], taken == action, weights) for action in judged])
    known = np.isfinite(found)
    with np.errstate(invalid="ignore"):  # a draw in which no action is told from another
        auroc, auprc = np.where(known, found, 0.0).sum(axis=0) / known.sum(axis=0)
    return auroc, auprc


def _areas_of(score: FloatArray, positive: BoolArray, weights: FloatArray) -> FloatArray:
    """``[2, B]`` weighted AUROC and average precision of a score ``[R]``: decisions of one score are one threshold."""
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.diff(score[order], append=-np.inf))  # weights are whole numbers: their sums are exact
    ordered = weights[:, order]
    hit = (ordered * positive[order]).cumsum(axis=1)[:, last]
    missed = ordered.cumsum(axis=1)[:, last] - hit
    hits, misses = (np.diff(sums, axis=1, prepend=0.0) for sums in (hit, missed))
    all_hits, all_misses = hit[:, -1], missed[:, -1]
    with np.errstate(invalid="ignore", divide="ignore"):  # a draw without the action, or with no other
        below = all_misses[:, None] - missed + misses / 2
        auroc = (hits * below).sum(axis=1) / (all_hits * all_misses)
        precision = np.divide(hit, hit + missed, out=np.zeros_like(hit), where=hits > 0)
        auprc = (hits * precision).sum(axis=1) / all_hits
    return np.where(all_hits * all_misses > 0, np.stack([auroc, auprc]), np.nan)
