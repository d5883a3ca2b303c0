"""``cirl diagnose``: how far the outcome model of a run can be believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from agents.policies.habits import ConstantPolicy
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.rollout import rollout
from cirl_gym.files import write_text
from cirl_gym.types import Policy
from cirl_gym.worlds.exact import Patients, PatientsWorld
from cirl_gym.wrappers.learned_reward import LinearReward
from irl.commands.options import DiagnoseOptions
from irl.report.diagnosis import report_of_diagnosis
from irl.report.section import render, show
from irl.run import Run
from irl.stages import stages
from irl.studies.diagnosis import Diagnosis, Material, Truth, diagnose

MOST_TRAINING = 2000
"""Training episodes from which the fresh classifiers learn, at most: more would only take longer."""


def command(options: DiagnoseOptions) -> None:
    """Run ``cirl diagnose``; raises as :func:`diagnose_run` does."""
    diagnose_run(options.run, options.out, patients=options.patients, seed=options.seed, steps=options.steps)


def diagnose_run(
    run: Path, out: Path | None = None, *, patients: int = 500, seed: int = 0, steps: int | None = None
) -> Diagnosis:
    """Diagnose the outcome model of a run, print the finding, write ``diagnostics.json`` and ``diagnostics.html``.

    Args:
        run: folder that ``cirl demo`` or ``cirl explain`` left.
        out: where to write; default: the run's own folder.
        patients: how many are held out, at most; of a simulated run they are drawn anew.
        seed: everything that is drawn.
        steps: look at most so many steps ahead; default: as far as the episodes go.

    Raises:
        ValueError: the folder is not a whole run's, or an option is not possible.
        OSError: the folder cannot be written to.
    """
    if patients < 2 or seed < 0 or (steps is not None and steps < 1):
        raise ValueError(
            f"patients must be at least 2, steps 1 and seed not negative, got {patients}, {steps} and {seed}"
        )
    torch.set_num_threads(1)
    rng = np.random.default_rng([seed, *b"diagnose"])
    folder = run if out is None else out
    simulated = (run / "expert.npz").is_file()
    with stages(7 if simulated else 6) as shown:
        with shown.stage("held-out episodes"):
            material, truth = load_run(Run(run), patients, rng)
            folder.mkdir(parents=True, exist_ok=True)
        found = diagnose(material, truth, rng, shown.stage, steps)
    found.write(folder / "diagnostics.json")
    write_text(folder / "diagnostics.html", render(report_of_diagnosis(found)))
    show(report_of_diagnosis(found, folder), Console(highlight=False))
    return found


def load_run(run: Run, patients: int, rng: np.random.Generator) -> tuple[Material, Truth | None]:
    """What a run left, and held-out episodes: fresh ones of its simulator, or those that a table's run held out.

    Raises:
        ValueError: the folder is not a whole run's; the message names the file and what is wrong.
    """
    reward, model, agent, train = run.reward, run.model, run.agent, run.train
    if not run.simulated:
        test, truth = run.test, None
        test = test.take(np.arange(min(len(test), patients)))
    else:
        # New patients of the run's simulator, treated by the run's expert.
        expert, drawn = run.expert, Patients.draw(run.parameters, patients, rng)
        policy = expert.policy(int(rng.integers(2**31)))
        test = rollout(PatientsWorld(drawn), policy, patients, rng, deterministic=False)
        truth = Truth(drawn, expert.probabilities(test))
    return _material(model, agent, reward, train, test, rng), truth


def _material(
    model: OutcomeModel,
    agent: SuccessorAgent,
    reward: LinearReward,
    train: Batch,
    test: Batch,
    rng: np.random.Generator,
) -> Material:
    policies: dict[str, Policy] = {
        f"always {name}": ConstantPolicy(action, train.n_actions, rng) for action, name in enumerate(train.action_names)
    }
    policies["random"] = ConstantPolicy(None, train.n_actions, rng)
    policies["recovered"] = agent.policy(reward.weights)
    chosen = rng.permutation(len(train))[:MOST_TRAINING]
    feature_map: FeatureMap = reward.feature_map
    return Material(model, train.take(np.sort(chosen)), test, feature_map, agent.horizon, policies)
