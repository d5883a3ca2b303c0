"""Offline data: batches of episodes, what a reward weighs in them, which actions rules leave, and the rollout loop.

A :class:`Batch` holds N episodes; a :class:`FeatureMap` scales outcomes, observed or computed
(:mod:`cirl_gym.data.outcomes`), to phi; :class:`ActionRules` say what was allowed; :func:`rollout` plays a policy in a
world. What a model of outcomes promises is an :class:`OutcomeModel`. Nothing here knows a simulator, a table or a
network.
"""

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.known import with_known
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.outcomes import (
    Above,
    Below,
    Change,
    Column,
    Given,
    Outside,
    Product,
    Switched,
    read_outcome,
    with_lags,
)
from cirl_gym.data.rollout import act_along, returns, rollout
from cirl_gym.data.rules import ActionRules, read_rules

__all__ = [
    "Above",
    "ActionRules",
    "Batch",
    "Below",
    "Change",
    "Column",
    "FeatureMap",
    "Given",
    "OutcomeModel",
    "Outside",
    "Product",
    "Switched",
    "act_along",
    "read_outcome",
    "read_rules",
    "returns",
    "rollout",
    "with_known",
    "with_lags",
]
