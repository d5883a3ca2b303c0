"""From sorted rows to padded episodes: which row is the last observation, how each ended, what fills its gaps.

Missing readings are carried forward inside an episode (those of static features to all of it), then filled by the
median of the training episodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from cirl_gym.data.batch import Batch
from cirl_gym.tables.columns import LastRow, TableColumns, TableOptions
from cirl_gym.tables.rows import ABOVE, BELOW, EMPTY, MISSING, OBSERVED, TableRows, refuse_rows
from cirl_gym.tables.sheet import BadRows
from cirl_gym.types import BoolArray, FloatArray, IntArray

MOST_ACTIONS = 50
"""More different values than this are amounts, not choices."""
MUCH_FILLED = 1 / 3
"""A larger share of rows filled by the median is warned of: what is said of the feature is said of a made-up value."""
MOST_PADDED = 50_000_000
"""Readings of all episodes padded to the longest; more (some 4 GB at the peak), and nearly all padding, is refused."""
MOST_LEVELS = 20
"""Habits depend on no column with more values than this: each would have too few decisions."""

_END_COLUMNS = " 'terminated' and 'truncated'"


@dataclass(frozen=True)
class CutEpisodes:
    """N episodes with their readings as observed: nothing is filled yet."""

    obs: FloatArray
    """``[N, T+1, d]`` readings, NaN where missing and on padding."""
    state: npt.NDArray[np.int8]
    """``[N, T+1, d]`` as in :attr:`~cirl_gym.tables.rows.TableRows.state`; OBSERVED on padding."""
    actions: IntArray
    """``[N, T]``."""
    lengths: IntArray
    """``[N]`` number of actions."""
    terminated: BoolArray
    """``[N]``."""
    action_names: tuple[str, ...]
    action_values: tuple[tuple[str, ...], ...]
    """Of every action the value of each column of the action."""
    first: tuple[str, ...]
    """Of every action the row in which it was first taken, in the order of ids and times; empty if it never was."""
    vanished: tuple[str, ...]
    """Actions of the table that are on dropped rows alone."""
    contexts: tuple[tuple[str, tuple[str, ...]], ...]
    """Of the H columns that habits may depend on, name and levels; where a field is empty, that is a level as well."""
    context_levels: IntArray
    """``[N, T, H]`` number of the level in the row of each action; 0 on padding."""
    ids: tuple[str, ...]
    groups: tuple[str, ...]
    lone: int
    """Ids dropped because they have one row only."""
    cut: int
    """Rows dropped because they come after as many steps of the episode as are kept."""
    last_actions_dropped: int
    steps: StepTimes
    repairs: tuple[str, ...]
    """What was read as something else than it says, in words with counts."""

    @property
    def live(self) -> BoolArray:
        """``[N, T+1]`` True on observations, False on padding."""
        live: BoolArray = np.arange(self.obs.shape[1]) <= self.lengths[:, None]
        return live


@dataclass(frozen=True)
class StepTimes:
    """How much time passes from one row of an episode to the next; every such step counts the same.

    The shortest and the longest are named, "9 (id 'p', up to line 7)"; of several the first in the order of ids.
    """

    shortest: str
    median: str
    longest: str
    gaps: int
    """Steps longer than one and a half times the median step."""
    hasty: int
    """Steps shorter than half of the median step."""
    spread: float
    """Longest by median or median by shortest, whichever is larger."""


@dataclass(frozen=True)
class FeatureCounts:
    """What became of a feature's missing readings, over the used rows; a ValueError where counts do not add up."""

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
    observed: int
    """Readings that are the row's own."""
    filled_share: float = field(init=False)
    """Of the used rows, those whose reading is the median."""
    much_filled: bool = field(init=False)
    """Whether these are more than :data:`MUCH_FILLED`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "filled_share", self.filled / max(self.observed + self.carried + self.filled, 1))
        object.__setattr__(self, "much_filled", self.filled_share > MUCH_FILLED)
        if self.empty + self.below + self.above != self.carried + self.filled:
            raise ValueError(f"FeatureCounts: the counts do not add up: {self}")


def cut_episodes(rows: TableRows, columns: TableColumns, options: TableOptions) -> CutEpisodes:
    """Cut sorted rows, one per (id, time), into episodes.

    Raises:
        ValueError: an action is missing before the last row, some but not all episodes end without an action, the end
            is not stated, stated twice or stated too early, nothing is left, only one action was ever taken, a
            context has one level or too many, or padding to the longest episode would be nearly all there is.
    """
    starts = np.flatnonzero(np.concatenate([[True], np.diff(rows.episode) != 0]))
    sizes = np.diff(np.append(starts, len(rows.episode)))
    action, dropped = _without_last_action(rows, columns, starts, sizes, options.last_row)
    several = sizes > 1
    if not several.any():
        raise ValueError("no id has two rows: there is no action whose outcome was observed")
    terminated, repairs = _ends(rows, columns, options, starts, sizes, several)

    starts, whole = starts[several], sizes[several]
    sizes = whole if options.max_steps is None else np.minimum(whole, options.max_steps + 1)
    terminated &= sizes == whole
    _refuse_padding(rows, starts, sizes)
    n, longest = len(starts), int(sizes.max())
    live = np.arange(longest) < sizes[:, None]
    index = (starts[:, None] + np.arange(longest))[live]
    obs = np.full((n, longest, len(rows.features)), np.nan)
    state = np.zeros(obs.shape, dtype=np.int8)
    obs[live], state[live] = rows.values[index], rows.state[index]
    codes = np.full((n, longest), -1, dtype=np.int64)
    codes[live] = action[index]
    decided = np.zeros(live.shape, dtype=np.bool_)
    decided[:, :-1] = live[:, 1:]
    taken, at = codes[decided], index[decided[live]]
    met, first = np.unique(taken, return_index=True)
    present = np.arange(len(rows.action_values)) if rows.stated else met
    named = {int(code): rows.where(int(at[row])) for code, row in zip(met, first, strict=True)}
    names = _action_names(rows, columns, present)
    if len(met) < 2:
        raise ValueError(
            f"{columns.action_words}: only one action, {_action_names(rows, columns, met)[0]!r}, is ever taken (with "
            "an outcome observed): without a choice there is nothing to learn from"
        )
    if len(present) > MOST_ACTIONS:
        verb = "has" if len(columns.actions) == 1 else "have"
        raise ValueError(
            f"{columns.action_words} {verb} {len(present)} different values: an action is one of at most "
            f"{MOST_ACTIONS} choices; put amounts into classes first"
        )
    contexts, levels = _levels_at_decisions(rows, columns.contexts, index, live)
    owners = rows.episode[starts]
    vanished = [] if rows.stated else sorted(set(range(len(rows.action_values))) - set(met.tolist()))
    return CutEpisodes(
        obs=obs,
        state=state,
        actions=np.where(decided, np.searchsorted(present, codes), 0)[:, :-1].astype(np.int64),
        lengths=(sizes - 1).astype(np.int64),
        terminated=terminated,
        action_names=names,
        action_values=tuple(rows.action_values[code] for code in present),
        first=tuple(named.get(int(code), "") for code in present),
        vanished=_action_names(rows, columns, vanished),
        contexts=contexts,
        context_levels=levels,
        ids=tuple(rows.ids[i] for i in owners),
        groups=tuple(rows.groups[i] for i in owners),
        lone=int((~several).sum()),
        cut=int((whole - sizes).sum()),
        last_actions_dropped=dropped,
        steps=_step_times(rows, index),
        repairs=repairs,
    )


def _action_names(rows: TableRows, columns: TableColumns, codes: Iterable[int]) -> tuple[str, ...]:
    values = [rows.action_values[code] for code in codes]
    if len(columns.actions) == 1:
        return tuple(value for (value,) in values)
    return tuple(", ".join(map("=".join, zip(columns.actions, row, strict=True))) for row in values)


def _refuse_padding(rows: TableRows, starts: IntArray, sizes: IntArray) -> None:
    """Batches are padded to the longest episode: one that is far longer than the others is said before memory ends."""
    readings = len(sizes) * int(sizes.max()) * len(rows.features)
    if readings > MOST_PADDED and sizes.max() * len(sizes) > 10 * sizes.sum():
        longest = int(starts[sizes.argmax()])
        raise ValueError(
            f"id {rows.ids[rows.episode[longest]]!r} has {sizes.max() - 1} steps, 99 % of ids at most "
            f"{int(np.quantile(sizes, 0.99)) - 1}: padded to the longest, {len(sizes)} episodes would be "
            f"{readings / 1e6:.0f} million readings. Is it one episode? Cut longer ones (--max-steps), or leave it out"
        )


def _step_times(rows: TableRows, index: IntArray) -> StepTimes:
    inside = np.diff(rows.episode[index]) == 0
    steps, after = np.diff(rows.time[index])[inside], index[1:][inside]
    median = float(np.median(steps))

    def told(step: int) -> str:
        return f"{rows.span(float(steps[step]))} ({rows.where(int(after[step])).replace(', ', ', up to ', 1)})"

    low, high = int(steps.argmin()), int(steps.argmax())
    return StepTimes(
        shortest=told(low),
        median=rows.span(median),
        longest=told(high),
        gaps=int((steps > 1.5 * median).sum()),
        hasty=int((steps < 0.5 * median).sum()),
        spread=float(max(steps[high] / median, median / steps[low])),
    )


def _without_last_action(
    rows: TableRows, columns: TableColumns, starts: IntArray, sizes: IntArray, rule: LastRow
) -> tuple[IntArray, int]:
    """Actions ``[R]`` with none on the last row of any id, and how many ids of several rows lost one by that."""
    last, words = starts + sizes - 1, columns.action_words
    missing = rows.action < 0
    missing[last] = False
    refuse_rows(
        [
            (
                f"{words}, {rows.where(int(row))}: the action is missing; only the last row of an id may have none, "
                f"and by {columns.time!r} {rows.names[int(row) + 1]} comes after it, {_later(rows, int(row))} later",
                int(rows.position[row]),
            )
            for row in np.flatnonzero(missing)
        ]
    )
    acted = rows.action[last] >= 0
    # An id of one row without an action says nothing about the table's rule, and is dropped whatever the rule is.
    telling = acted | (sizes > 1)
    if rule == "observation" and acted[telling].any() and not acted[telling].all():
        few = acted if 2 * acted[telling].sum() <= telling.sum() else telling & ~acted
        odd = np.flatnonzero(few)
        has, most = ("an", "none, as it is the last observation") if acted[odd[0]] else ("no", "one")
        raise BadRows(
            f"{words}, {rows.where(int(last[odd[0]]))}: the last row of the id has {has} action, but in "
            f"{telling.sum() - len(odd)} of {telling.sum()} ids it has {most}. Complete the table, or drop the actions "
            "on last rows, whose outcome was not observed (--last-row drop_action)",
            rows.position[last[odd]],
        )
    action = rows.action.copy()
    action[last] = -1
    return action, int((acted & (sizes > 1)).sum())


def _later(rows: TableRows, row: int) -> str:
    return rows.span(float(rows.time[row + 1] - rows.time[row]))


def _levels_at_decisions(
    rows: TableRows, columns: Sequence[str], index: IntArray, live: BoolArray
) -> tuple[tuple[tuple[str, tuple[str, ...]], ...], IntArray]:
    """Levels of each context that any decision has, an empty field the last of them; ``[N, T, H]`` their numbers."""
    contexts, levels = [], np.zeros((len(live), live.shape[1] - 1, len(columns)), dtype=np.int64)
    for h, (name, values) in enumerate(zip(columns, rows.context_values, strict=True)):
        codes = np.zeros(live.shape, dtype=np.int64)
        codes[live] = np.where(rows.contexts[index, h] < 0, len(values), rows.contexts[index, h])
        present, numbers = np.unique(codes[:, :-1][live[:, 1:]], return_inverse=True)
        if len(present) > MOST_LEVELS:
            raise ValueError(
                f"--habit: column {name!r} has {len(present)} different values where decisions are made; habits can "
                f"depend on at most {MOST_LEVELS}: put them into classes first"
            )
        named = tuple((*values, MISSING)[code] for code in present)
        if len(named) < 2:
            raise ValueError(
                f"--habit: column {name!r} is {named[0]!r} wherever a decision is made: no habit can depend on it"
            )
        levels[..., h][live[:, 1:]] = numbers
        contexts.append((name, named))
    return tuple(contexts), levels


def _ends(
    rows: TableRows, columns: TableColumns, options: TableOptions, starts: IntArray, sizes: IntArray, several: BoolArray
) -> tuple[BoolArray, tuple[str, ...]]:
    """``[several]`` whether the process ended, by the flags of the table or the user's word; repairs in words."""
    names = [name for name in (columns.terminated, columns.truncated) if name is not None]
    silent = len(names) == 2 and not (rows.flags == 1).any()
    if not names or silent:
        if options.end is None:
            why = f"neither {names[0]!r} nor {names[1]!r} is ever 1" if silent else "there are no columns"
            raise ValueError(
                f"the table does not say how its episodes end: {why}{'' if silent else _END_COLUMNS}. Say "
                "--end terminated (the process itself ended, nothing follows) or --end truncated (only watching ended)"
            )
        return np.full(int(several.sum()), options.end == "terminated"), ()
    if options.end is not None:
        raise ValueError(f"the table's own column {names[0]!r} says how each episode ends: leave out --end")
    last = starts + sizes - 1
    early = (rows.flags == 1).any(axis=1)
    early[last] = False
    flags = rows.flags[last[several]]
    if len(names) == 2:
        wrong, what = (flags < 0).any(axis=1) | (flags.sum(axis=1) == 0), "one of the two must be 1"
    else:
        wrong, what = (flags < 0).all(axis=1), "it must be 0 or 1"
    both = f"columns {' and '.join(map(repr, names))}"
    refuse_rows(
        [
            (
                f"column {names[-1 if rows.flags[row, 0] != 1 else 0]!r}, {rows.where(int(row))}: the end is marked "
                f"before the last row of the id; by {columns.time!r} {rows.names[int(row) + 1]} comes after it, "
                f"{_later(rows, int(row))} later",
                int(rows.position[row]),
            )
            for row in np.flatnonzero(early)
        ]
        + [
            (f"{both}, {rows.where(int(row))}, the last row of the id: {what}", int(rows.position[row]))
            for row in last[several][wrong]
        ]
    )
    twice = int((flags == 1).all(axis=1).sum())
    told = f"{twice} last rows are marked both terminated and truncated, as Gymnasium does: read as terminated"
    ended: BoolArray = flags[:, 0] == 1 if columns.terminated is not None else flags[:, 1] == 0
    return ended, (told,) if twice else ()


