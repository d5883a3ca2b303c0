"""Print the README's tables of returns in the simulator, to check an installation against.

Run: python examples/baseline_returns.py [--episodes 1000] [--patients 50] [--seed 0]

Every policy treats the same patients under the same noise, since patients differ by more than good policies do. The
optimum is found by exhaustive search without noise: all 2^20 plans of one patient at once, about a second each. What a
policy falls short of it is measured without noise too, patient by patient.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agents.expert import EXPERT, Expert, successor_expert
from agents.policies.policy import ConstantPolicy
from cirl_gym import Batch, TumourParameters, TumourWorld, rollout
from cirl_gym.data.rollout import discounted, returns
from cirl_gym.types import FloatArray, IntArray, Policy
from cirl_gym.worlds import tumour
from cirl_gym.worlds.exact import optimum

PARAMETERS = TumourParameters()
FEATURE_MAP = PARAMETERS.feature_map
GAMMA, KAPPA = 0.99, 100.0
WEIGHTS = np.array([-0.3, -0.7])
THREE_WEIGHTS = tuple(np.array(w) for w in ((-0.3, -0.7), (-0.5, -0.5), (-0.7, -0.3)))
"""The paper's three trade-offs between tumour and side effects."""
CRITERIA = ((WEIGHTS, 1.0), *((w, GAMMA) for w in THREE_WEIGHTS))
"""(w, gamma) of every optimum that is searched for."""


@dataclass(frozen=True)
class Mean:
    """A mean over n patients and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: FloatArray) -> Mean:
        return cls(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.error:.3f}"


class Plans:
    """One plan ``[n, T]`` per patient, carried out whatever is seen."""

    def __init__(self, plans: IntArray) -> None:
        self.plans = plans

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[IntArray, tuple[IntArray]]:
        time = np.zeros(len(observation), dtype=np.int64) if state is None else state[0]
        return self.plans[np.arange(len(observation)), time], (time + 1,)


def draw_patients(n: int, seed: int) -> FloatArray:
    """First (tumour, side effects) ``[n, 2]``."""
    return tumour.draw_start(PARAMETERS, n, np.random.default_rng([seed, 0]))


def treat(policy: Policy, patients: FloatArray, seed: int, *, noise: bool, deterministic: bool = True) -> Batch:
    """One episode per patient; the same seed gives every policy the same noise."""
    world = TumourWorld(PARAMETERS, noise=noise)
    rng = np.random.default_rng([seed, 1])
    return rollout(world, policy, len(patients), rng, deterministic=deterministic, start=world.start(patients))


def constant_policies(seed: int) -> dict[str, Policy]:
    """The baselines that look at nothing."""
    rng = np.random.default_rng([seed, 2])
    return {
        "random": ConstantPolicy(None, 2, rng),
        "never treat": ConstantPolicy(0, 2, rng),
        "always treat": ConstantPolicy(1, 2, rng),
    }


def simulated_returns(batch: Batch) -> tuple[Mean, Mean]:
    """Undiscounted and discounted return for :data:`WEIGHTS`."""
    return Mean.of(returns(batch, FEATURE_MAP, WEIGHTS)), Mean.of(returns(batch, FEATURE_MAP, WEIGHTS, GAMMA))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def trained_expert(seed: int) -> Expert:
    """The expert of ``cirl demo``."""
    rng = np.random.default_rng([seed, 3])
    return successor_expert(PARAMETERS, WEIGHTS, GAMMA, KAPPA, EXPERT, rng)


def returns_table(expert: Expert, episodes: int, patients: FloatArray, optima: IntArray, seed: int) -> str:
    """Returns of every policy, and what it falls short of the best plans ``optima [n, len(CRITERIA), T]``."""
    everybody = draw_patients(episodes, seed)
    ideal = returns(treat(Plans(optima[:, 1]), patients, seed, noise=False), FEATURE_MAP, WEIGHTS, GAMMA)
    rows = []
    policies = [(name, policy, True) for name, policy in constant_policies(seed).items()]
    policies += [(f"expert, kappa {KAPPA:g}", expert.policy(seed), False), ("expert, greedy", expert.policy(), True)]
    for name, policy, deterministic in policies:
        noisy = treat(policy, everybody, seed, noise=True, deterministic=deterministic)
        plain = treat(policy, patients, seed, noise=False, deterministic=deterministic)
        short = Mean.of(ideal - returns(plain, FEATURE_MAP, WEIGHTS, GAMMA))
        rows.append([name, *(str(mean) for mean in simulated_returns(noisy)), str(short)])
        if name == "expert, greedy":
            rows.append([f"{name}, no noise", *(str(mean) for mean in simulated_returns(plain)), str(short)])
    sums = (
        Mean.of(returns(treat(Plans(optima[:, i]), patients, seed, noise=False), FEATURE_MAP, WEIGHTS, gamma))
        for i, (_, gamma) in enumerate(CRITERIA[:2])
    )
    rows.append(["optimal, no noise", *(str(mean) for mean in sums), "0"])
    return table(["policy", "undiscounted", f"gamma {GAMMA:g}", f"short of optimal, gamma {GAMMA:g}"], rows)


def optima_table(patients: FloatArray, optima: IntArray, seed: int) -> str:
    """What the best plans for three weights do, and what the plans for other weights would lose under them."""
    played = [treat(Plans(optima[:, i]), patients, seed, noise=False) for i in range(1, len(CRITERIA))]
    rows = []
    for w, batch in zip(THREE_WEIGHTS, played, strict=True):
        mu = discounted(batch, FEATURE_MAP(batch.next_obs), GAMMA).mean(axis=0)
        share = batch.actions[batch.mask].mean()
        own = returns(batch, FEATURE_MAP, w, GAMMA)
        lost = [Mean.of(own - returns(other, FEATURE_MAP, w, GAMMA)) for other in played]
        rows.append([_name(w), f"{mu[0]:.2f}, {mu[1]:.2f}", f"{100 * share:.0f} %", *(f"{a.value:.3f}" for a in lost)])
    others = [f"lost by the plans for {_name(w)}" for w in THREE_WEIGHTS]
    return table(["w", "mu (tumour, side effects)", "treated steps", *others], rows)


def _name(w: FloatArray) -> str:
    return f"({w[0]:g}, {w[1]:g})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Returns of baselines, expert and optimum in the simulator.")
    parser.add_argument("--episodes", type=int, default=1000, help="patients with noise")
    parser.add_argument("--patients", type=int, default=50, help="patients without noise, for the optimum")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    patients = draw_patients(arguments.episodes, arguments.seed)[: arguments.patients]
    optima = optimum(PARAMETERS, patients, CRITERIA).plans
    expert = trained_expert(arguments.seed)
    print(returns_table(expert, arguments.episodes, patients, optima, arguments.seed), end="\n\n")
    print(optima_table(patients, optima, arguments.seed))


if __name__ == "__main__":
    main()
