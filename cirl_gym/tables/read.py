"""From a table, one row per episode and time, to batches: every row is used, repaired with a count, or refused by name.

The steps, in order: read every cell (:mod:`~cirl_gym.tables.rows`), set readings outside their plausible range missing,
sort by episode and time, merge duplicates, cut episodes (:mod:`~cirl_gym.tables.episodes`), lag what is to be lagged,
split by group, and only then fill what is missing, so that nothing of the episodes held out reaches the training data.

What a person should look at before believing a result is a warning: features that give the action away, mixed units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cirl_gym.data.batch import Batch
from cirl_gym.data.known import with_known
from cirl_gym.data.outcomes import before, with_lags
from cirl_gym.data.rules import masked
from cirl_gym.tables.columns import TableColumns, TableOptions, check_known, infer_columns
from cirl_gym.tables.episodes import CutEpisodes, FeatureCounts, cut_episodes, fill, lag_features
from cirl_gym.tables.rows import blanks_apart, check_static, limit_ranges, merge_duplicates, parse_rows, sort_rows
from cirl_gym.tables.sheet import Sheet, number
from cirl_gym.types import BoolArray, FloatArray, IntArray

CELSIUS = (25.0, 45.0)
"""No living patient's temperature lies outside, in degrees Celsius ..."""
FAHRENHEIT = (77.0, 113.0)
"""... which in degrees Fahrenheit is this range. The two do not touch, so that a column with both has two units."""

RARE_TIMES, RARE_GROUPS = 30, 10
"""An action that was taken fewer times, or by fewer patients, is rare: what is said of it is chance."""

_DETERMINED = 0.99
_NEIGHBOURS = 3
_ADVICE = ": it may have been recorded after the decision. Lag it by one row (--lag) or leave it out"


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

    def __post_init__(self) -> None:
        if self.read != self.used + self.identical + self.merged + self.lone:
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

    def __post_init__(self) -> None:
        if self.read != self.used + self.lone or self.used != self.terminated + self.truncated:
            raise ValueError(f"EpisodeCounts: the counts do not add up: {self}")


@dataclass(frozen=True)
class ActionCounts:
    """How often an action was taken in the whole table, and by how many."""

    action: str
    times: int
    groups: int
    """Different owners (patients) of the episodes in which it was taken."""

    @property
    def warning(self) -> str:
        """That so little was seen of the action that nothing can be said about it; empty if that is not so."""
        if self.times >= RARE_TIMES and self.groups >= RARE_GROUPS:
            return ""
        times = f"{self.times} time{'s' if self.times != 1 else ''}"
        patients = f"{self.groups} patient{'s' if self.groups != 1 else ''}"
        return (
            f"action {self.action!r} was taken {times} by {patients}: too rare to say anything about; give it the name "
            "of an action like it, or leave these episodes out, and see whether the answer stays"
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
    before: tuple[str, ...] = ()
    """Features of which the reading one row earlier was added, as a feature "NAME before"."""
    sha256: str = ""
    """Of the table as it was read (:attr:`cirl_gym.tables.sheet.Sheet.checksum`): that of the same table shuffled."""

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """What a person should look at before believing a result, the rare actions among it."""
        return (*self.warnings, *(counts.warning for counts in self.taken if counts.warning))

    def as_dict(self) -> dict[str, Any]:
        """The same as plain dictionaries, lists, texts and numbers, with all warnings."""
        told = asdict(self) | {"warnings": self.all_warnings}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in told.items()}

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
        for context in self.contexts:
            levels = ", ".join(f"{level} ({count})" for level, count in context.decisions.items())
            lines.append(f"habits may depend on {context.name}, with so many decisions of each level: {levels}")
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
        return lines + [f"warning: {text}" for text in self.all_warnings]


