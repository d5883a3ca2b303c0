"""Files that are either whole or absent: written under a temporary name, then renamed; read without pickle.

:class:`StoredParts` holds the parts of a long run on disk until it ends, so that one that was killed goes on from them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
EVERY = 60.0
"""Seconds between two states of a training that are written: so much work is lost at most."""


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file whole: a reader sees the old content or all of the new, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], content: str) -> None:
    """Write UTF-8 text whole."""
    write_bytes(path, content.encode("utf-8"))


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON whole; a NaN or an infinity is an error, since JSON has no word for it."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read what :func:`write_json` wrote.

    Raises:
        ValueError: the file is not JSON; the message names it.
        OSError: it cannot be read.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a compressed ``.npz`` whole. Object arrays (which would need pickle) are refused.

    The bytes depend on the arrays alone: no time stamp enters.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(array), allow_pickle=False)
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(member, content.getvalue(), zipfile.ZIP_DEFLATED)
    write_bytes(path, buffer.getvalue())


def read_arrays(path: str | os.PathLike[str]) -> dict[str, npt.NDArray[Any]]:
    """Read what :func:`write_arrays` wrote.

    Raises:
        ValueError: the file is not a whole ``.npz`` without objects; the message names it.
        OSError: there is no such file, or it may not be read.
    """
    with Path(path).open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("not an .npz archive")
            return {name: archive[name] for name in archive.files}
        # A damaged archive fails in any of zipfile's, zlib's and NumPy's ways, some of them undocumented.
        except Exception as error:
            raise ValueError(f"{path} cannot be read as arrays: {error}") from error


def say(line: str) -> None:
    """One line to standard error, where it is no part of a result."""
    sys.stderr.write(f"cirl: {line}\n")


class StoredParts:
    """A folder of parts, each a file that is whole or absent.

    A part that cannot be used is done anew, and a disk that cannot be written to stores nothing: both are said in one
    line, and neither ends the run or changes its outcome.

    Attributes:
        folder: of the parts, made when the first part is written; None: nothing is stored.
        every: seconds between two states of a training that goes on; default: :data:`EVERY`.
        after_write: called whenever a part has been written; may write beside it.
    """

    def __init__(
        self, folder: Path | None = None, tell: Callable[[str], None] = say, every: float | None = None
    ) -> None:
        self.folder = folder
        self.every = EVERY if every is None else every
        self.after_write: Callable[[], object] = lambda: None
        self._tell = tell
        self._failing = False

    def stage(
        self, name: str, compute: Callable[[], T], save: Callable[[T, Path], object], load: Callable[[Path], T]
    ) -> T:
        """A part that is read where it is stored, and otherwise computed and stored.

        What is computed must draw from generators that nothing else draws from: reading draws nothing. ``name`` is the
        file's; ``save`` writes it whole, and ``load`` raises a ValueError where it is not a whole one.
        """
        found = self.read(name, load)
        if found is not None:
            return found
        made = compute()
        self.write(name, lambda path: save(made, path))
        return made

    def read(self, name: str, load: Callable[[Path], T]) -> T | None:
        """A stored part, or None where there is none that can be used."""
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
        """Store a part; ``save`` writes it whole, to the path that it is given. Returns whether it is stored."""
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
