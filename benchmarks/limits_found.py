"""Whether the limit at which experts act is found from their decisions, and its interval holds it.

    python benchmarks/limits_found.py [--runs 20] [--first 0] [--patients 80] [--steps 11] [--strength 8]

A level falls back to its mean and is raised by treating. Experts see it rounded to a tenth, look one step ahead, and
treat the likelier the more of what it would lack of a limit treating makes up for: their limit is one of 3.6, 3.7 ...
4.4, another in every run, and they have habits too. ``--strength`` is what a unit made up for adds to the logit of
treating; with 0 they keep to no limit, and none should be told. Only the search for the limit is run, in the quick
settings of ``cirl explain``. A line a run: the truth, what was found, its 90 % interval, whether it is told; then how
often intervals hold the truth, and how often a limit is told.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from cirl_gym import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.outcome_models.fitting import fit_outcome_model
from irl.limit_search import with_limit
from irl.result.limits import FoundLimit
from irl.settings import FOLDS, HABIT, FitConfig
from irl.studies.limits import LimitProfile
from irl.study import Study
from irl.worlds import model_config

MEAN, KEPT, EFFECT, NOISE = 4.1, 0.6, 0.3, 0.4
"""Of the level: the next one is MEAN + KEPT (level - MEAN) + EFFECT treated + NOISE z."""
SELDOM, AGAIN = -2.0, 0.7
"""Logits of treating, and of treating again."""
LIMITS = np.arange(36, 45) / 10


def stays(limit: float, strength: float, patients: int, steps: int, rng: np.random.Generator) -> Batch:
    """What experts who keep to a limit do, ``steps`` decisions of every patient."""
    level = np.round(MEAN + NOISE / np.sqrt(1 - KEPT**2) * rng.standard_normal(patients), 1)
    obs, actions, before = [level], [], np.zeros(patients)
    for _ in range(steps):
        untreated = MEAN + KEPT * (level - MEAN)
        made_up = np.maximum(limit - untreated, 0) - np.maximum(limit - untreated - EFFECT, 0)
        chance = 1 / (1 + np.exp(-(SELDOM + AGAIN * before + strength * made_up)))
        before = (rng.random(patients) < chance).astype(np.float64)
        level = np.round(untreated + EFFECT * before + NOISE * rng.standard_normal(patients), 1)
        obs.append(level), actions.append(before.astype(np.int64))
    return Batch(
        obs=np.stack(obs, axis=1)[..., None].astype(np.float32),
        actions=np.stack(actions, axis=1),
        lengths=np.full(patients, steps),
        terminated=np.zeros(patients, dtype=bool),
        truncated=np.ones(patients, dtype=bool),
        features=("level",),
        action_names=("no", "yes"),
        ids=tuple(f"{i:04}" for i in range(patients)),
    )


def searched(everyone: Batch, seed: int, config: FitConfig) -> tuple[LimitProfile, FoundLimit]:
    """What the decisions say of the limit of ``Below(level, ?)``."""
    train, validation = everyone.split(0.15, np.random.default_rng([seed, 0]))
    phi = FeatureMap.from_batch(train, [f"Below(level, {MEAN})"])
    study = Study(train, validation, phi, np.zeros(1), config, seed, everyone=everyone, sought=0)
    splits = [batch.with_early_ends(everyone.horizon) for batch in (train, validation)]
    model = fit_outcome_model(config.model, *splits, model_config(study), study.rng("outcome model")).model
    _, profile, found = with_limit(study, model)
    assert profile is not None
    assert found is not None
    return profile, found


def settings() -> FitConfig:
    """The quick ones of a table, one step ahead."""
    return replace(FitConfig(horizon=1, folds=FOLDS, habit=HABIT), gamma=0.9).quick()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line a run, and what all say together."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in {"runs": 20, "first": 0, "patients": 80, "steps": 11}.items():
        asked.add_argument(f"--{name}", type=int, default=usual)
    asked.add_argument("--strength", type=float, default=8.0)
    options = asked.parse_args(arguments)
    torch.set_num_threads(1)
    held, told = [], []
    for number in range(options.first, options.first + options.runs):
        rng = np.random.default_rng([number, 1])
        truth = float(rng.choice(LIMITS))
        seen = stays(truth, options.strength, options.patients, options.steps, rng)
        profile, found = searched(seen, number, settings())
        low, high = found.interval or (float("nan"), float("nan"))
        held.append(low <= truth <= high), told.append(found.limit is not None)
        print(
            f"{number}: {truth} is {profile.likeliest} ({low} to {high}), gain {found.gain:.1f}, power "
            f"{found.power:.2f}{'' if told[-1] else ', open'}",
            flush=True,
        )
    print(f"told in {sum(told)} of {len(told)}; intervals hold the truth in {sum(held)} of {sum(told)}")


if __name__ == "__main__":
    main()
