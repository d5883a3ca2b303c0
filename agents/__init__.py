"""Policies: the successor-feature agent, DRQN, RecurrentPPO, the stochastic expert, behaviour cloning.

The names below are loaded when they are first used: importing this package loads neither torch nor Stable-Baselines3.
"""

from importlib import import_module
from typing import Any, Literal, TypeAlias, get_args

Solver: TypeAlias = Literal["successor", "drqn", "recurrent_ppo"]
"""Who solves a world for a policy: successor features, recurrent Q-learning, or RecurrentPPO of sb3-contrib."""
SOLVERS: tuple[Solver, ...] = get_args(Solver)
MuSource: TypeAlias = Literal["successor", "mu_learning", "rollouts"]
"""Where feature expectations come from: the same agent, mu-learning (the paper), or roll-outs in the world model."""

_HOMES = {
    "CloningPolicy": "agents.policies.cloning",
    "DRQN": "agents.drqn.drqn",
    "DSFN": "agents.dsfn.dsfn",
    "Expert": "agents.expert",
    "RecurrentPPOConfig": "agents.ppo.settings",
    "SIX_SETTINGS": "agents.solvers",
    "Setting": "agents.solvers",
    "SuccessorAgent": "agents.successor.agent",
    "fit_cloning": "agents.policies.cloning",
    "load_expert": "agents.solvers",
    "ready_expert": "agents.solvers",
    "save_expert": "agents.solvers",
    "train_expert": "agents.solvers",
    "train_recurrent_ppo": "agents.ppo.ppo",
}

__all__ = ["SOLVERS", "MuSource", "Solver", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agents' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
