"""Of an ensemble of outcome models, the weights in the world of each member: how far the model's error reaches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from agents.successor.training import Problem, fit_successor
from cirl_gym.data.batch import Batch
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.masked import rules_of, with_rules, without_rules
from cirl_gym.outcome_models.model import EnsembleModel
from cirl_gym.types import FloatArray
from irl.max_margin.feature_expectations import expert_mu, phi_along
from irl.preferences.inference import judged_preferences
from irl.preferences.posterior import MemberFinding, PosteriorResult, with_model_spread
from irl.settings import FitConfig
from irl.stages import Stages
from irl.stored_stages import stored_member
from irl.studies.gammas import Draw


def solved_members(
    posterior: PosteriorResult,
    world: Problem,
    train: Batch,
    signs: FloatArray,
    config: FitConfig,
    draw: Draw,
    run: Stages,
    stored: StoredParts,
) -> tuple[PosteriorResult, tuple[MemberFinding, ...]]:
    """Of an ensemble, steps 5 to 9 in the world of each member, with other random numbers in each."""
    ensemble, rules = without_rules(world.model), rules_of(world.model)
    if not isinstance(ensemble, EnsembleModel):
        return posterior, ()
    found = []
    with run.stage("each outcome model") as report:
        for number, model in enumerate(ensemble.members):
            own = replace(world, model=with_rules(model, rules))
            solved = partial(_member, own, train, signs, config, *draw(f"member {number}", 2))
            found.append(stored_member(stored, number, solved))
            report(number + 1, len(ensemble.members))
    return with_model_spread(posterior, found), tuple(found)


def _member(
    world: Problem,
    train: Batch,
    signs: FloatArray,
    config: FitConfig,
    solving: np.random.Generator,
    judging: np.random.Generator,
) -> MemberFinding:
    agent = fit_successor(world, config.agent, solving)
    mu = expert_mu(phi_along(world.model, world.feature_map, train), train, config.gamma)
    posterior, _ = judged_preferences(agent.psi, train, signs, config.posterior, judging)
    return MemberFinding(mu.mean, agent.mu(posterior.mean, train.start, config.starts), posterior)
