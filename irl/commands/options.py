"""The outcome model's options, the same for every command that fits one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from cirl_gym.tables.columns import TableColumns, TableOptions
    from cirl_gym.tables.sheet import Sheet
    from irl.settings import FitConfig


Model = Literal["ar", "crn", "rmsn", "mb_h", "mb_x"]


@dataclass(frozen=True)
class ModelArguments:
    """Which outcome model is fitted, and how many of it."""

    model: Model | None = None
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
        """The configuration with these options.

        Raises:
            ValueError: two options contradict each other.
        """
        if self.bootstrap and self.members == 1:
            raise ValueError("--bootstrap draws patients anew for each of several models; give --members 5, say")
        model, outcome = self.model or config.model, config.outcome
        if self.model_config is not None:
            from cirl_gym.tuning.tuning import read_tuned

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


AS_USUAL = ModelArguments()


# MERGED: Who finds the candidate policies of the max-margin loop and their mu: options of every command that fits.

Solver: TypeAlias = Literal["successor", "drqn", "recurrent_ppo"]
MuSource: TypeAlias = Literal["successor", "mu_learning", "rollouts"]

_USUAL_MU: dict[Solver, MuSource] = {"successor": "successor", "drqn": "mu_learning", "recurrent_ppo": "rollouts"}
"""Whose mu is taken where none is asked for."""


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
        """The configuration with these options.

        Raises:
            ValueError: two options contradict each other, iterations or steps is below 1, or the limit is not positive.
        """
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


AS_FAST = SolverArguments()


# MERGED: Options of every command that fits, about time: windows of steps, and the choice of the discount factor.


@dataclass(frozen=True)
class TimeArguments:
    """Whether preferences change with time, and how far ahead the experts look."""

    windows: tuple[int, ...] = ()
    """First steps of windows of time, as in --windows 0 6 12: the weights of each are found from its decisions alone,
    and compared with those of the one before. The last window goes on to the end. Default: no windows."""
    choose_gamma: tuple[float, ...] = ()
    """Two or more discount factors, rising, as in --choose-gamma 0.5 0.9 0.99: each is solved, and the one under which
    held-out decisions are most likely is taken instead of --gamma (the largest within one standard error of it)."""

    def put_into(self, config: FitConfig) -> FitConfig:
        """The configuration with these options.

        Raises:
            ValueError: an option is out of its range.
        """
        return replace(config, windows=self.windows, choose_gamma=self.choose_gamma)


AT_ALL_TIMES = TimeArguments()


# MERGED: The options of the command line that say how a table is read.


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

    def read(self, table: Path) -> tuple[Sheet, TableColumns, TableOptions]:
        """The table, which column is what, and how it is to be read.

        Raises:
            ValueError: it is no table, or what a column is cannot be told; the message names the option to give.
            OSError: there is no such file, or it may not be read.
        """
        from cirl_gym.tables.columns import TableOptions, infer_columns
        from cirl_gym.tables.sheet import Sheet, read_table

        sheet = Sheet(read_table(table))
        columns = infer_columns(
            sheet,
            id=self.id,
            time=self.time,
            action=self.action or None,
            features=self.features or None,
            group=self.group,
            static=self.static,
        )
        options = TableOptions(end=self.end, last_row=self.last_row, duplicates=self.duplicates, lag=self.lag)
        return sheet, columns, options


AS_FOUND = TableArguments()
"""Nothing is said of the table."""
