"""The limit at which experts act, found from their decisions: ``Below(potassium, ?)``.

Each limit that is tried makes an outcome of its own. Under the choice model the decisions are as likely as the best
weights, kappa and habits make them: this profile of the likelihood over limits says which one experts kept to. What is
foreseen of the observed features does not depend on the limit, so one world is fitted, one agent is trained for all
limits (a drawn preference weighs one of them and the other outcomes), and plans that are searched for some limits are
judged by those beside them too, since the psi of a plan is exact for any outcome.

Where worlds are cross-fitted over patients, so is the profile: every decision is judged in a world fitted to others,
several times, and its interval holds what the worlds differ in. Patients are the unit. With patients drawn anew,
the profile of limit k is, to second order around the weights that are best for all, the sum of the log-likelihoods of
those drawn plus half the square of the sum of their scores, in units of the information: no fit is repeated. The limits
that are likeliest under many such draws, of patients and of worlds, make the interval.

Limits stay where a value cannot be both too low and too high: below those of an ``Above`` of the same column.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap, draw_weights
from cirl_gym.data.habits import Contexts
from cirl_gym.data.outcomes import Above, Below, OutcomeFeature, Sought
from cirl_gym.files import loading, read_arrays, write_arrays
from cirl_gym.types import BoolArray, FloatArray, IntArray
from irl.preferences.choice import HABIT, Decisions, Density, patients_power
from irl.preferences.inference import Psi, spread_weights
from irl.preferences.likelihood import PlanPool
from irl.result.limits import FoundLimit

MOST = 25
"""Limits that are tried at most, evenly over the quantiles of the values that were seen ..."""
TAIL = 0.05
"""... without so much at either end ..."""
_STEPS = 15
"""... and rounded: as coarse a step of 1, 2 or 5 times a power of ten as has so many between the ends."""
DECISIONS = 1500
"""Judged at most: the more are judged, the longer plans are searched, and a limit is known well enough by so many."""
_PLANS, _WIDTH, _EVERY, _NEAR = 6, 4, 3, 3
"""Weights whose plans are searched for every third limit, the width of the search, and of how many such limits, the
nearest, plans are judged."""
_SIZES = (0.3, 2.0)
"""Of the weight of the outcome sought, in units of the prior's scale: where the best ones are looked for from."""
_NOTHING = -30.0
"""Of the logarithm of a weight's size: next to 0."""
_DRAWS, SHARE = 1000, 0.9
"""Of patients and worlds, and how many of them an interval holds."""
CLEAR = 4.4
"""By how much the log-likelihood, of patients as the unit, must exceed that without the outcome: half the likelihood
ratio of 8.85 which the largest of many limits' exceeds by chance in one of twenty data sets (Andrews 1993, "Tests for
parameter instability and structural change with unknown change point", one parameter, 15 to 85 %)."""
WIDEST = 0.5
"""An interval of a larger share of the limits that were tried leaves the limit open."""


def tried_limits(batch: Batch, feature_map: FeatureMap, place: int) -> FloatArray:
    """``[K]`` rising limits, raw units, of the outcome at ``place``, from the values of its column in a batch.

    Raises:
        ValueError: there are fewer than three to choose from.
    """
    sought = _limited(feature_map, place)
    values = batch.obs[batch.seen][:, batch.features.index(sought.column)].astype(np.float64)
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    steps = [unit * 10.0**power for power in range(-9, 10) for unit in (1, 2, 5)]
    step = max((one for one in steps if one * _STEPS <= high - low), default=steps[0])
    rounded = np.round(np.quantile(values, np.linspace(TAIL, 1 - TAIL, MOST), method="nearest") / step) * step
    limits = np.unique([float(f"{value:.9g}") for value in rounded])
    limits = limits[(limits > values.min()) & (limits < values.max())]
    beside = [one for one in feature_map.outcomes if isinstance(one, Above | Below) and one.column == sought.column]
    others = [one.limit for one in beside if type(one) is not type(sought)]
    if others:
        limits = limits[limits <= min(others)] if isinstance(sought, Below) else limits[limits >= max(others)]
    same = [one.limit for i, one in enumerate(feature_map.outcomes) if one in beside and i != place]
    limits = limits[~np.isin(limits, [one for one in same if one not in others])]
    limits = np.asarray(limits, dtype=np.float64)
    if len(limits) < 3:
        raise ValueError(
            f"--outcomes: {type(sought).__name__}({sought.column}, ?): {sought.column} has too few different values to "
            "find a limit among; write a number"
        )
    return limits


