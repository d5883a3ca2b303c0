"""What an agent draws: exploring for stretches of steps, as different histories teach more than many alike."""

from __future__ import annotations

from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, RolloutReturn, Schedule
from torch import Tensor

from agents.drqn.policy import (
    ArrayMemory,
    CnnRecurrentQPolicy,
    MultiInputRecurrentQPolicy,
    RecurrentQNetwork,
    RecurrentQPolicy,
    action_masks_of,
    checked_masks,
    greedy_actions,
    has_action_masks,
)
from agents.drqn.replay import ArrayObservation, EpisodeBatch, EpisodeReplayBuffer
from agents.drqn.targets import among, masked_loss, n_step_targets, trace_targets
from cirl_gym.types import BoolArray, FloatArray, IntArray


class StretchExplorer:
    """Epsilon-greedy exploration, one coin per row, that can last for several steps.

    With ``stretch = 1`` it is the usual one: a coin at every step, and a random action drawn uniformly. Otherwise the
    coin is tossed at the beginning of an episode and then with probability 1 / stretch at every step, and until the
    next toss a row explores or does not. Every stretch of exploring draws the chances of its actions anew, from the
    uniform distribution over all such chances: there are stretches of hardly anything but one action, which
    independent coins would not produce in a lifetime. Epsilon stays the share of steps that explore.

    Args:
        n: rows.
        n_actions: A.
        stretch: mean number of steps from toss to toss, at least 1.
        rng: draws everything.

    Raises:
        ValueError: ``stretch`` is below 1.
    """

    def __init__(self, n: int, n_actions: int, stretch: float, rng: np.random.Generator) -> None:
        if not stretch >= 1:
            raise ValueError(f"exploration_stretch must be at least 1, got {stretch}")
        self.stretch, self.rng = stretch, rng
        self._exploring: BoolArray = np.zeros(n, dtype=np.bool_)
        self._chances: FloatArray = np.full((n, n_actions), 1.0 / n_actions)

    def choose(self, greedy: IntArray, starts: BoolArray, epsilon: float, allowed: BoolArray | None) -> IntArray:
        """Actions ``[n]`` (from 0).

        Args:
            greedy: ``[n]`` what is taken by a row that does not explore.
            starts: ``[n]`` where an episode begins.
            epsilon: chance that a toss says to explore.
            allowed: ``[n, A]``; None: all actions.
        """
        toss = starts | (self.rng.random(len(greedy)) < 1.0 / self.stretch)
        self._exploring = np.where(toss, self.rng.random(len(greedy)) < epsilon, self._exploring)
        if self.stretch > 1:
            drawn = self.rng.dirichlet(np.ones(self._chances.shape[1]), size=len(greedy))
            self._chances = np.where(toss[:, None], drawn, self._chances)
        return np.where(self._exploring, draw_actions(self._chances, allowed, self.rng), greedy)


def draw_actions(chances: FloatArray, allowed: BoolArray | None, rng: np.random.Generator) -> IntArray:
    """One action (from 0) per row of chances ``[n, A]``, among the allowed ones ``[n, A]`` only."""
    # The largest of logarithm plus Gumbel noise is a draw; a chance of 0 is kept possible where nothing else is.
    score = np.log(np.maximum(chances, 1e-30)) + rng.gumbel(size=chances.shape)
    if allowed is not None:
        score = np.where(allowed, score, -np.inf)
    drawn: IntArray = score.argmax(axis=1)
    return drawn


def epsilon_greedy(
    greedy: IntArray, epsilon: float, n_actions: int, allowed: BoolArray | None, rng: np.random.Generator
) -> IntArray:
    """Actions ``[n]`` (from 0): every row tosses its own coin, and draws uniformly if it says so."""
    explores = rng.random(len(greedy)) < epsilon
    return np.where(explores, draw_actions(np.ones((len(greedy), n_actions)), allowed, rng), greedy)


def generators(seed: int | None) -> dict[str, np.random.Generator]:
    """An agent's generators, one per purpose, so that drawing for one does not move another."""
    names = ("explore", "replay", "predict")
    sequences = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(one) for name, one in zip(names, sequences, strict=True)}


# MERGED: Acting in the environments that are learnt from, each with its own memory.


