"""Outcome models: what would happen to this patient under each action.

:func:`fit_outcome_model` fits any kind: a linear law, and a network (CRN, RMSN, MB(h), MB(x)) that corrects it where
that predicts better; :func:`save_model` and :func:`load_model` keep one as a file; :class:`OracleModel` is the
simulator in its place; :class:`MaskedModel` adds rules about which actions are allowed, :class:`KnowingModel` outcomes
that are known exactly; :func:`factual_error` and its neighbours say how wrong a model is. This is the only place in
cirl_gym that needs torch: the names below are loaded when they are first used.
"""

from cirl_gym.lazy import attach

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".errors": "PredictionError counterfactual_error factual_ahead factual_error flipped_ahead",
        ".fitting": "FittedOutcomeModel OutcomeModelConfig fit_outcome_model",
        ".inputs": "KINDS Kind NETWORK_KINDS NetworkKind",
        ".known": "KnowingModel knowing",
        ".masked": "MaskedModel with_rules without_rules",
        ".model": "EnsembleModel LearnedModel",
        ".networks": "CRNConfig MLPConfig RMSNConfig RNNConfig",
        ".oracle": "OracleModel",
        ".store": "load_model save_model",
        ".training": "NotFiniteError TrainingConfig Watch",
    },
)
