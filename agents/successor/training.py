"""Training of the successor-feature agent (:mod:`agents.successor.agent`), from a batch, an environment or a world.

Histories are imagined, then one backward sweep learns one stage after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from agents.policies.policy import Memory, ScoringPolicy, drawn_with
from agents.successor.agent import Source, SuccessorAgent, SuccessorConfig
from agents.successor.network import StagedNetwork
from cirl_gym.data.batch import Batch, seldom_taken
from cirl_gym.data.features import FeatureMap, checked_signs, draw_weights
from cirl_gym.data.outcome_model import CounterfactualWorld, OutcomeModel
from cirl_gym.data.rollout import numbered_actions, rollout
from cirl_gym.data.rules import ActionRules, read_rules, rules_for
from cirl_gym.envs.counterfactual import CounterfactualEnv
from cirl_gym.envs.tumour import TumourEnv
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.known import KnowingModel, knowing
from cirl_gym.outcome_models.masked import rules_of, with_rules, without_rules
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.training import Progress
from cirl_gym.types import BoolArray, Float32Array, FloatArray, IntArray
from cirl_gym.worlds import tumour
from cirl_gym.worlds.tumour import TumourParameters, TumourWorld

WeightSampler = Callable[[int, np.random.Generator], FloatArray]
"""Draws n preferences ``[n, d]`` to train on."""
HELD_OUT = 0.1
"""Share of a batch's patients that choose between outcome models and see no training."""
_FEWEST_A_STEP = 256
"""Histories a gradient step at least where there are many actions: each history teaches all of them at once. Measured
with 20 outcomes and 25 actions: 1024 take 16 s and 256 take 7, for values within .0001 of each other."""
_TARGETS = 50_000
"""Returns, one per history, w and action, that a stage learns from at most: more take longer and teach it no more. The
actions share the network's layers, so that with many of them fewer histories are needed. Measured with 20 outcomes and
25 actions: the network's own choices lose .018, .010 and .010 of the full range with 6,400, 25,600 and 102,400."""
_RIDGE = 1e-6
"""Of the last layer's least squares, as a share of its inputs' mean square: units that never differ stay finite."""


def uniform_weights(signs: npt.ArrayLike) -> WeightSampler:
    """W uniform on the allowed part of the L1 sphere; ``signs [d]``: -1 or +1 fixes a sign, 0 leaves it free."""
    allowed = checked_signs(signs)
    return lambda n, rng: draw_weights(allowed, rng, n)


def fixed_weights(w: npt.ArrayLike) -> WeightSampler:
    """Always the same w, scaled to L1 norm 1: for an agent that needs to know one preference only."""
    weights = np.asarray(w, dtype=np.float64)
    weights = weights / max(np.abs(weights).sum(), 1e-12)
    return lambda n, rng: np.tile(weights, (n, 1))


def simulated_starts(parameters: TumourParameters, rng: np.random.Generator) -> Float32Array:
    """``[4096, 2]`` first observations to imagine from where the simulator is the world model."""
    return tumour.draw_start(parameters, 4096, rng).astype(np.float32)


