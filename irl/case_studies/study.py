"""What a case study is: a small TOML file that says whose decisions, when, on what, and what is known beforehand."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pandas as pd
from msgspec import Meta

from cirl_gym.data.outcomes import KnownOutcome, read_outcome
from cirl_gym.files import loading
from cirl_gym.names import did_you_mean
from cirl_gym.outcome_models.stated import read_effect
from cirl_gym.tables.columns import Duplicates
from cirl_gym.tables.meds import Item

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = resources.files("irl.case_studies") / "studies"
OPEN = "?"
"""In place of a limit in an outcome: it is found from the decisions."""
Positive = Annotated[int, Meta(ge=1)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of a study's file: no key that nobody reads, every value of its type."""


class CohortRule(Part, frozen=True, kw_only=True):
    """Whose decisions they are."""

    least: str = "0h"
    """Length of a stay, at the least."""
    acted: bool = False
    """Stays alone in which the action was taken at all."""
    deaths: bool = True
    """A death during the stay ends it, and is what happened to it (``terminated``)."""


class DecisionPoints(Part, frozen=True, kw_only=True):
    """When somebody could decide: at each reading of a covariate, or at the edges of bins.

    Raises:
        ValueError: neither is named, or a length is none.
    """

    at: str | None = None
    """The covariate at whose readings a row stands, unless there are bins."""
    apart: str = "0h"
    """A row stands at least so long after the row before."""
    bins: str | None = None
    """Length of bins, whose edges are rows."""
    first: str = "0h"
    """The first edge, so long after the beginning of the stay."""
    at_edge: Literal["known", "unknown"] = "unknown"
    """Whether a reading at the very edge is known in its row."""
    most: Positive = 30
    """Decisions of a stay, at most."""

    def __post_init__(self) -> None:
        if self.at is None and self.bins is None:
            raise ValueError("decisions: name at (a covariate) or bins (their length)")
        if self.bins is not None and not span("decisions.bins", self.bins):
            raise ValueError("decisions.bins: must not be 0")
        for name in ("apart", "first"):
            span(f"decisions.{name}", getattr(self, name))


class Action(Part, frozen=True, kw_only=True):
    """What was done or not.

    Raises:
        ValueError: the codes are no regular expression, or a length is none.
    """

    name: str
    """Its column in the table."""
    codes: str
    """A regular expression of the codes of its events, which they match whole."""
    meaning: str
    """What it is, for readers."""
    running: bool = False
    """An infusion that goes on is an action at every row until it ends; else it is one where it starts."""
    window: str | None = None
    """It counts if it starts so long after its row, at most; none: until the next row."""
    margin: str = "0h"
    """It counts if it starts so long before the next row, at least, so that it can show there."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.codes)
        except re.error as error:
            raise ValueError(f"action.codes: no regular expression: {error}") from error
        for name, given in (("window", self.window), ("margin", self.margin)):
            if given is not None:
                span(f"action.{name}", given)


class Covariate(Part, frozen=True, kw_only=True):
    """What was observed."""

    name: str
    unit: str
    items: tuple[int, ...]
    """Numbers of the items that are read as it."""
    range: tuple[float, float]
    """Plausible values, ends included; others are left out and counted."""
    fahrenheit: tuple[int, ...] = ()
    """Items in degrees Fahrenheit, which become degrees Celsius."""
    before: str = "0h"
    """How long before the stay a value still counts; "any": however long."""
    static: bool = False

    def __post_init__(self) -> None:
        _ = self.item

    @property
    def item(self) -> Item:
        """As records are read."""
        before = None if self.before == "any" else span(f"covariate {self.name}: before", self.before)
        return Item(self.name, self.items, *self.range, before, self.fahrenheit)


class Weigh(Part, frozen=True, kw_only=True):
    """What is weighed, and how: options of ``cirl explain``."""

    outcomes: tuple[str, ...]
    gamma: float
    lower_is_better: tuple[str, ...] = ()
    sign: tuple[str, ...] = ()
    habit: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()


class Claim(Part, frozen=True, kw_only=True):
    """Something that medicine knows, and where it says so."""

    says: str
    """Of an effect, as ``--effect`` takes it: "ACTION raises NAME"; of a weight: "NAME=-1" or "NAME=+1"."""
    source: str


class Known(Part, frozen=True, kw_only=True):
    """What is known beforehand, and compared with what is found.

    Where an effect is contradicted, no weight that rests on it is read. Nothing of it goes into the fit.
    """

    effects: tuple[Claim, ...] = ()
    weights: tuple[Claim, ...] = ()


class Variant(Part, frozen=True, kw_only=True):
    """The same study with other choices."""

    name: str
    why: str
    change: dict[str, Any]
    """Keys of the study's file in the place of which others stand, table by table."""


