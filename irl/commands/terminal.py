"""What a command shows, on whatever shows it: a display that fails, or knows few characters, stops no work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TextIO

from rich.console import Console

IN_ASCII = {
    "\N{MINUS SIGN}": "-",
    "\N{EN DASH}": "-",
    "\N{BOX DRAWINGS LIGHT HORIZONTAL}": "-",
    "\N{PLUS-MINUS SIGN}": "+/-",
    "\N{MULTIPLICATION SIGN}": "x",
}
"""What some characters become where they cannot be shown; letters lose their accents, all others become "?"."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: the work is given up as it is with Ctrl-C."""


class Steady:
    """A text stream that stops no work: what cannot be encoded is replaced, and once writing has failed (a pipe that
    nobody reads, a full disk) all else goes nowhere.

    Everything else is the stream's own.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._failed = stream, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write what can be written; returns the length of the text."""
        try:
            if not self._failed:
                self._stream.write(text)
        except UnicodeEncodeError as error:
            self._stream.write("".join(map(_in(error.encoding), text)))
        except (OSError, ValueError):  # a ValueError is that of a closed stream
            self._give_up()
        return len(text)

    def flush(self) -> None:
        """Hand on what was written, as far as it goes."""
        try:
            if not self._failed:
                self._stream.flush()
        except (OSError, ValueError):
            self._give_up()

    def _give_up(self) -> None:
        """What is left in the stream's buffer goes nowhere, so that Python does not fail with it at its end."""
        self._failed = True
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)


def _in(encoding: str) -> Any:
    def shown(character: str) -> str:
        plain = unicodedata.normalize("NFKD", IN_ASCII.get(character, character))
        for candidate in (character, plain, plain[0]):
            with suppress(UnicodeEncodeError):
                candidate.encode(encoding)
                return candidate
        return "?"

    return shown


def console() -> Console:
    """Where results are shown. Text is text: no brackets in a path or a name are markup, and no colons emoji."""
    return Console(highlight=False, markup=False, emoji=False)


@contextmanager
def steady() -> Iterator[None]:
    """Standard output and standard error are :class:`Steady` inside."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (Steady(stream) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM stops the work as Ctrl-C does, by :class:`Terminated`. Where it cannot be heard, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def leave_at_once() -> None:
    """From here on Ctrl-C ends the process with 130, without a word: the result is written and shown."""
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
