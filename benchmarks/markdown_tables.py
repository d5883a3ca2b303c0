"""Tables in Markdown, and pages that get theirs anew."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Of texts, the last line without its end."""
    lines = [list(head), *(list(row) for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def renewed(page: str, made: Mapping[str, str]) -> str:
    """The page with every table made anew, where one with the same head stands."""
    for one in made.values():
        new = one + "\n"
        head = re.escape(new.splitlines()[0])
        page = re.sub(rf"^{head}\n(?:\|.*\n)*", lambda _, new=new: new, page, flags=re.MULTILINE)
    return page
