"""Searching: a study in Optuna, on disk or in a database, whose trials are fitted until there are enough.

A study outlives the process that began it. A trial that was killed is tried again, and what a trial draws depends on
the seed and on its place in the search alone, so that a search that was interrupted ends as one that was not.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.fitting import FittedOutcomeModel, fit_outcome_model
from cirl_gym.outcome_models.training import NotFiniteError, Watch
from cirl_gym.tuning.search import (
    Choice,
    Sampler,
    SearchSpace,
    TrialRow,
    Tuning,
    TuningConfig,
    Verdict,
    input_size,
    shown,
)

try:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock, JournalFileSymlinkLock
    from optuna.trial import FrozenTrial, TrialState
    from sqlalchemy.exc import DBAPIError
except ImportError as error:
    raise ImportError('tuning needs Optuna: pip install "cirl-gym[tune]"') from error

FIRST_TRIALS = 5
"""Trials that have to be finished before another can be pruned."""
FIRST_EPOCHS = 10
"""Epochs that every trial gets: a small learning rate begins slowly."""
ENDED: tuple[Verdict, ...] = ("finished", "pruned", "diverged")
"""Of trials that came to an end of their own."""
CORRECTION = "correction"
"""The network, of those that a fit trains, whose validation loss can stop a trial."""
_SETTINGS, _ROOT, _DIVERGED, _HOST, _PROCESS = "settings", "again", "diverged", "host", "process"


def open_study(storage: str | os.PathLike[str], name: str, settings: dict[str, Any], prune: bool) -> optuna.Study:
    """Begin a study of these settings (for JSON; all that the trials depend on), or go on with it.

    The storage is a journal file (it is made), an SQLite file (``.db``, ``.sqlite``, ``.sqlite3``), or the URL of a
    database as SQLAlchemy takes it, which machines can share; several studies can share it, too.

    Raises:
        ValueError: the study is there and was begun with other settings, or the storage cannot be opened.
    """
    pruner = optuna.pruners.MedianPruner(FIRST_TRIALS, FIRST_EPOCHS) if prune else optuna.pruners.NopPruner()
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            storage=_storage(storage), study_name=name, direction="minimize", pruner=pruner, load_if_exists=True
        )
    # Drivers are missing, servers do not answer, files are damaged: each in its own library's way.
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"the study cannot be opened in {shown(storage)!r}: {why}") from error
    finally:
        optuna.logging.set_verbosity(verbosity)
    wanted = json.loads(json.dumps(settings))
    begun = study.user_attrs.get(_SETTINGS)
    if begun is None:
        study.set_user_attr(_SETTINGS, wanted)
    elif begun != wanted:
        raise ValueError(
            f"the study {name!r} in {shown(storage)!r} was begun with other settings: "
            f"{'; '.join(_differences(begun, wanted))}. Take another storage or another name for the study"
        )
    return study


def _differences(begun: Mapping[str, Any], wanted: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """The names of what differs, with both values where they are short."""
    for key in sorted(begun.keys() | wanted.keys()):
        before, now = begun.get(key), wanted.get(key)
        if isinstance(before, dict) and isinstance(now, dict):
            yield from _differences(before, now, f"{where}{key}.")
        elif before != now:
            values = f" ({before}, now {now})" if len(f"{before}{now}") < 40 else ""
            yield f"{where}{key}{values}"


def _storage(storage: str | os.PathLike[str]) -> optuna.storages.BaseStorage:
    text, path = os.fspath(storage), Path(storage)
    if "://" in text:
        return _database(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".db", ".sqlite", ".sqlite3"):
        return _database(f"sqlite:///{path.resolve()}")
    # Symbolic links need a privilege on Windows.
    lock = (JournalFileOpenLock if os.name == "nt" else JournalFileSymlinkLock)(text)
    _drop_torn_line(path, lock)
    return JournalStorage(JournalFileBackend(text, lock_obj=lock))


def _database(url: str, waits: tuple[float, ...] = (0.5, 1.0, 2.0)) -> optuna.storages.RDBStorage:
    """A database with Optuna's tables, which are made if need be.

    Where two machines begin at one time, both want to make them and one of them fails: it looks again.
    """
    # SQLite lets one write at a time, the others wait.
    options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite:") else {}
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=options)
    except DBAPIError:
        if not waits:
            raise
    time.sleep(waits[0])
    return _database(url, waits[1:])


def _drop_torn_line(path: Path, lock: JournalFileOpenLock | JournalFileSymlinkLock) -> None:
    """Cut off what a killed process left of a line, which would be glued to the next and spoil both."""
    if not path.exists() or path.read_bytes()[-1:] in (b"", b"\n"):
        return
    lock.acquire()
    try:
        content = path.read_bytes()  # again: the end of the line may only have been on its way
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)
    finally:
        lock.release()


class Shuffled(optuna.samplers.BaseSampler):
    """Random search without repetition: the combinations in an order that the seed fixes.

    The combination of a trial depends on its place alone, so that machines that share a study try different ones.
    """

    def __init__(self, search: SearchSpace, seed: int) -> None:
        self._search = search
        self._order = np.random.default_rng([seed, 0]).permutation(search.combinations)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, Any]:
        """Nothing: every row is asked for on its own."""
        return {}

    def sample_relative(self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, Any]) -> dict[str, Any]:
        """Nothing."""
        return {}

    def sample_independent(self, study: optuna.Study, trial: FrozenTrial, param_name: str, _: Any) -> Any:
        """The row's entry in the combination of the trial."""
        index = self._order[place(trial, trials_of(study)) % len(self._order)]
        return self._search.combination(int(index))[param_name]


