"""n histories that go on as an outcome model predicts: the core of both forms of CIRLCounterfactual-v0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from cirl_gym.cohort import AHEAD, CohortStep, Histories
from cirl_gym.counterfactual_options import (
    OPTIONS,
    CounterfactualOptions,
    CounterfactualStart,
    counterfactual_start,
)
from cirl_gym.layout import Form, Layout
from cirl_gym.reset_options import check_arguments, merged
from cirl_gym.reward import check_weights, reward
from cirl_gym.row_streams import RowStreams
from cirl_gym.source import Source
from cirl_gym.time_limit import time_limit
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, OutcomeModel
from cirl_gym.worlds import follow

ROWS = 16
"""A model is asked for a multiple of so many rows: the last few of others are added up in another order by matrix
products, and a row's numbers would not be the same to the last bit alone and among others."""


class CounterfactualCohort:
    """n histories as a :class:`~cirl_gym.cohort.Cohort`: h' = (h, a, phi(h, a)) (paper, appendix C).

    Every beginning and every step takes 1 + D uniform numbers of a row's stream: which episode begins, or whether the
    process ends; and the noise of the outcome, used or not, so that an option changes nothing but what it names.

    Args:
        n: how many.
        source: what to make the process of.
        layout: how observations are shown.
        limit: the time limit; None: none.
        defaults: options of ``reset`` that hold where it is given no others.

    Raises:
        ValueError: an option is not possible.
    """

    def __init__(self, n: int, source: Source, layout: Layout, limit: int | None, defaults: Mapping[str, Any]) -> None:
        self.source = source
        self.layout = layout
        self.feature_map = source.feature_map
        self.action_names = source.batch.action_names
        self.limit_lines: FloatArray | None = None  # known to the batch at most, never to the model
        self._n, self._limit, self._defaults = n, limit, dict(defaults)
        self._default = self._start({})
        self._low, self._high = source.observed_range
        self._obs: Float32Array = np.tile(source.batch.obs[:1, 0], (n, 1))
        self._states = _padded(source.model.start, self._obs)
        self._weights = self._default.weights.copy()
        self._sampled: BoolArray = np.zeros(n, dtype=np.bool_)
        self.previous: IntArray = np.full(n, -1, dtype=np.int64)
        self.steps: IntArray = np.zeros(n, dtype=np.int64)
        self.limits: IntArray = np.full(n, self._default.limit, dtype=np.int64)
        self._streams = RowStreams(n, 1 + len(source.batch.features), "uniform", AHEAD if n > 1 else 1)

    @property
    def weights(self) -> FloatArray:
        """``[d]`` reward weights where ``reset`` asks for no others (read-only)."""
        return check_weights(self._default.weights[0], self.feature_map.features)

    @property
    def obs(self) -> Float32Array:
        """``[n, D]`` the current observation, raw units."""
        return self._obs.copy()

    def read(self, options: Mapping[str, Any]) -> CounterfactualStart:
        """See :meth:`~cirl_gym.cohort.Cohort.read`."""
        return self._start(options) if options else self._default

    def _start(self, options: Mapping[str, Any]) -> CounterfactualStart:
        given = merged(self._defaults, options, OPTIONS)
        return counterfactual_start(given, self.source, self.layout, self._limit, self._n)

    def use(self, rows: Iterable[int], generators: Iterable[np.random.Generator]) -> None:
        """See :meth:`~cirl_gym.cohort.Cohort.use`."""
        self._streams.use(rows, generators)

    def begin(self, rows: IntArray, chosen: CounterfactualStart | None = None) -> dict[str, npt.NDArray[Any]]:
        """See :meth:`~cirl_gym.cohort.Cohort.begin`."""
        chosen, batch = chosen or self._default, self.source.batch
        drawn = (self._streams.take(rows)[:, 0] * len(batch)).astype(np.int64)
        if chosen.histories is None:
            obs, states = batch.obs[drawn, 0], _padded(self.source.model.start, batch.obs[drawn, 0])
            previous, steps = np.full(len(rows), -1), np.zeros(len(rows), dtype=np.int64)
            told = {"episode": np.array([batch.ids[i] for i in drawn], dtype=object), "step": steps}
        else:
            histories = chosen.histories.take(rows)
            obs, states = _after(self.source.model, histories)
            previous, steps, told = histories.previous, histories.lengths, {}
        self._obs[rows], self._states[rows] = obs, states
        self.previous[rows], self.steps[rows], self.limits[rows] = previous, steps, chosen.limit
        self._weights[rows], self._sampled[rows] = chosen.weights[rows], chosen.sampled
        told |= {name: values[rows] for name, values in chosen.echo.items()}
        return {**told, "outside_support": self._outside(obs)}

    def step(self, actions: IntArray, going: BoolArray) -> CohortStep:
        """See :meth:`~cirl_gym.cohort.Cohort.step`."""
        numbers = self._streams.take_all(going)
        noise = None
        if self._sampled.any():
            # The smallest uniform number is 0, the noise of which would be infinite.
            noise = np.where(self._sampled[:, None], ndtri(np.maximum(numbers[:, 1:], 2.0**-54)), 0.0)
        result = follow(
            self.source.model,
            _whole(self._states),
            _whole(actions),
            _whole(numbers[:, 0]),
            None if noise is None else _whole(noise),
        )
        obs = result.obs[: self._n]
        self._check_outcome(obs, going)
        self._obs, self._states = obs, result.state[: self._n]
        self.previous = actions.copy()
        self.steps += going
        phi = self.feature_map(result.outcomes[: self._n])
        terminated = self._ended(obs, result.terminated[: self._n])
        truncated = (self.steps >= self.limits) & ~terminated
        infos = {"outside_support": self._outside(obs)}
        return CohortStep(phi, reward(phi, self._weights), terminated, truncated, infos)

    def _outside(self, obs: Float32Array) -> BoolArray:
        """``[k]`` a feature leaves the range that the batch shows: the model is extrapolating."""
        outside: BoolArray = np.any((obs < self._low) | (obs > self._high), axis=1)
        return outside

    def _ended(self, obs: Float32Array, drawn: BoolArray) -> BoolArray:
        end = self.source.end
        if not callable(end):
            return drawn if end == "learned" else np.zeros(self._n, dtype=np.bool_)
        ended = np.asarray(end(obs.copy()))
        if ended.shape != (self._n,) or ended.dtype != np.bool_:
            raise ValueError(
                f"end must return {self._n} bools for observations {obs.shape}, got {ended.dtype} {ended.shape}"
            )
        return ended

    def _check_outcome(self, obs: Float32Array, going: BoolArray) -> None:
        # Written as "not inside", so that a NaN is caught too.
        wrong = np.argwhere(~((obs >= self.layout.low) & (obs <= self.layout.high)) & going[:, None])
        if len(wrong):
            row, k = wrong[0]
            raise ValueError(
                f"the outcome model predicts {obs[row, k]} for {self.source.batch.features[k]!r}, "
                "outside the bounds that it states"
            )


