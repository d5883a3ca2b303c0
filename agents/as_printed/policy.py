"""Deep recurrent Q-learning on the histories of a batch (paper, section 4.2 and appendix D).

Q(h, a) = w . phi(h, a) + gamma max over a' of Q(h', a'), where h comes from the batch and h' = (h, a, E[Y(a) | h]) from
the outcome model. :class:`agents.drqn.drqn.DRQN` is the same network in an environment that is acted in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.as_printed.rounds import StoredPolicies
from agents.as_printed.training import (
    Histories,
    HistoryNetwork,
    HistoryTrainingConfig,
    Masks,
    ProgressCallback,
    Rows,
    StoredTraining,
    train_on_histories,
    values_along,
)
from agents.policies.memory import cleared, only_allowed, scaled_inputs, warn_of_lost_history
from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import among_allowed
from cirl_gym.outcome_models.network_files import load_module_arrays, module_arrays
from cirl_gym.outcome_models.networks import lstm_step
from cirl_gym.outcome_models.training import seeded
from cirl_gym.types import Float32Array, FloatArray, IntArray, Policy


@dataclass(frozen=True)
class LearntPolicy:
    """The greedy policy of Q(h, a), a :class:`~cirl_gym.types.Policy`; its memory is the LSTM's two states ``[n, H]``.

    It never draws: pi(a | h) is 1 for the action of largest Q (paper, section 4.2), the first of equals. Where the
    histories' world has rules, it is the largest of the allowed ones.
    """

    histories: Histories
    """What it was learnt on."""
    network: HistoryNetwork
    """Q(h, a)."""

    def predict(
        self,
        observation: Any,
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[IntArray, tuple[Float32Array, Float32Array]]:
        """Greedy actions ``[n]`` and the new memory (see :class:`cirl_gym.types.Policy`).

        Warns where no memory is given although an action was already taken.

        Raises:
            ValueError: the observation is not ``[n, D + A]``.
        """
        del deterministic
        q, memory = self.act(observation, state, episode_start)
        return q.argmax(axis=1), memory

    def act(
        self, observation: Any, state: tuple[npt.NDArray[Any], ...] | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[npt.NDArray[np.floating], tuple[Float32Array, Float32Array]]:
        """Q ``[n, A]``, minus infinity where an action is not allowed, and the new memory; see :meth:`predict`."""
        inputs = scaled_inputs("LearntPolicy", observation, self.histories.scaler, self.network.n_actions)
        if state is None:
            warn_of_lost_history("LearntPolicy", inputs[:, -self.network.n_actions :])
        zeros = np.zeros((len(inputs), self.network.lstm.hidden_size), dtype=np.float32)
        memory = (torch.from_numpy(part) for part in cleared(state or (zeros, zeros), episode_start))
        with torch.inference_mode():
            following = lstm_step(self.network.lstm, torch.from_numpy(inputs), *memory)
            q: Float32Array = self.network.values(following[0])[..., 0].numpy()
        rules = self.histories.rules
        allowed = None if rules is None else rules.allowed_next(np.asarray(observation, dtype=np.float32))
        return among_allowed(q, allowed), (following[0].numpy(), following[1].numpy())

    def q(self, batch: Batch) -> FloatArray:
        """Q(h, a) ``[N, T, A]`` after every history of a batch, minus infinity where a is not allowed; 0 on padding.

        Raises:
            ValueError: the batch has other features or actions.
        """
        self.histories.check_batch(batch)
        q, rules = values_along(self.network, self.histories.scaler, batch)[..., 0], self.histories.rules
        if rules is not None:
            q = np.where(rules.allowed_along(batch)[:, :-1] | ~batch.mask[..., None], q, -np.inf)
        return q


def learn_policy(
    histories: Histories,
    w: npt.ArrayLike,
    config: HistoryTrainingConfig,
    rng: np.random.Generator,
    progress: ProgressCallback | None = None,
    *,
    kept: StoredTraining | None = None,
) -> LearntPolicy:
    """A policy that is optimal for preferences w in the outcome model, from the batch's histories.

    Args:
        histories: of the batch, with their next histories.
        w: ``[d]`` preferences, used at the scale given (the values have its scale).
        config: how to train.
        rng: first weights, and everything that is drawn.
        progress: called with (iterations done, iterations in all).
        kept: where the training is kept, so that one that was killed goes on.

    Raises:
        ValueError: w is not ``d`` finite numbers, the histories end by another rule than the configuration says, or
            the loss did not stay finite.
    """
    weights, d = np.asarray(w, dtype=np.float32), histories.phi.shape[-1]
    if weights.shape != (d,) or not np.isfinite(weights).all():
        raise ValueError(f"w must be {d} finite numbers, got {weights}")
    learner = QLearner((histories.phi @ torch.from_numpy(weights))[..., None], histories.masks)
    return LearntPolicy(histories, train_on_histories(histories, learner, config, rng, progress, kept=kept))


def stored_policies(histories: Histories, config: HistoryTrainingConfig) -> StoredPolicies:
    """Policies that :func:`learn_policy` found, as arrays and back."""

    def arrays(policy: Policy) -> dict[str, npt.NDArray[Any]]:
        assert isinstance(policy, LearntPolicy)
        return module_arrays(policy.network)

    def policy(_w: FloatArray, found: dict[str, npt.NDArray[Any]]) -> LearntPolicy:
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
