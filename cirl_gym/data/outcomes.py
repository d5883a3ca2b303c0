"""Outcomes that are computed from what is observed: how far outside a normal range, by how much a value changed.

    temperature                      the column itself
    Outside(temperature, 36, 38)     how far outside this range: max(36 - x, 0, x - 38)
    Above(wbc, 12)                   how far above this limit: max(x - 12, 0)
    Below(spo2, 92)                  how far below this limit: max(92 - x, 0)
    Product(heart_rate, lactate)     the product of two columns
    Change(creatinine)               the outcome minus what was observed before the action
    Given(dialysis)                  1 where this action is taken, else 0
    Switched()                       1 where the action is another than the one before; 0 at the first decision

Of ``Above`` and ``Below`` the limit can be left to be found: ``Below(potassium, ?)``, a :class:`Sought` outcome.

The text is the outcome's name, and :func:`read_outcome` reads it. A name of a column or of an action that is no plain
word stands in quotes, as in ``Outside("mean arterial pressure", 60, 100)``. A column whose own name looks like such a
text is that column. A change needs a further observed feature, what was observed one step earlier: :func:`with_lags`.
The last two are known exactly, whatever is done, and no model learns them: :mod:`cirl_gym.data.known`.

A model says what to *expect*, and an outcome is computed of that: of chance it sees nothing. Where a function has a
kink, that is less than the expectation of the computed value (Jensen's inequality): with normal residuals of standard
deviation s, ``Above(x, limit)`` falls short by 0.40 s where x is expected at the limit, by 0.083 s where it is expected
one s away, and by 0.0085 s two s away (a run says how much that can be at most). So a patient who is expected just
inside the normal range counts as inside. ``Product`` lacks the covariance of the two residuals.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import LARGEST, Batch
from cirl_gym.types import BoolArray, FloatArray, IntArray

NUMBERS = ("low", "high", "limit")
"""Arguments that are numbers; the others are names, of columns or of an action."""


def _number(value: float) -> str:
    """The shortest text that reads as the same number."""
    return repr(value).removesuffix(".0")


class OutcomeFeature:
    """A pure function of the observed features; its arguments are columns' names and, if they are NUMBERS, numbers.

    Raises:
        ValueError: a column's name is no text, or another argument is not a finite number.
    """

    least: ClassVar[float | None] = None
    """The value that phi makes 0, where that is known beforehand; None: the least in the data."""
    counted: ClassVar[str] = "units"
    """What :attr:`unit` says, with the numbers in braces."""

    def __post_init__(self) -> None:
        for name, value in tuple(vars(self).items()):
            where = f"{type(self).__name__}: {name}"
            if name in NUMBERS:
                # A whole number of any size can be compared, but not always converted.
                number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
                if not number or not abs(value) <= LARGEST:
                    raise ValueError(f"{where} must be a finite number, at most {LARGEST:g} in size, got {value!r}")
                object.__setattr__(self, name, float(value) + 0.0)  # no minus zero
            elif not isinstance(value, str):
                raise ValueError(f"{where} must be a column's name, got {value!r}")

    def __call__(self, observed: Mapping[str, FloatArray]) -> FloatArray:
        """Values ``[..]`` of observed features ``[..]`` by name, raw units."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """What it is called: the one text of it, which :func:`read_outcome` reads."""
        shown = [quoted(value) if isinstance(value, str) else _number(value) for value in vars(self).values()]
        return f"{type(self).__name__}({', '.join(shown)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it is about, each once."""
        return tuple(dict.fromkeys(value for name, value in vars(self).items() if name not in NUMBERS))

    @property
    def needs(self) -> tuple[str, ...]:
        """The observed features that it reads: the columns, and for a change what was observed before."""
        return self.columns

    @property
    def unit(self) -> str:
        """What is counted, as in "per 2 units above 12"."""
        return self.counted.format(**{name: _number(value) for name, value in vars(self).items() if name in NUMBERS})


@dataclass(frozen=True)
class Column(OutcomeFeature):
    """A column as it is, under its own name."""

    column: str

    @property
    def name(self) -> str:
        """The column's own name."""
        return self.column

    def __call__(self, observed: Mapping[str, FloatArray]) -> FloatArray:
        """As it is."""
        return observed[self.column]


