"""Experts of the five-state patient whose plans are exact: weights may change with time, and gamma is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from five_state_model import FEATURES, exact, numbers
from five_states import BURDEN, MILD, NEXT, SEVERE
from small_batches import cut_off

from cirl_gym.data.batch import Batch
from cirl_gym.types import FloatArray

NEVER_ENDS = np.zeros(2)
NEGATIVE = np.array([-1.0, -1.0])


class ExactAgent:
    """psi of the optimal plan to the end of episodes of ``horizon`` steps, by dynamic programming."""

    def __init__(self, gamma: float, horizon: int) -> None:
        self.gamma, self.horizon = gamma, horizon

    def by_state(self, w: FloatArray) -> FloatArray:
        """``[T, 5, 2, 2]``."""
        return exact(self.gamma, self.horizon, lambda psi: (psi @ w).argmax(axis=-1), NEVER_ENDS)

    def psi(self, batch: Batch, w: FloatArray, width: int | None = None) -> FloatArray:
        """``[N, T, A, 2]`` along a batch, zero on padding; of several w ``[J, N, T, A, 2]``."""
        if w.ndim == 2:
            return np.stack([self.psi(batch, each) for each in w])
        psi = np.zeros((*batch.actions.shape, 2, 2))
        steps = np.nonzero(batch.mask)
        psi[steps] = self.by_state(w)[steps[1], numbers(batch.obs[:, :-1])[steps]]
        return psi


def drawn(weights: Sequence[tuple[float, float]], gamma: float, kappa: float, patients: int, seed: int) -> Batch:
    """Decisions from softmax(kappa Q) of experts who hold ``weights[t]`` at step t, to the end; watched for a while."""
    rng = np.random.default_rng(seed)
    horizon = len(weights)
    agent = ExactAgent(gamma, horizon)
    values = {w: agent.by_state(np.array(w)) @ np.array(w) for w in set(weights)}
    course, taken = [rng.choice([MILD, SEVERE], size=patients)], []
    for t, w in enumerate(weights):
        q = kappa * values[w][t, course[-1]]
        taken.append((q + rng.gumbel(size=q.shape)).argmax(axis=1))
        course.append(NEXT[course[-1], taken[-1]])
    whole = cut_off(BURDEN[np.stack(course, axis=1)], np.stack(taken, axis=1), FEATURES)
    lengths = rng.integers(horizon // 2 + 1, horizon + 1, size=patients)
    return replace(whole, lengths=lengths, ids=tuple(f"{i:04d}" for i in range(patients)))
