"""Files that are either whole or absent: written under a temporary name, then renamed; read without pickle."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


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
        OSError: there is no such file, or it may not be read.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error


def write_arrays(path: str | os.PathLike[str], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write a compressed ``.npz`` whole. Object arrays (which would need pickle) are refused.

    The bytes depend on the arrays alone: no time stamp enters.
    """
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_DEFLATED
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(array), allow_pickle=False)
            archive.writestr(member, content.getvalue())
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