@dataclass(frozen=True)
class PreparedTable:
    """A table as three batches without common groups."""

    train: Batch
    validation: Batch
    test: Batch
    report: TableReport
    """The account of the whole table."""
    medians: dict[str, float]
    """Per feature the median of the training readings, by which gaps at the start of episodes were filled."""
    indicators: tuple[str, ...]
    """Features appended to tell where a reading is missing."""

    def with_lags(self, names: Sequence[str]) -> PreparedTable:
        """The same with features "NAME before" (:func:`cirl_gym.data.outcomes.with_lags`), which the report says.

        Raises:
            ValueError: a name is no feature, or there is a feature of the new name.
        """
        if not names:
            return self
        train, validation, test = (with_lags(batch, names) for batch in (self.train, self.validation, self.test))
        report = replace(self.report, before=(*self.report.before, *names))
        return replace(self, train=train, validation=validation, test=test, report=report)

    def with_known(self, outcomes: Sequence[str]) -> PreparedTable:
        """The same with features for outcomes that are known exactly (:func:`cirl_gym.data.known.with_known`).

        Raises:
            ValueError: an outcome is about an action that is not taken in the table; the message names those that are.
        """
        train, validation, test = (with_known(batch, outcomes) for batch in (self.train, self.validation, self.test))
        return replace(self, train=train, validation=validation, test=test)

    def masked(self, forbid: Sequence[str]) -> PreparedTable:
        """The same with what rules left to choose from (:func:`cirl_gym.data.rules.masked`) in every batch.

        Raises:
            ValueError: a rule cannot be read, or an action was taken that is forbidden; the message names the episode.
        """
        train, validation, test = (masked(batch, forbid) for batch in (self.train, self.validation, self.test))
        return replace(self, train=train, validation=validation, test=test)

    @property
    def action_map(self) -> tuple[dict[str, str], ...]:
        """``[A]`` by the number of an action: the value of each column of the action."""
        return self.report.actions


def from_dataframe(
    frame: pd.DataFrame | Sheet, columns: TableColumns | None = None, options: TableOptions | None = None
) -> tuple[Batch, TableReport]:
    """The whole table as one batch, all of it treated as training data.

    Gaps at the start of episodes are filled by medians of **all** episodes. To hold episodes out, use
    :func:`prepare_table`, which splits first: splitting this batch afterwards would let the medians carry information
    from one part into the other.

    Args:
        frame: one row per (id, time), in any order: the batch is the same (unless differing rows of one time are told
            apart by their order, "first" or "last"); or its sheet, where columns of it are parsed already.
        columns: which column is what; None: :func:`~cirl_gym.tables.columns.infer_columns`.
        options: choices that change what is read.

    Returns:
        Episodes in the order of their ids, as texts, and the account.

    Raises:
        ValueError: the table cannot be used as it is; the message names column, id and row, or the option to give.
    """
    options = options or TableOptions()
    episodes, report = _read(frame, columns, options)
    everything = np.ones(len(episodes.ids), dtype=np.bool_)
    batch, _, _, features = fill(episodes, report.columns, everything, options.missing_indicator)
    return batch, counted(report, batch, features)


def prepare_table(
    frame: pd.DataFrame | Sheet,
    columns: TableColumns | None = None,
    options: TableOptions | None = None,
    *,
    rng: np.random.Generator,
    validation: float = 0.15,
    test: float = 0.15,
) -> PreparedTable:
    """Split a table by group into training, validation and test batches, then fill its gaps by training medians.

    Each batch is padded to its own longest episode, and which groups it holds depends on the names of the groups and
    on ``rng`` alone: what stands in the rows of the others changes nothing in the training batch. (Only the list of
    actions is common to all; an action that training never sees is reported.)

    The first three arguments are those of :func:`from_dataframe`; ``validation`` and ``test`` are shares of the groups,
    at least one each, and ``rng`` draws them.

    Raises:
        ValueError: as :func:`from_dataframe`; or a share is not inside (0, 1), nothing is left for training, or there
            are fewer than three groups.
    """
    options = options or TableOptions()
    episodes, report = _read(frame, columns, options)
    parts = split_groups(episodes.groups, rng, validation, test)
    batch, medians, indicators, features = fill(episodes, report.columns, parts[0], options.missing_indicator)
    train, watched, held_out = (batch.take(part).trimmed() for part in parts)
    unseen = sorted(set(range(train.n_actions)) - set(train.actions[train.mask].tolist()))
    warnings = [f"action {train.action_names[a]!r} is never taken in the training episodes" for a in unseen]
    report = replace(counted(report, batch, features), warnings=(*report.warnings, *warnings))
    return PreparedTable(train, watched, held_out, report, medians, indicators)


