"""From what a user has - a batch, an environment, a world - to the problem that the successor-feature agent solves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import numpy.typing as npt

from agents.successor import SuccessorAgent, SuccessorConfig
from agents.successor_training import Problem, ProgressCallback, fit_successor
from agents.weights import uniform_weights
from cirl_gym import dynamics
from cirl_gym.action_rule_text import read_rules, rules_for
from cirl_gym.batch import Batch
from cirl_gym.counterfactual_env import CounterfactualEnv
from cirl_gym.features import FeatureMap
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.masked import with_rules, without_rules
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.rollout import numbered_actions
from cirl_gym.tumour_env import TumourEnv
from cirl_gym.types import Float32Array, OutcomeModel
from cirl_gym.worlds import CounterfactualWorld, TumourWorld

Source: TypeAlias = Batch | gym.Env[Any, Any] | TumourWorld | CounterfactualWorld
"""What an agent can be trained from."""
STARTS = 4096
"""First observations that are drawn where the simulator is the world model."""
HELD_OUT = 0.1
"""Share of a batch's patients that choose between outcome models and see no training."""


@dataclass(frozen=True)
class _Known:
    """What a source says of the problem."""

    model: OutcomeModel
    feature_map: FeatureMap | None
    starts: Float32Array
    horizon: int
    histories: Batch | None = None


def fit_agent(
    source: Source,
    gamma: float = 0.99,
    *,
    signs: npt.ArrayLike | None = None,
    feature_map: FeatureMap | None = None,
    config: SuccessorConfig | None = None,
    seed: int = 0,
    progress: ProgressCallback | None = None,
    forbid: Sequence[str] = (),
) -> SuccessorAgent:
    """One training, the (near) optimal policy of any preferences: no reward is needed.

    Args:
        source: a batch (an outcome model is fitted to nine tenths of its patients, and chosen by the rest),
            ``CIRLTumour-v0`` or a :class:`~cirl_gym.worlds.TumourWorld` (the simulator is its own world model),
            ``CIRLCounterfactual-v0`` or a :class:`~cirl_gym.worlds.CounterfactualWorld` (their outcome model is).
        gamma: discount factor in [0, 1].
        signs: ``[d]`` -1 or +1 where the sign of a weight is known (default: lower is better in the simulator, free
            elsewhere).
        feature_map: which features are outcomes and how they are scaled (default: the environment's or simulator's own,
            a batch's ranges of all features).
        config: how to train.
        seed: everything that is drawn; the same seed gives the same agent, to the byte.
        progress: called with (done, total).
        forbid: rules of what may not be done (:mod:`cirl_gym.action_rule_text`); those of an environment or of a masked
            model hold anyway.

    Raises:
        TypeError: no agent can be trained from such a source.
        ValueError: a number is out of its range, the source does not say how to scale its outcomes, a rule cannot be
            read, or a batch's masks (:attr:`cirl_gym.batch.Batch.allowed`) come without rules or rules without masks.
    """
    rng = np.random.default_rng(seed)
    known = _known(source, rng)
    if isinstance(source, Batch):
        rules = rules_for(source, forbid)
    else:
        rules = read_rules(forbid, known.model.features, numbered_actions(known.model.n_actions))
    scaling = feature_map or known.feature_map
    if scaling is None:
        raise ValueError("a CounterfactualWorld does not say how outcomes are scaled: give feature_map")
    if signs is None:
        simulated = isinstance(without_rules(known.model), OracleModel)
        signs = np.full(len(scaling.features), -1.0 if simulated else 0.0)
    model = with_rules(known.model, rules)
    problem = Problem(model, scaling, known.starts, known.horizon, gamma, uniform_weights(signs), known.histories)
    return fit_successor(problem, config or SuccessorConfig(), rng, progress)


def _known(source: Source, rng: np.random.Generator) -> _Known:
    if isinstance(source, Batch):
        train, validation = source.split(HELD_OUT, rng)
        model = fit_outcome_model("crn", train, validation, OutcomeModelConfig(), rng).model
        return _Known(model, FeatureMap.from_batch(train), train.start, source.horizon, train)
    if isinstance(source, gym.Env):
        env = source.unwrapped
        if isinstance(env, TumourEnv):
            known = _known(TumourWorld(env.parameters), rng)
            return replace(known, model=with_rules(known.model, env.rules))
        if isinstance(env, CounterfactualEnv):
            return _Known(env.model, env.feature_map, env.batch.start, env.batch.horizon)
    if isinstance(source, TumourWorld):
        parameters = source.parameters
        phi = FeatureMap.from_parameters(parameters, dynamics.FEATURES)
        starts = dynamics.draw_start(parameters, STARTS, rng).astype(np.float32)
        return _Known(OracleModel(parameters), phi, starts, parameters.horizon)
    if isinstance(source, CounterfactualWorld):
        return _Known(source.model, None, source.starts, source.horizon)
    raise TypeError(f"an agent is trained from a batch, an environment of this package or a world, not {source!r}")
