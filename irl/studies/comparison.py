"""Two groups of experts: by how much their weights differ, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from cirl_gym.data.batch import evenly_spaced_rows
from cirl_gym.data.features import FeatureMap
from cirl_gym.types import FloatArray
from irl.result.codec import Document, Interval, Record, Share, require
from irl.result.sentences import weights_mean_something

if TYPE_CHECKING:
    import pandas as pd

TAILS = (0.05, 0.95)
MOST_DRAWS = 2000
"""Draws of each run that are compared with each of the other's, at most."""
ALIKE = 0.9
"""Ranges of a feature that have this share in common are alike enough to be brought to one scale without a word of the
user's: a weight is per range."""


@dataclass(frozen=True)
class Preferences:
    """What one run found of the weights, as far as it is compared.

    Raises:
        ValueError: arrays do not have one finite column per feature, there is no draw, or a draw has no direction.
    """

    run: str
    """What it is called in a message: its folder."""
    feature_map: FeatureMap
    """The d features that are weighed, and the ranges that a weight is per."""
    draws: FloatArray
    """``[M, d]`` posterior draws, L1 norm 1."""
    gamma: float | None = None
    """Discount factor of the run; None where it does not say."""
    signs: Mapping[str, int] = field(default_factory=dict)
    verdict: str = "beyond habit"
    """What the run says of its weights (:mod:`irl.result.sentences`)."""
    table: str | None = None
    """SHA-256 of the table's content (:func:`cirl_gym.tables.sheet.checksum`); None: simulated, or not known."""
    patients: frozenset[str] | None = None
    """Ids of the patients whose episodes the run has kept; None: simulated, whose numbers mean nothing, or not kept."""
    uninterpreted: Mapping[str, str] = field(default_factory=dict)
    """Why a weight may not be read, by outcome (:func:`irl.result.effects.uninterpreted`)."""

    def __post_init__(self) -> None:
        d, draws = len(self.feature_map.features), self.draws
        if draws.ndim != 2 or draws.shape[1] != d or len(draws) == 0 or not np.isfinite(draws).all():
            raise ValueError(f"{self.run}: draws must be rows of {d} finite numbers, got shape {draws.shape}")
        if not (np.abs(draws).sum(axis=1) > 0).all():
            raise ValueError(f"{self.run}: draws must not be zero in every feature")


class WeightDifference(Record, frozen=True):
    """One feature's weight in both runs, the medians of its draws on one scale, and a - b."""

    a: float
    b: float
    difference: float
    interval: Interval
    """90 % interval of the difference."""
    above_zero: Share
    """Probability that A's weight is above B's."""


