"""Whether the action that a run's explanations call best is the better one in the simulator.

Greedy experts, who always take the action of largest value under the true weights, treat new patients. Every decision
of theirs is explained by the run alone, and the action that serves the outcomes best by its explanation is held against
the exact Q of both actions in the simulator (all plans are tried). Beside the share of decisions: the same of those in
which the two values differ by more than 1 / kappa, how much is lost on average, and how far contributions are from
adding up to the log-odds of these decisions and of all that the run held out.

    python benchmarks/explained_decisions.py [RUN] [--patients 40] [--seed 0]

RUN is a folder of cirl demo; without it a demo is run first. About three seconds a patient.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from cirl_gym.data.rollout import rollout
from cirl_gym.worlds.exact import Patients, PatientsWorld, action_values
from irl.commands.explain import demo
from irl.run import Run
from irl.settings import DemoConfig
from irl.studies.why import Why, why


def measured(folder: Path, patients: int, seed: int = 0) -> dict[str, float]:
    """The figures of a run, by what they are of."""
    run, rng = Run(folder), np.random.default_rng(seed)
    drawn, expert = Patients.draw(run.parameters, patients, rng), run.expert
    batch = rollout(PatientsWorld(drawn), expert.optimal, patients, rng)
    decisions = [(int(row), int(step)) for row, step in zip(*np.nonzero(batch.mask), strict=True)]
    found = why(run.agent, run.posterior, batch, decisions)
    exact = action_values(drawn, batch, expert.w, expert.agent.gamma)[batch.mask]
    best = np.array([one.best for one in found])
    lost = exact.max(axis=1) - exact[np.arange(len(best)), best]
    theirs = np.take_along_axis(exact, batch.actions[batch.mask][:, None], axis=1)[:, 0]
    clear = np.abs(exact[:, 0] - exact[:, 1]) > 1 / run.settings["kappa"]
    held_out = [(int(row), int(step)) for row, step in zip(*np.nonzero(run.test.mask), strict=True)]
    return {
        "decisions of greedy experts": len(best),
        "the action called best has the higher exact Q": float((lost <= 0).mean()),
        "the experts' own action has it": float((theirs >= exact.max(axis=1)).mean()),
        "decisions whose values differ by more than 1 / kappa": float(clear.sum()),
        "of these, the action called best has the higher exact Q": float((lost[clear] <= 0).mean()),
        "mean loss of the action called best": float(lost.mean()),
        "largest distance from the log-odds, greedy experts": _distance(found),
        "held-out decisions": len(held_out),
        "largest distance from the log-odds, held out": _distance(why(run.agent, run.posterior, run.test, held_out)),
    }


def _distance(found: Sequence[Why]) -> float:
    told = (
        one.log_chances - one.log_chances[one.reference] - one.contributions.sum(axis=1) - one.habit for one in found
    )
    return float(max(np.abs(each).max() for each in told))


def main() -> None:
    """Print the figures of a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("--patients", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        if given.run is None:
            demo(DemoConfig(), Path(folder))
        for name, value in measured(given.run or Path(folder), given.patients, given.seed).items():
            print(f"{name}: {value:.6g}")


if __name__ == "__main__":
    main()
