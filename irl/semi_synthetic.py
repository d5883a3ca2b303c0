"""Experts whose weights, kappa and habits are known, in a world fitted to a table: does a fit recover them?

A world is fitted to the table. Experts with drawn weights, kappa and habits act in it: as many stays as the table has,
from the table's first observations, with sampled outcomes, until the world ends them. In a part of the runs kappa is 0,
and habit is all there is. What they leave behind is fitted as ``cirl explain`` does it, each run with its own seed.
Their own chances are known, so it is too whether the outcomes matter enough to be seen.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax

from agents.expert import Expert
from agents.successor.agent import SuccessorAgent
from agents.successor.training import Problem, fit_successor, uniform_weights
from cirl_gym.data.batch import PREVIOUS, Batch
from cirl_gym.data.features import FeatureMap, draw_weights
from cirl_gym.data.habits import Contexts, Habit, action_before
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import rollout
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.fitting import fit_outcome_model
from cirl_gym.types import Float32Array, FloatArray, IntArray, Step
from irl.checks.predictors import LastActionTable
from irl.evaluation import judged
from irl.pipeline import Fit, fit
from irl.preferences.choice import KAPPA
from irl.preferences.inference import plan_pool
from irl.preferences.likelihood import per_decision, taken_log_probabilities
from irl.preferences.posterior import TAILS, PosteriorResult, sample_posterior
from irl.settings import FitConfig
from irl.stages import stages
from irl.stored_stages import stored_outcome_model
from irl.study import Study
from irl.worlds import for_ends_of

PERIOD, ALONE = 10, (0, 4, 7)
"""Of ten runs, those whose experts have habits alone."""
STRENGTH = (0.5, 2.0)
"""By how much, as a standard deviation over decisions, what is foreseen moves the experts' logits: between these."""
ROUGH = 0.5
"""Standard deviation of the habits' logits around those that the table shows."""
CLEAR, BORDERLINE = 2.0, (1.0, 3.0)
"""Standard errors of the true gain: beyond which outcomes matter, and between which that is a matter of luck."""
WIDTH = 32
"""Of the experts' search for plans: one that falls short does not act as its weights say."""


def brief(config: FitConfig) -> FitConfig:
    """The same, but for what neither weights nor verdict depend on, which is kept short."""
    cloning = replace(config.cloning, training=replace(config.cloning.training, epochs=1))
    return replace(config, cloning=cloning, quality=replace(config.quality, weights=1, starts=1, limit=None), rounds=1)


class EvenWorld(CounterfactualWorld):
    """A world whose noise leaves expectations as they are: near a limit of an outcome it is smaller, to both sides.

    Noise that is cut off at limits bends the law where many patients are near one (a normal creatinine). A linear law
    fitted to those whom experts chose to treat would then have another effect of treatment than the world has.
    """

    def step(self, state: Float32Array, actions: IntArray, rng: np.random.Generator) -> Step:
        """Append the action and what was sampled to every history; it may end."""
        rows, ends = np.arange(len(actions)), rng.random(len(actions))
        expected = self.model.predict(state)[rows, actions]
        low, high = self.model.bounds
        room = np.maximum(np.minimum(expected - low, high - expected), 0.0)
        noise = self.model.noise(rng.standard_normal((len(actions), len(self.features))))
        obs = (expected + np.clip(noise, -room, room)).astype(np.float32)
        ended = ends < self.model.end_probability(state)[rows, actions]
        return Step(self.model.advance(state, actions, obs), obs, expected, ended)


