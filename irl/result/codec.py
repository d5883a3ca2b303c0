"""Records that JSON files hold: frozen, held to the types of their fields, read and written in one way."""

from __future__ import annotations

import math
import os
from functools import cache
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, structs

from cirl_gym.files import loading, read_json, write_json

SCHEMA = 1
"""Of every file; it changes when a key changes its meaning."""

Numbers: TypeAlias = tuple[float, ...]
Interval: TypeAlias = Annotated[tuple[float, float], Meta(description="[low, high]")]
"""Every field of a record that is one, or is several or named ones, is held to low <= high."""
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Some: TypeAlias = Annotated[int, Meta(ge=1)]
NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
LogProbability: TypeAlias = Annotated[float, Meta(le=0)]

INTERVALS = (tuple[Interval, ...], dict[str, Interval], dict[str, Interval] | None)
R = TypeVar("R")
D = TypeVar("D", bound="Document")
_fields = cache(structs.fields)


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename=lambda name: name.rstrip("_")):
    """A frozen record whose fields are what their types say, however it is made.

    NumPy's numbers and arrays become numbers and tuples, lists become tuples, and objects become records. A trailing
    underscore of a field is not in its key.

    Raises:
        ValueError: a value cannot be of its type, is out of its range or not finite, a key is missing or unknown, or
            :meth:`check` fails; the message names record and field.
    """

    def __post_init__(self) -> None:
        for field in _fields(type(self)):
            name, kind, where = field.name, field.type, f"{type(self).__name__}.{field.encode_name}"
            value = restored(kind, getattr(self, name), where)
            if kind == Interval:
                _require_ordered({where: value})
            elif kind in INTERVALS and value is not None:
                named = value.items() if isinstance(value, dict) else enumerate(value)
                _require_ordered({f"{where}[{place}]": ends for place, ends in named})
            structs.force_setattr(self, name, value)
        self.check()

    def check(self) -> None:
        """What the types of single fields cannot say."""


class Document(Record, frozen=True):
    """A record that is a file of its own. Beside its fields stands ``schema``."""

    def as_dict(self) -> dict[str, Any]:
        """The content of the file, in JSON's own types."""
        return {"schema": SCHEMA, **plain(self, type(self).__name__)}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the file whole."""
        write_json(path, self.as_dict())

    @classmethod
    def read(cls: type[D], path: str | os.PathLike[str]) -> D:
        """Read what :meth:`write` wrote; a key that the file is too old to have takes its default.

        Raises:
            ValueError: the file is not a whole one of this schema; the message names it and what is wrong.
        """
        content = read_json(path)
        if not isinstance(content, dict) or content.pop("schema", None) != SCHEMA:
            raise ValueError(f"{path} is not a {cls.__name__.lower()} of schema {SCHEMA}")
        with loading(path, f"a {cls.__name__.lower()} of schema {SCHEMA}"):
            return restored(cls, content, f"{path}: {cls.__name__}")


def restored(kind: type[R], content: Any, where: str) -> R:
    """A value of a type from what JSON or NumPy has in its place.

    Raises:
        ValueError: it cannot be; the message begins with ``where`` and names the place.
    """
    plainly = plain(content, where)
    try:
        return msgspec.convert(plainly, kind)
    except msgspec.ValidationError as error:
        said, _, path = str(error).partition(" - at `$")
        got = "" if path or "got" in said or isinstance(plainly, dict | list) else f", got {plainly!r}"
        raise ValueError(f"{where}{path.rstrip('`')}: {said.replace('`', '')}{got}") from error


def plain(value: Any, where: str) -> Any:
    """A copy in JSON's own types.

    Raises:
        ValueError: a number is not finite, or JSON has no word for a value; the message names the place.
    """
    try:
        return _finite(msgspec.to_builtins(value, str_keys=True, enc_hook=_without_numpy), where)
    except TypeError as error:
        raise ValueError(f"{where}: {error}") from error


def _without_numpy(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} is nothing that JSON can hold")


def _finite(value: Any, where: str) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item, f"{where}[{i}]") for i, item in enumerate(value)]
    require(not isinstance(value, float) or math.isfinite(value), f"{where} must be finite, got {value}")
    return value


def require(holds: bool, message: str) -> None:
    """Raise a ValueError with the message unless the condition holds."""
    if not holds:
        raise ValueError(message)


def _require_ordered(intervals: dict[str, tuple[float, float]]) -> None:
    for where, (low, high) in intervals.items():
        require(low <= high, f"{where} must be [low, high], got {[low, high]}")
