"""Networks and optimisers as named arrays, and files of settings and arrays. No pickle.

Every file that holds a network is made of these: saved models and policies, and the checkpoints from which a training
goes on. A part of a file has its own prefix: ``prefixed("network.", module_arrays(network))`` puts it in,
``load_module_arrays(network, part("network.", arrays))`` takes it out again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cirl_gym.files import check_finite, loading, parsed_json, read_arrays, write_arrays

SCHEMA = 2
"""Files of schema 1 do not say which arrays they hold, so that one that is missing may be that of an older version."""
UNBOUNDED = ("floor", "ceiling", "low", "high")
"""Limits of a feature, by the ends of their arrays' names: infinite where there is none."""
LARGEST = 2**31
"""No size of a network is larger."""
M = TypeVar("M", bound=nn.Module)
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


def write_model_file(path: str | os.PathLike[str], config: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write settings (anything JSON has a word for) and arrays as one file."""
    text = json.dumps({"schema": SCHEMA, "arrays": sorted(arrays), **config}, allow_nan=False)
    write_arrays(path, {"config": np.array(text), **arrays})


def read_model_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Settings and arrays that :func:`write_model_file` wrote, all of them finite but for limits.

    Raises:
        ValueError: the file is cut off or damaged, or of another schema; the message names it.
    """
    arrays = read_arrays(path)
    with loading(path, f"a model file of schema {SCHEMA}"):
        if "config" not in arrays:
            raise ValueError("it holds no model settings")
        config = parsed_json(str(arrays.pop("config")))
        if not isinstance(config, dict) or (schema := config.pop("schema", None)) not in (1, SCHEMA):
            raise ValueError("its schema is another")
        if schema == SCHEMA and (odd := set(config.pop("arrays")) ^ set(arrays)):
            raise ValueError(f"arrays missing or unknown: {', '.join(sorted(odd))}")
        if texts := [name for name, array in arrays.items() if array.dtype.kind not in "fiub"]:
            raise ValueError(f"array {texts[0]!r} does not hold numbers")
        check_finite(arrays, lambda name: name.rpartition(".")[2] in UNBOUNDED)
    return config, arrays


def size_of(settings: Mapping[str, Any], name: str, most: int = LARGEST) -> int:
    """A whole number of at least 1 among a file's settings.

    Raises:
        ValueError: it is none, or is larger than ``most``; the message names it.
    """
    value = settings[name]
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{name} must be a whole number within 1..{most}, got {value!r}")
    return value


def names_of(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Names among a file's settings, which must be texts, all different.

    Raises:
        ValueError: they are not.
    """
    names = settings[name]
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names) or len(set(names)) < len(names):
        raise ValueError(f"{name} must be different names, got {names!r}")
    return tuple(names)


def prefixed(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """The same arrays, their names behind a prefix."""
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def part(prefix: str, arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Those arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def check_arrays(arrays: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise ValueError where a name is missing or unknown, a shape or dtype is not the expected one, or a number is not
    finite; the array is named.
    """
    _check_outlines(arrays, {name: (like.shape, like.dtype) for name, like in expected.items()})
    check_finite(arrays)


def _check_outlines(
    arrays: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
) -> None:
    if set(arrays) != set(expected):
        raise ValueError(f"arrays missing or unknown: {', '.join(sorted(set(arrays) ^ set(expected)))}")
    for name, (shape, dtype) in expected.items():
        found = np.asarray(arrays[name])
        if (found.shape, found.dtype) != (shape, dtype):
            raise ValueError(f"array {name!r} is {found.dtype} {found.shape}, not {dtype} {shape}")


def stored_module(build: Callable[[], M], arrays: Mapping[str, npt.NDArray[Any]]) -> M:
    """A network with the arrays of a file. Its sizes, which the file says, are compared with them before it is built.

    Raises:
        ValueError: as :func:`load_module_arrays`.
    """
    with torch.device("meta"):  # sizes without numbers: a network of any size takes no memory
        outline = build().state_dict()
    numbers = {name: torch.zeros((), dtype=value.dtype).numpy().dtype for name, value in outline.items()}
    _check_outlines(arrays, {name: (tuple(value.shape), numbers[name]) for name, value in outline.items()})
    module = build()
    load_module_arrays(module, arrays)
    return module


def module_arrays(module: nn.Module) -> Arrays:
    """Every parameter and buffer by its name, as a copy."""
    return {name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()}


def load_module_arrays(module: nn.Module, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put arrays into the parameters and buffers of the same names.

    Raises:
        ValueError: a name is missing or unknown, or a shape or dtype differs; the message names it.
    """
    check_arrays(arrays, module_arrays(module))
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})


def optimiser_arrays(optimiser: torch.optim.Optimizer, prefix: str) -> Arrays:
    """What Adam remembers of every parameter; empty before its first step.

    Args:
        optimiser: Adam or AdamW.
        prefix: of a parameter's arrays, ``{}`` standing for its number.
    """
    arrays: Arrays = {}
    for number, moments in optimiser.state_dict()["state"].items():
        own = {name: value.detach().cpu().numpy() for name, value in moments.items()}
        arrays |= prefixed(prefix.format(number), own)
    return arrays


def expected_optimiser_arrays(optimiser: torch.optim.Optimizer, prefix: str) -> Arrays:
    """Zeros of the names, shapes and dtypes of :func:`optimiser_arrays` after a step."""
    arrays: Arrays = {}
    for number, parameter in enumerate(value for group in optimiser.param_groups for value in group["params"]):
        zeros = np.zeros(parameter.shape, dtype=parameter.detach().cpu().numpy().dtype)
        moments = {"step": np.zeros((), dtype=np.float32), "exp_avg": zeros, "exp_avg_sq": zeros}
        arrays |= prefixed(prefix.format(number), moments)
    return arrays


def load_optimiser_arrays(
    optimiser: torch.optim.Optimizer, arrays: Mapping[str, npt.NDArray[Any]], prefix: str
) -> None:
    """Put back what :func:`optimiser_arrays` gave after at least one step; other arrays are left alone.

    Raises:
        ValueError: a name is missing, or a shape or dtype differs; the message names it.
    """
    expected = expected_optimiser_arrays(optimiser, prefix)
    check_arrays({name: array for name, array in arrays.items() if name in expected}, expected)
    state = optimiser.state_dict()
    count = sum(len(group["params"]) for group in state["param_groups"])
    state["state"] = {
        number: {name: torch.from_numpy(np.array(array)) for name, array in part(prefix.format(number), arrays).items()}
        for number in range(count)
    }
    optimiser.load_state_dict(state)