@dataclass(frozen=True)
class Outside(OutcomeFeature):
    """How far a value is outside its normal range: max(low - x, 0, x - high), raw units.

    Raises:
        ValueError: an end is not a finite number, or low is not below high.
    """

    column: str
    low: float
    high: float
    least: ClassVar[float | None] = 0.0
    counted: ClassVar[str] = "units outside {low}..{high}"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low >= self.high:
            raise ValueError(f"{self.name}: the lower end of the range must be below the upper one")

    def __call__(self, observed: Mapping[str, FloatArray]) -> FloatArray:
        """max(low - x, 0, x - high)."""
        x = observed[self.column]
        distance: FloatArray = np.maximum(np.maximum(self.low - x, x - self.high), 0.0)
        return distance


@dataclass(frozen=True)
class Above(OutcomeFeature):
    """How far a value is above a limit: max(x - limit, 0), raw units."""

    column: str
    limit: float
    least: ClassVar[float | None] = 0.0
    counted: ClassVar[str] = "units above {limit}"

    def __call__(self, observed: Mapping[str, FloatArray]) -> FloatArray:
        """max(x - limit, 0)."""
        distance: FloatArray = np.maximum(observed[self.column] - self.limit, 0.0)
        return distance


@dataclass(frozen=True)
class Below(OutcomeFeature):
    """How far a value is below a limit: max(limit - x, 0), raw units."""

    column: str
    limit: float
    least: ClassVar[float | None] = 0.0
    counted: ClassVar[str] = "units below {limit}"

    def __call__(self, observed: Mapping[str, FloatArray]) -> FloatArray:
        """max(limit - x, 0)."""
        distance: FloatArray = np.maximum(self.limit - observed[self.column], 0.0)
        return distance


@dataclass(frozen=True)
class Sought(OutcomeFeature):
    """An outcome with a limit that is to be found from decisions: ``Below(potassium, ?)``. It has no values yet.

    Raises:
        ValueError: it is not ``Above`` or ``Below``.
    """

    kind: str
    """``Above`` or ``Below``."""
    column: str
    least: ClassVar[float | None] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in ("Above", "Below"):
            raise ValueError(f"a limit is found of Above and Below, not of {self.kind!r}")

    @property
    def name(self) -> str:
        """With a question mark for the limit."""
        return f"{self.kind}({quoted(self.column)}, ?)"

    @property
    def columns(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    def at(self, limit: float) -> Above | Below:
        """The outcome with a limit, raw units."""
        return Above(self.column, limit) if self.kind == "Above" else Below(self.column, limit)


@dataclass(frozen=True)
class Change(OutcomeFeature):
    """The outcome minus what was observed before the action, x_{t+1} - x_t, which :func:`with_lags` adds to a batch.

    Over an episode the changes add up to x_T - x_0: with a discount factor near 1 a weight on the change is almost one
    on where the episode ends, and only a smaller factor makes it one on when the change comes.
    """

    column: str
    counted: ClassVar[str] = "units of change"

    @property
    def needs(self) -> tuple[str, ...]:
        """The column, and what was observed of it before."""
        return self.column, before(self.column)

    def __call__(self, observed: Mapping[str, FloatArray]) -> FloatArray:
        """The difference x_{t+1} - x_t."""
        change: FloatArray = observed[self.column] - observed[before(self.column)]
        return change


@dataclass(frozen=True)
class Product(OutcomeFeature):
    """The product of two columns, or the square of one."""

    a: str
    b: str
    counted: ClassVar[str] = "units of the product"

    def __call__(self, observed: Mapping[str, FloatArray]) -> FloatArray:
        """The product a b."""
        product: FloatArray = observed[self.a] * observed[self.b]
        return product


class KnownOutcome(OutcomeFeature):
    """What is known of an action before it is taken. It stands among the observed features under its own name, which
    :func:`cirl_gym.data.known.with_known` adds, and reads nothing else."""

    least: ClassVar[float | None] = 0.0
    looks_back: ClassVar[bool] = False
    """Whether it depends on the action before."""

    @property
    def columns(self) -> tuple[str, ...]:
        """None: it is about no column."""
        return ()

    @property
    def needs(self) -> tuple[str, ...]:
        """The observed feature of its own name."""
        return (self.name,)

    def __call__(self, observed: Mapping[str, FloatArray]) -> FloatArray:
        """As it stands there."""
        return observed[self.name]

    def holds(self, actions: IntArray, previous: IntArray, action_names: Sequence[str]) -> BoolArray:
        """``[..]`` where it is 1, of actions ``[..]`` and those before ``[..]`` (-1: none); elsewhere it is 0.

        Raises:
            ValueError: it is about an action that there is not.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Given(KnownOutcome):
    """1 where this action is taken, else 0.

    Of actions that several columns make up, such as "antibiotic=1, fluids=0", one column's value names all that have
    it: ``Given("antibiotic=1")``.
    """

    action: str
    counted: ClassVar[str] = "step with the action"

    @property
    def name(self) -> str:
        """As it is written: an action that is a whole number stands without quotes."""
        return f"Given({action_text(self.action)})"

    def holds(self, actions: IntArray, previous: IntArray, action_names: Sequence[str]) -> BoolArray:
        """Where the action is this one."""
        named = [name == self.action for name in action_names]
        if not any(named) and "=" in self.action:
            named = [self.action in name.split(", ") for name in action_names]
        if not any(named):
            raise ValueError(f"outcome {self.name!r}: {no_action(self.action, action_names)}")
        taken: BoolArray = np.array(named)[actions]
        return taken


@dataclass(frozen=True)
class Switched(KnownOutcome):
    """1 where the action is another than the one before, else 0; at the first decision of an episode 0."""

    counted: ClassVar[str] = "switch"
    looks_back: ClassVar[bool] = True

    def holds(self, actions: IntArray, previous: IntArray, action_names: Sequence[str]) -> BoolArray:
        """Where there was an action before, and another."""
        other: BoolArray = (previous >= 0) & (actions != previous)
        return other


def action_text(action: str) -> str:
    """An action's name as it is written in a text."""
    return action if re.fullmatch("0|[1-9][0-9]*", action) else quoted(action)


def no_action(name: str, action_names: Sequence[str]) -> str:
    """What to say of an action that there is not."""
    return f"there is no action {name!r}; the actions are {', '.join(action_names)}"


def before(column: str) -> str:
    """The name of the observed feature that holds what was observed of a column one step earlier."""
    return f"{column} before"


def outcome_values(
    observed: npt.NDArray[np.floating], outcomes: Sequence[OutcomeFeature], names: Sequence[str]
) -> FloatArray:
    """Values ``[.., d]``, raw units, of d outcomes from observed features ``[.., D]``, which have ``names``."""
    place = {name: i for i, name in enumerate(names)}
    values = np.empty((*observed.shape[:-1], len(outcomes)))
    for i, outcome in enumerate(outcomes):
        read = {name: observed[..., place[name]].astype(np.float64, copy=False) for name in outcome.needs}
        values[..., i] = outcome(read)
    return values


_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Outside, Above, Below, Product, Change, Given, Switched)}
FORMS = ", ".join(f"{name}({', '.join(field.name for field in fields(kind))})" for name, kind in _KINDS.items())
"""What can be written beside a column's name."""


