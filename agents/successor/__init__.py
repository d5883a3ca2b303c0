"""The successor-feature agent: one training in a world model, the (near) optimal policy of any preferences.

:meth:`SuccessorAgent.fit` trains from a batch, an environment or a world; :func:`fit_successor` from a
:class:`Problem`, which says what is to be solved, and :mod:`agents.successor.planning` searches the plans.
"""

from agents.successor.agent import SuccessorAgent, SuccessorConfig, SuccessorPolicy
from agents.successor.training import Problem, fit_agent, fit_successor, fixed_weights, uniform_weights

__all__ = [
    "Problem",
    "SuccessorAgent",
    "SuccessorConfig",
    "SuccessorPolicy",
    "fit_agent",
    "fit_successor",
    "fixed_weights",
    "uniform_weights",
]
