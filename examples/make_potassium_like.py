"""Make examples/potassium_like.csv: the synthetic twin of a table of real decisions, of which it holds no row.

    cirl case-study potassium --meds DIR --out runs/potassium
    python examples/make_potassium_like.py runs/potassium [FILE]

Nobody's data. Of the real table only what was fitted to it is used: means, spreads and correlations of first
observations, from which new ones are drawn; the outcome model, which says what follows an action, its noise, and when a
stay ends; and the preferences and habits that were found of the doctors, by which the actions are drawn. So it is known
why potassium is given in this table: because it is low, and by habit.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import irl
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import rollout
from cirl_gym.files import write_text
from cirl_gym.types import Float32Array

SEED, STAYS = 20210503, 160
DECIMALS = {"potassium": 1, "creatinine": 1, "heart_rate": 0}
SKEWED = ("creatinine",)
"""Their logarithm is drawn."""


def first_observations(seen: Batch, n: int, rng: np.random.Generator) -> Float32Array:
    """``[n, D]`` drawn with the means, spreads and correlations of the first observations seen, within their range."""
    first = seen.obs[:, 0].astype(np.float64)
    skewed = np.array([name in SKEWED for name in seen.features])
    values = np.where(skewed, np.log(np.maximum(first, 1e-9)), first)
    drawn = rng.multivariate_normal(values.mean(axis=0), np.cov(values, rowvar=False), n)
    drawn = np.where(skewed, np.exp(drawn), drawn)
    return np.clip(drawn, *np.quantile(first, (0.01, 0.99), axis=0)).astype(np.float32)


def twin(run: irl.Run, stays: int, seed: int) -> pd.DataFrame:
    """Decisions of stays that never were, as a table."""
    starting, playing = np.random.SeedSequence(seed).spawn(2)
    assert run.train.features == tuple(DECIMALS), f"the run must observe {', '.join(DECIMALS)}"
    starts = first_observations(run.train, stays, np.random.default_rng(starting))
    world = CounterfactualWorld(run.model, starts, run.agent.horizon, outcome="sampled")
    batch = rollout(world, run.predicted_experts, stays, np.random.default_rng(playing), deterministic=False)
    seen = np.maximum(batch.obs, run.train.obs[:, :-1][run.train.mask].min(axis=0))  # nothing lower than was seen
    rows = []
    for i in range(len(batch)):
        last = int(batch.lengths[i])
        for t in range(last + 1):
            values = zip(DECIMALS.values(), seen[i, t], strict=True)
            cells = [f"{value:.{digits}f}" for digits, value in values]
            rows.append([f"{i:03}", t, *cells, batch.actions[i, t] if t < last else "", 0, int(t == last)])
    return pd.DataFrame(rows, columns=["stay", "bin", *DECIMALS, "given", "terminated", "truncated"])


def main() -> None:
    folder = Path(sys.argv[1])
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parent / "potassium_like.csv"
    table = twin(irl.Run(folder), STAYS, SEED)
    write_text(path, table.to_csv(index=False))
    print(f"{path}: {len(table)} rows, {table['stay'].nunique()} stays")


if __name__ == "__main__":
    main()