def read_outcome(text: str, observed: Sequence[str]) -> OutcomeFeature:
    """The outcome that a text names. What it needs may not be observed: :func:`check_outcomes`.

    Args:
        text: a column's name, or one of :data:`FORMS`.
        observed: names of the observed features; such a name is that column, whatever it looks like. (What is known
            of an action stands among them, and is what its name says.)

    Raises:
        ValueError: the text begins as one of :data:`FORMS` and is not whole, or its numbers are not possible.
    """
    head, bracket, _ = text.partition("(")
    kind = _KINDS.get(head.strip())
    if kind is None or not bracket or (text in observed and not issubclass(kind, KnownOutcome)):
        return Column(text)
    if text in observed:
        with suppress(ValueError):
            known = read_outcome(text, ())
            return known if known.name == text else Column(text)
        return Column(text)
    sought = kind in (Above, Below) and re.search(r",\s*\?\s*\)\s*$", text)
    if sought:
        known = read_outcome(f"{text[: sought.start()]}, 0)", ())
        return Sought(kind.__name__, *known.columns)
    try:
        call = parsed(text.strip())
    except ValueError as error:
        why = "? can stand for the limit of Above or Below alone" if "?" in text else str(error)
        raise _unreadable(text, why) from error
    names = [field.name for field in fields(kind)]
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise _unreadable(text, f"it must be {head.strip()} with its arguments in brackets, and nothing more")
    if len(call.args) != len(names):
        raise _unreadable(text, f"{head.strip()} takes {len(names)} arguments, not {len(call.args)}")
    outcome: OutcomeFeature = kind(*(_argument(text, node, name) for node, name in zip(call.args, names, strict=True)))
    return outcome


