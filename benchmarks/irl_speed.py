"""How long weights take the fast way, against the loop as printed, for batches of several sizes.

The fast way is run whole. Of the loop as printed (appendices C and D: in every round 20,000 iterations of recurrent
Q-learning and as many of mu-learning) some iterations are timed and multiplied: a whole run takes days. Both are timed
on one thread in the same process, so that their ratio says more than their seconds.

    python benchmarks/irl_speed.py [--episodes 1000 10000 100000] [--iterations 20] [--rounds 5]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from agents.as_printed.histories import Histories
from agents.as_printed.learning import learn_mu, learn_policy
from agents.as_printed.training import HistoryTrainingConfig
from agents.candidates import successor_candidates
from agents.solvers import Setting, ready_expert
from agents.successor.agent import SuccessorPolicy
from agents.successor.training import Problem, uniform_weights
from cirl_gym import Batch, TumourParameters, TumourWorld, rollout
from cirl_gym.data.features import draw_weights
from irl.pipeline import Fit, fit
from irl.settings import FitConfig
from irl.stages import duration, stages
from irl.study import Study

SETTING = Setting((-0.3, -0.7), 0.99, TumourParameters())
SIGNS = np.array([-1.0, -1.0])
KAPPA = 100.0


def seen(episodes: int, experts: Path, width: int | None = None) -> Batch:
    """Episodes of the setting's expert, at most 10,000 at once; ``width`` is that of its search, if not its own."""
    policy = ready_expert(SETTING, folder=experts)
    assert isinstance(policy, SuccessorPolicy)
    policy.agent.width = width or policy.agent.width
    rng, world = np.random.default_rng(0), TumourWorld(SETTING.parameters)
    parts = []
    for first in range(0, episodes, 10_000):
        expert = policy.agent.policy(SETTING.weights, KAPPA, first)
        part = rollout(world, expert, min(10_000, episodes - first), rng, deterministic=False)
        names = tuple(str(first + i) for i in range(len(part)))
        parts.append(replace(part, ids=names, groups=names).padded(SETTING.parameters.horizon))
    return Batch.together(parts)


def seconds(work: Callable[[], object]) -> float:
    """Of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def further_round(found: Fit, world: Problem, rounds: int) -> float:
    """Median seconds of a policy and its mu for new weights."""
    solve = successor_candidates(found.agent, world, FitConfig().starts)
    drawn = draw_weights(SIGNS, np.random.default_rng(1), rounds)
    return float(np.median([seconds(lambda w=w: solve(w)) for w in drawn]))  # type: ignore[misc]


def iterations(world: Problem, n: int) -> tuple[float, float]:
    """Seconds of one iteration of recurrent Q-learning, and of mu-learning, as printed."""
    printed = HistoryTrainingConfig.paper()
    few, more = replace(printed, iterations=2), replace(printed, iterations=2 + n)
    w, histories = np.array(SETTING.weights), Histories.of(world, printed.ends)

    def each(work: Callable[[HistoryTrainingConfig], object]) -> float:
        # What is done once, before the first iteration, is no part of an iteration.
        once = seconds(lambda: work(few))
        return (seconds(lambda: work(more)) - once) / n

    policy = learn_policy(histories, w, few, np.random.default_rng(0))
    q = each(lambda config: learn_policy(histories, w, config, np.random.default_rng(0)))
    return q, each(lambda config: learn_mu(histories, policy, config, np.random.default_rng(0)))


def measure(episodes: int, arguments: argparse.Namespace) -> None:
    """One size."""
    train, validation = seen(episodes, arguments.experts).split(0.1, np.random.default_rng(0))
    config = FitConfig(gamma=SETTING.gamma).whole(SETTING.parameters.horizon)
    feature_map = SETTING.parameters.feature_map
    with stages(8, quiet=True) as run:
        found = fit(Study(train, validation, feature_map, SIGNS, config, 0, run))
    sampler = uniform_weights(SIGNS)
    world = Problem(found.model.model, feature_map, train.start, train.horizon, config.gamma, sampler, histories=train)
    further = further_round(found, world, arguments.rounds)
    ended = replace(world, histories=train.with_early_ends(train.horizon))
    q, mu = iterations(ended, arguments.iterations)
    printed = HistoryTrainingConfig.paper().iterations * (q + mu)
    whole, rounds = sum(run.seconds.values()), config.rounds + 1
    print(f"{episodes:,} episodes, one thread")
    print(f"  fast: whole fit {whole:.0f} s ({', '.join(f'{name} {s:.1f}' for name, s in run.seconds.items())})")
    print(f"  fast: {len(found.loop.rounds)} rounds; one further round {further:.3f} s")
    print(f"  as printed: an iteration of Q-learning {1e3 * q:.0f} ms, of mu-learning {1e3 * mu:.0f} ms (measured)")
    print(f"  as printed: one round {duration(printed)}, {rounds} rounds {duration(rounds * printed)} (multiplied)")
    print(f"  as printed / fast: one round {printed / further:,.0f}, whole {rounds * printed / whole:,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--episodes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--iterations", type=int, default=20, help="as printed, that are timed")
    parser.add_argument("--rounds", type=int, default=5, help="the fast way, that are timed")
    parser.add_argument("--experts", type=Path, default=Path("runs/experts"), help="where trained experts are kept")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for episodes in arguments.episodes:
        measure(episodes, arguments)


if __name__ == "__main__":
    main()
