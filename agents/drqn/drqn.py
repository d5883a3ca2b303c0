"""Deep recurrent Q-learning (Hausknecht and Stone, 2015; the paper's appendices D and E) for Stable-Baselines3.

One update reads whole episodes once with each network. For the action a_t taken after the history h_t

    y_t = r_t + gamma r_{t+1} + .. + gamma^m Q'(h_{t+m}, argmax over a of Q(h_{t+m}, a))        (m = n or what is left)

with Q' the target network and Q choosing (double Q-learning; without it Q' chooses, too), and the loss is the mean
Huber loss of Q(h_t, a_t) against y_t over all steps of all episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, RolloutReturn, Schedule
from torch import Tensor
from torch.nn.functional import pad, smooth_l1_loss

from agents.drqn.policy import (
    ArrayMemory,
    LinearRate,
    RecurrentQNetwork,
    RecurrentQPolicy,
    ScaledExtractor,
    action_masks_of,
    checked_masks,
    greedy_actions,
    has_action_masks,
)
from agents.drqn.replay import EpisodeBatch, EpisodeReplayBuffer
from agents.policies.policy import only_allowed
from agents.sb3_copies import CopiedWithoutEnv
from cirl_gym.data.rules import among_allowed
from cirl_gym.types import BoolArray, IntArray


def n_step_targets(rewards: Tensor, following: Tensor, mask: Tensor, gamma: float, n: int) -> Tensor:
    """r_t + gamma r_{t+1} + .. + gamma^m V(h_{t+m}), with m = n >= 1 or as many steps as the episode still has.

    All is ``[N, L]``: ``following`` is V(h_{t+1}), 0 where the process has ended, and ``mask`` True where there is an
    action. What stands in padding means nothing.
    """
    goes_on = pad(mask[:, 1:], (0, 1))
    targets = rewards + gamma * following
    for _ in range(n - 1):
        targets = rewards + gamma * torch.where(goes_on, pad(targets[:, 1:], (0, 1)), following)
    return targets


def q_targets(
    q: Tensor, target_q: Tensor, batch: EpisodeBatch, gamma: float, *, n_steps: int = 1, double_q: bool = True
) -> tuple[Tensor, Tensor]:
    """Targets ``[n, L]`` for the actions taken, and where they are known; both networks' values are ``[n, L + 1, A]``.

    With ``double_q`` the Q-network picks the action which the target network values.
    """
    best = only_allowed(q if double_q else target_q, batch.allowed).argmax(dim=2)
    following = target_q[:, 1:].gather(2, best[:, 1:, None]).squeeze(2).masked_fill(batch.terminated, 0.0)
    known = torch.ones_like(batch.mask)
    if batch.allowed is not None:
        unknown = batch.mask & ~batch.terminated & ~batch.allowed[:, 1:].any(dim=2)
        # A target is a sum of values with weights; those that weigh an unknown one are found by the same sum.
        weighed = n_step_targets(torch.zeros_like(following), unknown.to(following.dtype), batch.mask, 1.0, n_steps)
        known = weighed == 0
    return n_step_targets(batch.rewards, following, batch.mask, gamma, n_steps), known


def episode_loss(
    q_net: RecurrentQNetwork,
    target_net: RecurrentQNetwork,
    batch: EpisodeBatch,
    gamma: float,
    *,
    n_steps: int = 1,
    double_q: bool = True,
) -> tuple[Tensor, Tensor]:
    """Mean Huber loss over all steps of all episodes but those whose target depends on an unknown mask; their number.

    The arguments are those of :func:`q_targets`, with the networks in place of their values.
    """
    seen = batch.seen
    q = q_net.sequence(batch.obs, seen)
    with torch.no_grad():
        target_q = target_net.sequence(batch.obs, seen)
        targets, known = q_targets(q.detach(), target_q, batch, gamma, n_steps=n_steps, double_q=double_q)
    # In padding there may be anything, which is no index.
    actions = batch.actions.masked_fill(~batch.mask, 0)
    taken = q[:, :-1].gather(2, actions[..., None]).squeeze(2)
    counts = batch.mask & known
    # Indexed, not multiplied: whatever stands elsewhere, even a NaN, does not count. Without any step the loss is 0.
    total = smooth_l1_loss(taken[counts], targets[counts], reduction="sum")
    return total / max(int(counts.sum()), 1), (batch.mask & ~known).sum()


def epsilon_greedy(
    greedy: IntArray, epsilon: float, n_actions: int, allowed: BoolArray | None, rng: np.random.Generator
) -> IntArray:
    """Actions ``[n]`` (from 0): every row tosses its own coin, and if it says so draws uniformly among the allowed."""
    explores = rng.random(len(greedy)) < epsilon
    # The largest of numbers that are alike in distribution is a uniform draw.
    drawn = among_allowed(rng.gumbel(size=(len(greedy), n_actions)), allowed).argmax(axis=1)
    return np.where(explores, drawn, greedy)


def generators(seed: int | None) -> dict[str, np.random.Generator]:
    """An agent's generators, one per purpose, so that drawing for one does not move another."""
    names = ("explore", "replay", "predict")
    return dict(zip(names, map(np.random.default_rng, np.random.SeedSequence(seed).spawn(len(names))), strict=True))


