"""What a hyper-parameter search tries, is asked for and finds; nothing here needs Optuna.

What is tried are tables of values, shipped as data files (the paper's appendices F and G). As in the paper, the error
that chooses is that of predicting the next observation under the action that was taken: which model predicts best what
was *not* done cannot be read off a table. What was found is written as ``tuning.json``.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from importlib import resources
from typing import Any, Literal, TypeAlias

from cirl_gym.data.batch import Batch
from cirl_gym.files import loading, read_json, write_json
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.outcome_models.inputs import NETWORK_KINDS, NetworkKind

SCHEMA = 1
Sampler = Literal["random", "tpe"]
Verdict = Literal["finished", "pruned", "diverged", "stopped", "running", "waiting"]
"""What became of a trial; "stopped": killed or interrupted, and to be tried again; "diverged": not finite."""
Choice: TypeAlias = dict[str, float]
"""One entry of every row of a search's table, by the row's name."""

INPUT = "C"
"""In a table, the size of the input: the number of a network's inputs at one step."""


@dataclass(frozen=True)
class Parameter:
    """One row of a table.

    Raises:
        ValueError: there is nothing to try or to set, or an entry is there twice.
    """

    name: str
    """What it is called in tables and in the study."""
    fields: tuple[str, ...]
    """Fields of the model's settings that take the value, dots between the levels."""
    values: tuple[float, ...]
    """What is tried."""
    times: str | None = None
    """None: entries are values. "C" or a field: entries are multiples of the input's or of that field's size."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "values", tuple(self.values))
        if not self.fields or not self.values or len(set(self.values)) < len(self.values):
            raise ValueError(f"Parameter {self.name!r}: fields and different values are needed")


@dataclass(frozen=True)
class SearchSpace:
    """A table, and how many of its combinations are tried.

    Raises:
        ValueError: two rows have one name, or there is nothing to try.
    """

    model: NetworkKind
    """Whose settings it varies."""
    parameters: tuple[Parameter, ...]
    """The rows; a row may be a multiple of those before it only."""
    trials: int = 20
    """How many combinations are tried unless another number is asked for."""
    source: str = ""
    """Where the values are from."""
    notes: tuple[str, ...] = ()
    """How they are read."""

    def __post_init__(self) -> None:
        names = [parameter.name for parameter in self.parameters]
        if not names or len(set(names)) < len(names) or self.trials < 1:
            raise ValueError(f"Search: rows of different names and at least one trial are needed, got {names}")

    @property
    def combinations(self) -> int:
        """Number of different combinations."""
        return math.prod(len(parameter.values) for parameter in self.parameters)

    def combination(self, index: int) -> Choice:
        """The combination of that number, 0 to :attr:`combinations` - 1; the last row changes fastest."""
        choice: Choice = {}
        for parameter in reversed(self.parameters):
            index, place = divmod(index, len(parameter.values))
            choice[parameter.name] = parameter.values[place]
        return {parameter.name: choice[parameter.name] for parameter in self.parameters}

    def settings(self, choice: Mapping[str, float], inputs: int) -> dict[str, float]:
        """By field what it is set to, multiples turned into sizes; ``inputs`` is C (:func:`input_size`)."""
        found: dict[str, float] = {}
        for parameter in self.parameters:
            value = choice[parameter.name]
            if parameter.times is not None:
                value = multiple(value, inputs if parameter.times == INPUT else found[parameter.times])
            found |= dict.fromkeys(parameter.fields, value)
        return found

    def configured(self, start: OutcomeModelConfig, choice: Mapping[str, float], inputs: int) -> OutcomeModelConfig:
        """The settings of a start, with a choice put into those of the model."""
        changed = start
        for path, value in self.settings(choice, inputs).items():
            nested: Any = value
            for name in reversed((self.model, *path.split("."))):
                nested = {name: nested}
            changed = replaced(changed, nested, "config")
        return changed

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SearchSpace:
        """What a data file holds.

        Raises:
            ValueError: an entry is missing or unknown.
        """
        try:
            rows = tuple(Parameter(**row) for row in values["parameters"])
            return cls(**{**values, "parameters": rows, "notes": tuple(values.get("notes", ()))})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a search: {error}") from error


def load_search(kind: str) -> SearchSpace:
    """The search that ships with the package: of the paper's appendices F and G, and one for RMSN.

    Raises:
        ValueError: there is no search for this kind.
    """
    file = resources.files("cirl_gym.tuning") / "searches" / f"{kind}.json"
    if kind not in NETWORK_KINDS:
        raise ValueError(f"there is nothing to tune for {kind!r}; models with a search: {', '.join(NETWORK_KINDS)}")
    return SearchSpace.from_dict(json.loads(file.read_text(encoding="utf-8")))


def input_size(batch: Batch) -> int:
    """C: features of an observation plus one-hot actions, what every network reads at a step."""
    return len(batch.features) + batch.n_actions


def multiple(share: float, size: float) -> int:
    """A size as a multiple of another, to the nearest whole number, halves up, at least 1."""
    return max(math.floor(share * size + 0.5), 1)


def replaced(config: Any, values: Mapping[str, Any], where: str) -> Any:
    """Settings with other values, as ``dataclasses.asdict`` and JSON make of them; what is missing stays as it is.

    Raises:
        ValueError: a field is unknown, or a value is not possible.
    """
    changed = {}
    for name, value in values.items():
        if not hasattr(config, name):
            raise ValueError(f"{where} has no field {name!r}")
        current = getattr(config, name)
        if is_dataclass(current) or isinstance(value, Mapping):
            value = replaced(current, value, f"{where}.{name}")
        changed[name] = tuple(value) if isinstance(current, tuple) else value
    return replace(config, **changed)


@dataclass(frozen=True)
class TuningConfig:
    """What is searched, and how.

    Raises:
        ValueError: a number is out of its range, or the sampler or the model is unknown.
    """

    model: NetworkKind
    """Which model."""
    search: SearchSpace | None = None
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
    def table(self) -> SearchSpace:
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
    accepted: bool | None
    """Whether the network improved on the linear law; where it did not, the error is the law's. "kept" in files."""
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
        """The finished trial of the least error; among equals (those of the law alone) that of the least loss."""
        done = [row for row in self.trials if row.state == "finished" and row.value is not None]
        return min(done, key=lambda row: (row.value, math.inf if row.loss is None else row.loss, row.number))

    @property
    def best_config(self) -> OutcomeModelConfig:
        """The settings of the best trial."""
        return self.config.table.configured(self.config.start, self.best.choice, self.inputs)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON, whole."""
        config = self.config
        found = {
            "schema": SCHEMA,
            "model": config.model,
            "best": self.best.number,
            "error": self.best.value,
            "config": asdict(self.best_config),
            "inputs": self.inputs,
            "sampler": config.sampler,
            "prune": config.prune,
            "seed": config.seed,
            "search": asdict(config.table),
            "start": asdict(config.start),
            "trials": [
                {"kept" if name == "accepted" else name: value for name, value in asdict(row).items()}
                for row in self.trials
            ],
        }
        write_json(path, found)


def read_tuned(path: str | os.PathLike[str]) -> tuple[NetworkKind, OutcomeModelConfig]:
    """Model and best settings from what :meth:`Tuning.write` wrote.

    Raises:
        ValueError: the file is not the result of a search of this schema; the message names it.
        OSError: there is no such file, or it may not be read.
    """
    found = read_json(path)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not {"model", "config"} <= found.keys():
        raise ValueError(f"{path} is not the result of a search (tuning.json) of schema {SCHEMA}")
    with loading(path, "the result of a search"):
        kind: NetworkKind = load_search(found["model"]).model
        return kind, replaced(OutcomeModelConfig(), found["config"], "config")


def shown(storage: str | os.PathLike[str]) -> str:
    """Where a study is stored, for people to read: the URL of a database without its password."""
    return re.sub(r"(://[^:/@]*):.*@", r"\1:***@", os.fspath(storage))
