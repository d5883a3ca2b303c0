"""How fast ``CIRLTumour-v0`` steps: the native vector form, beside Gymnasium's own and beside the bare equations.

Three ways to step n patients with random actions on one core, measured in turns within one run, so that what slows the
machine down slows all three:

- native: ``make_vec(id, n)``, the vector form of this package;
- sync: ``make_vec(id, n, vectorization_mode="sync")``, Gymnasium's loop over n single environments, as it builds them;
- floor: noise, transition and end flags of ``cirl_gym.dynamics`` alone, which no environment can undercut.

Numbers differ between machines; the ratios are what to compare. Both vector forms reset an ended episode with the next
step, and that step counts as one in both.

    python benchmarks/env_speed.py [--seconds 0.4] [--rounds 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np

import cirl_gym
from cirl_gym import dynamics
from cirl_gym.parameters import TumourParameters

SIZES = (1, 64, 1024)
WAYS = ("native", "sync", "floor")
ACTIONS = 50
"""Rows of actions drawn in advance, used over and over."""

Stepper = Callable[[np.ndarray], object]


def vector_stepper(n: int, mode: str | None) -> Stepper:
    """Step function of a vector environment with n patients."""
    cirl_gym.register_envs()
    envs = gym.make_vec("CIRLTumour-v0", num_envs=n, vectorization_mode=mode)
    envs.reset(seed=0)
    return envs.step


def bare_stepper(n: int) -> Stepper:
    """The equations alone, without episodes."""
    parameters, rng = TumourParameters(), np.random.default_rng(0)
    state = dynamics.initial_state(parameters, dynamics.draw_start(parameters, n, rng))

    def step(actions: np.ndarray) -> object:
        nonlocal state
        state = dynamics.transition(parameters, state, actions, parameters.noise * rng.standard_normal((n, 2)))
        return dynamics.terminal(parameters, state)

    return step


def steps_per_second(step: Stepper, actions: np.ndarray, seconds: float) -> float:
    """Patient steps per second, over whole rows of actions until the time is up."""
    done, begun = 0, time.perf_counter()
    while True:
        for row in actions:
            step(row)
            done += len(row)
            if (spent := time.perf_counter() - begun) >= seconds:
                return done / spent


def measure(n: int, seconds: float, rounds: int) -> dict[str, float]:
    """Median steps per second of each way."""
    actions = np.random.default_rng(1).integers(dynamics.N_ACTIONS, size=(ACTIONS, n))
    steppers = {"native": vector_stepper(n, None), "sync": vector_stepper(n, "sync"), "floor": bare_stepper(n)}
    speeds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, step in steppers.items():
            speeds[way].append(steps_per_second(step, actions, seconds))
    return {way: float(np.median(values)) for way, values in speeds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.4, help="per measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, of which the median is shown")
    arguments = parser.parse_args()
    print(f"{'envs':>5} {'native':>12} {'sync':>12} {'floor':>12}  {'native/sync':>11} {'native/floor':>12}")
    for n in SIZES:
        speed = measure(n, arguments.seconds, arguments.rounds)
        counts = " ".join(f"{speed[way]:12,.0f}" for way in WAYS)
        ratios = f"{speed['native'] / speed['sync']:10.2f}x {speed['native'] / speed['floor']:11.2f}x"
        print(f"{n:5d} {counts}  {ratios}", flush=True)
    print("patient steps per second; median of", arguments.rounds)


if __name__ == "__main__":
    main()
