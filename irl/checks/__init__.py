"""How far an answer can be trusted: held-out decisions, the truth where it is known, and planning held to its word.

Decisions that nothing was learnt from are foreseen by the preferences and by what knows none (accuracy of appendix H,
log-likelihood); recovered weights and intervals are held against true ones; and what plans promise against what
policies reach in the same world model. The names below are loaded when they are first used: some need torch.
"""

from cirl_gym.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".chances": "judged_chances",
        ".metrics": "Coverage HeldOutConfig accuracy accuracy_by_step ceiling coverage held_out_likelihood "
        "held_out_plans same_order weight_error",
        ".predictors": "Boosting LastActionTable Predictor",
        ".quality": "PlannedAndReached QualityConfig planned_and_reached quality_control",
    },
)
