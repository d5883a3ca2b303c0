"""A training that was killed goes on from its last epoch and ends in the same weights, to the byte."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cirl_gym.files import read_arrays, write_arrays

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class History:
    """What happened in training."""

    training: tuple[float, ...]
    """Mean training loss of every epoch."""
    validation: tuple[float, ...]
    """Validation loss before the first epoch and after every epoch: one number more than ``training``."""
    best_epoch: int
    """The epoch whose weights were kept; 0: none was better than the start."""

    @property
    def epochs(self) -> int:
        """Epochs that were run."""
        return len(self.training)


@dataclass
class TrainingState:
    """Where a training stands after a number of epochs; it changes as the training goes on."""

    training: list[float] = field(default_factory=list)
    """Mean training loss of every epoch."""
    validation: list[float] = field(default_factory=list)
    """Validation loss before the first epoch and after every epoch."""
    best: int = 0
    """Epoch of the lowest validation loss."""
    kept: Weights = field(default_factory=dict)
    """Weights of that epoch."""

    @property
    def epoch(self) -> int:
        """Epochs that are done."""
        return len(self.training)

    def history(self) -> History:
        """All of it, for good."""
        return History(tuple(self.training), tuple(self.validation), self.best)

    @property
    def latest(self) -> dict[str, float]:
        """Both losses of the last epoch."""
        return {"training": self.training[-1], "validation": self.validation[-1]}


@dataclass(frozen=True)
class Parts:
    """What a training moves and draws from; put into a file and taken out of it."""

    network: nn.Module
    optimiser: torch.optim.Optimizer
    shuffler: torch.Generator
    device: torch.device

    def generators(self) -> dict[str, Tensor]:
        """States of the three generators (the third is the accelerator's, where there is one)."""
        states = {"shuffler": self.shuffler.get_state(), "torch": torch.default_generator.get_state()}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        return states

    def set_generators(self, states: dict[str, Tensor]) -> None:
        """Put the states back."""
        self.shuffler.set_state(states["shuffler"])
        torch.default_generator.set_state(states["torch"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states["cuda"], self.device)


def write_checkpoint(path: Path, identity: dict[str, Any], state: TrainingState, parts: Parts) -> None:
    """Write all of a training whole, without pickle.

    Args:
        path: ``.npz``; an older one is replaced.
        identity: what the training is of, for JSON; one of another identity is not gone on with.
        state: how far it is.
        parts: network, optimiser and generators.
    """
    text = json.dumps(
        {
            "identity": identity,
            "training": state.training,
            "validation": state.validation,
            "best": state.best,
        },
        allow_nan=False,
    )
    arrays: dict[str, npt.NDArray[Any]] = {"state": np.array(text)}
    arrays |= _arrays("network", parts.network.state_dict())
    arrays |= _arrays("kept", state.kept)
    arrays |= _arrays("generator", parts.generators())
    for number, moments in parts.optimiser.state_dict()["state"].items():
        arrays |= _arrays(f"optimiser.{number}", moments)
    write_arrays(path, arrays)


def read_checkpoint(path: Path, identity: dict[str, Any], parts: Parts) -> TrainingState:
    """Put a training back to where :func:`write_checkpoint` left it.

    Raises:
        ValueError: the file is damaged, or of another training; the message names it.
    """
    arrays = read_arrays(path)
    try:
        found = json.loads(str(arrays.pop("state")))
        if found["identity"] != json.loads(json.dumps(identity)):
            raise ValueError("it is of a training with other data, settings or seed; remove it to begin anew")
        parts.network.load_state_dict(_tensors("network", arrays))
        state = TrainingState(found["training"], found["validation"], found["best"], _tensors("kept", arrays))
        parts.set_generators(_tensors("generator", arrays))
        moments = parts.optimiser.state_dict()
        count = len(moments["param_groups"][0]["params"])
        moments["state"] = {n: _tensors(f"optimiser.{n}", arrays) for n in range(count)} if state.epoch else {}
        parts.optimiser.load_state_dict(moments)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"the checkpoint {path} cannot be gone on with: {error}") from error
    return state


def _arrays(prefix: str, tensors: dict[str, Tensor]) -> dict[str, npt.NDArray[Any]]:
    return {f"{prefix}/{name}": value.detach().cpu().numpy() for name, value in tensors.items()}


def _tensors(prefix: str, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Tensor]:
    start = f"{prefix}/"
    return {
        name.removeprefix(start): torch.from_numpy(np.array(array))
        for name, array in arrays.items()
        if name.startswith(start)
    }
