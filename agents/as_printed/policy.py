"""Deep recurrent Q-learning on the histories of a batch (paper, section 4.2 and appendix D).

Q(h, a) = w . phi(h, a) + gamma max over a' of Q(h', a'), where h comes from the batch and h' = (h, a, E[Y(a) | h]) from
the outcome model. :class:`agents.drqn.drqn.DRQN` is the same network in an environment that is acted in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.as_printed.histories import Histories, Masks
from agents.as_printed.training import (
    HistoryNetwork,
    HistoryTrainingConfig,
    Rows,
    StoredTraining,
    train_on_histories,
    values_along,
)
from agents.policies.policy import RecurrentPolicy, StoredPolicies, only_allowed
from cirl_gym.data.batch import Batch
from cirl_gym.outcome_models.network_files import Arrays, load_module_arrays, module_arrays
from cirl_gym.outcome_models.networks import lstm_step
from cirl_gym.outcome_models.training import Progress, seeded
from cirl_gym.types import FloatArray, Policy


class LearntPolicy(RecurrentPolicy):
    """The greedy policy of Q(h, a), a :class:`~cirl_gym.types.Policy`.

    It never draws: pi(a | h) is 1 for the action of largest Q (paper, section 4.2), the first of equals. Where the
    histories' world has rules, it is the largest of the allowed ones.

    Args:
        histories: what it was learnt on.
        network: Q(h, a).
    """

    def __init__(self, histories: Histories, network: HistoryNetwork) -> None:
        super().__init__(histories.scaler, network.n_actions, network.lstm.hidden_size, histories.rules)
        self.histories, self.network = histories, network

    def step(self, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Q ``[n, A]`` after one more input, and the states after it."""
        following = lstm_step(self.network.lstm, inputs, *memory)
        return self.network.values(following[0])[..., 0], following

    def q(self, batch: Batch) -> FloatArray:
        """Q(h, a) ``[N, T, A]`` after every history of a batch, minus infinity where a is not allowed; 0 on padding.

        Raises:
            ValueError: the batch has other features or actions.
        """
        self.histories.check_batch(batch)
        q = values_along(self.network, self.scaler, batch)[..., 0]
        if self.rules is not None:
            q = np.where(self.rules.allowed_along(batch)[:, :-1] | ~batch.mask[..., None], q, -np.inf)
        return q


def learn_policy(
    histories: Histories,
    w: npt.ArrayLike,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    progress: Progress | None = None,
    *,
    stored: StoredTraining | None = None,
) -> LearntPolicy:
    """A policy that is optimal for preferences w in the outcome model, from the batch's histories.

    Args:
        histories: of the batch, with their next histories.
        w: ``[d]`` preferences, used at the scale given (the values have its scale).
        config: how to train.
        rng: first weights, and everything that is drawn.
        progress: called with (iterations done, iterations in all).
        stored: where the training is stored, so that one that was killed goes on.

    Raises:
        ValueError: w is not ``d`` finite numbers, the histories end by another rule than the configuration says, or
            the loss did not stay finite.
    """
    weights, d = np.asarray(w, dtype=np.float32), histories.phi.shape[-1]
    if weights.shape != (d,) or not np.isfinite(weights).all():
        raise ValueError(f"w must be {d} finite numbers, got {weights}")
    learner = QLearner((histories.phi @ torch.from_numpy(weights))[..., None], histories.masks)
    return LearntPolicy(histories, train_on_histories(histories, learner, config, rng, progress, stored=stored))


def stored_policies(histories: Histories, config: HistoryTrainingConfig) -> StoredPolicies:
    """Policies that :func:`learn_policy` found, as arrays and back."""

    def arrays(policy: Policy) -> Arrays:
        assert isinstance(policy, LearntPolicy)
        return module_arrays(policy.network)

    def policy(_w: FloatArray, found: Arrays) -> LearntPolicy:
        # First weights are drawn, from torch's own generator: it stays as it is.
        with seeded(0):
            network = HistoryNetwork(histories.inputs.shape[2], histories.phi.shape[2], 1, config.hidden)
        load_module_arrays(network, found)
        return LearntPolicy(histories, network.eval())

    return StoredPolicies(arrays, policy)


class QLearner:
    """Appendix D: the payoff is w . phi, and what follows is max over a' of Q(h', a'), of the a' that are allowed."""

    def __init__(self, reward: Tensor, masks: Masks | None = None) -> None:
        self.payoff, self.masks = reward, masks

    def chosen(self, rows: Rows, values: Tensor, rng: np.random.Generator) -> Tensor:
        """``[R]`` the allowed action of largest Q."""
        del rng
        if self.masks is not None:
            return only_allowed(values[..., 0], self.masks.here[rows.episode, rows.step]).argmax(dim=1)
        return values[..., 0].argmax(dim=1)

    def following(self, rows: Rows, actions: Tensor, values: Tensor) -> Tensor:
        """``[R, C, 1]`` the largest Q of the next histories' allowed actions."""
        if self.masks is not None:
            allowed = self.masks.following[rows.episode[:, None], rows.step[:, None], actions]
            return only_allowed(values[..., 0], allowed).amax(dim=2, keepdim=True)
        return values.amax(dim=2)

    def loss(self, error: Tensor) -> Tensor:
        """Mean of (y - Q(h, a)) squared."""
        return error.square().mean()
