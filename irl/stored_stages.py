"""The stages of a run that take minutes, as parts that are stored (:mod:`cirl_gym.files`): how each is stored and read.

What is read is what was computed, to the last bit. Each stage draws from generators of its own, so that one that is
read instead of computed changes no other stage's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from agents.expert import Expert, simulator_model
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.files import StoredParts, read_json, write_json
from cirl_gym.outcome_models.fitting import FittedOutcomeModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model, save_model
from irl.settings import DemoConfig


def stored_expert(stored: StoredParts, config: DemoConfig, compute: Callable[[], Expert]) -> Expert:
    """Step 2: the expert in the simulator."""

    def load(path: Path) -> Expert:
        agent = SuccessorAgent.load(path, simulator_model(config.parameters, config.fit.forbid))
        return Expert.of(agent, np.array(config.weights), config.kappa)

    return stored.stage("expert.npz", compute, lambda expert, path: expert.agent.save(path), load)


def stored_outcome_model(stored: StoredParts, compute: Callable[[], FittedOutcomeModel]) -> FittedOutcomeModel:
    """Step 4: the outcome model and the report of its fit."""

    def save(fitted: FittedOutcomeModel, path: Path) -> None:
        # The model comes last: where it is, the report is.
        write_json(path.with_suffix(".json"), {"report": fitted.report, "seconds": fitted.seconds})
        save_model(fitted.model, path)

    def load(path: Path) -> FittedOutcomeModel:
        model, about = load_model(path), read_json(path.with_suffix(".json"))
        if isinstance(model, OracleModel):
            raise ValueError("the simulator is no fitted model")
        return FittedOutcomeModel(model, about["report"], about["seconds"])

    return stored.stage("outcome_model.npz", compute, save, load)


def stored_agent(
    stored: StoredParts, model: OutcomeModel, compute: Callable[[], SuccessorAgent], name: str = "agent.npz"
) -> SuccessorAgent:
    """Step 6: candidate policies in the world of the model."""
    return stored.stage(name, compute, SuccessorAgent.save, lambda path: SuccessorAgent.load(path, model))
