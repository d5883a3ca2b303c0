"""Whether weights come out with the right sign where effects of actions have to be learnt from confounded decisions.

    python benchmarks/weight_signs.py [--worlds tumour measured] [--runs 20] [--first 0] [--out runs/weight_signs]

Experts whose weights are known act in the worlds of ``effects.py``, and the whole method, in the quick settings of
``cirl explain``, is told of no sign. Each run has its own patients and noise:

``tumour``    weights (-.3, -.7), gamma .99; kappa 0, 5, 20, 50, 100, in turn. Experts with kappa 0 have no
              preferences: nothing is to be said of them.
``measured``  what lies below 0 and above 1 of a level that is raised the more the lower it is, and that a measured
              driver moves too: who has little of it has the lower level next, and is treated for it. Weights have any
              signs; each outcome moves the logits of deciding by at least :data:`LEAST` on its own.

A weight is said where decisions are foreseen beyond habit, its 90 % interval leaves out 0, and the effects that it
rests on are known. A run is right if the estimates of all weights have the right signs and no other sign is said; with
kappa 0, if none is said. A run whose file is in the folder is not repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from effects import GAMMA, KAPPAS, PATIENTS, STEPS, DrivenLevel, observed
from stored import stored

from agents.expert import EXPERT, Expert, successor_expert
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym import Batch, TumourParameters, TumourWorld, rollout
from cirl_gym.data.features import FeatureMap, draw_weights, normalised
from cirl_gym.data.habits import Habit
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.files import StoredParts
from cirl_gym.types import FloatArray
from irl.semi_synthetic import WIDTH, brief, fitted, moved, true_gain
from irl.settings import FOLDS, HABIT, FitConfig, quick_agent

OUTCOMES = ("Below(level, 0)", "Above(level, 1)")
"""Of the driven level."""
LEAST, MOST = 0.5, 3.0
"""Standard deviations over decisions of what each outcome alone, and both together, add to the experts' logits."""
TUMOUR_WEIGHTS = (-0.3, -0.7)


def nothing_by_habit() -> Habit:
    """Of two actions; experts with it decide by what they foresee alone."""
    return Habit.repeating(("0", "1"), 0.0, (0.0, 0.0))


def tumour_run(expert: Expert, number: int) -> dict[str, Any]:
    """Decisions of experts in the simulator."""
    world, rng = TumourWorld(TumourParameters()), np.random.default_rng([number, 1])
    experts = replace(expert, kappa=KAPPAS[number % len(KAPPAS)], habit=nothing_by_habit())
    batch = rollout(world, experts.policy(number), PATIENTS, rng, deterministic=False)
    return run(experts, batch, batch, number)


def driven_agent() -> tuple[SuccessorAgent, Batch]:
    """Solved in the world of a driven level, for all weights, and histories of it."""
    rng, world = np.random.default_rng(0), DrivenLevel(0.0)
    table = world.episodes(rng)
    phi, weights = FeatureMap.from_batch(table, OUTCOMES), uniform_weights(np.zeros(len(OUTCOMES)))
    problem = Problem(world, phi, table.start, STEPS, GAMMA, weights, table)
    return fit_successor(problem, replace(quick_agent(EXPERT), width=WIDTH), rng), table


def driven_experts(agent: SuccessorAgent, table: Batch, rng: np.random.Generator) -> Expert:
    """Experts whose decisions depend on both of their weights."""
    for _ in range(1000):
        w = draw_weights(np.zeros(len(OUTCOMES)), rng)
        psi = agent.psi(table, w)[table.mask]
        alone, both = min(moved(psi[..., i] * w[i]) for i in range(len(w))), moved(psi @ w)
        if LEAST / alone <= MOST / both:
            return Expert.of(agent, w, float(rng.uniform(LEAST / alone, MOST / both)), nothing_by_habit())
    raise ValueError("no weights move what is done enough")


def driven_run(agent: SuccessorAgent, table: Batch, number: int) -> dict[str, Any]:
    """Decisions of experts in the world of a driven level."""
    rng = np.random.default_rng([number, 1])
    experts = driven_experts(agent, table, np.random.default_rng([number, 0]))
    starts = rng.normal(size=(PATIENTS, len(table.features))).astype(np.float32)
    world = CounterfactualWorld(agent.model, starts, STEPS, outcome="sampled")
    batch = rollout(world, experts.policy(number), PATIENTS, rng, deterministic=False)
    return run(experts, batch, observed(batch), number)


