"""Networks of the DSFN baseline: the warm start that imitates and predicts, and values of what it has learnt."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from cirl_gym.outcome_models.crn import with_every_action
from cirl_gym.outcome_models.recurrent import lstm_step


@dataclass(frozen=True)
class WarmStartSizes:
    """Units of :class:`WarmStartNetwork` (Lee et al. 2019: two layers of 128 and one more per head).

    Raises:
        ValueError: a size is below 1, memory below 0.
    """

    hidden: int = 128
    """Of the two layers before the shared one, and of the one before the next state."""
    shared: int = 64
    """S, of the shared layer phi_s."""
    memory: int = 0
    """Of the LSTM: DSFN(h); 0: none, s is the current observation alone: DSFN."""

    def __post_init__(self) -> None:
        if min(self.hidden, self.shared) < 1 or self.memory < 0:
            raise ValueError(f"WarmStartSizes: sizes must be at least 1 and memory not negative, got {self}")


class WarmStartNetwork(nn.Module):
    """Transition-regularised imitation: one tanh layer phi_s from which both the action and the next state are read.

    An input is [scaled x_t, one-hot a_{t-1}]. Without memory only the observation is read. With memory an LSTM reads
    both, and [x_t, its output] takes the place of s.
    """

    def __init__(self, n_features: int, n_actions: int, sizes: WarmStartSizes) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.sizes = n_features, n_actions, sizes
        self.lstm = nn.LSTM(n_features + n_actions, sizes.memory, batch_first=True) if sizes.memory else None
        self.trunk = nn.Sequential(
            _tanh_layers(n_features + sizes.memory, sizes.hidden, sizes.hidden, sizes.shared), nn.Tanh()
        )
        self.action = nn.Linear(sizes.shared, n_actions)
        self.transition = _tanh_layers(sizes.shared + n_actions, sizes.hidden, n_features)

    def shared(self, inputs: Tensor) -> Tensor:
        """phi_s ``[N, T, S]`` of whole episodes ``[N, T, d + A]`` from their first observation on."""
        seen = inputs[..., : self.n_features]
        if self.lstm is not None:
            seen = torch.cat([seen, self.lstm(inputs)[0]], dim=-1)
        features: Tensor = self.trunk(seen)
        return features

    def step(self, inputs: Tensor, memory: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """phi_s ``[n, S]`` after one more input ``[n, d + A]``, and the memory after it (two ``[n, H]``, or none)."""
        seen = inputs[:, : self.n_features]
        if self.lstm is not None:
            memory = lstm_step(self.lstm, inputs, *memory)
            seen = torch.cat([seen, memory[0]], dim=-1)
        return self.trunk(seen), memory

    def empty_memory(self, n: int) -> tuple[Tensor, ...]:
        """Memory of n histories that have not begun."""
        return () if self.lstm is None else (torch.zeros(n, self.sizes.memory), torch.zeros(n, self.sizes.memory))

    def next_state(self, features: Tensor, actions: Tensor) -> Tensor:
        """Scaled next observation ``[M, d]`` for phi_s ``[M, S]`` and actions ``[M]``."""
        predicted: Tensor = self.transition(_with_action(features, actions, self.n_actions))
        return predicted


class ActionNetwork(nn.Module):
    """k numbers for [phi_s, one-hot a]: mu (k = d) or Q (k = 1), by two tanh layers.

    The output is the average of what is still to come per step, ``scale`` the discounted number of steps of a whole
    episode: the network learns numbers of the size of phi, whatever gamma is.
    """

    def __init__(self, n_inputs: int, n_actions: int, n_outputs: int, hidden: int, scale: float) -> None:
        super().__init__()
        self.n_actions, self.scale = n_actions, scale
        self.layers = _tanh_layers(n_inputs + n_actions, hidden, hidden, n_outputs)

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        """``[M, k]`` for phi_s ``[M, S]`` and actions ``[M]``."""
        values: Tensor = self.layers(_with_action(features, actions, self.n_actions)) * self.scale
        return values

    def every(self, features: Tensor) -> Tensor:
        """``[.., A, k]`` of every action for phi_s ``[.., S]``."""
        values: Tensor = self.layers(with_every_action(features, self.n_actions)) * self.scale
        return values


def _with_action(features: Tensor, actions: Tensor, n_actions: int) -> Tensor:
    return torch.cat([features, one_hot(actions, n_actions).to(features.dtype)], dim=-1)


def _tanh_layers(*sizes: int) -> nn.Sequential:
    """Linear layers with tanh between them."""
    layers: list[nn.Module] = []
    for n_inputs, n_outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(n_inputs, n_outputs), nn.Tanh()]
    return nn.Sequential(*layers[:-1])
