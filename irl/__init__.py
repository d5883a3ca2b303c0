"""Preferences: from what experts did to what they were trading off.

:func:`irl.fit` does it all, from batches to weights with intervals; its parts stand in :mod:`irl.max_margin`,
:mod:`irl.preferences`, :mod:`irl.checks` and :mod:`irl.studies`, and what a run writes in :mod:`irl.result`. The names
below are loaded when they are first used: importing this package loads neither torch nor pandas.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "DemoConfig": "irl.settings",
    "ExplainConfig": "irl.settings",
    "FeatureExpectation": "irl.max_margin",
    "Fit": "irl.pipeline",
    "FitConfig": "irl.settings",
    "IdentifiedSet": "irl.preferences",
    "MaxMarginResult": "irl.max_margin",
    "Mixture": "irl.max_margin",
    "MixturePolicy": "irl.max_margin",
    "PosteriorResult": "irl.preferences",
    "Result": "irl.result.result",
    "Run": "irl.run",
    "Study": "irl.pipeline",
    "action_log_likelihood": "irl.preferences",
    "bootstrap_weights": "irl.preferences",
    "by_group": "irl.preferences",
    "closest_mixture": "irl.max_margin",
    "draw_weights": "cirl_gym.data.features",
    "expert_mu": "irl.max_margin",
    "fit": "irl.pipeline",
    "grid_posterior": "irl.preferences",
    "identified_set": "irl.preferences",
    "normalised": "cirl_gym.data.features",
    "not_identifiable": "irl.preferences",
    "phi_along": "irl.max_margin",
    "project": "irl.max_margin",
    "regret": "irl.preferences",
    "sample_posterior": "irl.preferences",
    "simulate": "irl.pipeline",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'irl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
