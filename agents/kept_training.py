"""A training on histories that was killed goes on from where it was last kept, and ends in the same weights."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cirl_gym.kept import Kept
from cirl_gym.outcome_models.store import load_module_arrays, module_arrays, read_model_file, write_model_file

Arrays = dict[str, npt.NDArray[Any]]
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
"""What Adam remembers of every parameter."""


@dataclass(frozen=True)
class TrainingParts:
    """What a training moves and draws from."""

    network: nn.Module
    """What is learnt."""
    target: nn.Module
    """A copy of some iterations ago, of the same shape."""
    optimiser: torch.optim.Adam
    """Of all parameters of the network, in its order."""
    rng: np.random.Generator
    """Everything that is drawn."""


class KeptTraining:
    """Where one training is kept while it goes on, and its network when it is done.

    Reading and writing draw nothing, so that a training which is kept is the same as one which is not.
    """

    def __init__(self, kept: Kept, name: str) -> None:
        """A file of a run's parts.

        Args:
            kept: the run's parts.
            name: of the file, ending in ``.npz``.
        """
        self.kept, self.name = kept, name
        self._written = time.monotonic()

    def begin(self, parts: TrainingParts, iterations: int) -> int:
        """Put a training to where it was kept; returns how many of its iterations are done: 0 where nothing is kept."""
        done = self.kept.read(self.name, lambda path: _read(path, parts, iterations))
        self._written = time.monotonic()
        return done or 0

    def after(self, done: int, parts: TrainingParts, iterations: int) -> None:
        """Told after every iteration; writes when it is time, and when the training is over."""
        if done < iterations and time.monotonic() - self._written < self.kept.every:
            return
        self.kept.write(self.name, lambda path: _write(path, done, parts, iterations))
        self._written = time.monotonic()

    def drop(self) -> None:
        """Remove the file: what the training led to is kept elsewhere."""
        self.kept.drop(self.name)


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """State of a generator, for JSON. How many generators were spawned from it is no part of it."""
    return dict(rng.bit_generator.state)


def set_generator(rng: np.random.Generator, state: Any) -> None:
    """Put back what :func:`generator_state` gave; the generator stays as it is where that cannot be.

    Raises:
        ValueError: it is not the state of such a generator.
    """
    trial = type(rng.bit_generator)()
    try:
        trial.state = state
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the state of the generator is damaged: {error!r}") from error
    rng.bit_generator.state = trial.state


def _write(path: Path, done: int, parts: TrainingParts, iterations: int) -> None:
    arrays = _under("network", module_arrays(parts.network))
    if done < iterations:
        arrays |= _under("target", module_arrays(parts.target))
        for number, moments in parts.optimiser.state_dict()["state"].items():
            arrays |= _under(f"adam.{number}", {name: moments[name].numpy() for name in _MOMENTS})
    write_model_file(path, {"kind": "training", "done": done, "generator": generator_state(parts.rng)}, arrays)


def _read(path: Path, parts: TrainingParts, iterations: int) -> int:
    """Look at everything first, then put it in: a file that cannot be used must not leave half of itself behind."""
    settings, arrays = read_model_file(path)
    done = settings.get("done")
    if settings.get("kind") != "training" or not isinstance(done, int) or not 1 <= done <= iterations:
        raise ValueError(f"it is not a training of {iterations} iterations")
    _check(arrays, _expected(parts, whole=done < iterations))
    set_generator(parts.rng, settings.get("generator"))
    load_module_arrays(parts.network, _within("network", arrays))
    if done < iterations:
        load_module_arrays(parts.target, _within("target", arrays))
        state = parts.optimiser.state_dict()
        numbers = range(len(state["param_groups"][0]["params"]))
        state["state"] = {n: {m: torch.from_numpy(arrays[f"adam.{n}.{m}"]) for m in _MOMENTS} for n in numbers}
        parts.optimiser.load_state_dict(state)
    return done


def _expected(parts: TrainingParts, whole: bool) -> Arrays:
    """Arrays of the names, shapes and dtypes that a file of these parts has."""
    expected = _under("network", module_arrays(parts.network))
    if whole:
        expected |= _under("target", module_arrays(parts.target))
        for number, parameter in enumerate(parts.network.parameters()):
            like = parameter.detach().numpy()
            moments = {"exp_avg": like, "exp_avg_sq": like, "step": np.zeros((), dtype=np.float32)}
            expected |= _under(f"adam.{number}", moments)
    return expected


def _check(arrays: Arrays, expected: Arrays) -> None:
    if set(arrays) != set(expected):
        raise ValueError(f"arrays missing or unknown: {', '.join(sorted(set(arrays) ^ set(expected)))}")
    for name, like in expected.items():
        found = arrays[name]
        if (found.shape, found.dtype) != (like.shape, like.dtype):
            raise ValueError(f"array {name!r} is {found.dtype} {found.shape}, not {like.dtype} {like.shape}")


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _within(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(f"{prefix}."): a for name, a in arrays.items() if name.startswith(f"{prefix}.")}
