"""Laws with known bends and interactions, and episodes of one step that follow them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from small_batches import cut_off

from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.ends import EndHead, EndLines
from cirl_gym.outcome_models.inputs import Scaler, Window
from cirl_gym.outcome_models.law import AutoregressionConfig, LinearLaw
from cirl_gym.outcome_models.limits import OutcomeSpec
from cirl_gym.outcome_models.model import LearnedModel
from cirl_gym.outcome_models.terms import Terms, knots_of
from cirl_gym.types import FloatArray

FEATURES, ACTIONS = ("x", "y"), ("no", "low", "high")
ONE_LAG = AutoregressionConfig(max_order=1)


def levels(n: int, seed: int = 0) -> FloatArray:
    """``[n, 2]`` where episodes begin: around 5 and -40, that no scale is 1 and no mean 0."""
    return np.random.default_rng(seed).normal(size=(n, 2)) * (2.0, 10.0) + (5.0, -40.0)


def termed_law(bends=(0.0, 0.0), interactions=(), at: FloatArray | None = None) -> LinearLaw:
    """X' = 1 + .8 x + .02 y + {0, .5, -1};  y' = -2 + .9 y + {0, 2, 1}, and terms.

    Args:
        bends: change of each feature's slope beyond the middle knot.
        interactions: triples (action, i, j) and a number: what a unit of feature i changes of the effect on j.
        at: levels of whose quantiles the knots are; default: those of 400 episodes.
    """
    knots = knots_of(levels(400) if at is None else at)
    changes, moderated = np.zeros((3, 2)), np.zeros((3, 2, 2))
    changes[1] = bends
    for place, value in interactions:
        moderated[place] = value
    coefficients, effects = np.array([[0.8, 0.0], [0.02, 0.9]]), np.array([[0.0, 0.0], [0.5, 2.0], [-1.0, 1.0]])
    return LinearLaw(Window(1, 2, 3), np.array([1.0, -2.0]), coefficients, effects, Terms(knots, changes, moderated))


def model_of(law: LinearLaw, noise: float = 1.0, ends: float = 0.0) -> LearnedModel:
    """Without limits; after every action it ends with the same probability."""
    d = law.window.n_features
    wide = np.full(d, 1e4)
    spec = OutcomeSpec(
        FEATURES[:d], law.window.n_actions, -wide, wide, np.full(d, noise), np.full(d, -np.inf), np.full(d, np.inf)
    )
    lines = EndLines(spec.floor, spec.ceiling, spec.noise_scale, Scaler(np.zeros(d), np.ones(d)))
    return LearnedModel(law, spec, EndHead("constant", lines, ends))


def one_step(law: LinearLaw, start: FloatArray, seed: int = 0, noise: float = 0.0) -> Batch:
    """One decision each, drawn evenly."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(3, size=len(start))
    begun = start.astype(np.float32)
    after = law.of_action(begun, actions) + noise * rng.normal(size=start.shape)
    return cut_off(np.stack([begun, after], axis=1), actions[:, None], FEATURES, ACTIONS)


def relabelled(batch: Batch) -> Batch:
    """The same with features and actions the other way round."""
    n = batch.n_actions - 1
    return replace(
        batch,
        obs=batch.obs[..., ::-1],
        actions=np.where(batch.mask, n - batch.actions, 0),
        features=batch.features[::-1],
        action_names=batch.action_names[::-1],
    )
