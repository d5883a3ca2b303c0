"""What both environments step: n processes at once, each with random numbers of its own.

A :class:`Cohort` knows the process and nothing of Gymnasium. A single environment is one with a cohort of one row, the
native vector form one with n: so both give the same course to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from cirl_gym.features import FeatureMap
from cirl_gym.layout import Layout
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray

NO_LIMIT = int(np.iinfo(np.int64).max)
"""A time limit that is never reached."""
AHEAD = 128
"""Steps whose numbers are drawn at once where there are many rows."""


class CohortStep(NamedTuple):
    """What one action did to each of n processes. Arrays are the caller's own."""

    phi: FloatArray
    """``[n, d]`` the scaled outcomes that the reward weighs."""
    rewards: FloatArray
    """``[n]`` w . phi."""
    terminated: BoolArray
    """``[n]`` the process ended."""
    truncated: BoolArray
    """``[n]`` the time limit was reached, and the process has not ended."""
    infos: dict[str, npt.NDArray[Any]]
    """``[n, ..]`` what else ``info`` tells of this step, by name."""


@dataclass(frozen=True)
class Histories:
    """Given beginnings of n episodes; one without actions is a first observation."""

    obs: FloatArray
    """``[n, K+1, d]`` raw units; rows past ``lengths`` are padding."""
    actions: IntArray
    """``[n, K]``."""
    lengths: IntArray
    """``[n]`` number of actions."""

    @property
    def seen(self) -> BoolArray:
        """``[n, K+1]`` True where an observation exists."""
        live: BoolArray = np.arange(self.obs.shape[1]) <= self.lengths[:, None]
        return live

    @property
    def previous(self) -> IntArray:
        """``[n]`` the last action; -1 where there is none."""
        last = np.take_along_axis(np.pad(self.actions, ((0, 0), (0, 1))), np.maximum(self.lengths - 1, 0)[:, None], 1)
        return np.where(self.lengths > 0, last[:, 0], -1)

    def take(self, rows: IntArray) -> Histories:
        """The histories of some rows."""
        return Histories(self.obs[rows], self.actions[rows], self.lengths[rows])


class OfCohort:
    """What every form of an environment tells of its cohort."""

    _cohort: Cohort

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the D observed features; those that are weighed are ``feature_map.features``."""
        return self._cohort.feature_map.of

    @property
    def feature_map(self) -> FeatureMap:
        """Phi: how outcomes are scaled before they are weighed."""
        return self._cohort.feature_map

    @property
    def weights(self) -> FloatArray:
        """``[d]`` the reward weights, where ``reset`` asks for no others (read-only)."""
        return self._cohort.weights


class Cohort(Protocol):
    """n processes with a state; the caller decides when each begins."""

    @property
    def layout(self) -> Layout:
        """How observations are shown."""

    @property
    def feature_map(self) -> FeatureMap:
        """Phi, and the names of the D observed features and of the d that it weighs."""

    @property
    def weights(self) -> FloatArray:
        """``[d]`` reward weights where ``reset`` asks for no others."""

    @property
    def obs(self) -> Float32Array:
        """``[n, d]`` the current observation, raw units."""

    @property
    def previous(self) -> IntArray:
        """``[n]`` the previous action; -1 before the first."""

    @property
    def steps(self) -> IntArray:
        """``[n]`` number of actions of the current episode, those of a given beginning counted."""

    @property
    def limits(self) -> IntArray:
        """``[n]`` number of actions after which watching ends; :data:`NO_LIMIT` for never."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """What each of the A actions means."""

    @property
    def limit_lines(self) -> FloatArray | None:
        """``[d]`` raw values at which the process ends; None if there are none."""

    def read(self, options: Mapping[str, Any]) -> Any:
        """What to begin with, from the options of ``reset`` over those of the constructor; nothing is changed.

        Raises:
            ValueError: an option is unknown or not possible.
        """

    def use(self, rows: Iterable[int], generators: Iterable[np.random.Generator]) -> None:
        """Where the random numbers of rows come from, from now on."""

    def begin(self, rows: IntArray, chosen: Any = None) -> dict[str, npt.NDArray[Any]]:
        """Begin an episode in ``rows [k]``, with what :meth:`read` made of options, or as the constructor says.

        Returns:
            What ``info`` tells of the beginning, by name: arrays ``[k, ..]``.
        """

    def step(self, actions: IntArray, going: BoolArray) -> CohortStep:
        """Apply ``actions [n]``. Rows that are not ``going`` yield numbers without meaning until they begin again.

        Raises:
            ValueError: the process yields what it cannot; everything is then as it was.
        """


def shown(cohort: Cohort) -> Any:
    """Observations of all rows in the cohort's layout; fresh arrays."""
    return cohort.layout.rows(cohort.obs, cohort.previous)
