"""Parts of a long run that are kept on disk until it ends, so that one that was killed goes on from them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
EVERY = 60.0
"""Seconds between two states of a training that are written: so much work is lost at most."""


def say(line: str) -> None:
    """One line to standard error, where it is no part of a result."""
    print(f"cirl: {line}", file=sys.stderr)


class Kept:
    """A folder of parts, each a file that is whole or absent.

    A part that cannot be used is done anew, and a disk that cannot be written to keeps nothing: both are said in one
    line, and neither ends the run or changes its outcome.

    Attributes:
        folder: of the parts; None: nothing is kept.
        every: seconds between two states of a training that goes on.
        after_write: called whenever a part has been written; may write beside it.
    """

    def __init__(
        self, folder: Path | None = None, tell: Callable[[str], None] = say, every: float | None = None
    ) -> None:
        """A folder that is made when the first part is written.

        Args:
            folder: where; None: nothing is kept.
            tell: takes the lines.
            every: seconds between two states of a training that goes on; default: :data:`EVERY`.
        """
        self.folder = folder
        self.every = EVERY if every is None else every
        self.after_write: Callable[[], object] = lambda: None
        self._tell = tell
        self._failing = False

    def stage(
        self, name: str, compute: Callable[[], T], save: Callable[[T, Path], object], load: Callable[[Path], T]
    ) -> T:
        """A part that is read where it is kept, and otherwise computed and kept.

        What is computed must draw from generators that nothing else draws from: reading draws nothing.

        Args:
            name: of the file, with its suffix.
            compute: makes the part.
            save: writes it whole, to the path given.
            load: reads it; raises ValueError where the file is not a whole one.
        """
        found = self.read(name, load)
        if found is not None:
            return found
        made = compute()
        self.write(name, lambda path: save(made, path))
        return made

    def read(self, name: str, load: Callable[[Path], T]) -> T | None:
        """A kept part, or None where there is none that can be used."""
        if self.folder is None or not (self.folder / name).exists():
            return None
        try:
            return load(self.folder / name)
        except (ValueError, KeyError, TypeError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())
            self._tell(f"{self.folder / name} cannot be used, this part of the run is done anew: {reason}")
            self.drop(name)
            return None

    def write(self, name: str, save: Callable[[Path], object]) -> bool:
        """Keep a part; ``save`` writes it whole, to the path that it is given. Returns whether it is kept."""
        if self.folder is None:
            return False
        try:
            save(self.folder / name)
            self.after_write()
        except (OSError, ValueError) as error:
            # Once, not every minute.
            if not self._failing:
                self._tell(f"nothing can be kept in {self.folder} ({error}); stopped now, the run would begin earlier")
            self._failing = True
            return False
        self._failing = False
        return True

    def drop(self, name: str) -> None:
        """Remove a part that is not needed any more, or cannot be used."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                (self.folder / name).unlink(missing_ok=True)