def at_limit(feature_map: FeatureMap, place: int, limit: float, scale: float | None = None) -> FeatureMap:
    """The same outcomes, the one at ``place`` with another limit and with the range ``scale``, raw units (default: as
    it is), for a weight per raw unit that stays the same."""
    outcome = replace(_limited(feature_map, place), limit=limit).name
    names = (*feature_map.features[:place], outcome, *feature_map.features[place + 1 :])
    high = feature_map.high.copy()
    high[place] = high[place] if scale is None else scale
    return FeatureMap(names, feature_map.low, high, feature_map.of)


def _limited(feature_map: FeatureMap, place: int) -> Above | Below:
    outcome = feature_map.outcomes[place]
    if not isinstance(outcome, Above | Below):
        raise ValueError(f"{outcome.name} has no limit to be found: Above and Below have")
    return outcome


@dataclass(frozen=True)
class ManyLimits:
    """The outcome of every limit that is tried, then the d - 1 outcomes beside it: K + d - 1 in one feature map.

    Raises:
        ValueError: the outcome at ``place`` has no limit.
    """

    feature_map: FeatureMap
    """The d outcomes, the sought one at any limit."""
    place: int
    """Which one is sought."""
    limits: FloatArray
    """``[K]``, raw units, rising."""
    signs: FloatArray
    """``[d]`` of -1, 0 (free) and 1."""

    def over(self, batch: Batch) -> FeatureMap:
        """All outcomes, each limit's range from a batch."""
        sought, own = _limited(self.feature_map, self.place), self.feature_map
        tried = FeatureMap.from_batch(batch, [replace(sought, limit=limit) for limit in self.limits.tolist()])
        names = [name for i, name in enumerate(own.features) if i != self.place]
        low, high = (np.delete(ends, self.place) for ends in (own.low, own.high))
        ends = (np.concatenate([tried.low, low]), np.concatenate([tried.high, high]))
        return FeatureMap((*tried.features, *names), *ends, own.of)

    def columns(self, k: int) -> IntArray:
        """``[d]`` where the outcomes of limit k stand among all, in the order of the d outcomes."""
        return np.insert(np.arange(len(self.signs) - 1) + len(self.limits), self.place, k)

    def spread(self, w: FloatArray, k: IntArray) -> FloatArray:
        """Weights ``[n, K + d - 1]`` that are ``w`` ``[n, d]`` of the limits ``k`` ``[n]`` and 0 of all others."""
        every = np.zeros((len(w), len(self.limits) + w.shape[1] - 1))
        every[:, len(self.limits) :] = np.delete(w, self.place, axis=1)
        every[np.arange(len(w)), k] = w[:, self.place]
        return every

    def weights(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Weights to train on: of one limit each."""
        return self.spread(draw_weights(self.signs, rng, n), rng.integers(len(self.limits), size=n))


@dataclass(frozen=True)
class LimitProfile:
    """How likely the decisions are at each of K limits, of G patients, in the worlds of R repetitions.

    Raises:
        ValueError: shapes do not match, or a number is not finite.
    """

    limits: FloatArray
    """``[K]``, raw units, rising."""
    patients: tuple[str, ...]
    """``[G]`` whose decisions."""
    by_patient: FloatArray
    """``[R, K, G]`` log-likelihood at the best weights, kappa and habits of the limit."""
    scores: FloatArray
    """``[R, K, G, d]`` slopes there by the weights, habits following, in units of the information."""
    without: FloatArray
    """``[R]`` log-likelihood of all at the best that the other outcomes and habits can do."""
    power: float
    """Of the likelihood, that makes patients the unit (:func:`irl.preferences.choice.patients_power`)."""
    decisions: int

    def __post_init__(self) -> None:
        shape = (len(self.without), len(self.limits), len(self.patients))
        if self.by_patient.shape != shape or self.scores.shape[:3] != shape:
            raise ValueError(f"LimitProfile: [R, K, G] must be {shape}, got {self.by_patient.shape}")
        if not all(np.isfinite(each).all() for each in (self.limits, self.by_patient, self.scores, self.without)):
            raise ValueError("LimitProfile: a number is not finite")

    def drawn(self, times: FloatArray) -> FloatArray:
        """``[B, R, K]`` log-likelihoods with every patient counted so many times ``[B, G]``."""
        more = np.einsum("bg,rkgd->brkd", times - 1, self.scores, optimize=True)
        linear = np.einsum("bg,rkg->brk", times, self.by_patient, optimize=True)
        return np.asarray(linear + 0.5 * (more**2).sum(axis=-1))

    @property
    def mean(self) -> FloatArray:
        """``[K]`` log-likelihood of all decisions, the mean over the repetitions."""
        return np.asarray(self.by_patient.sum(axis=2).mean(axis=0))

    @property
    def likeliest(self) -> float:
        """The limit that makes all decisions likeliest."""
        return float(self.limits[self.mean.argmax()])

    def likeliest_of(self, patients: Collection[str]) -> float:
        """The same of some patients alone."""
        counted = np.isin(self.patients, list(patients)).astype(np.float64)
        return float(self.limits[self.drawn(counted[None]).mean(axis=1)[0].argmax()])

    @property
    def gain(self) -> float:
        """By how much the likeliest limit's outcome raises the log-likelihood, with patients as the unit."""
        return self.power * float(self.mean.max() - self.without.mean())

    def interval(self, rng: np.random.Generator) -> tuple[float, float]:
        """90 % interval of the limit: the shortest with so many of the draws, extended to hold the likeliest."""
        n, worlds = len(self.patients), len(self.without)
        times = rng.multinomial(n, np.full(n, 1 / n), size=_DRAWS).astype(np.float64)
        often = rng.multinomial(worlds, np.full(worlds, 1 / worlds), size=_DRAWS)
        found = np.einsum("br,brk->bk", often, self.drawn(times)).argmax(axis=1)
        return shortest(self.limits, np.bincount(found, minlength=len(self.limits)) / _DRAWS, self.likeliest)

    def open(self, interval: tuple[float, float]) -> bool:
        """Whether no limit can be told: the outcome adds next to nothing at any, or too many do about as well."""
        inside = (self.limits >= interval[0]) & (self.limits <= interval[1])
        return self.gain < CLEAR or bool(inside.mean() > WIDEST)

    def save(self, path: Path) -> None:
        """Write an npz file, every number as it is."""
        write_arrays(path, {name: np.asarray(value) for name, value in vars(self).items()})

    @classmethod
    def load(cls, path: Path) -> LimitProfile:
        """Read what :meth:`save` wrote; a ValueError names the file where it is not a whole one."""
        arrays = read_arrays(path)
        with loading(path, "a profile of limits"):
            patients, one = tuple(map(str, arrays.pop("patients"))), arrays.pop("power").item()
            return cls(patients=patients, power=one, decisions=arrays.pop("decisions").item(), **arrays)


def shortest(limits: FloatArray, shares: FloatArray, within: float) -> tuple[float, float]:
    """The shortest interval with :data:`SHARE` of what is at rising limits ``[K]``, then extended to hold ``within``.

    Of equally long ones that with most in it. A few draws far away, where a profile has a second peak, so leave it
    short; more of them do not.
    """
    ends = [(i, j) for i in range(len(limits)) for j in range(i, len(limits))]
    inside = {(i, j): float(shares[i : j + 1].sum()) for i, j in ends}
    enough = [pair for pair in ends if inside[pair] >= SHARE - 1e-9]
    i, j = min(enough, key=lambda pair: (round(float(limits[pair[1]] - limits[pair[0]]), 9), -inside[pair]))
    return min(float(limits[i]), within), max(float(limits[j]), within)


def found_limit(profile: LimitProfile, outcome: OutcomeFeature, rng: np.random.Generator) -> FoundLimit:
    """What a profile says of the limit of ``outcome``, which has any."""
    assert isinstance(outcome, Above | Below)
    interval = profile.interval(rng)
    unknown = profile.open(interval)
    return FoundLimit(
        asked=Sought(type(outcome).__name__, outcome.column).name,
        outcome=replace(outcome, limit=profile.likeliest).name,
        limit=None if unknown else profile.likeliest,
        interval=None if unknown else interval,
        tried=tuple(profile.limits.tolist()),
        log_likelihood=tuple(profile.mean.tolist()),
        without=float(profile.without.mean()),
        power=profile.power,
        gain=profile.gain,
        needed=CLEAR,
        decisions=profile.decisions,
        patients=len(profile.patients),
    )


def limit_profile(
    many: ManyLimits,
    worlds: Sequence[Psi],
    judged: Batch,
    contexts: Contexts,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> LimitProfile:
    """The profile of limits.

    Args:
        many: the limits.
        worlds: of every repetition, psi of all limits' outcomes along ``judged``.
        judged: the decisions.
        contexts: what habits may depend on.
        rng: weights whose plans are searched.
        progress: called with (searches done, searches).
    """
    centres, done = np.arange(len(many.limits))[_EVERY // 2 :: _EVERY], itertools.count(1)
    found = []
    for psi in worlds:
        pools = []
        for centre in centres:
            w = spread_weights(many.signs, _PLANS, rng)
            plans = psi(many.spread(w, np.full(len(w), centre)), _WIDTH)
            pools.append(Decisions.of(PlanPool(judged, plans, contexts)))
            if progress is not None:
                progress(next(done), len(worlds) * len(centres))
        found.append(_profile(many, centres, pools))
    by_patient, scores, without, power = (np.array(each) for each in zip(*found, strict=True))
    names = tuple(np.unique(judged.groups).tolist())
    return LimitProfile(many.limits, names, by_patient, scores, without, float(power.mean()), judged.n_steps)


def _profile(
    many: ManyLimits, centres: IntArray, pools: Sequence[Decisions]
) -> tuple[FloatArray, FloatArray, float, float]:
    """In one world: log-likelihoods ``[K, G]``, scores ``[K, G, d]``, the whole without the outcome, the power."""
    densities = []
    for k in range(len(many.limits)):
        near = np.sort(np.argsort(np.abs(centres - k), kind="stable")[:_NEAR])
        psi = np.concatenate([pools[c].psi[many.columns(k)] for c in near], axis=1)
        densities.append(Density(replace(pools[0], psi=np.ascontiguousarray(psi)), many.signs))
    middle, place = densities[len(densities) // 2], many.place
    bare = np.zeros(middle.n)
    bare[: middle.d] = np.where(many.signs == 0, 0.1, -1.0)
    bare[place] = 0.0 if many.signs[place] == 0 else _NOTHING
    bare = _highest(middle, [bare], np.arange(middle.n) != place)
    sizes = [s * size for s in (-1, 1) for size in _SIZES] if many.signs[place] == 0 else list(np.log(_SIZES))
    starts = [np.where(np.arange(middle.n) == place, size, bare) for size in sizes]
    # Plans change with the weights, so that a likelihood can have several peaks: neighbours know of each other's.
    peaks = [bare]
    for density in densities:
        peaks.append(_highest(density, [*starts, peaks[-1]]))
    peaks, later = peaks[1:], [peaks[-1]]
    for density, peak in zip(densities[::-1], peaks[::-1], strict=True):
        later.append(_highest(density, [peak, later[-1]]))
    peaks = later[:0:-1]
    likelihoods = [_by_patient(density, peak) for density, peak in zip(densities, peaks, strict=True)]
    scores = [_scores(density, peak) for density, peak in zip(densities, peaks, strict=True)]
    best = int(np.sum(likelihoods, axis=1).argmax())
    whole = float(middle.taken(bare).sum())
    return np.array(likelihoods), np.array(scores), whole, patients_power(densities[best], peaks[best])


def _highest(density: Density, starts: Sequence[FloatArray], free: BoolArray | None = None) -> FloatArray:
    """The most likely coordinates ``[n]`` that are found from any of the starts, of those that are free alone."""
    moving = 1.0 if free is None else free.astype(np.float64)

    def downward(x: FloatArray) -> tuple[float, FloatArray]:
        value, slope = density(x)
        return -value, -slope * moving

    found = [minimize(downward, x, jac=True, method="L-BFGS-B", options={"maxiter": 200}) for x in starts]
    return np.asarray(min(found, key=lambda one: float(one.fun)).x)


def _by_patient(density: Density, x: FloatArray) -> FloatArray:
    """``[G]`` log-likelihoods."""
    group = density.decisions.group
    return np.asarray(np.bincount(group, weights=density.taken(x)), dtype=np.float64)


def _scores(density: Density, x: FloatArray) -> FloatArray:
    """``[G, d]`` the patients' slopes by the weights, less what habits take up, in units of the information."""
    information, slopes = density.information(x)
    d = density.d
    habits = information[d:, d:] + np.eye(len(information) - d) / HABIT**2
    taken_up = np.linalg.solve(habits, information[d:, :d])
    own = information[:d, :d] - information[:d, d:] @ taken_up
    own = own + 1e-6 * np.diag(np.diag(own)) + 1e-9 * np.eye(d)
    rest: npt.NDArray[np.float64] = slopes[:, :d] - slopes[:, d:] @ taken_up
    return np.asarray(np.linalg.solve(np.linalg.cholesky(own), rest.T).T)
