"""Policies: the successor-feature agent, DRQN, RecurrentPPO, the stochastic expert, behaviour cloning.

The names below are loaded when they are first used: importing this package loads neither torch nor Stable-Baselines3.
"""

from typing import Literal, TypeAlias, get_args

from cirl_gym.lazy import attach

Solver: TypeAlias = Literal["successor", "drqn", "recurrent_ppo"]
"""Who solves a world for a policy: successor features, recurrent Q-learning, or RecurrentPPO of sb3-contrib."""
SOLVERS: tuple[Solver, ...] = get_args(Solver)
MuSource: TypeAlias = Literal["successor", "mu_learning", "rollouts"]
"""Where feature expectations come from: the same agent, mu-learning (the paper), or roll-outs in the world model."""

__getattr__, __dir__, _later = attach(
    __name__,
    {
        ".avril": "AVRIL fit_avril",
        ".drqn.drqn": "DRQN",
        ".dsfn": "DSFN",
        ".expert": "Expert",
        ".iq_learn": "IQLearn fit_iq_learn",
        ".policies.cloning": "CloningPolicy fit_cloning",
        ".ppo": "train_recurrent_ppo",
        ".ppo_settings": "RecurrentPPOConfig",
        ".solvers": "SIX_SETTINGS Setting load_expert ready_expert save_expert train_expert",
        ".successor.agent": "SuccessorAgent",
    },
)

__all__ = ["SOLVERS", "MuSource", "Solver", *_later]
