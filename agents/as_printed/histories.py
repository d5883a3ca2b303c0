"""Every history of a batch and every action after it: what appendices C and D learn on, computed once.

For a history h of the batch and any action a, the outcome model gives the next history h' = (h, a, E[Y(a) | h]). The
network that learns reads h step by step as [scaled x_t, one-hot a_{t-1}]; h' is one step more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from agents.successor.training import Problem
from cirl_gym.data.batch import Batch
from cirl_gym.data.rollout import observation
from cirl_gym.data.rules import ActionRules
from cirl_gym.outcome_models.inputs import Scaler, end_labels, one_hot, sequence_inputs
from cirl_gym.outcome_models.masked import rules_of
from cirl_gym.types import Float32Array, IntArray, Policy

Ends = Literal["data", "model"]
"""What says that an episode ends: the batch's flags or the outcome model's p_end."""


class Masks(NamedTuple):
    """Which actions are allowed, True where one is; at least one is everywhere, also on padding."""

    here: Tensor
    """``[N, T, A]`` after h."""
    following: Tensor
    """``[N, T, A, A]`` after h' = (h, a, E[Y(a) | h]) for every a, allowed or not."""


@dataclass(frozen=True)
class Histories:
    """The histories h_0..h_{T-1} of N episodes, and what follows each under each of A actions."""

    batch: Batch
    """The episodes."""
    scaler: Scaler
    """How observations are scaled for the network."""
    horizon: int
    """Number of actions of a whole episode, at least the batch's T."""
    ends: Ends
    """What said that an episode ends."""
    outcomes: Float32Array
    """``[N, T, A, D]`` expected next observation, raw units."""
    inputs: Tensor
    """``[N, T, D + A]`` float32, what the network reads at each step."""
    phi: Tensor
    """``[N, T, A, d]`` float32."""
    discount: Tensor
    """``[N, T, A]`` float32: gamma times the chance that the episode goes on; 0 after the last step of the horizon."""
    next_inputs: Tensor
    """``[N, T, A, D + A]`` float32, what the network reads when h has become h'."""
    rules: ActionRules | None = None
    """Those of the outcome model's world; None: every action is always allowed."""
    masks: Masks | None = None
    """What the rules allow; None where there are none."""

    @classmethod
    def of(cls, problem: Problem, ends: Ends = "model") -> Histories:
        """Ask the outcome model about every history of a problem's batch.

        With ends of the ``"data"`` an episode ends where the batch's did, whatever the action (the paper), and one
        whose watching ended before the horizon goes on; with those of the ``"model"`` with probability p_end(h, a).
        Either way it ends after the horizon's last action.

        Raises:
            ValueError: the problem has no histories, they have other actions than the model, or ``ends`` is unknown.
        """
        batch, model = problem.histories, problem.model
        if batch is None:
            raise ValueError("learning on histories needs a problem with histories")
        if batch.n_actions != model.n_actions:
            raise ValueError(f"the histories have {batch.n_actions} actions, the model {model.n_actions}")
        if ends not in get_args(Ends):
            raise ValueError(f"ends must be 'data' or 'model', got {ends!r}")
        states = model.encode(batch)[:, :-1]  # h_T has no action
        outcomes = model.predict(states)
        p_end = model.end_probability(states) if ends == "model" else end_labels(batch)[..., None]
        discount = np.broadcast_to(problem.gamma * (1.0 - p_end), outcomes.shape[:3]).astype(np.float32)
        discount[:, problem.horizon - 1 :] = 0.0
        scaler = Scaler.from_batch(batch)
        hot = one_hot(np.arange(model.n_actions), model.n_actions)
        taken = np.broadcast_to(hot, (*outcomes.shape[:3], model.n_actions))
        rules, masks = rules_of(model), None
        if rules is not None:
            here = rules.allowed_along(batch)[:, :-1].copy()
            following = rules.allowed(outcomes, np.broadcast_to(np.arange(batch.n_actions), outcomes.shape[:3]))
            masks = Masks(torch.from_numpy(here), torch.from_numpy(following))
        return cls(
            batch=batch,
            scaler=scaler,
            horizon=problem.horizon,
            ends=ends,
            outcomes=outcomes,
            inputs=torch.from_numpy(sequence_inputs(scaler, batch)[:, :-1].copy()),
            phi=torch.from_numpy(problem.feature_map(outcomes).astype(np.float32)),
            discount=torch.from_numpy(discount),
            next_inputs=torch.from_numpy(np.concatenate([scaler(outcomes), taken], axis=-1)),
            rules=rules,
            masks=masks,
        )

    def check_batch(self, batch: Batch) -> None:
        """Raise ValueError where another batch has other features or actions."""
        if (batch.features, batch.n_actions) != (self.batch.features, self.batch.n_actions):
            raise ValueError(
                f"the batch has features {batch.features} and {batch.n_actions} actions, learnt was on "
                f"{self.batch.features} and {self.batch.n_actions}"
            )


@dataclass(frozen=True)
class PolicyActions:
    """What a policy does after every history of the batch and after every next history.

    A policy that draws is asked several times: an expectation over its actions is the mean over what it drew.
    """

    here: Tensor
    """``[K, N, T]`` int64, after h."""
    following: Tensor
    """``[K, N, T, A]`` int64, after h' = (h, a, E[Y(a) | h]) for every a; 0 after the horizon's last step, where there
    is no further action."""

    @classmethod
    def of(cls, policy: Policy, histories: Histories, draws: int = 0) -> PolicyActions:
        """Ask a policy along the batch, its memory carried from t = 0 on.

        One that draws is asked ``draws`` times (K); 0: once, for its most likely action.

        Raises:
            ValueError: ``draws`` is negative.
        """
        if draws < 0:
            raise ValueError(f"draws must not be negative, got {draws}")
        asked = [_actions(policy, histories, deterministic=draws == 0) for _ in range(max(draws, 1))]
        here, following = (torch.from_numpy(np.stack(part)) for part in zip(*asked, strict=True))
        return cls(here, following)


def _actions(policy: Policy, histories: Histories, deterministic: bool) -> tuple[IntArray, IntArray]:
    batch, (n, steps, n_actions, _) = histories.batch, histories.outcomes.shape
    here: IntArray = np.zeros((n, steps), dtype=np.int64)
    following: IntArray = np.zeros((n, steps, n_actions), dtype=np.int64)
    previous, memory = np.full(n, -1), None
    for t in range(steps):
        seen = observation(batch.obs[:, t], previous, n_actions)
        here[:, t], memory = policy.predict(seen, memory, np.full(n, t == 0), deterministic)
        if t < histories.horizon - 1:
            for action in range(n_actions):
                then = observation(histories.outcomes[:, t, action], np.full(n, action), n_actions)
                following[:, t, action], _ = policy.predict(then, memory, np.zeros(n, np.bool_), deterministic)
        previous = batch.actions[:, t]
    return here, following
