"""What a hyper-parameter search is asked for and what it found, as it is kept in ``tuning.json``."""

from __future__ import annotations

import math
import os
import re
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cirl_gym.files import read_json, write_json
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.outcome_models.search import Choice, Search, TunedKind, config_from_dict, load_search

SCHEMA = 1
Sampler = Literal["random", "tpe"]
Verdict = Literal["finished", "pruned", "diverged", "stopped", "running", "waiting"]
"""What became of a trial; "stopped": killed or interrupted, and to be tried again; "diverged": not finite."""


@dataclass(frozen=True)
class TuningConfig:
    """What is searched, and how.

    Raises:
        ValueError: a number is out of its range, or the sampler or the model is unknown.
    """

    model: TunedKind
    """Which model."""
    search: Search | None = None
    """What is tried; default: the search that ships for the model."""
    trials: int | None = None
    """How many, those of earlier calls counted; default: the search's own number (20)."""
    sampler: Sampler = "random"
    """"random": as in the paper, but no combination twice; "tpe": Optuna's TPE, led by what was found."""
    prune: bool = True
    """Stop a trial whose validation loss, after its first epochs, is above the median of the others' at that epoch."""
    seed: int = 0
    """Which combinations, and everything that a trial draws."""
    start: OutcomeModelConfig = field(default_factory=OutcomeModelConfig)
    """All settings that the search does not vary."""

    def __post_init__(self) -> None:
        table = self.table
        if table.model != self.model:
            raise ValueError(f"the search is for {table.model!r}, not for {self.model!r}")
        if self.sampler not in ("random", "tpe"):
            raise ValueError(f"sampler must be 'random' or 'tpe', got {self.sampler!r}")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials must be at least 1, got {self.trials}")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, got {self.seed}")
        table.configured(self.start, table.combination(0), 1)  # an unknown field is an error now, not in a trial

    @property
    def table(self) -> Search:
        """What is tried."""
        return self.search or load_search(self.model)

    @property
    def goal(self) -> int:
        """How many trials."""
        return self.trials or self.table.trials


@dataclass(frozen=True)
class TrialRow:
    """One trial."""

    number: int
    """In the study."""
    state: Verdict
    """Only a "finished" trial can be chosen; "stopped" ones have been, or will be, tried again."""
    value: float | None
    """Factual validation error: root of the mean over predictions of the squared errors summed over the features, on
    the scale of phi; None if the trial did not finish."""
    loss: float | None
    """Validation loss of the network before it was decided whether to keep it, in units of the law's training error."""
    kept: bool | None
    """Whether the network improved on the linear law; where it did not, the error is the law's."""
    choice: Choice
    """The combination, as in the search's table."""
    settings: dict[str, float]
    """The same as settings of the model, multiples turned into sizes."""
    epochs: int | None
    """Epochs of training that were run."""
    seconds: float | None
    """Wall-clock time."""
    message: str | None
    """Why training did not stay finite."""


@dataclass(frozen=True)
class Tuning:
    """What a search found."""

    config: TuningConfig
    """What was asked for."""
    inputs: int
    """C, the size of the input."""
    trials: tuple[TrialRow, ...]
    """Every trial of the study, in the order in which they began."""

    @property
    def best(self) -> TrialRow:
        """The finished trial of the least error; among equals (the law's, where it was kept) that of the least loss."""
        done = [row for row in self.trials if row.state == "finished" and row.value is not None]
        return min(done, key=lambda row: (row.value, math.inf if row.loss is None else row.loss, row.number))

    @property
    def best_config(self) -> OutcomeModelConfig:
        """The settings of the best trial."""
        return self.config.table.configured(self.config.start, self.best.choice, self.inputs)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        config = self.config
        return {
            "schema": SCHEMA,
            "model": config.model,
            "best": self.best.number,
            "error": self.best.value,
            "config": asdict(self.best_config),
            "inputs": self.inputs,
            "sampler": config.sampler,
            "prune": config.prune,
            "seed": config.seed,
            "search": config.table.as_dict(),
            "start": asdict(config.start),
            "trials": [asdict(row) for row in self.trials],
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON, whole."""
        write_json(path, self.as_dict())


def read_tuned(path: str | os.PathLike[str]) -> tuple[TunedKind, OutcomeModelConfig]:
    """Model and best settings from what :meth:`Tuning.write` wrote.

    Raises:
        ValueError: the file is not the result of a search of this schema; the message names it.
        OSError: there is no such file, or it may not be read.
    """
    found = read_json(path)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not {"model", "config"} <= found.keys():
        raise ValueError(f"{path} is not the result of a search (tuning.json) of schema {SCHEMA}")
    try:
        kind: TunedKind = load_search(found["model"]).model
        return kind, config_from_dict(found["config"])
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def shown(storage: str | os.PathLike[str]) -> str:
    """Where a study is kept, for people to read: the URL of a database without its password."""
    return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", os.fspath(storage))
