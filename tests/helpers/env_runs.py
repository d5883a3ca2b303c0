"""Driving environments and comparing what they return."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest

from cirl_gym import register_envs

register_envs()
AutoresetMode = getattr(gym.vector, "AutoresetMode", None)  # Gymnasium below 1.1 has none
MODES = list(AutoresetMode or ())
new_gymnasium = pytest.mark.skipif(not MODES, reason="the native vector environments need gymnasium >= 1.1")
IDS = ("CIRLTumour-v0", "CIRLCounterfactual-v0")
copied = pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
CHANCES = np.array([1.0, 0.0, 0.2])
"""Of treatment, for three patients whose episodes differ in length: cured, failing, and kept to the horizon."""


def native(env_id, mode, n=3, **arguments):
    """The vector form of this package."""
    arguments = {"autoreset_mode": mode, **arguments}
    return gym.make_vec(env_id, num_envs=n, vectorization_mode="vector_entry_point", **arguments)


def sync(env_id, mode, n=3, **arguments):
    """Gymnasium's loop over single environments."""
    return gym.make_vec(env_id, n, "sync", vector_kwargs={"autoreset_mode": mode}, **arguments)


def episode(env, actions, **reset):
    """Observations of one episode, and what else its steps return; the actions go on as long as the episode does."""
    seen, steps = [env.reset(**reset)[0]], []
    for action in actions:
        obs, *step = env.step(action)
        seen.append(obs)
        steps.append(tuple(step))
        if step[1] or step[2]:
            break
    return seen, steps


def assert_refused(make, bad, message, good=1, steps=1, error=ValueError):
    """``bad(env)`` is an error, and the environment goes on like one to which it was never done."""
    env, reference = make(), make()
    assert_same(env.reset(seed=1), reference.reset(seed=1))
    with pytest.raises(error, match=message):
        bad(env)
    for _ in range(steps):
        assert_same(env.step(good), reference.step(good))
    assert_same(env.reset(), reference.reset())


def drive(env, steps, seed=7, options=None, masks=None):
    """Everything that a vector environment of 3 returns over several episodes, reset where the mode needs it.

    With ``masks``, which tells what is allowed ``[3, 2]``, the second action is taken only where it is; in a row whose
    step is ignored it is not asked.
    """
    rng, mode = np.random.default_rng(0), env.metadata["autoreset_mode"].value
    returned, ended = [env.reset(seed=seed, options=options)], np.zeros(env.num_envs, dtype=bool)
    for _ in range(steps):
        actions = rng.random(env.num_envs) < CHANCES
        if masks is not None:
            actions &= masks()[:, 1] | (ended if mode == "NextStep" else False)
        returned.append(env.step(actions.astype(np.int64)))
        ended = returned[-1][2] | returned[-1][3]
        if mode == "Disabled" and ended.any():
            returned.append(env.reset(options={"reset_mask": ended}))
    return returned


def assert_same(a, b):
    """Equal to the last bit, in type too, through dictionaries, tuples, lists and object arrays."""
    assert type(a) is type(b) or (isinstance(a, dict) and isinstance(b, dict)), (type(a), type(b))
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for name in a:
            assert_same(a[name], b[name])
    elif isinstance(a, tuple | list) or (isinstance(a, np.ndarray) and a.dtype == object and a.ndim):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


def cut(env, actions, mode):
    """Whole episodes of every row under ``actions [T, n]``, and the actions that were used for them."""
    n = actions.shape[1]
    found, used = [[] for _ in range(n)], [[] for _ in range(n)]
    obs, _ = env.reset(seed=7)
    current = [[o.copy()] for o in obs]
    dead = np.zeros(n, dtype=bool)
    for taken in actions:
        obs, rewards, terminated, truncated, info = env.step(taken)
        ended = terminated | truncated
        for i in range(n):
            if dead[i]:  # next-step mode: this action was not used
                assert rewards[i] == 0
                current[i] = [obs[i].copy()]
                continue
            used[i].append(int(taken[i]))
            same = mode.value == "SameStep" and ended[i]
            current[i].append((info["final_obs"][i] if same else obs[i]).copy())
            if ended[i]:
                found[i].append(np.array(current[i]))
                current[i] = [obs[i].copy()]
        dead = ended if mode.value == "NextStep" else np.zeros(n, dtype=bool)
        if mode.value == "Disabled" and ended.any():
            fresh, _ = env.reset(options={"reset_mask": ended})
            for i in np.flatnonzero(ended):
                current[i] = [fresh[i].copy()]
    return found, used


def assert_single_courses(env_id, found, used):
    """Every row's episodes are those of the single environment with the row's seed and actions, to the last bit."""
    for i, episodes in enumerate(found):
        single, remaining = gym.make(env_id), iter(used[i])
        for k, seen in enumerate(episodes):
            expected, _ = episode(single, remaining, seed=7 + i if k == 0 else None)
            assert seen.tobytes() == np.array(expected).tobytes()