def run(experts: Expert, batch: Batch, table: Batch, number: int) -> dict[str, Any]:
    """What is true of decisions, and what is said of them from what was written down (``table``)."""
    phi = FeatureMap.from_batch(table, experts.agent.feature_map.features)
    config = brief(FitConfig(gamma=GAMMA, folds=FOLDS, habit=HABIT).quick()).whole(table.horizon)
    _, said = fitted(table, phi, np.zeros(len(phi.features)), config, number, StoredParts())
    # A weight is of an outcome's whole range, and the table has its own.
    own, ranges = experts.agent.feature_map, phi.high - phi.low
    weights = normalised(experts.w * ranges / (own.high - own.low))
    truth = {"weights": weights.tolist(), "kappa": experts.kappa, "gain": list(true_gain(experts, batch))}
    return {"number": number, "outcomes": list(phi.features), "truth": truth, "found": said}


def told(found: Mapping[str, Any]) -> list[int]:
    """Of each weight the sign that is said, 0 if none is."""
    said, signs = found["found"], []
    for name, (low, high) in zip(found["outcomes"], said["intervals"], strict=True):
        silent = said["verdict"] != "beyond habit" or name in said["uninterpreted"] or low <= 0 <= high
        signs.append(0 if silent else int(np.sign(low)))
    return signs


def right(found: Mapping[str, Any]) -> bool:
    """Whether all signs are; where there are no preferences, whether none is said."""
    if found["truth"]["kappa"] == 0:
        return not any(told(found))
    true = np.sign(found["truth"]["weights"])
    return bool((np.sign(found["found"]["weights"]) == true).all() and (np.abs(told(found) - true) <= 1).all())


def row(found: Mapping[str, Any]) -> str:
    """One run in a line."""
    truth, said = found["truth"], found["found"]
    weights = " ".join(
        f"{true:+.2f}: {estimate:+.2f} [{low:+.2f}, {high:+.2f}]"
        for true, estimate, (low, high) in zip(truth["weights"], said["weights"], said["intervals"], strict=True)
    )
    unread = f"; not interpreted: {', '.join(said['uninterpreted'])}" if said["uninterpreted"] else ""
    return (
        f"run {found['number']:<3} kappa {truth['kappa']:5.1f} true gain {truth['gain'][0]:+.4f} "
        f"{said['verdict']}; {weights}{unread}; {'right' if right(found) else 'WRONG'}"
    )


def summary(runs: Sequence[Mapping[str, Any]]) -> str:
    """How often runs are right, and signs are said."""
    preferring = [found for found in runs if found["truth"]["kappa"] > 0]
    signs = [(sign, true) for f in preferring for sign, true in zip(told(f), f["truth"]["weights"], strict=True)]
    wrong = sum(sign * true < 0 for sign, true in signs)
    beyond = sum(found["found"]["verdict"] == "beyond habit" for found in preferring)
    return (
        f"right in {sum(map(right, runs))} of {len(runs)} runs; beyond habit in {beyond} of the {len(preferring)} with "
        f"preferences; of their {len(signs)} signs {sum(sign * true > 0 for sign, true in signs)} are said, "
        f"{wrong} wrongly, {sum(sign == 0 for sign, _ in signs)} are not"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--worlds", nargs="+", choices=("tumour", "measured"), default=["tumour", "measured"])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/weight_signs"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    worlds: dict[str, Callable[[int], dict[str, Any]]] = {}
    if "tumour" in asked.worlds:
        w: FloatArray = np.array(TUMOUR_WEIGHTS)
        expert = successor_expert(TumourParameters(), w, GAMMA, 1.0, EXPERT, np.random.default_rng(0))
        worlds["tumour"] = partial(tumour_run, expert)
    if "measured" in asked.worlds:
        worlds["measured"] = partial(driven_run, *driven_agent())
    for name, one in worlds.items():
        found = []
        for number in range(asked.first, asked.first + asked.runs):
            path = asked.out / name / f"run_{number:03}.json"
            found.append(stored(path, partial(one, number)))
            print(row(found[-1]), flush=True)
        print(f"{name}: {summary(found)}", flush=True)


if __name__ == "__main__":
    main()
