"""What both environments step: n rows of a process at once, each with random numbers, options and rules of its own.

A :class:`Cohort` knows the process and nothing of Gymnasium. A single environment is one with a cohort of one row, the
native vector form one with n: so both give the same episodes to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from cirl_gym.data.features import FeatureMap, check_weights, reward
from cirl_gym.data.rollout import observation
from cirl_gym.data.rules import ActionRules
from cirl_gym.envs.options import Start, merged
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray, Step

AHEAD = 128
"""Steps whose numbers are drawn at once where there are many rows."""


class RowStreams:
    """n streams of rows of ``width`` numbers, drawn ahead so that one for every stream needs no loop over them.

    A stream is its generator's own sequence of numbers, standard normal or uniform on [0, 1), in order: how far
    ``ahead`` they are drawn changes none of them. So a row's numbers are the same alone and among others. With 1 ahead
    a generator stays, between two takes, where its last number was.
    """

    def __init__(self, n: int, width: int, kind: Literal["normal", "uniform"], ahead: int) -> None:
        self._kind = kind
        self._numbers = np.zeros((n, ahead, width))
        self._taken: IntArray = np.full(n, ahead, dtype=np.int64)
        """``[n]`` how many of those drawn are used up."""
        self._first = np.arange(n) * ahead
        self._generators: list[np.random.Generator | None] = [None] * n

    def use(self, rows: Iterable[int], generators: Iterable[np.random.Generator]) -> None:
        """Draw from these generators from now on; what was drawn ahead from another one is dropped."""
        for i, rng in zip(rows, generators, strict=True):
            if self._generators[i] is not rng:
                self._generators[i] = rng
                self._taken[i] = self._numbers.shape[1]

    def take(self, rows: IntArray) -> FloatArray:
        """``[k, width]`` the next numbers of ``rows [k]``."""
        taken = self._taken[rows]
        used_up = (taken == self._numbers.shape[1]).nonzero()[0]
        if len(used_up):
            self._draw(rows[used_up])
            taken[used_up] = 0
        numbers: FloatArray = self._numbers[rows, taken]
        self._taken[rows] = taken + 1
        return numbers

    def take_all(self, going: BoolArray) -> FloatArray:
        """``[n, width]`` the next numbers of rows that are ``going [n]``; numbers without meaning for the others."""
        used_up = (self._taken == self._numbers.shape[1]).nonzero()[0]
        if len(used_up):
            self._draw(used_up)
        width = self._numbers.shape[2]
        numbers: FloatArray = self._numbers.reshape(-1, width).take(self._first + self._taken, axis=0)
        self._taken += going
        return numbers

    def _draw(self, rows: IntArray) -> None:
        for i in rows:
            rng = self._generators[i]
            assert rng is not None  # a row is given its generator before it begins
            if self._kind == "normal":
                rng.standard_normal(out=self._numbers[i])
            else:
                rng.random(out=self._numbers[i])
        self._taken[rows] = 0


@dataclass(frozen=True)
class Layout:
    """Form and space of an observation; the one place where features and the previous action are put together.

    Raises:
        ValueError: ``form`` is unknown.
    """

    low: Float32Array
    """``[D]`` lower limit of each feature, raw units."""
    high: Float32Array
    """``[D]`` upper limit of each feature, raw units."""
    n_actions: int
    """A, the number of actions."""
    form: Literal["flat", "dict"] = "flat"
    """``"flat"``: one array ``[D + A]``, as policies of this project take it; ``"dict"``: ``obs`` and
    ``previous_action`` apart."""
    previous_action: bool = True
    """Whether the one-hot previous action is shown."""

    def __post_init__(self) -> None:
        if self.form not in ("flat", "dict"):
            raise ValueError(f"observation must be 'flat' or 'dict', got {self.form!r}")

    def space(self) -> spaces.Space[Any]:
        """The space of one observation."""
        ends = {"obs": (self.low, self.high)}
        if self.previous_action:
            ends["previous_action"] = np.zeros(self.n_actions, np.float32), np.ones(self.n_actions, np.float32)
        if self.form == "dict":
            return spaces.Dict({name: spaces.Box(low, high, dtype=np.float32) for name, (low, high) in ends.items()})
        low, high = (np.concatenate(parts) for parts in zip(*ends.values(), strict=True))
        return spaces.Box(low, high, dtype=np.float32)

    def rows(self, obs: Float32Array, previous: IntArray) -> Any:
        """Observations of n processes from ``obs [n, D]`` and ``previous [n]`` actions (-1: none yet); fresh arrays."""
        flat, d = observation(obs, previous, self.n_actions), len(self.low)
        if self.form == "flat":
            return flat if self.previous_action else flat[:, :d].copy()
        parts = {"obs": flat[:, :d].copy()}
        if self.previous_action:
            parts["previous_action"] = flat[:, d:].copy()
        return parts

    def row(self, rows: Any, i: int) -> Any:
        """A copy of one row of what :meth:`rows` returned."""
        return {name: part[i].copy() for name, part in rows.items()} if self.form == "dict" else rows[i].copy()


class CohortStep(NamedTuple):
    """What one action did to each of n rows; ``infos`` ``[n, ..]`` tell what else. Arrays are the caller's own."""

    phi: FloatArray
    """``[n, d]`` the scaled outcomes that the reward weighs."""
    rewards: FloatArray
    terminated: BoolArray
    truncated: BoolArray
    """``[n]`` the time limit was reached, and the process has not ended."""
    infos: dict[str, npt.NDArray[Any]]


