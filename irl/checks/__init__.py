"""How far an answer can be trusted: held-out decisions, the truth where it is known, and planning held to its word.

Decisions that nothing was learnt from are foreseen by the preferences and by what knows none (accuracy of appendix H,
log-likelihood); recovered weights and intervals are held against true ones; and what plans promise against what
policies reach in the same world model. The names below are loaded when they are first used: some need torch.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "Coverage": "metrics",
    "HeldOutConfig": "held_out",
    "PlannedAndReached": "quality",
    "QualityConfig": "quality",
    "accuracy": "metrics",
    "accuracy_by_step": "metrics",
    "ceiling": "metrics",
    "coverage": "metrics",
    "held_out_likelihood": "held_out",
    "held_out_plans": "held_out",
    "planned_and_reached": "quality",
    "quality_control": "quality",
    "same_order": "metrics",
    "weight_error": "metrics",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'irl.checks' has no attribute {name!r}")
    return getattr(import_module(f"irl.checks.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
