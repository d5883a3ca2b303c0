"""The options of every command, with their help texts: light to import, so that help and mistakes come at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tyro.conf import OmitArgPrefixes, Positional

from agents import MuSource, Solver
from cirl_gym.outcome_models.inputs import Kind, NetworkKind

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.data.batch import Batch
    from cirl_gym.tables.columns import TableColumns, TableOptions
    from cirl_gym.tables.sheet import Sheet
    from irl.settings import FitConfig

_USUAL_MU: dict[Solver, MuSource] = {"successor": "successor", "drqn": "mu_learning", "recurrent_ppo": "rollouts"}
"""Whose mu is taken where none is asked for."""


# --- what several commands take --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableArguments:
    """Columns that are not named are found by their content, or asked for."""

    id: str | None = None
    """Column that names the episode (a hospital stay)."""
    time: str | None = None
    """Column of the time step, a number or a date."""
    action: tuple[str, ...] = ()
    """Column of the action; of several, every combination of values that was taken is one action."""
    features: tuple[str, ...] = ()
    """Columns of what was observed; default: all other columns, if they are numbers."""
    static: tuple[str, ...] = ()
    """Features that do not change within an episode (age), as numbers; they are observed and never weighed."""
    group: str | None = None
    """Column that says whose episode it is (a patient with several stays); default: found, if there is one."""
    end: Literal["terminated", "truncated"] | None = None
    """How episodes end, if the table has no columns terminated and truncated."""
    last_row: Literal["observation", "drop_action"] = "observation"
    """What the last row of an episode is, where not all agree."""
    duplicates: Literal["error", "first", "last", "mean"] = "error"
    """What to do with differing rows of one (id, time)."""
    lag: tuple[str, ...] = ()
    """Features that describe the time after the row's action (a dose given), moved to the next row."""
    actions: tuple[str, ...] = ()
    """All values of the action, in their order, also those that nobody takes; other values are then faults."""
    as_written: bool = False
    """Take ids, actions and levels of habits as they are written: "1" and "1.0", "Yes" and "yes" are different."""
    missing_values: tuple[str, ...] = ()
    """The table's own marks for a missing reading, numbers or texts, as in --missing-values -999 unknown."""
    valid: tuple[tuple[str, float, float], ...] = ()
    """NAME LOW HIGH, once for each feature: readings outside are counted and taken out, never clipped."""
    drop_bad_patients: bool = False
    """Go on without patients of whom a row cannot be used; they are counted and listed."""
    max_steps: int | None = None
    """End episodes, truncated, after so many steps."""

    def read(
        self, table: Path | pd.DataFrame, contexts: Sequence[str] = ()
    ) -> tuple[Sheet, TableColumns, TableOptions]:
        """The table, which column is what, and how it is to be read; habits may depend on the columns ``contexts``.

        Raises:
            ValueError: it is no table, or what a column is cannot be told; the message names the option to give.
            OSError: there is no such file, or it may not be read.
        """
        from cirl_gym.files import reading
        from cirl_gym.tables.columns import TableOptions, infer_columns
        from cirl_gym.tables.files import read_table
        from cirl_gym.tables.sheet import Sheet

        with reading(table) if isinstance(table, Path) else nullcontext():
            sheet = Sheet(read_table(table) if isinstance(table, Path) else table)
            columns = infer_columns(
                sheet,
                id=self.id,
                time=self.time,
                action=self.action or None,
                features=self.features or None,
                group=self.group,
                static=self.static,
                contexts=contexts,
            )
        twice = sorted({name for name, *_ in self.valid if [name for name, *_ in self.valid].count(name) > 1})
        if twice:
            raise ValueError(f"--valid: {twice[0]!r} is given two ranges")
        options = TableOptions(
            end=self.end,
            last_row=self.last_row,
            duplicates=self.duplicates,
            ranges={name: (low, high) for name, low, high in self.valid},
            lag=self.lag,
            actions=self.actions,
            as_written=self.as_written,
            missing_values=self.missing_values,
            drop_bad_patients=self.drop_bad_patients,
            max_steps=self.max_steps,
        )
        return sheet, columns, options

    def of_batch(self, batch: Batch) -> TableColumns:
        """What the columns of a batch would be called in a table, with these static ones.

        Raises:
            ValueError: another option is given: a batch is read already.
        """
        from cirl_gym.interop.long_table import columns_of

        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default and one.name != "static"]
        if given:
            option = given[0].replace("_", "-")
            raise ValueError(f"--{option} says how a table is read, and a batch is read already")
        return replace(columns_of(batch), static=self.static)


