"""Frozen dataclasses to and from JSON, held to the types that their fields declare."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from itertools import pairwise
from types import UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from cirl_gym.data.batch import Batch

R = TypeVar("R")


def require(holds: bool, message: str) -> None:
    """Raise a ValueError with the message unless the condition holds."""
    if not holds:
        raise ValueError(message)


def check_types(record: Any, where: str) -> None:
    """Bring every field of a frozen dataclass to the type that it declares.

    NumPy's numbers and arrays become numbers and tuples, lists become tuples, objects become dataclasses.

    Raises:
        ValueError: a value cannot be of its type, or a number is not finite; the message names ``where`` and the field.
    """
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = _as(hints[field.name], getattr(record, field.name), f"{where}.{field.name.rstrip('_')}")
        object.__setattr__(record, field.name, value)


def build(kind: type[R], content: Any, where: str) -> R:
    """A dataclass from a JSON object that has exactly its keys (a trailing underscore of a field is not in its key).

    Raises:
        ValueError: no object, or keys are missing or unknown; the message names them.
    """
    require(isinstance(content, Mapping), f"{where} must be an object, got {content!r}")
    names = {field.name.rstrip("_"): field.name for field in fields(kind)}  # type: ignore[arg-type]
    wrong = sorted(map(str, set(names) ^ set(content)))
    require(not wrong, f"{where}: missing or unknown keys: {', '.join(wrong)}")
    return kind(**{names[key]: item for key, item in content.items()})


def plain(value: Any, where: str) -> Any:
    """A copy in JSON's own types.

    Raises:
        ValueError: a number is not finite, or JSON has no word for a value; the message names the place.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): plain(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, float):
        require(math.isfinite(value), f"{where} must be finite, got {value}; what is unknown is None")
    elif isinstance(value, os.PathLike):
        return os.fspath(value)
    elif value is not None and not isinstance(value, bool | int | str):
        raise ValueError(f"{where} is a {type(value).__name__}, which JSON cannot hold")
    return value


def _as(hint: Any, value: Any, where: str) -> Any:
    """The value as the type of a field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return None if value is None else _as(arguments[0], value, where)
    if hint is Any:
        return plain(value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return value if isinstance(value, hint) else build(hint, value, where)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if origin is dict and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _as(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        require(len(kinds) == len(value), f"{where} must have {len(kinds)} entries, got {len(value)}")
        return tuple(_as(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))
    scalars: dict[Any, Any] = {float: int | float, int: int, str: str, bool: bool}
    if hint not in scalars or not isinstance(value, scalars[hint]) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{where} must be {getattr(hint, '__name__', hint)}, got {value!r}")
    return plain(float(value), where) if hint is float else value


# MERGED: What a run's episodes are, as ``result.json`` keeps it: how many, how long, and what rules left to choose
# from.


@dataclass(frozen=True)
class Episodes:
    """How many episodes each part of the data has, and how long they are."""

    train: int
    validation: int
    test: int
    mean_length: float
    """Actions of a training episode, on average."""
    mean_length_recovered: float
    """Actions of an episode of the recovered policy in the world model, on average, from the same first observations:
    where the two differ, what ends episodes may be part of what the weights say."""

    def __post_init__(self) -> None:
        check_types(self, "episodes")
        require(min(self.mean_length, self.mean_length_recovered) >= 0, "episodes: a mean length is negative")


@dataclass(frozen=True)
class AllowedActions:
    """What rules (:mod:`cirl_gym.data.rules`) forbade in the training episodes."""

    rules: tuple[str, ...]
    """As they were given."""
    decisions: int
    """Of all training episodes."""
    limited: int
    """Decisions in which some action was forbidden."""
    forced: int
    """Decisions in which one action alone was allowed: they say nothing of weights."""

    def __post_init__(self) -> None:
        check_types(self, "allowed")
        require(bool(self.rules), "allowed.rules must hold a rule")
        ordered = 0 <= self.forced <= self.limited <= self.decisions
        require(ordered, "allowed: forced, limited and decisions must not be negative and must rise in this order")

    @classmethod
    def of(cls, rules: Sequence[str], train: Batch) -> AllowedActions | None:
        """Of the training episodes; None where nothing was forbidden."""
        if train.allowed is None:
            return None
        left = train.allowed[train.mask].sum(axis=1)
        return cls(tuple(rules), train.n_steps, int((left < train.n_actions).sum()), int((left == 1).sum()))

    @property
    def sentence(self) -> str:
        """For the headline."""
        if self.limited == 0:
            return f"What was forbidden never comes up in the {self.decisions:,} training decisions."
        forced = f"one action alone was allowed in {self.forced:,}, which say nothing of the weights"
        return f"Some action was forbidden in {self.limited:,} of {self.decisions:,} training decisions; {forced}."


# MERGED: Which discount factors were tried on held-out decisions, as ``result.json`` keeps it.

Numbers: TypeAlias = tuple[float, ...]
Interval: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class GammaTried:
    """What one discount factor says."""

    gamma: float
    log_likelihood: float
    """Mean log-probability of a held-out decision, its chance averaged over the posterior of weights and kappa."""
    difference: float
    """That minus the best discount factor's: 0 for the best, else negative."""
    standard_error: float
    """Of the difference, paired by patient."""
    weights: Numbers
    """``[d]`` posterior mean under this discount factor, L1 norm 1."""
    intervals: tuple[Interval, ...]
    """``[d]`` 90 % intervals."""
    kappa: float
    """Posterior mean of the experts' inverse temperature."""

    def __post_init__(self) -> None:
        check_types(self, "gammas.tried")
        require(0 <= self.gamma <= 1, f"gammas.tried: gamma must lie between 0 and 1, got {self.gamma}")
        require(self.log_likelihood <= 0 and self.difference <= 0, "gammas.tried: log-probabilities are not above 0")
        require(self.standard_error >= 0, "gammas.tried: standard_error must not be negative")
        require(len(self.intervals) == len(self.weights), "gammas.tried: one interval for each weight")
        require(all(low <= high for low, high in self.intervals), "gammas.tried: an interval is not [low, high]")

    @property
    def tied(self) -> bool:
        """Whether the best is at most one standard error better: held-out decisions do not tell the two apart."""
        return -self.difference <= self.standard_error