class Actor:
    """What n environments have seen in the episodes under way, and who explores.

    Args:
        n: environments.
        n_actions: A.
        stretch: mean length of exploring, see :class:`~agents.drqn.drqn.StretchExplorer`.
        rng: draws.
    """

    def __init__(self, n: int, n_actions: int, stretch: float, rng: np.random.Generator) -> None:
        self._explorer = StretchExplorer(n, n_actions, stretch, rng)
        self._memory: ArrayMemory | None = None
        self._starts: BoolArray = np.ones(n, dtype=np.bool_)

    @property
    def under_way(self) -> bool:
        """Whether anything has been done since the environments began."""
        return self._memory is not None

    def begin(self) -> None:
        """The environments were reset."""
        self._memory = None
        self._starts = np.ones_like(self._starts)

    def note_ends(self, dones: npt.NDArray[Any]) -> None:
        """Episodes ended ``[n]``: what comes next is the first observation of another one."""
        self._starts = np.array(dones, dtype=np.bool_)

    def choose(
        self, policy: RecurrentQPolicy, obs: ArrayObservation, epsilon: float, masks: npt.ArrayLike | None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Actions ``[n]`` (from 0), and what the replay is to store of them (with masks, these beside them).

        Args:
            policy: gives Q-values.
            obs: ``[n, ..]``.
            epsilon: share of exploring.
            masks: ``[n, A]`` which actions are allowed; None: all.
        """
        q, self._memory, _ = policy.q_values(obs, self._memory, self._starts)
        allowed = checked_masks(masks, *q.shape)
        actions = self._explorer.choose(greedy_actions(q, allowed), self._starts, epsilon, allowed)
        parts = [actions[:, None]] if allowed is None else [actions[:, None], allowed]
        return actions, np.concatenate(parts, axis=1)


# MERGED: One update's loss: whole episodes through both networks once, and what their Q-values should have been.


@dataclass(frozen=True)
class TargetRule:
    """What a Q-value is regressed on.

    Raises:
        ValueError: a number is out of its range, or both ways to look further than one step are asked for.
    """

    gamma: float
    """Discount factor in [0, 1]."""
    n_steps: int = 1
    """Rewards before the target network's value."""
    trace_decay: float = 0.0
    """Lambda of Watkins' Q(lambda); 0: n_steps."""
    double_q: bool = True
    """The Q-network picks the action, the target network values it."""

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"DRQN: gamma must lie in [0, 1], got {self.gamma}")
        if self.n_steps < 1:
            raise ValueError(f"DRQN: n_steps must be at least 1, got {self.n_steps}")
        if not 0 <= self.trace_decay <= 1:
            raise ValueError(f"DRQN: trace_decay must lie in [0, 1], got {self.trace_decay}")
        if self.n_steps > 1 and self.trace_decay > 0:
            raise ValueError("DRQN: n_steps and trace_decay exclude each other")


def episode_loss(
    q_net: RecurrentQNetwork, target_net: RecurrentQNetwork, batch: EpisodeBatch, rule: TargetRule
) -> tuple[Tensor, Tensor]:
    """Loss of the Q-network on a batch, and how many steps were left out.

    Args:
        q_net: trained.
        target_net: values what follows.
        batch: whole episodes.
        rule: the targets.

    Returns:
        Mean Huber loss over all steps of all episodes, and the number of steps whose target depends on an action mask
        that is not known.
    """
    seen = batch.seen
    q = q_net.sequence(batch.obs, seen)
    with torch.no_grad():
        target_q = target_net.sequence(batch.obs, seen)
        targets, known = q_targets(q.detach(), target_q, batch, rule)
    taken = q[:, :-1].gather(2, _actions(batch)[..., None]).squeeze(2)
    return masked_loss(taken, targets, batch.mask & known), (batch.mask & ~known).sum()


def q_targets(q: Tensor, target_q: Tensor, batch: EpisodeBatch, rule: TargetRule) -> tuple[Tensor, Tensor]:
    """Targets ``[n, L]`` for the actions taken, and where they are known.

    Args:
        q: ``[n, L + 1, A]`` of the Q-network.
        target_q: ``[n, L + 1, A]`` of the target network.
        batch: the episodes.
        rule: the targets.
    """
    best = among(q if rule.double_q else target_q, batch.allowed).argmax(dim=2)
    following = target_q[:, 1:].gather(2, best[:, 1:, None]).squeeze(2).masked_fill(batch.terminated, 0.0)

    def targets(rewards: Tensor, following: Tensor, gamma: float) -> Tensor:
        if rule.trace_decay > 0:
            greedy = best[:, :-1] == batch.actions
            return trace_targets(rewards, following, batch.mask, gamma, rule.trace_decay, greedy)
        return n_step_targets(rewards, following, batch.mask, gamma, rule.n_steps)

    known = torch.ones_like(batch.mask)
    if batch.allowed is not None:
        unknown = batch.mask & ~batch.terminated & ~batch.allowed[:, 1:].any(dim=2)
        # A target is a sum of values with weights; those that weigh an unknown one are found by the same sum.
        known = targets(torch.zeros_like(following), unknown.to(following.dtype), 1.0) == 0
    return targets(batch.rewards, following, rule.gamma), known


