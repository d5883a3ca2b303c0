"""How well the recovered preferences foresee decisions that nothing was learnt from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.types import FloatArray, IntArray
from irl.checks.metrics import accuracy_by_step
from irl.preferences.inference import Psi
from irl.preferences.likelihood import (
    PlanPool,
    action_log_likelihood,
    by_episode,
    constant_chances,
    even_log_chances,
    log_chances,
    per_decision,
    taken_log_probabilities,
)
from irl.preferences.posterior import PosteriorResult
from irl.result.result import AgreementOverTime, HeldOutLikelihood, LogLikelihood

_TINY = 1e-300


@dataclass(frozen=True)
class HeldOutConfig:
    """How much of the held-out episodes is judged, and how exactly.

    Raises:
        ValueError: a number is out of its range.
    """

    decisions: int = 2000
    """Whole episodes, from the first on, until they hold so many decisions."""
    plans: int = 4
    """Posterior draws whose plans join those of the posterior mean."""
    width: int | None = None
    """Of the search for plans; default: the agent's own."""
    draws: int = 200
    """Posterior draws over which chances are averaged."""

    def __post_init__(self) -> None:
        if min(self.decisions, self.plans, self.draws) < 1 or (self.width is not None and self.width < 1):
            raise ValueError(f"HeldOutConfig: every number must be at least 1, got {self}")


def held_out_plans(psi: Psi, posterior: PosteriorResult, batch: Batch, config: HeldOutConfig) -> PlanPool:
    """Plans along held-out histories, optimal for the posterior mean and for some draws evenly spread over them."""
    weights = [posterior.mean, *posterior.thinned(config.plans)[0]]
    return PlanPool(batch, np.stack([psi(w, config.width) for w in weights]))


def averaged_log_likelihood(pool: PlanPool, w: FloatArray, kappas: FloatArray) -> FloatArray:
    """``[N]`` log-likelihood of each episode, the chance of every decision a mean over ``w [M, d]``, ``kappas [M]``."""
    taken = pool.batch.actions[pool.batch.mask]
    steps, chance = np.arange(len(taken)), np.zeros(len(taken))
    for weights, kappa in zip(w, kappas, strict=True):
        value = kappa * pool.q(weights)[pool.batch.mask]
        share = np.exp(value - value.max(axis=1, keepdims=True))
        chance += share[steps, taken] / share.sum(axis=1)
    # A mean of chances can be above 1 by rounding.
    return by_episode(np.minimum(np.log(np.maximum(chance / len(kappas), _TINY)), 0.0), pool.batch)


def held_out_likelihood(
    pool: PlanPool,
    posterior: PosteriorResult,
    train: Batch,
    cloning: npt.NDArray[np.floating],
    expert: FloatArray | None,
    draws: int = 200,
) -> HeldOutLikelihood:
    """Mean log-probability of held-out decisions, beside that of what knows no preferences.

    Args:
        pool: plans along the held-out episodes (:func:`held_out_plans`).
        posterior: of weights and kappa.
        train: the training episodes, for the actions' frequencies; one more of each is counted, so that an action that
            was never seen is not impossible.
        cloning: ``[N, T, A]`` log-probabilities of behaviour cloning along the held-out episodes.
        expert: ``[N, T, A]`` the simulated experts' chances along them; None where they are not known.
        draws: of the posterior over which chances are averaged (:attr:`HeldOutConfig.draws`).

    Raises:
        ValueError: shapes do not match, or a number is no log-probability.
    """
    batch = pool.batch
    frequencies = log_chances(constant_chances(train, more=1.0), batch)
    known = None if expert is None else np.log(np.maximum(expert, _TINY))

    def said(log_likelihood: FloatArray) -> LogLikelihood:
        return LogLikelihood(*per_decision(log_likelihood, batch))

    return HeldOutLikelihood(
        decisions=batch.n_steps,
        patients=len(set(batch.groups)),
        cirl=said(action_log_likelihood(pool.q(posterior.mean), batch, [posterior.kappa_mean])[0]),
        averaged=said(averaged_log_likelihood(pool, *posterior.thinned(draws))),
        cloning=said(taken_log_probabilities(cloning, batch)),
        frequencies=said(taken_log_probabilities(frequencies, batch)),
        chance=said(taken_log_probabilities(even_log_chances(batch), batch)),
        expert=None if known is None else said(taken_log_probabilities(known, batch)),
    )


def agreement_over_time(cirl: IntArray, cloning: IntArray, batch: Batch) -> AgreementOverTime:
    """At every step, how many held-out decisions two policies meet by the actions ``[N, T]`` that they would choose."""
    going = batch.mask[:, : int(batch.lengths.max())].sum(axis=0)
    return AgreementOverTime(tuple(going), *(tuple(accuracy_by_step(chosen, batch)) for chosen in (cirl, cloning)))