@dataclass(frozen=True)
class GammaChoice:
    """The discount factor that was taken, and all that were tried."""

    chosen: float
    tried: tuple[GammaTried, ...]
    """By rising gamma."""
    decisions: int
    """Held-out decisions that were judged."""
    patients: int
    """Whose they are."""

    def __post_init__(self) -> None:
        check_types(self, "gammas")
        check_gammas([one.gamma for one in self.tried])
        require(self.chosen in [one.gamma for one in self.tied], "gammas: the chosen one is none of the best")
        require(len({len(one.weights) for one in self.tried}) == 1, "gammas: all must weigh the same features")

    @property
    def best(self) -> GammaTried:
        """The one of the highest likelihood (of equals the largest)."""
        return max(self.tried, key=lambda one: (one.difference, one.gamma))

    @property
    def tied(self) -> tuple[GammaTried, ...]:
        """Those that held-out decisions do not tell from the best, and the best itself."""
        return tuple(one for one in self.tried if one.tied)


def check_gammas(gammas: Sequence[float]) -> None:
    """Check that there is a choice: at least two discount factors, rising.

    Raises:
        ValueError: there is none, or one is out of its range.
    """
    rising = all(a < b for a, b in pairwise(gammas))
    if len(gammas) < 2 or not rising or not all(0 <= gamma <= 1 for gamma in gammas):
        listed = ", ".join(map(str, gammas))
        raise ValueError(f"a discount factor is chosen from two or more, rising and between 0 and 1, got {listed}")


# MERGED: How well held-out decisions are foreseen, as ``result.json`` keeps it.


@dataclass(frozen=True)
class LogLikelihood:
    """Log-probability of a held-out decision, on average."""

    mean: float
    """Nearer to 0 is better; minus the logarithm of the number of actions is pure chance."""
    standard_error: float
    """With patients as the unit."""

    def __post_init__(self) -> None:
        check_types(self, "likelihood")
        require(self.mean <= 0, f"likelihood: a mean log-probability is not above 0, got {self.mean}")
        require(self.standard_error >= 0, "likelihood: standard_error must not be negative")


@dataclass(frozen=True)
class HeldOutLikelihood:
    """How likely each description of the experts makes what they did in held-out episodes."""

    decisions: int
    """Held-out decisions that were judged, of whole episodes."""
    patients: int
    """Whose they are."""
    cirl: LogLikelihood
    """softmax(kappa Q) at the posterior means of weights and kappa."""
    averaged: LogLikelihood
    """Chances averaged over posterior draws of weights and kappa."""
    cloning: LogLikelihood
    """Behaviour cloning."""
    frequencies: LogLikelihood
    """How often each action was taken in training."""
    chance: LogLikelihood
    """All actions equally likely."""
    expert: LogLikelihood | None
    """The simulated experts' own chances, which nobody exceeds but by luck; None where they are not known."""

    def __post_init__(self) -> None:
        check_types(self, "likelihood")
        require(min(self.decisions, self.patients) >= 1, "likelihood: decisions and patients must be at least 1")


@dataclass(frozen=True)
class AgreementOverTime:
    """Share of held-out decisions at each time step that a policy's most likely action meets."""

    episodes: tuple[int, ...]
    """``[T]`` held-out episodes that are still going on at t = 0, 1, ..."""
    cirl: Numbers
    """``[T]`` the policy of the reported weights."""
    cloning: Numbers
    """``[T]`` behaviour cloning."""

    def __post_init__(self) -> None:
        check_types(self, "agreement")
        lengths = {len(getattr(self, field.name)) for field in fields(self)}
        require(len(lengths) == 1 and len(self.episodes) > 0, "agreement: one number for each step")
        require(min(self.episodes) >= 1, "agreement: at every step an episode must be going on")
        require(all(0 <= share <= 1 for share in (*self.cirl, *self.cloning)), "agreement must lie in [0, 1]")


