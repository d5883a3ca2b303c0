"""The noise-free optimum by exhaustive search: all 2^T treatment plans of one patient at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cirl_gym import dynamics
from cirl_gym.dynamics import TumourState
from cirl_gym.parameters import TumourParameters
from cirl_gym.types import FloatArray


def optimal_values(
    parameters: TumourParameters, start: FloatArray, settings: Sequence[tuple[FloatArray, float]]
) -> FloatArray:
    """Largest discounted return from the patient ``start [2]``, one per setting (w, gamma).

    A plan's branch stops where the process ends, so every plan is valued exactly once.
    """
    state = dynamics.initial_state(parameters, np.asarray(start, dtype=np.float64)[None])
    earned = np.zeros((1, len(settings)))
    best = np.full(len(settings), -np.inf)
    for step in range(parameters.horizon):
        n = len(state.seen)
        both = TumourState(*(np.concatenate([part, part]) for part in (state.course, state.doses, state.seen)))
        actions = np.repeat(np.arange(2), n)
        state = dynamics.transition(parameters, both, actions, np.zeros(2))
        scaled = state.course[:, 0] / parameters.limits
        rewards = np.stack([gamma**step * (scaled @ w) for w, gamma in settings], axis=1)
        earned = np.concatenate([earned, earned]) + rewards
        ended = dynamics.terminal(parameters, state)
        if step == parameters.horizon - 1:
            ended[:] = True
        if ended.any():
            best = np.maximum(best, earned[ended].max(axis=0))
            going = ~ended
            state = TumourState(state.course[going], state.doses[going], state.seen[going])
            earned = earned[going]
    return best
