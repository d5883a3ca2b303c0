"""The recurrent Q-network and the policy that acts with it, among the actions that an environment allows.

The network goes one step at a time when acting, and through whole episodes in one pass when training. Environments are
asked which actions are allowed in sb3-contrib's convention, a method ``action_masks()``. Scaled features and a learning
rate that falls serve RecurrentPPO, too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import is_image_space, preprocess_obs
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, FlattenExtractor, create_mlp
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from torch import Tensor, nn

from cirl_gym.data.rules import among_allowed
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.types import BoolArray, IntArray

Memory = tuple[Tensor, ...]
"""Hidden state (and, for an LSTM, cell state), each ``[layers, n, H]``."""
ArrayMemory = tuple[npt.NDArray[Any], ...]
"""The same in NumPy: what :meth:`RecurrentQPolicy.predict` returns and takes."""
Cell = Literal["lstm", "gru"]


@contextmanager
def _quietly() -> Iterator[None]:
    """Gymnasium below 1.0 warns whenever an attribute is found behind a wrapper."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*env.action_masks to get variables")
        yield


@_quietly()
def has_action_masks(env: GymEnv | None) -> bool:
    """Whether an environment (or all of a vector environment) says which actions are allowed."""
    return env is not None and bool(is_masking_supported(env))


@_quietly()
def action_masks_of(env: GymEnv) -> npt.NDArray[np.bool_]:
    """``[n, A]`` of a vector environment, ``[A]`` of a single one."""
    return np.asarray(get_action_masks(env), dtype=np.bool_)


def checked_masks(masks: npt.ArrayLike | None, n: int, n_actions: int) -> BoolArray | None:
    """Action masks as ``[n, A]``.

    Raises:
        ValueError: their shape is another, or a row allows nothing.
    """
    if masks is None:
        return None
    allowed = np.asarray(masks, dtype=np.bool_)
    if allowed.size != n * n_actions:
        raise ValueError(f"DRQN: action masks must be [{n}, {n_actions}], got {allowed.shape}")
    allowed = allowed.reshape(n, n_actions)
    if not allowed.any(axis=1).all():
        raise ValueError(f"DRQN: no action is allowed in row {int(allowed.any(axis=1).argmin())}")
    return allowed


def greedy_actions(q: Tensor, allowed: BoolArray | None) -> IntArray:
    """Allowed action (from 0) with the largest Q-value, for every row of ``[n, A]``."""
    best: IntArray = among_allowed(q.cpu().numpy(), allowed).argmax(axis=1)
    return best


@dataclass(frozen=True)
class LinearRate:
    """A learning rate that falls linearly from ``first`` to ``last``, for Stable-Baselines3 (progress 1 to 0)."""

    first: float
    last: float

    def __call__(self, left: float) -> float:
        """The rate; ``left`` goes a little below 0 in the last update, where a negative rate would unlearn."""
        return self.last + (self.first - self.last) * max(left, 0.0)


