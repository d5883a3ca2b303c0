"""A result with plausible numbers for any number of features; two features are the simulator's, more a real table's."""

from __future__ import annotations

from typing import Any

import numpy as np

from irl.report.what_if import WhatIf
from irl.result import Accuracy, Episodes, Estimate, IdentifiedRanges, Kappa, LoopRound, Member, ModelError, Result

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
    rounds = [
        LoopRound(
            k=k,
            w=w,
            mu=mu + rng.standard_normal(d) / (k + 1),
            lambda_=None if k == 0 else 1.0 / (k + 1),
            margin=3.2 * 0.6**k + 0.05,
            seconds=0.08,
            agreement=0.8,
            changed=None if k == 0 else 0.5**k,
        )
        for k in range(9)
    ]
    ranges = {name: (w[i] - 2 * spread[i], w[i] + 1.5 * spread[i]) for i, name in enumerate(features)}
    returns = {"expert": -3.41, "cirl": -3.46, "cloning": -3.52, "random": -4.9, "never": -5.6, "always": -3.77}
    return {
        "features": features,
        "weights": w,
        "intervals": {name: (w[i] - spread[i], w[i] + spread[i]) for i, name in enumerate(features)},
        "identified_set": IdentifiedRanges(ranges, 0.012, 0.04, {} if d == 2 else {features[-1]: "constant"}),
        "mu_expert": mu,
        "margin": rounds[-1].margin,
        "rounds": tuple(rounds),
        "accuracy": Accuracy(0.835, 0.841, 0.54, 0.57, 0.852 if d == 2 else None),
        "returns": {name: Estimate(value, 0.061) for name, value in returns.items()} if d == 2 else None,
        "model_error": ModelError(0.0054, 0.0056 if d == 2 else None),
        "seconds": {"expert": 121.3, "data": 2.1, "outcome model": 14.8, "policies": 184.2, "loop": 1.4},
        "seed": 0,
        "config": {"gamma": 0.99, "episodes": 10_000},
        "versions": {"python": "3.11.7", "numpy": "2.4.6"},
        "estimates": {"posterior": w, "w_K": w, "last_direction": w, "least_regret": w},
        "kappa": Kappa(96.0, (88.0, 104.5)),
        "true_weights": (-0.3, -0.7) if d == 2 else None,
        "table": None if d == 2 else {"rows": 812, "episodes": 77, "carried forward": {"lactate (arterial, last)": 41}},
        "headline": ("Per full range, side effects weigh 2.4 times as much as tumour volume.",),
        "stop": "converged",
        "episodes": Episodes(7000, 1500, 1500, 17.3, 16.9),
        "members": tuple(Member(w, mu + 0.01 * i, mu) for i in range(3 if d > 2 else 0)),
    }


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
