"""What is not known of the outcomes, carried on to the weights: the same inference under each model of an ensemble.

Every member of the ensemble is a world of its own, in which candidate policies are solved and the experts' decisions
judged anew. What the members' posteriors have between them is then the interval: it holds the error of the outcome
model and, since each is solved with other random numbers, that of the solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cirl_gym.even_rows import even_rows
from cirl_gym.types import FloatArray
from irl.posterior import PosteriorResult

TAILS = (0.05, 0.95)


@dataclass(frozen=True)
class MemberFinding:
    """What one member of the ensemble says."""

    mu_expert: FloatArray
    """``[d]`` feature expectation of the experts, whose outcomes it predicts."""
    mu_recovered: FloatArray
    """``[d]`` that of the policy which is optimal for its weights, in its own world."""
    posterior: PosteriorResult
    """Of the weights in its world."""


def with_model_spread(posterior: PosteriorResult, members: Sequence[MemberFinding]) -> PosteriorResult:
    """The posterior whose intervals and draws are those of all members together; means and medians stay.

    Args:
        posterior: under the ensemble's mean prediction.
        members: at least one.

    Raises:
        ValueError: there are no members.
    """
    if not members:
        raise ValueError("with_model_spread: there are no members")
    every = [posterior, *(member.posterior for member in members)]
    # As many draws of each: a mixture with equal shares.
    n = min(len(one.draws) for one in every)
    kept = [even_rows(len(one.draws), n) for one in every]
    draws = np.concatenate([one.draws[rows] for one, rows in zip(every, kept, strict=True)])
    kappas = np.concatenate([one.kappa_draws[rows] for one, rows in zip(every, kept, strict=True)])
    low, high = np.quantile(draws, TAILS, axis=0)
    kappa_low, kappa_high = np.quantile(kappas, TAILS)
    return replace(
        posterior,
        # Each member's own interval may be wider than its draws say (a bootstrap over patients).
        low=np.minimum(low, posterior.low),
        high=np.maximum(high, posterior.high),
        kappa_low=min(float(kappa_low), posterior.kappa_low),
        kappa_high=max(float(kappa_high), posterior.kappa_high),
        draws=draws,
        kappa_draws=kappas,
    )
