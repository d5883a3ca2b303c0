"""A run that is stopped in the middle leaves nothing that could be taken for a result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sample_result import sample_result
from tiny_run import RUN_CLI

from cirl_gym.files import read_arrays
from irl.result.result import Result

KILLED_AT_A_RENAME = """
import os, signal, sys
from pathlib import Path
import cirl_gym.files
from irl.commands import explain as commands
from tiny_run import tiny_demo

rename = Path.replace

def replace(self, target):
    if Path(target).name == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return rename(self, target)

Path.replace = replace
commands.demo(tiny_demo(seed=1), Path(sys.argv[1]))
"""
"""A demo that dies at the worst moment: a file is written under its temporary name, but not renamed yet."""


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).resolve().parents[1] / "helpers")}


def an_older_run(folder: Path) -> None:
    for name in ("result.json", "report.html", "agent.npz", "expert.npz"):
        (folder / name).write_text("of an older run")


def nothing_is_half_there(folder: Path) -> None:
    assert not (folder / "result.json").exists()
    assert not (folder / "report.html").exists()
    for path in folder.glob("*.npz"):
        assert read_arrays(path)
    with pytest.raises(OSError, match=r"result\.json"):
        Result.read(folder / "result.json")


def begun(folder: Path) -> subprocess.Popen[str]:
    """A demo in a process of its own that has told of its first stage, and is busy with it for seconds to come."""
    # A shell's background jobs ignore Ctrl-C, and so would all that they start.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, "-c", heard + RUN_CLI, "demo", "--quick", "--out", str(folder)]
    run = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert run.stderr is not None
    assert run.stderr.readline().startswith("[1/9] expert")
    return run


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_stopped_leaves_no_result(how, tmp_path):
    an_older_run(tmp_path)
    with begun(tmp_path) as run:
        run.send_signal(how)
        _, error = run.communicate(timeout=60)
    nothing_is_half_there(tmp_path)
    assert (tmp_path / "config.json").exists()
    assert "Traceback" not in error
    if how == signal.SIGINT:
        assert run.returncode == 130
        assert "cirl: stopped; what was not finished left nothing" in error
    else:
        assert run.returncode == -signal.SIGKILL


def test_a_run_that_dies_while_it_writes_leaves_whole_files_alone(tmp_path):
    an_older_run(tmp_path)
    command = [sys.executable, "-c", KILLED_AT_A_RENAME, str(tmp_path), "cloning.npz"]
    run = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr
    assert {path.name for path in tmp_path.glob("*.npz")} == {"batch.npz", "test.npz", "outcome_model.npz", "agent.npz"}
    nothing_is_half_there(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_part_of_a_result_is_refused(share, tmp_path):
    path = tmp_path / "result.json"
    sample_result().write(path)
    whole = path.read_text()
    path.write_text(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"result\.json is not JSON"):
        Result.read(path)
