"""The recurrent Q-network: one step at a time when acting, whole episodes in one pass when training."""

from __future__ import annotations

from typing import Any, Literal

import torch
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, create_mlp
from torch import Tensor, nn

from agents.episode_replay import Observation

Memory = tuple[Tensor, ...]
"""Hidden state (and, for an LSTM, cell state), each ``[layers, n, H]``."""
Cell = Literal["lstm", "gru"]


class RecurrentQNetwork(BasePolicy):
    """Features, an LSTM or GRU over them, and a head for the Q-values of all actions.

    :meth:`step` and :meth:`sequence` give the same values for the same history.

    Args:
        observation_space: of the environment.
        action_space: Discrete.
        features_extractor: of one observation.
        features_dim: number of its features F.
        net_arch: hidden layers of the head; empty: linear.
        activation_fn: between them.
        normalize_images: divide images by 255.
        lstm_hidden_size: units H of the memory.
        n_lstm_layers: layers of the memory.
        cell: ``"lstm"`` or ``"gru"``.
        skip_connection: the head sees the features of the current observation beside the memory.
    """

    action_space: spaces.Discrete

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        features_extractor: BaseFeaturesExtractor,
        features_dim: int,
        net_arch: list[int],
        activation_fn: type[nn.Module],
        normalize_images: bool,
        lstm_hidden_size: int,
        n_lstm_layers: int,
        cell: Cell,
        skip_connection: bool,
    ) -> None:
        super().__init__(
            observation_space, action_space, features_extractor=features_extractor, normalize_images=normalize_images
        )
        if cell not in ("lstm", "gru"):
            raise ValueError(f"cell must be 'lstm' or 'gru', got {cell!r}")
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        self.memory = kind(features_dim, lstm_hidden_size, n_lstm_layers, batch_first=True)
        self.skip_connection = skip_connection
        width = lstm_hidden_size + (features_dim if skip_connection else 0)
        self.head = nn.Sequential(*create_mlp(width, int(action_space.n), net_arch, activation_fn))

    @property
    def n_states(self) -> int:
        """How many arrays the memory has: 2 for an LSTM, 1 for a GRU."""
        return 2 if isinstance(self.memory, nn.LSTM) else 1

    def empty_memory(self, n: int) -> Memory:
        """Memory of n histories that have not begun: zeros."""
        zeros = torch.zeros(self.memory.num_layers, n, self.memory.hidden_size, device=self.device)
        return (zeros,) * self.n_states

    def step(self, obs: Observation, memory: Memory, starts: Tensor) -> tuple[Tensor, Memory]:
        """Q-values ``[n, A]`` after one more observation, and the memory after it.

        Args:
            obs: ``[n, ..]``.
            memory: after the observation before.
            starts: ``[n]`` True where the observation is the first of an episode: the memory is cleared there.
        """
        features = self._features(obs)
        kept = tuple(torch.where(starts[None, :, None], torch.zeros_like(part), part) for part in memory)
        hidden, following = self.memory(features[:, None], kept if self.n_states == 2 else kept[0])
        return self._head(hidden[:, 0], features), following if self.n_states == 2 else (following,)

    def sequence(self, obs: Observation, seen: Tensor) -> Tensor:
        """Q-values ``[n, S, A]`` along whole episodes from their first observation on; 0 in padding.

        Padding is left out before the network sees it, so that nothing in it can reach a value or a gradient.

        Args:
            obs: ``[n, S, ..]``.
            seen: ``[n, S]`` True where there is an observation.
        """
        features = self._features({k: part[seen] for k, part in obs.items()} if isinstance(obs, dict) else obs[seen])
        inputs = features.new_zeros(*seen.shape, features.shape[-1])
        inputs[seen] = features
        hidden = self.memory(inputs)[0]
        values = self._head(hidden[seen], features)
        q = values.new_zeros(*seen.shape, values.shape[-1])
        q[seen] = values
        return q

    def _predict(self, observation: Any, deterministic: bool = True) -> Tensor:
        raise NotImplementedError("a recurrent network acts with its memory: RecurrentQPolicy.predict")

    def _features(self, obs: Observation) -> Tensor:
        assert self.features_extractor is not None
        return self.extract_features(obs, self.features_extractor)

    def _head(self, hidden: Tensor, features: Tensor) -> Tensor:
        q: Tensor = self.head(torch.cat([hidden, features], dim=-1) if self.skip_connection else hidden)
        return q
