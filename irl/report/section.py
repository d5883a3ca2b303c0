"""What is reported: a title, sentences, and sections of tables, pictures and words, whatever they are shown on.

A finding is one :class:`Section`. ``page`` is all that is to be said of it, in the order of a page; ``terminal`` is the
part of it that a terminal shows. :mod:`irl.report.renderers` walks both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, TypeAlias

Rows: TypeAlias = list[list[str]]
MINUS = "\N{MINUS SIGN}"
NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Table:
    """Names and numbers as text; the first column names the rows."""

    kind: ClassVar = "table"
    title: str
    head: list[str]
    rows: Rows

    def titled(self, title: str) -> Table:
        """The same table under another title."""
        return replace(self, title=title)


@dataclass(frozen=True)
class Picture:
    """A picture of :mod:`irl.report.drawing`, with its own description; drawn only where it is shown."""

    kind: ClassVar = "picture"
    svg: Callable[[], str]


@dataclass(frozen=True)
class Paragraph:
    """Sentences."""

    kind: ClassVar = "paragraph"
    text: str


@dataclass(frozen=True)
class Terms:
    """What is said under short headings: pairs of heading and text."""

    kind: ClassVar = "terms"
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Reasons:
    """Names, with a reason for each."""

    kind: ClassVar = "reasons"
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Details:
    """What is folded away until somebody asks for it."""

    kind: ClassVar = "details"
    summary: str
    parts: tuple[Part, ...]


Part: TypeAlias = "Table | Picture | Paragraph | Terms | Reasons | Details"


@dataclass(frozen=True)
class Line:
    """A line that a terminal does not wrap: a path in it stays whole."""

    text: str


Shown: TypeAlias = "Table | Line | str"


@dataclass(frozen=True)
class Section:
    """One finding."""

    name: str
    """Its anchor on the page."""
    title: str
    page: tuple[Part, ...] = ()
    """What a page says of it, in order; nothing: the page leaves it out."""
    terminal: tuple[Shown, ...] = ()
    """What a terminal shows of it, in order: tables, sentences, and lines with paths."""


@dataclass(frozen=True)
class Report:
    """All that is said of one thing."""

    title: str
    headline: tuple[str, ...]
    """The finding in plain sentences."""
    sections: tuple[Section, ...]


def explained(shows: str, read: str, cannot: str, between: tuple[tuple[str, str], ...] = ()) -> Terms:
    """What a picture or table shows, how it is read, and what it cannot tell; ``between`` goes before the last."""
    return Terms((("What it shows", shows), ("How to read it", read), *between, ("What it cannot tell", cannot)))


def percent(share: float) -> str:
    """A share as text: 0.8349 is ``83.5 %``."""
    return f"{100 * share:.1f} %"


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign, as typeset: ``−0.290``, ``+0.051``, and ``0.000`` without one."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def span(interval: tuple[float, float], digits: int = 3) -> str:
    """``low to high``, never broken across lines."""
    return NO_BREAK.join((signed(interval[0], digits), "to", signed(interval[1], digits)))


def short(value: float) -> str:
    """Four significant digits, as typeset."""
    return f"{value:.4g}".replace("-", MINUS)
