"""Values that are written in several ways: which of them are one, by what name, and how often each was met."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from cirl_gym.tables.cells import value_of
from cirl_gym.tables.sheet import listed

_POINT_ZERO = re.compile(r"([+-]?\d+)\.0*")


def _plain(text: str) -> str:
    """Without the ".0" that pandas writes behind whole numbers in a column with gaps."""
    whole = _POINT_ZERO.fullmatch(text)
    return whole[1] if whole else text


_NO_ID = frozenset(("", "na", "n/a", "#n/a", "nan", "nat", "none", "null", "<na>"))


def is_no_id(text: str | None) -> bool:
    """Whether a cell is empty, or a word that stands for a missing id: many ids of that name would become one."""
    return text is None or text.strip().casefold() in _NO_ID


def plain_id(id: object) -> str:
    """The id as text, without the ".0" of one that pandas holds as a floating-point number."""
    return _plain(str(id))


def one_action(column: str, cells: Sequence[str | None], as_written: bool) -> tuple[list[str | None], list[str]]:
    """Cells ``[R]`` of an action or a habit's column, equal values by one name; what was read as the same, in words.

    Equal are numbers of one value and texts that differ in case and blanks only (:func:`value_of`). The name is the
    spelling that is met most often, without ".0". ``as_written``: every spelling is a value of its own.
    """
    if as_written:
        return [None if cell is None else cell.strip() for cell in cells], []
    return _one(column, cells, value_of, lambda text: _plain(text.strip()))


def one_id(column: str, cells: Sequence[str | None], as_written: bool) -> tuple[list[str | None], list[str]]:
    """Cells ``[R]`` of an id or an owner, in which "44.0" is 44 where both are met; what was read so, in words.

    Nothing else is the same: "007" and "7" may be two patients (:func:`alike` says so).
    """
    return (list(cells), []) if as_written else _one(column, cells, _plain, lambda text: text)


def _one(
    column: str, cells: Sequence[str | None], key: Callable[[str], Hashable], name: Callable[[str], str]
) -> tuple[list[str | None], list[str]]:
    met = Counter(cell for cell in cells if cell is not None)
    same: dict[Hashable, list[str]] = {}
    for text in sorted(met):
        same.setdefault(key(text), []).append(text)
    names: dict[str, str] = {}
    repairs = []
    for texts in same.values():
        # Of names met equally often the shortest: 44 rather than 44.0, wherever they stand in the file.
        by_name = Counter[str]()
        for text in texts:
            by_name[name(text)] += met[text]
        chosen = min(by_name, key=lambda text: (_plain(text) != text, -by_name[text], text))
        names |= dict.fromkeys(texts, chosen)
        others = [text for text in texts if text.strip() != chosen]
        if len(texts) > 1 and others:
            told = ", ".join(f"{text!r} ({met[text]} cells)" for text in others)
            repairs.append(
                f"column {column!r}: {told} read as {chosen!r}, which is the same (--as-written keeps them apart)"
            )
    return [None if cell is None else names[cell] for cell in cells], repairs


def alike(names: Sequence[str], what: str) -> list[str]:
    """A warning if ids or owners differ in blanks, case or zeros only: they stay apart, but may be one and the same."""
    same: dict[Hashable, set[str]] = {}
    for name in names:
        same.setdefault(value_of(name), set()).add(name)
    twins = sorted(name for found in same.values() if len(found) > 1 for name in found)
    return [f"{what} that differ in blanks, case or zeros only are different ones: {listed(twins)}"] if twins else []
