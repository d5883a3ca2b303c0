"""What is installed and what the source archive holds."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("package", ["cirl_gym", "agents", "irl"])
def test_every_package_tells_its_version(package):
    module = __import__(package)
    assert module.__version__ == metadata.version("cirl-gym")
    assert "__version__" in dir(module)


def test_another_package_of_the_same_name_is_said_to_be_what_python_finds(tmp_path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("class Agent: ...\n")
    path = os.pathsep.join((str(tmp_path), str(ROOT)))
    code = "import sys; sys.path[:0] = sys.argv[1:]; from irl.commands.cli import main"
    done = subprocess.run(
        [sys.executable, "-c", code, *path.split(os.pathsep)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "ImportError: cirl-gym's package 'agents' is hidden by another of that name" in done.stderr
    assert str(tmp_path / "agents" / "__init__.py") in done.stderr


def test_the_source_archive_holds_docs_examples_and_whole_tests():
    told = (ROOT / "MANIFEST.in").read_text().splitlines()
    for folder in ("benchmarks", "docs", "examples", "tests"):
        assert f"graft {folder}" in told
    assert "include CHANGELOG.md Makefile" in told
