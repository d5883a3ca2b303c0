"""Acting with what DSFN has learnt: Stable-Baselines3's calling convention, with the memory of DSFN(h)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agents.carried_memory import cleared, scaled_inputs, warn_of_lost_history
from agents.dsfn_networks import WarmStartNetwork
from cirl_gym.action_rules import ActionRules
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.types import FloatArray


class DSFNPolicy:
    """Greedy in the scores of phi_s, or, with a generator, drawn from their softmax.

    Its memory is the LSTM's two states ``[n, H]``; without LSTM it has none and sees x_t alone.

    Args:
        network: gives phi_s.
        scaler: of its inputs.
        scores: ``[n, A]`` of phi_s ``[n, S]``.
        rng: of drawn actions; None: always greedy.
        rules: what they forbid is never done; None: nothing is forbidden.
    """

    def __init__(
        self,
        network: WarmStartNetwork,
        scaler: Scaler,
        scores: Callable[[Tensor], Tensor],
        rng: np.random.Generator | None = None,
        rules: ActionRules | None = None,
    ) -> None:
        self.network, self.scaler, self.scores, self.rng, self.rules = network, scaler, scores, rng, rules

    def predict(
        self,
        observation: Any,
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """One action per row of ``observation [n, d + A]`` (raw features, one-hot previous action) and the new memory.

        Args:
            observation: ``[n, d + A]``.
            state: what the previous call returned; None at the first step, and always where there is no memory.
            episode_start: ``[n]`` True where the memory must be cleared.
            deterministic: the action of the highest score, also where actions can be drawn.

        Raises:
            ValueError: the observation has another shape.
        """
        scores, memory = self.act(observation, state, episode_start)
        if not deterministic and self.rng is not None:
            # Adding Gumbel noise and taking the largest draws from the softmax.
            scores = scores + self.rng.gumbel(size=scores.shape)
        return scores.argmax(axis=1).astype(np.int64), memory

    def act(
        self, observation: Any, state: tuple[npt.NDArray[Any], ...] | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[FloatArray, tuple[npt.NDArray[Any], ...] | None]:
        """Scores ``[n, A]``, minus infinity where forbidden, and the new memory; arguments as for :meth:`predict`."""
        inputs = scaled_inputs("DSFNPolicy", observation, self.scaler, self.network.n_actions)
        memory = self.network.empty_memory(len(inputs))
        if memory and state is None and episode_start is None:
            warn_of_lost_history("DSFNPolicy", inputs[:, self.network.n_features :])
        if memory and state is not None:
            memory = tuple(torch.from_numpy(part) for part in cleared(state, episode_start))
        with torch.inference_mode():
            features, following = self.network.step(torch.from_numpy(inputs), memory)
            scores: FloatArray = self.scores(features).double().numpy()
        if self.rules is not None:
            scores = np.where(self.rules.allowed_next(np.asarray(observation, dtype=np.float32)), scores, -np.inf)
        return scores, tuple(part.numpy() for part in following) or None
