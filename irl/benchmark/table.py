"""One method on one split of a table by patient: how well it foresees the decisions of patients that it has not seen.

The paper's table of the ICU has accuracies of one split. Here every seed divides the patients anew, as ``cirl explain``
does with that seed, all methods of a seed learn from the same patients, and all are judged by the same decisions of the
others, of whom no method, cross-fitting included, has seen anything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import field as key
from msgspec import structs

from cirl_gym.data.batch import Batch
from cirl_gym.data.outcomes import Sought, read_outcome
from cirl_gym.data.rollout import act_along
from cirl_gym.data.rules import rules_for
from cirl_gym.tables.read import PreparedTable
from cirl_gym.types import IntArray
from irl.baselines.judge import habits
from irl.baselines.methods import DSFNLoopConfig, quick_dsfn, solve
from irl.benchmark.jobs import LEARNT, seconds_of, settings_of
from irl.benchmark.parts import Benchmark
from irl.checks.chances import judged_chances
from irl.checks.metrics import HeldOutConfig, accuracy, held_out_likelihood
from irl.checks.predictors import REFERENCES as PREDICTORS
from irl.pipeline import Fit
from irl.preferences.inference import judged_episodes
from irl.preferences.likelihood import constant_chances, log_chances
from irl.result.baselines import REFERENCES, Row
from irl.result.codec import Document, NotNegative, require
from irl.result.sentences import verdict
from irl.settings import ExplainConfig
from irl.stages import stages
from irl.stored_stages import code_digest, data_digest
from irl.study import Study
from irl.whole_run import for_actions, study_of

METHODS = {**LEARNT, **{name: title for name, title in REFERENCES.items() if name != "expert"}}
"""What can be compared, and how it is called: all that needs no simulator, and what knows no preferences."""
PARTS = ("train", "validation", "test")
"""Of a split: to learn from, to choose by, to be judged by."""
PATIENTS = 12
"""Fewer leave too few to cross-fit over once some are held out."""


@dataclass(frozen=True)
class TableConfig:
    """What is asked of a table, and how much is done for every job. The seed is the job's own.

    Raises:
        ValueError: a limit of an outcome is sought.
    """

    table: ExplainConfig
    """Which column is what, what is weighed, and how weights are found."""
    sha256: str
    """Of the table's content."""
    dsfn: DSFNLoopConfig = field(default_factory=DSFNLoopConfig)
    """How DSFN and DSFN(h) learn."""

    def __post_init__(self) -> None:
        for name in self.table.outcomes:
            if isinstance(read_outcome(name, self.table.columns.features), Sought):
                raise ValueError(
                    f"--outcomes: cirl explain finds the limit of {name}; methods are compared at a number"
                )

    def quick(self) -> TableConfig:
        """DSFN in a fraction of the time; the rest is as :attr:`table` says."""
        return replace(self, dsfn=quick_dsfn(self.dsfn))


OfTable: TypeAlias = Benchmark[TableConfig]
"""The folder of a table's benchmark."""


class TableOutcome(Document, frozen=True, kw_only=True):
    """What a job has found.

    Raises:
        ValueError: a field has another type, or is out of its range; the method is unknown.
    """

    seed: int
    """Of the split, and of all that the method draws."""
    features: tuple[str, ...]
    """``[d]`` what is weighed."""
    row: Row
    """Method, weights, accuracy of its policy, and how well it foresees the decisions judged."""
    judged: str
    """A number for the episodes whose decisions are judged: the same for all methods of a seed."""
    patients: dict[str, int]
    """How many there are to learn from, to choose by, and held out."""
    verdict: str | None = None
    """Whether outcomes help to foresee the decisions of those learnt from, by cross-fitting over them; None: the method
    asks for no weights, or has no outcome model."""
    seconds: dict[str, NotNegative] = key(default_factory=dict)
    """Of every stage."""
    cpu: NotNegative = 0.0
    """Processor seconds of the whole job, measuring included."""
    code: str = ""
    """A number for the source that computed it."""

    def check(self) -> None:
        """The method is known."""
        require(self.method in METHODS, f"outcome: method must be one of {', '.join(METHODS)}, got {self.method}")

    @property
    def method(self) -> str:
        """A name of :data:`METHODS`."""
        return self.row.method


@dataclass(frozen=True)
class TableJob:
    """A method on a split."""

    method: str
    seed: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"jobs/{self.method}_{self.seed}"

    @property
    def file(self) -> str:
        """Its outcome."""
        return f"{self.name}.json"

    def work(self, benchmark: OfTable) -> None:
        """Write its outcome."""
        outcome_of(self, benchmark).write(benchmark.folder / self.file)


