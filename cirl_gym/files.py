"""Files that are either whole or absent: written under a temporary name, then renamed; read without pickle.

:class:`StoredParts` holds the parts of a long run on disk until it ends, so that one that was killed goes on from them.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout

T = TypeVar("T")
EVERY = 60.0
"""Seconds between two states of a training that are written: so much work is lost at most."""
LARGE, TIMES = 2**26, 20
"""What learnt numbers take is at most this many bytes, or at most so many times the file's: they hardly compress."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_DIGITS = 300
"""Of a whole number at most: a longer one is no float."""


@contextlib.contextmanager
def loading(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """What is made of a file's content is made in here: whatever fails becomes one error that names the file.

    Args:
        path: the file.
        what: what it should be, as "a whole batch".

    Raises:
        ValueError: anything inside failed, in whatever way; an error that names the file already passes as it is.
        OSError: there is no such file, or it may not be read.
    """
    try:
        yield
    except OSError:
        raise
    # A damaged file fails in ways that nobody foresaw: that is what this is for.
    except Exception as error:
        if isinstance(error, KeyError) and len(str(error).split()) == 1:
            raise ValueError(f"{path} lacks {error}, which {what} has") from error
        told = str(error) or type(error).__name__
        if isinstance(error, ValueError) and str(path) in told:
            raise
        raise ValueError(f"{path} is not {what}: {told}") from error


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """An OSError of what is written inside (a full disk, a limit of sizes) names the file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and error.errno is not None:
            raise
        if error.errno is None:
            raise OSError(f"{os.fspath(path)}: {error}") from error
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file whole: a reader sees the old content or all of the new, never a part."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    temporary = Path(name)
    try:
        with writing(path), os.fdopen(handle, "wb") as file:
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
        return parsed_json(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def parsed_json(text: str) -> Any:
    """What a text of JSON says.

    Raises:
        ValueError: it is not JSON, holds a number that is not finite or has too many digits, or nests too deep.
    """
    try:
        return json.loads(text, parse_constant=_not_finite, parse_float=_finite_number, parse_int=_short_number)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """A file that others wrote is read in here, by code whose errors speak of it: those pass as they are.

    Raises:
        ValueError: anything else failed, in whatever way; the message names the file.
    """
    try:
        yield
    except (ValueError, OSError, ImportError, MemoryError):
        raise
    # What a library makes of a strange file is open-ended.
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text} is no finite number")


def _finite_number(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_finite(text)


def _short_number(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


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


class Outline(NamedTuple):
    """What the head of an array says of it."""

    shape: tuple[int, ...]
    """Its shape."""
    dtype: np.dtype[Any]
    """Its dtype."""


Check: TypeAlias = Callable[[Mapping[str, Outline]], object]
"""Raises a ValueError where arrays of these names, shapes and dtypes are not what is asked for."""


def check_size(outlines: Mapping[str, Outline], on_disk: int) -> None:
    """Raise ValueError where arrays take more memory than learnt numbers of a file of ``on_disk`` bytes could."""
    size = sum(_bytes(outline) for outline in outlines.values())
    if size > max(LARGE, TIMES * on_disk):
        raise ValueError(f"{on_disk} bytes would become {size} in memory, which learnt numbers never do")


def check_finite(arrays: Mapping[str, npt.NDArray[Any]], unbounded: Callable[[str], bool] = lambda _: False) -> None:
    """Raise ValueError where an array holds NaN, or infinity and its name is not an ``unbounded`` one; it is named."""
    for name, array in arrays.items():
        if array.dtype.kind not in "fc":
            continue
        good = ~np.isnan(array) if unbounded(name) else np.isfinite(array)
        if not good.all():
            raise ValueError(f"array {name!r} holds {array[~good].flat[0]}")


def read_arrays(path: str | os.PathLike[str], check: Check | None = None) -> dict[str, npt.NDArray[Any]]:
    """Read what :func:`write_arrays` wrote.

    Args:
        path: the file.
        check: is shown names, shapes and dtypes before anything is unpacked; default: :func:`check_size`.

    Raises:
        ValueError: the file is not a whole ``.npz`` without objects, or the check fails; the message names it.
        OSError: there is no such file, or it may not be read.
    """
    with Path(path).open("rb") as file:
        try:
            if not zipfile.is_zipfile(file):
                raise ValueError("not an .npz archive")
            with zipfile.ZipFile(file) as archive:
                members = {_array_name(info): info for info in archive.infolist()}
                if len(members) < len(archive.infolist()):
                    raise ValueError("two arrays have one name")
                outlines = {name: _outline(archive, info) for name, info in members.items()}
                if check is None:
                    check_size(outlines, Path(path).stat().st_size)
                else:
                    check(outlines)
                return {name: _array(archive, info) for name, info in members.items()}
        # A damaged archive fails in any of zipfile's, zlib's and NumPy's ways, some of them undocumented.
        except Exception as error:
            raise ValueError(f"{path} cannot be read as arrays: {str(error) or type(error).__name__}") from error


def _bytes(outline: Outline) -> int:
    return math.prod(outline.shape) * outline.dtype.itemsize


def _array_name(info: zipfile.ZipInfo) -> str:
    if not info.filename.endswith(".npy"):
        raise ValueError(f"{info.filename!r} in it is no array")
    return info.filename.removesuffix(".npy")


def _outline(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Outline:
    """The head of an array, once it is sure that the member is just as large as it says."""
    with archive.open(info) as member:
        outline, head = _head(member, info.filename), member.tell()
    if outline.dtype.hasobject:
        raise ValueError(f"{info.filename!r} holds objects, which only pickle could read")
    if head + _bytes(outline) != info.file_size:
        raise ValueError(f"{info.filename!r} has {info.file_size} bytes, its head says {head + _bytes(outline)}")
    return outline


def _head(member: IO[bytes], name: str) -> Outline:
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(member)
    else:
        raise ValueError(f"{name!r} is an array of version {version}")
    if any(size < 0 for size in shape):
        raise ValueError(f"{name!r} has the shape {shape}")
    return Outline(shape, dtype)


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(info) as member:
        array: npt.NDArray[Any] = np.lib.format.read_array(member, allow_pickle=False)
        # Its checksum is compared at its end.
        member.read()
        return array


def escaped(text: str) -> str:
    """A text whose control characters (of a name, a path) are shown as they would be written, and do nothing."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def say(line: str) -> None:
    """One line to standard error, where it is no part of a result."""
    sys.stderr.write(f"cirl: {escaped(line)}\n")


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """No other process holds the folder, which is made where there is none, at the same time.

    The system frees the folder of a process that was killed. Where a file system has no locks it is held by nobody.

    Raises:
        ValueError: another process holds it; the message says which, and since when.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    lock, about = FileLock(folder / ".running.lock"), folder / ".running.json"
    try:
        lock.acquire(timeout=0)
        write_json(about, {"process": os.getpid(), "started": time.strftime("%Y-%m-%d %H:%M:%S")})
    except Timeout as error:
        told = ""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            other = read_json(about)
            told = f" (process {other['process']}, since {other['started']})"
        raise ValueError(f"{folder} is being written by another command{told}: wait for it, or name another") from error
    except (OSError, NotImplementedError) as error:
        say(f"{folder} cannot be held ({error}): no other command should write there meanwhile")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            about.unlink(missing_ok=True)
            (folder / ".running.lock").unlink(missing_ok=True)
            lock.release(force=True)
            for place in made:  # of a command that was refused before it wrote anything
                place.rmdir()


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

    def elsewhere(self) -> StoredParts:
        """The same folder for another process; nobody is told there when a part has been written."""
        return StoredParts(self.folder, self._tell, self.every)

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
        except (ValueError, OSError) as error:
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