class StudyDesign(Part, frozen=True, kw_only=True):
    """A whole study.

    Raises:
        ValueError: a name is there twice, or what is named is no covariate, action or outcome of it.
    """

    title: str
    question: str
    cohort: CohortRule
    decisions: DecisionPoints
    action: Action
    covariate: tuple[Covariate, ...]
    weigh: Weigh
    known: Known = Known()
    same_time: Duplicates = "mean"
    """Which of several readings of one time counts."""
    variant: tuple[Variant, ...] = ()
    sources: tuple[str, ...] = ()
    """Of items, ranges and choices."""

    def __post_init__(self) -> None:
        names = [one.name for one in self.covariate]
        twice = [name for name in (*names, self.action.name) if (*names, self.action.name).count(name) > 1]
        if twice:
            raise ValueError(f"two columns have the name {twice[0]!r}")
        if self.decisions.at is not None and self.decisions.at not in names:
            raise ValueError(
                f"decisions.at: no covariate {self.decisions.at!r}{did_you_mean(self.decisions.at, names)}"
            )
        for text in self.weigh.outcomes:
            outcome = read_outcome(text.replace(OPEN, "0"), names)
            absent = [] if isinstance(outcome, KnownOutcome) else [one for one in outcome.columns if one not in names]
            if absent:
                raise ValueError(f"weigh.outcomes: {text!r}: no covariate {absent[0]!r}{did_you_mean(absent, names)}")
        for claim in self.known.effects:
            read_effect(claim.says, ("0", "1"), (*names, *self.weigh.outcomes), self.action.name)
        for claim in self.known.weights:
            name, equals, sign = claim.says.rpartition("=")
            if not equals or sign not in ("-1", "+1") or name not in self.weigh.outcomes:
                raise ValueError(
                    f"known.weights: {claim.says!r} must be OUTCOME=-1 or OUTCOME=+1, of an outcome weighed"
                )

    @property
    def signs(self) -> dict[str, int]:
        """By outcome the sign that its weight is known to have."""
        return {name: int(sign) for name, _, sign in (one.says.rpartition("=") for one in self.known.weights)}


def span(where: str, given: str) -> pd.Timedelta:
    """A length of time such as "90min" or "2h"; a ValueError that names ``where`` if it is none, or negative."""
    with suppress(ValueError):
        found = pd.Timedelta(given)
        if found >= pd.Timedelta(0):  # which a missing one is not
            return found
    raise ValueError(f"{where}: must be a length of time such as '90min' or '2h', not negative, got {given!r}")


def names() -> tuple[str, ...]:
    """The studies that come with this package."""
    return tuple(sorted(one.name.removesuffix(".toml") for one in FOLDER.iterdir() if one.name.endswith(".toml")))


def read_study(name: str, variant: str | None = None) -> StudyDesign:
    """A study of this package by its name, or one of your own by the path of its TOML file; as it is, or a variant.

    Raises:
        ValueError: there is no such study or variant, or the file is not one of a study; the message names the key.
    """
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise ValueError(f"{path}: there is no such file")
        text = path.read_text(encoding="utf-8")
    elif name in names():
        text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    else:
        own = names()
        raise ValueError(f"there is no study {name!r}{did_you_mean([name], own)}; the studies are {', '.join(own)}")
    with loading(Path(name), "a case study"):
        content = tomllib.loads(text)
        study = _study(content)
        if variant is None:
            return study
        changes = {one.name: one.change for one in study.variant}
        if variant not in changes:
            raise ValueError(f"--variant: there is no {variant!r}; there are {', '.join(changes) or 'none'}")
        return _study(changed(content, changes[variant]))


def _study(content: Mapping[str, Any]) -> StudyDesign:
    try:
        return msgspec.convert(content, StudyDesign)
    except msgspec.ValidationError as error:
        raise ValueError(str(error).replace("`", "").replace("$.", "")) from error


def changed(content: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The content with the values of ``change`` in their places; in tables those of their keys alone."""
    both = dict(content)
    for key, value in change.items():
        own = both.get(key)
        both[key] = changed(own, value) if isinstance(own, Mapping) and isinstance(value, Mapping) else value
    return both
