"""How fast both environments step: the native vector forms, beside Gymnasium's own and beside bare NumPy.

``CIRLTumour-v0``, n patients with random actions on one core:

- native: ``make_vec(id, n)``, the vector form of this package;
- sync: ``make_vec(id, n, vectorization_mode="sync")``, Gymnasium's loop over n single environments, as it builds them;
- plain: the recursion alone as one would write it in NumPy, ten lines, without episodes, observations or rewards;
- equations: ``cirl_gym.worlds.tumour`` alone, whose arrays are laid out for speed: noise, transition and end flags.

``CIRLCounterfactual-v0`` with its packaged model: native, and a single environment (one history at a time).

All are measured in turns within one run, so that what slows the machine down slows all of them. Numbers differ between
machines; the ratios are what to compare. Both vector forms reset an ended episode with the next step, and that step
counts as one in both.

    python benchmarks/env_speed.py [--seconds 0.4] [--rounds 3]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np

import cirl_gym
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import TumourParameters

SIZES = (1, 64, 1024, 16384)
MOST_SYNC = 1024
"""More single environments take a minute to build and say nothing new."""
ACTIONS = 50
"""Rows of actions drawn in advance, used over and over."""

Stepper = Callable[[np.ndarray], object]


def vector_stepper(env_id: str, n: int, mode: str) -> Stepper:
    """Step function of a vector environment with n rows."""
    envs = gym.make_vec(env_id, num_envs=n, vectorization_mode=mode)
    envs.reset(seed=0)
    return envs.step


def single_stepper(env_id: str) -> Stepper:
    """One environment, reset where an episode ends; a reset counts as no step."""
    env = gym.make(env_id)
    env.reset(seed=0)

    def step(actions: np.ndarray) -> None:
        _, _, terminated, truncated, _ = env.step(actions[0])
        if terminated or truncated:
            env.reset()

    return step


def equations_stepper(n: int) -> Stepper:
    """The equations alone, without episodes."""
    parameters, rng = TumourParameters(), np.random.default_rng(0)
    state = tumour.initial_state(parameters, tumour.draw_start(parameters, n, rng))

    def step(actions: np.ndarray) -> object:
        nonlocal state
        noise = np.multiply(parameters.noise, rng.standard_normal((n, 2)), order="F")
        state = tumour.transition(parameters, state, actions, noise)
        return tumour.terminal(parameters, state)

    return step


def plain_stepper(n: int) -> Stepper:
    """The recursion as one would write it."""
    rng = np.random.default_rng(0)
    x, z = np.repeat(rng.normal(30, 5, (n, 1)), 5, axis=1), np.repeat(rng.uniform(0, 4, (n, 1)), 5, axis=1)
    doses = np.zeros((n, 5))

    def step(actions: np.ndarray) -> object:
        doses[:, 1:], doses[:, 0] = doses[:, :-1].copy(), actions
        given, noise = doses.sum(axis=1), rng.normal(0, 0.1, (n, 2))
        new_x = np.clip(x.mean(axis=1) - 2.5 * given + 2.5 + noise[:, 0], 0, None)
        new_z = np.clip(z.mean(axis=1) + given - 2.5 + noise[:, 1], 0, None)
        x[:, 1:], x[:, 0] = x[:, :-1].copy(), new_x
        z[:, 1:], z[:, 0] = z[:, :-1].copy(), new_z
        return (new_x <= 0) | (new_x >= 50) | (new_z >= 15)

    return step


def steps_per_second(step: Stepper, actions: np.ndarray, rows: int, seconds: float) -> float:
    """Steps per second of ``rows`` processes, over whole rows of actions until the time is up."""
    done, begun = 0, time.perf_counter()
    while True:
        for row in actions:
            step(row)
            done += rows
            if (spent := time.perf_counter() - begun) >= seconds:
                return done / spent


def measure(steppers: dict[str, tuple[Stepper, int]], n: int, seconds: float, rounds: int) -> dict[str, float]:
    """Median steps per second of each way, given with the number of processes that it steps."""
    actions = np.random.default_rng(1).integers(tumour.N_ACTIONS, size=(ACTIONS, n))
    speeds: dict[str, list[float]] = {way: [] for way in steppers}
    for _ in range(rounds):
        for way, (step, rows) in steppers.items():
            speeds[way].append(steps_per_second(step, actions, rows, seconds))
    return {way: float(np.median(values)) for way, values in speeds.items()}


def line(n: int, speed: dict[str, float]) -> str:
    """Speeds, then how many times as fast as each of the others the native form is."""
    counts = "".join(f"  {way} {value:,.0f}" for way, value in speed.items())
    ratios = "".join(f"  {speed['native'] / value:.2f}x {way}" for way, value in speed.items() if way != "native")
    return f"{n:6d} {counts}\n       native is{ratios}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.4, help="per measurement")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, of which the median is shown")
    arguments = parser.parse_args()
    cirl_gym.register_envs()
    native, sync = "vector_entry_point", "sync"
    print("steps per second; median of", arguments.rounds)
    print("CIRLTumour-v0")
    for n in SIZES:
        steppers = {"native": (vector_stepper("CIRLTumour-v0", n, native), n)}
        if n <= MOST_SYNC:
            steppers["sync"] = (vector_stepper("CIRLTumour-v0", n, sync), n)
        steppers |= {"plain": (plain_stepper(n), n), "equations": (equations_stepper(n), n)}
        print(line(n, measure(steppers, n, arguments.seconds, arguments.rounds)), flush=True)
    print("CIRLCounterfactual-v0")
    for n in SIZES:
        steppers = {
            "native": (vector_stepper("CIRLCounterfactual-v0", n, native), n),
            "single": (single_stepper("CIRLCounterfactual-v0"), 1),
        }
        print(line(n, measure(steppers, n, arguments.seconds, arguments.rounds)), flush=True)


if __name__ == "__main__":
    main()
