"""A result with plausible numbers for any number of features; two features are the simulator's, more a real table's."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs

from irl.report.drawing import WhatIf
from irl.result import result as records
from irl.result.consequences import Consequences, Followed, OtherWeights
from irl.result.exchange import ExchangeRate
from irl.result.gammas import GammaChoice, GammaTried
from irl.result.habits import HabitContext, HabitLevel, Habits
from irl.result.result import Result
from irl.result.simulated_habits import HabitLogit, SimulatedHabits, WithoutHabits
from irl.result.windows import TimeWindow, WindowChange, WindowWeights

LONG_NAMES = (
    "mean arterial pressure, lowest of the last 24 hours (mmHg)",
    "white_blood_cell_count_last",
    "temperature",
    "c_reactive_protein_highest_value_in_the_last_24_hours",
    "creatinine",
    "lactate (arterial, last)",
    "platelets",
    "bilirubin_total",
    "respiratory rate",
    "heart rate",
    "oxygen saturation / inspired oxygen fraction",
    "glasgow_coma_scale_total_score",
    "urine output",
    "sodium",
    "days since admission",
)


REGRETS = tuple((-k / 20, k / 20 - 1, 0.012 + abs(k / 20 - 0.3)) for k in range(21))
"""Regret of weights from (0, -1) to (-1, 0), least at (-.3, -.7)."""


def features_of(d: int) -> tuple[str, ...]:
    return ("tumour_volume", "side_effects") if d == 2 else LONG_NAMES[:d]


def sample_fields(d: int = 2) -> dict[str, Any]:
    """Arguments of a valid :class:`Result` with d features."""
    rng = np.random.default_rng(d)
    features = features_of(d)
    raw = rng.standard_normal(d)
    w = np.array([-0.29, -0.71]) if d == 2 else raw / np.abs(raw).sum()
    spread = 0.05 + 0.1 * rng.random(d)
    mu = 1.0 + 6.0 * rng.random(d)
    mus = [mu + rng.standard_normal(d) / (k + 1) for k in range(9)]
    rounds = [
        records.LoopRound(
            k, w, mus[k], 1 / (k + 1) if k else None, 3.2 * 0.6**k + 0.05, 0.08, 0.8, 0.5**k if k else None
        )
        for k in range(9)
    ]
    ranges = {name: (w[i] - 2 * spread[i], w[i] + 1.5 * spread[i]) for i, name in enumerate(features)}
    returns = {"expert": -3.41, "cirl": -3.46, "cloning": -3.52, "random": -4.9, "never": -5.6, "always": -3.77}
    accounts = ("cirl", "habit", "last_action", "boosting", "cloning", "frequencies", "chance")
    means = (-0.352, -0.46, -0.47, -0.36, -0.361, -0.688, -0.693)
    said = {name: records.Foreseen(mean, 0.012, 0.8) for name, mean in zip(accounts, means, strict=True)}
    return {
        "features": features,
        "weights": w,
        "intervals": {name: (w[i] - spread[i], w[i] + spread[i]) for i, name in enumerate(features)},
        "identified_set": records.IdentifiedRanges(
            ranges, 0.012, 0.04, {} if d == 2 else {features[-1]: "constant"}, REGRETS if d == 2 else ()
        ),
        "mu_expert": mu,
        "margin": rounds[-1].margin,
        "rounds": tuple(rounds),
        "accuracy": records.Accuracy(0.835, 0.841, 0.54, 0.57, 0.852 if d == 2 else None),
        "returns": {name: records.Estimate(value, 0.061) for name, value in returns.items()} if d == 2 else None,
        "model_error": records.ModelError(0.0054, 0.0056 if d == 2 else None),
        "seconds": {"expert": 121.3, "data": 2.1, "outcome model": 14.8, "policies": 184.2, "loop": 1.4},
        "seed": 0,
        "config": {"gamma": 0.99, "episodes": 10_000},
        "versions": {"python": "3.11.7", "numpy": "2.4.6"},
        "estimates": {"posterior": w, "w_K": w, "last_direction": w, "least_regret": w},
        "kappa": records.Kappa(96.0, (88.0, 104.5)),
        "true_weights": (-0.3, -0.7) if d == 2 else None,
        "table": None if d == 2 else sample_table(),
        "headline": (
            "Beyond habit: the outcomes weighed help to foresee these decisions.",
            "Per full range, side effects weigh 2.4 times as much as tumour volume.",
        ),
        "stop": "converged",
        "verdict": "beyond habit",
        "identification": "by decisions only",
        "sampler": records.Sampler(
            True, dict.fromkeys((*features, "kappa"), 1.003), dict.fromkeys((*features, "kappa"), 812.0), 0.9
        ),
        "episodes": records.EpisodeCounts(7000, 1500, 1500, 17.3, 16.9),
        "mu_recovered": mu + 0.03,
        "quality": records.Quality(20, 0.014, 0.0096, 0.0023, 0.0, 0.0019, 0.0008, 0.0018, 0.05),
        "allowed": records.AllowedActions(("treat when Above(x0, 3)", "wait when After(treat)"), 120000, 4321, 4000),
        "mixture": records.PolicyMixture(
            (records.MixedPolicy(2, 0.25, w), records.MixedPolicy(8, 0.75, -w)), mu + 0.02, 0.02 * np.sqrt(d)
        ),
        "exchange_rates": (
            ExchangeRate("Given(treat)", "step with the action", features[0], -2.1, (-7.0, -0.4)),
            ExchangeRate("Given(treat)", "step with the action", features[-1], None, None),
        ),
        "habits": None if d == 1 else found_sample_habits(),
        "simulated_habits": sample_habits(spread) if d == 2 else None,
        "mu_gap": 0.03 * np.sqrt(d),
        "agreement": records.AgreementOverTime((1500, 1480, 611), (0.71, 0.86, 0.9), (0.74, 0.85, 0.88)),
        "likelihood": records.HeldOutLikelihood(
            decisions=2010,
            patients=104,
            folds=0 if d == 2 else 5,
            beyond_habit=records.Difference(0.108, 0.011),
            expert=said["cirl"] if d == 2 else None,
            **said,
        ),
        "windows": sample_windows(w, spread),
        "gammas": sample_gammas(w, spread),
        "consequences": sample_consequences(features, w),
        "members": tuple(records.Member(w, mu + 0.01 * i, mu) for i in range(3 if d > 2 else 0)),
    }


def sample_table() -> dict[str, Any]:
    """What is said of a table, as far as a report reads it."""
    return {
        "sha256": "0c1d" * 16,
        "episodes": {"groups": 70, "used": 77, "steps": 735, "regrouped": 2},
        "taken": [{"action": "wait", "times": 700, "groups": 70}, {"action": "treat", "times": 35, "groups": 20}],
        "account": ["812 rows read, 812 used", "lactate (arterial, last): 41 empty; 41 carried forward"],
        "warnings": ["the last row of a stay says little"],
    }


def sample_consequences(features: tuple[str, ...], w: np.ndarray) -> Consequences:
    """Three policies, and the first weight's share at 0, as found, and at 1."""
    low = Followed(17.3, (0.55, 0.45), tuple(10.0 + i for i in range(len(w))))
    policies = {"expert": structs.replace(low, length=17.1), "cirl": structs.replace(low, length=16.9), "always 1": low}
    share = float(np.abs(w[0]))
    others = tuple(
        OtherWeights(features[0], at, at == share, tuple(w), structs.replace(low, taken=(1 - at, at)))
        for at in (0.0, share, 1.0)
    )
    return Consequences(("wait", "treat"), 200, low, policies, -0.136, 50, others)


