"""The exact optimum of the simulator without noise: every plan of one patient, tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cirl_gym.data.features import check_weights
from cirl_gym.types import FloatArray, IntArray
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import TumourParameters, TumourState

LONGEST = 24
"""More steps would need more than a few gigabytes."""


class Optimum(NamedTuple):
    """The best plans of n patients for K criteria."""

    values: FloatArray
    """``[n, K]`` largest discounted noise-free return."""
    plans: IntArray
    """``[n, K, T]`` actions of a plan that earns it; 0 after the process has ended."""


def optimum(
    parameters: TumourParameters, starts: npt.ArrayLike, criteria: Sequence[tuple[npt.ArrayLike, float]]
) -> Optimum:
    """What nobody can exceed without noise, from given first observations.

    All 2^T plans of a patient are followed at once, and plans that agree until the process ends are one plan: about a
    second a patient at T = 20, whatever the number of criteria.

    Args:
        parameters: the simulator; its noise is left out.
        starts: ``[n, 2]`` first (x, z), raw units.
        criteria: K pairs of weights ``[2]`` and discount factor in [0, 1].

    Raises:
        ValueError: weights, a discount factor or starts are not possible, or the horizon is too long to try every plan.
    """
    patients = np.asarray(starts, dtype=np.float64)
    if patients.ndim != 2 or patients.shape[1] != 2 or not np.isfinite(patients).all():
        raise ValueError(f"starts must be finite numbers [n, 2], got shape {patients.shape}")
    if parameters.horizon > LONGEST:
        raise ValueError(f"2^{parameters.horizon} plans are too many to try; the horizon must be at most {LONGEST}")
    weights = np.stack([check_weights(w, tumour.FEATURES) for w, _ in criteria], axis=1)
    gammas = np.array([gamma for _, gamma in criteria], dtype=np.float64)
    if not ((gammas >= 0) & (gammas <= 1)).all():
        raise ValueError(f"discount factors must lie between 0 and 1, got {gammas.tolist()}")
    found = [_best(parameters, patient, weights, gammas) for patient in patients]
    shape = (len(patients), len(gammas))
    values = np.array([value for value, _ in found]).reshape(shape)
    numbers = np.array([number for _, number in found], dtype=np.int64).reshape(shape)
    return Optimum(values, (numbers[..., None] >> np.arange(parameters.horizon)) & 1)


def _best(
    parameters: TumourParameters, patient: FloatArray, weights: FloatArray, gammas: FloatArray
) -> tuple[FloatArray, IntArray]:
    """Best value and plan of one patient, ``[K]`` each; a plan is a number whose bit t is the action at t."""
    phi_of = parameters.feature_map
    state = tumour.initial_state(parameters, patient[None])
    numbers: IntArray = np.zeros(1, dtype=np.int64)
    earned = np.zeros((1, len(gammas)))
    best, best_number = np.full(len(gammas), -np.inf), np.zeros(len(gammas), dtype=np.int64)
    for t in range(parameters.horizon):
        actions = np.repeat(np.arange(2), len(numbers))
        both = TumourState(*(np.concatenate([part, part]) for part in (state.course, state.doses, state.seen)))
        state = tumour.transition(parameters, both, actions, np.zeros(2))
        numbers = np.concatenate([numbers, numbers]) | (actions << t)
        # Observations are float32 in every environment, and the reward is computed from them.
        phi = phi_of(tumour.observe(state).astype(np.float32))
        earned = np.concatenate([earned, earned]) + gammas**t * (phi @ weights)
        over = tumour.terminal(parameters, state) | (t == parameters.horizon - 1)
        if over.any():
            first = earned[over].argmax(axis=0)
            value = np.take_along_axis(earned[over], first[None], axis=0)[0]
            best_number = np.where(value > best, numbers[over][first], best_number)
            best = np.maximum(best, value)
        going = ~over
        state = TumourState(state.course[going], state.doses[going], state.seen[going])
        numbers, earned = numbers[going], earned[going]
    return best, best_number
