"""``cirl diagnose``: how far the outcome model of a run can be believed."""

from __future__ import annotations

import numpy as np
import torch

from agents.policies.policy import ConstantPolicy
from cirl_gym.data.rollout import rollout
from cirl_gym.files import write_text
from cirl_gym.types import Policy
from cirl_gym.worlds.exact import Patients, PatientsWorld
from irl.commands.options import DiagnoseOptions
from irl.commands.terminal import console
from irl.report.diagnosis import report_of_diagnosis
from irl.report.section import render
from irl.report.terminal import show
from irl.run import Run
from irl.stages import stages
from irl.studies.diagnosis import Diagnosis, Material, Truth, diagnose

MOST_TRAINING = 2000
"""Training episodes from which the fresh classifiers learn, at most: more would only take longer."""


def command(options: DiagnoseOptions) -> Diagnosis:
    """Diagnose the outcome model of a run, print the finding, write ``diagnostics.json`` and ``diagnostics.html``.

    Raises:
        ValueError: the folder is not a whole run's, or an option is not possible.
        OSError: the folder cannot be written to.
    """
    patients, seed, steps = options.patients, options.seed, options.steps
    if patients < 2 or seed < 0 or (steps is not None and steps < 1):
        raise ValueError(
            f"patients must be at least 2, steps 1 and seed not negative, got {patients}, {steps} and {seed}"
        )
    torch.set_num_threads(1)
    rng = np.random.default_rng([seed, *b"diagnose"])
    folder = options.run if options.out is None else options.out
    simulated = (options.run / "expert.npz").is_file()
    with stages(7 if simulated else 6) as shown:
        with shown.stage("held-out episodes"):
            material, truth = _material(Run(options.run), patients, rng)
            folder.mkdir(parents=True, exist_ok=True)
        found = diagnose(material, truth, rng, shown.stage, steps)
    found.write(folder / "diagnostics.json")
    write_text(folder / "diagnostics.html", render(report_of_diagnosis(found)))
    show(report_of_diagnosis(found, folder), console())
    return found


def _material(run: Run, patients: int, rng: np.random.Generator) -> tuple[Material, Truth | None]:
    """What a run left, and held-out episodes: fresh ones of its simulator, or those that a table's run held out."""
    reward, model, agent, train, truth = run.reward, run.model, run.agent, run.train, None
    if not run.simulated:
        test = run.test.take(np.arange(min(len(run.test), patients)))
    else:
        # New patients of the run's simulator, treated by the run's expert.
        expert, drawn = run.expert, Patients.draw(run.parameters, patients, rng)
        policy = expert.policy(int(rng.integers(2**31)))
        test = rollout(PatientsWorld(drawn), policy, patients, rng, deterministic=False)
        truth = Truth(drawn, expert.probabilities(test))
    policies: dict[str, Policy] = {
        f"always {name}": ConstantPolicy(action, train.n_actions, rng) for action, name in enumerate(train.action_names)
    }
    policies["random"] = ConstantPolicy(None, train.n_actions, rng)
    policies["recovered"] = agent.policy(reward.weights)
    chosen = np.sort(rng.permutation(len(train))[:MOST_TRAINING])
    return Material(model, train.take(chosen), test, reward.feature_map, agent.horizon, policies), truth
