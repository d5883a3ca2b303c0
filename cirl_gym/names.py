"""What a name that is not there may have been meant as."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def did_you_mean(unknown: str | Iterable[str], known: Sequence[str]) -> str:
    """`` (did you mean 'wbc'?)`` for a message, with the known name that is most like each unknown one; "" without one.

    Case, blanks and signs between words make no difference.
    """
    plain = {_plain(name): name for name in reversed(known)}
    names = [unknown] if isinstance(unknown, str) else list(unknown)
    likely = [plain[found] for name in names for found in get_close_matches(_plain(name), plain, n=1)]
    return f" (did you mean {', '.join(map(repr, dict.fromkeys(likely)))}?)" if likely else ""


def _plain(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum()) or name
