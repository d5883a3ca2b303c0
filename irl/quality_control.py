"""Quality control within a run: the solved world model is put to the test, and the run stops where it fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from agents.quality import QualityConfig, measured_quality, probed_weights
from agents.successor import SuccessorAgent
from agents.successor_training import Problem
from cirl_gym.types import FloatArray
from irl.max_margin import MaxMarginResult
from irl.posterior import PosteriorResult
from irl.progress import Stages
from irl.quality_record import Quality


def quality_control(
    agent: SuccessorAgent,
    world: Problem,
    signs: FloatArray,
    loop: MaxMarginResult,
    posterior: PosteriorResult,
    config: QualityConfig,
    draw: Callable[[str, int], list[np.random.Generator]],
    run: Stages,
) -> Quality:
    """Compare what plans promise with what policies reach, for weights of the loop, the posterior and everywhere.

    Args:
        agent: plans and policies.
        world: the world model that it was trained in.
        signs: ``[d]`` of -1, 0 (free) and 1.
        loop: its last weights are looked at.
        posterior: its mean and some of its draws are.
        config: how closely is looked, and what stops the run.
        draw: (part of the run, n) -> n generators, the same at every call.
        run: shows and times the stage.

    Raises:
        ValueError: planning does not keep what it promises.
    """
    with run.stage("quality control"):
        (rng,) = draw("quality", 1)
        weights = probed_weights(signs, _near(loop, posterior, config.weights, rng), config.weights, rng)
        # A policy's search costs as much more as there are more actions: with many, fewer courses are looked at.
        starts = max(min(config.starts, 2 * config.starts // world.model.n_actions), 1)
        found = measured_quality(agent, world, weights, rng, replace(config, starts=starts))
        found.check(config.limit)
    return Quality(
        weights=len(found.weights),
        expected=found.expected_difference.max(),
        sampled=found.sampled_difference.max(),
        noise=found.noise.max(),
        systematic=found.systematic_difference,
        value=found.proven_value_difference.max(),
        promised=found.value_difference.max(),
        search_gain=found.search_gain.mean(),
        limit=config.limit,
    )


def _near(loop: MaxMarginResult, posterior: PosteriorResult, n: int, rng: np.random.Generator) -> FloatArray:
    """``[M, d]`` the weights of at most ``n`` last rounds, and as many of the posterior: its mean and draws."""
    path = np.stack([done.w for done in loop.rounds[-n:]])
    drawn = posterior.draws[rng.integers(len(posterior.draws), size=len(path) - 1)]
    return np.concatenate([path, posterior.mean[None], drawn])