class ScaledExtractor(BaseFeaturesExtractor):
    """A Box, flat, as (x - mean) / scale, so that no unit outweighs another.

    Args:
        observation_space: Box without images; with a scaler ``[d + ..]``.
        scaler: of the first d numbers, without logarithms; what follows stays as it is. None: every number is scaled
            from its bounds to [-1, 1], those without finite bounds stay as they are. Not for observations that are
            normalised already (``VecNormalize``).

    Raises:
        ValueError: the space is another one, or the scaler takes logarithms.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, observation_space: spaces.Space[Any], scaler: Scaler | None = None) -> None:
        if not isinstance(observation_space, spaces.Box) or is_image_space(observation_space):
            raise ValueError(f"ScaledExtractor needs a Box that is no image, got {observation_space}")
        shape = observation_space.shape
        if scaler is None:
            low, high = (
                np.ravel(bound).astype(np.float64) for bound in (observation_space.low, observation_space.high)
            )
            bounded = np.isfinite(low) & np.isfinite(high) & (high > low)
            # As if from -1 to 1 already where there are no bounds.
            low, high = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
            mean, scale = (low + high) / 2, (high - low) / 2
        else:
            d, others = len(scaler.mean), math.prod(shape) - len(scaler.mean)
            if len(shape) != 1 or others < 0:
                raise ValueError(
                    f"ScaledExtractor needs a Box of {d} features and what follows, got {observation_space}"
                )
            if scaler.offset is not None and scaler.offset.any():
                raise ValueError("ScaledExtractor takes no logarithms")
            mean, scale = np.append(scaler.mean, np.zeros(others)), np.append(scaler.scale, np.ones(others))
        super().__init__(observation_space, len(mean))
        self.register_buffer("mean", torch.from_numpy(mean.astype(np.float32)))
        self.register_buffer("scale", torch.from_numpy(scale.astype(np.float32)))

    def forward(self, observations: Tensor) -> Tensor:
        """``[n, F]``."""
        return (observations.flatten(1).float() - self.mean) / self.scale


class RecurrentQNetwork(nn.Module):
    """Features of one observation, an LSTM or GRU over them, and a head for the Q-values of all actions.

    :meth:`step` and :meth:`sequence` give the same values for the same history. Arguments are those of
    :class:`RecurrentQPolicy`.

    Raises:
        ValueError: ``cell`` is unknown.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        features_extractor: BaseFeaturesExtractor,
        n_actions: int,
        *,
        net_arch: list[int],
        activation_fn: type[nn.Module],
        lstm_hidden_size: int,
        n_lstm_layers: int,
        cell: Cell,
        skip_connection: bool,
        normalize_images: bool = True,
    ) -> None:
        super().__init__()
        if cell not in ("lstm", "gru"):
            raise ValueError(f"cell must be 'lstm' or 'gru', got {cell!r}")
        self.observation_space, self.normalize_images = observation_space, normalize_images
        self.skip_connection, self.features_extractor = skip_connection, features_extractor
        n_features = features_extractor.features_dim
        kind, self.n_states = (nn.LSTM, 2) if cell == "lstm" else (nn.GRU, 1)
        self.memory = kind(n_features, lstm_hidden_size, n_lstm_layers, batch_first=True)
        width = lstm_hidden_size + (n_features if skip_connection else 0)
        self.head = nn.Sequential(*create_mlp(width, n_actions, net_arch, activation_fn))

    def empty_memory(self, n: int) -> Memory:
        """Memory of n histories that have not begun: zeros."""
        zeros = torch.zeros(self.memory.num_layers, n, self.memory.hidden_size, device=next(self.parameters()).device)
        return (zeros,) * self.n_states

    def step(self, obs: Tensor, memory: Memory, starts: Tensor) -> tuple[Tensor, Memory]:
        """Q-values ``[n, A]`` after one more observation ``[n, ..]``, and the memory after it.

        Where ``starts [n]`` says that the observation is an episode's first, the memory is cleared before.
        """
        features = self._features(obs)
        before = tuple(torch.where(starts[None, :, None], torch.zeros_like(part), part) for part in memory)
        hidden, following = self.memory(features[:, None], before if self.n_states == 2 else before[0])
        return self._head(hidden[:, 0], features), following if self.n_states == 2 else (following,)

    def sequence(self, obs: Tensor, seen: Tensor) -> Tensor:
        """Q-values ``[n, S, A]`` along whole episodes ``[n, S, ..]`` from their first observation on; 0 in padding.

        Padding, where ``seen [n, S]`` is False, is left out before the network sees it, so that nothing in it can reach
        a value or a gradient.
        """
        features = self._features(obs[seen])
        inputs = features.new_zeros(*seen.shape, features.shape[-1])
        inputs[seen] = features
        hidden = self.memory(inputs)[0]
        values = self._head(hidden[seen], features)
        q = values.new_zeros(*seen.shape, values.shape[-1])
        q[seen] = values
        return q

    def _features(self, obs: Tensor) -> Tensor:
        seen = preprocess_obs(obs, self.observation_space, normalize_images=self.normalize_images)
        features: Tensor = self.features_extractor(seen)
        return features

    def _head(self, hidden: Tensor, features: Tensor) -> Tensor:
        q: Tensor = self.head(torch.cat([hidden, features], dim=-1) if self.skip_connection else hidden)
        return q


