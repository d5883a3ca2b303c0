"""The expert: seconds of training, and what a wider search over plans gains and costs.

Trains the expert of one setting on one core, then lets it act without noise from starts whose exact optimum is found by
trying all 2^20 treatment plans (about a second each). Every width acts from the same starts.

    python benchmarks/agent_speed.py [--starts 20] [--weights -0.3 -0.7] [--gamma 0.99] [--seed 0]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from agents.expert import Expert, train_expert
from agents.successor import SuccessorConfig
from cirl_gym import FeatureMap, TumourParameters, TumourWorld, rollout
from cirl_gym.dynamics import FEATURES, draw_start
from cirl_gym.exhaustive import optimum
from cirl_gym.rollout import returns
from cirl_gym.types import FloatArray

PARAMETERS = TumourParameters()
WIDTHS = (1, 4, 8, 16)
TOGETHER = 200
"""Patients in the measurement of many decisions at once."""


def earned(expert: Expert, starts: FloatArray, gamma: float) -> FloatArray:
    """Discounted returns ``[n]`` of the greedy expert without noise."""
    world = TumourWorld(PARAMETERS, noise=False)
    played = rollout(world, expert.policy(), len(starts), np.random.default_rng(0), start=world.start(starts))
    return returns(played, FeatureMap.from_parameters(PARAMETERS, FEATURES), expert.w, gamma)


def milliseconds(expert: Expert, patients: int, repeats: int) -> float:
    """Time per decision with so many patients at once: mean over the steps of an episode, median of some episodes."""
    world, spent = TumourWorld(PARAMETERS), []
    for repeat in range(repeats):
        begun = time.perf_counter()
        played = rollout(world, expert.policy(), patients, np.random.default_rng(repeat))
        # Patients whose episode has ended are decided on as well, until the last one's ends.
        spent.append((time.perf_counter() - begun) / (patients * played.horizon))
    return 1e3 * float(np.median(spent))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--weights", type=float, nargs=2, default=(-0.3, -0.7))
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    w, gamma = np.array(arguments.weights), arguments.gamma
    w = w / np.abs(w).sum()
    begun = time.perf_counter()
    config = SuccessorConfig(weights_per_history=1)
    expert = train_expert(PARAMETERS, w, gamma, 100.0, config, np.random.default_rng(arguments.seed))
    print(f"w {w.tolist()}, gamma {gamma}: trained in {time.perf_counter() - begun:.1f} s", flush=True)
    starts = draw_start(PARAMETERS, arguments.starts, np.random.default_rng(arguments.seed + 1))
    best = optimum(PARAMETERS, starts, [(w, gamma)]).values[:, 0]
    print(
        f"exact optimum {best.mean():.4f}, mean of {len(starts)} starts; below: by how much each width is short of it"
    )
    print(
        f"{'width':>5} {'mean':>8} {'s.e.':>8} {'largest':>8}   {'ms, one patient':>15} {f'ms, {TOGETHER} at once':>15}"
    )
    for width in WIDTHS:
        expert.agent.width = width
        short = best - earned(expert, starts, gamma)
        error = short.std(ddof=1) / np.sqrt(len(short)) if len(short) > 1 else float("nan")
        times = f"{milliseconds(expert, 1, 9):15.2f} {milliseconds(expert, TOGETHER, 1):15.3f}"
        print(f"{width:5d} {short.mean():8.4f} {error:8.4f} {short.max():8.4f}   {times}", flush=True)


if __name__ == "__main__":
    main()
