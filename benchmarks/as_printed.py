"""Whether the fast way is as good as the loop as printed: weights, returns and accuracy, same batch, model and seeds.

Both loops start with the same weights and project on the same mu_E; only who finds a policy and its mu differs. What
each picks, w_K and its policy (paper, Algorithm 1), is judged beside the posterior mean and the true weights' policy.
With ``--at-truth`` each solver also gets the true weights, in one training as printed.

    python benchmarks/as_printed.py [--gamma 0.99] [--seeds 1] [--iterations 20000] [--rounds 50] [--at-truth]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from agents.as_printed.learning import RollOutConfig, rolled_out_mu
from agents.candidates import Candidate, learnt_candidates, successor_candidates
from agents.solvers import SIX_SETTINGS, Setting, ready_expert
from agents.successor.agent import SuccessorPolicy
from agents.successor.training import Problem, uniform_weights
from cirl_gym import Batch, TumourParameters, TumourWorld, rollout
from cirl_gym.data.features import draw_weights
from cirl_gym.data.rollout import act_along
from cirl_gym.types import FloatArray, Policy
from irl.checks.metrics import accuracy, mean_and_error, simulated_returns
from irl.max_margin.loop import MaxMarginResult, max_margin
from irl.pipeline import Fit, fit
from irl.settings import FitConfig
from irl.stages import duration, stages
from irl.study import Study

PARAMETERS = TumourParameters()
SIGNS = np.array([-1.0, -1.0])
KAPPA = 100.0


@dataclass(frozen=True)
class Case:
    """What both ways get."""

    setting: Setting
    seed: int
    found: Fit
    world: Problem
    test: Batch

    def judged(self, name: str, policy: Policy, w: FloatArray, seconds: float | None = None) -> None:
        """Print what weights and their policy are worth."""
        truth = np.array(self.setting.weights)
        earned = simulated_returns(policy, PARAMETERS, self.found.feature_map, truth, self.seed)
        mean, error = mean_and_error(earned)
        met = accuracy(act_along(policy, self.test), self.test)
        spent = "" if seconds is None else f", {duration(seconds)}"
        print(
            f"  {name:34} tumour {w[0]:+.3f} (error {abs(w[0] - truth[0]):.3f}), return {mean:.3f} +- {error:.3f}, "
            f"accuracy {met:.3f}{spent}",
            flush=True,
        )


def prepared(setting: Setting, seed: int, episodes: int, experts: Path) -> Case:
    """A batch of the setting's expert, and everything that the fast way finds in it."""
    policy = ready_expert(setting, folder=experts)
    assert isinstance(policy, SuccessorPolicy)
    drawing, splitting = (np.random.default_rng(s) for s in np.random.SeedSequence([seed, 7]).spawn(2))
    expert = policy.agent.policy(setting.weights, KAPPA, seed)
    played = rollout(TumourWorld(PARAMETERS), expert, episodes + 500, drawing, deterministic=False)
    train, validation = played.take(np.arange(episodes)).split(0.1, splitting)
    config = FitConfig(gamma=setting.gamma).whole(PARAMETERS.horizon)
    feature_map = PARAMETERS.feature_map
    with stages(8, quiet=True) as watch:
        found = fit(Study(train, validation, feature_map, SIGNS, config, seed, watch))
    ended = train.with_early_ends(PARAMETERS.horizon)
    world = Problem(
        found.model.model,
        feature_map,
        train.start,
        PARAMETERS.horizon,
        setting.gamma,
        uniform_weights(SIGNS),
        histories=ended,
    )
    case = Case(setting, seed, found, world, played.take(np.arange(episodes, len(played))))
    print(
        f"w {setting.weights}, gamma {setting.gamma}, kappa {KAPPA:g}, seed {seed}, {episodes:,} episodes", flush=True
    )
    w = np.array(setting.weights)
    case.judged("experts (greedy)", policy.agent.policy(w), w)
    case.judged("fast: posterior mean", found.policy, found.weights)
    return case


def solvers(case: Case, iterations: int) -> dict[str, Callable[[FloatArray], Candidate]]:
    """Both answers to weights, fast first."""
    config, rng = replace(FitConfig().histories, iterations=iterations), np.random.default_rng(case.seed)
    fast = successor_candidates(case.found.agent, case.world, FitConfig().starts)
    return {"fast": fast, "as printed": learnt_candidates(case.found.agent, case.world, "drqn", config, rng)}


def loops(case: Case, iterations: int, rounds: int) -> None:
    """The whole loop of both, and what each picks."""
    first = draw_weights(SIGNS, np.random.default_rng([case.seed, 8]))
    for name, solve in solvers(case, iterations).items():
        begun = time.perf_counter()
        loop: MaxMarginResult = max_margin(
            case.found.mu_expert.mean, solve, first, rounds=rounds, tolerance=1e-3, signs=SIGNS
        )
        seconds = time.perf_counter() - begun
        print(f"  {name} loop: {len(loop.rounds)} rounds from {first[0]:+.3f}, margin {loop.margin:.4f}, {loop.stop}")
        case.judged(f"{name}: w_K", loop.policy, loop.weights, seconds)
        case.judged(f"{name}: last direction", loop.policies[-1], loop.last_weights)


def at_truth(case: Case, iterations: int) -> None:
    """One policy and its mu for the true weights by both, its mu beside that of roll-outs in the world model."""
    w = np.array(case.setting.weights)
    rolled = partial(rolled_out_mu, problem=case.world, config=RollOutConfig(), seed=1)
    for name, solve in solvers(case, iterations).items():
        begun = time.perf_counter()
        candidate = solve(w)
        seconds = time.perf_counter() - begun
        case.judged(f"{name}: policy of the true weights", candidate.policy, w, seconds)
        played, experts = rolled(candidate.policy), np.round(case.found.mu_expert.mean, 3)
        print(
            f"    mu {np.round(candidate.mu, 3)}, by roll-outs {np.round(played, 3)}, "
            f"differs by {np.linalg.norm(candidate.mu - played):.3f}; experts' mu {experts}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gamma", type=float, nargs="+", default=[0.99])
    parser.add_argument("--weights", type=float, nargs="+", help="tumour weights; default: those of the six settings")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--iterations", type=int, default=20_000, help="of each training as printed")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--at-truth", action="store_true", help="only one policy each, for the true weights")
    parser.add_argument("--experts", type=Path, default=Path("runs/experts"), help="where trained experts are kept")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(arguments.seeds):
        for setting in SIX_SETTINGS:
            if setting.gamma not in arguments.gamma or setting.weights[0] not in (
                arguments.weights or [setting.weights[0]]
            ):
                continue
            case = prepared(setting, seed, arguments.episodes, arguments.experts)
            if arguments.at_truth:
                at_truth(case, arguments.iterations)
            else:
                loops(case, arguments.iterations, arguments.rounds)


if __name__ == "__main__":
    main()
