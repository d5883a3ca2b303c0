"""Environment steps and seconds until an agent has earned 95 % of what there is to earn.

From the return of random treatment (0 %) to the exact optimum (100 %), both without noise and on the same patients. On
one core, in turns within one run: successor features and DRQN of this package, RecurrentPPO of sb3-contrib on the
native vector form with this package's settings, and RecurrentPPO as it comes on Stable-Baselines3's DummyVecEnv.
Seconds are those of training; looking at a policy is not counted. "not within" says that training ended below.

    python benchmarks/agent_speed.py [--weights -0.3 -0.7] [--gamma 0.99] [--patients 10] [--seed 0] [--limit 300]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import cirl_gym
from agents.evaluation import noise_free_values
from agents.solvers import ALGORITHMS, Curve, Point, Setting, Watcher, train_expert
from cirl_gym import dynamics
from cirl_gym.exhaustive import optimum
from cirl_gym.types import Policy
from irl.findings import ConstantPolicy

SHARE = 0.95
WATCHES = 50
MOST = 2_000_000
"""Steps that RecurrentPPO as it comes may take; time ends it earlier."""


class Deadline(BaseCallback):
    """Stops a training after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._end = time.perf_counter() + seconds

    def _on_step(self) -> bool:
        return time.perf_counter() < self._end


def as_it_comes(setting: Setting, watch: Watcher, target: float, seed: int, limit: float) -> tuple[Point, ...]:
    """RecurrentPPO with its own settings on a DummyVecEnv of eight environments."""
    env = make_vec_env("CIRLTumour-v0", 8, seed=seed, env_kwargs={"weights": setting.weights})
    algorithm = RecurrentPPO("MlpLstmPolicy", env, gamma=setting.gamma, seed=seed, device="cpu")
    curve = Curve(watch, MOST, until=target, watches=MOST // 2_000)
    return curve.finished(algorithm.learn(MOST, callback=[curve, Deadline(limit)]))


def reached(curve: tuple[Point, ...], target: float) -> str:
    """When the target was reached, or what was."""
    for point in curve:
        if point.value >= target:
            return f"{point.seconds:7.1f} s  {point.steps:9,} steps"
    best = max(point.value for point in curve)
    return f"not within {curve[-1].seconds:.0f} s, {curve[-1].steps:,} steps (best {best:.4f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=float, nargs=2, default=(-0.3, -0.7))
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--patients", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300, help="seconds for RecurrentPPO as it comes")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cirl_gym.register_envs()
    setting = Setting(tuple(arguments.weights), arguments.gamma)
    starts = dynamics.draw_start(setting.parameters, arguments.patients, np.random.default_rng(7))

    def watch(policy: Policy) -> float:
        return float(noise_free_values(policy, setting.parameters, starts, setting.weights, setting.gamma).mean())

    best = float(optimum(setting.parameters, starts, [(setting.weights, setting.gamma)]).values.mean())
    chance = float(np.mean([watch(ConstantPolicy(None, 2, np.random.default_rng(i))) for i in range(20)]))
    target = chance + SHARE * (best - chance)
    print(
        f"weights {setting.weights}, gamma {setting.gamma}: random {chance:.4f}, optimal {best:.4f}, 95 % {target:.4f}"
    )
    for algorithm in ALGORITHMS:
        found = train_expert(setting, algorithm, watch, seed=arguments.seed, until=target, watches=WATCHES)
        print(f"{algorithm:>14}, ours: {reached(found.curve, target)}", flush=True)
    curve = as_it_comes(setting, watch, target, arguments.seed, arguments.limit)
    print(f" recurrent_ppo as is: {reached(curve, target)}", flush=True)


if __name__ == "__main__":
    main()
