"""How fast ``CIRLTumour-v0`` steps under Stable-Baselines3: the native form, beside its own loop over environments.

Four ways to step n patients with random actions on one core, measured in turns within one run, so that what slows the
machine down slows all four:

- dummy: ``make_vec_env(id, n)``, Stable-Baselines3's ``DummyVecEnv`` of n environments in a ``Monitor`` each;
- native: ``gymnasium.make_vec(id, n)``, which Stable-Baselines3 cannot take, with resets in the same step;
- adapter: ``NativeVecEnv`` around it, which it can;
- monitor: ``VecMonitor`` around that, what ``make_native_vec_env(id, n)`` gives and what does the work of dummy.

Numbers differ between machines; the ratios are what to compare.

    python benchmarks/sb3_speed.py [--seconds 0.4] [--rounds 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from agents.sb3_vec_env import make_native_vec_env

ENV_ID = "cirl_gym:CIRLTumour-v0"
SIZES = (64, 1024)
ACTIONS = 50
"""Rows of actions drawn in advance, used over and over."""

Stepper = Callable[[np.ndarray], object]


def native_stepper(n: int) -> Stepper:
    """Step function of the bare vector environment."""
    envs = gym.make_vec(ENV_ID, num_envs=n, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    return envs.step


def begun(env: VecEnv) -> Stepper:
    """Step function of an environment of Stable-Baselines3, after its reset."""
    env.reset()
    return env.step


def steppers(n: int) -> dict[str, Stepper]:
    """The four ways with n patients."""
    return {
        # Without the pictures that make_vec_env asks for by default, and that the others do not prepare either.
        "dummy": begun(make_vec_env(ENV_ID, n, seed=0, env_kwargs={"render_mode": None})),
        "native": native_stepper(n),
        "adapter": begun(make_native_vec_env(ENV_ID, n, seed=0, monitor=False)),
        "monitor": begun(make_native_vec_env(ENV_ID, n, seed=0)),
    }


def steps_per_second(step: Stepper, actions: np.ndarray, seconds: float) -> float:
    """Patient steps per second, over whole rows of actions until the time is up."""
    done, started = 0, time.perf_counter()
    while True:
        for row in actions:
            step(row)
            done += len(row)
            if (spent := time.perf_counter() - started) >= seconds:
                return done / spent


def measure(n: int, seconds: float, rounds: int) -> dict[str, float]:
    """Median steps per second of each way."""
    actions = np.random.default_rng(1).integers(2, size=(ACTIONS, n))
    ways = steppers(n)
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, step in ways.items():
            speeds[way].append(steps_per_second(step, actions, seconds))
    return {way: float(np.median(values)) for way, values in speeds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.4, help="per measurement")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each, of which the median is shown")
    arguments = parser.parse_args()
    print(
        f"{'envs':>5} {'dummy':>10} {'native':>10} {'adapter':>10} {'monitor':>10}  "
        f"{'adapter/dummy':>13} {'monitor/dummy':>13} {'adapter/native':>14} {'monitor/native':>14}"
    )
    for n in SIZES:
        speed = measure(n, arguments.seconds, arguments.rounds)
        counts = " ".join(f"{value:10,.0f}" for value in speed.values())
        over_dummy = " ".join(f"{speed[way] / speed['dummy']:12.2f}x" for way in ("adapter", "monitor"))
        over_native = " ".join(f"{speed[way] / speed['native']:13.2f}x" for way in ("adapter", "monitor"))
        print(f"{n:5d} {counts}  {over_dummy} {over_native}", flush=True)
    print("patient steps per second; median of", arguments.rounds)


if __name__ == "__main__":
    main()
