"""Quality control of a solved world model: does planning keep what it promises?

The max-margin loop reads the feature expectation of a policy off the agent, from plans that were made at h_0 in the
expected course of the world model. Here the policies act in that same world model step by step, once along its
expected course and several times with its noise, from the same first observations, and what they reach is compared.
This says nothing of the outcome model's own error, which its own world cannot show.

Where two policies are equally good for some preference, the plan may follow one and the policy the other: their
feature expectations differ, and nothing is wrong. So a single preference is judged by the value that is promised, and
the feature expectations by what they differ in on average over all preferences that are looked at.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from agents.as_printed.learning import EndlessWorld, mu_along
from agents.successor.agent import SuccessorAgent, SuccessorPolicy
from agents.successor.training import Problem
from cirl_gym.data.features import checked_signs, draw_weights, keep_signs
from cirl_gym.data.rollout import rollout
from cirl_gym.types import Float32Array, FloatArray
from irl.max_margin import MaxMarginResult
from irl.preferences import PosteriorResult
from irl.result.result import Quality

SURE = 3.0
"""By chance alone a difference is larger than so many standard errors once in 400 times."""


@dataclass(frozen=True)
class QualityConfig:
    """How closely is looked.

    Raises:
        ValueError: a number is out of its range.
    """

    weights: int = 20
    """Preferences that are looked at."""
    starts: int = 5
    """First observations for each of them; no two preferences share one while they last. A run (:mod:`irl.pipeline`)
    takes fewer where there are more than two actions."""
    episodes: int = 2
    """Noisy courses from each first observation."""
    limit: float | None = 0.05
    """Share of the full discounted range that :meth:`PlannedAndReached.check` lets pass; None: everything. Measured in
    the simulator, in value: .002 with the settings as they are, .006 with ``--quick``, .11 for a network that has
    learnt nothing and .22 without a search."""

    def __post_init__(self) -> None:
        if self.weights < 1 or self.starts < 1 or self.episodes < 2:
            raise ValueError(f"QualityConfig: weights and starts must be at least 1 and episodes 2, got {self}")
        if self.limit is not None and not 0 < self.limit < np.inf:
            raise ValueError(f"QualityConfig.limit must be positive and finite, or None, got {self.limit}")


def quality_control(
    agent: SuccessorAgent,
    problem: Problem,
    signs: FloatArray,
    loop: MaxMarginResult,
    posterior: PosteriorResult,
    config: QualityConfig,
    rng: np.random.Generator,
) -> Quality:
    """Compare what plans promise with what policies reach, for weights of the loop, the posterior and everywhere.

    Args:
        agent: plans and policies.
        problem: the world model that it was trained in.
        signs: ``[d]`` of -1, 0 (free) and 1.
        loop: its last weights are looked at.
        posterior: its mean is, and as many of its draws.
        config: how closely is looked, and what is too much.
        rng: weights, first observations and noise.

    Raises:
        ValueError: planning does not keep what it promises.
    """
    path = np.stack([done.w for done in loop.rounds[-config.weights :]])
    drawn = posterior.draws[rng.integers(len(posterior.draws), size=len(path) - 1)]
    near = np.concatenate([path, posterior.mean[None], drawn])
    weights = probed_weights(signs, near, config.weights, rng)
    # A policy's search costs as much more as there are more actions: with many, fewer courses are looked at.
    starts = max(min(config.starts, 2 * config.starts // problem.model.n_actions), 1)
    measured = planned_and_reached(agent, problem, weights, rng, replace(config, starts=starts))
    measured.check(config.limit)
    return measured.summary(config.limit)


def probed_weights(signs: FloatArray, near: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Preferences ``[n, d]`` to look at: up to half of them from those that matter, the others from everywhere.

    Those that matter, ``near [M, d]``, such as the loop's and the posterior's, are drawn without repetition. What the
    ``signs [d]`` (-1, 0 free, 1) do not allow is set to 0.

    Raises:
        ValueError: ``n`` is below 1, or ``near`` has another number of features.
    """
    allowed = checked_signs(signs)
    if n < 1 or near.ndim != 2 or near.shape[1] != len(allowed):
        raise ValueError(f"n must be at least 1 and near [M, {len(allowed)}], got {n} and {near.shape}")
    chosen = near[rng.permutation(len(near))[: n // 2]]
    return np.concatenate([keep_signs(chosen, allowed), draw_weights(allowed, rng, n - len(chosen))])


def planned_and_reached(
    agent: SuccessorAgent,
    problem: Problem,
    weights: FloatArray,
    rng: np.random.Generator,
    config: QualityConfig | None = None,
) -> PlannedAndReached:
    """Let the agent's policies act in its own world model, and compare with what it reads off for them.

    An end is not drawn: what comes after it counts with the chance of getting there, which is the same expectation
    with less noise, and none at all along the expected course.

    Args:
        agent: plans and policies.
        problem: the world model that it was trained in, and where episodes start.
        weights: ``[M, d]`` preferences of any scale, all of which are looked at.
        rng: first observations and noise.
        config: how many of both.

    Raises:
        ValueError: a preference is not possible.
    """
    config = config or QualityConfig()
    scaled = np.stack([agent.checked_weights(w) for w in weights])
    m, s, e = len(scaled), config.starts, config.episodes
    order = rng.permutation(len(problem.starts))
    first = problem.starts[np.resize(order, m * s)]
    seed = int(rng.integers(2**63 - 1))
    calm = _reached(agent, problem, scaled, first, "expected", seed).reshape(m, s, -1)
    noisy = _reached(agent, problem, scaled, np.repeat(first, e, axis=0), "sampled", seed).reshape(m, s, e, -1)
    values = np.einsum("msed,md->mse", noisy, scaled)
    narrow = copy.copy(agent)
    narrow.width = 1
    each = list(zip(scaled, first.reshape(m, s, -1), strict=True))
    return PlannedAndReached(
        weights=scaled,
        planned=np.stack([agent.mu(w, starts) for w, starts in each]),
        expected=calm.mean(axis=1),
        sampled=noisy.mean(axis=(1, 2)),
        # Of a mean over given first observations: chance is what differs between courses from the same one.
        mu_error=np.sqrt(noisy.var(axis=2, ddof=1).mean(axis=1) / (s * e)),
        value_error=np.sqrt(values.var(axis=2, ddof=1).mean(axis=1) / (s * e)),
        greedy=np.stack([narrow.mu(w, starts) for w, starts in each]),
        full=float(np.sum(agent.gamma ** np.arange(agent.horizon))),
    )


def _reached(
    agent: SuccessorAgent,
    problem: Problem,
    weights: FloatArray,
    first: Float32Array,
    outcome: Literal["expected", "sampled"],
    seed: int,
) -> FloatArray:
    """``[n, d]`` mu of the courses that begin at ``first [n, D]``, an equal share of them for each of the weights."""
    own = np.repeat(weights, len(first) // len(weights), axis=0)
    world = EndlessWorld(problem.model, first, problem.horizon, outcome=outcome)
    rng = np.random.default_rng(seed)
    played = rollout(world, SuccessorPolicy(agent, own, None, rng), len(first), rng)
    return mu_along(problem, played)


@dataclass(frozen=True)
class PlannedAndReached:
    """What plans promise and policies reach, for M preferences; differences are shares of the full discounted range.

    An outcome that is always at the upper end of its range has a feature expectation of ``full``, the sum of gamma^t
    over the horizon: a difference of one per cent means the same for 5 steps and for 50.

    Raises:
        ValueError: shapes differ, a number is not finite, a standard error is negative, or ``full`` is not positive.
    """

    weights: FloatArray
    """``[M, d]`` preferences, L1 norm 1."""
    planned: FloatArray
    """``[M, d]`` mu read off the agent."""
    expected: FloatArray
    """``[M, d]`` mu of its policy along the world model's expected course."""
    sampled: FloatArray
    """``[M, d]`` mu of its policy with the world model's noise."""
    mu_error: FloatArray
    """``[M, d]`` standard error of ``sampled``: by noise alone, the first observations are the same for all."""
    value_error: FloatArray
    """``[M]`` standard error of w . ``sampled``."""
    greedy: FloatArray
    """``[M, d]`` mu read off with a search that keeps one plan: as good as the network's own choices."""
    full: float
    """Sum of gamma^t over the horizon."""

    def __post_init__(self) -> None:
        shape = self.weights.shape
        for name in ("weights", "planned", "expected", "sampled", "mu_error", "value_error", "greedy"):
            array = getattr(self, name)
            wanted = shape[:1] if name == "value_error" else shape
            if len(shape) != 2 or array.shape != wanted or not np.isfinite(array).all():
                raise ValueError(f"PlannedAndReached.{name} must be {wanted} finite numbers, got {array}")
        if not shape[0] or not 0 < self.full < np.inf or min(self.mu_error.min(), self.value_error.min()) < 0:
            raise ValueError("PlannedAndReached: one preference at least, full above 0, and no standard error below 0")

    @property
    def sampled_difference(self) -> FloatArray:
        """``[M]`` largest difference of any outcome's mu between plan and noisy courses."""
        return self._largest(self.planned - self.sampled)

    @property
    def value_difference(self) -> FloatArray:
        """``[M]`` value w . mu that plans promise and noisy courses do not reach; negative where they reach more."""
        return self._values(self.planned - self.sampled)

    @property
    def systematic_difference(self) -> float:
        """Largest mean difference of an outcome's mu between plans and noisy courses, beyond noise and ties.

        A tie moves mu now to one side, now to the other; what is left on average over the preferences is an error.
        """
        each = self.planned - self.sampled
        scatter = each.std(axis=0, ddof=1) / np.sqrt(len(each)) if len(each) > 1 else self.mu_error[0]
        return float(np.maximum(np.abs(each.mean(axis=0)) - SURE * scatter, 0.0).max()) / self.full

    @property
    def proven_value_difference(self) -> FloatArray:
        """``[M]`` size of the difference in value that noise does not explain."""
        beyond = np.abs(self.value_difference) - SURE * self.value_error / self.full
        proven: FloatArray = np.maximum(np.abs(self._values(self.planned - self.expected)), beyond)
        return proven

    def check(self, limit: float | None) -> None:
        """Stop where planning does not keep what it promises.

        Raises:
            ValueError: the largest proven difference in value or the systematic one in mu is above the limit.
        """
        if limit is None:
            return
        value, mu = self.proven_value_difference, self.systematic_difference
        if max(value.max(), mu) <= limit:
            return
        if value.max() > limit:
            what, worst = f"by up to {value.max():.3f} in value", int(value.argmax())
        else:
            what, worst = f"by {mu:.3f} on average in an outcome", int(self.sampled_difference.argmax())
        w, planned, reached = (
            f"({', '.join(f'{number:.3g}' for number in array[worst])})"
            for array in (self.weights, self.planned, self.sampled)
        )
        advice = "Train more (without --quick; in Python FitConfig.agent with more episodes, gradient_steps or width)"
        if np.abs(self._values(self.planned - self.expected)).max() <= limit < value.max():
            advice = "Where everything comes as expected they agree: it is the noise of outcomes that plans leave out"
        raise ValueError(
            f"the world model is not solved well enough: for {len(value)} weights, what plans promise and policies "
            f"reach in it differ {what}; {limit:g} is the limit (shares of an outcome's full discounted range). Most "
            f"for the weights {w}, where mu is {planned} as planned and {reached} as reached. {advice}; or raise the "
            "limit by --quality-limit (FitConfig.quality)"
        )

    def summary(self, limit: float | None) -> Quality:
        """What is recorded of it, beside the limit that it was held to."""
        return Quality(
            weights=len(self.weights),
            expected=self._largest(self.planned - self.expected).max(),
            sampled=self.sampled_difference.max(),
            noise=self._largest(self.mu_error).max(),
            systematic=self.systematic_difference,
            value=self.proven_value_difference.max(),
            promised=self.value_difference.max(),
            search_gain=self._values(self.planned - self.greedy).mean(),
            limit=limit,
        )

    def _largest(self, mu: FloatArray) -> FloatArray:
        largest: FloatArray = np.abs(mu).max(axis=1) / self.full
        return largest

    def _values(self, mu: FloatArray) -> FloatArray:
        values: FloatArray = np.einsum("md,md->m", self.weights, mu) / self.full
        return values
