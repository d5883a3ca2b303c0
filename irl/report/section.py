"""What is reported: sections of tables, pictures and words, and their one self-contained HTML page.

A finding is one :class:`Section` of tables, pictures and words. ``page`` is all that is to be said of it, in the order
of a page, where a plain text is a paragraph; ``terminal`` is the part of it that a terminal shows.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from cirl_gym.files import escaped
from irl.report.courses import Courses

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

    @classmethod
    def of(cls, title: str, columns: Mapping[str, Iterable[str] | None]) -> Table:
        """A table of columns by their heads; one that is None is left out."""
        known = {head: list(cells) for head, cells in columns.items() if cells is not None}
        return cls(title, list(known), [list(row) for row in zip(*known.values(), strict=True)])

    def titled(self, title: str) -> Table:
        """The same table under another title."""
        return replace(self, title=title)


@dataclass(frozen=True)
class Picture:
    """A picture of :mod:`irl.report.drawing`, with its own description; drawn only where it is shown."""

    kind: ClassVar = "picture"
    svg: Callable[[], str]


@dataclass(frozen=True)
class Definitions:
    """What is said under short headings: pairs of heading and text."""

    kind: ClassVar = "terms"
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Reasons:
    """Names, with a reason for each."""

    kind: ClassVar = "reasons"
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Sentences:
    """A list of sentences."""

    kind: ClassVar = "sentences"
    entries: tuple[str, ...]


@dataclass(frozen=True)
class Details:
    """What is folded away until somebody asks for it."""

    kind: ClassVar = "details"
    summary: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Heading:
    """What the parts after it are about, within a section."""

    kind: ClassVar = "heading"
    text: str


@dataclass(frozen=True)
class Chooser:
    """Many alike things, of which a page shows one at a time, chosen by two lists.

    Words and numbers are made here and nowhere else: the page's script only puts the texts of the chosen one in the
    places of the first one's, which is shown without a script too.

    Raises:
        ValueError: there is not one of the things for each member of each group, or their parts differ in more than
            texts.
    """

    kind: ClassVar = "chooser"
    name: str
    """Of the parts of the page that belong to it."""
    labels: tuple[str, str]
    """What is chosen by the first list, and by the second."""
    groups: tuple[str, ...]
    members: tuple[tuple[str, ...], ...]
    """Of each group."""
    shown: tuple[tuple[Part, ...], ...]
    """Of every member of the first group, then of the second, and so on."""
    without: str
    """What is said where there is no script."""

    def __post_init__(self) -> None:
        if len(self.groups) != len(self.members) or len(self.shown) != sum(map(len, self.members)) or not self.shown:
            raise ValueError("Chooser: one thing is needed for each member of each group")
        if len({len(_slots(parts)) for parts in self.shown}) > 1:
            raise ValueError("Chooser: the things must be alike, and differ in their texts alone")

    @property
    def data(self) -> Markup:
        """All texts, for the script."""
        members = [[*map(typeset, names)] for names in self.members]
        content = {"members": members, "slots": [[*map(typeset, _slots(parts))] for parts in self.shown]}
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return Markup(text.replace("&", r"\u0026").replace("<", r"\u003c"))


def _slots(parts: Iterable[Part]) -> list[str]:
    """Texts of parts that can change, in the order of the page's places for them."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, Table):
            found += [*part.head[1:], *(cell for row in part.rows for cell in row[1:])]
        elif isinstance(part, Courses):
            found += part.slots
        elif isinstance(part, Details):
            found += _slots(part.parts)
    return found


@dataclass(frozen=True)
class Slider:
    """A table of which a page shows one row at a time, beside the row that was found.

    Without a script the table stands alone.

    Raises:
        ValueError: the row that was found is none of the table's.
    """

    kind: ClassVar = "slider"
    name: str
    """Of the parts of the page that belong to it."""
    label: str
    """What is changed."""
    table: Table
    """Its first column says where the slider stands."""
    found: int
    """Which row was found."""

    def __post_init__(self) -> None:
        if not 0 <= self.found < len(self.table.rows):
            raise ValueError(f"Slider: row {self.found} is none of {len(self.table.rows)}")

    @property
    def beside(self) -> Table:
        """Column by column, what was found and what is shown now: at first the same."""
        found = self.table.rows[self.found]
        rows = [[name, cell, cell] for name, cell in zip(self.table.head, found, strict=True)]
        return Table(self.label, ["what follows", "as found", "at the slider"], rows)


@dataclass(frozen=True)
class Line:
    """A line that a terminal does not wrap: a path in it stays whole."""

    text: str


Part: TypeAlias = (
    "Table | Picture | Courses | Definitions | Reasons | Sentences | Details | Chooser | Slider | Heading | str"
)
Shown: TypeAlias = "Table | Line | str"


@dataclass(frozen=True)
class Section:
    """One finding."""

    name: str
    """Its anchor on the page."""
    title: str
    page: tuple[Part, ...] = ()
    """Nothing: the page leaves it out."""
    terminal: tuple[Shown, ...] = ()


@dataclass(frozen=True)
class Report:
    """All that is said of one thing."""

    title: str
    headline: tuple[str, ...]
    """The finding in plain sentences."""
    sections: tuple[Section, ...]
    verdict: str = ""
    """What comes before all else, large; nothing: the title does."""
    facts: tuple[tuple[str, str], ...] = ()
    """What the first screen of a page says of the data: pairs of name and text."""


def render(report: Report) -> str:
    """The page as text. It loads nothing from anywhere, and every name from a table is escaped."""
    folder = Path(__file__).parent
    environment = Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.finalize = lambda value: typeset(value) if type(value) is str else value
    # A narrow screen may break a name after an underscore.
    environment.filters["breakable"] = lambda name: escape(typeset(name)).replace("_", Markup("_<wbr>"))
    style, script = (Markup((folder / name).read_text(encoding="utf-8")) for name in ("style.css", "page.js"))
    if not any(_needs_script(part) for section in report.sections for part in section.page):
        script = Markup()
    # The page runs this script and no other.
    digest = b64encode(sha256(f"\n{script}\n".encode()).digest()).decode()
    allowed = f"; script-src 'sha256-{digest}'" if script else ""
    page = environment.get_template("page.html")
    return page.render(style=style, script=script, allowed=Markup(allowed), report=report)


def _needs_script(part: Part) -> bool:
    return isinstance(part, Chooser | Slider) or (isinstance(part, Details) and any(map(_needs_script, part.parts)))


def typeset(text: str) -> str:
    """Printable, with the one sign for minus before every number."""
    return re.sub(r"(?<![\w.\-])-(?=\.?\d)|(?<=\de)-(?=\d)", MINUS, escaped(text))


def explained(shows: str, read: str, cannot: str, between: tuple[tuple[str, str], ...] = ()) -> Definitions:
    """What a picture or table shows, how it is read, and what it cannot tell; ``between`` goes before the last."""
    return Definitions((("What it shows", shows), ("How to read it", read), *between, ("What it cannot tell", cannot)))


def percent(share: float) -> str:
    """A share as text: 0.8349 is ``83.5 %``."""
    return f"{100 * share:.1f} %"


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign, as typeset: ``−0.290``, ``+0.051``, and ``0.000`` without one."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def span(interval: tuple[float, float]) -> str:
    """``low to high``, never broken across lines."""
    return NO_BREAK.join((signed(interval[0]), "to", signed(interval[1])))


def short(value: float) -> str:
    """Four significant digits, as typeset."""
    return f"{value:.4g}".replace("-", MINUS)
