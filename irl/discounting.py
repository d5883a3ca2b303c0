"""Step 6: candidate policies under the discount factor that is given, or under the one that held-out decisions choose.

The outcome model knows of no discount factor and is fitted once. All else is solved anew under each: the candidate
policies, the plans along the histories, the posterior. Every discount factor draws the same random numbers, so that one
that was chosen finds what a run that was given it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from agents.successor import SuccessorAgent
from agents.successor_training import Problem, fit_successor
from cirl_gym.batch import Batch
from cirl_gym.kept import Kept
from cirl_gym.types import FloatArray
from irl.gamma_choice import Solved, choose_gamma
from irl.gamma_record import GammaChoice
from irl.kept_stages import kept_agent
from irl.preferences import judged_episodes, judged_preferences
from irl.progress import Stages
from irl.settings import FitConfig

Draw = Callable[[str, int], list[np.random.Generator]]
"""(part of the run, n) -> n generators, the same at every call."""


class Candidates(NamedTuple):
    """Candidate policies, and the problem and the settings that they belong to."""

    agent: SuccessorAgent
    world: Problem
    config: FitConfig
    choice: GammaChoice | None
    """None where the discount factor was given."""


def find_candidates(
    world: Problem,
    train: Batch,
    validation: Batch,
    signs: FloatArray,
    config: FitConfig,
    draw: Draw,
    run: Stages,
    kept: Kept,
) -> Candidates:
    """Solve the world model under the settings' discount factor, or under each of several, of which one is taken.

    Args:
        world: the world model; its discount factor is that of the settings.
        train: episodes whose decisions the posterior is of.
        validation: episodes whose decisions choose.
        signs: ``[d]`` of -1, 0 (free) and 1.
        config: how.
        draw: generators of the run, by part.
        run: shows and times the stage.
        kept: what is kept of the same run, begun before.

    Raises:
        ValueError: the world cannot be solved, or there are fewer than two patients to choose by.
    """
    if not config.choose_gamma:
        with run.stage("candidate policies") as report:
            learnt = partial(fit_successor, world, config.agent, draw("fit", 5)[1], report)
            agent = kept_agent(kept, world.model, learnt)
        return Candidates(agent, world, config, None)

    def solve(gamma: float) -> Solved[SuccessorAgent]:
        _, solving, _, judging, _ = draw("fit", 5)
        learnt = partial(fit_successor, replace(world, gamma=gamma), config.agent, solving)
        agent = kept_agent(kept, world.model, learnt, f"agent_gamma_{gamma!r}.npz")
        return Solved(agent, judged_preferences(agent.psi, train, signs, config.posterior, judging)[0])

    held_out = judged_episodes(validation, config.posterior.decisions, draw("discount factor", 1)[0])
    with run.stage("discount factor") as report:
        choice, solved = choose_gamma(solve, config.choose_gamma, held_out, config.posterior.near_width, report)
    chosen = replace(config, gamma=choice.chosen, choose_gamma=())
    return Candidates(solved.agent, replace(world, gamma=choice.chosen), chosen, choice)
