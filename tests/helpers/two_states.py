"""A fully known environment of somebody else: two states, two actions, an end after three steps."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class TwoStates(gym.Env):
    """Action ``first + 1`` goes to the other state, ``first`` stays; the last step ends the process."""

    _copied = True
    """False: one array that is written into, as some environments do."""

    def __init__(self, first=0, last=3):
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2, start=first)
        self._first, self._last = first, last
        self._shown = np.zeros(2, np.float32)

    def _obs(self):
        self._shown[:] = (self._state, 1 - self._state)
        return self._shown.copy() if self._copied else self._shown

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._steps = int(self.np_random.integers(2)), 0
        return self._obs(), {}

    def step(self, action):
        self._steps += 1
        self._state ^= int(action) - self._first
        return self._obs(), float(self._state), self._steps == self._last, False, {}
