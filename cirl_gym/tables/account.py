"""The account of a table: where every row, episode, action and reading went, in numbers and in sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cirl_gym.data.batch import RARE_GROUPS, RARE_TIMES
from cirl_gym.data.outcomes import before
from cirl_gym.tables.columns import TableColumns
from cirl_gym.tables.episodes import FeatureCounts, StepTimes
from cirl_gym.tables.sheet import listed

RARE_SHARE = 0.01
"""An action that is a smaller share of the decisions, or was taken seldom, may be a slip of the pen."""


@dataclass(frozen=True)
class RowCounts:
    """Where the rows of the table went; a ValueError where the counts do not add up to the rows read."""

    read: int
    """Rows of the table."""
    used: int
    """Rows that are an observation of the batch: actions plus one per episode."""
    identical: int
    """Rows dropped because another row is the same in every used column."""
    merged: int
    """Rows merged into another one of the same (id, time), by the rule for duplicates."""
    lone: int
    """Rows dropped because they are the only one of their id: no action with an outcome."""
    cut: int = 0
    """Rows dropped because they come after as many steps of the episode as are kept."""
    bad: int = 0
    """Rows of patients that were left out since a row of theirs cannot be used."""

    def __post_init__(self) -> None:
        if self.read != self.used + self.identical + self.merged + self.lone + self.cut + self.bad:
            raise ValueError(f"RowCounts: the counts do not add up to {self.read} rows: {self}")


@dataclass(frozen=True)
class EpisodeCounts:
    """What the episodes are; a ValueError where episodes and ends, or ids read and used, do not add up."""

    read: int
    """Ids of the table."""
    used: int
    """Episodes of the batch."""
    lone: int
    """Ids dropped because they have one row only: no action with an outcome."""
    groups: int
    """Different owners of the episodes."""
    steps: int
    """Actions of the batch."""
    last_actions_dropped: int
    """Actions dropped because the table ends before their outcome."""
    terminated: int
    """Episodes in which the process ended."""
    truncated: int
    """Episodes in which only watching ended."""
    regrouped: int
    """Ids whose rows did not stand together."""
    resorted: int
    """Ids whose rows were not in the order of time."""
    gaps: int
    """Steps longer than one and a half times the median step."""
    bad: int = 0
    """Ids left out since a row of theirs, or of their patient's, cannot be used."""

    def __post_init__(self) -> None:
        if self.read != self.used + self.lone + self.bad or self.used != self.terminated + self.truncated:
            raise ValueError(f"EpisodeCounts: the counts do not add up: {self}")


@dataclass(frozen=True)
class ActionCounts:
    """How often an action was taken in the whole table, and by how many."""

    action: str
    times: int
    groups: int
    """Different owners (patients) of the episodes in which it was taken."""
    share: float
    """Of all decisions."""
    first: str
    """Id and row in which it was taken first, in the order of ids; empty if it never was."""

    @property
    def counts(self) -> str:
        """How often and by how many, in words."""
        times = f"{self.times} time{'s' if self.times != 1 else ''}"
        return f"{times} by {self.groups} patient{'s' if self.groups != 1 else ''}"

    @property
    def warning(self) -> str:
        """That so little was seen of the action that nothing can be said about it; empty if that is not so."""
        if not self.times:
            return f"action {self.action!r} is stated, but was never taken: what is said of it rests on nothing seen"
        if self.times >= RARE_TIMES and self.groups >= RARE_GROUPS and self.share >= RARE_SHARE:
            return ""
        return (
            f"action {self.action!r} was taken {self.counts} ({self.share:.2%} of decisions; first in {self.first}): "
            "too rare to say anything about, or a slip of the pen; give it the name of an action like it, or leave "
            "these episodes out, and see whether the answer stays"
        )


@dataclass(frozen=True)
class ContextCounts:
    """A column that habits may depend on."""

    name: str
    decisions: dict[str, int]
    """By level the number of decisions; "missing": those in whose row the field is empty."""


