"""How a policy acts: it scores every action, leaves out what rules forbid, and takes the best one or draws.

:class:`ScoringPolicy` is what all policies of this project share, :class:`RecurrentPolicy` those that read the history
themselves. The policies here need no agent: the expert's copy (:class:`CloningPolicy`), and habits that look at no
patient.
"""

from agents.policies.cloning import CloningConfig, CloningPolicy, fit_cloning
from agents.policies.policy import ConstantPolicy, RecurrentPolicy, Repeating, ScoringPolicy, WithinRules

__all__ = [
    "CloningConfig",
    "CloningPolicy",
    "ConstantPolicy",
    "RecurrentPolicy",
    "Repeating",
    "ScoringPolicy",
    "WithinRules",
    "fit_cloning",
]