@dataclass(frozen=True)
class Ward:
    """A table, a world fitted to it, and what to fit."""

    table: Batch
    agent: SuccessorAgent
    """Solved in the world, for all weights."""
    signs: FloatArray
    config: FitConfig

    def experts(self, number: int) -> Expert:
        """Those of a run, some of them with kappa 0; their habits are near those of the table."""
        rng = np.random.default_rng([number, 0])
        w, kappa = self.drawn(rng)
        return self.experts_of(w, 0.0 if number % PERIOD in ALONE else kappa, rng)

    def experts_of(self, w: FloatArray, kappa: float, rng: np.random.Generator) -> Expert:
        """Experts who treat about as often as the table's: what an action changes for everyone alike, habit takes."""
        scores = kappa * self.agent.q(self.table, w) if kappa > 0 else None
        return Expert.of(self.agent, w, kappa, habit_near(self.table, rng, scores))

    def drawn(self, rng: np.random.Generator) -> tuple[FloatArray, float]:
        """Weights and kappa as a fit has them beforehand, of those alone that move logits by :data:`STRENGTH`.

        Others than these would be unlikely from the first: a large kappa chosen to go with weights of outcomes that
        hardly move is no fair test of intervals.
        """
        d = len(self.signs)
        psi = self.agent.psi(self.table, draw_weights(self.signs, rng))[self.table.mask]
        for _ in range(10_000):
            w = draw_weights(self.signs, rng)
            kappa = KAPPA * (2 ** (1 / d) - 1) * float(rng.gamma(d) / rng.gamma(1.0))
            if STRENGTH[0] <= moved(psi @ (kappa * w)) <= STRENGTH[1]:
                return w, kappa
        raise ValueError("no weights move what is done enough: an action changes the outcomes alike in every history")

    def strong(self, w: FloatArray, strength: float) -> float:
        """The kappa with which what is foreseen moves logits by ``strength``."""
        return strength / moved(self.agent.q(self.table, w)[self.table.mask])

    def decisions(self, experts: Expert, patients: int, number: int) -> Batch:
        """What experts leave behind, under the names of the table's actions."""
        drawing, deciding = np.random.SeedSequence([number, 1]).spawn(2)
        world = EvenWorld(self.agent.model, self.table.start, self.agent.horizon)
        policy = experts.policy(int(deciding.generate_state(1)[0]))
        batch = rollout(world, policy, patients, np.random.default_rng(drawing), deterministic=False)
        ids = tuple(f"{row:06}" for row in range(patients))
        return replace(batch, action_names=self.table.action_names, ids=ids, groups=()).trimmed()


def ward_of(
    everyone: Batch, outcomes: Sequence[str], signs: FloatArray, config: FitConfig, stored: StoredParts
) -> Ward:
    """Fit and solve a world for all patients of a table together.

    Args:
        everyone: its episodes, with all that the outcomes need.
        outcomes: the d that are weighed.
        signs: ``[d]`` -1, 0 or 1.
        config: of the fits, :func:`brief` and whole (:meth:`irl.settings.FitConfig.whole`).
        stored: where parts of it may lie.
    """
    # As in a fit of the table; what the world ends counts as ended, and a fit of that would not know.
    config = replace(config, outcome=for_ends_of(everyone, everyone.horizon, config.outcome))
    learning, solving = (np.random.default_rng([0, part]) for part in (1, 2))
    splits = [batch.with_early_ends(everyone.horizon) for batch in everyone.split(0.15, learning)]
    learnt = partial(fit_outcome_model, config.model, splits[0], splits[1], config.outcome, learning)
    model = stored_outcome_model(stored, learnt).model
    feature_map = FeatureMap.from_batch(everyone, outcomes)
    w = uniform_weights(signs)
    problem = Problem(model, feature_map, everyone.start, everyone.horizon, config.gamma, w, everyone)
    solve = partial(fit_successor, problem, replace(config.agent, width=WIDTH), solving)
    load = partial(SuccessorAgent.load, model=model)
    agent = stored.stage("agent.npz", solve, SuccessorAgent.save, load)
    return Ward(everyone, agent, signs, config)


def moved(scores: FloatArray) -> float:
    """By how much ``[R, A]`` scores move the choice among actions: standard deviation over R decisions."""
    return float((scores - scores[:, :1]).std(axis=0).max())


def habit_near(table: Batch, rng: np.random.Generator, scores: FloatArray | None = None) -> Habit:
    """Logits of the action after each other one that a table shows, moved at random; of mean 0 in each row.

    ``scores`` ``[N, T, A]``, by which experts choose beside, leave the table's rates: their mean is taken away.
    """
    logits = np.log(LastActionTable.fit(table).chances)
    logits = logits + rng.normal(0.0, ROUGH, logits.shape)
    if scores is not None:
        last = action_before(table)
        for level in np.unique(last[table.mask]):
            logits[level] -= scores[table.mask & (last == level)].mean(axis=0)
    return Habit(Contexts.of(table, (PREVIOUS,)), logits - logits.mean(axis=1, keepdims=True))


def true_gain(experts: Expert, batch: Batch) -> tuple[float, float]:
    """By how much the experts' own chances foresee decisions better than the best account by habit, a decision.

    That account is, after each action, the mean of the experts' own chances.

    Returns:
        Mean and standard error by patient, of log-likelihood.
    """
    assert experts.habit is not None
    own = log_softmax(experts.kappa * experts.agent.q(batch, experts.w) + experts.habit.along(batch), axis=-1)
    last, alone = action_before(batch), np.zeros_like(own)
    for level in range(batch.n_actions + 1):
        inside = batch.mask & (last == level)
        if inside.any():
            alone[inside] = np.log(np.exp(own[inside]).mean(axis=0))
    return per_decision(taken_log_probabilities(own, batch) - taken_log_probabilities(alone, batch), batch)


