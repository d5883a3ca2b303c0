"""What a person should look at before believing a result: features that give the action away, and mixed units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cirl_gym.table_episodes import Episodes
from cirl_gym.types import BoolArray, FloatArray, IntArray

CELSIUS = (25.0, 45.0)
"""No living patient's temperature lies outside, in degrees Celsius ..."""
FAHRENHEIT = (77.0, 113.0)
"""... which in degrees Fahrenheit is this range. The two do not touch, so that a column with both has two units."""

_DETERMINED = 0.99
_NEIGHBOURS = 3


def mixed_units(values: FloatArray, features: Sequence[str]) -> dict[str, str]:
    """Temperatures in two units: a warning per feature, for readings ``[.., d]``.

    Only columns with "temp" in their name are looked at: for other quantities the ranges of two usual units overlap, so
    that no rule could tell units from patients.
    """
    warnings = {}
    for j, name in enumerate(features):
        if "temp" not in name.lower():
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


def action_leaks(episodes: Episodes, features: Sequence[str]) -> list[str]:
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
        codes = np.array([_number(value) for value in values])[taken]
        different = list(dict.fromkeys(values))
        actions = np.array([different.index(value) for value in values])[taken]
        for j, name in enumerate(features):
            said = _leak(episodes.obs[:, :-1, j][live], actions, codes, half)
            if said:
                warnings.append(f"feature {name!r} {said}{_ADVICE}")
    return list(dict.fromkeys(warnings))


_ADVICE = ": it may have been recorded after the decision. Lag it by one row (--lag) or leave it out"


def _leak(readings: FloatArray, actions: IntArray, codes: FloatArray, half: BoolArray) -> str:
    """What a feature ``[n]`` says of the action of its own row; empty if not too much."""
    known = ~np.isnan(readings)
    if len(np.unique(readings[known])) > 1 and (readings[known] == codes[known]).all():
        return "equals the action of its own row"
    if half.any() and not half.all():
        right, frequent = told_by(readings, actions, half), np.bincount(actions).max() / len(actions)
        if right > _DETERMINED and 1 - right < 0.5 * (1 - frequent):
            return f"tells the action of its own row in {right:.1%} of rows"
    return ""


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


def _number(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return float("nan")
