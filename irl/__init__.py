"""Preferences: from what experts did to what they were trading off.

:func:`irl.explain` does it all, from a table or batches; :func:`irl.fit` is its core, from batches to weights with
intervals, whose parts stand in :mod:`irl.max_margin`,
:mod:`irl.preferences`, :mod:`irl.checks` and :mod:`irl.studies`, and what a run writes in :mod:`irl.result`. The names
below are loaded when they are first used: importing this package loads neither torch nor pandas.
"""

from cirl_gym.lazy import attach

try:
    from agents import SOLVERS as _SOLVERS  # noqa: F401
except ImportError as error:  # openai-agents calls its package so too
    from importlib.util import find_spec

    _found = getattr(find_spec("agents"), "origin", None)
    raise ImportError(
        f"cirl-gym's package 'agents' is hidden by another of that name, which Python finds first ({_found}); "
        "openai-agents has one: install the two into environments of their own"
    ) from error

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "cirl_gym.data.features": "draw_weights normalised",
        ".explanation": "Explanation compare explain load",
        ".max_margin": "FeatureExpectation MaxMarginResult Mixture MixturePolicy closest_mixture expert_mu phi_along "
        "project",
        ".pipeline": "Fit fit simulate",
        ".preferences": "IdentifiedSet PosteriorResult PosteriorConfig by_group identified_set "
        "judged_preferences not_identifiable regret sample_posterior",
        ".result.result": "Result",
        ".run": "Run",
        ".settings": "DemoConfig ExplainConfig FitConfig",
        ".study": "Study",
    },
)
