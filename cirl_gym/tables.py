"""From a table, one row per episode and time, to batches: every row is used, repaired with a count, or refused by name.

The steps, in order: read every cell (:mod:`~cirl_gym.table_rows`), set readings outside their plausible range missing,
sort by episode and time, merge duplicates, cut episodes (:mod:`~cirl_gym.table_episodes`), lag what is to be lagged,
split by group, and only then fill what is missing (:mod:`~cirl_gym.table_fill`), so that nothing of the episodes held
out reaches the training data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from cirl_gym.action_rule_text import masked
from cirl_gym.batch import Batch
from cirl_gym.lags import with_lags
from cirl_gym.table_checks import action_leaks, mixed_units
from cirl_gym.table_episodes import Episodes, cut_episodes
from cirl_gym.table_file import check_names, read_table
from cirl_gym.table_fill import Filled, fill, lag_features
from cirl_gym.table_infer import infer_columns
from cirl_gym.table_report import EpisodeCounts, RowCounts, TableReport
from cirl_gym.table_rows import blanks_apart, check_static, limit_ranges, merge_duplicates, parse_rows, sort_rows
from cirl_gym.table_schema import TableColumns, TableOptions
from cirl_gym.types import BoolArray

__all__ = [
    "PreparedTable",
    "TableColumns",
    "TableOptions",
    "TableReport",
    "from_dataframe",
    "infer_columns",
    "prepare_table",
    "read_table",
    "split_groups",
]


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
        """The same with features "NAME before" in every batch (:func:`cirl_gym.lags.with_lags`), which the report says.

        Raises:
            ValueError: a name is no feature, or there is a feature of the new name.
        """
        if not names:
            return self
        return replace(
            self,
            train=with_lags(self.train, names),
            validation=with_lags(self.validation, names),
            test=with_lags(self.test, names),
            report=replace(self.report, before=(*self.report.before, *names)),
        )

    def masked(self, forbid: Sequence[str]) -> PreparedTable:
        """The same with what rules left to choose from (:func:`cirl_gym.action_rule_text.masked`) in every batch.

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
    frame: pd.DataFrame, columns: TableColumns | None = None, options: TableOptions | None = None
) -> tuple[Batch, TableReport]:
    """The whole table as one batch, all of it treated as training data.

    Gaps at the start of episodes are filled by medians of **all** episodes. To hold episodes out, use
    :func:`prepare_table`, which splits first: splitting this batch afterwards would let the medians carry information
    from one part into the other.

    Args:
        frame: one row per (id, time), in any order.
        columns: which column is what; None: :func:`~cirl_gym.table_infer.infer_columns`.
        options: see :class:`~cirl_gym.table_schema.TableOptions`.

    Returns:
        Episodes in the order of their first rows, and the account.

    Raises:
        ValueError: the table cannot be used as it is; the message names column, id and row, or the option to give.
    """
    options = options or TableOptions()
    reading = _read(frame, columns, options)
    everything = np.ones(len(reading.episodes.ids), dtype=np.bool_)
    columns = reading.columns
    filled = fill(reading.episodes, columns.features, everything, options.missing_indicator, columns.static)
    return filled.batch, _report(reading, filled, ())


