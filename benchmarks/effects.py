"""How often the effects of actions come back, with their 90 % intervals, where they are known.

    python benchmarks/effects.py [--worlds tumour measured hidden] [--runs 20] [--first 0] [--out runs/effects]

Effects are those of ``cirl_gym.outcome_models.effects``: of the second action against the first, on the next value,
on the same within four parts of the current level, and on the discounted sum of an action that is taken once. The
truth is what the world itself answers to the same question after the same histories. Worlds:

``tumour``    the simulator; experts with weights (-.3, -.7), gamma .99 and kappa 0, 5, 20, 50 and 100 decide.
``measured``  a level that is raised the more the lower it is; a measured driver moves it too, and who has much of that
              driver is given more often. R2 of the next level is about one half.
``hidden``    the same, and a second driver that nobody wrote down, ``--strength`` times as strong.

Estimators: ``straight``, the law without bends and interactions; ``law``, that of the product; ``partialled``, cross-
fitted gradient boosting of outcome and action, residuals regressed on residuals (double machine learning, of the next
value alone). In ``hidden`` the sensitivity figure is judged: whether the estimate is off by no more than a cause as
strong as the strongest observed covariate could move it.

A run whose file is in the folder is not repeated, so that a command that was stopped goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from stored import stored

from agents.expert import EXPERT, Expert, successor_expert
from cirl_gym import TumourParameters, TumourWorld, rollout
from cirl_gym.data.batch import Batch
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.outcomes import Column
from cirl_gym.outcome_models.effects import ActionEffects, action_effects
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import Window
from cirl_gym.outcome_models.law import AutoregressionConfig
from cirl_gym.outcome_models.model import LearnedModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.sensitivity import sensitivities
from cirl_gym.outcome_models.terms import STRAIGHT
from cirl_gym.types import Float32Array, FloatArray, IntArray

GAMMA = 0.99
KAPPAS = (0.0, 5.0, 20.0, 50.0, 100.0)
PATIENTS, STEPS = 300, 10
"""Of the worlds ``measured`` and ``hidden``; the simulator has as many patients and its own 20 steps."""
FOLDS = 5
"""Of cross-fitting."""
SEEN = 0.001
"""Sums of which a larger share of steps lies outside what was observed are about courses that nobody saw."""
NO_LIMIT = 1e6
"""What a cause moves an effect by if there is no limit to it."""
NORMAL = 1.6449
"""Standard errors on either side of a 90 % interval."""


class DrivenLevel:
    """A level, what drives it and whether it is treated, what is left of both, and what nobody sees.

    Outcomes are expected to be .6 level + .4 driver + .4 hidden + a .8 / (1 + exp(level)); .8 driver; .7 other +
    .2 level - .3 a; .8 hidden. As an outcome model a state is the last observation.

    Args:
        hidden: strength of the hidden driver, of what it does to the level and to decisions, beside the measured one.
    """

    features = ("level", "driver", "other", "hidden")
    n_actions = 2
    noise_scale = np.array([1.0, 0.6, 0.7, 0.6])
    bounds = (np.full(4, -1e3), np.full(4, 1e3))

    def __init__(self, hidden: float) -> None:
        self.hidden = hidden

    def noise(self, normals: FloatArray) -> FloatArray:
        return normals * self.noise_scale

    def encode(self, batch: Batch) -> Float32Array:
        return batch.obs

    def start(self, obs: Float32Array) -> Float32Array:
        return obs

    def predict(self, states: Float32Array) -> Float32Array:
        level, driver, other, hidden = np.moveaxis(states.astype(np.float64), -1, 0)
        given = np.array([0.0, 1.0])
        parts = [
            (0.6 * level + 0.4 * driver + 0.4 * self.hidden * hidden)[..., None]
            + given * 0.8 * expit(-level)[..., None],
            0.8 * driver[..., None] + 0.0 * given,
            (0.7 * other + 0.2 * level)[..., None] - 0.3 * given,
            0.8 * hidden[..., None] + 0.0 * given,
        ]
        return np.stack(parts, axis=-1).astype(np.float32)

    def end_probability(self, states: Float32Array) -> Float32Array:
        return np.zeros((*states.shape[:-1], 2), dtype=np.float32)

    def advance(self, states: Float32Array, actions: IntArray, obs: Float32Array) -> Float32Array:
        return obs

    def chances(self, states: Float32Array) -> FloatArray:
        """``[n]`` how likely patients are treated."""
        level, driver, _, hidden = states.astype(np.float64).T
        return expit(-0.3 - 0.5 * level + driver + self.hidden * hidden)

    def episodes(self, rng: np.random.Generator) -> Batch:
        """What is left behind, the hidden driver among the features."""
        obs = [rng.normal(size=(PATIENTS, 4)).astype(np.float32)]
        actions: list[IntArray] = []
        for _ in range(STEPS):
            actions.append((rng.random(PATIENTS) < self.chances(obs[-1])).astype(np.int64))
            expected = self.predict(obs[-1])[np.arange(PATIENTS), actions[-1]]
            obs.append((expected + self.noise(rng.standard_normal((PATIENTS, 4)))).astype(np.float32))
        ended = np.zeros(PATIENTS, dtype=np.bool_)
        return Batch(
            np.stack(obs, axis=1),
            np.stack(actions, axis=1),
            np.full(PATIENTS, STEPS),
            ended,
            ~ended,
            self.features,
            ("no", "given"),
            tuple(f"p{i:03}" for i in range(PATIENTS)),
        )


def observed(batch: Batch) -> Batch:
    """The batch without what nobody saw."""
    return replace(batch, obs=batch.obs[..., :3], features=batch.features[:3])


def said(found: ActionEffects) -> dict[str, Any]:
    """Estimates and 90 % intervals of every outcome; by parts of the level where the effect is not one number."""
    parts = found.by_level[0]
    return {
        "next": found.next[0].tolist(),
        "next_interval": found.next_interval[:, 0].T.tolist(),
        "total": found.total[0].tolist(),
        "total_interval": found.total_interval[:, 0].T.tolist(),
        "outside": found.outside,
        "edges": [one and one.edges.tolist() for one in parts],
        "parts": [one and one.mean.tolist() for one in parts],
        "parts_interval": [one and np.stack([one.low, one.high], axis=1).tolist() for one in parts],
    }


def partialled(batch: Batch, order: int, parts: Sequence[Sequence[float] | None]) -> dict[str, Any]:
    """Effects on next values by residuals on residuals, with errors by patient, also in parts of the current level."""
    steps = batch.mask
    rows = Window(order, len(batch.features), batch.n_actions).encode(batch)[:, :-1][steps].astype(np.float64)
    taken, outcomes = batch.actions[steps], batch.next_obs[steps].astype(np.float64)
    whose = np.nonzero(steps)[0]
    part = np.random.default_rng(0).permutation(len(batch))[whose] % FOLDS
    of_action, of_outcome = np.zeros(len(rows)), np.zeros(outcomes.shape)
    few: dict[str, Any] = {"max_iter": 100, "learning_rate": 0.05, "max_leaf_nodes": 8, "random_state": 0}
    for held_out in range(FOLDS):
        own, others = part == held_out, part != held_out
        of_action[own] = (
            taken[own]
            - (HistGradientBoostingClassifier(**few).fit(rows[others], taken[others]).predict_proba(rows[own])[:, 1])
        )
        for j in range(outcomes.shape[1]):
            model = HistGradientBoostingRegressor(**few).fit(rows[others], outcomes[others, j])
            of_outcome[own, j] = outcomes[own, j] - model.predict(rows[own])
    answer: dict[str, Any] = {"next": [], "next_interval": [], "parts": [], "parts_interval": []}
    for j in range(outcomes.shape[1]):
        effect, error = _on_residuals(of_action, of_outcome[:, j], whose, np.ones(len(rows), dtype=np.bool_))
        answer["next"].append(effect)
        answer["next_interval"].append([effect - NORMAL * error, effect + NORMAL * error])
        edges = parts[j]
        if edges is None:
            answer["parts"].append(None)
            answer["parts_interval"].append(None)
            continue
        place = np.searchsorted(edges[1:-1], rows[:, j], side="right")
        within = (_on_residuals(of_action, of_outcome[:, j], whose, place == q) for q in range(len(edges) - 1))
        effects, errors = (np.array(values) for values in zip(*within, strict=True))
        answer["parts"].append(effects.tolist())
        answer["parts_interval"].append(np.stack([effects - NORMAL * errors, effects + NORMAL * errors], 1).tolist())
    return answer


def _on_residuals(action: FloatArray, outcome: FloatArray, whose: IntArray, rows: Any) -> tuple[float, float]:
    """Slope, and its standard error over patients."""
    square = float((action[rows] ** 2).sum())
    slope = float((action[rows] * outcome[rows]).sum() / square)
    pulls = np.bincount(whose[rows], action[rows] * (outcome[rows] - slope * action[rows]))
    return slope, float(np.sqrt((pulls**2).sum()) / square)


def run(batch: Batch, truth_of: OutcomeModel, number: int, hidden: bool) -> dict[str, Any]:
    """One data set: what is true, what is estimated, and what sensitivity says."""
    train, validation = batch.split(0.15, np.random.default_rng([number, 2]))
    seen = (train, validation) if not hidden else (observed(train), observed(validation))
    outcomes = [Column(name) for name in seen[0].features]
    ask = partial(action_effects, outcomes=outcomes, gamma=GAMMA)
    truth = said(ask(truth_of, train, rng=np.random.default_rng([number, 3])))
    truth = {name: truth[name] for name in ("next", "total", "edges", "parts")}
    answer: dict[str, Any] = {"number": number, "outcomes": [one.name for one in outcomes], "truth": truth}
    order = 1
    for name, shapes in (("straight", (STRAIGHT,) * len(outcomes)), ("law", ())):
        begun = time.perf_counter()
        config = OutcomeModelConfig(autoregression=AutoregressionConfig(shapes=shapes))
        fitted = fit_outcome_model("ar", *seen, config, np.random.default_rng([number, 4]))
        answer[name] = said(ask(fitted.model, seen[0], rng=np.random.default_rng([number, 3])))
        answer[name] |= {"law": fitted.report["law"], "end": fitted.report["end"]["kind"]}
        answer[name]["seconds"] = time.perf_counter() - begun
        assert isinstance(fitted.model, LearnedModel)
        order = fitted.model.law.window.order
    answer["partialled"] = partialled(seen[0], order, truth["edges"])
    found = sensitivities(fitted.model, seen[0], outcomes)
    told = [found.get((1, one.name)) for one in outcomes]
    answer["sensitivity"] = [one and asdict(replace(one, moved=min(one.moved, NO_LIMIT))) for one in told]
    return answer


def tumour_run(expert: Expert, kappa: float, number: int) -> dict[str, Any]:
    """Decisions of experts in the simulator."""
    policy, rng = replace(expert, kappa=kappa).policy(number), np.random.default_rng([number, 1])
    parameters = TumourParameters()
    batch = rollout(TumourWorld(parameters), policy, PATIENTS, rng, deterministic=False)
    return run(batch, OracleModel(parameters), number, hidden=False)


def driven_run(hidden: float, number: int) -> dict[str, Any]:
    """Decisions in the world of a driven level."""
    world = DrivenLevel(hidden)
    return run(world.episodes(np.random.default_rng([number, 1])), world, number, hidden=True)


# --- what is said of all runs together --------------------------------------------------------------------------------


def compared(runs: Sequence[Mapping[str, Any]], estimator: str, what: str, i: int) -> tuple[FloatArray, ...]:
    """Truths, estimates and ends of intervals of all runs ``[n]`` each; of parts, all that a run has."""
    truths, estimates, ends = [], [], []
    for one in runs:
        true, found = one["truth"][what][i], one[estimator][what][i]
        if what == "parts":
            n = len(true or found or [0])
            # What is one number is that number everywhere.
            true = true or [one["truth"]["next"][i]] * n
            interval = one[estimator]["parts_interval"][i] or [one[estimator]["next_interval"][i]] * n
            found = found or [one[estimator]["next"][i]] * n
        else:
            interval = one[estimator][f"{what}_interval"][i]
        truths.append(np.atleast_1d(true))
        estimates.append(np.atleast_1d(found))
        ends.append(np.reshape(interval, (-1, 2)))
    low, high = np.concatenate(ends).T
    return np.concatenate(truths), np.concatenate(estimates), low, high


def summary(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for every outcome and estimator: how often intervals hold; mean error, its spread, mean half width."""
    lines = []
    for i, outcome in enumerate(runs[0]["outcomes"]):
        for estimator in ("straight", "law", "partialled"):
            cells = []
            for what in ("next", "parts", "total"):
                if what not in runs[0][estimator]:
                    cells.append("")
                    continue
                known = [one for one in runs if what != "total" or one[estimator]["outside"] <= SEEN]
                if not known:
                    cells.append("none seen")
                    continue
                truth, estimate, low, high = compared(known, estimator, what, i)
                held, error, width = (low <= truth) & (truth <= high), estimate - truth, (high - low) / 2
                cells.append(f"{held.mean():.2f} ({error.mean():+.3f}, {error.std():.3f}, {width.mean():.3f})")
            lines.append(f"| {outcome} | {estimator} | {' | '.join(cells)} |")
    return lines