@dataclass(frozen=True)
class WeighedArguments:
    """What the decisions of a table are explained by."""

    outcomes: tuple[str, ...] = ()
    """What is weighed: features, or Outside(NAME, 36, 38), Above(NAME, 12), Below(NAME, 92), Change(NAME),
    Product(NAME, NAME), Given(ACTION), Switched(); with Below(NAME, ?) or Above(NAME, ?) the limit is found. Default:
    all features that are not static. The others are only seen and predicted."""
    lower_is_better: tuple[str, ...] = ()
    """Outcomes that nobody can want to be higher: their weights are negative."""
    sign: tuple[str, ...] = ()
    """Outcomes whose weight has a known sign, as NAME=-1 or NAME=+1."""
    gamma: float = 0.99
    """Discount factor, 0 to 1."""
    habit: tuple[str, ...] = ()
    """What habits depend on, beside outcomes: previous and previous2, the actions one and two steps before (the
    default; with more than four actions previous alone), and columns named here (a ward, a shift); or none (the
    paper's experts, who have no habits)."""
    forbid: tuple[str, ...] = ()
    """What the experts could not do: "ACTION when CONDITION" or "ACTION unless CONDITION", each a text of its
    own. Conditions: Above(NAME, 3), Below(NAME, 3), Outside(NAME, 3, 4), After(ACTION), joined by and."""


@dataclass(frozen=True)
class ModelArguments:
    """Which outcome model is fitted, and how many of it."""

    model: Kind | None = None
    """Outcome model: linear law, or a network that corrects it (default: crn; with --quick: ar)."""
    model_config: Path | None = None
    """The tuning.json of cirl tune: its model, with the settings that were found."""
    members: int = 1
    """Outcome models that are fitted. Intervals hold what they differ in; each takes a run's time once more."""
    bootstrap: bool = False
    """Fit each of the members to patients drawn with replacement."""
    relative: tuple[str, ...] = ()
    """Features, never negative, that change in proportion to their size (networks only)."""

    def put_into(self, config: FitConfig) -> FitConfig:
        """The configuration with these options; a ValueError where two options contradict each other."""
        if self.bootstrap and self.members == 1:
            raise ValueError("--bootstrap draws patients anew for each of several models; give --members 5, say")
        model, outcome = self.model or config.model, config.outcome
        if self.model_config is not None:
            from cirl_gym.tuning.search import read_tuned

            kind, outcome = read_tuned(self.model_config)
            if self.model not in (None, kind):
                raise ValueError(f"{self.model_config} holds settings of {kind!r}, --model asks for {self.model!r}")
            model = kind
        if self.relative and model == "ar":
            raise ValueError("--relative needs a network: --model crn, rmsn, mb_h or mb_x")
        outcome = replace(
            outcome, members=self.members, bootstrap=self.bootstrap, relative=self.relative or outcome.relative
        )
        return replace(config, model=model, outcome=outcome)


