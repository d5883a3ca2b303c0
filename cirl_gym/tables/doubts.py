"""What a person should look at before believing a result: each doubt is one sentence with its counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cirl_gym.tables.cells import number
from cirl_gym.tables.episodes import CutEpisodes, StepTimes
from cirl_gym.tables.rows import TableRows
from cirl_gym.tables.sheet import listed
from cirl_gym.types import BoolArray, FloatArray, IntArray

CELSIUS = (25.0, 45.0)
"""No living patient's temperature lies outside, in degrees Celsius ..."""
FAHRENHEIT = (77.0, 113.0)
"""... which in degrees Fahrenheit is this range. The two do not touch, so that a column with both has two units."""


SENTINELS = (-999.0, -99.0, -9.0, 999.0, 9999.0, 99999.0)
"""What is often written where nothing was measured."""
FAR_OUT = 10
"""A value that repeats at an end of its column, so many interquartile ranges out, is no reading like the others."""
UNEQUAL = 10
"""A step that is so many times longer or shorter than the median one is warned of ..."""
UNEQUAL_SHARE = 0.1
"""... and so is a share of steps that are far from it."""
MUCH_LONGER = 10
"""An episode that is so many times longer than 99 % of them sets the horizon of all."""

_DETERMINED = 0.99
_NEIGHBOURS = 3
_ENOUGH = 10  # ids, to say that a range rests on one of them
_ADVICE = ": it may have been recorded after the decision. Lag it by one row (--lag) or leave it out"


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


def odd_readings(rows: TableRows, static: Sequence[str] = ()) -> list[str]:
    """A warning for each value that may stand for a missing reading, and each range that rests on one id.

    A value may if it is one of :data:`SENTINELS` and lies out of the range of the others by more than that range (or is
    negative where no other is); or if it repeats at an end of its column, in several ids, :data:`FAR_OUT` interquartile
    ranges out.
    """
    warnings = []
    for j, name in enumerate(rows.features):
        column = rows.values[:, j]
        known = column[~np.isnan(column)]
        values, counts = np.unique(known, return_counts=True)
        odd = _sentinels(values) | _repeated_ends(rows, column, values)
        for value, count in zip(values[odd], counts[odd], strict=True):
            first = rows.where(int(np.flatnonzero(column == value)[0]))
            warnings.append(
                f"column {name!r}: {count} reading{'s are' if count > 1 else ' is'} {value:g}, far from all others "
                f"(first in {first}): does it stand for a missing one? --missing-values {value:g} takes it out, "
                f"--valid {name} LOW HIGH what is not plausible"
            )
        if name not in static:
            warnings += _range_of_one_id(rows, name, np.where(np.isin(column, values[odd]), np.nan, column))
    return warnings


def _sentinels(values: FloatArray) -> BoolArray:
    """``[V]`` whether rising values are usual signs for missing, out of the range of the others."""
    usual = np.isin(values, SENTINELS)
    rest = values[~usual]
    if len(rest) < 2:
        return np.zeros(len(values), dtype=np.bool_)
    low, high = rest[0], rest[-1]
    far = (values < low - (high - low)) | (values > high + (high - low)) | ((values < 0) & (low >= 0))
    return np.asarray(usual & far, dtype=np.bool_)


def _repeated_ends(rows: TableRows, column: FloatArray, values: FloatArray) -> BoolArray:
    """``[V]`` whether rising values repeat far out at an end: in two ids, as one carries its own readings forward."""
    odd = np.zeros(len(values), dtype=np.bool_)
    if len(values) > 2:
        low, high = np.nanquantile(column, [0.25, 0.75])
        reach = FAR_OUT * (high - low)
        for end, far in ((0, values[0] < low - reach), (-1, values[-1] > high + reach)):
            odd[end] = reach > 0 and far and len(set(rows.episode[column == values[end]].tolist())) > 1
    return odd


def _range_of_one_id(rows: TableRows, name: str, column: FloatArray) -> list[str]:
    known = np.flatnonzero(~np.isnan(column))
    if len(np.unique(rows.episode[known])) < _ENOUGH:
        return []
    low, high = known[column[known].argmin()], known[column[known].argmax()]
    for row in (int(high), int(low)):
        own = rows.episode[known] == rows.episode[row]
        others = column[known[~own]]
        if others.max() - others.min() < 0.5 * (column[high] - column[low]):
            return [
                f"the range of {name!r}, {column[low]:g} to {column[high]:g}, by which a weight is measured, rests on "
                f"one id ({rows.where(row)}): without it, it is {others.min():g} to {others.max():g}"
            ]
    return []


def static_between(rows: TableRows, static: Sequence[str]) -> list[str]:
    """A warning for each static feature that differs between the episodes of a patient."""
    warnings = []
    for name in static:
        column = rows.values[:, rows.features.index(name)]
        first: dict[str, int] = {}
        differing: dict[str, str] = {}
        for row in np.flatnonzero(~np.isnan(column)):
            owner = rows.groups[rows.episode[row]]
            before = first.setdefault(owner, int(row))
            if column[before] != column[row] and owner not in differing:
                differing[owner] = (
                    f"{column[before]:g} in {rows.where(before)}, but {column[row]:g} in {rows.where(int(row))}"
                )
        if differing:
            owner, told = next(iter(differing.items()))
            warnings.append(
                f"static feature {name!r} differs between the episodes of {len(differing)} "
                f"patient{'s' if len(differing) > 1 else ''} (first {owner!r}: {told})"
            )
    return warnings


def unequal_steps(steps: StepTimes, count: int) -> list[str]:
    """A warning where steps, which all count the same, differ much in length; ``count`` is the number of steps."""
    if steps.spread < UNEQUAL and steps.gaps + steps.hasty <= UNEQUAL_SHARE * count:
        return []
    return [
        f"steps of unequal length count the same: the median one takes {steps.median}, the shortest {steps.shortest}, "
        f"the longest {steps.longest}, and {steps.gaps + steps.hasty} of {count} are longer than one and a half times "
        "or shorter than half of the median one"
    ]


def long_episodes(episodes: CutEpisodes) -> list[str]:
    """A warning where one episode is far longer than nearly all, and so sets the horizon of all."""
    usual, longest = float(np.quantile(episodes.lengths, 0.99)), int(episodes.lengths.max())
    if longest <= MUCH_LONGER * usual:
        return []
    return [
        f"id {episodes.ids[int(episodes.lengths.argmax())]!r} has {longest} steps, 99 % of episodes have at most "
        f"{usual:.0f}: the longest sets how far everybody is imagined, and the time that takes (--max-steps cuts it)"
    ]


def vanished_actions(episodes: CutEpisodes) -> list[str]:
    """A warning where a value of the action is on dropped rows alone."""
    if not episodes.vanished:
        return []
    return [f"actions on dropped rows alone, which are none of the actions: {listed(episodes.vanished)}"]


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
