"""From a table, one row per episode and time, to batches: every row is used, repaired with a count, or refused by name.

The steps, in order: read every cell (:mod:`~cirl_gym.tables.rows`), set readings outside their plausible range missing,
sort by episode and time, merge duplicates, cut episodes (:mod:`~cirl_gym.tables.episodes`), lag what is to be lagged,
split by group, and only then fill what is missing, so that nothing of the episodes held out reaches the training data.

What a person should look at before believing a result is a warning (:mod:`~cirl_gym.tables.doubts`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cirl_gym.data.batch import Batch
from cirl_gym.data.known import with_known
from cirl_gym.data.outcomes import with_lags
from cirl_gym.data.rules import masked
from cirl_gym.tables.account import ActionCounts, ContextCounts, EpisodeCounts, RowCounts, TableReport
from cirl_gym.tables.columns import TableColumns, TableOptions, check_known, infer_columns
from cirl_gym.tables.doubts import (
    action_leaks,
    long_episodes,
    mixed_units,
    odd_readings,
    static_between,
    unequal_steps,
    vanished_actions,
)
from cirl_gym.tables.episodes import CutEpisodes, FeatureCounts, cut_episodes, fill, lag_features
from cirl_gym.tables.rows import check_static, limit_ranges, merge_duplicates, parse_rows, sort_rows
from cirl_gym.tables.separators import REPAIRS
from cirl_gym.tables.sheet import BadRows, Sheet
from cirl_gym.tables.spellings import alike
from cirl_gym.types import BoolArray

HELD_OUT = (0.15, 0.15)
"""Shares of the groups to choose by and to be held out, unless others are asked for."""


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
        if forbid:  # of all episodes together, so that a fault is counted over all
            masked(Batch.together((self.train, self.validation, self.test)), forbid)
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
    validation: float = HELD_OUT[0],
    test: float = HELD_OUT[1],
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
    ever = set(batch.actions[batch.mask].tolist())
    unseen = sorted(ever - set(train.actions[train.mask].tolist()))
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
        raise ValueError(
            f"{n} groups cannot be split into training, validation and test episodes: three are needed, and four for "
            "weights"
        )
    held_out = max(round(test * n), 1)
    watched = max(min(round(validation * n), n - held_out - 1), 1)
    held_out = min(held_out, n - watched - 1)
    place = {names[i]: number for number, i in enumerate(rng.permutation(n))}
    places = np.array([place[group] for group in groups])
    in_test, in_validation = places < held_out, (places >= held_out) & (places < held_out + watched)
    return ~in_test & ~in_validation, in_validation, in_test


def check_enough(train: Collection[str], patients: int) -> None:
    """A ValueError where the ``train`` groups to learn from are too few: said early, and not after a fit.

    Args:
        train: groups of the training episodes, each as often as it has some.
        patients: all that there are, held out or not.
    """
    if len(set(train)) < 2:
        raise ValueError(
            f"{patients} patients are too few: weights are learnt from at least two, and two more are held out"
        )


@dataclass(frozen=True)
class _LeftOut:
    """Rows, ids and patients of which a row cannot be used."""

    rows: int = 0
    ids: frozenset[str] = frozenset()
    patients: frozenset[str] = frozenset()


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
    checksum, left_out = sheet.checksum, _LeftOut()
    while True:
        try:
            episodes, report = _accounted(sheet, columns, options, left_out)
            return episodes, replace(report, sha256=checksum)
        except BadRows as error:  # noqa: PERF203
            if not options.drop_bad_patients:
                raise
            sheet, left_out = _without_patients(sheet, columns, error, left_out)


def _without_patients(
    sheet: Sheet, columns: TableColumns, error: BadRows, left_out: _LeftOut
) -> tuple[Sheet, _LeftOut]:
    """The table without the patients of the bad rows, and without all rows of their ids."""
    ids = np.array(sheet.texts(columns.id), dtype=object)
    owners = ids if columns.group is None else np.array(sheet.texts(columns.group), dtype=object)
    bad = np.zeros(len(sheet), dtype=np.bool_)
    bad[list(error.positions)] = True
    for names in (ids, owners):
        bad |= np.isin(names.astype(str), sorted({str(name) for name in names[bad] if name is not None}))
    if bad.all():
        raise ValueError(f"--drop-bad-patients leaves nobody: {error}") from error
    gone = [frozenset(str(name) for name in set(names[bad]) if name is not None) for names in (ids, owners)]
    now = _LeftOut(left_out.rows + int(bad.sum()), left_out.ids | gone[0], left_out.patients | gone[1])
    return sheet.take(~bad), now


def _accounted(
    sheet: Sheet, columns: TableColumns, options: TableOptions, left_out: _LeftOut
) -> tuple[CutEpisodes, TableReport]:
    parsed = parse_rows(sheet, columns, options)
    mixed = mixed_units(parsed.values, parsed.features)
    ordered, regrouped, resorted = sort_rows(limit_ranges(parsed, dict(options.ranges)))
    check_static(ordered, columns.static)  # before rows are merged: a mean of two ages would hide that they differ
    rows, identical, merged = merge_duplicates(ordered, options.duplicates, tuple(mixed))
    episodes = lag_features(cut_episodes(rows, columns, options), columns.features, options.lag)
    steps = int(episodes.lengths.sum())
    warnings = [
        *alike(parsed.ids, "ids"),
        *(alike(sorted(set(parsed.groups)), "patients") if columns.group else ()),
        *mixed.values(),
        *odd_readings(rows, columns.static),
        *static_between(rows, columns.static),
        *unequal_steps(episodes.steps, steps),
        *long_episodes(episodes),
        *vanished_actions(episodes),
        *action_leaks(episodes, columns.features),
    ]
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
            read=len(sheet) + left_out.rows,
            used=int(episodes.live.sum()),
            identical=identical,
            merged=merged,
            lone=episodes.lone,
            cut=episodes.cut,
            bad=left_out.rows,
        ),
        episodes=EpisodeCounts(
            read=len(parsed.ids) + len(left_out.ids),
            used=used,
            lone=episodes.lone,
            groups=len(set(episodes.groups)),
            steps=steps,
            last_actions_dropped=episodes.last_actions_dropped,
            terminated=terminated,
            truncated=used - terminated,
            regrouped=regrouped,
            resorted=resorted,
            gaps=episodes.steps.gaps,
            bad=len(left_out.ids),
        ),
        features=(),
        actions=tuple(dict(zip(columns.actions, values, strict=True)) for values in episodes.action_values),
        taken=tuple(
            ActionCounts(name, 0, 0, 0.0, first)
            for name, first in zip(episodes.action_names, episodes.first, strict=True)
        ),
        contexts=(),
        warnings=tuple(warnings),
        steps=episodes.steps,
        repairs=(*sheet.frame.attrs.get(REPAIRS, ()), *parsed.repairs, *episodes.repairs),
        left_out=tuple(sorted(left_out.patients)),
    )


def counted(report: TableReport, batch: Batch, features: tuple[FeatureCounts, ...]) -> TableReport:
    """The account with the counts that are told from the filled episodes: of features, actions and contexts."""
    by = np.broadcast_to(batch.owners[:, None], batch.actions.shape)
    taken = []
    for a, (name, told) in enumerate(zip(batch.action_names, report.taken, strict=True)):
        when = batch.mask & (batch.actions == a)
        times = int(when.sum())
        taken.append(ActionCounts(name, times, len(np.unique(by[when])), times / batch.n_steps, told.first))
    contexts = []
    for name, levels in batch.contexts:
        decisions = np.bincount(batch.levels_of(name)[batch.mask], minlength=len(levels)).tolist()
        contexts.append(ContextCounts(name, dict(zip(levels, decisions, strict=True))))
    return replace(report, features=features, taken=tuple(taken), contexts=tuple(contexts))
