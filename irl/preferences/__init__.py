"""What the experts' decisions say of the weights: likelihood, posterior with intervals, and what no data can tell.

Experts choose by softmax(b + kappa Q), habits beside values, and Q of any weights is at hand for a pool of plans, so
that a posterior costs no new solving. The identified set holds all weights under which the experts fall short of the
best policy found by no more than error and habit explain. Nothing here knows an agent.
"""

from irl.preferences.identified_set import (
    IdentifiedSet,
    expert_regret_bound,
    identified_set,
    not_identifiable,
    regret,
    sampling_tolerance,
)
from irl.preferences.inference import PosteriorConfig, judged_preferences, plan_pool
from irl.preferences.likelihood import PlanPool, by_group
from irl.preferences.posterior import PosteriorResult, SamplerReport, sample_posterior

__all__ = [
    "IdentifiedSet",
    "PlanPool",
    "PosteriorConfig",
    "PosteriorResult",
    "SamplerReport",
    "by_group",
    "expert_regret_bound",
    "identified_set",
    "judged_preferences",
    "not_identifiable",
    "plan_pool",
    "regret",
    "sample_posterior",
    "sampling_tolerance",
]