def counterfactual_cohort(
    n: int,
    source: Source,
    form: Form,
    horizon: int | None,
    max_episode_steps: int | None,
    options: CounterfactualOptions,
) -> CounterfactualCohort:
    """The cohort of either form of the environment, from the arguments of its constructor.

    Raises:
        TypeError: an option is unknown.
        ValueError: an option is not possible, or ``horizon`` and ``max_episode_steps`` contradict each other.
    """
    check_arguments(options, CounterfactualOptions.__annotations__)
    if horizon is not None and horizon < 1:
        raise ValueError(f"horizon must be at least 1, got {horizon}")
    own = source.batch.horizon if horizon is None else horizon
    limit = time_limit(own, None if horizon is None else f"horizon={horizon}", max_episode_steps)
    return CounterfactualCohort(n, source, _layout(source, form), limit, options)


def _layout(source: Source, form: Form) -> Layout:
    least, most = source.observed_range
    low = np.minimum(source.model.bounds[0].astype(np.float32), least)
    high = np.maximum(source.model.bounds[1].astype(np.float32), most)
    # One float32 step wider: a model may round its float64 bounds either way.
    low, high = np.nextafter(low, np.float32(-np.inf)), np.nextafter(high, np.float32(np.inf))
    return Layout(low, high, source.model.n_actions, form)


def _after(model: OutcomeModel, histories: Histories) -> tuple[Float32Array, Float32Array]:
    """Last observations ``[n, d]`` and states ``[n, S]`` of histories."""
    n = len(histories.lengths)
    rows, obs = np.arange(n), histories.obs.astype(np.float32)
    states = _padded(model.start, obs[:, 0])
    for t in range(histories.actions.shape[1]):
        further = _padded(model.advance, states, histories.actions[:, t], obs[:, t + 1])
        states = np.where((t < histories.lengths)[:, None], further, states)
    return obs[rows, histories.lengths], states


def _padded(ask: Callable[..., Float32Array], *arrays: npt.NDArray[Any]) -> Float32Array:
    """What a model says of rows, asked for a multiple of :data:`ROWS`."""
    n = len(arrays[0])
    return ask(*(_whole(array) for array in arrays))[:n]


def _whole(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array with its first row repeated until the number of rows is a multiple of :data:`ROWS`."""
    missing = -len(array) % ROWS
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)]) if missing else array
