"""The max-margin loop as printed: policies and mu learnt anew in every round, through the whole pipeline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_agents import TINY, tumour_agent, tumour_batch
from tiny_run import tiny_demo, tiny_fit

from agents.as_printed.learning import LearntPolicy
from agents.as_printed.training import HistoryTrainingConfig
from agents.candidates import learnt_candidates, successor_candidates
from agents.successor.agent import SuccessorPolicy
from agents.successor.training import Problem, uniform_weights
from cirl_gym import TumourParameters
from irl.commands.arguments import SolverArguments
from irl.pipeline import fit, simulate
from irl.settings import FitConfig
from irl.stages import stages
from irl.study import Study

FEW = HistoryTrainingConfig(hidden=4, batch_size=4, iterations=3, target_every=1)


def test_what_each_solver_answers():
    parameters = TumourParameters(horizon=6)
    agent, batch = tumour_agent(parameters, config=replace(TINY, width=2)), tumour_batch(parameters, 0.2, 0.8)
    world = Problem(agent.model, agent.feature_map, batch.start, 6, 0.99, uniform_weights([-1, -1]), histories=batch)
    w = np.array([-0.3, -0.7])
    fast = successor_candidates(agent, world, 5)(w)
    np.testing.assert_array_equal(fast.mu, agent.mu(w, batch.start, searched=5))
    answers = {s: learnt_candidates(agent, world, s, FEW, np.random.default_rng(0))(w) for s in ("successor", "drqn")}
    assert isinstance(answers["successor"].policy, SuccessorPolicy)
    assert isinstance(answers["drqn"].policy, LearntPolicy)
    solve = learnt_candidates(agent, world, "drqn", FEW, np.random.default_rng(0))
    np.testing.assert_array_equal(solve(w).mu, answers["drqn"].mu)
    assert (solve(w).mu != answers["drqn"].mu).any(), "every round begins with other weights"


def test_a_run_as_printed_but_tiny():
    config = tiny_demo(fit=tiny_fit(solver="drqn", mu="mu_learning", histories=FEW, rounds=1))
    with stages(8, quiet=True) as run:
        seen = simulate(config, run)
        ranges = seen.expert.agent.feature_map
        found = fit(Study(seen.train, seen.validation, ranges, np.array(config.signs, dtype=float), config.fit, 0, run))
    assert all(isinstance(policy, LearntPolicy) for policy in found.loop.policies)
    assert found.loop.mus.shape == (len(found.loop.rounds), 2)
    # The reported weights and policy are the posterior's, from the successor-feature agent.
    assert isinstance(found.policy, SuccessorPolicy)


def test_contradictions_are_refused():
    with pytest.raises(ValueError, match="needs mu='mu_learning'"):
        FitConfig(solver="drqn")
    for changes in ({"solver": "sarsa"}, {"mu": "guessing"}):
        with pytest.raises(ValueError, match="solver must be one of successor, drqn, recurrent_ppo and mu one of"):
            FitConfig(**changes)
    with pytest.raises(ValueError, match="--iterations is for"):
        SolverArguments(iterations=5).put_into(FitConfig())
    with pytest.raises(ValueError, match="needs mu='mu_learning'"):
        SolverArguments("drqn", "successor").put_into(FitConfig())


def test_the_options():
    assert SolverArguments().put_into(FitConfig()) == FitConfig()
    printed = SolverArguments("drqn", iterations=7).put_into(FitConfig())
    assert (printed.solver, printed.mu) == ("drqn", "mu_learning")
    assert printed.histories == replace(HistoryTrainingConfig.paper(), iterations=7)
    assert SolverArguments(mu="mu_learning").put_into(FitConfig().quick()).histories.iterations == 300
