"""n patients in the simulator, each with random numbers of its own: the core of both CIRLTumour-v0 environments.

A patient's numbers are drawn from the patient's own generator in a fixed order: at the beginning those of the first
observation and of a block of steps, and where an episode goes on, the next block. So a patient's course is the same to
the last bit whether it is simulated alone or among others, and stepping many patients needs no loop over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cirl_gym import dynamics
from cirl_gym.dynamics import TumourState
from cirl_gym.features import FeatureMap
from cirl_gym.parameters import TumourParameters
from cirl_gym.reward import check_weights, reward
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

NOISE_BLOCK = 20
"""Steps of noise drawn at once. A constant, so that another time limit leaves the numbers of an episode alone."""


class CohortStep(NamedTuple):
    """What one action did to each of n patients."""

    obs: Float32Array
    """``[n, 2]`` (x, z), raw units."""
    phi: FloatArray
    """``[n, 2]`` scaled outcomes (x / x_max, z / z_max)."""
    rewards: FloatArray
    """``[n]`` w . phi."""
    terminated: BoolArray
    """``[n]`` the process ended."""


class Cohort:
    """n patients with a state; the caller decides when each begins and what ends an episode besides the process."""

    def __init__(self, parameters: TumourParameters, weights: npt.ArrayLike, n: int) -> None:
        self.parameters = parameters
        self.weights = check_weights(weights, dynamics.FEATURES)
        self.feature_map = FeatureMap.from_parameters(parameters, dynamics.FEATURES)
        self.previous: IntArray = np.full(n, -1, dtype=np.int64)
        """``[n]`` the previous action; -1 before the first."""
        self.steps: IntArray = np.zeros(n, dtype=np.int64)
        """``[n]`` number of actions of the current episode."""
        self._state = dynamics.initial_state(parameters, np.zeros((n, 2)))
        self._noise = np.zeros((n, NOISE_BLOCK, 2))
        self._generators: list[np.random.Generator | None] = [None] * n

    @property
    def obs(self) -> Float32Array:
        """``[n, 2]`` the current (x, z), raw units."""
        return dynamics.observe(self._state).astype(np.float32)

    def begin(self, rows: IntArray, generators: Sequence[np.random.Generator], patients: FloatArray | None) -> None:
        """Begin an episode in ``rows [k]``, with one generator each and given first (x, z) ``[k, 2]`` or drawn ones."""
        normals = np.empty((len(rows), 1 + NOISE_BLOCK, 2))
        for k, (i, rng) in enumerate(zip(rows, generators, strict=True)):
            rng.standard_normal(out=normals[k])
            self._generators[i] = rng
        # The first row is drawn for given patients too: the noise of a seed is the same with any patient.
        starts = _starts(self.parameters, normals[:, 0], generators) if patients is None else patients
        self._noise[rows] = self.parameters.noise * normals[:, 1:]
        fresh = dynamics.initial_state(self.parameters, starts)
        state = TumourState(self._state.course.copy(), self._state.doses.copy(), self._state.seen.copy())
        state.course[rows], state.doses[rows], state.seen[rows] = fresh.course, fresh.doses, fresh.seen
        self._state = state
        self.previous, self.steps = self.previous.copy(), self.steps.copy()
        self.previous[rows], self.steps[rows] = -1, 0

    def step(self, actions: IntArray, going: BoolArray) -> CohortStep:
        """Apply ``actions [n]``. Rows that are not ``going`` yield numbers without meaning until they begin again."""
        position = self.steps % NOISE_BLOCK
        for i in np.flatnonzero(going & (position == 0) & (self.steps > 0)):
            rng = self._generators[i]
            assert rng is not None  # a patient that has made a step has begun
            self._noise[i] = self.parameters.noise * rng.standard_normal((NOISE_BLOCK, 2))
        noise = self._noise[np.arange(len(actions)), position]
        self._state = dynamics.transition(self.parameters, self._state, actions, noise)
        self.previous = actions
        self.steps = self.steps + going
        obs = self.obs
        phi = self.feature_map(obs)
        return CohortStep(obs, phi, reward(phi, self.weights), dynamics.terminal(self.parameters, self._state))


def _starts(parameters: TumourParameters, normals: FloatArray, generators: Sequence[np.random.Generator]) -> FloatArray:
    """First (x, z) ``[k, 2]`` from standard normal numbers ``[k, 2]``, redrawn until each lies inside (0, limit)."""
    starts = parameters.start_mean + parameters.start_sd * normals
    outside = (starts <= 0) | (starts >= parameters.limits)
    for k in np.flatnonzero(outside.any(axis=1)):
        while outside[k].any():
            again = parameters.start_mean + parameters.start_sd * generators[int(k)].standard_normal(2)
            starts[k] = np.where(outside[k], again, starts[k])
            outside[k] = (starts[k] <= 0) | (starts[k] >= parameters.limits)
    return starts
