"""Random numbers of many rows, each from a generator of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.rollout import observation
from cirl_gym.data.rules import ActionRules, read_rules
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray


class RowStreams:
    """n streams of rows of ``width`` numbers, drawn ahead so that one for every stream needs no loop over them.

    A stream is its generator's own sequence of numbers, in order: how far ahead they are drawn changes none of them.
    So a row's numbers are the same alone and among others.

    Args:
        n: how many streams.
        width: numbers that are taken at once.
        kind: standard ``"normal"``, or ``"uniform"`` on [0, 1).
        ahead: how many takes are drawn at once. 1 leaves a generator, between two takes, where its last number was.
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


# MERGED: Who counts the steps: one owner of the time limit, wherever it was given.

NO_LIMIT_ASKED = -1
"""``max_episode_steps`` of somebody who wants no limit, as in ``gymnasium.make``."""


def time_limit(horizon: int, stated: str | None, max_episode_steps: int | None) -> int | None:
    """The number of actions after which watching ends; None: never.

    Args:
        horizon: the environment's own limit.
        stated: how the user has stated it ("horizon=12"); None if it is a default, which ``max_episode_steps``
            replaces.
        max_episode_steps: as Gymnasium names it; -1 for none, None if it was not given.

    Raises:
        ValueError: the two contradict each other, or ``max_episode_steps`` is not a possible limit.
    """
    if max_episode_steps is None:
        return horizon
    if max_episode_steps < 1 and max_episode_steps != NO_LIMIT_ASKED:
        raise ValueError(f"max_episode_steps must be at least 1, or -1 for none, got {max_episode_steps}")
    if stated is not None and horizon != max_episode_steps:
        raise ValueError(
            f"{stated} and max_episode_steps={max_episode_steps} contradict each other: the time limit of an "
            f"environment that Gymnasium makes is max_episode_steps, so give max_episode_steps={horizon}"
        )
    return None if max_episode_steps == NO_LIMIT_ASKED else max_episode_steps


def asked_of_make() -> int | None:
    """``max_episode_steps`` of the ``gymnasium.make`` that calls the calling entry point, or the registered one.

    ``gymnasium.make`` keeps it to itself and hands it to a wrapper, which can shorten an episode and never lengthen it:
    an environment with a limit of its own would silently ignore a longer one. So it is read where it stands, in the
    frame of ``make``. None where none is registered and none was given, or where somebody else calls.
    """
    frame = sys._getframe(2)
    if frame.f_code.co_name != "make" or frame.f_globals.get("__name__") != "gymnasium.envs.registration":
        return None
    asked: int | None = frame.f_locals["max_episode_steps"]
    registered: int | None = frame.f_locals["env_spec"].max_episode_steps
    return registered if asked is None else asked


# MERGED: What an environment shows: the observed features and the previous action, flat or by name.


@dataclass(frozen=True)
class Form:
    """In which form an observation is shown.

    Raises:
        ValueError: ``observation`` is unknown.
    """

    observation: Literal["flat", "dict"] = "flat"
    """``"flat"``: one array ``[d + A]``, as policies of this project take it; ``"dict"``: ``obs`` and
    ``previous_action`` apart."""
    previous_action: bool = True
    """Whether the one-hot previous action is shown."""

    def __post_init__(self) -> None:
        if self.observation not in ("flat", "dict"):
            raise ValueError(f"observation must be 'flat' or 'dict', got {self.observation!r}")


@dataclass(frozen=True)
class Layout:
    """Form and space of an observation; the one place where features and the previous action are put together."""

    low: Float32Array
    """``[d]`` lower limit of each feature, raw units."""
    high: Float32Array
    """``[d]`` upper limit of each feature, raw units."""
    n_actions: int
    """A, the number of actions."""
    form: Form
    """Flat or by name, with or without the previous action."""

    def space(self) -> spaces.Space[Any]:
        """The space of one observation."""
        hot = np.zeros(self.n_actions, dtype=np.float32), np.ones(self.n_actions, dtype=np.float32)
        if self.form.observation == "dict":
            parts: dict[str, spaces.Space[Any]] = {"obs": spaces.Box(self.low, self.high, dtype=np.float32)}
            if self.form.previous_action:
                parts["previous_action"] = spaces.Box(*hot, dtype=np.float32)
            return spaces.Dict(parts)
        low, high = self.low, self.high
        if self.form.previous_action:
            low, high = np.concatenate([low, hot[0]]), np.concatenate([high, hot[1]])
        return spaces.Box(low, high, dtype=np.float32)

    def rows(self, obs: Float32Array, previous: IntArray) -> Any:
        """Observations of n processes from ``obs [n, d]`` and ``previous [n]`` actions (-1: none yet); fresh arrays."""
        flat = observation(obs, previous, self.n_actions)
        d = len(self.low)
        if self.form.observation == "flat":
            return flat if self.form.previous_action else flat[:, :d].copy()
        parts = {"obs": flat[:, :d].copy()}
        if self.form.previous_action:
            parts["previous_action"] = flat[:, d:].copy()
        return parts

    def row(self, rows: Any, i: int) -> Any:
        """A copy of one row of what :meth:`rows` returned."""
        return (
            {name: part[i].copy() for name, part in rows.items()} if self.form.observation == "dict" else rows[i].copy()
        )


