"""A file is whole or absent, whenever the writer is killed; what is not whole is not read."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cirl_gym.files import StoredParts, read_arrays, read_json, write_arrays, write_bytes, write_json, write_text

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


def test_no_part_of_an_archive_and_no_flipped_byte_is_read_as_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    write_arrays(path, ARRAYS)
    whole = path.read_bytes()
    for size in (0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"arrays\.npz cannot be read as arrays"):
            read_arrays(path)
    start = whole.index(b"a.npy") + 5
    for place in range(start, start + 60, 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="cannot be read as arrays"):
            read_arrays(path)


def test_arrays_come_back_and_objects_and_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "made" / "on the way" / "arrays.npz"
    write_arrays(path, ARRAYS)
    back = read_arrays(path)
    assert set(back) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert np.array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    write_arrays(tmp_path / "again.npz", ARRAYS)
    assert (tmp_path / "again.npz").read_bytes() == path.read_bytes()
    with pytest.raises(ValueError, match="Object arrays cannot be saved"):
        write_arrays(path, {"a": np.array([None, {}], dtype=object)})
    assert np.array_equal(read_arrays(path)["a"], ARRAYS["a"])
    path = tmp_path / "arrays.npz"
    np.savez(path, a=np.array([None], dtype=object))
    with pytest.raises(ValueError, match="cannot be read as arrays"):
        read_arrays(path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match=r"cannot be read as arrays: not an \.npz archive"):
        read_arrays(path)


def test_text_bytes_and_json_are_written_as_they_are(tmp_path: Path) -> None:
    write_text(tmp_path / "note.txt", "Müller\n")
    assert (tmp_path / "note.txt").read_bytes() == "Müller\n".encode()
    write_bytes(tmp_path / "note.txt", b"\r\n\0")
    assert (tmp_path / "note.txt").read_bytes() == b"\r\n\0"
    path = tmp_path / "result.json"
    write_json(path, {"weights": [-0.3, -0.7]})
    assert json.loads(path.read_text()) == {"weights": [-0.3, -0.7]}
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_json(path, {"weights": [value]})
    assert json.loads(path.read_text()) == {"weights": [-0.3, -0.7]}


def telling(folder: Path | None) -> tuple[StoredParts, list[str]]:
    """Stored parts, and the lines that they say."""
    lines: list[str] = []
    return StoredParts(folder, lines.append), lines


class TestParts:
    def test_a_stage_is_done_once(self, tmp_path):
        done = []

        def stage(stored):
            return stored.stage(
                "part.json", lambda: done.append(1) or {"a": 0.1}, lambda x, path: write_json(path, x), read_json
            )

        stored, lines = telling(tmp_path / "stored")
        assert stage(stored) == stage(stored) == stage(StoredParts(tmp_path / "stored")) == {"a": 0.1}
        assert (done, lines) == ([1], [])
        assert stage(StoredParts()) == stage(StoredParts()) == {"a": 0.1}
        assert len(done) == 3, "without a folder nothing is stored"
        stored.drop("part.json")
        stored.drop("part.json")
        assert stored.read("part.json", read_json) is None

    def test_a_damaged_part_is_one_line_and_done_anew(self, tmp_path):
        stored, lines = telling(tmp_path)
        (tmp_path / "part.json").write_text('{"a": ')
        assert stored.stage("part.json", lambda: 7, lambda x, path: write_json(path, x), read_json) == 7
        assert len(lines) == 1
        assert lines[0].startswith(f"{tmp_path / 'part.json'} cannot be used, this part of the run is done anew: ")
        assert read_json(tmp_path / "part.json") == 7

    def test_a_full_disk_is_said_once_and_the_run_goes_on(self, tmp_path):
        stored, lines = telling(tmp_path)

        def full(path):
            raise OSError(28, "No space left on device")

        assert stored.stage("part", lambda: 1, lambda x, path: full(path), read_json) == 1
        assert not stored.write("part", full)
        assert len(lines) == 1
        assert "No space left on device" in lines[0]
        assert stored.write("part", lambda path: path.write_text("now"))
        assert not stored.write("part", full)
        assert len(lines) == 2, "it worked in between, so it is said again"

    def test_what_goes_wrong_in_the_work_itself_is_not_taken_for_damage(self, tmp_path):
        def broken():
            raise ValueError("of the work")

        with pytest.raises(ValueError, match="of the work"):
            telling(tmp_path)[0].stage("part", broken, lambda x, path: None, read_json)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_full_disk_names_the_file(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"note\.txt") as raised:
        write_text(tmp_path / "note.txt", "new")
    assert (raised.value.errno, raised.value.filename) == (code, str(tmp_path / "note.txt"))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="limits of POSIX")
def test_a_limit_of_sizes_names_the_file(tmp_path: Path) -> None:
    code = "import resource, sys\nfrom cirl_gym.files import write_bytes\n"
    code += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\nwrite_bytes(sys.argv[1], bytes(100_000))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "large.npz")], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == f"OSError: [Errno {errno.EFBIG}] File too large: '{tmp_path / 'large.npz'}'"
    assert not list(tmp_path.iterdir())