class Comparison(Document, frozen=True):
    """``comparison.json`` (beside ``schema``): the folders of two runs, and A minus B, feature by feature."""

    a: str
    b: str
    verdict_a: str
    """What A says of its weights (:mod:`irl.result.sentences`)."""
    verdict_b: str
    differences: dict[str, WeightDifference]
    ranges: dict[str, Interval]
    """The range that each weight is per, raw units."""
    draws: tuple[int, int]
    """Posterior draws of A and of B that were compared, each with each."""
    notes: tuple[str, ...]
    shared_patients: int | None = None
    """How many ids of patients are in both runs; None: not known, as of simulated runs."""
    uninterpreted: dict[str, str] = field(default_factory=dict)
    """By feature, which run does not interpret its weight, and why: no difference of it is announced."""

    def check(self) -> None:
        """Differences and ranges are of the same features, and nothing else is said not to be interpreted."""
        require(set(self.uninterpreted) <= set(self.differences), "uninterpreted must be of features")
        require(set(self.differences) == set(self.ranges), "differences and ranges must be of the same features")

    def summary(self) -> pd.DataFrame:
        """One row a feature: both runs' weights, their difference with its 90 % interval, the probability that A's is
        above B's, whether the difference is clear (:attr:`clear`), and why a weight may not be read, if so.
        """
        import pandas as pd

        rows = {
            name: {
                "a": one.a,
                "b": one.b,
                "difference": one.difference,
                "difference lower 90%": one.interval[0],
                "difference upper 90%": one.interval[1],
                "probability above": one.above_zero,
                "clear": name in self.clear,
                "no finding": " ".join([*self.unread, *([reason] if (reason := self.uninterpreted.get(name)) else [])]),
            }
            for name, one in self.differences.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("feature")

    @property
    def unread(self) -> tuple[str, ...]:
        """The verdict of each run that lets no weight be read."""
        said = {"A": self.verdict_a, "B": self.verdict_b}
        return tuple(f"{run}: {said[run]}." for run in self.meaningless)

    @property
    def meaningless(self) -> tuple[str, ...]:
        """Of "A" and "B", those whose verdict says that weights mean nothing: then no difference does either."""
        said = (("A", self.verdict_a), ("B", self.verdict_b))
        return tuple(run for run, verdict in said if not weights_mean_something(verdict))

    @property
    def clear(self) -> tuple[str, ...]:
        """Features that differ: weights of both runs are interpreted, and the difference's interval does not hold 0."""
        if self.meaningless:
            return ()
        read = ((name, one) for name, one in self.differences.items() if name not in self.uninterpreted)
        return tuple(name for name, one in read if one.interval[0] * one.interval[1] > 0)


def compare(a: Preferences, b: Preferences, *, rescale: bool = False) -> Comparison:
    """Weights of A minus those of B, whose features are the same in any order, with 90 % intervals.

    The two runs are taken as independent: patients of one are not patients of the other, which is refused for two runs
    of one table, and said where ids of patients are in both. A weight is per range of its
    feature, so both runs are first brought to ranges that hold both runs' (:func:`on_scale`). Then every posterior draw
    of A is set against every one of B.

    Raises:
        ValueError: the runs are of one and the same table, weigh other features, or their ranges have too little in
            common and ``rescale`` is False.
    """
    if a.table is not None and a.table == b.table:
        raise ValueError(
            f"{a.run} and {b.run} are runs of one and the same table: they share every patient, and a difference "
            "between them, with an interval for independent runs, would mean nothing; compare runs of other patients"
        )
    b = _in_order(b, a)
    one, two = a.feature_map, b.feature_map
    # For every feature the smallest range that holds those of both, and what they have in common.
    scale = FeatureMap(one.features, np.minimum(one.low, two.low), np.maximum(one.high, two.high))
    both = np.minimum(one.high, two.high) - np.maximum(one.low, two.low)
    different = np.flatnonzero(both < ALIKE * (scale.high - scale.low))
    if len(different) and not rescale:
        i = int(different[0])
        more = f" (and of {len(different) - 1} more)" if len(different) > 1 else ""
        raise ValueError(
            f"a weight is per range, and the ranges of {scale.features[i]!r}{more} have less than {ALIKE:.0%} in "
            f"common: {_range(one, i)} in {a.run}, {_range(two, i)} in {b.run}; --rescale brings both to one range"
        )
    notes = _notes(a, b, scale)
    a, b = on_scale(a, scale), on_scale(b, scale)
    ours, theirs = thinned(a.draws), thinned(b.draws)
    differences = {}
    for i, name in enumerate(scale.features):
        low, high, above = _spread(ours[:, i], theirs[:, i])
        w, v = float(np.median(a.draws[:, i])), float(np.median(b.draws[:, i]))
        differences[name] = WeightDifference(w, v, w - v, (low, high), above)
    unread = {
        name: "; ".join(
            f"{run}: {one.uninterpreted[name]}" for run, one in (("A", a), ("B", b)) if name in one.uninterpreted
        )
        for name in scale.features
        if name in {**a.uninterpreted, **b.uninterpreted}
    }
    ranges = zip(scale.features, zip(scale.low.tolist(), scale.high.tolist(), strict=True), strict=True)
    return Comparison(
        a.run,
        b.run,
        a.verdict,
        b.verdict,
        differences,
        dict(ranges),
        (len(ours), len(theirs)),
        notes,
        None if a.patients is None or b.patients is None else len(a.patients & b.patients),
        unread,
    )


def on_scale(found: Preferences, scale: FeatureMap) -> Preferences:
    """The same preferences with weights per range of another scale (features in the same order), L1 norm 1 again.

    A weight w per range r is a weight of w / r per unit, and w r' / r per range r'. Rewards keep their order but for a
    constant per step, which the lower ends of the ranges set.
    """
    own = found.feature_map
    scaled = found.draws * ((scale.high - scale.low) / (own.high - own.low))
    return replace(found, feature_map=scale, draws=scaled / np.abs(scaled).sum(axis=1, keepdims=True))


def thinned(draws: FloatArray) -> FloatArray:
    """At most :data:`MOST_DRAWS` rows, spread evenly over all of them."""
    return draws[evenly_spaced_rows(len(draws), MOST_DRAWS)]


def _spread(ours: FloatArray, theirs: FloatArray) -> tuple[float, float, float]:
    """Ends of the 90 % interval of ours ``[n]`` minus theirs ``[m]``, each with each, and the share above 0."""
    pairs = (ours[:, None] - theirs).ravel()
    low, high = np.quantile(pairs, TAILS)
    # Half of the ties, so that A above B and B above A add up to 1.
    return float(low), float(high), float((pairs > 0).mean() + (pairs == 0).mean() / 2)


def _in_order(b: Preferences, a: Preferences) -> Preferences:
    """B with its features in the order of A's."""
    ours, theirs = a.feature_map.features, b.feature_map.features
    alone = {
        run.run: [name for name in names if name not in others]
        for run, names, others in ((a, ours, theirs), (b, theirs, ours))
    }
    if any(alone.values()):
        told = "; ".join(f"only {run} has {', '.join(map(repr, names))}" for run, names in alone.items() if names)
        raise ValueError(f"the runs weigh different features: {told}")
    order = [theirs.index(name) for name in ours]
    in_order = FeatureMap(ours, b.feature_map.low[order], b.feature_map.high[order])
    return replace(b, feature_map=in_order, draws=b.draws[:, order])


def _notes(a: Preferences, b: Preferences, scale: FeatureMap) -> tuple[str, ...]:
    """What the reader must know of this pair of runs."""
    one, two = a.feature_map, b.feature_map
    notes = []
    shared = len((a.patients or frozenset()) & (b.patients or frozenset()))
    if shared and a.patients and b.patients:
        notes.append(
            f"{shared} ids of patients are in both runs, which have kept {len(a.patients)} (A) and {len(b.patients)} "
            "(B). If they are the same people, the runs are not independent, as the intervals take them to be: what is "
            "particular to these patients moves both runs' weights alike, so that an interval of a difference is "
            "mostly too wide. Give every patient to one run only."
        )
    moved = [i for i in range(len(scale.features)) if _range(one, i) != _range(two, i)]
    if moved:
        listed = "; ".join(f"{scale.features[i]}: A {_range(one, i)}, B {_range(two, i)}" for i in moved)
        notes.append(f"Both runs' weights were brought to one range where theirs differ ({listed}).")
    if (one.low != two.low).any():
        notes.append(
            "Lower ends of ranges differ, so the two rewards differ by a constant per step as well, which counts where "
            "episodes can end early."
        )
    if a.gamma != b.gamma:
        notes.append(f"The runs discount differently (gamma {a.gamma} and {b.gamma}): that alone can move weights.")
    if dict(a.signs) != dict(b.signs):
        notes.append("The runs were told different signs of weights; what is told narrows the intervals.")
    return tuple(notes)


def _range(feature_map: FeatureMap, i: int) -> str:
    return f"{feature_map.low[i]:.6g} to {feature_map.high[i]:.6g}"
