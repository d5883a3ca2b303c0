"""What a long script has computed, kept in files: a script that is started again goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cirl_gym.files import read_json, write_json


def stored(path: Path, compute: Callable[[], Any]) -> Any:
    """What the JSON file holds; computed and written first where there is none."""
    if not path.is_file():
        write_json(path, compute())
    return read_json(path)