def next_trial(
    study: optuna.Study, search: SearchSpace, sampler: Sampler, seed: int
) -> tuple[optuna.Trial, int] | None:
    """The next trial and its place in the search; None: every combination has been tried."""
    trials = trials_of(study)
    fresh = sum(_ROOT not in trial.user_attrs for trial in trials)
    waiting = any(trial.state == TrialState.WAITING for trial in trials)
    if sampler == "random":
        if fresh >= search.combinations and not waiting:
            return None
        study.sampler = Shuffled(search, seed)
    else:
        drawn = int(np.random.SeedSequence([seed, 1, fresh]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=drawn)
    trial = study.ask()
    trial.set_user_attr(_PROCESS, os.getpid())
    trial.set_user_attr(_HOST, socket.gethostname())  # last: whoever reads it finds the process, too
    trials = trials_of(study)
    return trial, place(trials[trial.number], trials)


def choose(trial: optuna.Trial, search: SearchSpace) -> Choice:
    """An entry of every row."""
    return {p.name: trial.suggest_categorical(p.name, list(p.values)) for p in search.parameters}


def place(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> int:
    """Number of the trial in the search; a second attempt at a trial has the place of the first."""
    root = trial.user_attrs.get(_ROOT, trial.number)
    return int(root) - sum(_ROOT in earlier.user_attrs for earlier in trials[:root])


def requeue_stopped(study: optuna.Study) -> None:
    """Put trials that were stopped or killed on this machine back into the queue, with their combinations.

    A trial that runs on another machine is left alone: whether it still runs cannot be seen from here.
    """
    latest = {trial.user_attrs.get(_ROOT, trial.number): trial for trial in trials_of(study)}
    for root, trial in latest.items():
        if trial.state == TrialState.RUNNING and _is_dead(trial):
            study.tell(trial.number, state=TrialState.FAIL)
        elif verdict(trial) != "stopped":
            continue
        study.enqueue_trial(trial.params, user_attrs={_ROOT: root})


def _is_dead(trial: FrozenTrial) -> bool:
    if trial.user_attrs.get(_HOST) != socket.gethostname():
        return False
    process = int(trial.user_attrs[_PROCESS])
    if process == os.getpid():  # of an earlier call: in this one nothing runs yet
        return True
    if os.name != "nt":  # where os.kill would end the process instead of asking for it
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
    return False


def verdict(trial: FrozenTrial) -> Verdict:
    """What became of a trial."""
    verdicts: dict[TrialState, Verdict] = {
        TrialState.COMPLETE: "finished",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "diverged" if _DIVERGED in trial.user_attrs else "stopped",
        TrialState.RUNNING: "running",
        TrialState.WAITING: "waiting",
    }
    return verdicts[trial.state]


def trials_of(study: optuna.Study) -> list[FrozenTrial]:
    """Every trial, by number."""
    return study.get_trials(deepcopy=False)


def tune(
    train: Batch,
    validation: Batch,
    config: TuningConfig,
    storage: str | os.PathLike[str],
    *,
    name: str | None = None,
    progress: Callable[[float, float], None] | None = None,
    fit: Callable[..., FittedOutcomeModel] = fit_outcome_model,
) -> Tuning:
    """Search until the study has as many trials as asked for; what earlier calls have done counts.

    A call with the same arguments goes on where one was killed: what finished counts, what was cut off is tried again
    with the same combination and the same draws. Several machines can share a study in a database; each stops when the
    study has enough, so together they can end with a few more. In one process on a CPU the same seed gives the same
    trials with the same errors.

    Args:
        train: episodes to fit.
        validation: episodes to choose by.
        config: what is searched.
        storage: as :func:`open_study` takes it.
        name: of the study in the storage; default: the model.
        progress: called with (trials done, trials planned), parts of a trial counted.
        fit: what a trial calls, with the arguments of :func:`~cirl_gym.outcome_models.fitting.fit_outcome_model`.

    Raises:
        ValueError: the study was begun with other settings or data, the storage cannot be opened, or no trial finished.
    """
    inputs, table, tell = input_size(train), config.table, progress or (lambda _done, _total: None)
    study = open_study(storage, name or config.model, study_settings(train, validation, config), config.prune)
    requeue_stopped(study)
    while (done := sum(verdict(trial) in ENDED for trial in trials_of(study))) < config.goal:
        tell(done, config.goal)
        following = next_trial(study, table, config.sampler, config.seed)
        if following is None:
            break
        trial, number = following

        def part(steps: int, planned: int, done: int = done) -> None:
            tell(done + steps / max(planned, 1), config.goal)

        rng = np.random.default_rng([config.seed, 2, number])
        _try(study, trial, config, inputs, partial(fit, config.model, train, validation, rng=rng, progress=part))
    rows = tuple(_row(trial, table, inputs) for trial in trials_of(study))
    if not any(row.state == "finished" for row in rows):
        reasons = {row.message for row in rows if row.message} or {"all were pruned or stopped"}
        raise ValueError(f"no trial of the study finished: {'; '.join(sorted(reasons))}")
    tell(config.goal, config.goal)
    return Tuning(config, inputs, rows)


def _try(
    study: optuna.Study,
    trial: optuna.Trial,
    config: TuningConfig,
    inputs: int,
    fit: Callable[..., FittedOutcomeModel],
) -> None:
    """Fit, and tell the study what came out, whatever it is."""

    def on_epoch(network: str, epoch: int, loss: float) -> None:
        """Report the loss; end the trial if it is among the worse half."""
        if network == CORRECTION:
            trial.report(loss, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

    try:
        settings = config.table.configured(config.start, choose(trial, config.table), inputs)
        fitted = fit(settings, watch=Watch(on_epoch=on_epoch))
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    except NotFiniteError as error:  # an answer, not an accident
        trial.set_user_attr(_DIVERGED, str(error))
        study.tell(trial, state=TrialState.FAIL)
    except BaseException:
        study.tell(trial, state=TrialState.FAIL)
        raise
    else:
        correction = fitted.report["correction"]
        for key, label in (("kept", "kept"), ("loss", "validation_loss"), ("epochs", "epochs")):
            trial.set_user_attr(key, correction[label])
        study.tell(trial, fitted.report["factual"]["validation"]["pooled"])


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
    arrays = (array.tobytes() for array in (batch.obs, batch.actions, batch.lengths, batch.terminated))
    shape = repr((batch.features, batch.action_names, batch.obs.shape)).encode()
    return hashlib.sha256(shape + b"".join(arrays)).hexdigest()


def _row(trial: FrozenTrial, table: SearchSpace, inputs: int) -> TrialRow:
    state, known = verdict(trial), trial.user_attrs
    whole = len(trial.params) == len(table.parameters)
    return TrialRow(
        number=trial.number,
        state=state,
        value=trial.value if state == "finished" else None,
        loss=known.get("loss"),
        accepted=known.get("kept"),
        choice=dict(trial.params),
        settings=table.settings(trial.params, inputs) if whole else {},
        epochs=known.get("epochs") or trial.last_step,
        seconds=trial.duration.total_seconds() if trial.duration and state in ENDED else None,
        message=known.get("diverged"),
    )
