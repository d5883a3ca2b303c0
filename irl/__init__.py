"""Preferences: from what experts did to what they were trading off.

The loop itself, :func:`irl.max_margin.loop.max_margin`, is not repeated here: it would hide the module of its name.
"""

from cirl_gym.data.features import draw_weights, normalised
from irl.max_margin.feature_expectations import FeatureExpectation, expert_mu, phi_along
from irl.max_margin.loop import MaxMarginResult, Round, Solution
from irl.max_margin.mixture import Mixture, MixturePolicy, closest_mixture
from irl.max_margin.projection import project
from irl.preferences.identified_set import IdentifiedSet, identified_set, not_identifiable, regret
from irl.preferences.likelihood import action_log_likelihood, bootstrap_weights, by_group
from irl.preferences.posterior import PosteriorResult, grid_posterior, sample_posterior

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