@dataclass(frozen=True)
class SolverArguments:
    """The max-margin loop the fast way, as the paper prints it, or by RecurrentPPO in the world-model environment."""

    solver: Solver = "successor"
    """Who finds its policies: the successor-feature agent; or, anew in every round, recurrent Q-learning (the paper) or
    RecurrentPPO in the world-model environment."""
    mu: MuSource | None = None
    """Where their feature expectations come from: the same agent; mu-learning anew in every round (the paper); or
    roll-outs in the world model. Default: mu_learning with drqn, rollouts with recurrent_ppo."""
    iterations: int | None = None
    """Gradient steps of each training of drqn and mu_learning (default: the paper's 20,000; with --quick: 300)."""
    steps: int | None = None
    """Imagined steps of each training of recurrent_ppo (default: 40,000; with --quick: 20,000)."""
    quality_limit: float | None = None
    """By how much what plans promise may differ from what is reached in the world model, in shares of an outcome's
    full range, before the run stops (default: 0.05)."""

    def put_into(self, config: FitConfig) -> FitConfig:
        """The configuration with these options; a ValueError where two contradict each other or one is out of range."""
        mu = self.mu or _USUAL_MU[self.solver]
        histories, ppo = config.histories, config.ppo
        if self.iterations is not None:
            if self.solver != "drqn" and mu != "mu_learning":
                raise ValueError("--iterations is for --solver drqn and --mu mu_learning")
            histories = replace(histories, iterations=self.iterations)
        if self.steps is not None:
            if self.solver != "recurrent_ppo":
                raise ValueError("--steps is for --solver recurrent_ppo")
            ppo = replace(ppo, steps=self.steps)
        quality = config.quality
        if self.quality_limit is not None:
            quality = replace(quality, limit=self.quality_limit)
        return replace(config, solver=self.solver, mu=mu, histories=histories, ppo=ppo, quality=quality)


@dataclass(frozen=True)
class TimeArguments:
    """Whether preferences change with time, and how far ahead the experts look."""

    windows: tuple[int, ...] = ()
    """First steps of windows of time, as in --windows 0 6 12: the weights of each are found from its decisions alone,
    and compared with those of the one before. The last window goes on to the end. Default: no windows."""
    choose_gamma: tuple[float, ...] = ()
    """Two or more discount factors, rising, as in --choose-gamma 0.5 0.9 0.99: each is solved, and the one under which
    held-out decisions are most likely is taken instead of --gamma (the largest within one standard error of it)."""
    horizon: int | None = None
    """How many actions a decision looks ahead, at most, and is planned anew at the next step. Default: to the end of
    the longest episode."""

    def put_into(self, config: FitConfig) -> FitConfig:
        """The configuration with these options; a ValueError where an option is out of its range."""
        return replace(config, windows=self.windows, choose_gamma=self.choose_gamma, horizon=self.horizon)


def habit_contexts(asked: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    """What ``--habit`` says habits depend on: nothing, actions before, and columns of the table.

    Columns alone are added to the default; actions before are as they are named.

    Raises:
        ValueError: "none" is not alone, or a name is there twice.
    """
    from cirl_gym.data.habits import ACTIONS_BEFORE, NONE, PREVIOUS

    if not asked:
        return tuple(default)
    if len(set(asked)) < len(asked):
        raise ValueError(f"--habit: a name is there twice: {', '.join(asked)}")
    if NONE in asked:
        if len(asked) > 1:
            raise ValueError(f"--habit none means no habits at all, but there is more: {' '.join(asked)}")
        return ()
    named = [name for name in asked if name in ACTIONS_BEFORE]
    return (*(sorted(named) or default or (PREVIOUS,)), *(name for name in asked if name not in ACTIONS_BEFORE))


# --- one for each command ---------------------------------------------------------------------------------------------


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
    if isinstance(options, ExplainOptions):
        from irl.settings import FOLDS, HABIT

        asked = options.weighed
        config = _usual_fit(asked.gamma, options.quick, asked.forbid)
        config = replace(config, habit=habit_contexts(asked.habit, HABIT), folds=FOLDS)
    else:
        config = _usual_fit(options.gamma, options.quick, options.forbid)
        usual = () if options.expert_habit is None else ("previous",)
        config = replace(config, habit=habit_contexts(options.habit, usual))
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
    """Folder of the MEDS data set, whose events are in data/**/*.parquet; without it the command says where open data
    can be had."""
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
