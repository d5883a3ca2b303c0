"""Acting with the successor-feature agent: Stable-Baselines3's calling convention, with memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from agents.carried_memory import warn_of_lost_history
from cirl_gym.action_rules import among_allowed
from cirl_gym.outcome_models.masked import allowed_actions
from cirl_gym.types import Float32Array, FloatArray, IntArray

if TYPE_CHECKING:
    from agents.successor import SuccessorAgent


class SuccessorPolicy:
    """Greedy or stochastic policy for w; its memory is the world model's state and the time.

    ``w`` is ``[d]``, or ``[n, d]`` where n episodes are acted in at once, each for preferences of its own.
    """

    def __init__(self, agent: SuccessorAgent, w: FloatArray, kappa: float | None, rng: np.random.Generator) -> None:
        if kappa is not None:
            check_kappa(kappa)
        self.agent, self.w, self.kappa, self.rng = agent, w, kappa, rng

    def predict(
        self,
        observation: npt.NDArray[np.float32],
        state: tuple[npt.NDArray[np.generic], ...] | None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = False,
    ) -> tuple[IntArray, tuple[npt.NDArray[np.generic], ...]]:
        """Actions ``[n]`` for observations ``[n, d + A]`` (see :class:`cirl_gym.types.Policy`); never a forbidden one.

        Warns where neither a state nor ``episode_start`` is given although an action was already taken.

        Raises:
            ValueError: the observation has another shape, memory or the previous action is missing although an episode
                is under way, or an episode is longer than the agent's horizon.
        """
        q, memory = self.act(observation, state, episode_start)
        allowed = allowed_actions(self.agent.model, memory[0])
        if deterministic or self.kappa is None:
            return among_allowed(q, allowed).argmax(axis=1), memory
        # Adding Gumbel noise and taking the largest draws from the softmax.
        return among_allowed(self.kappa * q + self.rng.gumbel(size=q.shape), allowed).argmax(axis=1), memory

    def act(
        self,
        observation: npt.NDArray[np.float32],
        state: tuple[npt.NDArray[np.generic], ...] | None,
        episode_start: npt.NDArray[np.bool_] | None,
    ) -> tuple[FloatArray, tuple[Float32Array, IntArray]]:
        """Q ``[n, A]``, of forbidden actions too, and the memory (states ``[n, S]``, time ``[n]``) after seeing it."""
        d, n_actions = len(self.agent.model.features), self.agent.model.n_actions
        if observation.ndim != 2 or observation.shape[1] != d + n_actions:
            raise ValueError(f"predict: observations must be [n, {d + n_actions}], got {observation.shape}")
        obs, hot = observation[:, :d], observation[:, d:]
        # As in Stable-Baselines3, memory that is handed in is used unless an episode is said to start.
        begin = np.full(len(obs), state is None) if episode_start is None else np.asarray(episode_start, np.bool_)
        states = self.agent.model.start(obs)
        times = np.zeros(len(obs), dtype=np.int64)
        if state is not None:
            if not hot[~begin].any(axis=1).all():
                raise ValueError("predict: no previous action although episode_start says that an episode is under way")
            going = self.agent.model.advance(np.asarray(state[0]), hot.argmax(axis=1), obs)
            states = np.where(begin[:, None], states, going)
            times = np.where(begin, 0, np.asarray(state[1]) + 1)
        elif not begin.all():
            raise ValueError("predict: state is None although episode_start says that an episode is under way")
        elif episode_start is None:
            warn_of_lost_history("SuccessorPolicy", hot)
        self.agent.check_horizon(int(times.max()) + 1)
        q = np.zeros((len(obs), n_actions))
        for t in np.unique(times):
            rows = np.flatnonzero(times == t)
            w = np.broadcast_to(self.w, (len(obs), self.w.shape[-1]))[rows]
            psi = self.agent.planned_psi(int(t), states[rows], w)
            q[rows] = psi @ self.w if self.w.ndim == 1 else np.einsum("nad,nd->na", psi, w)
        return q, (states, times)


def check_kappa(kappa: float) -> None:
    """Raise ValueError unless an inverse temperature is a finite number and not negative."""
    if not 0 <= kappa < np.inf:
        raise ValueError(f"kappa must be a finite number, not negative, got {kappa}")
