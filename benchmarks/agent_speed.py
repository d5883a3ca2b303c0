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
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

import cirl_gym
from agents import SOLVERS, Solver
from agents.expert import noise_free_values
from agents.solvers import Curve, Point, Setting, Watcher, train_expert
from cirl_gym.types import Policy
from cirl_gym.worlds import tumour
from cirl_gym.worlds.exact import optimum
from irl.evaluation import ConstantPolicy

SHARE = 0.95
WATCHES = 50
MOST = 2_000_000
"""Steps that RecurrentPPO as it comes may take; time ends it earlier."""


class Race(NamedTuple):
    """What has to be reached."""

    setting: Setting
    """What is to be solved."""
    watch: Watcher
    """Says what a policy is worth."""
    target: float
    """What it must be worth."""


class Deadline(BaseCallback):
    """Stops a training after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._end = time.perf_counter() + seconds

    def _on_step(self) -> bool:
        return time.perf_counter() < self._end


def as_it_comes(race: Race, seed: int, limit: float) -> tuple[Point, ...]:
    """RecurrentPPO with its own settings on a DummyVecEnv of eight environments."""
    env = make_vec_env("CIRLTumour-v0", 8, seed=seed, env_kwargs={"weights": race.setting.weights})
    algorithm = RecurrentPPO("MlpLstmPolicy", env, gamma=race.setting.gamma, seed=seed, device="cpu")
    curve = Curve(race.watch, MOST, until=race.target, watches=MOST // 2_000)
    return curve.finished(algorithm.learn(MOST, callback=[curve, Deadline(limit)]))


def reached(curve: tuple[Point, ...], target: float) -> str:
    """When the target was reached, or what was."""
    for point in curve:
        if point.value >= target:
            return f"{point.seconds:7.1f} s  {point.steps:9,} steps"
    best = max(point.value for point in curve)
    return f"not within {curve[-1].seconds:.0f} s, {curve[-1].steps:,} steps (best {best:.4f})"


def options(description: str, limited: str) -> argparse.ArgumentParser:
    """What is raced for, on whom, and how many seconds ``limited`` has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--weights", type=float, nargs=2, default=(-0.3, -0.7))
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--patients", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300, help=f"seconds for {limited}")
    return parser


def begin(weights: tuple[float, float], gamma: float, patients: int) -> Race:
    """A race on one core, announced."""
    torch.set_num_threads(1)
    cirl_gym.register_envs()
    setting = Setting((weights[0], weights[1]), gamma)
    starts = tumour.draw_start(setting.parameters, patients, np.random.default_rng(7))

    def watch(policy: Policy) -> float:
        return float(noise_free_values(policy, setting.parameters, starts, setting.weights, gamma).mean())

    best = float(optimum(setting.parameters, starts, [(setting.weights, gamma)]).values.mean())
    chance = float(np.mean([watch(ConstantPolicy(None, 2, np.random.default_rng(i))) for i in range(20)]))
    target = chance + SHARE * (best - chance)
    print(f"weights {setting.weights}, gamma {gamma}: random {chance:.4f}, optimal {best:.4f}, 95 % {target:.4f}")
    return Race(setting, watch, target)


def run_ours(race: Race, algorithms: Iterable[Solver], seed: int) -> None:
    """Train with this package, one after the other, and print when each got there."""
    for algorithm in algorithms:
        found = train_expert(race.setting, algorithm, race.watch, seed=seed, until=race.target, watches=WATCHES)
        print(f"{algorithm:>14}, ours: {reached(found.curve, race.target)}", flush=True)


def main() -> None:
    arguments = options((__doc__ or "").splitlines()[0], "RecurrentPPO as it comes").parse_args()
    race = begin(arguments.weights, arguments.gamma, arguments.patients)
    run_ours(race, SOLVERS, arguments.seed)
    curve = as_it_comes(race, arguments.seed, arguments.limit)
    print(f" recurrent_ppo as is: {reached(curve, race.target)}", flush=True)


if __name__ == "__main__":
    main()