def jobs_of(methods: Sequence[str], seeds: int) -> list[TableJob]:
    """Every combination, all of one seed before those of the next."""
    return [TableJob(method, seed) for seed in range(seeds) for method in methods]


def check_enough(table: PreparedTable) -> None:
    """A ValueError where a table has too few patients."""
    patients = table.report.episodes.groups
    if patients < PATIENTS:
        raise ValueError(f"{patients} patients are too few to be divided again and again: it takes {PATIENTS}")


def is_split(benchmark: OfTable, seed: int) -> bool:
    """Whether the episodes of a seed's split are there."""
    return all((benchmark.folder / f"parts/{seed}/{part}.npz").is_file() for part in PARTS)


def store_split(benchmark: OfTable, seed: int, table: PreparedTable) -> None:
    """Write the episodes of a seed's split."""
    for part in PARTS:
        getattr(table, part).save(benchmark.folder / f"parts/{seed}/{part}.npz")


class Answer(NamedTuple):
    """What a method says of the decisions judged."""

    row: Row
    """Before anything is measured."""
    chosen: IntArray
    """``[N, T]`` what its policy would do."""
    log_chances: npt.NDArray[np.floating] | None
    """``[N, T, A]`` or ``[A]`` log-probabilities of the experts' actions; None: it says nothing of chances."""
    fit: Fit | None = None
    """Of a method with an outcome model."""


def outcome_of(job: TableJob, benchmark: OfTable) -> TableOutcome:
    """What a job finds: the same for the same job, split and settings, but for the seconds.

    Raises:
        ValueError: the method cannot work with these episodes.
    """
    began = time.process_time()
    train, validation, test = (Batch.load(benchmark.folder / f"parts/{job.seed}/{part}.npz") for part in PARTS)
    judged = judged_episodes(test, HeldOutConfig().decisions)
    config = for_actions(replace(benchmark.config.table, seed=job.seed), train.n_actions)
    study = study_of(config, train, validation, Batch.together((train, validation)))
    with stages(0, quiet=True) as watch:
        study = replace(study, stages=watch)
        learns = job.method in LEARNT
        answer = _learnt(job.method, study, benchmark, judged) if learns else _reference(job.method, study, judged)
    seconds = seconds_of(job.method, watch)
    logs, scores = answer.log_chances, None
    if logs is not None:
        scores = judged_chances(logs, judged, np.random.default_rng([job.seed, 3]))
    met = accuracy(answer.chosen, judged)
    return TableOutcome(
        seed=job.seed,
        features=study.feature_map.features,
        row=structs.replace(answer.row, accuracy=met, scores=scores, seconds=sum(seconds.values())),
        judged=data_digest(judged)[:12],
        patients={part: len(set(batch.groups)) for part, batch in zip(PARTS, (train, validation, test), strict=True)},
        verdict=None if answer.fit is None else _verdict(answer.fit),
        seconds=seconds,
        cpu=time.process_time() - began,
        code=code_digest()[:12],
    )


def _learnt(method: str, study: Study, benchmark: OfTable, judged: Batch) -> Answer:
    """Of a method that a run can be compared with."""
    solved = solve(method, replace(study, config=settings_of(method, study.config)), benchmark.config.dsfn)
    chances = None if solved.log_chances is None else solved.log_chances(judged)
    return Answer(solved.row, act_along(solved.policy, judged), chances, solved.fit)


def _reference(name: str, study: Study, judged: Batch) -> Answer:
    """Of what knows no preferences."""
    train, row = study.train, Row(method=name, memory=name != "majority")
    with study.stages.stage(METHODS[name]):
        if name in PREDICTORS:
            logs = PREDICTORS[name](train, study.seed).log_probabilities(judged)
            return Answer(row, logs.argmax(axis=2), logs)
        chosen = act_along(habits(train, rules_for(train, study.config.forbid))[name], judged)
        frequencies = constant_chances(train, more=1.0) if name == "majority" else None
        return Answer(row, chosen, None if frequencies is None else log_chances(frequencies, judged))


def _verdict(found: Fit) -> str | None:
    """Whether outcomes help, by the decisions of those learnt from."""
    if found.foreseen is None:
        return None
    likelihood = held_out_likelihood(found.foreseen.chances, found.foreseen.judged, found.foreseen.folds)
    return verdict(likelihood, found.identified.not_identifiable, len(found.feature_map.features))
