"""Choice of the discount factor by the likelihood of held-out decisions.

A discount factor is no more observed than the weights, and the two trade off: an expert who looks only few steps ahead
resembles one who weighs lasting outcomes less. Where both explain the decisions, nothing can tell them apart, and what
is known of the experts should decide. Where they do not, decisions that were not learnt from say which does better.

The rule: of all discount factors whose held-out likelihood is within one standard error of the best, the largest. A
smaller one claims more of the experts, that they give up on what comes later, and more is claimed only where held-out
decisions support it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.types import FloatArray
from irl.checks.metrics import HeldOutConfig, held_out_log_chances
from irl.preferences.likelihood import per_decision, taken_log_probabilities
from irl.preferences.posterior import PosteriorResult
from irl.processes import all_done
from irl.result.gammas import GammaChoice, GammaTried, check_gammas


@dataclass(frozen=True)
class SolvedGamma:
    """The candidate policies of one discount factor, and what the training decisions say under it."""

    agent: SuccessorAgent
    posterior: PosteriorResult


def choose_gamma(
    solve: Callable[[float], SolvedGamma],
    gammas: Sequence[float],
    held_out: Batch,
    width: int = HeldOutConfig.width,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[GammaChoice, SolvedGamma]:
    """Solve under each discount factor, judge held-out decisions, take one; what was solved under it comes with it.

    Args:
        solve: candidate policies and posterior under a discount factor, from the training decisions; to be pickled
            where several processes work (:mod:`irl.processes`).
        gammas: two or more discount factors, rising.
        held_out: episodes that nothing was learnt from but, at most, when to stop training the outcome model.
        width: of the search along the held-out histories.
        progress: called with (discount factors done, discount factors).

    Raises:
        ValueError: there is no choice (:func:`irl.result.gammas.check_gammas`), or fewer than two patients are held
            out.
    """
    check_gammas(gammas)
    if len(set(held_out.groups)) < 2:
        raise ValueError("to choose a discount factor, decisions of two patients at least must be held out")
    calls = [partial(_solved_and_judged, solve, gamma, held_out, width) for gamma in gammas]
    solved, said = zip(*all_done(calls, progress), strict=True)
    choice = compared(gammas, [one.posterior for one in solved], np.stack(said), held_out)
    return choice, solved[list(gammas).index(choice.chosen)]


def _solved_and_judged(
    solve: Callable[[float], SolvedGamma], gamma: float, held_out: Batch, width: int
) -> tuple[SolvedGamma, FloatArray]:
    solved = solve(gamma)
    return solved, held_out_log_likelihood(solved, held_out, width)


def held_out_log_likelihood(solved: SolvedGamma, batch: Batch, width: int = HeldOutConfig.width) -> FloatArray:
    """Log-likelihood ``[N]`` of each episode's decisions, the chance of each averaged over the posterior.

    At the posterior means of weights and kappa alone, weights that are hardly known would be taken at their word, and
    a discount factor that leaves them more open would lose for its false confidence, not for its fit.
    """
    config = HeldOutConfig(width=width)
    chances = held_out_log_chances(partial(solved.agent.psi, batch), solved.posterior, batch, config)
    return taken_log_probabilities(chances, batch)


def compared(
    gammas: Sequence[float], posteriors: Sequence[PosteriorResult], said: FloatArray, held_out: Batch
) -> GammaChoice:
    """The choice among K discount factors, from the log-likelihoods ``[K, N]`` that each gives to held-out episodes.

    Every discount factor is judged by the same decisions, so its difference to the best is taken episode by episode,
    and the standard error is that of the differences, with patients as the unit.
    """
    mean = said.sum(axis=1) / held_out.n_steps
    best = int(np.flatnonzero(mean == mean.max())[-1])
    tried = []
    for gamma, posterior, own, average in zip(gammas, posteriors, said, mean, strict=True):
        difference, error = per_decision(own - said[best], held_out)
        numbers = (gamma, float(average), min(difference, 0.0), error)
        weights = tuple(posterior.median.tolist())
        tried.append(GammaTried(*numbers, weights, posterior.intervals, posterior.kappa_mean))
    chosen = max(one.gamma for one in tried if one.tied)
    return GammaChoice(chosen, tuple(tried), held_out.n_steps, len(set(held_out.groups)))
