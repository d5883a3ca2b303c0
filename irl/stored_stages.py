"""The stages of a run that take minutes, as parts that are stored (:mod:`cirl_gym.files`): how each is stored and read.

What is read is what was computed, to the last bit. Each stage draws from generators of its own, so that one that is
read instead of computed changes no other stage's numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.expert import Expert, simulator_model
from agents.successor.agent import SuccessorAgent
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.files import StoredParts, read_arrays, read_json, write_arrays, write_json
from cirl_gym.outcome_models.fitting import FittedOutcomeModel
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model, save_model
from irl.preferences.posterior import MemberFinding, PosteriorResult
from irl.preferences.sampler import SamplerReport
from irl.settings import DemoConfig

Arrays = dict[str, npt.NDArray[Any]]
_SAMPLER = "sampler."


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


def stored_member(stored: StoredParts, number: int, compute: Callable[[], MemberFinding]) -> MemberFinding:
    """Steps 5 to 9 in the world of one member of an ensemble."""
    return stored.stage(f"member{number}.npz", compute, save_member, load_member)


def save_member(found: MemberFinding, path: Path) -> None:
    """Write a finding whole, every number as it is."""
    posterior, sampler = found.posterior, found.posterior.sampler
    arrays = {name: value for name, value in vars(posterior).items() if name != "sampler" and value is not None}
    arrays |= {f"{_SAMPLER}{name}": value for name, value in (vars(sampler) if sampler else {}).items()}
    arrays |= {"mu_expert": found.mu_expert, "mu_recovered": found.mu_recovered}
    write_arrays(path, {name: np.asarray(value) for name, value in arrays.items()})


def load_member(path: Path) -> MemberFinding:
    """Read what :func:`save_member` wrote.

    Raises:
        ValueError: the file is not a whole finding; the message names it.
    """
    values: dict[str, Any] = {name: a if a.ndim else a.item() for name, a in read_arrays(path).items()}
    own = {name.removeprefix(_SAMPLER): values.pop(name) for name in list(values) if name.startswith(_SAMPLER)}
    try:
        mus = [values.pop(name) for name in ("mu_expert", "mu_recovered")]
        sampler = SamplerReport(**own) if own else None
        posterior = PosteriorResult(**values, sampler=sampler)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a whole finding: {error!r}") from error
    vectors = [*mus, posterior.mean, posterior.median, posterior.low, posterior.high, posterior.best]
    if len({np.shape(vector) for vector in vectors}) > 1:
        raise ValueError(f"{path} is not a whole finding: its weights and its mus differ in length")
    return MemberFinding(mus[0], mus[1], posterior)
