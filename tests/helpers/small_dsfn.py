"""DSFN fitted in moments, and in seconds where the five-state patient is to be solved."""

from __future__ import annotations

import numpy as np

from agents.dsfn import DSFNConfig, TDConfig, WarmStartSizes
from cirl_gym.data.features import FeatureMap
from cirl_gym.outcome_models.training import TrainingConfig

QUICK = TDConfig(8, 12, 32, 1e-2, 0.2)
TINY = DSFNConfig(WarmStartSizes(8, 6), TrainingConfig(epochs=2, learning_rate=0.01), mu=QUICK, q=QUICK)
WITH_MEMORY = TINY.with_history(5)
SETTLED = TDConfig(32, 500, 128, 1e-2, 0.1)
FIVE = DSFNConfig(
    WarmStartSizes(32, 16),
    TrainingConfig(epochs=6, batch_size=32, learning_rate=0.01),
    mu=SETTLED,
    q=SETTLED,
    horizon_is_terminal=False,
)
BURDEN = FeatureMap(("disease", "side effects"), np.zeros(2), np.ones(2))
