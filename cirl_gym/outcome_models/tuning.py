"""Hyper-parameter search: 20 combinations of the paper's tables, chosen by the factual error on validation episodes.

As in the paper (appendices F and G) the error is that of predicting the next observation under the action that was
taken: which model predicts best what was *not* done cannot be read off a table.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cirl_gym.batch import Batch
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.search import Search, TunedKind, input_size
from cirl_gym.outcome_models.training import NotFiniteError, Progress, Watch
from cirl_gym.outcome_models.tuned import TrialRow, Tuning, TuningConfig

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

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
    from cirl_gym.outcome_models import study as studies

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

        from cirl_gym.outcome_models import study as studies

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
    from cirl_gym.outcome_models import study as studies

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
