"""How far experts are from the exact optimum in the paper's six settings.

For each setting and seed an expert is trained, then treats the same patients without noise; the optimum of each patient
is found by trying all 2^20 plans. Printed: by how much it falls short, mean over patients, then over seeds.

    python benchmarks/six_settings.py [--algorithm successor] [--seeds 1] [--patients 20] [--scale 1]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from agents import SOLVERS
from agents.expert import noise_free_values
from agents.solvers import SIX_SETTINGS, Setting, train_expert
from cirl_gym import TumourParameters
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds.exact import optimum
from cirl_gym.worlds.tumour import draw_start

PARAMETERS = TumourParameters()


def shortfall(setting: Setting, algorithm: str, seed: int, scale: float, starts: FloatArray, best: FloatArray) -> float:
    """Seconds of training, and by how much the greedy policy falls short."""

    def short(policy: Policy) -> float:
        values = noise_free_values(policy, PARAMETERS, starts, setting.weights, setting.gamma)
        return float((best - values).mean())

    solved = train_expert(setting, algorithm, short, seed=seed, scale=scale)
    last = solved.curve[-1]
    print(f"  seed {seed}: short by {last.value:.4f} after {last.seconds:.0f} s, {last.steps:,} steps", flush=True)
    return last.value


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--algorithm", choices=SOLVERS, default="successor")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--patients", type=int, default=20)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the usual training")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    starts = draw_start(PARAMETERS, arguments.patients, np.random.default_rng(11))
    best = optimum(PARAMETERS, starts, [(setting.weights, setting.gamma) for setting in SIX_SETTINGS]).values
    for k, setting in enumerate(SIX_SETTINGS):
        print(f"{arguments.algorithm}, weights {setting.weights}, gamma {setting.gamma}", flush=True)
        found = [
            shortfall(setting, arguments.algorithm, seed, arguments.scale, starts, best[:, k])
            for seed in range(arguments.seeds)
        ]
        print(f"  mean of {len(found)} seeds {np.mean(found):.4f}, largest {max(found):.4f}", flush=True)


if __name__ == "__main__":
    main()
