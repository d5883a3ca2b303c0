"""What a hyper-parameter search is asked for and what it found, as it is kept in ``tuning.json``."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.files import read_json, write_json
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.training import NotFiniteError, Progress, Watch
from cirl_gym.tuning.search import Choice, Search, TunedKind, config_from_dict, input_size, load_search

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial


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


# MERGED: Hyper-parameter search: 20 combinations of the paper's tables, chosen by the factual error on validation
# episodes.
#
# As in the paper (appendices F and G) the error is that of predicting the next observation under the action that was
# taken: which model predicts best what was *not* done cannot be read off a table.

CORRECTION = "correction"
"""The network, of those that a fit trains, whose validation loss can stop a trial."""


class Fit(Protocol):
    """What a trial calls: :func:`cirl_gym.outcome_models.fitting.fit_outcome_model`."""

    def __call__(
        self,
        kind: TunedKind,
        train: Batch,
        validation: Batch,
        config: OutcomeModelConfig,
        rng: np.random.Generator,
        progress: Progress | None = None,
        *,
        watch: Watch | None = None,
    ) -> FittedOutcomeModel:
        """Fit one model."""
        ...


def tune(
    train: Batch,
    validation: Batch,
    config: TuningConfig,
    storage: str | os.PathLike[str],
    *,
    name: str | None = None,
    progress: Callable[[float, float], None] | None = None,
    fit: Fit = fit_outcome_model,
) -> Tuning:
    """Search until the study has as many trials as asked for; what earlier calls have done counts.

    A call with the same arguments goes on where one was killed: what finished is kept, what was cut off is tried again
    with the same combination and the same draws. Several machines can share a study in a database; each stops when the
    study has enough, so together they can end with a few more. In one process on a CPU the same seed gives the same
    trials with the same errors.

    Args:
        train: episodes to fit.
        validation: episodes to choose by.
        config: what is searched.
        storage: a journal file, an SQLite file, or a database's URL, as ``study.open_study`` takes it.
        name: of the study in the storage; default: the model.
        progress: called with (trials done, trials planned), parts of a trial counted.
        fit: what a trial calls.

    Raises:
        ValueError: the study was begun with other settings or data, the storage cannot be opened, or no trial finished.
        ImportError: Optuna is not installed; the message says how to.
    """
    from cirl_gym.tuning import study as studies

    inputs, tell = input_size(train), progress or (lambda _done, _total: None)
    study = studies.open_study(storage, name or config.model, study_settings(train, validation, config), config.prune)
    studies.requeue_stopped(study)
    while (done := studies.counted(study)) < config.goal:
        tell(done, config.goal)
        following = studies.next_trial(study, config.table, config.sampler, config.seed)
        if following is None:
            break
        trial, place = following

        def part(steps: int, planned: int, done: int = done) -> None:
            tell(done + steps / max(planned, 1), config.goal)

        _Run(study, trial, fit, part).go(train, validation, config, np.random.default_rng([config.seed, 2, place]))
    rows = tuple(_row(trial, config.table, inputs) for trial in studies.trials_of(study))
    if not any(row.state == "finished" for row in rows):
        reasons = {row.message for row in rows if row.message} or {"all were pruned or stopped"}
        raise ValueError(f"no trial of the study finished: {'; '.join(sorted(reasons))}")
    tell(config.goal, config.goal)
    return Tuning(config, inputs, rows)


@dataclass(frozen=True)
class _Run:
    """One trial."""

    study: optuna.Study
    trial: optuna.Trial
    fit: Fit
    progress: Progress

    def go(self, train: Batch, validation: Batch, config: TuningConfig, rng: np.random.Generator) -> None:
        """Fit, and tell the study what came out, whatever it is."""
        import optuna

        from cirl_gym.tuning import study as studies

        try:
            choice = studies.choose(self.trial, config.table)
            settings = config.table.configured(config.start, choice, input_size(train))
            watch = Watch(on_epoch=self.on_epoch)
            fitted = self.fit(config.model, train, validation, settings, rng, self.progress, watch=watch)
        except optuna.TrialPruned:
            self.study.tell(self.trial, state=optuna.trial.TrialState.PRUNED)
        except NotFiniteError as error:
            studies.diverge(self.study, self.trial, str(error))
        except BaseException:
            self.study.tell(self.trial, state=optuna.trial.TrialState.FAIL)
            raise
        else:
            correction = fitted.report["correction"]
            for key, label in (("kept", "kept"), ("loss", "validation_loss"), ("epochs", "epochs")):
                self.trial.set_user_attr(key, correction[label])
            self.study.tell(self.trial, fitted.report["factual"]["validation"]["pooled"])

    def on_epoch(self, network: str, epoch: int, loss: float) -> None:
        """Report the loss; end the trial if it is among the worse half."""
        import optuna

        if network != CORRECTION:
            return
        self.trial.report(loss, epoch)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def study_settings(train: Batch, validation: Batch, config: TuningConfig) -> dict[str, Any]:
    """All that the trials of a study depend on, for JSON; a study is refused to a search with others."""
    table = config.table
    return {
        "model": config.model,
        "search": [[row.name, list(row.fields), list(row.values), row.times] for row in table.parameters],
        "sampler": config.sampler,
        "pruning": config.prune,
        "seed": config.seed,
        "configuration": asdict(config.start),
        "training batch": _fingerprint(train),
        "validation batch": _fingerprint(validation),
    }


def _fingerprint(batch: Batch) -> str:
    digest = hashlib.sha256(repr((batch.features, batch.action_names, batch.obs.shape)).encode())
    for array in (batch.obs, batch.actions, batch.lengths, batch.terminated):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _row(trial: FrozenTrial, table: Search, inputs: int) -> TrialRow:
    from cirl_gym.tuning import study as studies

    state, known = studies.verdict(trial), trial.user_attrs
    whole = len(trial.params) == len(table.parameters)
    took = trial.duration.total_seconds() if trial.duration and state in ("finished", "pruned", "diverged") else None
    return TrialRow(
        number=trial.number,
        state=state,
        value=trial.value if state == "finished" else None,
        loss=known.get("loss"),
        kept=known.get("kept"),
        choice=dict(trial.params),
        settings=table.settings(trial.params, inputs) if whole else {},
        epochs=known.get("epochs") or trial.last_step,
        seconds=took,
        message=known.get("diverged"),
    )
