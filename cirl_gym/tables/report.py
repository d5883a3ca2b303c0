"""What became of a table: every row and every missing reading is accounted for."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cirl_gym.data.outcomes import before
from cirl_gym.tables.columns import TableColumns


@dataclass(frozen=True)
class RowCounts:
    """Where the rows of the table went.

    Raises:
        ValueError: the counts do not add up to the rows read.
    """

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

    def __post_init__(self) -> None:
        if self.read != self.used + self.identical + self.merged + self.lone:
            raise ValueError(f"RowCounts: the counts do not add up to {self.read} rows: {self}")


@dataclass(frozen=True)
class EpisodeCounts:
    """What the episodes are.

    Raises:
        ValueError: episodes and ends, or ids read and used, do not add up.
    """

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

    def __post_init__(self) -> None:
        if self.read != self.used + self.lone or self.used != self.terminated + self.truncated:
            raise ValueError(f"EpisodeCounts: the counts do not add up: {self}")


@dataclass(frozen=True)
class FeatureCounts:
    """What became of the missing readings of one feature, over the used rows.

    Raises:
        ValueError: the counts do not add up.
    """

    name: str
    empty: int
    """Empty fields."""
    below: int
    """Readings set missing because they lie below the plausible range."""
    above: int
    """Readings set missing because they lie above it."""
    carried: int
    """Missing readings replaced by the last one of the same episode (if static: by any)."""
    filled: int
    """Missing readings before the first one of the episode, replaced by the training median."""

    def __post_init__(self) -> None:
        if self.empty + self.below + self.above != self.carried + self.filled:
            raise ValueError(f"FeatureCounts: the counts do not add up: {self}")


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
    warnings: tuple[str, ...]
    """What a person should look at before believing a result."""
    before: tuple[str, ...] = ()
    """Features of which the reading one row earlier was added, as a feature "NAME before"."""

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dictionaries, lists, texts and numbers."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def lines(self) -> list[str]:
        """The account in sentences, for a terminal; what did not occur is not mentioned."""
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
        if len(columns.actions) > 1:
            combinations = "; ".join(", ".join(map("=".join, values.items())) for values in self.actions)
            lines.append(f"{len(self.actions)} actions, the combinations that were taken: {combinations}")
        told = (
            (rows.identical, "identical rows dropped"),
            (rows.merged, "rows merged with another of the same id and time"),
            (rows.lone, "rows dropped: the only row of its id, so no action with an outcome"),
            (episodes.last_actions_dropped, "last actions dropped: the table ends before their outcome"),
            (episodes.regrouped, "ids whose rows did not stand together were grouped"),
            (episodes.resorted, "ids were sorted by time"),
            (episodes.gaps, "steps longer than one and a half times the median step"),
        )
        lines += [f"{count} {what}" for count, what in told if count]
        if self.unused:
            lines.append(f"columns not used: {', '.join(self.unused)}")
        for f in self.features:
            if f.carried or f.filled:
                outside = f", {f.below} below and {f.above} above the plausible range" if f.below or f.above else ""
                lines.append(
                    f"{f.name}: {f.empty} empty{outside}; {f.carried} carried forward, {f.filled} filled by the median"
                )
        lines += [
            f"{before(name)!r} added, {name} as it was one row earlier (on the first row as it is there), so that its "
            "change can be weighed"
            for name in self.before
        ]
        return lines + [f"warning: {text}" for text in self.warnings]
