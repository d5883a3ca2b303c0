"""The simulated expert: the successor-feature agent trained on the simulator, acting with a share of chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from agents.successor.agent import (
    SuccessorAgent,
    SuccessorConfig,
    SuccessorPolicy,
    check_actions,
    check_kappa,
    tempered,
)
from agents.successor.training import Problem, fit_successor, fixed_weights, simulated_starts
from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import Habit
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.data.rollout import numbered_actions, returns, rollout
from cirl_gym.data.rules import read_rules
from cirl_gym.outcome_models.masked import with_rules
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.training import Progress
from cirl_gym.types import FloatArray, Policy
from cirl_gym.worlds.tumour import N_ACTIONS, TumourParameters, TumourWorld

EXPERT = SuccessorConfig(weights_per_history=1, hidden=(32, 32), gradient_steps=200, width=16)
"""How experts are trained: for one preference a small network is enough, and trained longer it guides 16 plans as well
as one of 64 units guides 32. An expert whose plans fall short does not act as its weights say. Measured for (-.3, -.7)
at gamma .99, where plans are hardest to find, beside a search of width 512, in three trainings: the greedy actions lose
.00006 of value a decision and the chances of kappa = 100 are .007 to .010 off on average, bias .0014 (with a width of
12, .00007 and .010 to .014; with 8, .00014 and .016 to .021)."""


@dataclass(frozen=True)
class Expert:
    """An agent with its true preferences, its inverse temperature and, perhaps, habits.

    P(a) = softmax(kappa Q(h, a)); for two actions that is sigmoid(kappa (Q(h, 1) - Q(h, 0))). The paper (appendix E)
    prints Bernoulli(sigmoid(kappa Q(h, a))), which with Q <= 0 could never treat with more than one half: a slip.
    With habits, whose logits are b, P(a) = softmax(b + kappa Q(h, a)).

    Raises:
        ValueError: kappa is negative or not finite, or the habit is one of another number of actions.
    """

    agent: SuccessorAgent
    """Solved for ``w``."""
    w: FloatArray
    """``[d]`` true reward weights, L1 norm 1."""
    kappa: float
    """Inverse temperature; the larger, the fewer mistakes."""
    habit: Habit | None = None
    """What is done again and again, whatever is foreseen (:mod:`cirl_gym.data.habits`); None: nothing."""

    def __post_init__(self) -> None:
        check_kappa(self.kappa)
        if self.habit is not None:
            check_actions(self.habit, self.agent.model.n_actions)

    @classmethod
    def of(cls, agent: SuccessorAgent, w: FloatArray, kappa: float, habit: Habit | None = None) -> Expert:
        """An expert with weights ``[d]`` of any L1 norm: kappa is for the weights as given."""
        return cls(agent, agent.checked_weights(w), kappa * float(np.abs(w).sum()), habit)

    def policy(self, seed: int = 0) -> SuccessorPolicy:
        """What the expert does; ``deterministic=True`` in its ``predict`` gives what is most likely done."""
        return self.agent.policy(self.w, self.kappa, seed, self.habit)

    @property
    def optimal(self) -> SuccessorPolicy:
        """What the preferences alone would do: no mistakes and no habits."""
        return self.agent.policy(self.w)

    def probabilities(self, batch: Batch) -> FloatArray:
        """Chances ``[N, T, A]`` of every action along a batch; rows on padding mean nothing."""
        logits = tempered(self.agent.q(batch, self.w), self.kappa)
        return np.asarray(softmax(logits if self.habit is None else logits + self.habit.along(batch), axis=-1))


def simulated_habit(habit: tuple[float, float] | None) -> Habit | None:
    """The habit of an expert in the simulator, of two logits: of repeating the action before, and of treating."""
    if habit is None:
        return None
    repeat, treat = habit
    return Habit.repeating(numbered_actions(N_ACTIONS), repeat, (0.0, treat))


def simulator_model(parameters: TumourParameters, forbid: Sequence[str] = ()) -> OutcomeModel:
    """The simulator as an outcome model, in whose world rules (:mod:`cirl_gym.data.rules`) hold."""
    model = OracleModel(parameters)
    return with_rules(model, read_rules(forbid, model.features, numbered_actions(model.n_actions)))


def successor_expert(
    parameters: TumourParameters,
    w: FloatArray,
    gamma: float,
    kappa: float,
    config: SuccessorConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
    forbid: Sequence[str] = (),
    habit: Habit | None = None,
) -> Expert:
    """Solve the simulator for one preference (paper, appendix E).

    Only the direction of the true reward weights ``w [2]`` matters to what is optimal; kappa is for the weights as
    given, so that a smaller norm makes a smaller kappa.

    Args:
        parameters: the simulator.
        w: of L1 norm at most 1.
        gamma: discount factor in [0, 1].
        kappa: inverse temperature.
        config: how to train.
        rng: everything that is drawn.
        progress: called with (done, total).
        forbid: rules of what the expert may not do (:mod:`cirl_gym.data.rules`).
        habit: what the expert does again and again (:func:`simulated_habit`); it plans as if there were none.

    Raises:
        ValueError: the weights are not two finite numbers of L1 norm at most 1, gamma or kappa is out of range, a rule
            cannot be read, or the habit is one of another number of actions.
    """
    weights = np.asarray(w, dtype=np.float64)
    norm = float(np.abs(weights).sum())
    if weights.shape != (2,) or not np.isfinite(weights).all() or norm > 1 + 1e-9:
        raise ValueError(f"weights must be two finite numbers with L1 norm at most 1, got {w}")
    check_kappa(kappa)
    if habit is not None:
        check_actions(habit, N_ACTIONS)
    problem = Problem(
        simulator_model(parameters, forbid),
        parameters.feature_map,
        simulated_starts(parameters, rng),
        parameters.horizon,
        gamma,
        fixed_weights(weights),
    )
    return Expert.of(fit_successor(problem, config, rng, progress), weights, kappa, habit)


def noise_free_values(
    policy: Policy, parameters: TumourParameters, starts: FloatArray, w: npt.ArrayLike, gamma: float
) -> FloatArray:
    """``[n]`` discounted returns of the deterministic policy from first observations ``[n, 2]``, without noise.

    They can be compared patient by patient with :func:`cirl_gym.worlds.exact.optimum`, which nobody exceeds.
    """
    world = TumourWorld(parameters, noise=False)
    batch = rollout(world, policy, len(starts), np.random.default_rng(0), start=world.start(starts))
    return returns(batch, parameters.feature_map, np.asarray(w, dtype=np.float64), gamma)
