"""Small environments with known answers for the recurrent Q-learner, and short ways to make one."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from agents.drqn.drqn import DRQN

SMALL = {"lstm_hidden_size": 8, "net_arch": [8]}


class Recall(gym.Env):
    """A cue (one of two) is shown at t = 0 and must be repeated at the last step, for a reward of 1.

    At the last step nothing tells the cues apart, so that whoever only sees the present gets one of the two right: a
    return of 1/2 on average over both.
    """

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, steps=3, cue=None):
        self.steps, self.fixed = steps, cue

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.cue = 0, int(self.np_random.integers(2)) if self.fixed is None else self.fixed
        return self._see(), {}

    def step(self, action):
        self.t += 1
        done = self.t == self.steps
        return self._see(), float(done and action == self.cue), done, False, {}

    def _see(self):
        shown = [1 - 2 * self.cue if self.t == 0 else 0, self.t == self.steps - 1, self.t == 0]
        return np.array(shown, dtype=np.float32)


class Choices(gym.Env):
    """Two steps: action 0 leads on to a choice between 1 and 0, action 1 ends with .5.

    With gamma .9, Q = (.9, .5) at first and (1, 0) after action 0.
    """

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.second = False
        return np.array([1, 0], dtype=np.float32), {}

    def step(self, action):
        if self.second:
            return np.zeros(2, dtype=np.float32), float(action == 0), True, False, {}
        self.second = True
        return np.array([0, 1], dtype=np.float32), 0.5 * (action == 1), bool(action == 1), False, {}


class Counting(gym.Env):
    """Says [episode, t, noise]; episodes have the given lengths in turn and are cut off or ended in turn."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def __init__(self, lengths=(1, 3, 20), first=0, action_space=None):
        self.lengths, self.episode, self.noise = lengths, first - 1, np.random.default_rng(first)
        self.action_space = action_space or spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._see(), {}

    def step(self, action):
        self.t += 1
        over = self.t == self.lengths[self.episode % len(self.lengths)]
        cut = bool(over and self.episode % 2)
        return self._see(), float(self.t), bool(over and not cut), cut, {}

    def _see(self):
        return np.array([self.episode, self.t, self.noise.random()], dtype=np.float32)


class Forbidding(Counting):
    """Four actions, of which two are allowed at a time; a forbidden one is an error."""

    def __init__(self, start=0, tell_last=True, **arguments):
        super().__init__(action_space=spaces.Discrete(4, start=start), **arguments)
        self.tell_last = tell_last

    def action_masks(self):
        allowed = np.zeros(4, dtype=bool)
        allowed[[self.t % 4, (self.t + self.episode + 1) % 4]] = True
        return allowed

    def step(self, action):
        assert self.action_masks()[action - self.action_space.start], f"{action} is forbidden at {self.t}"
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, {"action_mask": self.action_masks()} if self.tell_last else info


def small_drqn(env, **arguments):
    """A tiny agent on one thread of a CPU."""
    given = {"learning_starts": 20, "batch_size": 4, "device": "cpu", "seed": 0, "policy_kwargs": SMALL} | arguments
    return DRQN(given.pop("policy", "MlpLstmPolicy"), env, **given)
