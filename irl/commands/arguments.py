"""Groups of options that several commands take, with their help texts: light to import, as :mod:`irl.commands.options`.

Each but the first two is put into the settings of a fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agents import MuSource, Solver
from cirl_gym.outcome_models.inputs import Kind

if TYPE_CHECKING:
    import pandas as pd

    from cirl_gym.data.batch import Batch
    from cirl_gym.tables.columns import TableColumns, TableOptions
    from cirl_gym.tables.sheet import Sheet
    from irl.settings import FitConfig

_USUAL_MU: dict[Solver, MuSource] = {"successor": "successor", "drqn": "mu_learning", "recurrent_ppo": "rollouts"}
"""Whose mu is taken where none is asked for."""


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