# MERGED: Whether planning in the world model keeps what it promises, as ``result.json`` keeps it.


@dataclass(frozen=True)
class Quality:
    """Feature expectations read off plans against those that policies reach in the same world model.

    Differences are shares of an outcome's full discounted range, the sum of gamma^t over the horizon.
    """

    weights: int
    """How many weights were looked at: some from the loop and the posterior, the others from everywhere."""
    expected: float
    """Largest difference of any outcome's mu for any weights, along the world model's expected course."""
    sampled: float
    """The same with the world model's noise. It is large, and harmless, where two policies are equally good."""
    noise: float
    """Largest standard error of a mu in ``sampled``: the part of chance."""
    systematic: float
    """Largest mean difference of an outcome's mu over all weights that neither chance nor ties explain."""
    value: float
    """Largest size, for any weights, of the difference in value w . mu that chance does not explain."""
    promised: float
    """Largest value w . mu, for any weights, that plans promise and policies do not reach with noise; negative where
    they always reach more."""
    search_gain: float
    """Value that the search adds to the network's own choices, on average over the weights: large where the network
    knows little."""
    limit: float | None
    """What stops a run if ``systematic`` or ``value`` is above it; None: nothing does."""

    def __post_init__(self) -> None:
        check_types(self, "quality")
        require(self.weights >= 1, f"quality.weights must be at least 1, got {self.weights}")
        for field in fields(self):
            value = getattr(self, field.name)
            free = field.name in ("promised", "search_gain")
            require(value is None or free or value >= 0, f"quality.{field.name} must not be negative, got {value}")
        if self.limit is not None:
            above = max(self.systematic, self.value) > self.limit
            require(not above, "quality: systematic or value is above the limit, which stops a run")


# MERGED: What the decisions of one window of time say of the weights, as ``result.json`` keeps it.


@dataclass(frozen=True)
class Change:
    """One feature's weight in a window minus its weight in the window before."""

    difference: float
    interval: Interval
    """90 % interval of the difference."""

    def __post_init__(self) -> None:
        check_types(self, "change")
        require(self.interval[0] <= self.interval[1], f"change.interval must be [low, high], got {self.interval}")

    @property
    def clear(self) -> bool:
        """Whether the interval does not hold 0: the change is beyond chance."""
        return self.interval[0] * self.interval[1] > 0


@dataclass(frozen=True)
class WindowWeights:
    """The posterior of the weights from the decisions of one window."""

    weights: Numbers
    """``[d]`` posterior mean, L1 norm 1."""
    intervals: tuple[Interval, ...]
    """``[d]`` 90 % interval of each weight."""
    kappa: float
    """Posterior mean of the experts' inverse temperature in this window."""
    kappa_interval: Interval

    def __post_init__(self) -> None:
        check_types(self, "windows.found")
        require(len(self.intervals) == len(self.weights), "windows: one interval for each weight")
        for low, high in (*self.intervals, self.kappa_interval):
            require(low <= high, f"windows: an interval must be [low, high], got {[low, high]}")


@dataclass(frozen=True)
class TimeWindow:
    """One window of time steps, and what its decisions say. The key of ``from_`` is ``from``."""

    from_: int
    """First time step."""
    to: int | None
    """Last time step; None: to the end of the episodes."""
    decisions: int
    """Decisions that were judged in it."""
    patients: int
    """Whose decisions they are."""
    found: WindowWeights | None
    """None where there are too few decisions to say anything; the window is named all the same."""
    changes: tuple[Change, ...] | None
    """``[d]`` how the weights differ from those of the window before; None where one of the two was not fitted."""

    def __post_init__(self) -> None:
        check_types(self, "windows")
        require(min(self.from_, self.decisions, self.patients) >= 0, "windows: from and numbers must not be negative")
        require(self.to is None or self.to >= self.from_, f"windows: from {self.from_} to {self.to} holds no step")
        if self.changes is not None:
            same = self.found is not None and len(self.changes) == len(self.found.weights)
            require(same, "windows: one change for each weight that was found")


def check_starts(starts: Sequence[int]) -> None:
    """Check the first steps of windows.

    Raises:
        ValueError: one is negative, or they do not rise.
    """
    if any(step < 0 for step in starts) or any(a >= b for a, b in pairwise(starts)):
        raise ValueError(f"windows must be first steps from 0 on, each larger than the one before, got {list(starts)}")


def check_windows(windows: Sequence[TimeWindow], d: int) -> None:
    """Check that windows follow each other and weigh d features.

    Raises:
        ValueError: they do not.
    """
    check_starts([window.from_ for window in windows])
    for window in windows:
        if window.found is not None:
            require(len(window.found.weights) == d, f"windows must have {d} weights, got {len(window.found.weights)}")
    require(not windows or windows[0].changes is None, "windows: the first has none before it to differ from")