def split_groups(
    groups: Sequence[str], rng: np.random.Generator, validation: float, test: float
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """``[N]`` masks of training, validation and test episodes; all episodes of a group are on one side."""
    if not (0 < validation < 1 and 0 < test < 1 and validation + test < 1):
        shares = f"{validation} and {test}"
        raise ValueError(f"the shares of validation and test must be positive and leave a rest, got {shares}")
    names = sorted(set(groups))
    n = len(names)
    if n < 3:
        raise ValueError(f"{n} groups cannot be split into training, validation and test episodes: three are needed")
    held_out = max(round(test * n), 1)
    watched = max(min(round(validation * n), n - held_out - 1), 1)
    held_out = min(held_out, n - watched - 1)
    place = {names[i]: number for number, i in enumerate(rng.permutation(n))}
    places = np.array([place[group] for group in groups])
    in_test, in_validation = places < held_out, (places >= held_out) & (places < held_out + watched)
    return ~in_test & ~in_validation, in_validation, in_test


def _read(
    frame: pd.DataFrame | Sheet, columns: TableColumns | None, options: TableOptions
) -> tuple[CutEpisodes, TableReport]:
    """A table that was read and cut, but not filled, and the account of it so far."""
    sheet = frame if isinstance(frame, Sheet) else Sheet(frame)
    if sheet.frame.empty:
        raise ValueError("the table has no rows")
    columns = columns or infer_columns(sheet)
    check_known(columns.used, sheet.columns)
    options.check(columns.features, columns.static)
    parsed = parse_rows(sheet, columns)
    mixed = mixed_units(parsed.values, parsed.features)
    ordered, regrouped, resorted = sort_rows(limit_ranges(parsed, dict(options.ranges)))
    rows, identical, merged = merge_duplicates(ordered, options.duplicates, tuple(mixed))
    check_static(rows, columns.static)
    episodes = lag_features(cut_episodes(rows, columns, options), columns.features, options.lag)
    warnings = [*blanks_apart(parsed.ids), *mixed.values(), *action_leaks(episodes, columns.features)]
    terminated, used = int(episodes.terminated.sum()), len(episodes.ids)
    if episodes.last_actions_dropped and terminated:
        warnings.append(
            f"{terminated} episodes end terminated, but last actions were dropped for want of an "
            "outcome: these ends are dated one step early"
        )
    return episodes, TableReport(
        columns=columns,
        unused=tuple(name for name in sheet.columns if name not in columns.used),
        end=options.end or "flags",
        rows=RowCounts(
            read=len(sheet), used=int(episodes.live.sum()), identical=identical, merged=merged, lone=episodes.lone
        ),
        episodes=EpisodeCounts(
            read=len(parsed.ids),
            used=used,
            lone=episodes.lone,
            groups=len(set(episodes.groups)),
            steps=int(episodes.lengths.sum()),
            last_actions_dropped=episodes.last_actions_dropped,
            terminated=terminated,
            truncated=used - terminated,
            regrouped=regrouped,
            resorted=resorted,
            gaps=episodes.gaps,
        ),
        features=(),
        actions=tuple(dict(zip(columns.actions, values, strict=True)) for values in episodes.action_values),
        taken=(),
        contexts=(),
        warnings=tuple(warnings),
        sha256=sheet.checksum,
    )


def counted(report: TableReport, batch: Batch, features: tuple[FeatureCounts, ...]) -> TableReport:
    """The account with the counts that are told from the filled episodes: of features, actions and contexts."""
    owners = np.unique(np.array(batch.groups), return_inverse=True)[1]
    by = np.broadcast_to(owners[:, None], batch.actions.shape)
    taken = []
    for a, name in enumerate(batch.action_names):
        when = batch.mask & (batch.actions == a)
        taken.append(ActionCounts(name, int(when.sum()), len(np.unique(by[when]))))
    contexts = []
    for name, levels in batch.contexts:
        decisions = np.bincount(batch.levels_of(name)[batch.mask], minlength=len(levels)).tolist()
        contexts.append(ContextCounts(name, dict(zip(levels, decisions, strict=True))))
    return replace(report, features=features, taken=tuple(taken), contexts=tuple(contexts))


def mixed_units(values: FloatArray, features: Sequence[str]) -> dict[str, str]:
    """Temperatures in two units: a warning per feature, for readings ``[.., d]``."""
    warnings = {}
    for j, name in enumerate(features):
        if "temp" not in name.lower():  # the ranges of other units overlap: no rule could tell them from patients
            continue
        celsius, fahrenheit = (
            int(((values[..., j] >= low) & (values[..., j] <= high)).sum()) for low, high in (CELSIUS, FAHRENHEIT)
        )
        if celsius and fahrenheit:
            warnings[name] = (
                f"column {name!r} mixes units: {celsius} readings can only be degrees Celsius "
                f"({CELSIUS[0]:g} to {CELSIUS[1]:g}), {fahrenheit} only degrees Fahrenheit "
                f"({FAHRENHEIT[0]:g} to {FAHRENHEIT[1]:g})"
            )
    return warnings


def action_leaks(episodes: CutEpisodes, features: Sequence[str]) -> list[str]:
    """A warning for each feature that equals, or in more than 99 % of rows determines, the action of its own row.

    "Determines" is measured on patients that were not looked at: the groups are dealt into two halves, and the action
    of each row is told from the rows of the other half that have the same reading, or the nearest ones. What counts is
    that this is right in more than 99 % of the rows and halves the errors of always telling the most frequent action.
    """
    live = np.arange(episodes.actions.shape[1]) < episodes.lengths[:, None]
    taken = episodes.actions[live]
    owners = np.unique(np.array(episodes.groups), return_inverse=True)[1]
    half = np.broadcast_to((owners % 2 == 1)[:, None], live.shape)[live]
    warnings = []
    # Each column of the action on its own: a reading may give one of two decisions away.
    for values in zip(*episodes.action_values, strict=True):
        codes = np.array([number(value) for value in values], dtype=np.float64)[taken]
        different = list(dict.fromkeys(values))
        actions = np.array([different.index(value) for value in values])[taken]
        for j, name in enumerate(features):
            readings = episodes.obs[:, :-1, j][live]
            known = ~np.isnan(readings)
            if len(np.unique(readings[known])) > 1 and (readings[known] == codes[known]).all():
                warnings.append(f"feature {name!r} equals the action of its own row{_ADVICE}")
            elif half.any() and not half.all():
                right, frequent = told_by(readings, actions, half), np.bincount(actions).max() / len(actions)
                if right > _DETERMINED and 1 - right < 0.5 * (1 - frequent):
                    warnings.append(f"feature {name!r} tells the action of its own row in {right:.1%} of rows{_ADVICE}")
    return list(dict.fromkeys(warnings))


def told_by(readings: FloatArray, actions: IntArray, half: BoolArray) -> float:
    """Share of rows whose action is told rightly by readings ``[n]`` from the other half of the patients."""
    right = 0
    for side in (False, True):
        seen, asked = half == side, half != side
        # A missing reading is a value of its own: that something was not measured may give the action away as well.
        known, query = np.nan_to_num(readings[seen], nan=np.inf), np.nan_to_num(readings[asked], nan=np.inf)
        order = np.argsort(known, kind="stable")
        known, hot = known[order], np.eye(int(actions.max()) + 1)[actions[seen][order]]
        total = np.concatenate([np.zeros((1, hot.shape[1])), np.cumsum(hot, axis=0)])
        first, past = np.searchsorted(known, query, side="left"), np.searchsorted(known, query, side="right")
        alone = past == first
        first = np.where(alone, np.maximum(first - _NEIGHBOURS, 0), first)
        past = np.where(alone, np.minimum(past + _NEIGHBOURS, len(known)), past)
        told = (total[past] - total[first]).argmax(axis=1)
        right += int((told == actions[asked]).sum())
    return right / len(actions)
