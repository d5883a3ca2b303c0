"""Preferences: from what experts did to what they were trading off.

The loop itself, :func:`irl.max_margin.max_margin`, is not repeated here: it would hide the module of its name.
"""

from cirl_gym.weight_sphere import draw_weights, normalised
from irl.feature_expectations import FeatureExpectation, expert_mu, phi_along
from irl.identifiability import IdentifiedSet, identified_set, not_identifiable, regret
from irl.likelihood import action_log_likelihood, bootstrap_weights, by_group
from irl.max_margin import MaxMarginResult, Round, Solution
from irl.mixture import Mixture, MixturePolicy, closest_mixture
from irl.posterior import PosteriorResult, grid_posterior, sample_posterior
from irl.projection import project

__all__ = [
    "FeatureExpectation",
    "IdentifiedSet",
    "MaxMarginResult",
    "Mixture",
    "MixturePolicy",
    "PosteriorResult",
    "Round",
    "Solution",
    "action_log_likelihood",
    "bootstrap_weights",
    "by_group",
    "closest_mixture",
    "draw_weights",
    "expert_mu",
    "grid_posterior",
    "identified_set",
    "normalised",
    "not_identifiable",
    "phi_along",
    "project",
    "regret",
    "sample_posterior",
]