def fitted(
    batch: Batch, phi: FeatureMap, signs: FloatArray, config: FitConfig, number: int, stored: StoredParts
) -> tuple[Fit, dict[str, Any]]:
    """One fit as ``cirl explain`` does it, with the run's number as seed, and what it says."""
    test_split, split = (np.random.default_rng([number, part]) for part in (2, 3))
    rest, test = batch.split(0.15, test_split)
    train, validation = rest.split(0.15 / 0.85, split)
    with stages(8, quiet=True) as watch:
        found = fit(Study(train, validation, phi, signs, config, number, watch, stored, batch))
        result = judged(Study(train, validation, phi, signs, config, number, watch), found, test, config={})
    likelihood = result.likelihood
    assert likelihood is not None
    return found, {
        "verdict": result.verdict,
        "beyond_habit": [likelihood.beyond_habit.mean, likelihood.beyond_habit.standard_error],
        "log_likelihood": {name: getattr(likelihood, name).mean for name in ("cirl", "habit", "boosting")},
        "decisions": likelihood.decisions,
        "uninterpreted": sorted(result.uninterpreted),
        **said(found.posterior),
        "seconds": dict(watch.seconds),
    }


def said(posterior: PosteriorResult) -> dict[str, Any]:
    """Point estimates and 90 % intervals."""
    ends = np.quantile(posterior.habit_draws, TAILS[[0, 2]], axis=0)
    return {
        "weights": posterior.median.tolist(),
        "intervals": [list(pair) for pair in posterior.intervals],
        "kappa": posterior.kappa_mean,
        "kappa_interval": list(posterior.kappa_interval),
        "habit_intervals": np.moveaxis(ends, 0, -1).tolist(),
        "converged": posterior.sampler.converged,
        "power": posterior.sampler.power,
    }


def in_the_true_world(ward: Ward, batch: Batch, number: int) -> dict[str, Any]:
    """The posterior of the same decisions, judged in the world in which they were made."""
    rng, contexts = np.random.default_rng([number, 4]), Contexts.of(batch, ward.config.habit)
    pool = plan_pool(partial(ward.agent.psi, batch), batch, ward.signs, ward.config.posterior, rng, contexts)
    return said(sample_posterior(pool, ward.signs, rng))


def run(ward: Ward, number: int, folder: Path, none: bool, world_known: bool) -> dict[str, Any]:
    """Experts of their own, what they do, and what is said of it with habits and without."""
    experts = ward.experts(number)
    assert experts.habit is not None
    batch = ward.decisions(experts, len(ward.table), number)
    # Worlds do not depend on what habits are looked for: the second fit reads those of the first.
    unfinished = folder / "unfinished" / str(number)
    stored = StoredParts(unfinished)
    how = (ward.agent.feature_map, ward.signs)
    found, with_habit = fitted(batch, *how, ward.config, number, stored)
    assert found.foreseen is not None
    shown = found.foreseen.judged
    answer: dict[str, Any] = {
        "number": number,
        "truth": {
            "weights": experts.w.tolist(),
            "kappa": experts.kappa,
            "habit": experts.habit.logits.tolist(),
            "gain": list(true_gain(experts, shown)),
        },
        "decisions": batch.n_steps,
        "outcomes": list(ward.agent.feature_map.features),
        "habit": with_habit,
    }
    if none:
        answer["none"] = fitted(batch, *how, replace(ward.config, habit=()), number, stored)[1]
    if world_known:
        answer["world known"] = in_the_true_world(ward, shown, number)
    shutil.rmtree(unfinished, ignore_errors=True)
    return answer


def matters(found: Mapping[str, Any]) -> bool:
    """Whether the outcomes matter enough to be seen in the decisions of a run."""
    gain, error = found["truth"]["gain"]
    return bool(found["truth"]["kappa"] > 0 and gain > CLEAR * error)


def borderline(found: Mapping[str, Any]) -> bool:
    """Whether that is a matter of luck."""
    gain, error = found["truth"]["gain"]
    low, high = BORDERLINE
    return bool(found["truth"]["kappa"] > 0 and low * error < gain <= high * error)
