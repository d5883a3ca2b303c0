"""The max-margin core of the paper (Algorithm 1): feature expectations, the projection loop, mixtures of its policies.

Feature expectations mu are discounted sums of outcomes, of the experts along their own histories and of policies. The
loop looks for weights whose optimal policy has the experts' mu, and the mixture is the blend of all policies found
whose mu is nearest to theirs. Whatever solves for a policy is handed in: nothing here knows an agent.
"""

from irl.max_margin.loop import (
    REASONS,
    FeatureExpectation,
    MaxMarginResult,
    Projection,
    Round,
    Solution,
    Stop,
    expert_mu,
    max_margin,
    phi_along,
    project,
)
from irl.max_margin.mixture import Mixture, MixturePolicy, closest_mixture

__all__ = [
    "REASONS",
    "FeatureExpectation",
    "MaxMarginResult",
    "Mixture",
    "MixturePolicy",
    "Projection",
    "Round",
    "Solution",
    "Stop",
    "closest_mixture",
    "expert_mu",
    "max_margin",
    "phi_along",
    "project",
]
