"""A file is whole or absent, whenever the writer is killed; what is not whole is not read."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cirl_gym.files import read_arrays, write_arrays, write_bytes, write_json, write_text

ARRAYS = {"a": np.arange(2000) % 7, "b": np.array(["007", "ä"])}

KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from cirl_gym import files

def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "before the content is on the disk":
    os.fsync = die
elif sys.argv[2] == "before the file has its name":
    Path.replace = die
files.write_arrays(sys.argv[1], {"a": np.zeros(50_000)})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("moment", ["before the content is on the disk", "before the file has its name"])
def test_a_killed_writer_leaves_the_old_file_or_none(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"

    def killed() -> int:
        return subprocess.run([sys.executable, "-c", KILLED, str(path), moment], check=False).returncode

    assert killed() == -signal.SIGKILL
    assert not path.exists()
    assert all(other.name.endswith(".partial") for other in tmp_path.iterdir())
    write_arrays(path, ARRAYS)
    assert killed() == -signal.SIGKILL
    assert np.array_equal(read_arrays(path)["a"], ARRAYS["a"])


def test_an_error_while_writing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise OSError("disk full")

    write_text(tmp_path / "note.txt", "old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_text(tmp_path / "note.txt", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]
    assert (tmp_path / "note.txt").read_text() == "old"


def test_no_part_of_an_archive_is_read_as_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    for size in (0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"arrays\.npz cannot be read as arrays"):
            read_arrays(path)


def test_no_flipped_byte_of_the_content_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    start = whole.index(b"a.npy") + 5
    for place in range(start, start + 60, 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="cannot be read as arrays"):
            read_arrays(path)


def test_arrays_come_back_and_need_no_pickle(tmp_path: Path) -> None:
    path = tmp_path / "made" / "on the way" / "arrays.npz"
    write_arrays(path, ARRAYS)
    back = read_arrays(path)
    assert set(back) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert np.array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_arrays(path, {"a": np.array([None, {}], dtype=object)})
    assert np.array_equal(read_arrays(path)["a"], ARRAYS["a"])


def test_a_file_of_objects_or_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    np.savez(path, a=np.array([None], dtype=object))
    with pytest.raises(ValueError, match="cannot be read as arrays"):
        read_arrays(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match=r"cannot be read as arrays: not an \.npz archive"):
        read_arrays(path)


def test_the_same_arrays_give_the_same_bytes(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", ARRAYS)
    write_arrays(tmp_path / "b.npz", ARRAYS)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_json_has_no_word_for_what_is_not_a_number(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"weights": [-0.3, -0.7]})
    assert json.loads(path.read_text()) == {"weights": [-0.3, -0.7]}
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(path, {"weights": [value]})
    assert json.loads(path.read_text()) == {"weights": [-0.3, -0.7]}


def test_text_and_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    write_text(tmp_path / "note.txt", "Müller\n")
    assert (tmp_path / "note.txt").read_bytes() == "Müller\n".encode()
    write_bytes(tmp_path / "note.txt", b"\r\n\0")
    assert (tmp_path / "note.txt").read_bytes() == b"\r\n\0"