@dataclass(frozen=True)
class TableReport:
    """The account of one table."""

    columns: TableColumns
    """Which column played which part."""
    unused: tuple[str, ...]
    """Columns of the table that played none."""
    end: str
    """Where the ends come from: "flags" of the table, or the user's word, "terminated" or "truncated"."""
    rows: RowCounts
    episodes: EpisodeCounts
    features: tuple[FeatureCounts, ...]
    """One per feature."""
    actions: tuple[dict[str, str], ...]
    """By action, in the order of their numbers: the value of each column of the action."""
    taken: tuple[ActionCounts, ...]
    """One per action, in the same order."""
    contexts: tuple[ContextCounts, ...]
    """One per column that habits may depend on."""
    warnings: tuple[str, ...]
    """What a person should look at before believing a result, beside rare actions."""
    steps: StepTimes | None = None
    """How much time passes between rows."""
    repairs: tuple[str, ...] = ()
    """What was read as something else than it was written, in words with counts."""
    left_out: tuple[str, ...] = ()
    """Patients left out since a row of theirs cannot be used."""
    before: tuple[str, ...] = ()
    """Features of which the reading one row earlier was added, as a feature "NAME before"."""
    sha256: str = ""
    """Of the table as it was read (:attr:`cirl_gym.tables.sheet.Sheet.checksum`): that of the same table shuffled."""

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """What a person should look at before believing a result, rare actions and made-up readings among it."""
        filled = (
            f"feature {counts.name!r}: {counts.filled_share:.0%} of its readings are missing and filled by the median, "
            "a value that nobody measured"
            for counts in self.features
            if counts.much_filled
        )
        return (*self.warnings, *filled, *(counts.warning for counts in self.taken if counts.warning))

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dictionaries, lists, texts and numbers, with all warnings, and its sentences."""
        told = asdict(self) | {"warnings": self.all_warnings, "account": self.account()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}

    def lines(self) -> list[str]:
        """The account in sentences and the warnings, for a terminal."""
        return [*self.account(), *(f"warning: {text}" for text in self.all_warnings)]

    def account(self) -> list[str]:
        """The account in sentences; what did not occur is not mentioned."""
        rows, episodes, columns = self.rows, self.episodes, self.columns
        owner = f", group {columns.group}" if columns.group else ""
        fixed = f" (static: {', '.join(columns.static)})" if columns.static else ""
        lines = [
            f"columns: id {columns.id}{owner}, time {columns.time}, action {', '.join(columns.actions)}, "
            f"{len(columns.features)} features: {', '.join(columns.features)}{fixed}",
            f"{rows.read} rows read, {rows.used} used: {episodes.used} episodes of {episodes.groups} groups "
            f"with {episodes.steps} actions",
            f"ends ({self.end}): {episodes.terminated} terminated, {episodes.truncated} truncated",
        ]
        taken = "; ".join(f"{counts.action} ({counts.counts})" for counts in self.taken)
        combined = ", the combinations that were taken" if len(columns.actions) > 1 else ""
        lines.append(f"{len(self.actions)} actions{combined}: {taken}")
        if self.steps is not None:
            alike, steps = self.steps.spread == 1, self.steps
            between = f", from {steps.shortest} to {steps.longest}"
            lines.append(
                f"every row is one step, however much time passes: {steps.median}{' in every' if alike else between}"
            )
        if self.left_out:
            lines.append(
                f"{len(self.left_out)} patients left out, of whom a row cannot be used, with {rows.bad} rows of "
                f"{episodes.bad} ids: {listed(self.left_out)}"
            )
        told = (
            (rows.identical, "identical rows dropped"),
            (rows.merged, "rows merged with another of the same id and time"),
            (rows.lone, "rows dropped: the only row of its id, so no action with an outcome"),
            (rows.cut, "rows dropped: after as many steps of their episode as are kept"),
            (episodes.last_actions_dropped, "last actions dropped: the table ends before their outcome"),
            (episodes.regrouped, "ids whose rows did not stand together were grouped"),
            (episodes.resorted, "ids were sorted by time"),
            (episodes.gaps, "steps longer than one and a half times the median step"),
        )
        lines += [f"{count} {what}" for count, what in told if count]
        lines += self.repairs
        for context in self.contexts:
            levels = ", ".join(f"{level} ({count})" for level, count in context.decisions.items())
            lines.append(f"habits may depend on {context.name}, with so many decisions of each level: {levels}")
        if self.unused:
            lines.append(f"columns not used: {', '.join(self.unused)}")
        for f in self.features:
            if f.carried or f.filled:
                outside = f", {f.below} below and {f.above} above the plausible range" if f.below or f.above else ""
                lines.append(
                    f"{f.name}: {f.empty} empty{outside}; {f.carried} carried forward, {f.filled} filled by the median "
                    f"({f.filled_share:.0%} of rows)"
                )
        return lines + [
            f"{before(name)!r} added, {name} as it was one row earlier (on the first row as it is there), so that its "
            "change can be weighed"
            for name in self.before
        ]