# MERGED: What both environments step: n processes at once, each with random numbers of its own.
#
# A :class:`Cohort` knows the process and nothing of Gymnasium. A single environment is one with a cohort of one row,
# the
# native vector form one with n: so both give the same course to the last bit.

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


# MERGED: A cohort whose actions are not always all allowed: the masks of both environments
# (:mod:`cirl_gym.data.rules`).


class RuledCohort:
    """Any :class:`~cirl_gym.envs.process.Cohort`, which refuses what rules forbid and tells what they leave.

    What it tells of a beginning and of a step has one entry more: ``action_mask`` ``[.., A]`` int8, 1 where an action
    is allowed next, as Gymnasium's ``Discrete.sample(mask)`` takes it. Actions of a given beginning are not looked at.

    Args:
        cohort: n processes.
        rules: of the same observed features and number of actions.
    """

    def __init__(self, cohort: Cohort, rules: ActionRules) -> None:
        self._cohort, self.rules = cohort, rules
        self._allowed = rules.allowed(cohort.obs, cohort.previous)

    @property
    def allowed(self) -> BoolArray:
        """``[n, A]`` which actions are allowed now, at least one of each row."""
        return self._allowed.copy()

    @property
    def layout(self) -> Layout:
        """The cohort's."""
        return self._cohort.layout

    @property
    def feature_map(self) -> FeatureMap:
        """The cohort's."""
        return self._cohort.feature_map

    @property
    def weights(self) -> FloatArray:
        """``[d]`` the cohort's."""
        return self._cohort.weights

    @property
    def obs(self) -> Float32Array:
        """``[n, d]`` the current observation, raw units."""
        return self._cohort.obs

    @property
    def previous(self) -> IntArray:
        """``[n]`` the previous action; -1 before the first."""
        return self._cohort.previous

    @property
    def steps(self) -> IntArray:
        """``[n]`` number of actions of the current episode."""
        return self._cohort.steps

    @property
    def limits(self) -> IntArray:
        """``[n]`` number of actions after which watching ends."""
        return self._cohort.limits

    @property
    def action_names(self) -> tuple[str, ...]:
        """What each of the A actions means."""
        return self._cohort.action_names

    @property
    def limit_lines(self) -> FloatArray | None:
        """``[d]`` the cohort's."""
        return self._cohort.limit_lines

    def read(self, options: Mapping[str, Any]) -> Any:
        """See :meth:`~cirl_gym.envs.process.Cohort.read`."""
        return self._cohort.read(options)

    def use(self, rows: Iterable[int], generators: Iterable[np.random.Generator]) -> None:
        """See :meth:`~cirl_gym.envs.process.Cohort.use`."""
        self._cohort.use(rows, generators)

    def begin(self, rows: IntArray, chosen: Any = None) -> dict[str, npt.NDArray[Any]]:
        """See :meth:`~cirl_gym.envs.process.Cohort.begin`."""
        told = self._cohort.begin(rows, chosen)
        return {**told, "action_mask": self._masks()[rows]}

    def step(self, actions: IntArray, going: BoolArray) -> CohortStep:
        """See :meth:`~cirl_gym.envs.process.Cohort.step`.

        Raises:
            ValueError: a row that is going takes a forbidden action, or as the cohort says; everything is then as it
                was.
        """
        wrong = np.flatnonzero(going & ~self._allowed[np.arange(len(actions)), actions])
        if len(wrong):
            name = self.rules.action_names[actions[wrong[0]]]
            said = "; ".join(rule.name for rule in self.rules.rules if rule.action == name)
            of_row = f" of row {wrong[0]}" if len(actions) > 1 else ""
            raise ValueError(f"action {name!r}{of_row} is forbidden now ({said}); action_masks() tells what is allowed")
        result = self._cohort.step(actions, going)
        return result._replace(infos={**result.infos, "action_mask": self._masks()})

    def _masks(self) -> npt.NDArray[np.int8]:
        """``[n, A]`` what is allowed after the current observations, looked at anew."""
        self._allowed = self.rules.allowed(self._cohort.obs, self._cohort.previous)
        return self._allowed.astype(np.int8)


def rules_given(forbid: Sequence[str], features: Sequence[str], action_names: Sequence[str]) -> ActionRules | None:
    """The rules that an environment was given as ``forbid``; None if there are none.

    Raises:
        ValueError: it is one text instead of several, or see :func:`~cirl_gym.data.rules.read_rules`.
    """
    if isinstance(forbid, str):
        raise ValueError(f"forbid must be a list of rules, got the text {forbid!r}")
    return read_rules(forbid, features, action_names)


def ruled(cohort: Cohort, rules: ActionRules | None) -> Cohort:
    """The cohort in which the rules hold; without rules as it is."""
    return cohort if rules is None else RuledCohort(cohort, rules)


def check_ruled(cohort: Cohort) -> RuledCohort:
    """The cohort, if rules hold in it.

    Raises:
        AttributeError: every action is always allowed. So an environment's attribute ``action_masks`` is there only
            with rules: agents that know of masks (sb3-contrib's, DRQN) look for it and would ask at every step.
    """
    if not isinstance(cohort, RuledCohort):
        raise AttributeError("no rules were given (forbid=...), so there is no action_masks: every action is allowed")
    return cohort