SelfDRQN = TypeVar("SelfDRQN", bound="DRQN")


class DRQN(CopiedWithoutEnv, DQN):
    """DQN with memory: an LSTM or GRU reads the whole episode, and replay keeps whole episodes.

    Other than in :class:`stable_baselines3.DQN`, :meth:`predict` takes and returns the memory (conventions of
    sb3-contrib's ``RecurrentPPO``) and tosses one coin per environment; ``batch_size`` counts episodes; an update
    computes hidden states from an episode's first step on, so that acting and learning see the same Q-values.

    An environment with a method ``action_masks()`` (sb3-contrib's convention) is asked for it at every step: forbidden
    actions are never taken and do not count in the target's maximum. After an episode that was cut off, the mask is
    read from ``info["action_mask"]``; where that is missing, what depends on it is left out of the loss
    (``train/unknown_masks`` counts it). In evaluation, :class:`agents.drqn.drqn.MaskedPolicy` asks.

    Args:
        policy: ``"MlpLstmPolicy"`` or a class; for ``policy_kwargs`` (``cell="gru"``) see
            :class:`~agents.drqn.policy.RecurrentQPolicy`.
        buffer_size: capacity of the replay in steps; with ``replay_buffer_kwargs={"unit": "episodes"}`` in episodes.
        batch_size: whole episodes per update.
        n_steps: rewards in a target before the target network's value.
        double_q: the Q-network picks the action whose value the target network gives.
        horizon_is_terminal: an episode that was cut off counts as ended, as in the paper (finite horizon). Default: the
            value of what would have followed is bootstrapped, as everywhere in Stable-Baselines3.

    All other arguments, ``others`` too, are those of :class:`stable_baselines3.DQN`. Same seed, same bytes on a CPU.

    Raises:
        ValueError: an argument is not possible.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {"MlpLstmPolicy": RecurrentQPolicy}
    action_space: spaces.Discrete
    policy: RecurrentQPolicy  # type: ignore[assignment]
    q_net: RecurrentQNetwork  # type: ignore[assignment]
    q_net_target: RecurrentQNetwork  # type: ignore[assignment]
    replay_buffer: EpisodeReplayBuffer

    def __init__(
        self,
        policy: str | type[RecurrentQPolicy],
        env: GymEnv | str | None,
        learning_rate: float | Schedule = 1e-3,
        buffer_size: int = 100_000,
        learning_starts: int = 1000,
        batch_size: int = 32,
        *,
        n_steps: int = 1,
        double_q: bool = True,
        horizon_is_terminal: bool = False,
        target_update_interval: int = 1000,
        exploration_fraction: float = 0.3,
        _init_setup_model: bool = True,
        **others: Any,
    ) -> None:
        super().__init__(
            policy,  # type: ignore[arg-type]
            env,  # type: ignore[arg-type]
            learning_rate,
            buffer_size,
            learning_starts,
            batch_size,
            replay_buffer_class=EpisodeReplayBuffer,
            target_update_interval=target_update_interval,
            exploration_fraction=exploration_fraction,
            _init_setup_model=False,
            **others,
        )
        self.n_steps, self.double_q, self.horizon_is_terminal = n_steps, double_q, horizon_is_terminal
        self._rngs = generators(self.seed)
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"DRQN: gamma must lie in [0, 1], got {self.gamma}")
        if self.n_steps < 1:
            raise ValueError(f"DRQN: n_steps must be at least 1, got {self.n_steps}")
        n_steps, rngs = self.n_steps, self._rngs
        # The base would warn that a replay of another class does not know of n_steps: the targets do.
        self.n_steps = 1
        self.replay_buffer_kwargs = {
            **self.replay_buffer_kwargs,
            "handle_timeout_termination": not self.horizon_is_terminal,
            "masks": has_action_masks(self.env),
        }
        super()._setup_model()
        # A loaded model draws on from where it was saved.
        self.n_steps, self._rngs = n_steps, rngs
        self._begin()

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed torch, NumPy, the action space, the environment, and the generators of this agent."""
        super().set_random_seed(seed)
        if seed is not None:
            self._rngs = generators(seed)
            if self.replay_buffer is not None:
                self._begin()

    def load_replay_buffer(self, path: str | Path | BufferedIOBase, truncate_last_traj: bool = True) -> None:
        """Load what ``save_replay_buffer`` wrote, without episodes under way; learning goes on with a reset.

        Raises:
            ValueError: either the replay or the environment has action masks.
        """
        before = self.replay_buffer
        super().load_replay_buffer(path, truncate_last_traj)
        if self.replay_buffer.masks != self.replay_buffer_kwargs["masks"]:
            self.replay_buffer = before
            raise ValueError(f"{path}: the replay and the environment do not agree on whether there are action masks")
        self._last_obs = None
        self._begin()

    def _begin(self) -> None:
        """Forget the episodes under way, and hand the replay its generator."""
        self.replay_buffer.rng = self._rngs["replay"]
        self._memory: ArrayMemory | None = None
        self.replay_buffer.forget_open(self.n_envs)

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> RolloutReturn:
        """As in Stable-Baselines3, but after a stop the environments must be reset: their last step was not stored."""
        rollout = super().collect_rollouts(*args, **kwargs)
        if not rollout.continue_training:
            self._last_obs = None
        return rollout

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """What to do, and what to store of it: actions from 0, with masks ``[n, 1 + A]`` beside them."""
        assert self.env is not None
        assert isinstance(self._last_obs, np.ndarray)
        masks = action_masks_of(self.env) if self.replay_buffer.masks else None
        q, self._memory, _ = self.policy.q_values(self._last_obs, self._memory, self.replay_buffer.starts)
        allowed = checked_masks(masks, *q.shape)
        epsilon, rng = 1.0 if self.num_timesteps < learning_starts else self.exploration_rate, self._rngs["explore"]
        rng.random(len(q))  # Used for nothing; with it seeds give the numbers that they gave in the first release.
        actions = epsilon_greedy(greedy_actions(q, allowed), epsilon, q.shape[1], allowed, rng)
        stored = actions[:, None] if allowed is None else np.column_stack([actions, allowed])
        return actions + int(self.action_space.start), stored

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Make updates on ``batch_size`` whole episodes each; none before a first episode has ended."""
        if not self.replay_buffer.episodes:
            return
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses, unknown = [], 0
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            loss, left_out = episode_loss(
                self.q_net, self.q_net_target, batch, self.gamma, n_steps=self.n_steps, double_q=self.double_q
            )
            self.policy.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.q_net.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            losses.append(loss.item())
            unknown += int(left_out)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))
        if self.replay_buffer.masks:
            self.logger.record("train/unknown_masks", unknown)

    def predict(
        self,
        observation: Any,
        state: ArrayMemory | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
        action_masks: npt.NDArray[Any] | None = None,
    ) -> tuple[npt.NDArray[Any], ArrayMemory]:
        """As :meth:`~agents.drqn.policy.RecurrentQPolicy.predict`, but every row explores with the current epsilon.

        Unless ``deterministic`` is True: that is greedy.
        """
        q, memory, vectorised = self.policy.q_values(observation, state, episode_start)
        allowed = checked_masks(action_masks, *q.shape)
        actions = greedy_actions(q, allowed)
        if not deterministic:
            # A generator of its own: evaluating in between leaves training as it is.
            actions = epsilon_greedy(actions, self.exploration_rate, q.shape[1], allowed, self._rngs["predict"])
        actions = actions + int(self.action_space.start)
        return actions if vectorised else actions.squeeze(axis=0), memory

    def learn(
        self: SelfDRQN,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str = "DRQN",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfDRQN:
        """Train for a number of environment steps; arguments as everywhere in Stable-Baselines3.

        Raises:
            ValueError: the environment has got or lost action masks since the replay was made.
        """
        if has_action_masks(self.env) != self.replay_buffer_kwargs["masks"]:
            raise ValueError("DRQN: action masks came or went: pass the environment to the constructor or to load()")
        if self._last_obs is None or reset_num_timesteps or self._memory is None:
            self._last_obs = None  # The base resets the environments then.
            self._begin()
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_memory"]


class MaskedPolicy:
    """An agent that asks ``env.action_masks()`` of the environment it is to act in before every action.

    ``evaluate_policy(MaskedPolicy(model, env), env)`` of Stable-Baselines3 then works as without masks. (sb3-contrib's
    own ``evaluate_policy`` for masks does not hand the memory on, version 2.9.2.)
    """

    def __init__(self, model: DRQN, env: GymEnv) -> None:
        self.model, self.env = model, env

    def predict(
        self,
        observation: Any,
        state: ArrayMemory | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], ArrayMemory]:
        """Actions and memory, see :meth:`agents.drqn.drqn.DRQN.predict`."""
        return self.model.predict(observation, state, episode_start, deterministic, action_masks_of(self.env))


@dataclass(frozen=True)
class DRQNSettings:
    """What to train with: ``DRQN("MlpLstmPolicy", env, **arguments).learn(total_timesteps)``."""

    arguments: dict[str, Any]
    """Keyword arguments of :class:`~agents.drqn.drqn.DRQN`."""
    n_envs: int
    """Environments that are stepped together."""
    total_timesteps: int
    """Steps of all environments together."""


def paper_settings(appendix: Literal["D", "E"] = "E") -> DRQNSettings:
    """The paper's hyper-parameters: of the expert in the simulator (appendix E), or of policies in the world model (D).

    ====================  =============================  ==================================
    appendix              D                              E
    ====================  =============================  ==================================
    LSTM, linear output   128                            128
    batch                 256                            256
    Adam, learning rate   .001                           .001
    target network every  100                            200
    replay                the batch data set             10,000
    epsilon               .9, less .00001 per iteration  .9 to 0, less .00005 per iteration
    iterations            20,000                         40,000
    ====================  =============================  ==================================

    The paper leaves open how many steps make an iteration: here one step of one environment and one update, so that
    targets and epsilon count the same. It says "examples" where it speaks of batch and replay: here whole episodes.
    Epsilon falls in equal steps, which in D ends the training at .7. Its squared loss and the Huber loss used here have
    the same gradient (up to a factor that Adam takes out) for errors below 1. What it does not mention is off: no
    double Q-learning, no clipping of gradients. D's data set is what an environment has to provide; the replay is E's.

    Raises:
        ValueError: another appendix.
    """
    if appendix not in ("D", "E"):
        raise ValueError(f"appendix must be 'D' or 'E', got {appendix!r}")
    iterations, interval, decay = (40_000, 200, 5e-5) if appendix == "E" else (20_000, 100, 1e-5)
    # Before the first updates; the paper does not say how many.
    learning_starts = 1_000
    last = max(0.9 - decay * iterations, 0.0)
    total = learning_starts + iterations
    arguments = {
        "learning_rate": 1e-3,
        "buffer_size": 10_000,
        "replay_buffer_kwargs": {"unit": "episodes"},
        "learning_starts": learning_starts,
        "batch_size": 256,
        "train_freq": 1,
        "gradient_steps": 1,
        "double_q": False,
        "horizon_is_terminal": True,
        "target_update_interval": interval,
        "exploration_initial_eps": 0.9,
        "exploration_final_eps": last,
        "exploration_fraction": (0.9 - last) / decay / total,
        "max_grad_norm": float("inf"),
        "policy_kwargs": {"lstm_hidden_size": 128, "net_arch": [], "features_extractor_class": ScaledExtractor},
    }
    return DRQNSettings(arguments, n_envs=1, total_timesteps=total)


def tumour_settings() -> DRQNSettings:
    """Settings that come near the optimum of any weights and discount factor in a few minutes on one core."""
    arguments = {
        "learning_rate": LinearRate(2e-3, 1e-4),
        "buffer_size": 200_000,
        "learning_starts": 6_400,
        "batch_size": 32,
        "train_freq": 1,
        "gradient_steps": 4,
        "horizon_is_terminal": True,
        "target_update_interval": 3_200,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": 0.1,
        "exploration_fraction": 0.7,
        "policy_kwargs": {"lstm_hidden_size": 64, "net_arch": [64], "features_extractor_class": ScaledExtractor},
    }
    return DRQNSettings(arguments, n_envs=64, total_timesteps=150_000)