def found_sample_habits() -> Habits:
    """Habits of the action before: repeating is likely, and nobody was ever treated twice."""
    wait = HabitLevel(
        "wait", (810, 90), (1.0, -1.0), ((0.9, 1.1), (-1.1, -0.9)), (0.88, 0.12), ((0.86, 0.9), (0.1, 0.14))
    )
    treat = structs.replace(wait, level="treat", taken=(0, 0), logits=(-1.0, 1.0), intervals=((-2, 0), (0, 2)))
    treat = structs.replace(treat, chances=(0.12, 0.88), between=((0.02, 0.5), (0.5, 0.98)))
    first = structs.replace(wait, level="none yet", taken=(1000, 110))
    return Habits(("wait", "treat"), (HabitContext("previous", (first, wait, treat)),))


def sample_habits(spread: np.ndarray) -> SimulatedHabits:
    """Habits that were found, and weights far off where they are left out."""
    off = np.array([-0.06, -0.94])
    intervals = tuple(zip(off - spread, off + spread, strict=True))
    logits = {"repeat": HabitLogit(2.0, 1.94, (1.81, 2.07)), "treat": HabitLogit(-1.0, -0.71, (-0.9, -0.52))}
    return SimulatedHabits(logits, 100.0, WithoutHabits(off, intervals, 212.5, (198.0, 231.0)))


def sample_windows(w: np.ndarray, spread: np.ndarray) -> tuple[TimeWindow, ...]:
    """Three windows, the second a little off the first, the last too short."""
    first = WindowWeights(w, tuple(zip(w - spread, w + spread, strict=True)), 91.0, (70.5, 120.25))
    moved = w + 0.03 * (-1.0) ** np.arange(len(w))
    second = WindowWeights(moved, tuple(zip(moved - spread, moved + spread, strict=True)), 88.0, (60.5, 110.75))
    changes = tuple(WindowChange(b - a, (b - a - s, b - a + s)) for a, b, s in zip(w, moved, spread, strict=True))
    return (
        TimeWindow(0, 5, 1200, 180, first, None),
        TimeWindow(6, 11, 1130, 175, second, changes),
        TimeWindow(12, None, 31, 8, None, None),
    )


def sample_gammas(w: np.ndarray, spread: np.ndarray) -> GammaChoice:
    """Three discount factors, of which the first is worse and the others are a tie."""
    intervals = tuple(zip(w - spread, w + spread, strict=True))
    tried = (
        GammaTried(0.5, -0.5213, -0.0891, 0.0123, w, intervals, 40.0),
        GammaTried(0.9, -0.4322, 0.0, 0.0, w, intervals, 77.0),
        GammaTried(0.99, -0.4347, -0.0025, 0.0041, w, intervals, 96.0),
    )
    return GammaChoice(0.99, tried, 2950, 171)


def sample_result(d: int = 2) -> Result:
    return Result(**sample_fields(d))


def sample_what_if(d: int = 2) -> WhatIf:
    """A patient with seven observations, and six predicted steps under each of two actions (one ends early)."""
    rng = np.random.default_rng(100 + d)
    scale = 10.0 ** rng.integers(-1, 3, d)
    observed = scale * (3 + np.cumsum(0.4 * rng.standard_normal((7, d)), axis=0))
    steps = np.arange(1, 7)[:, None] * 0.3 * scale
    return WhatIf(
        title="Patient 0017, held out",
        features=features_of(d),
        observed=observed,
        actions=("wait", "treat", "treat", "wait", "treat", "wait"),
        futures={"wait": observed[-1] + steps, "treat": (observed[-1] - steps)[:4]},
    )
