"""The simulator (paper, section 5.1): its constants, with unit and source, and pure functions over n patients at once.

:class:`TumourWorld` is all of it as a rollout acts in it. No function keeps state or draws a number that was not asked
for: randomness comes in as a generator or as noise. Sums over lags are written out lag by lag, so that a patient's
course is the same to the last bit whether it is computed alone or among others. Arrays are laid out with the patients
next to each other (Fortran order), where NumPy steps through them fastest; every function keeps that order, and none
needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from cirl_gym.data.features import FeatureMap
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Step

FEATURES = ("tumour", "side_effects")
N_ACTIONS = 2


@dataclass(frozen=True)
class TumourParameters:
    """Constants of the auto-regressive simulator (paper, section 5.1; volumes and side effects in the paper's units).

    With order p, tumour volume x, side effects z and binary treatment a::

        x_t = mean(x_{t-1..t-p}) + tumour_effect * sum(a_{t-1..t-p}) + tumour_drift + eps
        z_t = mean(z_{t-1..t-p}) + side_effect * sum(a_{t-1..t-p}) + side_drift + eta

    The z line is a correction. The paper prints ``+ 0.5 sum(a) - p``: with p = 5 that falls by at least 2.5 whatever
    is done, so that treatment could never raise side effects, against the paper's own text. Exchanging the two printed
    coefficients (``+ 1.0 sum(a) - 0.5 p``) restores every property that the text claims. The printed line is
    :meth:`as_printed`.

    Raises:
        ValueError: a constant is not finite, a limit or scale is not positive, or the order or horizon is below 1.
    """

    order: int = 5
    """p, number of lags (paper: 5)."""
    tumour_effect: float = -2.5
    """Change of volume per treatment among the last p (paper: -2.5)."""
    tumour_drift: float = 2.5
    """Growth per step (paper: 0.5 p)."""
    side_effect: float = 1.0
    """Change of side effects per treatment among the last p (paper prints 0.5; see above)."""
    side_drift: float = -2.5
    """Recovery per step (paper prints -p; see above)."""
    tumour_noise: float = 0.1
    """Standard deviation of eps (paper: N(0, 0.1^2))."""
    side_noise: float = 0.1
    """Standard deviation of eta (paper: N(0, 0.1^2))."""
    tumour_start_mean: float = 30.0
    """Mean of x_0 (paper: N(30, 5))."""
    tumour_start_sd: float = 5.0
    """Standard deviation of x_0 (paper: N(30, 5), read as a standard deviation)."""
    side_start_mean: float = 2.0
    """Mean of z_0 (paper: N(2, 1))."""
    side_start_sd: float = 1.0
    """Standard deviation of z_0 (paper: N(2, 1))."""
    tumour_max: float = 50.0
    """x_max: the episode ends at this volume, and outcomes are divided by it (paper: 50)."""
    side_max: float = 15.0
    """z_max: the episode ends at these side effects, and outcomes are divided by it (paper: 15)."""
    horizon: int = 20
    """Largest number of actions (paper: 20)."""
    lags: Literal["repeat", "available"] = "repeat"
    """Before t = 0: repeat x_0 and z_0 (default), or average only over the observations that exist."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "lags":
                if value not in ("repeat", "available"):
                    raise ValueError(f"TumourParameters.lags must be 'repeat' or 'available', got {value!r}")
            elif not isinstance(value, int | float) or not math.isfinite(value):
                raise ValueError(f"TumourParameters.{field.name} must be finite, got {value!r}")
        for name in ("order", "horizon"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"TumourParameters.{name} must be a whole number of at least 1, got {value!r}")
        for name in ("tumour_max", "side_max"):
            if getattr(self, name) <= 0:
                raise ValueError(f"TumourParameters.{name} must be positive, got {getattr(self, name)!r}")
        for name in ("tumour_noise", "side_noise", "tumour_start_sd", "side_start_sd"):
            if getattr(self, name) < 0:
                raise ValueError(f"TumourParameters.{name} must not be negative, got {getattr(self, name)!r}")
        for start, limit in (("tumour_start_mean", "tumour_max"), ("side_start_mean", "side_max")):
            # First values lie inside (0, limit): with a mean outside, hardly any of their law might.
            if not 0 < getattr(self, start) < getattr(self, limit):
                raise ValueError(
                    f"TumourParameters.{start} must lie between 0 and {limit}, got {getattr(self, start)!r}"
                )

    @classmethod
    def as_printed(cls) -> TumourParameters:
        """The z line as the paper prints it: ``+ 0.5 sum(a) - p``. Side effects are then 0 from the first step on."""
        return cls(side_effect=0.5, side_drift=-5.0)

    @cached_property
    def effect(self) -> FloatArray:
        """``[2]`` change of (x, z) per treatment among the last p."""
        return _fixed([self.tumour_effect, self.side_effect])

    @cached_property
    def drift(self) -> FloatArray:
        """``[2]`` change of (x, z) per step without treatment."""
        return _fixed([self.tumour_drift, self.side_drift])

    @cached_property
    def noise(self) -> FloatArray:
        """``[2]`` standard deviations of (eps, eta)."""
        return _fixed([self.tumour_noise, self.side_noise])

    @cached_property
    def start_mean(self) -> FloatArray:
        """``[2]`` means of (x_0, z_0)."""
        return _fixed([self.tumour_start_mean, self.side_start_mean])

    @cached_property
    def start_sd(self) -> FloatArray:
        """``[2]`` standard deviations of (x_0, z_0)."""
        return _fixed([self.tumour_start_sd, self.side_start_sd])

    @cached_property
    def start_range(self) -> FloatArray:
        """``[2, 2]`` quantiles of the normal laws of (x_0, z_0) at 0 and at their limits; only those between count."""
        scale = np.maximum(self.start_sd, 1e-300)
        return _fixed(ndtr([-self.start_mean / scale, (self.limits - self.start_mean) / scale]))

    @cached_property
    def limits(self) -> FloatArray:
        """``[2]`` (x_max, z_max)."""
        return _fixed([self.tumour_max, self.side_max])

    @cached_property
    def feature_map(self) -> FeatureMap:
        """The simulator's phi: x / x_max and z / z_max (paper, equation 23)."""
        return FeatureMap(FEATURES, np.zeros(2), self.limits)

    @cached_property
    def highest(self) -> FloatArray:
        """``[2]`` upper bound of any observation: the largest step beyond the limits, with ten deviations of noise."""
        largest_step = np.maximum(self.effect, 0.0) * self.order + self.drift
        return _fixed(self.limits + np.maximum(largest_step, 0.0) + 10.0 * self.noise)


def _fixed(values: npt.ArrayLike) -> FloatArray:
    """A read-only array: it is made once and handed to everybody."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


@dataclass(frozen=True)
class RowConstants:
    """Those of the constants of one step that differ between patients ``[n, 2]``, and the others."""

    order: int
    lags: Literal["repeat", "available"]
    limits: FloatArray
    effect: FloatArray
    drift: FloatArray
    noise: FloatArray
    highest: FloatArray

    @classmethod
    def of(cls, parameters: TumourParameters, n: int) -> RowConstants:
        """The same for n patients."""
        rows = {name: np.tile(getattr(parameters, name), (n, 1)) for name in cls._ROWS}
        return cls(parameters.order, parameters.lags, parameters.limits, **rows)

    def put(self, rows: IntArray, parameters: TumourParameters) -> None:
        """Give ``rows [k]`` other constants."""
        for name in self._ROWS:
            getattr(self, name)[rows] = getattr(parameters, name)

    _ROWS = ("effect", "drift", "noise", "highest")


Constants: TypeAlias = TumourParameters | RowConstants
"""The constants of one step: of all patients, or of each."""


class TumourState(NamedTuple):
    """The last p observations and treatments of n patients, newest first."""

    recent: FloatArray
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
    state.recent[rows] = start[:, None, :]
    state.doses[rows] = 0.0
    state.seen[rows] = 1


def expected_outcome(parameters: Constants, state: TumourState, actions: IntArray) -> FloatArray:
    """``[n, 2]`` next (x, z) before noise and clipping, when ``actions [n]`` are taken (equation 22, corrected)."""
    doses = np.asarray(actions, dtype=np.float64)
    for lag in range(parameters.order - 1):
        doses = doses + state.doses[:, lag]
    total = state.recent[:, 0]
    if parameters.lags == "repeat":
        for lag in range(1, parameters.order):
            total = total + state.recent[:, lag]
        average = total / parameters.order
    else:
        for lag in range(1, parameters.order):
            total = total + np.where((lag < state.seen)[:, None], state.recent[:, lag], 0.0)
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
    recent, doses = np.empty(state.recent.shape, order="F"), np.empty(state.doses.shape, order="F")
    recent[:, 0], recent[:, 1:] = obs, state.recent[:, :-1]
    doses[:, 0], doses[:, 1:] = actions, state.doses[:, :-1]
    return TumourState(recent, doses, np.minimum(state.seen + 1, state.doses.shape[1]))


def follow(parameters: Constants, state: TumourState, actions: IntArray, noise: FloatArray) -> Step:
    """One step of every patient, as a :class:`~cirl_gym.types.World` yields it: :func:`transition`, seen and judged."""
    state = transition(parameters, state, actions, noise)
    obs = state.recent[:, 0].astype(np.float32)
    return Step(state, obs, obs, terminal(parameters, state))


def observe(state: TumourState) -> FloatArray:
    """``[n, 2]`` the current (x, z)."""
    return state.recent[:, 0].copy()


def terminal(parameters: Constants, state: TumourState) -> BoolArray:
    """``[n]`` the process ended: cured (x = 0), or a limit was reached."""
    current = state.recent[:, 0]
    reached = current >= parameters.limits
    ended: BoolArray = (current[:, 0] <= 0) | reached[:, 0] | reached[:, 1]
    return ended


def end_probability(parameters: TumourParameters, expected: FloatArray) -> FloatArray:
    """``[n]`` probability that the next state is :func:`terminal`, from the normal noise of equation 22.

    ``expected`` ``[n, 2]`` is the :func:`expected_outcome`.
    """
    scale = np.maximum(parameters.noise, 1e-12)
    low, high, worse = (
        _normal_law((line - outcome) / noise)
        for line, outcome, noise in (
            (0.0, expected[:, 0], scale[0]),
            *zip(parameters.limits, expected.T, scale, strict=True),
        )
    )
    ended: FloatArray = 1.0 - np.maximum(high - low, 0.0) * worse
    return ended


def _normal_law(z: FloatArray) -> FloatArray:
    """``[n]`` chance that a standard normal number is below z ``[n]``: 0 or 1 to the last bit beyond 9, and no work."""
    chance = np.where(z > 0, 1.0, 0.0)
    near = np.flatnonzero(np.abs(z) < 9.0)
    chance[near] = ndtr(z[near])
    return chance


class TumourWorld:
    """The simulator (paper, section 5.1) as a :class:`~cirl_gym.types.World`."""

    features = FEATURES
    n_actions = N_ACTIONS

    def __init__(self, parameters: TumourParameters | None = None, *, noise: bool = True) -> None:
        self.parameters = parameters or TumourParameters()
        self.noise = noise

    @property
    def horizon(self) -> int:
        """Largest number of actions of an episode."""
        return self.parameters.horizon

    def reset(self, n: int, rng: np.random.Generator) -> tuple[TumourState, Float32Array]:
        """Draw n patients."""
        return self.start(draw_start(self.parameters, n, rng))

    def start(self, first: FloatArray) -> tuple[TumourState, Float32Array]:
        """Begin with given patients ``[n, 2]``."""
        state = initial_state(self.parameters, first)
        return state, observe(state).astype(np.float32)

    def step(self, state: TumourState, actions: IntArray, rng: np.random.Generator) -> Step:
        """One step of equation 22 for every patient."""
        noise = self.parameters.noise * rng.standard_normal((len(actions), 2)) if self.noise else np.zeros(2)
        return follow(self.parameters, state, actions, noise)