def lag_features(episodes: CutEpisodes, features: Sequence[str], lagged: Sequence[str]) -> CutEpisodes:
    """Move the readings of some features to the next row of the episode; the first row then has none."""
    if not lagged:
        return episodes
    obs, state = episodes.obs.copy(), episodes.state.copy()
    for name in lagged:
        j = features.index(name)
        obs[:, 1:, j], state[:, 1:, j] = episodes.obs[:, :-1, j], episodes.state[:, :-1, j]
        obs[:, 0, j], state[:, 0, j] = np.nan, EMPTY
    obs[~episodes.live], state[~episodes.live] = np.nan, OBSERVED
    return replace(episodes, obs=obs, state=state)


def carry_forward(obs: FloatArray) -> FloatArray:
    """``[N, T+1, d]`` each missing reading replaced by the last one before it in the same episode, if there is one."""
    index = np.where(np.isnan(obs), 0, np.arange(obs.shape[1])[None, :, None])
    return np.take_along_axis(obs, np.maximum.accumulate(index, axis=1), axis=1)


def fill(
    episodes: CutEpisodes, columns: TableColumns, training: BoolArray, indicator: bool
) -> tuple[Batch, dict[str, float], tuple[str, ...], tuple[FeatureCounts, ...]]:
    """Fill every gap; only episodes in ``training [N]`` decide what with.

    A static feature takes the value that any row of its episode has, and has no indicator.

    Returns:
        All episodes without a gap; by feature the median of the training readings, before anything was carried
        forward; the features appended to tell where a reading is missing; what was carried forward and filled.

    Raises:
        ValueError: a feature has no reading in training, or has the name that an indicator needs.
    """
    obs, live = episodes.obs, episodes.live
    features, static = columns.features, columns.static
    missing = np.isnan(obs) & live[..., None]
    readings = obs[training].reshape(-1, len(features))
    for j, name in enumerate(features):
        if np.isnan(readings[:, j]).all():
            raise ValueError(f"column {name!r} has no reading in the training episodes: leave it out of --features")
    medians = np.nanmedian(readings, axis=0)
    known = obs.copy()
    # What never changes is known at t = 0 whenever it was written down: the first reading of the episode, if any.
    for j in map(features.index, static):
        first = np.take_along_axis(obs[..., j], (~np.isnan(obs[..., j])).argmax(axis=1)[:, None], axis=1)
        known[..., j] = np.where(np.isnan(obs[..., j]), first, obs[..., j])
    carried = carry_forward(known)
    unknown = np.isnan(carried) & live[..., None]
    complete = np.where(unknown, medians, carried)
    complete[~live] = 0.0

    flagged = [
        j for j, name in enumerate(features) if indicator and name not in static and missing[training][..., j].any()
    ]
    names = tuple(f"{features[j]}_missing" for j in flagged)
    taken = sorted(set(names) & set(features))
    if taken:
        raise ValueError(f"the table already has a feature {taken[0]!r}: rename it, or do without --missing-indicator")
    batch = Batch(
        obs=np.concatenate([complete, missing[..., flagged]], axis=2, dtype=np.float64),
        actions=episodes.actions,
        lengths=episodes.lengths,
        terminated=episodes.terminated,
        truncated=~episodes.terminated,
        features=(*features, *names),
        action_names=episodes.action_names,
        ids=episodes.ids,
        groups=episodes.groups,
        contexts=episodes.contexts,
        context_levels=episodes.context_levels if episodes.contexts else None,
    )
    state = episodes.state
    of_kind = [state == EMPTY, state == BELOW, state == ABOVE, missing & ~unknown, unknown]
    of_kind.append(~missing & live[..., None])
    totals = np.array([where.sum(axis=(0, 1)) for where in of_kind]).T.tolist()
    counts = tuple(FeatureCounts(name, *row) for name, row in zip(features, totals, strict=True))
    return batch, dict(zip(features, medians.tolist(), strict=True)), names, counts
