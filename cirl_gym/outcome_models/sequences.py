"""Walking histories step by step: what every outcome model needs and none should write again."""

from __future__ import annotations

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.types import Float32Array, OutcomeModel


def fold(model: OutcomeModel, batch: Batch) -> Float32Array:
    """States ``[N, T+1, S]`` of every history by starting and advancing; zero past an episode's end."""
    state = model.start(batch.start)
    states = [state]
    for step in range(batch.horizon):
        state = model.advance(state, batch.actions[:, step], batch.obs[:, step + 1])
        states.append(state)
    return np.where(batch.seen[..., None], np.stack(states, axis=1), np.float32(0.0))
