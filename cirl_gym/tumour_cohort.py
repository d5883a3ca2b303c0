"""n patients in the simulator: the core of both forms of CIRLTumour-v0 (paper, section 5.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cirl_gym import dynamics
from cirl_gym.action_rules import ActionRules
from cirl_gym.cohort import AHEAD, CohortStep, Histories
from cirl_gym.dynamics import TumourState
from cirl_gym.features import FeatureMap
from cirl_gym.layout import Form, Layout
from cirl_gym.parameters import TumourParameters
from cirl_gym.reset_options import check_arguments, merged
from cirl_gym.reward import check_weights, reward
from cirl_gym.rollout import numbered_actions
from cirl_gym.row_streams import RowStreams
from cirl_gym.ruled_cohort import rules_given
from cirl_gym.time_limit import time_limit
from cirl_gym.tumour_options import OPTIONS, TumourOptions, TumourStart, tumour_start
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

ACTION_NAMES = ("wait", "treat")


@dataclass(frozen=True)
class RowConstants:
    """The constants of each patient, where they are not the same for all (:class:`~cirl_gym.dynamics.Constants`)."""

    order: int
    lags: Literal["repeat", "available"]
    effect: FloatArray
    drift: FloatArray
    noise: FloatArray
    highest: FloatArray

    @classmethod
    def of(cls, parameters: TumourParameters, n: int) -> RowConstants:
        """The same for n patients: arrays ``[n, 2]``."""
        rows = {name: np.tile(getattr(parameters, name), (n, 1)) for name in _ROWS}
        return cls(parameters.order, parameters.lags, **rows)

    def put(self, rows: IntArray, parameters: TumourParameters) -> None:
        """Give ``rows [k]`` other constants."""
        for name in _ROWS:
            getattr(self, name)[rows] = getattr(parameters, name)


_ROWS = ("effect", "drift", "noise", "highest")


class TumourCohort:
    """n patients as a :class:`~cirl_gym.cohort.Cohort`.

    Every beginning and every step takes two standard normal numbers of a row's stream; a beginning also where the
    patient is given, so that a seed's noise is the same with any patient.

    Args:
        n: how many.
        parameters: every constant of the simulator.
        layout: how patients are shown.
        limit: the time limit; None: none.
        defaults: options of ``reset`` that hold where it is given no others.

    Raises:
        ValueError: an option is not possible.
    """

    def __init__(
        self, n: int, parameters: TumourParameters, layout: Layout, limit: int | None, defaults: Mapping[str, Any]
    ) -> None:
        self.parameters = parameters
        self.layout = layout
        self.action_names = ACTION_NAMES
        self.feature_map = FeatureMap.from_parameters(parameters, dynamics.FEATURES)
        self._n, self._limit, self._defaults = n, limit, dict(defaults)
        self._default = self._start({})
        self._state = dynamics.initial_state(parameters, np.zeros((n, 2)))
        self._obs: Float32Array = np.zeros((n, 2), dtype=np.float32, order="F")
        self._constants: TumourParameters | RowConstants = parameters
        self._weights: FloatArray = check_weights(self._default.weights[0], dynamics.FEATURES)
        self._base_weights = self._weights
        self.previous: IntArray = np.full(n, -1, dtype=np.int64)
        self.steps: IntArray = np.zeros(n, dtype=np.int64)
        self.limits: IntArray = np.full(n, self._default.limit, dtype=np.int64)
        self._varied = self._default.parameters is not parameters
        self._streams = RowStreams(n, 2, "normal", AHEAD if n > 1 else 1)

    @property
    def weights(self) -> FloatArray:
        """``[2]`` reward weights where ``reset`` asks for no others (read-only)."""
        return self._base_weights

    @property
    def obs(self) -> Float32Array:
        """``[n, 2]`` the current (x, z), raw units."""
        return self._obs.copy()

    @property
    def limit_lines(self) -> FloatArray:
        """``[2]`` (x_max, z_max)."""
        return self.parameters.limits

    def read(self, options: Mapping[str, Any]) -> TumourStart:
        """See :meth:`~cirl_gym.cohort.Cohort.read`."""
        return self._start(options) if options else self._default

    def _start(self, options: Mapping[str, Any]) -> TumourStart:
        return tumour_start(merged(self._defaults, options, OPTIONS), self.parameters, self._limit, self._n)

    def use(self, rows: Iterable[int], generators: Iterable[np.random.Generator]) -> None:
        """See :meth:`~cirl_gym.cohort.Cohort.use`."""
        self._streams.use(rows, generators)

    def begin(self, rows: IntArray, chosen: TumourStart | None = None) -> dict[str, npt.NDArray[Any]]:
        """See :meth:`~cirl_gym.cohort.Cohort.begin`."""
        chosen = chosen or self._default
        drawn = dynamics.first_observations(chosen.parameters, self._streams.take(rows))
        # The arrays are this object's own: every step makes new ones.
        dynamics.restart(self._state, rows, drawn)
        self._obs[rows] = drawn
        self.previous[rows], self.steps[rows] = -1, 0
        if chosen.histories is not None:
            self._go_on(rows, chosen.histories.take(rows))
        # What is the same for everybody is kept once, until somebody asks for something else.
        self._varied = self._varied or chosen is not self._default
        if self._varied:
            self._set_rows(rows, chosen)
        return {name: values[rows] for name, values in chosen.echo.items()}

    def step(self, actions: IntArray, going: BoolArray) -> CohortStep:
        """See :meth:`~cirl_gym.cohort.Cohort.step`."""
        noise = np.multiply(self._constants.noise, self._streams.take_all(going), order="F")
        self._state = dynamics.transition(self._constants, self._state, actions, noise)
        self.previous = actions.copy()
        self.steps += going
        self._obs = self._state.course[:, 0].astype(np.float32)
        phi = self.feature_map(self._obs)
        terminated = dynamics.terminal(self.parameters, self._state)
        truncated = (self.steps >= self.limits) & ~terminated
        return CohortStep(phi, reward(phi, self._weights), terminated, truncated, {})

    def _go_on(self, rows: IntArray, histories: Histories) -> None:
        """Put rows where given histories end."""
        state = dynamics.initial_state(self.parameters, histories.obs[:, 0])
        for t in range(histories.actions.shape[1]):
            after = dynamics.append(state, histories.actions[:, t], histories.obs[:, t + 1])
            going = t < histories.lengths
            for mine, new in zip(_arrays(state), _arrays(after), strict=True):
                mine[going] = new[going]
        for mine, new in zip(_arrays(self._state), _arrays(state), strict=True):
            mine[rows] = new
        self._obs[rows] = state.course[:, 0]
        self.previous[rows], self.steps[rows] = histories.previous, histories.lengths

    def _set_rows(self, rows: IntArray, chosen: TumourStart) -> None:
        """Constants, weights and limits of rows."""
        if isinstance(self._constants, TumourParameters):
            self._constants = RowConstants.of(self.parameters, self._n)
            self._weights = np.tile(self._weights, (self._n, 1))
        self._constants.put(rows, chosen.parameters)
        self._weights[rows], self.limits[rows] = chosen.weights[rows], chosen.limit


def tumour_cohort(
    n: int,
    parameters: TumourParameters | None,
    form: Form,
    max_episode_steps: int | None,
    options: TumourOptions,
) -> TumourCohort:
    """The cohort of either form of the environment, from the arguments of its constructor.

    Raises:
        TypeError: an option is unknown.
        ValueError: an option is not possible, or ``parameters.horizon`` and ``max_episode_steps`` contradict.
    """
    check_arguments(options, TumourOptions.__annotations__)
    parameters = parameters or TumourParameters()
    own = parameters.horizon
    stated = None if own == TumourParameters.horizon else f"TumourParameters.horizon={own}"
    high = parameters.highest.astype(np.float32)
    layout = Layout(np.zeros_like(high), high, dynamics.N_ACTIONS, form)
    return TumourCohort(n, parameters, layout, time_limit(own, stated, max_episode_steps), options)


def tumour_rules(forbid: Sequence[str]) -> ActionRules | None:
    """The rules of either form of the environment, from the argument of its constructor.

    They call actions "0" and "1", as batches of the simulator do: a rule is the same text wherever it is given.

    Raises:
        ValueError: see :func:`~cirl_gym.ruled_cohort.rules_given`.
    """
    return rules_given(forbid, dynamics.FEATURES, numbered_actions(dynamics.N_ACTIONS))


def _arrays(state: TumourState) -> tuple[npt.NDArray[Any], ...]:
    return state.course, state.doses, state.seen