@dataclass(frozen=True)
class Problem:
    """What is to be solved: a world model, where episodes start, how long they are, what counts.

    Raises:
        ValueError: a number is out of its range, or feature map or histories do not fit the model or the horizon.
    """

    model: OutcomeModel
    """phi before scaling."""
    feature_map: FeatureMap
    """Which of the model's D features are outcomes, and how they are scaled to phi."""
    starts: Float32Array
    """``[n, D]`` first observations to imagine from."""
    horizon: int
    """T: episodes end after T actions, and nothing counts after it (the paper's finite horizon)."""
    gamma: float
    """Discount factor in [0, 1]."""
    weights: WeightSampler
    """Which preferences to train for."""
    histories: Batch | None = None
    """Observed histories to learn on beside the imagined ones. Actions of whose effects they tell next to nothing
    (:func:`cirl_gym.data.batch.seldom_taken`) are in no plan but as the first action that is asked about."""
    ahead: int | None = None
    """How many actions a decision looks ahead, at most: what comes later does not count for it, and at the next step
    it is planned anew. Default: to the end of the episode, as in the paper."""

    def __post_init__(self) -> None:
        if self.feature_map.of != self.model.features:
            raise ValueError(f"the feature map is of {self.feature_map.of}, the model of {self.model.features}")
        if self.histories is not None and self.histories.horizon > self.horizon:
            raise ValueError(f"the histories have up to {self.histories.horizon} steps, the horizon is {self.horizon}")
        if self.histories is not None and self.histories.features != self.model.features:
            raise ValueError(f"the histories are of {self.histories.features}, the model of {self.model.features}")
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must lie between 0 and 1, got {self.gamma}")
        if self.horizon < 1:
            raise ValueError(f"horizon must be at least 1, got {self.horizon}")
        if self.ahead is not None and self.ahead < 1:
            raise ValueError(f"ahead must be at least 1, got {self.ahead}")

    @property
    def stages(self) -> int:
        """How many actions a decision looks ahead where no end is nearer."""
        return self.horizon if self.ahead is None else min(self.ahead, self.horizon)


class RandomRates(ScoringPolicy):
    """Random actions whose rates are drawn for each episode and change once within it.

    Diverse histories matter more than many: at a constant rate of one half no long stretch of treatment or of sparing
    would ever be seen. Where rules forbid actions, the rates of the allowed ones are scaled up.
    """

    def __init__(
        self, horizon: int, n_actions: int, rng: np.random.Generator, rules: ActionRules | None = None
    ) -> None:
        self.horizon, self.n_actions, self.rng, self.rules = horizon, n_actions, rng, rules

    def act(
        self, observation: Any, state: Memory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, Memory]:
        """Rates ``[n, A]``; the memory holds the time, when the rates change, and both sets of rates."""
        n = len(observation)
        if state is None:
            rates = self.rng.dirichlet(np.ones(self.n_actions), size=(2, n))
            state = (np.zeros(n), self.rng.integers(self.horizon, size=n), rates)
        time, switch, rates = state
        rate = np.where((time < switch)[:, None], rates[0], rates[1])
        if self.rules is not None:
            # A little is left to every allowed action: the rates of all of them may be next to nothing.
            rate = (rate + 1e-9) * self.rules.allowed_next(observation)
            rate /= rate.sum(axis=1, keepdims=True)
        return rate, (time + 1, switch, rates)

    def draw(self, scores: FloatArray) -> IntArray:
        """Actions ``[n]`` drawn at the rates."""
        return drawn_with(scores, self.rng)


