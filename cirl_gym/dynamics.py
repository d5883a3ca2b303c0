"""The simulator as pure functions over n patients at once (paper, section 5.1).

No function keeps state or draws a number that was not asked for: randomness comes in as a generator or as noise.
Sums over lags are written out lag by lag, so that a patient's course is the same to the last bit whether it is
computed alone or among others. Arrays are laid out with the patients next to each other (Fortran order), where NumPy
steps through them fastest; every function keeps that order, and none needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from cirl_gym.parameters import TumourParameters
from cirl_gym.types import BoolArray, FloatArray, IntArray

FEATURES = ("tumour", "side_effects")
N_ACTIONS = 2


class Constants(Protocol):
    """The constants of one step: of all patients (``[2]``, :class:`TumourParameters`) or of each (``[n, 2]``)."""

    @property
    def order(self) -> int:
        """p, number of lags."""

    @property
    def lags(self) -> Literal["repeat", "available"]:
        """What stands before t = 0."""

    @property
    def effect(self) -> FloatArray:
        """``[2]`` or ``[n, 2]`` change of (x, z) per treatment among the last p."""

    @property
    def drift(self) -> FloatArray:
        """``[2]`` or ``[n, 2]`` change of (x, z) per step without treatment."""

    @property
    def highest(self) -> FloatArray:
        """``[2]`` or ``[n, 2]`` upper bound of any observation."""


@dataclass(frozen=True)
class TumourState:
    """The last p observations and treatments of n patients, newest first."""

    course: FloatArray
    """``[n, p, 2]`` (x, z) of the last p steps; before t = 0 the first observation is repeated."""
    doses: FloatArray
    """``[n, p]`` treatments (0 or 1) of the last p steps; before t = 0 none."""
    seen: IntArray
    """``[n]`` number of observations that exist, at most p."""


def first_observations(parameters: TumourParameters, normals: FloatArray) -> FloatArray:
    """First (x, z) ``[n, 2]`` from standard normal numbers ``[n, 2]``: normal, given that they lie inside (0, limit).

    The quantile of each number is moved into the allowed part: the same law as drawing again until a value lies inside,
    with a fixed count of random numbers.
    """
    low, high = parameters.start_range
    # Quantiles of 0 and 1, which floats know beyond 8 deviations, are the limits themselves, or infinite.
    quantiles = np.minimum(np.maximum(ndtr(normals), 1e-15), 1 - 1e-15)
    start: FloatArray = parameters.start_mean + parameters.start_sd * ndtri(low + (high - low) * quantiles)
    return start


def draw_start(parameters: TumourParameters, n: int, rng: np.random.Generator) -> FloatArray:
    """First (x, z) ``[n, 2]`` of n patients."""
    return first_observations(parameters, rng.standard_normal((n, 2)))


def initial_state(parameters: Constants, start: FloatArray) -> TumourState:
    """State at t = 0 for first observations ``[n, 2]``: they are repeated into the lags, without treatment."""
    n, p = len(start), parameters.order
    state = TumourState(np.empty((n, p, 2), order="F"), np.empty((n, p), order="F"), np.empty(n, dtype=np.int64))
    restart(state, np.arange(n), start)
    return state


def restart(state: TumourState, rows: IntArray, start: FloatArray) -> None:
    """Put patients ``rows [k]`` to t = 0 with first observations ``[k, 2]``, in place."""
    state.course[rows] = start[:, None, :]
    state.doses[rows] = 0.0
    state.seen[rows] = 1


def expected_outcome(parameters: Constants, state: TumourState, actions: IntArray) -> FloatArray:
    """``[n, 2]`` next (x, z) before noise and clipping, when ``actions [n]`` are taken (equation 22, corrected)."""
    doses = np.asarray(actions, dtype=np.float64)
    for lag in range(parameters.order - 1):
        doses = doses + state.doses[:, lag]
    total = state.course[:, 0]
    if parameters.lags == "repeat":
        for lag in range(1, parameters.order):
            total = total + state.course[:, lag]
        average = total / parameters.order
    else:
        for lag in range(1, parameters.order):
            total = total + np.where((lag < state.seen)[:, None], state.course[:, lag], 0.0)
        average = total / state.seen[:, None]
    pushed = np.multiply(parameters.effect, doses[:, None], order="F")
    return average + pushed + parameters.drift


def transition(parameters: Constants, state: TumourState, actions: IntArray, noise: FloatArray) -> TumourState:
    """State after ``actions [n]`` with noise ``[n, 2]`` in raw units (zeros: the noise-free course)."""
    outcome = expected_outcome(parameters, state, actions) + noise
    # Not np.clip, which takes longer for so few numbers.
    return append(state, actions, np.minimum(np.maximum(outcome, 0.0), parameters.highest))


def append(state: TumourState, actions: IntArray, obs: FloatArray) -> TumourState:
    """State after ``actions [n]``, whatever has led to the observations ``[n, 2]`` that followed."""
    course, doses = np.empty(state.course.shape, order="F"), np.empty(state.doses.shape, order="F")
    course[:, 0], course[:, 1:] = obs, state.course[:, :-1]
    doses[:, 0], doses[:, 1:] = actions, state.doses[:, :-1]
    return TumourState(course, doses, np.minimum(state.seen + 1, state.doses.shape[1]))


def observe(state: TumourState) -> FloatArray:
    """``[n, 2]`` the current (x, z)."""
    return state.course[:, 0].copy()


def terminal(parameters: TumourParameters, state: TumourState) -> BoolArray:
    """``[n]`` the process ended: cured (x = 0), or a limit was reached."""
    current = state.course[:, 0]
    reached = current >= parameters.limits
    ended: BoolArray = (current[:, 0] <= 0) | reached[:, 0] | reached[:, 1]
    return ended


def end_probability(parameters: TumourParameters, state: TumourState, actions: IntArray) -> FloatArray:
    """``[n]`` probability that the next state is :func:`terminal`, from the normal noise of equation 22."""
    expected = expected_outcome(parameters, state, actions)
    scale = np.maximum(parameters.noise, 1e-12)
    below = ndtr((parameters.limits - expected) / scale)
    cured = ndtr(-expected[:, 0] / scale[0])
    ended: FloatArray = 1.0 - np.maximum(below[:, 0] - cured, 0.0) * below[:, 1]
    return ended
