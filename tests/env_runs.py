"""Driving environments and comparing what they return."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from cirl_gym import register_envs

register_envs()
IDS = ("CIRLTumour-v0", "CIRLCounterfactual-v0")
CHANCES = np.array([1.0, 0.0, 0.2])
"""Of treatment, for three patients whose episodes differ in length: cured, failing, and kept to the horizon."""


def native(env_id, mode, n=3, **arguments):
    """The vector form of this package."""
    arguments = {"autoreset_mode": mode, **arguments}
    return gym.make_vec(env_id, num_envs=n, vectorization_mode="vector_entry_point", **arguments)


def sync(env_id, mode, n=3, **arguments):
    """Gymnasium's loop over single environments."""
    return gym.make_vec(env_id, n, "sync", vector_kwargs={"autoreset_mode": mode}, **arguments)


def drive(env, steps, seed=7, options=None):
    """Everything that a vector environment of 3 returns over several episodes, reset where the mode needs it."""
    rng = np.random.default_rng(0)
    returned = [env.reset(seed=seed, options=options)]
    for _ in range(steps):
        actions = (rng.random(env.num_envs) < CHANCES).astype(np.int64)
        result = env.step(actions)
        returned.append(result)
        ended = result[2] | result[3]
        if env.metadata["autoreset_mode"].value == "Disabled" and ended.any():
            returned.append(env.reset(options={"reset_mask": ended}))
    return returned


def assert_same(a, b):
    """Equal to the last bit, through dictionaries, tuples and object arrays."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for name in a:
            assert_same(a[name], b[name])
    elif isinstance(a, tuple) or (isinstance(a, np.ndarray) and a.dtype == object and a.ndim):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    else:
        assert type(a) is type(b)
        assert a == b
