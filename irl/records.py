"""Frozen dataclasses to and from JSON, held to the types that their fields declare."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

R = TypeVar("R")


def require(holds: bool, message: str) -> None:
    """Raise a ValueError with the message unless the condition holds."""
    if not holds:
        raise ValueError(message)


def check_types(record: Any, where: str) -> None:
    """Bring every field of a frozen dataclass to the type that it declares.

    NumPy's numbers and arrays become numbers and tuples, lists become tuples, objects become dataclasses.

    Raises:
        ValueError: a value cannot be of its type, or a number is not finite; the message names ``where`` and the field.
    """
    hints = get_type_hints(type(record))
    for field in fields(record):
        value = _as(hints[field.name], getattr(record, field.name), f"{where}.{field.name.rstrip('_')}")
        object.__setattr__(record, field.name, value)


def build(kind: type[R], content: Any, where: str) -> R:
    """A dataclass from a JSON object that has exactly its keys (a trailing underscore of a field is not in its key).

    Raises:
        ValueError: no object, or keys are missing or unknown; the message names them.
    """
    require(isinstance(content, Mapping), f"{where} must be an object, got {content!r}")
    names = {field.name.rstrip("_"): field.name for field in fields(kind)}  # type: ignore[arg-type]
    wrong = sorted(map(str, set(names) ^ set(content)))
    require(not wrong, f"{where}: missing or unknown keys: {', '.join(wrong)}")
    return kind(**{names[key]: item for key, item in content.items()})


def plain(value: Any, where: str) -> Any:
    """A copy in JSON's own types.

    Raises:
        ValueError: a number is not finite, or JSON has no word for a value; the message names the place.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name.rstrip("_"): plain(getattr(value, f.name), f"{where}.{f.name}") for f in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, float):
        require(math.isfinite(value), f"{where} must be finite, got {value}; what is unknown is None")
    elif isinstance(value, os.PathLike):
        return os.fspath(value)
    elif value is not None and not isinstance(value, bool | int | str):
        raise ValueError(f"{where} is a {type(value).__name__}, which JSON cannot hold")
    return value


def _as(hint: Any, value: Any, where: str) -> Any:
    """The value as the type of a field."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is UnionType:
        return None if value is None else _as(arguments[0], value, where)
    if hint is Any:
        return plain(value, where)
    if isinstance(hint, type) and is_dataclass(hint):
        return value if isinstance(value, hint) else build(hint, value, where)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if origin is dict and isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _as(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        require(len(kinds) == len(value), f"{where} must have {len(kinds)} entries, got {len(value)}")
        return tuple(_as(kind, item, f"{where}[{i}]") for i, (kind, item) in enumerate(zip(kinds, value, strict=True)))
    scalars: dict[Any, Any] = {float: int | float, int: int, str: str, bool: bool}
    if hint not in scalars or not isinstance(value, scalars[hint]) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{where} must be {getattr(hint, '__name__', hint)}, got {value!r}")
    return plain(float(value), where) if hint is float else value