def prepare_table(
    frame: pd.DataFrame,
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

    Args:
        frame: one row per (id, time), in any order.
        columns: which column is what; None: :func:`~cirl_gym.table_infer.infer_columns`.
        options: see :class:`~cirl_gym.table_schema.TableOptions`.
        rng: draws the split.
        validation: share of the groups, at least one.
        test: share of the groups, at least one.

    Raises:
        ValueError: as :func:`from_dataframe`; or there are fewer than three groups.
    """
    options = options or TableOptions()
    reading = _read(frame, columns, options)
    train_part, validation_part, test_part = split_groups(reading.episodes.groups, rng, validation, test)
    columns = reading.columns
    filled = fill(reading.episodes, columns.features, train_part, options.missing_indicator, columns.static)
    train = _trimmed(filled.batch.take(train_part))
    unseen = sorted(set(range(train.n_actions)) - set(train.actions[train.mask].tolist()))
    warnings = [f"action {train.action_names[a]!r} is never taken in the training episodes" for a in unseen]
    return PreparedTable(
        train=train,
        validation=_trimmed(filled.batch.take(validation_part)),
        test=_trimmed(filled.batch.take(test_part)),
        report=_report(reading, filled, tuple(warnings)),
        medians=filled.medians,
        indicators=filled.indicators,
    )


def split_groups(
    groups: Sequence[str], rng: np.random.Generator, validation: float, test: float
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """``[N]`` masks of training, validation and test episodes; all episodes of a group are on one side.

    Raises:
        ValueError: a share is not inside (0, 1), nothing is left for training, or there are fewer than three groups.
    """
    if not (0 < validation < 1 and 0 < test < 1 and validation + test < 1):
        raise ValueError(
            f"the shares of validation and test must be positive and leave a rest, got {validation} and {test}"
        )
    names = sorted(set(groups))
    if len(names) < 3:
        raise ValueError(
            f"{len(names)} groups cannot be split into training, validation and test episodes: three are needed"
        )
    held_out = max(round(test * len(names)), 1)
    watched = max(min(round(validation * len(names)), len(names) - held_out - 1), 1)
    held_out = min(held_out, len(names) - watched - 1)
    part = np.zeros(len(names), dtype=np.int64)
    order = rng.permutation(len(names))
    part[order[:held_out]] = 2
    part[order[held_out : held_out + watched]] = 1
    of_group = dict(zip(names, part.tolist(), strict=True))
    side = np.array([of_group[group] for group in groups])
    return side == 0, side == 1, side == 2


@dataclass(frozen=True)
class _Reading:
    """A table that was read and cut, but not filled, and what was counted on the way."""

    columns: TableColumns
    unused: tuple[str, ...]
    end: str
    episodes: Episodes
    rows: RowCounts
    ids: int
    regrouped: int
    resorted: int
    warnings: tuple[str, ...]


def _read(frame: pd.DataFrame, columns: TableColumns | None, options: TableOptions) -> _Reading:
    names = check_names(list(frame.columns), "the table")
    if frame.empty:
        raise ValueError("the table has no rows")
    columns = columns or infer_columns(frame)
    columns.check(names)
    options.check(columns.features, columns.static)
    parsed = parse_rows(frame, columns)
    mixed = mixed_units(parsed.values, parsed.features)
    ordered, regrouped, resorted = sort_rows(limit_ranges(parsed, dict(options.ranges)))
    rows, identical, merged = merge_duplicates(ordered, options.duplicates, tuple(mixed))
    check_static(rows, columns.static)
    episodes = lag_features(cut_episodes(rows, columns, options), columns.features, options.lag)
    warnings = [*blanks_apart(parsed.ids), *mixed.values(), *action_leaks(episodes, columns.features)]
    if episodes.last_actions_dropped and episodes.terminated.any():
        warnings.append(
            f"{int(episodes.terminated.sum())} episodes end terminated, but last actions were dropped for want of an "
            "outcome: these ends are dated one step early"
        )
    return _Reading(
        columns=columns,
        unused=tuple(name for name in names if name not in columns.used),
        end=options.end or "flags",
        episodes=episodes,
        rows=RowCounts(
            read=len(frame),
            used=int(episodes.live.sum()),
            identical=identical,
            merged=merged,
            lone=episodes.lone,
        ),
        ids=len(parsed.ids),
        regrouped=regrouped,
        resorted=resorted,
        warnings=tuple(warnings),
    )


def _report(reading: _Reading, filled: Filled, more_warnings: tuple[str, ...]) -> TableReport:
    batch = filled.batch
    return TableReport(
        columns=reading.columns,
        unused=reading.unused,
        end=reading.end,
        rows=reading.rows,
        episodes=EpisodeCounts(
            read=reading.ids,
            used=len(batch),
            lone=reading.episodes.lone,
            groups=len(set(batch.groups)),
            steps=batch.n_steps,
            last_actions_dropped=reading.episodes.last_actions_dropped,
            terminated=int(batch.terminated.sum()),
            truncated=int(batch.truncated.sum()),
            regrouped=reading.regrouped,
            resorted=reading.resorted,
            gaps=reading.episodes.gaps,
        ),
        features=filled.features,
        actions=tuple(
            dict(zip(reading.columns.actions, values, strict=True)) for values in reading.episodes.action_values
        ),
        warnings=reading.warnings + more_warnings,
    )


def _trimmed(batch: Batch) -> Batch:
    longest = int(batch.lengths.max())
    return replace(batch, obs=batch.obs[:, : longest + 1], actions=batch.actions[:, :longest])
