"""The paper's own solver: recurrent networks that learn on the histories of a batch, with an outcome model's what-ifs.

:func:`learn_policy` is recurrent Q-learning (appendix D), :func:`learn_mu` mu-learning (appendix C); both are one
training (:mod:`agents.as_printed.training`) on the same :class:`Histories`. :func:`rolled_out_mu` is mu without
learning.
"""

from agents.as_printed.histories import Histories, PolicyActions
from agents.as_printed.learning import LearntMu, LearntPolicy, RollOutConfig, learn_mu, learn_policy, rolled_out_mu
from agents.as_printed.training import HistoryTrainingConfig

__all__ = [
    "Histories",
    "HistoryTrainingConfig",
    "LearntMu",
    "LearntPolicy",
    "PolicyActions",
    "RollOutConfig",
    "learn_mu",
    "learn_policy",
    "rolled_out_mu",
]
