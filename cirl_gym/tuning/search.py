"""What a hyper-parameter search tries: tables of values, shipped as data files (the paper's appendices F and G)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass, replace
from importlib import resources
from typing import Any, TypeAlias, get_args

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.outcome_models.inputs import NetworkKind

TunedKind: TypeAlias = NetworkKind
"""Kinds that have a search; the linear law chooses its lags and its strength itself."""
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
class Search:
    """A table, and how many of its combinations are tried.

    Raises:
        ValueError: two rows have one name, or there is nothing to try.
    """

    model: TunedKind
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
        """By field what it is set to, multiples turned into sizes.

        Args:
            choice: an entry of every row.
            inputs: C, see :func:`input_size`.
        """
        found: dict[str, float] = {}
        for parameter in self.parameters:
            value = choice[parameter.name]
            if parameter.times is not None:
                value = multiple(value, inputs if parameter.times == INPUT else found[parameter.times])
            found |= dict.fromkeys(parameter.fields, value)
        return found

    def configured(self, start: OutcomeModelConfig, choice: Mapping[str, float], inputs: int) -> OutcomeModelConfig:
        """The settings of a start, with a choice put into those of the model."""
        config = getattr(start, self.model)
        for path, value in self.settings(choice, inputs).items():
            config = _with_field(config, path.split("."), value)
        return replace(start, **{self.model: config})

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as in the data files."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Search:
        """What :meth:`as_dict` gave, or a data file holds.

        Raises:
            ValueError: an entry is missing or unknown.
        """
        try:
            rows = tuple(Parameter(**row) for row in values["parameters"])
            return cls(**{**values, "parameters": rows, "notes": tuple(values.get("notes", ()))})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a search: {error}") from error


def load_search(kind: str) -> Search:
    """The search that ships with the package: of the paper's appendices F and G, and one for RMSN.

    Raises:
        ValueError: there is no search for this kind.
    """
    file = resources.files("cirl_gym.tuning") / "searches" / f"{kind}.json"
    if kind not in get_args(TunedKind):
        raise ValueError(
            f"there is nothing to tune for {kind!r}; models with a search: {', '.join(get_args(TunedKind))}"
        )
    return Search.from_dict(json.loads(file.read_text(encoding="utf-8")))


def input_size(batch: Batch) -> int:
    """C: features of an observation plus one-hot actions, what every network reads at a step."""
    return len(batch.features) + batch.n_actions


def multiple(share: float, size: float) -> int:
    """A size as a multiple of another, to the nearest whole number, halves up, at least 1."""
    return max(math.floor(share * size + 0.5), 1)


def config_from_dict(values: Mapping[str, Any]) -> OutcomeModelConfig:
    """Settings from what ``dataclasses.asdict`` and JSON made of them; fields that are missing keep their defaults.

    Raises:
        ValueError: a field is unknown, or a value is not possible.
    """
    config: OutcomeModelConfig = _rebuilt(OutcomeModelConfig(), values, "config")
    return config


def _rebuilt(default: Any, values: Mapping[str, Any], where: str) -> Any:
    changed = {}
    for name, value in values.items():
        if not hasattr(default, name):
            raise ValueError(f"{where} has no field {name!r}")
        current = getattr(default, name)
        if is_dataclass(current):
            value = _rebuilt(current, value, f"{where}.{name}")
        changed[name] = tuple(value) if isinstance(current, tuple) else value
    return replace(default, **changed)


def _with_field(config: Any, path: list[str], value: float) -> Any:
    name, *rest = path
    if not hasattr(config, name):
        raise ValueError(f"{type(config).__name__} has no field {name!r}")
    return replace(config, **{name: _with_field(getattr(config, name), rest, value) if rest else value})