S = TypeVar("S", bound=Start)


class Cohort(ABC, Generic[S]):
    """n rows of a process, stepped together; the caller decides when each begins.

    Every beginning and every step takes as many numbers of a row's stream, whatever the options are. Where rules hold,
    forbidden actions are refused, and what is told of a beginning and of a step has the entry ``action_mask``
    ``[.., A]`` int8: 1 where an action is allowed next, as Gymnasium's ``Discrete.sample(mask)`` takes it. Actions of a
    given beginning are not looked at.

    Args:
        n: how many rows.
        layout: how observations are shown.
        feature_map: phi, and the names of the D observed features and of the d that it weighs.
        action_names: what each of the A actions means.
        rules: of the same features and actions; None: every action is always allowed.
        options: names of what ``reset`` takes; ``defaults`` hold where it is given no others.
        streams: width and kind of the rows' random numbers.

    Raises:
        ValueError: there is no row, or an option is not possible.
    """

    state: Any
    """Of the n processes."""
    obs: Float32Array
    """``[n, D]`` the current observation, raw units; written to where rows begin, replaced at a step."""
    limit_lines: npt.ArrayLike = np.nan
    """``[D]`` raw values at which the process ends; NaN where there are none."""

    def __init__(
        self,
        n: int,
        layout: Layout,
        feature_map: FeatureMap,
        action_names: tuple[str, ...],
        rules: ActionRules | None,
        options: tuple[str, ...],
        defaults: Mapping[str, Any],
        streams: tuple[int, Literal["normal", "uniform"]],
    ) -> None:
        if n < 1:
            raise ValueError(f"num_envs must be at least 1, got {n}")
        self.n, self.layout, self.feature_map = n, layout, feature_map
        self.action_names, self.rules = action_names, rules
        self._options, self._defaults = options, dict(defaults)
        self.default = self.start(merged(self._defaults, {}, options))
        self.weights = check_weights(self.default.weights[0], feature_map.features)
        """``[d]`` reward weights where ``reset`` asks for no others (read-only)."""
        # One set of weights and one limit for all rows until somebody asks for others.
        self._varied = not (self.default.weights == self.weights).all()
        self._weights = self.default.weights.copy() if self._varied else self.weights
        self.previous: IntArray = np.full(n, -1, dtype=np.int64)
        """``[n]`` the previous action; -1 before the first."""
        self.steps: IntArray = np.zeros(n, dtype=np.int64)
        """``[n]`` number of actions of the current episode, those of a given beginning counted."""
        self.limits: IntArray = np.full(n, self.default.limit, dtype=np.int64)
        """``[n]`` number of actions after which watching ends; :data:`~cirl_gym.envs.options.NO_LIMIT` for never."""
        self.streams = RowStreams(n, *streams, AHEAD if n > 1 else 1)
        self.allowed: BoolArray = np.ones((n, layout.n_actions), dtype=np.bool_)
        """``[n, A]`` which actions are allowed now, at least one of each row."""

    @abstractmethod
    def start(self, given: dict[str, Any]) -> S:
        """What options ask for, those of the constructor and of ``reset`` merged.

        Raises:
            ValueError: an option is not possible; the message names it.
        """

    @abstractmethod
    def put(self, rows: IntArray, start: S, numbers: FloatArray) -> dict[str, npt.NDArray[Any]]:
        """Put state and observation of ``rows [k]`` to a beginning, with ``numbers [k, ..]`` of their streams.

        Returns:
            What ``info`` tells of it beside the options that were given: arrays ``[k, ..]`` by name.
        """

    @abstractmethod
    def follow(self, actions: IntArray, numbers: FloatArray, going: BoolArray) -> Step:
        """What comes of ``actions [n]`` with ``numbers [n, ..]``; nothing is changed.

        Raises:
            ValueError: the process yields what it cannot in a row that is ``going [n]``.
        """

    def told(self, rows: IntArray | slice) -> dict[str, npt.NDArray[Any]]:
        """What ``info`` tells of the current observations of ``rows [k]``, by name."""
        return {}

    def read(self, options: Mapping[str, Any]) -> S:
        """What to begin with, from the options of ``reset`` over those of the constructor; nothing is changed.

        Raises:
            ValueError: an option is unknown or not possible.
        """
        return self.start(merged(self._defaults, options, self._options)) if options else self.default

    def begin(self, rows: IntArray, start: S | None = None) -> dict[str, npt.NDArray[Any]]:
        """Begin an episode in ``rows [k]``, with what :meth:`read` made of options, or as the constructor says.

        Returns:
            What ``info`` tells of the beginning, by name: arrays ``[k, ..]``.
        """
        start = start or self.default
        told = self.put(rows, start, self.streams.take(rows))
        if start.histories is None:
            self.previous[rows], self.steps[rows] = -1, 0
        else:
            self.previous[rows], self.steps[rows] = start.histories.previous[rows], start.histories.lengths[rows]
        if start is not self.default and not self._varied:
            self._varied, self._weights = True, np.tile(self._weights, (self.n, 1))
        if self._varied:
            self._weights[rows], self.limits[rows] = start.weights[rows], start.limit
        told |= {name: values[rows] for name, values in start.echo.items()}
        told |= self.told(rows)
        if self.rules is not None:
            told["action_mask"] = self._masks(self.rules)[rows]
        return told

    def step(self, actions: IntArray, going: BoolArray) -> CohortStep:
        """Apply ``actions [n]``. Rows that are not ``going`` yield numbers without meaning until they begin again.

        Raises:
            ValueError: a row that is going takes a forbidden action, or the process yields what it cannot; everything
                is then as it was.
        """
        if self.rules is not None and len(wrong := np.flatnonzero(going & ~self.allowed[np.arange(self.n), actions])):
            name = self.rules.action_names[actions[wrong[0]]]
            said = "; ".join(rule.name for rule in self.rules.rules if rule.action == name)
            of_row = f" of row {wrong[0]}" if self.n > 1 else ""
            raise ValueError(f"action {name!r}{of_row} is forbidden now ({said}); action_masks() tells what is allowed")
        self.state, self.obs, outcomes, terminated = self.follow(actions, self.streams.take_all(going), going)
        self.previous = actions.copy()
        self.steps += going
        phi = self.feature_map(outcomes)
        truncated = (self.steps >= self.limits) & ~terminated
        infos = self.told(slice(None))
        if self.rules is not None:
            infos["action_mask"] = self._masks(self.rules)
        return CohortStep(phi, reward(phi, self._weights), terminated, truncated, infos)

    def shown(self) -> Any:
        """Observations of all rows in the layout; fresh arrays."""
        return self.layout.rows(self.obs, self.previous)

    def _masks(self, rules: ActionRules) -> npt.NDArray[np.int8]:
        """``[n, A]`` what rules leave after the current observations, looked at anew."""
        self.allowed = rules.allowed(self.obs, self.previous)
        return self.allowed.astype(np.int8)