def _actions(batch: EpisodeBatch) -> Tensor:
    """Actions that can be used as an index in padding, too."""
    return batch.actions.masked_fill(~batch.mask, 0)


# MERGED: Deep recurrent Q-learning (Hausknecht and Stone, 2015; the paper's appendices D and E) for Stable-
# Baselines3.

SelfDRQN = TypeVar("SelfDRQN", bound="DRQN")


class DRQN(DQN):
    """DQN with memory: an LSTM or GRU reads the whole episode, and replay keeps whole episodes.

    Other than in :class:`stable_baselines3.DQN`, :meth:`predict` takes and returns the memory (conventions of
    sb3-contrib's ``RecurrentPPO``) and tosses one coin per environment; ``batch_size`` counts episodes; an update
    computes hidden states from an episode's first step on, so that acting and learning see the same Q-values.

    An environment with a method ``action_masks()`` (sb3-contrib's convention) is asked for it at every step: forbidden
    actions are never taken and do not count in the target's maximum. After an episode that was cut off, the mask is
    read from ``info["action_mask"]``; where that is missing, what depends on it is left out of the loss
    (``train/unknown_masks`` counts it). In evaluation, :class:`agents.drqn.drqn.MaskedPolicy` asks.

    Args:
        policy: ``"MlpLstmPolicy"``, ``"CnnLstmPolicy"``, ``"MultiInputLstmPolicy"`` or a class; for ``policy_kwargs``
            (``cell="gru"``) see :class:`~agents.drqn.policy.RecurrentQPolicy`.
        buffer_size: capacity of the replay in steps; with ``replay_buffer_kwargs={"unit": "episodes"}`` in episodes.
        batch_size: whole episodes per update.
        n_steps: rewards in a target before the target network's value.
        trace_decay: lambda of Watkins' Q(lambda) in place of ``n_steps``; 0: off.
        double_q: the Q-network picks the action whose value the target network gives.
        horizon_is_terminal: an episode that was cut off counts as ended, as in the paper (finite horizon). Default: the
            value of what would have followed is bootstrapped, as everywhere in Stable-Baselines3.
        exploration_stretch: mean length of exploring (:class:`~agents.drqn.drqn.StretchExplorer`); 1: usual coins.

    All other arguments are those of :class:`stable_baselines3.DQN`. Same seed, same bytes on a CPU.

    Raises:
        ValueError: an argument is not possible.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpLstmPolicy": RecurrentQPolicy,
        "CnnLstmPolicy": CnnRecurrentQPolicy,
        "MultiInputLstmPolicy": MultiInputRecurrentQPolicy,
    }
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
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        n_steps: int = 1,
        trace_decay: float = 0.0,
        double_q: bool = True,
        horizon_is_terminal: bool = False,
        target_update_interval: int = 1000,
        exploration_fraction: float = 0.3,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        exploration_stretch: float = 1.0,
        max_grad_norm: float = 10,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        super().__init__(
            policy,  # type: ignore[arg-type]
            env,  # type: ignore[arg-type]
            learning_rate,
            buffer_size,
            gamma=gamma,
            train_freq=train_freq,
            replay_buffer_class=EpisodeReplayBuffer,
            replay_buffer_kwargs=replay_buffer_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=False,
        )
        self.learning_starts, self.batch_size, self.gradient_steps = learning_starts, batch_size, gradient_steps
        self.tau, self.target_update_interval, self.max_grad_norm = tau, target_update_interval, max_grad_norm
        self.exploration_initial_eps, self.exploration_final_eps = exploration_initial_eps, exploration_final_eps
        self.exploration_fraction, self.exploration_stretch = exploration_fraction, exploration_stretch
        self.n_steps, self.trace_decay, self.double_q = n_steps, trace_decay, double_q
        self.horizon_is_terminal = horizon_is_terminal
        self._rngs: dict[str, np.random.Generator] | None = None
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        self._target_rule()
        n_steps, rngs = self.n_steps, self._rngs
        # The base would warn that a replay of another class does not know of n_steps: the targets do.
        self.n_steps = 1
        self.replay_buffer_kwargs = {
            **self.replay_buffer_kwargs,
            "handle_timeout_termination": not self.horizon_is_terminal,
            "masks": has_action_masks(self.env),
        }
        super()._setup_model()
        self.n_steps = n_steps
        # A loaded model draws on from where it was saved.
        self._rngs = rngs or self._rngs or generators(None)
        self._prepare()

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed torch, NumPy, the action space, the environment, and the generators of this agent."""
        super().set_random_seed(seed)
        if seed is not None:
            self._rngs = generators(seed)
            if self.replay_buffer is not None:
                self._prepare()

    def load_replay_buffer(self, path: str | Path | BufferedIOBase, truncate_last_traj: bool = True) -> None:
        """Load what ``save_replay_buffer`` wrote, without episodes under way; learning goes on with a reset.

        Raises:
            ValueError: either the replay or the environment has action masks.
        """
        before = self.replay_buffer
        super().load_replay_buffer(path, truncate_last_traj)
        if ("allowed" in self.replay_buffer.fields) != self.replay_buffer_kwargs["masks"]:
            self.replay_buffer = before
            raise ValueError(f"{path}: the replay and the environment do not agree on whether there are action masks")
        self.replay_buffer.forget_open(self.n_envs)
        self._last_obs = None
        self._prepare()

    def _target_rule(self) -> TargetRule:
        return TargetRule(self.gamma, self.n_steps, self.trace_decay, self.double_q)

    def _prepare(self) -> None:
        """Hand the generators out."""
        assert self._rngs is not None
        self.replay_buffer.rng = self._rngs["replay"]
        rng = self._rngs["explore"]
        self._actor = Actor(self.n_envs, int(self.action_space.n), self.exploration_stretch, rng)

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        if self._last_obs is None or reset_num_timesteps or not self._actor.under_way:
            self._last_obs = None  # The base resets the environments then.
            self._actor.begin()
            self.replay_buffer.forget_open()
        if has_action_masks(self.env) != self.replay_buffer_kwargs["masks"]:
            raise ValueError("DRQN: action masks came or went: pass the environment to the constructor or to load()")
        return super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)

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
        assert self._last_obs is not None
        masks = action_masks_of(self.env) if self.replay_buffer_kwargs["masks"] else None
        epsilon = 1.0 if self.num_timesteps < learning_starts else self.exploration_rate
        actions, stored = self._actor.choose(self.policy, self._last_obs, epsilon, masks)
        return actions + int(self.action_space.start), stored

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: npt.NDArray[Any],
        new_obs: npt.NDArray[Any] | dict[str, npt.NDArray[Any]],
        reward: npt.NDArray[Any],
        dones: npt.NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None:
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        self._actor.note_ends(dones)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Make updates on ``batch_size`` whole episodes each; none before a first episode has ended."""
        if len(self.replay_buffer.episodes) == 0:
            return
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        losses, unknown, rule = [], 0, self._target_rule()
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            loss, left_out = episode_loss(self.q_net, self.q_net_target, batch, rule)
            self.policy.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.q_net.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            losses.append(loss.item())
            unknown += int(left_out)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))
        if self.replay_buffer_kwargs["masks"]:
            self.logger.record("train/unknown_masks", unknown)

    def predict(
        self,
        observation: ArrayObservation,
        state: ArrayMemory | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
        action_masks: npt.NDArray[Any] | None = None,
    ) -> tuple[npt.NDArray[Any], ArrayMemory]:
        """Actions, and the memory to hand to the next call.

        Args:
            observation: of one environment, or ``[n, ..]``.
            state: what the call before returned; None: episodes begin.
            episode_start: ``[n]`` True where the observation is the first of an episode: the memory is cleared there.
            deterministic: greedy; otherwise every row takes a random action with the current epsilon.
            action_masks: ``[n, A]`` True where an action may be taken; None: everywhere.

        Raises:
            ValueError: the state or the masks do not fit the observations, or a row has no allowed action.
        """
        q, memory, vectorised = self.policy.q_values(observation, state, episode_start)
        allowed = checked_masks(action_masks, *q.shape)
        actions = greedy_actions(q, allowed)
        if not deterministic:
            assert self._rngs is not None  # "predict" is its own: evaluating in between leaves training as it is.
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
        """Train for a number of environment steps; arguments as everywhere in Stable-Baselines3."""
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_actor"]


# MERGED: Evaluating an agent where some actions are forbidden, with tools that do not know of masks.


class MaskedPolicy:
    """An agent that asks its environment which actions are allowed before it acts.

    ``evaluate_policy(MaskedPolicy(model, env), env)`` of Stable-Baselines3 then works as without masks. (sb3-contrib's
    own ``evaluate_policy`` for masks does not hand the memory on, version 2.9.2.)

    Args:
        model: the agent.
        env: the environment that will be stepped with the actions, with a method ``action_masks()``.
    """

    def __init__(self, model: DRQN, env: GymEnv) -> None:
        self.model, self.env = model, env

    def predict(
        self,
        observation: ArrayObservation,
        state: ArrayMemory | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], ArrayMemory]:
        """Actions and memory, see :meth:`agents.drqn.drqn.DRQN.predict`."""
        return self.model.predict(observation, state, episode_start, deterministic, action_masks_of(self.env))