def fit_successor(
    problem: Problem,
    config: SuccessorConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> SuccessorAgent:
    """Train psi for all preferences of ``problem.weights``.

    Same generator state, same agent, to the byte.

    Raises:
        ValueError: the starts do not fit the model, or training did not stay finite.
    """
    states, alive = _imagine(problem, config, rng)
    live = states[alive]
    scale = live.std(axis=0, dtype=np.float64)
    sizes, stages = (states.shape[2], len(problem.feature_map.features), problem.model.n_actions), problem.stages
    network = StagedNetwork(*sizes, problem.gamma, stages, config.hidden)
    network.initialise(rng)
    agent = SuccessorAgent(
        problem.model,
        problem.feature_map,
        network,
        problem.gamma,
        live.mean(axis=0, dtype=np.float64).astype(np.float32),
        np.where(scale > 1e-6, scale, 1.0).astype(np.float32),
        config.width,
        () if problem.histories is None else seldom_taken(problem.histories),
    )
    for t in reversed(range(stages)):
        # Where plans end before the episode does, a stage is met that much later too.
        rows, later = np.nonzero(alive[:, t : t + problem.horizon - stages + 1])
        if t < stages - 1:
            # What is left to come at t is much like what is left at t + 1.
            network.stages[t].load_state_dict(network.stages[t + 1].state_dict())
        if len(rows):
            _learn_stage(agent, problem, config, t, states[rows, t + later], rng)
        if progress is not None:
            progress(stages - t, stages)
    return agent.for_episodes(problem.horizon)


def _imagine(problem: Problem, config: SuccessorConfig, rng: np.random.Generator) -> tuple[Float32Array, BoolArray]:
    """States ``[E, T, S]`` of imagined (and observed) histories, and where they are alive ``[E, T]``."""
    world = CounterfactualWorld(problem.model, problem.starts, problem.horizon, outcome="sampled")
    obs = problem.starts[rng.integers(len(problem.starts), size=config.episodes)]
    start = (problem.model.start(obs), obs)
    explorer = RandomRates(problem.horizon, problem.model.n_actions, rng, rules_of(problem.model))
    batches = [rollout(world, explorer, config.episodes, rng, deterministic=False, start=start)]
    if problem.histories is not None:
        seen = rng.permutation(len(problem.histories))[: max(config.episodes // 2, 1)]
        batches.append(problem.histories.take(seen))
    batches = [batch.padded(problem.horizon) for batch in batches]
    states = np.concatenate([problem.model.encode(batch)[:, :-1] for batch in batches])
    return states, np.concatenate([batch.mask for batch in batches])


def _learn_stage(
    agent: SuccessorAgent,
    problem: Problem,
    config: SuccessorConfig,
    t: int,
    states: Float32Array,
    rng: np.random.Generator,
) -> None:
    """Regress one stage on exact returns of the stages after it, all actions at once.

    The last layer is solved for before and after the gradient steps, which so need to bend the layers before it only:
    with 120 steps plans are as good as with 200 that move all layers, with 200 as good as with 400.
    """
    enough = max(_TARGETS // (problem.model.n_actions * config.weights_per_history), 1)
    if len(states) > enough:
        states = states[rng.permutation(len(states))[:enough]]
    states, network = np.repeat(states, config.weights_per_history, axis=0), agent.network
    w = problem.weights(len(states), rng)
    psi = agent.planned_psi(t, states, w, 1)
    average = torch.from_numpy((psi / network.steps_left[t]).astype(np.float32))
    read = network.joined(agent.inputs(states), torch.from_numpy(w.astype(np.float32)))
    stage, target = network.stages[t], network.outputs(average)
    _fit_last_layer(stage, read, target)
    optimiser = torch.optim.Adam(stage.parameters(), lr=config.learning_rate)
    several = max(2 * config.batch_size // problem.model.n_actions, _FEWEST_A_STEP)
    size = min(config.batch_size, several, len(states))
    # The last stage is learnt from nothing, the others from their neighbour.
    steps = config.gradient_steps * (2 if t == problem.stages - 1 else 1)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * (1.0 - step / steps)
        rows = torch.from_numpy(rng.integers(len(states), size=size))
        loss = (stage(read[rows]) - target[rows]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    if not torch.isfinite(loss):
        raise ValueError(f"training stopped at stage t = {t}: the loss is {loss.item()}")
    _fit_last_layer(stage, read, target)


@torch.no_grad()
def _fit_last_layer(stage: nn.Module, read: torch.Tensor, target: torch.Tensor) -> None:
    """Put the last layer to where the mean square error is least, given the layers before it: in closed form."""
    *hidden, last = stage.children()
    assert isinstance(last, nn.Linear)
    seen = nn.functional.pad(nn.Sequential(*hidden)(read), (0, 1), value=1.0).double()
    products = seen.T @ seen
    products.diagonal().add_(_RIDGE * products.diagonal().mean())
    found = torch.linalg.solve(products, seen.T @ target.double())
    last.weight.copy_(found[:-1].T)
    last.bias.copy_(found[-1])


def fit_agent(
    source: Source,
    gamma: float = 0.99,
    *,
    signs: npt.ArrayLike | None = None,
    feature_map: FeatureMap | None = None,
    config: SuccessorConfig | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    forbid: Sequence[str] = (),
) -> SuccessorAgent:
    """One training, the (near) optimal policy of any preferences: no reward is needed.

    Args:
        source: a batch (an outcome model is fitted to nine tenths of its patients, and chosen by the rest),
            ``CIRLTumour-v0`` or a :class:`~cirl_gym.worlds.tumour.TumourWorld` (the simulator is its own world model),
            ``CIRLCounterfactual-v0`` or a :class:`~cirl_gym.data.outcome_model.CounterfactualWorld` (their outcome
            model is).
        gamma: discount factor in [0, 1].
        signs: ``[d]`` -1 or +1 where the sign of a weight is known (default: lower is better in the simulator, free
            elsewhere and of what is an action's own).
        feature_map: which features are outcomes and how they are scaled (default: the environment's or simulator's own,
            a batch's ranges of all features).
        config: how to train.
        seed: everything that is drawn; the same seed gives the same agent, to the byte.
        progress: called with (done, total).
        forbid: rules of what may not be done (:mod:`cirl_gym.data.rules`); those of an environment or of a masked
            model hold anyway.

    Raises:
        TypeError: no agent can be trained from such a source.
        ValueError: a number is out of its range, the source does not say how to scale its outcomes, a rule cannot be
            read, or a batch's masks (:attr:`cirl_gym.data.batch.Batch.allowed`) come without rules or rules without
            masks.
    """
    rng = np.random.default_rng(seed)
    histories, found = None, source.unwrapped if isinstance(source, gym.Env) else source
    model: OutcomeModel
    ranges: FeatureMap | None
    if isinstance(found, Batch):
        histories, validation = found.split(HELD_OUT, rng)
        model = fit_outcome_model("crn", histories, validation, OutcomeModelConfig(), rng).model
        ranges, starts, horizon = FeatureMap.from_batch(histories), histories.start, found.horizon
    elif isinstance(found, TumourEnv | TumourWorld):
        parameters = found.parameters
        ranges = found.feature_map if isinstance(found, TumourEnv) else parameters.feature_map
        first, horizon = simulated_starts(parameters, rng), parameters.horizon
        starts = np.pad(first, ((0, 0), (0, len(ranges.of) - first.shape[1])))  # of what is known, 0 at the start
        model = knowing(OracleModel(parameters), ranges.of, numbered_actions(tumour.N_ACTIONS))
        model = with_rules(model, found.rules if isinstance(found, TumourEnv) else None)
    elif isinstance(found, CounterfactualEnv):
        model, ranges, starts, horizon = found.model, found.feature_map, found.batch.start, found.batch.horizon
    elif isinstance(found, CounterfactualWorld):
        model, ranges, starts, horizon = found.model, None, found.starts, found.horizon
    else:
        raise TypeError(f"an agent is trained from a batch, an environment of this package or a world, not {source!r}")
    if isinstance(source, Batch):
        rules = rules_for(source, forbid)
    else:
        rules = read_rules(forbid, model.features, numbered_actions(model.n_actions))
    scaling = feature_map or ranges
    if scaling is None:
        raise ValueError("a CounterfactualWorld does not say how outcomes are scaled: give feature_map")
    if signs is None:
        plain = without_rules(model)
        simulated = isinstance(plain.model if isinstance(plain, KnowingModel) else plain, OracleModel)
        signs = [-1.0 if simulated and one.columns else 0.0 for one in scaling.outcomes]
    model = with_rules(model, rules)
    problem = Problem(model, scaling, starts, horizon, gamma, uniform_weights(signs), histories)
    return fit_successor(problem, config or SuccessorConfig(), rng, progress)
