"""Policies whose behaviour is known without learning, and the simulator's equations written a second time."""

from __future__ import annotations

import random

import numpy as np


class Scripted:
    """Treats with a constant probability, whatever it sees."""

    def __init__(self, chance: float, seed: int = 0) -> None:
        self.chance = chance
        self.rng = np.random.default_rng(seed)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return (self.rng.random(len(observation)) < self.chance).astype(np.int64), state


def plain_course(start, actions, noise=None):
    """The equations of the simulator in plain Python: [(x, z), ...] from t = 0 until the process ends.

    With n treatments among the last 5: x_t = mean(last 5 x) - 2.5 n + 2.5 + eps, z_t = mean(last 5 z) + n - 2.5 + eta.
    """
    xs, zs, doses = [start[0]] * 5, [start[1]] * 5, [0] * 5
    course = [tuple(start)]
    for t, action in enumerate(actions):
        doses = [action, *doses[:4]]
        eps, eta = (0.0, 0.0) if noise is None else noise[t]
        x = max(sum(xs) / 5 - 2.5 * sum(doses) + 2.5 + eps, 0.0)
        z = max(sum(zs) / 5 + 1.0 * sum(doses) - 2.5 + eta, 0.0)
        xs, zs = [x, *xs[:4]], [z, *zs[:4]]
        course.append((x, z))
        if x == 0 or x >= 50 or z >= 15:
            break
    return course


def plain_returns(chance, episodes, seed, w=(-0.3, -0.7)):
    """Undiscounted returns of treating with a constant probability, drawn with Python's own random numbers."""
    rng = random.Random(seed)
    returns = []
    for _ in range(episodes):
        start = []
        for mean, sd, limit in ((30, 5, 50), (2, 1, 15)):
            value = 0.0
            while not 0 < value < limit:
                value = rng.gauss(mean, sd)
            start.append(value)
        noise = [(rng.gauss(0, 0.1), rng.gauss(0, 0.1)) for _ in range(20)]
        course = plain_course(start, [int(rng.random() < chance) for _ in range(20)], noise)
        returns.append(sum(w[0] * x / 50 + w[1] * z / 15 for x, z in course[1:]))
    return np.array(returns)
