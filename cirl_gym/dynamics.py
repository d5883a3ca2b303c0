"""The simulator as pure functions over n patients at once (paper, section 5.1).

No function keeps state or draws a number that was not asked for: randomness comes in as a generator or as noise.
Sums over lags are written out lag by lag, so that a patient's course is the same to the last bit whether it is
computed alone or among others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from cirl_gym.parameters import TumourParameters
from cirl_gym.types import BoolArray, FloatArray, IntArray

FEATURES = ("tumour", "side_effects")
N_ACTIONS = 2


@dataclass(frozen=True)
class TumourState:
    """The last p observations and treatments of n patients, newest first."""

    course: FloatArray
    """``[n, p, 2]`` (x, z) of the last p steps; before t = 0 the first observation is repeated."""
    doses: FloatArray
    """``[n, p]`` treatments (0 or 1) of the last p steps; before t = 0 none."""
    seen: IntArray
    """``[n]`` number of observations that exist, at most p."""


def draw_start(parameters: TumourParameters, n: int, rng: np.random.Generator) -> FloatArray:
    """First observations ``[n, 2]``, redrawn until each lies inside (0, limit)."""
    start = np.empty((n, 2))
    pending = np.ones((n, 2), dtype=np.bool_)
    while pending.any():
        draw = parameters.start_mean + parameters.start_sd * rng.standard_normal((n, 2))
        start = np.where(pending, draw, start)
        pending = (start <= 0) | (start >= parameters.limits)
    return start


def initial_state(parameters: TumourParameters, start: FloatArray) -> TumourState:
    """State at t = 0 for first observations ``[n, 2]``: they are repeated into the lags, without treatment."""
    n = len(start)
    course = np.repeat(np.asarray(start, dtype=np.float64)[:, None, :], parameters.order, axis=1)
    return TumourState(course, np.zeros((n, parameters.order)), np.ones(n, dtype=np.int64))


def expected_outcome(parameters: TumourParameters, state: TumourState, actions: IntArray) -> FloatArray:
    """``[n, 2]`` next (x, z) before noise and clipping, when ``actions [n]`` are taken (equation 22, corrected)."""
    doses = np.asarray(actions, dtype=np.float64)
    for lag in range(parameters.order - 1):
        doses = doses + state.doses[:, lag]
    if parameters.lags == "repeat":
        total = state.course[:, 0]
        for lag in range(1, parameters.order):
            total = total + state.course[:, lag]
        average = total / parameters.order
    else:
        total = state.course[:, 0]
        for lag in range(1, parameters.order):
            total = total + np.where((lag < state.seen)[:, None], state.course[:, lag], 0.0)
        average = total / state.seen[:, None]
    return average + parameters.effect * doses[:, None] + parameters.drift


def transition(parameters: TumourParameters, state: TumourState, actions: IntArray, noise: FloatArray) -> TumourState:
    """State after ``actions [n]`` with noise ``[n, 2]`` in raw units (zeros: the noise-free course)."""
    outcome = expected_outcome(parameters, state, actions) + noise
    outcome = np.clip(outcome, 0.0, parameters.highest)
    return TumourState(
        np.concatenate([outcome[:, None, :], state.course[:, :-1]], axis=1),
        np.concatenate([np.asarray(actions, dtype=np.float64)[:, None], state.doses[:, :-1]], axis=1),
        np.minimum(state.seen + 1, parameters.order),
    )


def observe(state: TumourState) -> FloatArray:
    """``[n, 2]`` the current (x, z)."""
    return state.course[:, 0].copy()


def terminal(parameters: TumourParameters, state: TumourState) -> BoolArray:
    """``[n]`` the process ended: cured (x = 0), or a limit was reached."""
    current = state.course[:, 0]
    return (current[:, 0] <= 0) | (current >= parameters.limits).any(axis=1)


def end_probability(parameters: TumourParameters, state: TumourState, actions: IntArray) -> FloatArray:
    """``[n]`` probability that the next state is :func:`terminal`, from the normal noise of equation 22."""
    expected = expected_outcome(parameters, state, actions)
    scale = np.maximum(parameters.noise, 1e-12)
    below = ndtr((parameters.limits - expected) / scale)
    cured = ndtr(-expected[:, 0] / scale[0])
    ended: FloatArray = 1.0 - np.maximum(below[:, 0] - cured, 0.0) * below[:, 1]
    return ended
