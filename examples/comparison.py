"""What the scripts for other libraries share: demonstrations, five-step histories, and a table of returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from baseline_returns import PARAMETERS, constant_policies, draw_patients, simulated_returns, trained_expert, treat

from cirl_gym import Batch, TumourWorld, rollout
from cirl_gym.types import Float32Array, IntArray, Policy
from cirl_gym.wrappers.history import grown

FRAMES = 5
"""The process remembers its last five steps, so a policy that sees five observations, each with the action before it,
needs no memory of its own."""


def demonstrations(path: Path | None, episodes: int, seed: int) -> Batch:
    """What an expert did for ``episodes`` patients: from a file that ``cirl demo`` wrote, or by training one (20 s)."""
    if path is not None:
        batch = Batch.load(path)
        batch = batch.take(np.arange(min(episodes, len(batch))))
    else:
        print("training the expert (about 20 s; --batch FILE takes its episodes from a file)", flush=True)
        expert, rng = trained_expert(seed).policy(seed), np.random.default_rng([seed, 4])
        batch = rollout(TumourWorld(PARAMETERS), expert, episodes, rng, deterministic=False)
    print(f"{len(batch)} demonstrations, mean return {simulated_returns(batch)[0]}", flush=True)
    return batch


def histories(seen: Float32Array) -> Float32Array:
    """What ``HistoryObservation(env, length=5)`` shows where the environment alone shows ``seen [N, T+1, k]``."""
    rows = np.zeros((len(seen), FRAMES, seen.shape[2] + 1), dtype=np.float32)
    shown = []
    for step in range(seen.shape[1]):
        rows = grown(rows, seen[:, step])
        shown.append(rows.reshape(len(rows), -1))
    return np.stack(shown, axis=1)


class Feedforward:
    """A function of the last five observations, as :func:`histories` has them, as a policy of this project."""

    def __init__(self, act: Callable[[Float32Array], Any]) -> None:
        self.act = act

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[IntArray, tuple[Float32Array]]:
        """Actions ``[n]``, and the last five observations to hand to the next call."""
        n, k = observation.shape
        rows = grown(np.zeros((n, FRAMES, k + 1), dtype=np.float32) if state is None else state[0], observation)
        return np.asarray(self.act(rows.reshape(n, -1)), dtype=np.int64), (rows,)


def print_returns(learnt: Mapping[str, Policy], episodes: int, seed: int) -> None:
    """Mean return (not discounted) of what was learnt and of what looks at nothing, on the same patients and noise."""
    patients = draw_patients(episodes, seed)
    print(f"mean return over {episodes} patients, ± standard error")
    for name, policy in {**learnt, **constant_policies(seed)}.items():
        print(f"{name:<16}{simulated_returns(treat(policy, patients, seed, noise=True))[0]}")
