"""Acting in the environments that are learnt from, each with its own memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agents.action_masks import checked_masks
from agents.drqn_policy import ArrayMemory, RecurrentQPolicy, greedy_actions
from agents.episode_replay import ArrayObservation
from agents.exploration import StretchExplorer
from cirl_gym.types import BoolArray


class Actor:
    """What n environments have seen in the episodes under way, and who explores.

    Args:
        n: environments.
        n_actions: A.
        stretch: mean length of exploring, see :class:`~agents.exploration.StretchExplorer`.
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