class RecurrentQPolicy(BasePolicy):
    """Q-network and target network of :class:`agents.drqn.drqn.DRQN`.

    Args:
        observation_space: Box, Discrete or MultiBinary.
        action_space: Discrete.
        net_arch: hidden layers of the head behind the memory (default ``[64]``); empty: linear, as in the paper.
        activation_fn: between them.
        lstm_hidden_size: units of the memory, whichever its cell.
        skip_connection: the head sees the current observation beside the memory.

    All other arguments are those of every policy of Stable-Baselines3.

    Raises:
        ValueError: ``cell`` is unknown.
    """

    action_space: spaces.Discrete
    q_net: RecurrentQNetwork
    q_net_target: RecurrentQNetwork

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        net_arch: list[int] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        lstm_hidden_size: int = 64,
        n_lstm_layers: int = 1,
        cell: Cell = "lstm",
        skip_connection: bool = False,
        features_extractor_class: type[BaseFeaturesExtractor] = FlattenExtractor,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class,
            features_extractor_kwargs,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            normalize_images=normalize_images,
        )
        self.sizes: dict[str, Any] = {
            "net_arch": [64] if net_arch is None else net_arch,
            "activation_fn": activation_fn,
            "lstm_hidden_size": lstm_hidden_size,
            "n_lstm_layers": n_lstm_layers,
            "cell": cell,
            "skip_connection": skip_connection,
        }
        self.q_net, self.q_net_target = (
            RecurrentQNetwork(
                observation_space,
                self.make_features_extractor(),
                int(action_space.n),
                normalize_images=normalize_images,
                **self.sizes,
            ).to(self.device)
            for _ in range(2)
        )
        self.q_net_target.load_state_dict(self.q_net.state_dict())
        self.q_net_target.eval()
        rate = lr_schedule(1)
        self.optimizer = self.optimizer_class(self.q_net.parameters(), lr=rate, **self.optimizer_kwargs)  # type: ignore[call-arg]

    def predict(
        self,
        observation: Any,
        state: ArrayMemory | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = True,
        action_masks: npt.NDArray[Any] | None = None,
    ) -> tuple[npt.NDArray[Any], ArrayMemory]:
        """Greedy actions for an observation or ``[n, ..]``, and the memory, as sb3-contrib's RecurrentPPO gives them.

        Args:
            observation: of one environment or of n.
            state: what the call before returned, each array ``[layers, n, H]``; None: episodes begin.
            episode_start: ``[n]`` True where the observation is the first of an episode; None: nowhere (other than
                where ``state`` is None).
            deterministic: without effect: a Q-network has no chance of its own.
            action_masks: ``[n, A]`` (or ``[A]``) True where an action may be taken; None: everywhere.

        Raises:
            ValueError: the state or the masks do not fit the observations, or a row has no allowed action.
        """
        q, memory, vectorised = self.q_values(observation, state, episode_start)
        actions = greedy_actions(q, checked_masks(action_masks, *q.shape)) + int(self.action_space.start)
        return actions if vectorised else actions.squeeze(axis=0), memory

    def q_values(
        self, observation: npt.NDArray[Any], state: ArrayMemory | None, episode_start: npt.NDArray[Any] | None
    ) -> tuple[Tensor, ArrayMemory, bool]:
        """Q-values ``[n, A]``, the memory, and whether the observation was of several environments."""
        self.set_training_mode(False)
        obs, vectorised = self.obs_to_tensor(observation)
        assert isinstance(obs, Tensor)
        n = len(obs)
        starts = np.zeros(n, dtype=np.bool_) if episode_start is None else np.asarray(episode_start, dtype=np.bool_)
        if state is None and episode_start is not None and not starts.all():
            told = "DRQN: no state was given although an episode is under way; its history is lost"
            warnings.warn(told, stacklevel=4)
        memory = self.q_net.empty_memory(n)
        if state is not None:
            found, wanted = [np.shape(part) for part in state], [tuple(part.shape) for part in memory]
            if found != wanted:
                raise ValueError(f"DRQN: the state must have the shapes {wanted}, got {found}")
            memory = tuple(torch.as_tensor(np.asarray(part), dtype=torch.float32, device=self.device) for part in state)
        with torch.no_grad():
            q, following = self.q_net.step(obs, memory, torch.from_numpy(starts.reshape(-1)).to(self.device))
        return q, tuple(part.cpu().numpy() for part in following), vectorised

    def forward(self, observation: Any, deterministic: bool = True) -> Tensor:
        """Greedy actions for the first observations of episodes."""
        n = len(observation)
        starts = torch.ones(n, dtype=torch.bool, device=self.device)
        q, _ = self.q_net.step(observation, self.q_net.empty_memory(n), starts)
        return q.argmax(dim=1) + int(self.action_space.start)

    _predict = forward

    def set_training_mode(self, mode: bool) -> None:
        """Training or evaluation mode of the Q-network; the target network stays in evaluation mode."""
        self.q_net.train(mode)
        self.training = mode

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return super()._get_constructor_parameters() | {
            **self.sizes,
            "lr_schedule": self._dummy_schedule,
            "features_extractor_class": self.features_extractor_class,
            "features_extractor_kwargs": self.features_extractor_kwargs,
            "optimizer_class": self.optimizer_class,
            "optimizer_kwargs": self.optimizer_kwargs,
        }