def bracketed(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """How often truth lies where a cause as strong as the strongest observed covariate could have moved an estimate."""
    lines = []
    for i, outcome in enumerate(runs[0]["outcomes"]):
        truth, estimate, low, high = compared(runs, "law", "next", i)
        moved, robustness = (np.array([one["sensitivity"][i][k] for one in runs]) for k in ("moved", "robustness"))
        alone, ends = np.abs(estimate - truth) <= moved, (low - moved <= truth) & (truth <= high + moved)
        lines.append(
            f"{outcome}: off by {np.abs(estimate - truth).mean():.3f} (mean), moved by at most {np.median(moved):.3f} "
            f"(median); holds the truth around the estimate in {alone.sum()}, around its 90 % interval in {ends.sum()} "
            f"of {len(runs)}; robustness {100 * robustness.mean():.1f} %"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--worlds", nargs="+", choices=("tumour", "measured", "hidden"), default=["tumour", "measured", "hidden"]
    )
    parser.add_argument("--kappas", type=float, nargs="+", default=KAPPAS)
    parser.add_argument("--strength", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/effects"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    worlds: dict[str, Callable[[int], dict[str, Any]]] = {}
    if "tumour" in asked.worlds:
        weights = np.array([-0.3, -0.7])
        expert = successor_expert(TumourParameters(), weights, GAMMA, 1.0, EXPERT, np.random.default_rng(0))
        worlds |= {f"tumour_{kappa:g}": partial(tumour_run, expert, kappa) for kappa in asked.kappas}
    if "measured" in asked.worlds:
        worlds["measured"] = partial(driven_run, 0.0)
    if "hidden" in asked.worlds:
        worlds[f"hidden_{asked.strength:g}"] = partial(driven_run, asked.strength)
    for name, one in worlds.items():
        found = []
        for number in range(asked.first, asked.first + asked.runs):
            path = asked.out / name / f"run_{number:03}.json"
            found.append(stored(path, partial(one, number)))
        seen = sum(one["law"]["outside"] <= SEEN for one in found)
        print(f"{name}, {len(found)} runs, sums of {seen}: held (mean error, its spread, mean half width)")
        print("| outcome | estimator | next | by level | sum |\n| --- | --- | --- | --- | --- |")
        print("\n".join(summary(found)), flush=True)
        if name.startswith("hidden"):
            print("\n".join(bracketed(found)), flush=True)


if __name__ == "__main__":
    main()