def check_outcomes(outcomes: Sequence[OutcomeFeature], observed: Sequence[str]) -> None:
    """Check that all that outcomes are computed from is observed.

    Raises:
        ValueError: it is not, or an outcome's limit is still sought; the message names it, and what there is.
    """
    unknown = [outcome.name for outcome in outcomes if isinstance(outcome, Column) and outcome.column not in observed]
    if unknown:
        raise ValueError(
            f"outcome {', '.join(map(repr, unknown))} is not among the observed features: {', '.join(observed)}"
            + hint(*unknown)
        )
    for outcome in outcomes:
        if isinstance(outcome, Sought):
            raise ValueError(f"outcome {outcome.name!r} has no limit: cirl explain and irl.explain alone look for one")
        missing = [name for name in outcome.needs if name not in observed]
        if missing:
            lag = isinstance(outcome, Change) and outcome.column in observed
            raise ValueError(
                f"outcome {outcome.name!r} needs {missing[0]!r}, which is not among the observed features: "
                f"{', '.join(observed)}"
                + ("; cirl_gym.data.outcomes.with_lags adds it" if lag else "")
                + ("; cirl_gym.data.known.with_known adds it" if isinstance(outcome, KnownOutcome) else "")
            )


def hint(*unknown: str) -> str:
    """What to add to a message about unknown names: the forms, if one of the names may have been meant as one."""
    return f"; what is not a column's name is written {FORMS}" if any("(" in name for name in unknown) else ""


def parsed(text: str) -> ast.expr:
    """The expression that a text is.

    Raises:
        ValueError: it is none.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a strange escape in a quoted name is a mistake, not a matter for a warning
            return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError("its brackets, commas or quotes are not in order") from error


def quoted(name: str) -> str:
    """A name as it is written in a text: in quotes where it is no plain word."""
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return name if plain else json.dumps(name, ensure_ascii=False)


def _argument(text: str, node: ast.expr, name: str) -> str | float:
    """A name, bare or in quotes, or a number, as the argument demands."""
    if name == "action" and isinstance(node, ast.Constant) and not isinstance(node.value, str):
        return ast.get_source_segment(text.strip(), node) or ""  # an action can be called 1
    if name not in NUMBERS:
        if isinstance(node, ast.Name):
            # As it was written: Python's own reading of a name exchanges some letters, such as the micro sign.
            return ast.get_source_segment(text.strip(), node) or node.id
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        of = "an action's" if name == "action" else "a column's"
        raise _unreadable(text, f"{name} must be {of} name, in quotes if it is no plain word")
    minus = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    number = node.operand if isinstance(node, ast.UnaryOp) and minus else node
    if isinstance(number, ast.Constant) and type(number.value) in (int, float):
        value: float = number.value  # type: ignore[assignment]
        return -value if minus else value
    raise _unreadable(text, f"{name} must be a number")


def _unreadable(text: str, why: str) -> ValueError:
    return ValueError(f"outcome {text!r} cannot be read: {why}; what is not a column's name is written {FORMS}")


def changing(outcomes: Sequence[str], observed: Sequence[str]) -> tuple[str, ...]:
    """The columns of which outcomes (names or texts) weigh the change, each once, for :func:`with_lags`.

    Raises:
        ValueError: a text cannot be read.
    """
    read = [read_outcome(text, observed) for text in outcomes]
    return tuple(dict.fromkeys(outcome.column for outcome in read if isinstance(outcome, Change)))


def with_lags(batch: Batch, names: Sequence[str]) -> Batch:
    """The same episodes with a feature "NAME before" for each name, behind the others: x_{t-1}, and x_0 at t = 0.

    To a model it is one more feature that is seen and predicted (the reading of now is what will have been before), so
    that ``Change(NAME)``, the outcome minus it, is a function of the predicted row alone. At the start of an episode
    nothing is known to have changed.

    Raises:
        ValueError: a name is no feature, or the batch has a feature of the new name.
    """
    if not names:
        return batch
    for name in names:
        if name not in batch.features:
            raise ValueError(f"with_lags: {name!r} is not a feature; the features are {', '.join(batch.features)}")
        if before(name) in batch.features:
            raise ValueError(
                f"with_lags: there is a feature {before(name)!r}, so what was observed of {name!r} before cannot have "
                "that name"
            )
    now = batch.obs[..., [batch.features.index(name) for name in names]]
    obs = np.concatenate([batch.obs, np.concatenate([now[:, :1], now[:, :-1]], axis=1)], axis=-1)
    return replace(batch, obs=obs, features=(*batch.features, *map(before, names)))
