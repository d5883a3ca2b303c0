"""How often the truth comes back: weights, intervals and identified sets of simulated experts, over settings and seeds.

For each setting and seed an expert treats new patients, and everything else is done as ``cirl demo`` does it, but for
the behaviour cloning. One line is printed for each run; runs whose file is there already are not repeated.

    python benchmarks/recovery.py [--gamma 0.99 0.5] [--kappa 100] [--seeds 3] [--model crn] [--out runs/recovery]
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stored import stored

from agents.solvers import SIX_SETTINGS, Setting, ready_expert
from agents.successor.agent import SuccessorPolicy
from cirl_gym import Batch, TumourParameters, TumourWorld, rollout
from irl.checks.metrics import coverage, same_order
from irl.pipeline import Study, fit
from irl.result.sentences import WIDE
from irl.settings import FitConfig
from irl.stages import stages

PARAMETERS = TumourParameters()
SIGNS = np.array([-1.0, -1.0])


@dataclass(frozen=True)
class Run:
    """What is asked for."""

    weights: tuple[float, float]
    gamma: float
    kappa: float
    seed: int
    episodes: int
    model: str

    @property
    def file(self) -> str:
        return (
            "_".join(map(str, (*self.weights, self.gamma, self.kappa, self.seed, self.episodes, self.model))) + ".json"
        )


def seen(run: Run, experts: Path) -> tuple[Batch, Batch]:
    """Training and validation episodes of the setting's expert, who is trained once, with the seed's patients."""
    policy = ready_expert(Setting(run.weights, run.gamma, PARAMETERS), folder=experts)
    assert isinstance(policy, SuccessorPolicy)
    drawing, deciding, splitting = np.random.SeedSequence([run.seed, 6]).spawn(3)
    expert = policy.agent.policy(run.weights, run.kappa, int(deciding.generate_state(1)[0]))
    batch = rollout(TumourWorld(PARAMETERS), expert, run.episodes, np.random.default_rng(drawing), deterministic=False)
    return batch.split(0.1, np.random.default_rng(splitting))


def recover(run: Run, experts: Path) -> dict[str, Any]:
    """One whole fit."""
    config = FitConfig(gamma=run.gamma, model=run.model)  # type: ignore[arg-type]
    brief = replace(config.cloning.training, epochs=1)
    config = replace(config, cloning=replace(config.cloning, training=brief)).whole(PARAMETERS.horizon)
    train, validation = seen(run, experts)
    feature_map = PARAMETERS.feature_map
    with stages(8, quiet=True) as watch:
        found = fit(Study(train, validation, feature_map, SIGNS, config, run.seed, watch))
    posterior, identified, loop = found.posterior, found.identified, found.loop
    return {
        **asdict(run),
        "estimate": posterior.mean.tolist(),
        "interval": [float(posterior.low[0]), float(posterior.high[0])],
        "identified": [float(identified.low[0]), float(identified.high[0])],
        "kappa_mean": posterior.kappa_mean,
        "w_K": loop.weights.tolist(),
        "last_direction": loop.last_weights.tolist(),
        "margin": loop.margin,
        "rounds": len(loop.rounds),
        "seconds_per_round": float(np.mean([entry.seconds for entry in loop.rounds[1:] or loop.rounds])),
        "stop": loop.stop,
        "seconds": dict(watch.seconds),
    }


def row(found: dict[str, Any]) -> str:
    """One run in a line."""
    truth, (low, high), (first, last) = found["weights"][0], found["interval"], found["identified"]
    inside, possible = ("holds " if a <= truth <= b else "MISSES" for a, b in ((low, high), (first, last)))
    seconds = sum(found["seconds"].values())
    return (
        f"{found['weights']!s:14} gamma {found['gamma']:<4} kappa {found['kappa']:<5g} seed {found['seed']:<2} "
        f"tumour {found['estimate'][0]:+.3f} [{low:+.3f}, {high:+.3f}] {inside} "
        f"identified [{first:+.3f}, {last:+.3f}] {possible} "
        f"w_K {found['w_K'][0]:+.3f} {found['rounds']:2} rounds {found['stop']:15} {seconds:.0f} s"
    )


def summary(runs: list[dict[str, Any]]) -> list[str]:
    """What all runs together say; shares with their 90 % interval (Clopper and Pearson)."""
    truths = np.array([found["weights"][:1] for found in runs])
    lines = []
    for name in ("interval", "identified"):
        held = coverage(np.array([[found[name]] for found in runs]), truths, level=0.9)
        hits = round(float(held.share[0]) * len(runs))
        lines.append(
            f"{name} holds the true weight in {hits} of {len(runs)} runs ({held.low[0]:.2f} to {held.high[0]:.2f})"
        )
    narrow = [found for found in runs if found["identified"][1] - found["identified"][0] < WIDE]
    if narrow:
        worst = max(abs(found["estimate"][0] - found["weights"][0]) for found in narrow)
        lines.append(f"identified set narrower than {WIDE:g}: {len(narrow)} runs, largest error {worst:.3f}")
    unequal = [found for found in runs if found["weights"][0] != found["weights"][1]]
    right = sum(same_order(found["estimate"], found["weights"]) for found in unequal)
    return [*lines, f"weights in the right order: {right} of {len(unequal)} runs in which they differ"]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--weights", type=float, nargs="+", help="tumour weights; default: those of the six settings")
    parser.add_argument("--gamma", type=float, nargs="+", default=[0.99, 0.5])
    parser.add_argument("--kappa", type=float, nargs="+", default=[100.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--model", default="crn", help="outcome model, as in cirl demo")
    parser.add_argument("--out", type=Path, default=Path("runs/recovery"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    every = dict.fromkeys(setting.weights for setting in SIX_SETTINGS)
    chosen = [w for w in every if arguments.weights is None or w[0] in arguments.weights]
    if not chosen:
        parser.error(f"--weights must be among {', '.join(f'{w[0]:g}' for w in every)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = []
    for seed, gamma, kappa, weights in itertools.product(
        range(arguments.seeds), arguments.gamma, arguments.kappa, chosen
    ):
        run = Run(weights, gamma, kappa, seed, arguments.episodes, arguments.model)
        found.append(stored(arguments.out / run.file, partial(recover, run, arguments.out / "experts")))
        print(row(found[-1]), flush=True)
    print("\n".join(summary(found)))


if __name__ == "__main__":
    main()
