"""What the outcomes of all jobs say together: means over seeds, who is first, and how sure that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata, t, trim_mean

from irl.benchmark.jobs import METHODS, Outcome
from irl.benchmark.parts import SETTINGS
from irl.checks.metrics import coverage
from irl.result.codec import Interval
from irl.result.result import Estimate

LEVEL = 0.95
"""Of intervals over seeds."""
RESAMPLES = 5000
"""Of the stratified bootstrap."""

Values: TypeAlias = Mapping[str, Mapping[str, Mapping[int, float]]]
"""By setting, method and seed: one number of every outcome, the larger the better."""


@dataclass(frozen=True)
class Cell:
    """What a method reaches in a setting, over seeds."""

    seeds: int
    mean: float
    standard_error: float | None
    """Of the mean; None with one seed."""
    interval: Interval | None
    """95 %, by Student's t."""
    behind: Interval | None
    """95 % interval of what it is behind the first method of the setting, by the seeds that both have; None: it is the
    first, no method of the comparison, or shares fewer than two seeds with it."""
    first: bool

    @property
    def not_behind(self) -> bool:
        """Whether it is behind the first, but not significantly."""
        return self.behind is not None and self.behind[0] <= 0


@dataclass(frozen=True)
class Summary:
    """What a method reaches over all settings, with 95 % intervals of a stratified bootstrap."""

    runs: int
    middle: float
    """Interquartile mean: the mean of the half of all runs that is neither best nor worst."""
    middle_interval: Interval
    rank: float | None
    """Mean rank among all methods that learn, 1 the best; None where there is no run that all of them have."""
    rank_interval: Interval | None


def values_of(outcomes: Sequence[Outcome], measure: Callable[[Outcome], float | None]) -> Values:
    """A number of every outcome, in the order of settings and methods; those that have none are left out."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    order = (list(SETTINGS), list(METHODS))
    for one in sorted(outcomes, key=lambda o: (order[0].index(o.setting), order[1].index(o.method), o.seed)):
        value = measure(one)
        if value is not None:
            found.setdefault(one.setting, {}).setdefault(one.method, {})[one.seed] = value
    return found


def against_expert(values: Values) -> Values:
    """Every run's number minus that of the expert of the same setting and seed, without the expert."""
    return {
        setting: {
            method: {seed: value - methods["expert"][seed] for seed, value in runs.items() if seed in methods["expert"]}
            for method, runs in methods.items()
            if method != "expert"
        }
        for setting, methods in values.items()
        if "expert" in methods
    }


def mean_and_interval(numbers: npt.ArrayLike, shared: float = 0.0) -> tuple[Estimate, Interval] | None:
    """Mean, its standard error and its 95 % interval by Student's t; None of fewer than two numbers.

    Numbers of splits of the same patients resemble each other, and however many there are, they say no more than the
    patients do: their variance is then counted 1 / n + ``shared`` times, with held-out patients over all others for
    ``shared`` (Nadeau and Bengio 2003, "Inference for the generalization error").
    """
    given = np.asarray(numbers, dtype=np.float64)
    if len(given) < 2:
        return None
    mean, error = float(given.mean()), float(given.std(ddof=1) / np.sqrt(len(given) / (1 + shared * len(given))))
    reach = float(t.ppf((1 + LEVEL) / 2, len(given) - 1)) * error
    return Estimate(mean, error), (mean - reach, mean + reach)


def cells(methods: Mapping[str, Mapping[int, float]], shared: float = 0.0) -> dict[str, Cell]:
    """Every method in one setting; the expert is no method of the comparison. ``shared``: of their seeds' patients."""
    means = {method: float(np.mean(list(runs.values()))) for method, runs in methods.items()}
    learning = [method for method in methods if method != "expert"]
    first = max(learning, key=means.__getitem__, default=None)
    found = {}
    for method, runs in methods.items():
        known, behind = mean_and_interval(list(runs.values()), shared), None
        if first is not None and method in learning and method != first:
            both = [methods[first][seed] - value for seed, value in runs.items() if seed in methods[first]]
            paired = mean_and_interval(both, shared)
            behind = None if paired is None else paired[1]
        error, interval = (None, None) if known is None else (known[0].standard_error, known[1])
        found[method] = Cell(len(runs), means[method], error, interval, behind, method == first)
    return found


def summaries(values: Values) -> dict[str, Summary]:
    """Every method but the expert over all settings."""
    methods = [name for name in METHODS if name != "expert" and any(name in runs for runs in values.values())]
    ranks = _ranks(values, methods)
    found = {}
    for method in methods:
        strata = [list(runs[method].values()) for runs in values.values() if method in runs]
        placed = [[row[method] for row in rows] for rows in ranks if rows]
        middle = interquartile_mean(np.concatenate(strata)[None])[0]
        rank = float(np.mean(np.concatenate(placed))) if placed else None
        found[method] = Summary(
            sum(map(len, strata)),
            float(middle),
            bootstrap_interval(strata, interquartile_mean),
            rank,
            bootstrap_interval(placed, lambda drawn: drawn.mean(axis=1)) if placed else None,
        )
    return found


def _ranks(values: Values, methods: Sequence[str]) -> list[list[dict[str, float]]]:
    """By setting, one row for each seed that all methods have: by method its rank, the mean one of equals."""
    found = []
    for runs in values.values():
        of_all = [method in runs for method in methods]
        seeds = set.intersection(*(set(runs[method]) for method in methods)) if all(of_all) else set()
        rows = []
        for seed in sorted(seeds):
            placed = rankdata([-runs[method][seed] for method in methods])
            rows.append(dict(zip(methods, map(float, placed), strict=True)))
        found.append(rows)
    return found


def interquartile_mean(drawn: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Of every row of ``[R, n]``: the mean without its lowest and its highest quarter."""
    return np.asarray(trim_mean(drawn, 0.25, axis=1))


def bootstrap_interval(
    strata: Sequence[Sequence[float]], statistic: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]
) -> Interval:
    """95 % percentile interval of a statistic of all runs, which are drawn anew within each setting.

    What rliable does (Agarwal et al., NeurIPS 2021, "Deep Reinforcement Learning at the Edge of the Statistical
    Precipice"), for settings that need not have the same number of runs.
    """
    rng = np.random.default_rng(0)
    drawn = [np.asarray(runs)[rng.integers(len(runs), size=(RESAMPLES, len(runs)))] for runs in strata if len(runs)]
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=1)), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@dataclass(frozen=True)
class Held:
    """How often intervals hold the truth, over all runs of a method; by the first weight, which the other follows."""

    runs: int
    hits: int
    share_interval: Interval
    """95 % interval of the share (Clopper and Pearson)."""


def held_truths(outcomes: Sequence[Outcome], interval: Callable[[Outcome], Interval | None]) -> dict[str, Held]:
    """By method that gives any, how many of the intervals hold the truth."""
    found = {}
    for method in METHODS:
        known = [(interval(one), SETTINGS[one.setting].weights[0]) for one in outcomes if one.method == method]
        given = [(ends, truth) for ends, truth in known if ends is not None]
        if given:
            held = coverage([[ends] for ends, _ in given], [[truth] for _, truth in given])
            hits = round(float(held.share[0]) * len(given))
            found[method] = Held(len(given), hits, (float(held.low[0]), float(held.high[0])))
    return found
